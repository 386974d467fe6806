"""doctor, verify, rebuild, age, prepare: is the store healthy, what to do when it is not, and a server made ready."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import ParamSpec, cast

import apsw
import click
from rich.console import Console
from rich.markup import escape

from mica.cli.hooks import hook_failures
from mica.cli.output import Output, Span, json_option, memory_command, target
from mica.clients.discovery import planned, usual_places
from mica.clients.spool import Spools, hooks_folder
from mica.errors import InvalidInput, StoreError
from mica.format.lines import counted, local, one_line, size
from mica.memory import Memory
from mica.model.event import Event, EventQuery, utc_now
from mica.settings import load_settings
from mica.store.space import is_address, shown, space_of
from mica.store.target import prepare as prepare_server

P = ParamSpec("P")

SOURCES_S = 2.0  # for all declared sources together to say that they are there
FAILED_LATELY = timedelta(days=1)  # work that failed before was done since, or fails again


@click.command()
@memory_command
async def doctor(memory: Memory, output: Output) -> None:
    """Say in words how the space is: where it lives, what it holds, what is waiting, what to do.

    Exits 1 when something is wrong with the space, or with a source that is declared for it.

    Example: mica doctor
    """
    try:
        with Console(stderr=True).status("verifying") as status:  # first: it stores what killed processes left
            stored = await memory.verify(on_progress=lambda done: status.update(f"{done:,} events"))
    except StoreError as error:
        await _show_away(memory, output, str(error))
        sys.exit(1)
    waiting_events, waiting_bytes = await memory.backlog()
    sizes = await memory.sizes()
    waiting = await memory.unread(_transcripts_of(memory.location))
    unread = await memory.without_vector()
    given = click.get_current_context().params
    place = target(load_settings(), given.get("store"), given.get("space"))
    is_there = memory.location != ":memory:" or str(place) == ":memory:"  # reading makes no space
    location = memory.location if is_there else shown(place)
    problems = stored + memory.damaged + _unwritable(place, memory.store.segments)
    failed = await memory.events(EventQuery(names=("job.failed",), since=utc_now() - FAILED_LATELY, limit=1))
    advice = [*problems, *map(_failure, failed)]
    if waiting_events:
        advice.append(
            f"{counted(waiting_events, 'event')} ({size(waiting_bytes)}) on the way: another process writes just now"
        )
    if waiting:
        advice.append(f"{counted(len(waiting), 'transcript')} with something new: run `mica import`")
    if unread:
        advice.append(f"{counted(unread, 'mark')} without a vector yet: run `mica embed`, or let a process stay")
    settings = load_settings()
    hooks = memory.spools or Spools(hooks_folder(space_of(Path.cwd(), home=settings.home).file))
    if failures := hook_failures(hooks, settings):
        advice.append(f"{counted(len(failures), 'hook')} failed lately: `mica observe status` says why")
    checked = await memory.check_sources(timeout_s=SOURCES_S)
    silent, failing = ([each for each in checked if each.state == state] for state in ("missing", "failing"))
    advice += [f"source {each.source} does not answer: {each.told}" for each in silent]
    advice += [
        f"source {each.source} is there, but its last {each.past.failed_in_a_row} questions failed: {each.past.failure}"
        for each in failing
    ]
    wrong = len(problems) + len(silent) + len(failing)
    if not sizes.events:
        advice.append("this space is empty: run `mica up`, or `mica mark` a first observation")
    document = {
        "healthy": not wrong,
        "store": location,
        "exists": is_there,
        "events": sizes.events,
        "marks": sizes.marks,
        "contexts": sizes.contexts,
        "events_per_context": round(sizes.events / sizes.contexts, 1) if sizes.contexts else None,
        "payloads": sizes.payloads,
        "aged": sizes.aged,
        "blocks": sizes.blocks,
        "size_bytes": sizes.size_bytes,
        "transcripts_waiting": len(waiting),
        "marks_without_vector": unread,
        "hook_failures": len(failures),
        "sources": {
            "declared": len(checked),
            "silent": [each.source for each in silent],
            "failing": [each.source for each in failing],
        },
        "backlog": {"events": waiting_events, "size_bytes": waiting_bytes},
        "problems": problems,
        "failed_work": [{"at": event.at, **event.data} for event in failed],
        "advice": advice,
        "versions": _versions(),
    }

    def for_people(console: Console) -> None:
        state = "[green]healthy[/]" if not wrong else f"[red]{counted(wrong, 'problem')}[/]"
        console.print(
            f"{state}  {escape(location)}{'' if is_there else '  (made by what is first written)'}", soft_wrap=True
        )
        shared = f", each context shared by {document['events_per_context']} events" if sizes.contexts else ""
        held = f"{counted(sizes.events, 'event')}, {counted(sizes.marks, 'mark')}"
        aged = f"; {sizes.aged:,} aged into {counted(sizes.blocks, 'block')}" if sizes.aged else ""
        console.print(f"{held}{shared}{aged}; {size(sizes.size_bytes)} on disk")
        for line in advice:
            console.print(f"[yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(document, for_people)
    if wrong:
        sys.exit(1)


async def _show_away(memory: Memory, output: Output, reason: str) -> None:
    """What can be told of a space whose store does not answer, or takes nothing: the reason, and what waits for it."""
    waiting_events, waiting_bytes = await memory.backlog()
    problems = [reason, *memory.damaged]
    advice = [*problems]
    if waiting_events:
        advice.append(
            f"{counted(waiting_events, 'event')} ({size(waiting_bytes)}) waiting in {memory.store.segments}: stored by "
            "the next who opens this space from here when the store takes them; nothing of it is lost"
        )
    document = {
        "healthy": False,
        "store": memory.location,
        "exists": True,
        "events": None,  # nobody knows
        "backlog": {"events": waiting_events, "size_bytes": waiting_bytes},
        "problems": problems,
        "advice": advice,
        "versions": _versions(),
    }

    def for_people(console: Console) -> None:
        console.print(f"[red]{counted(len(problems), 'problem')}[/]  {escape(memory.location)}", soft_wrap=True)
        for line in advice:
            console.print(f"[yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(document, for_people)


def _versions() -> dict[str, str]:
    return {"mica": version("mica"), "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}


def _unwritable(place: Path | str, segments: Path | None) -> list[str]:
    """What keeps the file of a space from being written, or made; an address says so itself when it is opened."""
    if is_address(place) or str(place) == ":memory:":
        return []
    file = Path(place).expanduser().absolute()
    wanted = [file.parent, *([file] if file.exists() else ()), *([] if segments is None else [segments])]
    found = dict.fromkeys(next(path for path in (each, *each.parents) if path.exists()) for each in wanted)
    return [
        f"{path} cannot be written, so that nothing new is kept: check whose it is, its rights and whether its disk is "
        "mounted read-only, or set MICA_HOME or --store to another place"
        for path in found
        if not os.access(path, os.W_OK) or (path != file and not path.is_dir())
    ]


def _failure(event: Event) -> str:
    """What a failure of background work says, in words."""
    kind, reason = (one_line(str(event.data.get(name, "")), 300) for name in ("kind", "text"))
    return f"{kind} failed {local(event.at)}: {reason}; it is tried again, `mica tick` tries now"


def _transcripts_of(location: str) -> list[Path]:
    """The transcripts that belong into this space."""
    settings = load_settings()
    found = planned(usual_places(settings), settings=settings, into=None)
    return [file for plan in found.plans if str(plan.target) == location for file in plan.files]


@click.command()
@memory_command
async def embed(memory: Memory, output: Output) -> None:
    """Make the vectors that marks are missing, the latest first, so that search finds them by their meaning.

    Needs the extra `semantic`. A process that stays does this by itself.

    Example: mica embed
    """
    if await memory.without_vector() is None:
        raise click.UsageError("search by meaning is not installed or set to off; pip install 'mica[semantic]'")
    with Console(stderr=True).status("") as status:
        made = await memory.embed(on_progress=lambda count: status.update(f"{count:,} marks"))

    def for_people(console: Console) -> None:
        console.print(f"{counted(made, 'vector')} made" if made else "Every mark has its vector.")

    output.show({"vectors": made}, for_people)


@click.command()
@memory_command
async def verify(memory: Memory, output: Output) -> None:
    """Check every promise on the stored data; exits 1 when one is broken.

    Example: mica verify --json
    """
    with Console(stderr=True).status("verifying") as status:
        problems = await memory.verify(on_progress=lambda done: status.update(f"{done:,} events")) + memory.damaged
    sizes = await memory.sizes()

    def for_people(console: Console) -> None:
        for problem in problems:
            console.print(f"[red]✗[/] {escape(problem)}", soft_wrap=True)
        if not problems:
            console.print(f"[green]✓[/] {sizes.events:,} events can be read; lineage and indexes are whole")

    output.show({"events": sizes.events, "problems": problems}, for_people)
    if problems:
        sys.exit(1)


def _from_source(function: Callable[P, None]) -> Callable[P, None]:
    """A command that is given the space as an argument before its destination, or by options as all others."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        *sources, kwargs["destination"] = cast(tuple[str, ...], kwargs.pop("places"))
        if len(sources) > 1:
            raise click.UsageError(f"{len(sources) + 1} stores are given; a copy has one source and one target")
        if sources and (kwargs["store"] is not None or kwargs["space"] is not None):
            raise click.UsageError("give SOURCE, --store or --space, not two of them")
        kwargs["store"] = sources[0] if sources else kwargs["store"]
        function(*args, **kwargs)

    return run


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="[SOURCE] TARGET")
@_from_source
@click.option("--into-other", is_flag=True, help="Also into a store that holds another space; the two become one.")
@memory_command
async def copy(memory: Memory, output: Output, *, destination: str, into_other: bool) -> None:
    """Copy a space into another store, and prove that everything is there. Run it again to go on.

    SOURCE and TARGET are files or addresses, postgresql://… Without SOURCE it is the space that the options name, else
    the directory's own. TARGET is made if need be; it is empty or a copy of the space, known by its first event. What
    is written to the space meanwhile is for the next copy.

    Example: mica copy shop.db backup.db
    """
    _check_destination(destination)
    with Console(stderr=True).status("copying") as status:
        done = await memory.copy_to(
            destination, into_other=into_other, on_progress=lambda count: status.update(f"{count:,} events")
        )

    def for_people(console: Console) -> None:
        said = f"{counted(done.events, 'event')} in {shown(destination)}, {done.stored:,} of them new; verified"
        console.print(f"[green]✓[/] {escape(said)}", soft_wrap=True)

    output.show(done, for_people)


