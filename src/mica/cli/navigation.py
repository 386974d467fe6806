"""navigate, and trails replay and report: the files a task needs, and the tokens that suggesting them saves."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Literal

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from mica.cli.output import (
    Moment,
    Output,
    describe_emptiness,
    json_option,
    limit_option,
    memory_command,
    open_to_read,
    sentence_of,
    store_options,
    target,
)
from mica.clients.discovery import TranscriptFolder, plan_imports
from mica.errors import InvalidInput
from mica.format.lines import plural
from mica.mcp.tools import TOOLS
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.navigation.replay import Replay, combine
from mica.navigation.replay_page import describe, draw_charts, render_page
from mica.navigation.report import Report
from mica.settings import Settings, load_settings
from mica.tokens import about

NO_MATCH = "No file of this working tree matches the task."
SHAPES_SHOWN = 6
LOSSES_SHOWN = 3


@click.command()
@click.argument("task", nargs=-1, required=True)
@limit_option("How many files.", default=10, most=1_000)
@click.option("--session", help="The current session; its own steps count most.")
@memory_command
async def navigate(memory: Memory, output: Output, *, task: tuple[str, ...], limit: int, session: str | None) -> None:
    """List the files that a task will need, with lines and reasons.

    The best comes first. The percentage is the probability that the file is read or changed for the task.

    Example: mica navigate "login redirect loses the session"
    """
    words = " ".join(task)
    if not words.strip():
        raise click.UsageError('say what the task is, as in: mica navigate "login redirect loses the session"')
    places = await memory.navigate(words, limit=limit, session=session)
    emptiness = None if places else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        for name, reason in places.missing.items():
            if places or name != "files":
                click.echo(f"mica: {name}: {reason}", err=True)
        if not places:
            nothing = "No file was found for this task." if places.missing else NO_MATCH
            if (absent := places.missing.get("files")) is not None:
                nothing = f"No file was found for this task: {absent}."
            console.print(f"{nothing} {sentence_of(emptiness)}" if emptiness else nothing, soft_wrap=True, markup=False)
        for place in places:
            where = ",".join(f"{lines.start}-{lines.end}" for lines in place.lines)
            path = escape(f"{place.path}:{where}" if where else place.path)
            reasons = escape("; ".join(place.reasons))
            console.print(f"[green]{place.probability:4.0%}[/]  {path}  [dim]{reasons}[/]", soft_wrap=True)

    output.show({"task": words, "places": list(places), "missing": places.missing}, for_people)


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), required=False)
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository of the tasks."
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write one page with charts and every task."
)
@click.option("--svg", type=click.Path(file_okay=False, path_type=Path), help="Write the charts into this folder.")
@store_options
@json_option
def replay(
    path: Path | None,
    *,
    root: Path | None,
    html: Path | None,
    svg: Path | None,
    store: str | None,
    space: str | None,
    as_json: bool,
) -> None:
    """Measure what naming files in advance would have saved.

    Files are predicted for every task of your history, from what was known at that time and from the files that git had
    then. PATH names transcripts to read instead of this space; they are not stored.

    Example: mica trails replay --html replay.html
    """
    settings = load_settings()
    output = Output(as_json=as_json)
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidInput(f"{html} cannot be written: {html.absolute().parent} is not a folder")
    replayed, brief_tokens = asyncio.run(
        _replay_and_brief_tokens(path, root, settings=settings, place=target(settings, store, space))
    )
    overhead = session_cost(replayed, brief_tokens=brief_tokens)
    if html is not None:
        html.write_text(render_page(replayed), encoding="utf-8")
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
        for name, drawn in draw_charts(replayed).items():
            (svg / f"{name}.svg").write_text(drawn, encoding="utf-8")
    document = {"verdict": replayed.verdict, "replay": replayed, "standing": overhead}

    def for_people(console: Console) -> None:
        _show_replay(console, replayed, html=html, svg=svg)
        if overhead.sessions:
            console.print(f"[dim]{escape(overhead.summary)}[/]", soft_wrap=True)

    output.show(document, for_people)


class SessionCost(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that mica costs in every session, even if it is not used: those of its tools and a first brief."""

    sessions: int
    schema_tokens: int
    brief_tokens: int
    net_tokens: int  # of the replay, minus both for each session

    @property
    def summary(self) -> str:
        own = f"{self.schema_tokens:,} tokens of tools and {self.brief_tokens:,} of a brief"
        each = f"Each of {plural(self.sessions, 'session')} also pays for mica itself: {own}"
        return f"{each}. With these the net is {self.net_tokens:+,} tokens."


def session_cost(replayed: Replay, *, brief_tokens: int) -> SessionCost:
    """Compute what mica itself costs in the replayed sessions, and how much of the savings is left after that cost."""
    sessions = len({row.session or row.task for row in replayed.rows})
    schema_tokens = about(msgspec.json.encode([tool.listing() for tool in TOOLS]).decode())
    net = replayed.net_tokens - sessions * (schema_tokens + brief_tokens)
    return SessionCost(sessions=sessions, schema_tokens=schema_tokens, brief_tokens=brief_tokens, net_tokens=net)


