"""The first look, a screen that `mica up` prints. It answers four questions about the user's own work.

What did mica find, what will the next agent receive, what happened lately, and is all well?
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mica.cli.output import pasteable
from mica.events.activity import FileLine, Overview, SessionLine
from mica.format.beliefs import Found, speaker
from mica.format.lines import format_time, one_line, plural, strip_control, to_user_zone
from mica.model.brief import Brief

BAR = "▏▎▍▌▋▊▉█"
BAR_CELLS = 8
BELIEF_CHARACTERS = 240  # of one belief: two lines of a terminal
LINE_CHARACTERS = 300  # of a prompt; the table cuts it to the width of the terminal


class FirstLook(msgspec.Struct, frozen=True, kw_only=True):
    """What the first look shows about a space."""

    title: str
    overview: Overview
    brief: Brief
    found: Found
    advice: Sequence[str] = ()  # one sentence for each thing that needs attention
    has_files: bool = False  # also show the files that agents used most
    emptiness: str | None = None  # a clause that is shown in place of the brief if the space is empty


def first_look(look: FirstLook) -> RenderableType:
    """Render one screen about a space: what mica found, the next brief, recent sessions, and its health."""
    overview, brief = look.overview, look.brief
    parts: list[RenderableType] = [Text.from_markup(f"[bold]{escape(look.title)}[/]  {_totals(overview)}")]
    if look.emptiness is None:
        parts.append(_titled("What mica found", _found(look.found)))
    nothing = (
        "nothing fits into the budget"
        if brief.left_out
        else f"nothing yet: {look.emptiness or 'this space has no marks'}"
    )
    text = Text(brief.text or nothing, overflow="fold")
    cost = f"{brief.tokens} tokens (estimated)"
    parts.append(
        Panel(text, title="What the next agent will receive", subtitle=cost, title_align="left", border_style="dim")
    )
    if overview.sessions:
        parts.append(_titled("What happened lately, session by session", _sessions(overview.sessions)))
    if overview.files and look.has_files:
        parts.append(_titled("Files they keep coming back to, and what reading them cost", _files(overview.files)))
    parts.append(_titled("Is all well?", _health(look)))
    return Group(*parts)


def _found(found: Found) -> RenderableType:
    if not found.words:
        hint = pasteable("`mica beliefs add rule TEXT` adds one")
        return Text(f"No rules, decisions or open ends yet. mica learns them from what you tell your agents; {hint}.")
    lines = [f"[bold]{escape(found.words)}[/]"]
    for heading, beliefs in found.newest:
        lines.append(f"[cyan]{heading}[/]")
        for each in beliefs:
            said = f"{to_user_zone(each.last_at):%-d %b} {one_line(speaker(each), 20)}"
            lines.append(f"  {escape(one_line(each.text, BELIEF_CHARACTERS))} [dim]{escape(said)}[/]")
    lines.append(f"[dim]{escape(pasteable('`mica beliefs` lists all, and corrects what is wrong.'))}[/]")
    return Text.from_markup("\n".join(lines), overflow="fold")


def _health(look: FirstLook) -> RenderableType:
    if not look.advice:
        return Text("Yes. Nothing is waiting, and nothing failed lately.")
    return Text("\n".join(f"→ {pasteable(strip_control(line))}" for line in look.advice), overflow="fold")


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
