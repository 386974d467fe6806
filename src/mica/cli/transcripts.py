"""import: read transcripts into the spaces of their projects."""

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

from mica.cli.output import Output, current_user, json_option, space_name, store_options, target
from mica.clients.discovery import ImportPlan, Plans, TranscriptFolder, plan_imports, usual_places
from mica.clients.importer import Imported
from mica.clients.importer import Progress as Step
from mica.clients.records import ImportTally
from mica.clients.registry import READERS
from mica.errors import InvalidInput, StoreError
from mica.format.lines import alternatives, format_bytes, plural
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.settings import Settings, load_settings
from mica.store.protocol import BLOCK_EVENTS
from mica.store.space import remember_directory, space_of

AUTO = "auto"
STOPPED = "mica: stopped; what was stored stays, and the next import continues from there"


@click.command("import")
@click.argument("words", nargs=-1, metavar=f"[{'|'.join((AUTO, *READERS))}] [PATH]...")
@store_options
@json_option
def import_(words: tuple[str, ...], store: str | None, space: str | None, *, as_json: bool) -> None:
    """Read transcripts of coding agents into their projects' spaces.

    CLIENT is a coding agent, as `mica install` names it, or auto, which recognizes files by their content. PATH is a
    file or a folder; without it, the folders where the agents keep their transcripts. The newest are read first, and
    nothing is read twice.

    Each transcript goes into the space of the directory that its session worked in, unless --store or --space names
    another. Events older than a day are compressed if there are enough of them, as `mica upkeep age` does. Exits 1 if
    anything could not be read, even one record; everything else is stored.

    Example: mica import codex
    """
    settings = load_settings()
    is_chosen = store is not None or space is not None or settings.store is not None
    into = target(settings, store, space) if is_chosen else None
    places = _places(words, settings)
    if not any(place.path.exists() for place in places):
        looked = ", ".join(str(place.path) for place in places)
        raise InvalidInput(f"there is no {looked}; give the folder with the transcripts")
    plans = plan_imports(places, settings=settings, into=into)
    if len(places) == 1 and places[0].path.is_file() and plans.strange:
        raise InvalidInput(
            f"{places[0].path} is not a transcript of {places[0].client or 'any client that mica knows'}"
        )
    try:
        asyncio.run(_import(plans, places, settings=settings, output=Output(as_json=as_json)))
    except KeyboardInterrupt:
        click.echo(STOPPED, err=True)
        sys.exit(130)


def _places(words: Sequence[str], settings: Settings) -> list[TranscriptFolder]:
    """Return the folders to read: the paths in `words`; else the usual folders of the given client, or of all clients.

    Raises UsageError for a word that is neither a client nor an existing path.
    """
    named = words[0] if words and words[0] in (AUTO, *READERS) else None
    client = None if named == AUTO else named
    paths = [Path(word) for word in words[named is not None :]]
    if missing := [str(path) for path in paths if not path.exists()]:
        known = alternatives((AUTO, *READERS))
        raise click.UsageError(f"{missing[0]!r} is not a file, a folder or a client; give {known}")
    if paths:
        return [TranscriptFolder(path, client) for path in paths]
    return [place for place in usual_places(settings, current_user()) if client in (None, place.client)]


async def _import(plans: Plans, places: Sequence[TranscriptFolder], *, settings: Settings, output: Output) -> None:
    done: dict[str, Imported] = {}
    with Bar(plans, settings.home) as bar:
        for plan in plans.plans:
            async with open_memory(plan.target, settings=settings) as memory:
                done[space_name(plan.target)] = await bar.run(memory, plan)

    def for_people(console: Console) -> None:
        print_clients(console, plans)
        print_imported(console, done)
        for file, reason in plans.unreadable.items():
            console.print(f"[yellow]→[/] {escape(file)} could not be read: {escape(reason)}", soft_wrap=True)
        if plans.strange:
            files = (
                "1 file is not a transcript"
                if len(plans.strange) == 1
                else f"{len(plans.strange):,} files are not transcripts"
            )
            console.print(f"[yellow]→[/] {files}, the first: {escape(str(plans.strange[0]))}", soft_wrap=True)
        if not plans.plans:
            looked = ", ".join(str(place.path) for place in places)
            console.print(f"No transcripts in {escape(looked)}", soft_wrap=True)

    document = {
        "clients": plans.clients,
        "spaces": done,
        "not_transcripts": [str(file) for file in plans.strange],
        "unreadable": plans.unreadable,
    }
    output.show(document, for_people)
    if plans.unreadable or any(result.failed or result.tally.broken for result in done.values()):
        sys.exit(1)


def print_clients(console: Console, plans: Plans) -> None:
    """Print one line for each client with transcripts."""
    for client, files in sorted(plans.clients.items()):
        count = f"{plural(files.transcripts, 'transcript')} ({format_bytes(files.size_bytes)})"
        console.print(f"{escape(client)}: {count} in {escape(', '.join(files.places))}", soft_wrap=True)


