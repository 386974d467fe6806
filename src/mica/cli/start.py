"""up, overview, spaces: from transcripts to a first look."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.first_look import first_look
from mica.cli.output import Output, json_option, memory_command, reading, space_name, store_options, target
from mica.cli.sample import transcripts as sample_transcripts
from mica.cli.transcripts import STOPPED, Bar, say_found, say_imported
from mica.clients.discovery import Place, Plan, Plans, planned, usual_places
from mica.clients.importer import Imported
from mica.errors import MicaError, UnknownSpace
from mica.format.lines import counted, size
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.model.event import EventQuery
from mica.navigation.replay import Replay
from mica.navigation.replay_page import facts
from mica.settings import Settings, load_settings
from mica.store.space import file_of, space_of
from mica.store.space import spaces as space_files

SAMPLE = "sample"
BRIEF_TOKENS = 600  # of the first look: one screen
LOOK_DEADLINE_S = 2.0  # a person waits longer than an agent
REPLAYED_TASKS = 300  # the latest that are judged at a first look; `mica replay` takes all
EARLY_S = 1.0  # an import that takes longer shows a first look before it ends


@click.command()
@click.option("--transcripts", type=click.Path(exists=True, path_type=Path), help="Where to look for transcripts.")
@click.option("--yes", "-y", is_flag=True, help="Import without asking.")
@click.option("--import/--no-import", "takes_in", default=True, help="Whether transcripts are looked for.")
@click.option("--once", "--no-serve", "once", is_flag=True, help="Show what is there and end: no server.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Where to serve; 0 takes any that is free.  [default: 6422]"
)
@click.option("--host", metavar="ADDRESS", help="Another address than 127.0.0.1, which only this machine can reach.")
@click.option("--browser/--no-browser", default=True, help="Whether a browser is opened, where there is one.")
@store_options
@json_option
def up(
    transcripts: Path | None,
    store: str | None,
    space: str | None,
    *,
    yes: bool,
    takes_in: bool,
    once: bool,
    port: int | None,
    host: str | None,
    browser: bool,
    as_json: bool,
) -> None:
    """Import the transcripts there are, show what agents did, and serve the dashboard until Ctrl-C.

    Dashboard, HTTP, live events and MCP are on one port of this machine. The link that is printed lets a browser in
    once; `mica open` makes another. With no transcripts a bundled sample is shown. It asks before importing when there
    is a terminal; running it again takes up only what is new. With --once, or --json, it shows what is there and ends.

    Example: mica up --yes
    """
    settings = load_settings()
    into = target(settings, store, space) if store is not None or space is not None else settings.store
    if not takes_in:
        place = into or target(settings, None, None)
        if once or as_json:
            asyncio.run(_look_alone(place, settings=settings, output=Output(as_json=as_json)))
        else:
            _serve_alone(place, settings=settings, port=port, host=host, browser=browser)
        return
    places = [Place(transcripts)] if transcripts else usual_places(settings)
    found = planned(places, settings=settings, into=into)
    is_sample = not found.plans
    if is_sample:
        sample = [Place(sample_transcripts())]
        found = planned(sample, settings=settings, into=into or file_of(SAMPLE, home=settings.home))
    output = Output(as_json=as_json)
    waiting = asyncio.run(_waiting(found.plans, settings))
    if not as_json:
        said = _announced(found, places, into=into, waiting=waiting, is_sample=is_sample)
        output.console.print(said, soft_wrap=True)
        if not is_sample:
            say_found(output.console, found)
    may_ask = not (is_sample or yes or as_json) and waiting and sys.stdin.isatty() and sys.stdout.isatty()
    if may_ask and not click.confirm("Import them?", default=True):
        output.console.print("Nothing was imported. `mica up` asks again; `mica overview` shows what is there.")
        return
    look = partial(_look_around, found, output=output, is_sample=is_sample)
    try:
        if once or as_json:
            asyncio.run(look(partial(open_memory, settings=settings)))
        else:
            from mica.cli.server import serve_up  # an extra

            serve_up(found.plans[0].target, look, settings=settings, port=port, host=host, browser=browser)
    except KeyboardInterrupt:
        click.echo(STOPPED, err=True)
        sys.exit(130)


async def _look_alone(place: Path | str, *, settings: Settings, output: Output) -> None:
    """Show what is there."""
    async with reading(place, settings=settings) as memory:
        await _look(memory, space_name(place), output)


def _serve_alone(place: Path | str, *, settings: Settings, port: int | None, host: str | None, browser: bool) -> None:
    """Serve what is there."""
    from mica.cli.server import serve_up  # an extra

    async def look(opened: Opened) -> None:
        async with opened(place):
            pass  # what is wrong with it shows now

    serve_up(place, look, settings=settings, port=port, host=host, browser=browser)


async def _waiting(plans: Sequence[Plan], settings: Settings) -> int:
    """How many transcripts have something new."""
    count = 0
    for plan in plans:
        try:
            async with open_memory(plan.target, settings=settings, must_exist=True) as memory:
                count += len(await memory.unread(plan.files))
        except UnknownSpace:
            count += len(plan.files)
    return count


def _announced(found: Plans, places: Sequence[Place], *, into: Path | str | None, waiting: int, is_sample: bool) -> str:
    if is_sample:
        looked = escape(", ".join(str(place.path) for place in places))
        return f"[yellow]No transcripts in {looked}: this is the bundled sample, an invented web shop.[/]"
    there = f"{counted(found.files, 'transcript')} ({size(found.size_bytes)})"
    if not waiting:
        return f"Nothing new in {there}."
    new = "" if waiting == found.files else f", {waiting:,} with something new"
    where = "each goes into its project's own space" if into is None else f"all go into {escape(str(into))}"
    projects = counted(len(found.plans), "project")
    return f"Found {there}{new} of {projects}; {where}."


Opened: TypeAlias = Callable[[Path | str], AbstractAsyncContextManager[Memory]]


async def _look_around(found: Plans, opened: Opened, *, output: Output, is_sample: bool) -> None:
    """Import what was found and show the newest space: a first look early, all of it at the end."""
    newest = found.plans[0]
    results: dict[str, Imported] = {}
    with Bar(found) as bar:
        async with opened(newest.target) as memory:
            importing = asyncio.create_task(bar.run(memory, newest))
            try:
                await asyncio.wait([importing], timeout=EARLY_S)
                if not importing.done() and not output.as_json:
                    title = space_name(newest.target) + ", a first look while the import goes on"
                    with bar.aside():
                        await _look(memory, title, output)
                results[space_name(newest.target)] = await importing
            finally:  # whoever stops it waits until nothing uses the space any more
                importing.cancel()
                await asyncio.gather(importing, return_exceptions=True)
            for plan in found.plans[1:]:
                async with opened(plan.target) as other:
                    results[space_name(plan.target)] = await bar.run(other, plan)
            with bar.aside():
                told = await memory.replay_walks(latest=REPLAYED_TASKS)
                await _look(memory, space_name(newest.target), output, told=told, results=results, is_sample=is_sample)


@click.command()
@memory_command
async def overview(memory: Memory, output: Output) -> None:
    """What agents did lately in this space, where they keep going, and what the next one would be told.

    Example: mica overview
    """
    await _look(memory, space_name(memory.location), output)


async def _look(
    memory: Memory,
    title: str,
    output: Output,
    *,
    told: Replay | None = None,
    results: Mapping[str, Imported] | None = None,
    is_sample: bool = False,
) -> None:
    seen = await memory.overview()
    brief = await memory.brief(budget_tokens=BRIEF_TOKENS, deadline_s=LOOK_DEADLINE_S, is_preview=True)
    has_tree = await memory.directory() is not None

    def for_people(console: Console) -> None:
        console.print(first_look(title, seen, brief, told))
        if results is not None:
            say_imported(console, results)
            console.print(_next(memory.location, has_tree=has_tree), soft_wrap=True)

    document: dict[str, object] = {"space": title, "is_sample": is_sample, "overview": seen, "brief": brief}
    if told is not None:
        document["replay"] = {"verdict": told.verdict, "facts": facts(told), "missing": told.missing}
    if results is not None:
        document["imported"] = results
    output.show(document, for_people)


def _next(location: str, *, has_tree: bool) -> str:
    """What to type next, as it has to be typed from here; of files only where they are on this machine."""
    home = load_settings().home
    if space_of(Path.cwd(), home=home).file == Path(location):
        option = ""
    elif file_of(space_name(location), home=home) == Path(location):
        option = f" --space {space_name(location)}"
    else:
        option = f" --store {shlex.quote(location)}"
    is_found = shutil.which("mica") or Path(sys.argv[0]).name != "mica"
    program = "mica" if is_found else sys.argv[0]
    lines = [
        ('search "words"', "find what was said, decided and committed"),
        ('brief "your task"', "what an agent would be told about it"),
        *([('navigate "your task"', "the files that it will need, with lines and reasons")] if has_tree else []),
        ("replay", "what naming them in advance would have saved and wasted"),
        ("events tail", "the log itself; `events tree ID` shows what led to what"),
        ('mark "what you saw"', "add an observation; `--help` lists the rest"),
    ]
    typed = [f"{program} {command}{option}" for command, _ in lines]
    width = max(map(len, typed))
    said = [
        f"  {escape(command.ljust(width))}   [dim]{escape(what)}[/]"
        for command, (_, what) in zip(typed, lines, strict=True)
    ]
    said.append(
        f"  {escape(f'{program} install'.ljust(width))}   [dim]let coding agents use it: hooks, MCP server, commands[/]"
    )
    return "\n".join(["[bold]What to type next[/]", *said])


@click.command()
@json_option
def spaces(*, as_json: bool) -> None:
    """List the spaces on this machine, last used first, with the directory that each speaks of.

    Example: mica spaces
    """
    settings = load_settings()
    asyncio.run(_spaces(space_files(settings.home), settings, Output(as_json=as_json)))


async def _spaces(files: Sequence[Path], settings: Settings, output: Output) -> None:
    rows = [await _space(file, settings) for file in files]

    def for_people(console: Console) -> None:
        if not rows:
            console.print("No spaces yet. `mica up` makes the first.")
            return
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("space", "events", "marks", "size", "directory"):
            table.add_column(column, justify="left" if column in ("space", "directory") else "right", overflow="fold")
        for row in rows:
            if "error" in row:
                table.add_row(str(row["name"]), "", "", "", f"[red]{escape(str(row['error']))}[/]")
                continue
            numbers = [f"{row['events']:,}", f"{row['marks']:,}", size(int(str(row["size_bytes"])))]
            told = escape(str(row["directory"])) if row["directory"] else "[dim]not known: no session was recorded[/]"
            table.add_row(str(row["name"]), *numbers, told)
        console.print(table)

    output.show(rows, for_people)


async def _space(file: Path, settings: Settings) -> dict[str, object]:
    try:
        async with open_memory(file, settings=settings) as memory:
            held = await memory.sizes()
            started = await memory.events(EventQuery(names=("session.started",), limit=1))
    except MicaError as error:
        return {"name": space_name(file), "error": str(error)}
    here = space_of(Path.cwd(), home=settings.home)
    return {
        "name": space_name(file),
        "events": held.events,
        "marks": held.marks,
        "size_bytes": held.size_bytes,
        "directory": started[0].data.get("cwd") if started else str(here.root) if here.file == file else None,
    }
