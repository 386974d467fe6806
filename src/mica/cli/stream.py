"""export, events follow, replay and import-log, crystals stream: streams of events out of a space and into it."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import ParamSpec

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.crystals import LEVEL
from mica.cli.events import errors_option, field_options, print_event, query_options
from mica.cli.output import Output, escape_control, following_command, limit_option, making_command, memory_command
from mica.errors import StoreUnavailable
from mica.events.log_import import FORMATS, Format, name_of
from mica.format.documents import FULL, Fields, crystal_document, event_document, event_line
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, Event, EventQuery, utc_now
from mica.model.mark import mark_of

P = ParamSpec("P")


def _until_interrupted(function: Callable[P, None]) -> Callable[P, None]:
    """Make a command that exits 0 on Ctrl-C."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(KeyboardInterrupt):
            function(*args, **kwargs)

    return run


@asynccontextmanager
async def _interruptible() -> AsyncIterator[None]:
    """Make Ctrl-C end this block at its next await, so that no step is interrupted in the middle."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "a coroutine runs in a task"
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        task.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _start_position(memory: Memory, after: int | None) -> int | None:
    """Return `after`. If it is beyond the end of the log, print a note and return the end."""
    with suppress(StoreUnavailable):  # a follower waits for the store
        if after is not None and after > (last := await memory.events.position()):
            where = f"--after {after} is beyond the end of the log, #{last}"
            click.echo(f"mica: {where}; waiting for new events", err=True)
            return last
    return after


@click.command()
@query_options
@errors_option
@click.option(
    "--after",
    metavar="POSITION",
    type=click.IntRange(min=0),
    help="Start after this position.  [default: from now on]",
)
@limit_option("Stop after this many.")
@field_options
@_until_interrupted
@following_command
async def follow(
    memory: Memory, output: Output, *, query: EventQuery, after: int | None, limit: int | None, fields: Fields | None
) -> None:
    """Print events as they happen, until Ctrl-C or --until.

    Events of other processes are included. With --json each line is one document.

    Example: mica events follow --name "file.*" --json
    """
    remaining = limit
    async with _interruptible(), _until(query.until):
        events = await _follow(memory, query, after=await _start_position(memory, after))
        while remaining is None or remaining > 0:
            if (event := await anext(events, None)) is None:
                return
            _print_line(output, event, fields)
            remaining = None if remaining is None else remaining - 1


@asynccontextmanager
async def _until(end_at: datetime | None) -> AsyncIterator[None]:
    """End the block at the time `end_at`, without an error. None or a time in the past sets no limit."""
    remaining_s = None if end_at is None else (end_at - utc_now()).total_seconds()
    with suppress(TimeoutError):
        async with asyncio.timeout(remaining_s if remaining_s is None or remaining_s > 0 else None):
            yield


async def _follow(memory: Memory, query: EventQuery, *, after: int | None) -> AsyncIterator[Event]:
    """Return an iterator over the events of a query after the position `after`, by default the end of the log.

    It then waits for new events, unless the query ends in the past.
    """
    if query.until is None or query.until > utc_now():
        return memory.events.follow(query, after=after)
    return memory.events.log(query, after=await memory.events.position() if after is None else after)


def _print_line(output: Output, event: Event, fields: Fields | None) -> None:
    if output.as_json:
        click.echo(event_line(event, fields or FULL))
    else:
        print_event(output.console, event, fields)


@click.command()
@click.argument("reference", metavar="ID")
@click.option(
    "--speed", type=float, metavar="TIMES", help="Replay at this multiple of the recorded pace.  [default: all at once]"
)
@field_options
@_until_interrupted
@memory_command
async def replay(memory: Memory, output: Output, *, reference: str, speed: float | None, fields: Fields | None) -> None:
    """Print an event's chain from that event on, as it happened.

    Events are only printed; nothing is executed. With --json each line is one document.

    Example: mica events replay 12 --speed 10
    """
    async with _interruptible():
        async for event in memory.events.replay(reference, speed=speed):
            _print_line(output, event, fields)


@click.command()
@click.option("--crystals", is_flag=True, help="Only crystals.")
@click.option("--level", type=LEVEL, help="Only crystals of this level.")
@click.option(
    "--after",
    metavar="POSITION",
    type=click.IntRange(min=0),
    help="Start after this position.  [default: from now on]",
)
@limit_option("Stop after this many.")
@_until_interrupted
@following_command
async def stream(
    memory: Memory, output: Output, *, crystals: bool, level: str | None, after: int | None, limit: int | None
) -> None:
    """Print marks and crystals as they are made, until Ctrl-C.

    Those of other processes are included. With --json each line is one document.

    Example: mica crystals stream --crystals --level day
    """
    names = (CRYSTAL,) if crystals or level else (MARK, CRYSTAL)
    remaining = limit
    async with _interruptible():
        following = memory.events.follow(EventQuery(names=names), after=await _start_position(memory, after))
        while remaining is None or remaining > 0:
            event = await anext(following)
            made = crystal_of(event) if event.name == CRYSTAL else None
            if made is not None and level is not None and made.level != level:
                continue
            if output.as_json:
                document = event_document(event) if made is None else crystal_document(made)
                click.echo(escape_control(msgspec.json.encode(document).decode()))
            else:
                kind, text = (MARK, mark_of(event).text) if made is None else (made.level, made.text)
                line = f"[dim]\\[{format_time(event.at)}][/] [cyan]\\[{kind}][/] {escape(one_line(text, 1_000))}"
                output.console.print(f"{line} [green]{event.number}[/]", soft_wrap=True)
            remaining = None if remaining is None else remaining - 1


@click.command()
@click.argument("file", default="-")
@query_options
@errors_option
@click.option(
    "--with-ancestors", is_flag=True, help="Include all ancestors of these events, so that no parent is missing."
)
@field_options
@memory_command
async def export(
    memory: Memory, output: Output, *, file: str, query: EventQuery, with_ancestors: bool, fields: Fields | None
) -> None:
    """Write events as JSON, one on each line.

    They are in the order of the log. FILE is replaced as a whole or not at all; without FILE, or with -, events go to
    standard output. Whole events, the default, can be imported elsewhere with `mica events import-log`. To import
    a part of the log, export it with --with-ancestors; otherwise parents may be missing. mica remembers the file, so
    that a later `mica purge` removes events from it too.

    Example: mica export shop.jsonl --since 7d --with-ancestors
    """
    target = sys.stdout.buffer if file == "-" else Path(file)
    done = await memory.events.export(target, query, with_ancestors=with_ancestors, fields=fields or FULL)
    if file != "-":
        if done.unrecorded:
            click.echo(f"mica: {file} is not recorded, so no purge will find it: {done.unrecorded}", err=True)
        output.show(
            {"file": file, "events": done.events},
            lambda _: click.echo(f"mica: {plural(done.events, 'event')} written to {file}", err=True),
        )


@click.command("import-log")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--format",
    "format_",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", *FORMATS]),
    help="The system that wrote the file; auto detects it from the first line.",
)
@click.option("--source", default="", metavar="NAME", help="A name that keeps logs with the same ids apart.")
@click.option(
    "--allow-orphans",
    is_flag=True,
    help="Import events whose parent is missing: those of other systems as roots, mica's own as they are.",
)
@making_command
async def import_log(
    memory: Memory, output: Output, *, file: Path, format_: str, source: str, allow_orphans: bool
) -> None:
    """Import a log: an export of mica, or of another system.

    FILE is JSON, one event on each line; - is standard input. Everything is imported, or nothing. Importing again
    changes nothing. Unknown fields of an event are kept in its data; secrets in logs of other systems are redacted. The
    import stops, and shows the line, if a line cannot be read, or if its parent is in neither the file nor the space.

    Example: mica events import-log daemon.jsonl --format ksi
    """
    chosen: Format | None = next((known for known in FORMATS if known == format_), None)
    source_file = sys.stdin.buffer if str(file) == "-" else file
    done = await memory.events.import_log(source_file, format=chosen, source=source, allow_orphans=allow_orphans)

    def for_people(console: Console) -> None:
        if not any(msgspec.structs.astuple(done)[1:]):
            console.print(f"{name_of(source_file)} has no events; nothing was imported", markup=False, soft_wrap=True)
            return
        parts = [f"{plural(done.events, 'event')} from {name_of(source_file)} ({done.format})"]
        parts += [f"{done.repeated:,} known already"] if done.repeated else []
        parts += [f"{done.orphans:,} without their parent"] if done.orphans else []
        parts += [f"{done.purged:,} purged here, which are not imported again"] if done.purged else []
        parts += [f"{done.undated:,} without a time, which get that of the event before"] if done.undated else []
        parts += [f"{done.reused:,} with an id that another event of the log has"] if done.reused else []
        console.print(", ".join(parts), markup=False, soft_wrap=True)

    output.show(done, for_people)
