"""up, and events overview: import transcripts and show a first look."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.first_look import first_look
from mica.cli.output import (
    OpenMemory,
    Output,
    current_user,
    json_option,
    memory_command,
    open_to_read,
    space_name,
    store_options,
    target,
)
from mica.cli.sample import transcripts as sample_transcripts
from mica.cli.transcripts import STOPPED, Bar, print_clients, print_imported
from mica.clients.discovery import ImportPlan, Plans, TranscriptFolder, plan_imports, usual_places
from mica.clients.importer import Imported
from mica.errors import UnknownSpace
from mica.format.lines import format_bytes, plural
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.navigation.replay import Replay
from mica.navigation.replay_page import describe
from mica.settings import Settings, load_settings
from mica.store.space import file_of, space_of
from mica.store.space import spaces as space_files

SAMPLE = "sample"
BRIEF_TOKENS = 600  # of the first look: one screen
LOOK_DEADLINE_S = 2.0  # a person waits longer than an agent
REPLAYED_TASKS = 300  # the latest, for a first look; `mica trails replay` takes all
EARLY_S = 1.0  # an import that takes longer shows a first look before it ends
PROJECTS_SHOWN = 12  # half a screen; `mica upkeep spaces` lists all


@click.command()
@click.option("--transcripts", type=click.Path(exists=True, path_type=Path), help="Where to look for transcripts.")
@click.option("--sample", "is_sample", is_flag=True, help="Show the bundled sample, an invented web shop.")
@click.option("--yes", "-y", is_flag=True, help="Import without asking.")
@click.option("--import/--no-import", "imports", default=True, help="Import transcripts first, which is the default.")
@click.option("--once", "--no-serve", "once", is_flag=True, help="Show the first look and exit, without a server.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port of the server; 0 takes any free one.  [default: 6422]"
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The address of the server; 127.0.0.1, the default, is only reachable from this machine.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, the default if there is a display.")
@store_options
@json_option
def up(
    transcripts: Path | None,
    store: str | None,
    space: str | None,
    *,
    is_sample: bool,
    yes: bool,
    imports: bool,
    once: bool,
    port: int | None,
    host: str | None,
    browser: bool,
    as_json: bool,
) -> None:
    """Import transcripts, show what agents did, serve the dashboard.

    If there are several projects, it lists them, the current directory's first. Without any transcripts it shows the
    bundled sample; --sample shows it at any time, in a separate space. In a terminal it asks before it imports. Run it
    again to import what is new.

    The dashboard, the HTTP API, live events and MCP are served on one port until Ctrl-C. The printed link works once;
    `mica server open` makes another. With --once or --json nothing is served.

    Example: mica up --sample
    """
    settings = load_settings()
    output = Output(as_json=as_json)
    into = target(settings, store, space) if store is not None or space is not None else settings.store
    if is_sample and (transcripts or not imports):
        raise click.UsageError("--sample shows the bundled transcripts; leave out --transcripts and --no-import")
    if not imports:
        place, look = into or target(settings, None, None), None
    else:
        places = [TranscriptFolder(transcripts)] if transcripts else usual_places(settings, current_user())
        plans = None if is_sample else _plan_projects(places, settings=settings, into=into)
        if plans is None or not plans.plans:
            _announce_sample(output, places, is_requested=is_sample)
            bundled = [TranscriptFolder(sample_transcripts())]
            plans = plan_imports(bundled, settings=settings, into=into or file_of(SAMPLE, home=settings.home))
            is_sample = True
        elif not _ask_to_import(plans, settings=settings, into=into, output=output, yes=yes):
            output.console.print("Nothing was imported. `mica events overview` shows what is stored already.")
            return
        place, look = plans.plans[0].target, partial(_look_around, plans, output=output, is_sample=is_sample)
    try:
        if not (once or as_json):
            from mica.cli.server_process import serve_up  # an extra

            serve_up(place, look or partial(_open, place), settings=settings, port=port, host=host, browser=browser)
        elif look is None:
            asyncio.run(_look_alone(place, settings=settings, output=output))
        else:
            asyncio.run(look(partial(open_memory, settings=settings)))
    except KeyboardInterrupt:
        click.echo(STOPPED, err=True)
        sys.exit(130)


def _plan_projects(places: Sequence[TranscriptFolder], *, settings: Settings, into: Path | str | None) -> Plans:
    """The projects to import: that of the current directory first, then the others, the latest first."""
    plans = plan_imports(places, settings=settings, into=into)
    here = space_of(Path.cwd(), home=settings.home).file
    return msgspec.structs.replace(plans, plans=sorted(plans.plans, key=lambda plan: plan.target != here))


def _announce_sample(output: Output, places: Sequence[TranscriptFolder], *, is_requested: bool) -> None:
    looked = escape(", ".join(str(place.path) for place in places))
    reason = "" if is_requested else f"No transcripts in {looked}. "
    if not output.as_json:
        output.console.print(f"[yellow]{reason}This is the bundled sample, an invented web shop.[/]", soft_wrap=True)


def _ask_to_import(plans: Plans, *, settings: Settings, into: Path | str | None, output: Output, yes: bool) -> bool:
    """Print what can be imported, and ask if there is a terminal."""
    waiting = asyncio.run(_count_unread(plans.plans, settings))
    if output.as_json:
        return True
    output.console.print(_announcement(plans, into=into, waiting=waiting), soft_wrap=True)
    print_clients(output.console, plans)
    if len(plans.plans) > 1:
        output.console.print(_project_table(plans.plans, settings))
    may_ask = waiting and not yes and sys.stdin.isatty() and sys.stdout.isatty()
    return not may_ask or click.confirm("Import them?", default=True)


def _announcement(plans: Plans, *, into: Path | str | None, waiting: int) -> str:
    transcripts = f"{plural(plans.files, 'transcript')} ({format_bytes(plans.size_bytes)})"
    if not waiting:
        return f"Nothing new in {transcripts}."
    new = "" if waiting == plans.files else f", {waiting:,} with something new"
    where = "each goes into its project's own space" if into is None else f"all go into {escape(str(into))}"
    return f"Found {transcripts}{new} in {plural(len(plans.plans), 'project')}; {where}."


def _project_table(plans: Sequence[ImportPlan], settings: Settings) -> Table:
    here = space_of(Path.cwd(), home=settings.home).file
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("project", "transcripts", "size", "directory"):
        table.add_column(column, justify="right" if column in ("transcripts", "size") else "left", overflow="fold")
    for plan in plans[:PROJECTS_SHOWN]:
        directory = next((str(root) for root in plan.roots.values() if root is not None), "")
        note = " [green](here)[/]" if plan.target == here else ""
        numbers = f"{len(plan.files):,}", format_bytes(plan.size_bytes)
        table.add_row(escape(space_name(plan.target)) + note, *numbers, escape(directory))
    if len(plans) > PROJECTS_SHOWN:
        table.add_row(f"[dim]and {len(plans) - PROJECTS_SHOWN:,} more[/]", "", "", "")
    return table


async def _look_alone(place: Path | str, *, settings: Settings, output: Output) -> None:
    """Show a space without importing anything."""
    async with open_to_read(place, settings=settings) as memory:
        await _look(memory, space_name(place), output)


async def _open(place: Path | str, opened: OpenMemory) -> None:
    """Open a space once, so that an error in it is reported now."""
    async with opened(place):
        pass


async def _count_unread(plans: Sequence[ImportPlan], settings: Settings) -> int:
    """Count the transcripts with something new."""
    count = 0
    for plan in plans:
        try:
            async with open_memory(plan.target, settings=settings, must_exist=True) as memory:
                count += len(await memory.clients.unread(plan.files))
        except UnknownSpace:
            count += len(plan.files)
    return count


async def _look_around(plans: Plans, opened: OpenMemory, *, output: Output, is_sample: bool) -> None:
    """Import everything, and show the first space: early if the import takes long, and again at the end."""
    first = plans.plans[0]
    results: dict[str, Imported] = {}
    with Bar(plans) as bar:
        async with opened(first.target) as memory:
            importing = asyncio.create_task(bar.run(memory, first))
            try:
                await asyncio.wait([importing], timeout=EARLY_S)
                if not importing.done() and not output.as_json:
                    title = space_name(first.target) + ", a first look while the import continues"
                    with bar.aside():
                        await _look(memory, title, output)
                results[space_name(first.target)] = await importing
            finally:  # the space is closed only after the import has stopped using it
                importing.cancel()
                await asyncio.gather(importing, return_exceptions=True)
            for plan in plans.plans[1:]:
                async with opened(plan.target) as other:
                    results[space_name(plan.target)] = await bar.run(other, plan)
            with bar.aside():
                replay = await memory.trails.replay(latest=REPLAYED_TASKS)
                title = space_name(first.target)
                await _look(memory, title, output, replay=replay, results=results, is_sample=is_sample)


@click.command()
@memory_command
async def overview(memory: Memory, output: Output) -> None:
    """Show what agents did lately, and the next brief.

    Example: mica events overview
    """
    await _look(memory, space_name(memory.location), output)


async def _look(
    memory: Memory,
    title: str,
    output: Output,
    *,
    replay: Replay | None = None,
    results: Mapping[str, Imported] | None = None,
    is_sample: bool = False,
) -> None:
    summary = await memory.events.overview()
    brief = await memory.brief(budget_tokens=BRIEF_TOKENS, deadline_s=LOOK_DEADLINE_S, is_preview=True)
    has_tree = await memory.events.directory() is not None

    def for_people(console: Console) -> None:
        console.print(first_look(title, summary, brief, replay))
        if results is not None:
            print_imported(console, results)
            console.print(_next_steps(memory.location, has_tree=has_tree), soft_wrap=True)

    document: dict[str, object] = {"space": title, "is_sample": is_sample, "overview": summary, "brief": brief}
    if replay is not None:
        document["replay"] = {"verdict": replay.verdict, "facts": describe(replay), "missing": replay.missing}
    if results is not None:
        document["imported"] = results
    output.show(document, for_people)


def _next_steps(location: str, *, has_tree: bool) -> str:
    """Commands to try next, with the option that names the space; `navigate` only if the files are on this machine."""
    option = _space_option(location, home=load_settings().home)
    commands = [
        (f'mica search "words"{option}', "find what was said, decided and committed"),
        (f'mica brief "your task"{option}', "what an agent would receive for it"),
    ]
    if has_tree:
        commands.append((f'mica navigate "your task"{option}', "the files it needs, with lines and reasons"))
    commands += [
        (f"mica trails replay{option}", "what naming files in advance would have saved or wasted"),
        (f"mica events tail{option}", "the log itself; `mica events tree ID` shows what led to what"),
        (f'mica mark "what you saw"{option}', "add an observation; `mica` alone lists all commands"),
        ("mica install", "let coding agents use it: hooks, MCP server, commands"),
    ]
    if (folder := _folder_off_path()) is not None:
        commands.insert(0, (f'export PATH="{folder}:$PATH"', "so that this shell finds `mica`"))
    width = max(len(command) for command, _ in commands)
    lines = [f"  {escape(command.ljust(width))}   [dim]{escape(purpose)}[/]" for command, purpose in commands]
    return "\n".join(["[bold]What to type next[/]", *lines])


def _space_option(location: str, *, home: Path) -> str:
    """The shortest option that names a space from the current directory; empty for the directory's own space."""
    if space_of(Path.cwd(), home=home).file == Path(location):
        return ""
    name = space_name(location)
    if file_of(name, home=home) != Path(location):
        return f" --store {shlex.quote(location)}"
    short = name.rpartition("-")[0]
    alike = [file for file in space_files(home) if space_name(file).startswith(short)]
    return f" --space {short if short and len(alike) == 1 and not Path(short).is_dir() else name}"


def _folder_off_path() -> str | None:
    """The folder of the running `mica` if it is not on PATH; None if it is, and under `python -m`."""
    program = Path(sys.argv[0])
    on_path = shutil.which("mica")
    if program.name != "mica" or (on_path is not None and program.exists() and Path(on_path).samefile(program)):
        return None
    return str(program.absolute().parent)