def print_imported(console: Console, done: Mapping[str, Imported]) -> None:
    """Print one line for each space, and below it what could not be read."""
    for name, result in done.items():
        parts = [f"{plural(result.events, 'event')} from {plural(result.files, 'transcript')}"]
        parts += [f"{result.unchanged:,} unchanged"] if result.unchanged else []
        parts += [f"{result.repeated:,} known already"] if result.repeated else []
        console.print(f"[green]✓[/] [bold]{escape(name)}[/]  {', '.join(parts)}")
        for line in _describe_unread(result):
            console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)


def _describe_unread(result: Imported) -> list[str]:
    return [
        *(f"{path} could not be read: {reason}" for path, reason in result.failed.items()),
        *describe_skipped(result.tally),
    ]


def describe_skipped(tally: ImportTally) -> list[str]:
    """Return one sentence for each kind of record that an import skipped."""
    sentences = []
    if tally.broken:
        number, reason = tally.complaints[0]
        records = "1 record" if tally.broken == 1 else f"{tally.broken:,} records"
        sentences.append(f"{records} could not be read, the first in line {number} of {reason}")
    if tally.unknown:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(tally.unknown.items()))
        sentences.append(f"records of types that this version does not know were skipped: {kinds}")
    if tally.misfits:
        sentences.append(f"{plural(tally.misfits, 'field')} of an unexpected type skipped")
    if tally.torn:
        sentences.append(f"{plural(tally.torn, 'last line')} still being written; the next import reads it")
    if tally.unsettled:
        turns = plural(tally.unsettled, "last turn")
        sentences.append(f"{turns} may be unfinished; an import half an hour later completes it")
    return sentences


async def render_for_hooks(memory: Memory, home: Path, *, is_new: bool) -> bool:
    """Write what hooks show at the start of the next session, and return True if that was needed and possible.

    It is needed if something was stored (`is_new`), and if nothing was written yet or an older mica wrote it. It is
    possible for the spaces of directories, which are in the data folder `home`.
    """
    spools = memory.clients.spools
    if spools is None or spools.folder.parent != home / "spaces":
        return False
    answer = spools.session_answer()
    if not is_new and answer is not None and answer.is_complete:
        return False
    try:
        await memory.clients.render()
    except StoreError as error:  # the next ingest does it
        click.echo(f"mica: the brief of the next session was not prepared: {error}", err=True)
        return False
    return True


class Bar:
    """A progress bar on standard error, for several imports. Without a terminal it is not drawn."""

    def __init__(self, plans: Plans, home: Path) -> None:
        self._home = home
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("importing", total=plans.size_bytes, note="")
        self._before = 0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while something else prints."""
        self._bar.stop()
        yield
        self._bar.start()

    async def run(self, memory: Memory, plan: ImportPlan) -> Imported:
        """Import the files of a plan and show the progress; then compress old events and run the jobs that are due."""
        start = self._before
        self._before += plan.size_bytes

        def advance(step: Step) -> None:
            done, total = format_bytes(step.bytes_done), format_bytes(step.bytes)
            note = f"{space_name(plan.target)}: {plural(step.events, 'event')}, {done} of {total}"
            self._bar.update(self._task, completed=start + step.bytes_done, note=note)

        roots = {root for root in plan.roots.values() if root is not None and isinstance(plan.target, Path)}
        for root in roots:
            remember_directory(Path(plan.target), root)
        done = await memory.clients.import_transcripts(plan.files, root=plan.roots, on_progress=advance)
        if done.events:
            await self._age(memory, space_name(plan.target))
            self._bar.update(self._task, note=f"{space_name(plan.target)}: stored; summarizing sessions and days")
            with suppress(StoreError):  # everything is stored; the next active process does the rest
                await memory.upkeep.tick()
        if any(space_of(root, home=self._home).file == plan.target for root in roots):  # else no hook writes for it
            self._bar.update(self._task, note=f"{space_name(plan.target)}: preparing the brief of the next session")
            await render_for_hooks(memory, self._home, is_new=bool(done.events))
        return done

    async def _age(self, memory: Memory, name: str) -> None:
        """Compress old events, because most imported events are old and only a server compresses them by itself.

        Events are compressed in blocks. Those that do not fill a block wait for the next import.
        """

        def show_count(count: int) -> None:
            self._bar.update(self._task, note=f"{name}: stored; {count:,} old events compressed")

        show_count(0)
        try:
            await memory.upkeep.age(at_least=BLOCK_EVENTS, on_progress=show_count)
        except StoreError as error:  # everything is stored; `mica upkeep age` or the next import compresses it
            click.echo(f"mica: {name} is imported, but its old events were not compressed: {error}", err=True)
