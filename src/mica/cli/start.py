"""up, overview, import, spaces: from transcripts to a first look."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mica.cli.output import Output, json_option, memory_command, size, space_name, store_options, target
from mica.cli.view import first_look
from mica.errors import InvalidInput
from mica.memory import Imported, Memory
from mica.memory import Progress as Step
from mica.memory import open as open_memory
from mica.observe.clients import claude_code
from mica.sample import transcripts as sample_transcripts
from mica.settings import Settings, load_settings
from mica.store.space import file_of, space_of
from mica.store.space import spaces as space_files

SAMPLE = "sample"
BRIEF_TOKENS = 600  # of the first look: one screen
LOOK_DEADLINE_S = 2.0  # a person waits longer than an agent
EARLY_S = 1.0  # an import that takes longer shows a first look before it ends
NEXT = """[bold]What to type next[/]
  mica search "words"{option}        find what was said, decided and committed
  mica brief "your task"{option}     what an agent would be told about it
  mica events tail{option}           the log itself; [dim]mica events tree ID[/] shows what led to what
  mica mark "what you saw"{option}   add an observation; [dim]mica --help[/] lists the rest"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The transcripts that go into one space, newest first."""

    target: Path | str
    root: Path | None
    files: list[Path]

    @property
    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def plans(files: Sequence[Path], *, settings: Settings, into: Path | str | None) -> tuple[list[Plan], list[Path]]:
    """Which transcript goes where: into the space of the directory it speaks of, or all into one store.

    The second list holds files that are no transcripts.
    """
    by_space: dict[Path | str, list[Path]] = defaultdict(list)
    roots: dict[Path | str, Path | None] = {}
    strange = []
    for file in files:
        head = claude_code.head(file)
        if head is None:
            strange.append(file)
            continue
        space = None if head.cwd is None else space_of(Path(head.cwd), home=settings.home)
        place = into or (space.file if space else file_of("unknown", home=settings.home))
        by_space[place].append(file)
        roots.setdefault(place, space.root if space else None)
    return [Plan(target=place, root=roots[place], files=found) for place, found in by_space.items()], strange


@click.command("import")
@click.argument("client", type=click.Choice([claude_code.CLIENT]))
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@store_options
@json_option
def import_(client: str, path: Path | None, store: str | None, space: str | None, *, as_json: bool) -> None:
    """Read transcripts of a coding agent, newest first; what was read before is not read again.

    PATH is a file or a folder; without it, the folder where the agent keeps them. Each transcript goes into the
    space of the directory it speaks of, unless --store or --space names one.

    Example: mica import claude-code ~/.claude/projects
    """
    settings = load_settings()
    into = target(settings, store, space) if store or space else settings.store
    folder = path or settings.transcripts
    if not folder.exists():
        raise InvalidInput(f"{folder} does not exist; give the folder where {client} keeps its transcripts")
    planned, strange = plans(claude_code.find(folder), settings=settings, into=into)
    output = Output(as_json=as_json)
    if not as_json and not planned:
        output.console.print(f"No transcripts in {escape(str(folder))}.")
    asyncio.run(_import(planned, strange, settings=settings, output=output))


async def _import(planned: Sequence[Plan], strange: Sequence[Path], *, settings: Settings, output: Output) -> None:
    done: dict[str, Imported] = {}
    with _Bar(planned) as bar:
        for plan in planned:
            async with open_memory(plan.target, settings=settings) as memory:
                done[space_name(plan.target)] = await bar.run(memory, plan)

    def for_people(console: Console) -> None:
        for name, result in done.items():
            console.print(f"[green]✓[/] [bold]{escape(name)}[/]  {_said(result)}")
            for line in _skipped(result):
                console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)
        if strange:
            console.print(f"[yellow]→[/] {len(strange)} files are no transcripts, the first: {escape(str(strange[0]))}")

    document = {name: msgspec.to_builtins(result) for name, result in done.items()}
    output.show({"spaces": document, "not_transcripts": [str(file) for file in strange]}, for_people)
    if any(result.failed for result in done.values()):
        sys.exit(1)


def _said(result: Imported) -> str:
    new = f"{result.events:,} events from {result.files:,} transcripts"
    rest = [f"{result.unchanged:,} unchanged"] if result.unchanged else []
    rest += [f"{result.repeated:,} repeated"] if result.repeated else []
    return ", ".join([new, *rest])


def _skipped(result: Imported) -> list[str]:
    """What was not read, counted and named."""
    tally = result.tally
    said = [f"{path} could not be read: {reason}" for path, reason in result.failed.items()]
    if tally.broken:
        number, reason = tally.complaints[0]
        said.append(f"{tally.broken:,} lines hold no readable record, the first is line {number} of {reason}")
    if tally.unknown:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(tally.unknown.items()))
        said.append(f"record types that this mica does not know were passed over: {kinds}")
    if tally.misfits:
        said.append(f"{tally.misfits:,} fields had an unexpected type and were left out")
    if tally.torn:
        said.append(f"{tally.torn:,} last lines are still being written; the next import takes them up")
    return said