def _check_destination(destination: str) -> None:
    """Raise InvalidInput for a place where nobody would find the copy: in memory, or in a folder that is not there."""
    if destination == ":memory:":
        raise InvalidInput("a copy in :memory: would be gone with this command; give a file or an address")
    folder = Path(destination).expanduser().absolute().parent
    if not is_address(destination) and not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder} for the copy; make it first")


@click.command()
@memory_command
async def rebuild(memory: Memory, output: Output) -> None:
    """Derive again everything that is derived from the log, such as the full-text index.

    Example: mica rebuild
    """
    with Console(stderr=True).status("rebuilding") as status:
        count = await memory.rebuild(on_progress=lambda done: status.update(f"{done:,} events"))

    def for_people(console: Console) -> None:
        console.print(f"[green]✓[/] rebuilt from {count:,} events")

    output.show({"events": count}, for_people)


@click.command()
@click.option("--older-than", default="24h", show_default=True, type=Span(), help="Which events: 2h, 3d, 1w.")
@memory_command
async def age(memory: Memory, output: Output, *, older_than: timedelta) -> None:
    """Turn older events into what takes less room. Nothing is lost, and every question is answered as before.

    A process that stays does this by itself, and so does `mica import`; a space that only other commands use needs it
    now and then.

    Example: mica age --older-than 3d
    """
    before = await memory.sizes()
    with Console(stderr=True).status("ageing") as status:
        count = await memory.age(older_than, on_progress=lambda done: status.update(f"{done:,} events"))
    after = await memory.sizes()

    def for_people(console: Console) -> None:
        held = f"{counted(count, 'event')} aged; {size(before.size_bytes)} on disk before, {size(after.size_bytes)} now"
        console.print(f"[green]✓[/] {held}")

    sizes = {"size_bytes_before": before.size_bytes, "size_bytes": after.size_bytes}
    output.show({"aged": count, "events": after.events, "aged_in_all": after.aged} | sizes, for_people)


@click.command()
@click.argument("address")
@click.option("--admit", "roles", multiple=True, metavar="ROLE", help="Let this role use it; may be given often.")
@json_option
def prepare(*, address: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Make a PostgreSQL database ready for spaces, or bring it to this version, as the owner of the tables.

    Example: mica prepare postgresql://owner@db.example.org/mica --admit app
    """
    asyncio.run(prepare_server(address, admitted=roles))

    def for_people(console: Console) -> None:
        admitted = f"; admitted: {', '.join(roles)}" if roles else ""
        console.print(f"[green]✓[/] ready{escape(admitted)}", soft_wrap=True)

    Output(as_json=as_json).show({"ready": True, "admitted": roles}, for_people)
