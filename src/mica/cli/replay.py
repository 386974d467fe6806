"""replay: what offering paths would have been worth, walked again over one's own history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from mica.cli.output import Output, json_option, reading, store_options, target
from mica.clients.discovery import Place, planned
from mica.errors import InvalidInput
from mica.format.lines import counted
from mica.mcp.tools import TOOLS
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.navigation.replay import Replay, together
from mica.navigation.replay_page import charts, facts, page
from mica.settings import Settings, load_settings
from mica.tokens import about

SHAPES_SHOWN = 6
LOSSES_SHOWN = 3


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
    """Walk your own history again, task by task, and tell what naming files in advance would have saved and wasted.

    Each task is predicted with what was known when it was asked; files are those of the git history at that time.
    PATH names transcripts to read instead of this space; nothing of them is kept.

    Example: mica replay --html replay.html
    """
    settings = load_settings()
    output = Output(as_json=as_json)
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidInput(f"{html} cannot be written: {html.absolute().parent} is no folder")
    told, brief_tokens = asyncio.run(_told(path, root, settings=settings, place=target(settings, store, space)))
    standing = standing_cost(told, brief_tokens=brief_tokens)
    if html is not None:
        html.write_text(page(told), encoding="utf-8")
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
        for name, drawn in charts(told).items():
            (svg / f"{name}.svg").write_text(drawn, encoding="utf-8")
    document = {"verdict": told.verdict, "replay": told, "standing": standing}

    def for_people(console: Console) -> None:
        _show(console, told, html=html, svg=svg)
        if standing.sessions:
            console.print(f"[dim]{escape(standing.told)}[/]", soft_wrap=True)

    output.show(document, for_people)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What mica costs each session whether it is asked or not: its tools in the window, and the brief at the start."""

    sessions: int
    schema_tokens: int
    brief_tokens: int
    net_tokens: int  # of the replay, less both for each session

    @property
    def told(self) -> str:
        own = f"{self.schema_tokens:,} tokens of tools and {self.brief_tokens:,} of a brief"
        each = f"Each of {counted(self.sessions, 'session')} also pays for mica itself, {own}"
        return f"{each}: with them the net is {self.net_tokens:+,} tokens."


def standing_cost(told: Replay, *, brief_tokens: int) -> Standing:
    """What stands in every session's window, beside what offers cost and save."""
    sessions = len({row.session or row.task for row in told.rows})
    schema_tokens = about(msgspec.json.encode([tool.listed() for tool in TOOLS]).decode())
    net = told.net_tokens - sessions * (schema_tokens + brief_tokens)
    return Standing(sessions=sessions, schema_tokens=schema_tokens, brief_tokens=brief_tokens, net_tokens=net)


async def _told(path: Path | None, root: Path | None, *, settings: Settings, place: Path | str) -> tuple[Replay, int]:
    """The account, and the tokens of the brief that sessions begin with; none for transcripts of elsewhere."""
    if path is None:
        async with reading(place, settings=settings) as memory:
            answer = None if memory.spools is None else memory.spools.session_answer()
            return await _replayed(memory, root), 0 if answer is None else about(answer.text)
    found = planned([Place(path)], settings=settings, into=None)
    if not found.plans:
        raise InvalidInput(f"{path} holds no transcript; `mica import --help` names the clients whose files are read")
    told: list[Replay] = []
    for plan in found.plans:  # projects do not learn from each other
        async with open_memory(":memory:", settings=settings) as memory:
            await memory.import_transcripts(plan.files, root=plan.roots)
            told.append(await _replayed(memory, root))
    return together(told), 0


async def _replayed(memory: Memory, root: Path | None) -> Replay:
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Walking")
        return await memory.replay_walks(
            root=root, on_progress=lambda done: progress.update(task, description=f"Walked {done:,} tasks")
        )


def _show(console: Console, told: Replay, *, html: Path | None, svg: Path | None) -> None:
    for name, reason in told.missing.items():
        click.echo(f"mica: {name}: {reason}", err=True)
    console.print(f"[bold]{escape(told.verdict)}[/]", soft_wrap=True)
    for said in facts(told):
        console.print(escape(said), soft_wrap=True)
    if told.baselines:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("before the first edit (median)", "tasks", "tokens", "calls", "seconds"):
            table.add_column(column, justify="left" if column[0] == "b" else "right")
        for shape in told.baselines[:SHAPES_SHOWN]:
            figures = (shape.tasks, shape.median_tokens, shape.median_calls, shape.median_seconds)
            table.add_row(escape(shape.shape), *(f"{figure:,.0f}" for figure in figures))
        console.print(table)
    worst = sorted((row for row in told.rows if row.net_tokens < 0), key=lambda row: row.net_tokens)[:LOSSES_SHOWN]
    for row in worst:
        prompt = " ".join(row.prompt.split())[:60]
        console.print(f"  [red]{row.net_tokens:+,}[/]  {escape(prompt)}  [dim]offered {len(row.offered)}[/]")
    if html is not None:
        console.print(f"Every task stands in {escape(str(html))}.", soft_wrap=True)
    if svg is not None:
        console.print(f"The charts stand in {escape(str(svg))}.", soft_wrap=True)