class _Bar:
    """A progress bar over several imports, on standard error; nothing where that is no terminal."""

    def __init__(self, planned: Sequence[Plan]) -> None:
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
        self._task = self._bar.add_task("importing", total=sum(plan.size_bytes for plan in planned), said="")
        self._before = 0

    def __enter__(self) -> _Bar:
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
        """Import a plan's files, and show how far it is."""
        start = self._before
        self._before += plan.size_bytes

        def advance(step: Step) -> None:
            said = f"{space_name(plan.target)}: {step.events:,} events, {size(step.bytes_done)} of {size(step.bytes)}"
            self._bar.update(self._task, completed=start + step.bytes_done, said=said)

        return await memory.import_transcripts(plan.files, root=plan.root, on_progress=advance)


@click.command()
@click.option("--transcripts", type=click.Path(path_type=Path), help="Where to look for transcripts.")
@click.option("--yes", "-y", is_flag=True, help="Import without asking.")
@store_options
@json_option
def up(transcripts: Path | None, store: str | None, space: str | None, *, yes: bool, as_json: bool) -> None:
    """Import the transcripts there are and show what agents did. With none, a bundled sample is shown.

    It asks before importing when there is a terminal. Running it again takes up only what is new.

    Example: mica up --yes
    """
    settings = load_settings()
    into = target(settings, store, space) if store or space else settings.store
    folder = transcripts or settings.transcripts
    files = claude_code.find(folder) if folder.exists() else []
    is_sample = not files
    if is_sample:
        files, into = claude_code.find(sample_transcripts()), into or file_of(SAMPLE, home=settings.home)
    planned, _ = plans(files, settings=settings, into=into)
    output = Output(as_json=as_json)
    if not as_json:
        output.console.print(_announced(planned, folder, is_sample=is_sample), soft_wrap=True)
    if not is_sample and not yes and sys.stdin.isatty() and not click.confirm("Import them?", default=True):
        output.console.print("Nothing was imported. `mica up` asks again; `mica overview` shows what is there.")
        return
    asyncio.run(_up(planned, settings=settings, output=output, is_sample=is_sample))


def _announced(planned: Sequence[Plan], folder: Path, *, is_sample: bool) -> str:
    if is_sample:
        return f"[yellow]No transcripts in {escape(str(folder))}: this is the bundled sample, an invented web shop.[/]"
    count = sum(len(plan.files) for plan in planned)
    whole = size(sum(plan.size_bytes for plan in planned))
    projects = "1 project" if len(planned) == 1 else f"{len(planned)} projects"
    return (
        f"Found {count:,} transcripts ({whole}) of {projects} in {escape(str(folder))}; each goes into its own space."
    )


async def _up(planned: Sequence[Plan], *, settings: Settings, output: Output, is_sample: bool) -> None:
    newest = planned[0]
    results: dict[str, Imported] = {}
    with _Bar(planned) as bar:
        async with open_memory(newest.target, settings=settings) as memory:
            importing = asyncio.create_task(bar.run(memory, newest))
            await asyncio.wait([importing], timeout=EARLY_S)
            if not importing.done() and not output.as_json:
                with bar.aside():
                    await _look(memory, space_name(newest.target) + ", a first look while the import goes on", output)
            results[space_name(newest.target)] = await importing
            for plan in planned[1:]:
                async with open_memory(plan.target, settings=settings) as other:
                    results[space_name(plan.target)] = await bar.run(other, plan)
            with bar.aside():
                await _look(memory, space_name(newest.target), output, results=results, is_sample=is_sample)


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
    results: Mapping[str, Imported] | None = None,
    is_sample: bool = False,
) -> None:
    seen = await memory.overview()
    brief = await memory.brief(budget_tokens=BRIEF_TOKENS, deadline_s=LOOK_DEADLINE_S, is_preview=True)

    def for_people(console: Console) -> None:
        console.print(first_look(title, seen, brief))
        if results is None:
            return
        for name, result in results.items():
            console.print(f"[green]✓[/] [bold]{escape(name)}[/]  {_said(result)}")
            for line in _skipped(result):
                console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)
        is_here = space_of(Path.cwd(), home=load_settings().home).file == Path(memory.location)
        option = "" if is_here else f" --space {title}"
        console.print(NEXT.format(option=option))

    document = {"space": title, "is_sample": is_sample, "overview": seen, "brief": brief}
    if results is not None:
        document["imported"] = dict(results)
    output.show(document, for_people)


@click.command()
@json_option
def spaces(*, as_json: bool) -> None:
    """List the spaces on this machine, last used first.

    Example: mica spaces
    """
    settings = load_settings()
    asyncio.run(_spaces(space_files(settings.home), settings, Output(as_json=as_json)))


async def _spaces(files: Sequence[Path], settings: Settings, output: Output) -> None:
    rows: list[dict[str, object]] = []
    for file in files:
        async with open_memory(file, settings=settings) as memory:
            held = await memory.sizes()
            rows.append(
                {"name": space_name(file), "events": held.events, "marks": held.marks, "size_bytes": held.size_bytes}
            )

    def for_people(console: Console) -> None:
        if not rows:
            console.print("No spaces yet. `mica up` makes the first.")
            return
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("space", "events", "marks", "size"):
            table.add_column(column, justify="left" if column == "space" else "right")
        for row in rows:
            table.add_row(
                str(row["name"]), f"{row['events']:,}", f"{row['marks']:,}", size(int(str(row["size_bytes"])))
            )
        console.print(table)

    output.show(rows, for_people)
