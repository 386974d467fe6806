"""The first look, a screen that `mica up` prints: what agents did lately, the files they reopen, the next brief."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mica.events.activity import FileLine, Overview, SessionLine
from mica.format.lines import format_time, one_line, plural
from mica.model.brief import Brief
from mica.navigation.replay import Replay
from mica.navigation.replay_page import describe

BAR = "▏▎▍▌▋▊▉█"
BAR_CELLS = 8
LINE_CHARACTERS = 300  # of a prompt; the table cuts it to the width of the terminal


def first_look(
    title: str, overview: Overview, brief: Brief, replay: Replay | None = None, *, emptiness: str | None = None
) -> RenderableType:
    """Render one screen about a space: recent sessions, files, and the next brief.

    With `replay`, it begins with what naming files in advance would have saved in past tasks. `emptiness` is a clause
    that is shown in place of the brief if the space is empty.
    """
    parts: list[RenderableType] = [Text.from_markup(f"[bold]{escape(title)}[/]  {_totals(overview)}")]
    if replay is not None and replay.rows:
        verdict = Text("\n".join([replay.verdict, *describe(replay)[:3]]), overflow="fold")
        parts.append(_titled("Would naming files in advance have paid? Your own history, replayed", verdict))
    if overview.sessions:
        parts.append(_titled("What your agents did lately, session by session", _sessions(overview.sessions)))
    if overview.files:
        parts.append(_titled("Files they keep coming back to, and what reading them cost", _files(overview.files)))
    nothing = (
        "nothing fits into the budget" if brief.left_out else f"nothing yet: {emptiness or 'this space has no marks'}"
    )
    text = Text(brief.text or nothing, overflow="fold")
    cost = f"{brief.tokens} tokens (estimated)"
    parts.append(Panel(text, title="What the next agent would receive", subtitle=cost, border_style="dim"))
    return Group(*parts)


def _titled(title: str, table: RenderableType) -> RenderableType:
    return Panel(table, title=title, title_align="left", border_style="dim")


def _totals(overview: Overview) -> str:
    usage = overview.usage
    since = f"since {format_time(overview.since)}" if overview.since else ""
    if overview.is_partial:
        since += ", the latest only"
    if not usage.answers:
        return f"[dim]{plural(overview.events, 'event')} {since}[/]"
    read = usage.input_tokens + usage.cache_write_tokens
    return (
        f"[dim]{plural(overview.events, 'event')} {since} · {plural(usage.answers, 'answer')} · "
        f"{_short(read)} tokens read fresh, {_short(usage.cache_read_tokens)} from cache, "
        f"{_short(usage.output_tokens)} written[/]"
    )


def _sessions(lines: tuple[SessionLine, ...]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1), show_edge=False)
    table.add_column("when", style="dim", no_wrap=True)
    table.add_column("asked → answered", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("prompts", "reads", "edits", "shell", "failed", "tokens read"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        prompt = escape(one_line(line.title or line.prompt or "(no prompt)", LINE_CHARACTERS))
        answered = f"\n[dim]→ {escape(one_line(line.closing, LINE_CHARACTERS))}[/]" if line.closing else ""
        failed = f"[red]{line.failures}[/]" if line.failures else "0"
        numbers = [line.prompts, line.reads, line.edits, line.commands]
        table.add_row(
            format_time(line.ended_at), prompt + answered, *map(str, numbers), failed, _short(line.tokens_read)
        )
    return table


def _files(lines: tuple[FileLine, ...]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1), show_edge=False)
    table.add_column("file", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in ("sessions", "turns", "reads", "edits", "tokens read"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    most = max(line.tokens for line in lines) or 1
    for line in lines:
        numbers = [str(line.sessions), str(line.turns), str(line.reads), str(line.edits), _short(line.tokens)]
        table.add_row(escape(line.path), *numbers, f"[cyan]{_bar(line.tokens / most)}[/]")
    return table


def _bar(share: float) -> str:
    eighths = round(share * BAR_CELLS * 8)
    return (BAR[-1] * (eighths // 8) + (BAR[eighths % 8 - 1] if eighths % 8 else "")).ljust(BAR_CELLS)


def _short(number: int) -> str:
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:.1f}{unit}"
    return str(number)
