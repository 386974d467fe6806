"""stream, events follow, replay, export, import: events on their way out and in."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, ParamSpec

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.crystals import LEVEL
from mica.cli.event_options import field_options, query_options
from mica.cli.events import LIMIT, print_event
from mica.cli.output import Output, following_command, making_command, memory_command
from mica.errors import MicaError, StoreUnavailable
from mica.events.log_export import written
from mica.events.log_import import FORMATS, Format, name_of
from mica.format.documents import FULL, Fields, crystal_document, event_document, event_line
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, Event, EventQuery, mark_of

P = ParamSpec("P")


def _until_interrupted(function: Callable[P, None]) -> Callable[P, None]:
    """A command that goes on until Ctrl-C, which is no failure of it."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(KeyboardInterrupt):
            function(*args, **kwargs)

    return run


@asynccontextmanager
async def _interruptible() -> AsyncIterator[None]:
    """What Ctrl-C ends between two steps of the loop; by itself Python cancels in the middle of one, and complains."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "a coroutine runs in a task"
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        task.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _beginning(memory: Memory, after: int | None) -> int | None:
    """Where a follower begins: at the end of the log where it was sent beyond it, which is said on standard error."""
    with suppress(StoreUnavailable):  # for which a follower waits
        if after is not None and after > (last := await memory.position()):
            where = f"--after {after} is beyond the end of the log, #{last}"
            click.echo(f"mica: {where}; waiting for what comes next", err=True)
            return last
    return after


@click.command()
@query_options
@click.option(
    "--after", metavar="POSITION", type=click.IntRange(min=0), help="From after this position; else from now."
)
@click.option("--limit", "-n", type=LIMIT, help="Stop after so many.")
@field_options
@_until_interrupted
@following_command
async def follow(
    memory: Memory, output: Output, *, asked: EventQuery, after: int | None, limit: int | None, fields: Fields | None
) -> None:
    """Print events as they happen, also those of other processes, until Ctrl-C. With --json one document a line.

    Example: mica events follow --name "file.*" --json
    """
    left = limit
    async with _interruptible():
        following = memory.follow(asked, after=await _beginning(memory, after))
        while left is None or left > 0:
            _tell(output, await anext(following), fields)
            left = None if left is None else left - 1


def _tell(output: Output, event: Event, fields: Fields | None) -> None:
    """One of many events, as it comes: a line for people, or of JSON."""
    if output.as_json:
        click.echo(event_line(event, fields or FULL))
    else:
        print_event(output.console, event, fields)


@click.command()
@click.argument("reference", metavar="ID")
@click.option("--speed", type=float, metavar="TIMES", help="At this multiple of the recorded pace; else all at once.")
@field_options
@_until_interrupted
@memory_command
async def replay(memory: Memory, output: Output, *, reference: str, speed: float | None, fields: Fields | None) -> None:
    """Print the chain of an event from it on, in order, as it happened. With --json one document a line.

    Nothing is executed again.

    Example: mica events replay 12 --speed 10
    """
    async with _interruptible():
        async for event in memory.replay(reference, speed=speed):
            _tell(output, event, fields)


@click.command()
@click.option("--crystals", is_flag=True, help="Only crystals.")
@click.option("--level", type=LEVEL, help="Only crystals of this level.")
@click.option(
    "--after", metavar="POSITION", type=click.IntRange(min=0), help="From after this position; else from now."
)
@click.option("--limit", "-n", type=LIMIT, help="Stop after so many.")
@_until_interrupted
@following_command
async def stream(
    memory: Memory, output: Output, *, crystals: bool, level: str | None, after: int | None, limit: int | None
) -> None:
    """Print marks and crystals as they are made, also by other processes, until Ctrl-C. With --json one a line.

    Example: mica stream --crystals --level day
    """
    names = (CRYSTAL,) if crystals or level else (MARK, CRYSTAL)
    left = limit
    async with _interruptible():
        following = memory.follow(EventQuery(names=names), after=await _beginning(memory, after))
        while left is None or left > 0:
            event = await anext(following)
            made = crystal_of(event) if event.name == CRYSTAL else None
            if made is not None and level is not None and made.level != level:
                continue
            if output.as_json:
                document = event_document(event) if made is None else crystal_document(made)
                click.echo(msgspec.json.encode(document))
            else:
                kind, text = (MARK, mark_of(event).text) if made is None else (made.level, made.text)
                said = f"[dim]\\[{local(event.at)}][/] [cyan]\\[{kind}][/] {escape(one_line(text, 1_000))}"
                output.console.print(f"{said} [green]{event.number}[/]", soft_wrap=True)
            left = None if left is None else left - 1


@click.command()
@click.argument("file", default="-")
@query_options
@click.option("--with-ancestors", is_flag=True, help="And all that led to these, so that no parent is missing.")
@field_options
@memory_command
async def export(
    memory: Memory, output: Output, *, file: str, asked: EventQuery, with_ancestors: bool, fields: Fields | None
) -> None:
    """Write events as JSON, one a line, in the order of the log. FILE is replaced as a whole, or not at all.

    Without FILE, or with -, to standard output. Whole events, which is the default, can be imported again elsewhere; of
    a part of the log, take --with-ancestors along, or the import will name those whose parent is missing. A file is
    remembered, so that a later `mica purge` can take events out of it.

    Example: mica events export shop.jsonl --since 7d --with-ancestors
    """
    count = 0
    with _written(file) as stream:
        async for event in memory.log(asked, with_ancestors=with_ancestors):
            stream.write(event_line(event, fields or FULL) + b"\n")
            count += 1
    if file != "-":
        try:
            memory.exported(Path(file), events=count)
        except MicaError as error:
            click.echo(f"mica: {file} is not recorded, so that no purge will find it: {error}", err=True)
        output.show(
            {"file": file, "events": count},
            lambda _: click.echo(f"mica: {counted(count, 'event')} written to {file}", err=True),
        )


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--format",
    "format_",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", *FORMATS]),
    help="What wrote the file; auto looks at its first line.",
)
@click.option("--source", default="", metavar="NAME", help="Tells logs apart that use the same ids.")
@click.option(
    "--allow-orphans",
    is_flag=True,
    help="Take events whose parent is nowhere: foreign ones as roots, our own as they are.",
)
@making_command
async def import_(
    memory: Memory, output: Output, *, file: Path, format_: str, source: str, allow_orphans: bool
) -> None:
    """Take in a JSONL file, or - for standard input: an export of ours, or a log with embedded contexts. All of it, or
    nothing.

    Importing again changes nothing. What has no place in an event is kept in its data; secrets in foreign logs are
    redacted. A line that cannot be read, or whose parent is neither in the file nor here, is named and stops it.

    Example: mica events import daemon.jsonl --format ksi
    """
    chosen: Format | None = next((known for known in FORMATS if known == format_), None)
    given = sys.stdin.buffer if str(file) == "-" else file
    done = await memory.import_log(given, format=chosen, source=source, allow_orphans=allow_orphans)

    def for_people(console: Console) -> None:
        if not any(msgspec.structs.astuple(done)[1:]):
            console.print(f"no event is in {name_of(given)}; nothing was imported", markup=False, soft_wrap=True)
            return
        said = [f"{counted(done.events, 'event')} from {name_of(given)} ({done.format})"]
        said += [f"{done.repeated:,} known already"] if done.repeated else []
        said += [f"{done.orphans:,} without their parent"] if done.orphans else []
        said += [f"{done.purged:,} purged here, which do not come back"] if done.purged else []
        said += [f"{done.undated:,} without a time, which have that of the event before"] if done.undated else []
        said += [f"{done.reused:,} with an id that another event of the log has"] if done.reused else []
        console.print(", ".join(said), markup=False, soft_wrap=True)

    output.show(done, for_people)


@contextmanager
def _written(file: str) -> Iterator[IO[bytes]]:
    """Where to write: standard output, or a file that takes the place of the old one when all is written."""
    if file == "-":
        yield sys.stdout.buffer
    else:
        with written(Path(file)) as stream:
            yield stream