async def _replay_and_brief_tokens(
    path: Path | None, root: Path | None, *, settings: Settings, place: Path | str
) -> tuple[Replay, int]:
    """Run the replay, and measure the tokens of the brief that a session begins with (0 for transcripts at a path)."""
    if path is None:
        async with open_to_read(place, settings=settings) as memory:
            answer = None if memory.clients.spools is None else memory.clients.spools.session_answer()
            return await _replay(memory, root), 0 if answer is None else about(answer.text)
    imports = plan_imports([TranscriptFolder(path)], settings=settings, into=None)
    if not imports.plans:
        raise InvalidInput(f"{path} has no transcript; `mica import --help` lists the clients whose files are read")
    replays: list[Replay] = []
    for plan in imports.plans:  # projects do not learn from each other
        async with open_memory(":memory:", settings=settings) as memory:
            await memory.clients.import_transcripts(plan.files, root=plan.roots)
            replays.append(await _replay(memory, root))
    return combine(replays), 0


async def _replay(memory: Memory, root: Path | None) -> Replay:
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Replaying")
        return await memory.trails.replay(
            root=root, on_progress=lambda done: progress.update(task, description=f"Replayed {done:,} tasks")
        )


def _show_replay(console: Console, replayed: Replay, *, html: Path | None, svg: Path | None) -> None:
    for name, reason in replayed.missing.items():
        click.echo(f"mica: {name}: {reason}", err=True)
    console.print(f"[bold]{escape(replayed.verdict)}[/]", soft_wrap=True)
    for sentence in describe(replayed):
        console.print(escape(sentence), soft_wrap=True)
    if replayed.baselines:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("before the first edit (median)", "tasks", "tokens", "calls", "seconds"):
            table.add_column(column, justify="left" if column[0] == "b" else "right")
        for shape in replayed.baselines[:SHAPES_SHOWN]:
            figures = (shape.tasks, shape.median_tokens, shape.median_calls, shape.median_seconds)
            table.add_row(escape(shape.shape), *(f"{figure:,.0f}" for figure in figures))
        console.print(table)
    worst = sorted((row for row in replayed.rows if row.net_tokens < 0), key=lambda row: row.net_tokens)[:LOSSES_SHOWN]
    for row in worst:
        prompt = " ".join(row.prompt.split())[:60]
        files = plural(len(row.offered), "file")
        console.print(f"  [red]{row.net_tokens:+,}[/]  {escape(prompt)}  [dim]{files} offered[/]")
    if html is not None:
        console.print(f"Every task is listed in {escape(str(html))}.", soft_wrap=True)
    if svg is not None:
        console.print(f"The charts are in {escape(str(svg))}.", soft_wrap=True)


@click.command()
@click.argument("period", type=click.Choice(["day", "week"]), default="day")
@click.option("--until", type=Moment(), help="The end of the period.  [default: now]")
@memory_command
async def report(memory: Memory, output: Output, period: Literal["day", "week"], until: datetime | None) -> None:
    """Report the cost of tasks, and whether offers helped.

    An offer is a suggestion of trails or files. The cost of a task is what it took before its first edit; the day or
    week before is shown for comparison. Some offers are withheld at random, and tasks with and without an offer are
    compared over eight weeks.

    Example: mica trails report week
    """
    made = await memory.trails.report(period, until=until)
    output.show(made, lambda console: _show_report(console, made))


def _show_report(console: Console, report: Report) -> None:
    console.print(f"[bold]{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC[/]")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", f"this {report.period}", f"the {report.period} before"):
        table.add_column(column, justify="left" if not column else "right")
    rows: list[tuple[str, object, object]] = [
        ("tasks", report.work.tasks, report.before.tasks),
        ("sessions", report.work.sessions, report.before.sessions),
        ("agents", report.work.agents, report.before.agents),
        ("tokens before the first edit (median)", report.work.median_tokens, report.before.median_tokens),
        ("calls", report.work.median_calls, report.before.median_calls),
        ("seconds", report.work.median_seconds, report.before.median_seconds),
    ]
    for name, *values in rows:
        table.add_row(name, *(_format_figure(value) for value in values))
    console.print(table)
    console.print(escape(report.arms.verdict), soft_wrap=True)
    spent = report.spending
    if spent.answers:
        dollars = "unknown" if spent.dollars is None else f"${spent.dollars:,.4f} by prices of {spent.prices_at}"
        unpriced = f"; without a price: {', '.join(spent.unpriced)}" if spent.unpriced else ""
        cost = f"Models gave {plural(spent.answers, 'answer')}, {spent.tokens:,} tokens, {dollars}{unpriced}."
        console.print(escape(cost), soft_wrap=True)
    for name, number in report.events.items():
        console.print(f"  {escape(name)} {number:,}")


def _format_figure(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
