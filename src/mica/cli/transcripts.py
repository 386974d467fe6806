"""import: transcripts into the spaces of the directories they speak of."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mica.cli.output import Output, json_option, space_name, store_options, target
from mica.clients.discovery import Place, Plan, Plans, planned, usual_places
from mica.clients.importer import Imported
from mica.clients.importer import Progress as Step
from mica.clients.records import Tally
from mica.clients.registry import CLIENTS
from mica.errors import InvalidInput, StoreError
from mica.format.lines import counted, size
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.settings import Settings, load_settings
from mica.store.sqlite.block_format import BLOCK_EVENTS

AUTO = "auto"
STOPPED = "mica: stopped; what was stored stays, and the next import goes on from there"


@click.command("import")
@click.argument("words", nargs=-1, metavar="[CLIENT] [PATH]...")
@store_options
@json_option
def import_(words: tuple[str, ...], store: str | None, space: str | None, *, as_json: bool) -> None:
    """Read transcripts of coding agents, newest first; what was read before is not read again.

    CLIENT is claude-code, codex, copilot, gemini, opencode, or auto: whoever wrote what is there. PATH is a file or a
    folder; without it, the places where the agents keep them. Each transcript goes into the space of the directory it
    speaks of, unless --store or --space names one. When there is enough of it, what is older than a day is aged, as
    `mica age` does. Exits 1 when something could not be read, if only a record; the others are stored.

    Example: mica import codex
    """
    settings = load_settings()
    into = target(settings, store, space) if store is not None or space is not None else settings.store
    places = _places(words, settings)
    if not any(place.path.exists() for place in places):
        looked = ", ".join(str(place.path) for place in places)
        raise InvalidInput(f"there is no {looked}; give the folder where transcripts are kept")
    found = planned(places, settings=settings, into=into)
    if len(places) == 1 and places[0].path.is_file() and found.strange:
        raise InvalidInput(f"{places[0].path} is no transcript of {places[0].client or 'any agent that mica knows'}")
    try:
        asyncio.run(_import(found, places, settings=settings, output=Output(as_json=as_json)))
    except KeyboardInterrupt:
        click.echo(STOPPED, err=True)
        sys.exit(130)


def _places(words: Sequence[str], settings: Settings) -> list[Place]:
    """Where to look: the paths that are named, else the usual places; of one client, else of all."""
    named = words[0] if words and words[0] in (AUTO, *CLIENTS) else None
    client = None if named == AUTO else named
    paths = [Path(word) for word in words[named is not None :]]
    if missing := [str(path) for path in paths if not path.exists()]:
        known = ", ".join((AUTO, *CLIENTS))
        raise click.UsageError(f"{missing[0]!r} is neither a file or folder nor a client; clients are {known}")
    if paths:
        return [Place(path, client) for path in paths]
    return [place for place in usual_places(settings) if client in (None, place.client)]


async def _import(found: Plans, places: Sequence[Place], *, settings: Settings, output: Output) -> None:
    done: dict[str, Imported] = {}
    with Bar(found) as bar:
        for plan in found.plans:
            async with open_memory(plan.target, settings=settings) as memory:
                done[space_name(plan.target)] = await bar.run(memory, plan)

    def for_people(console: Console) -> None:
        say_found(console, found)
        say_imported(console, done)
        for file, reason in found.unreadable.items():
            console.print(f"[yellow]→[/] {escape(file)} could not be read: {escape(reason)}", soft_wrap=True)
        if found.strange:
            files = (
                "1 file is no transcript"
                if len(found.strange) == 1
                else f"{len(found.strange)} files are no transcripts"
            )
            console.print(f"[yellow]→[/] {files}, the first: {escape(str(found.strange[0]))}", soft_wrap=True)
        if not found.plans:
            looked = ", ".join(str(place.path) for place in places)
            console.print(f"No transcripts in {escape(looked)}", soft_wrap=True)

    document = {
        "clients": found.clients,
        "spaces": done,
        "not_transcripts": [str(file) for file in found.strange],
        "unreadable": found.unreadable,
    }
    output.show(document, for_people)
    if found.unreadable or any(result.failed or result.tally.broken for result in done.values()):
        sys.exit(1)


def say_found(console: Console, found: Plans) -> None:
    """One line for each client whose transcripts are there."""
    for client, there in sorted(found.clients.items()):
        count = f"{counted(there.transcripts, 'transcript')} ({size(there.size_bytes)})"
        console.print(f"{escape(client)}: {count} in {escape(', '.join(there.places))}", soft_wrap=True)


def say_imported(console: Console, done: Mapping[str, Imported]) -> None:
    """One line for each space, and below it what was not read, counted and named."""
    for name, result in done.items():
        said = [f"{counted(result.events, 'event')} from {counted(result.files, 'transcript')}"]
        said += [f"{result.unchanged:,} unchanged"] if result.unchanged else []
        said += [f"{result.repeated:,} known already"] if result.repeated else []
        console.print(f"[green]✓[/] [bold]{escape(name)}[/]  {', '.join(said)}")
        for line in _unread(result):
            console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)


def _unread(result: Imported) -> list[str]:
    return [*(f"{path} could not be read: {reason}" for path, reason in result.failed.items()), *skipped(result.tally)]


def skipped(tally: Tally) -> list[str]:
    """What was met besides events, a sentence each."""
    said = []
    if tally.broken:
        number, reason = tally.complaints[0]
        records = "1 record" if tally.broken == 1 else f"{tally.broken:,} records"
        said.append(f"{records} could not be read, the first in line {number} of {reason}")
    if tally.unknown:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(tally.unknown.items()))
        said.append(f"record types that this mica does not know were passed over: {kinds}")
    if tally.misfits:
        said.append(f"{counted(tally.misfits, 'field')} of an unexpected type left out")
    if tally.torn:
        said.append(f"{counted(tally.torn, 'last line')} still being written; the next import takes it up")
    if tally.unsettled:
        said.append(f"{counted(tally.unsettled, 'last turn')} may still go on; an import half an hour later ends it")
    return said


class Bar:
    """A progress bar over several imports, on standard error; nothing where that is no terminal."""

    def __init__(self, found: Plans) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("importing", total=found.size_bytes, said="")
        self._before = 0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to somebody else for a moment."""
        self._bar.stop()
        yield
        self._bar.start()

    async def run(self, memory: Memory, plan: Plan) -> Imported:
        """Import a plan's files, age what is old, crystallize what is over, and show how far it is."""
        start = self._before
        self._before += plan.size_bytes

        def advance(step: Step) -> None:
            said = f"{space_name(plan.target)}: {step.events:,} events, {size(step.bytes_done)} of {size(step.bytes)}"
            self._bar.update(self._task, completed=start + step.bytes_done, said=said)

        done = await memory.import_transcripts(plan.files, root=plan.roots, on_progress=advance)
        if done.events:
            await self._age(memory, space_name(plan.target))
            self._bar.update(
                self._task, said=f"{space_name(plan.target)}: stored; finding what sessions and days meant"
            )
            with suppress(StoreError):  # all is stored, and whoever is active next does it
                await memory.tick()
        return done

    async def _age(self, memory: Memory, name: str) -> None:
        """A space that only commands use has nobody else to age it, and most of what was imported is old.

        Blocks are not put together later, so that what fills none waits for the next import.
        """

        def say(count: int) -> None:
            self._bar.update(self._task, said=f"{name}: stored; {count:,} older events made smaller")

        say(0)
        try:
            await memory.age(at_least=BLOCK_EVENTS, on_progress=say)
        except StoreError as error:  # all is stored, and `mica age` or the next import makes it smaller
            click.echo(f"mica: {name} is imported, but its older events were not made smaller: {error}", err=True)
