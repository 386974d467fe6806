"""doctor: checks whether a space is healthy, and says what to do if it is not."""

from __future__ import annotations

import os
import platform
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import apsw
import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.hooks import hook_failures
from mica.cli.output import Output, chosen_place, current_user, describe_emptiness, memory_command
from mica.clients.discovery import plan_imports, usual_places
from mica.clients.spool import Spools, hooks_folder
from mica.errors import StoreError
from mica.format.lines import format_bytes, format_time, one_line, plural
from mica.memory import Memory
from mica.model.event import REFUSED, Event, EventQuery, utc_now
from mica.settings import load_settings
from mica.sources.registry import SourceHealth
from mica.store.protocol import Sizes
from mica.store.space import is_address, space_of, without_password

SOURCES_S = 2.0  # the deadline for all declared sources together
REFUSED_LATELY = timedelta(days=7)  # so that a weekly check shows it
FAILED_LATELY = timedelta(days=1)  # older failures were repaired since, or happened again


@click.command()
@memory_command
async def doctor(memory: Memory, output: Output) -> None:
    """Check a space, and say what to do.

    It shows where the space is stored, what it holds, what is waiting and what failed. Exits 1 if something is wrong
    with the space, or with a source that is declared for it.

    Example: mica doctor
    """
    try:
        with Console(stderr=True).status("verifying") as status:  # first: it stores the events of killed processes
            problems = await memory.upkeep.verify(on_progress=lambda done: status.update(f"{done:,} events"))
    except StoreError as error:
        await _show_unavailable(memory, output, str(error))
        sys.exit(1)
    examined = await _examine(memory, problems, place=chosen_place())
    advice = _advice(examined)

    def for_people(console: Console) -> None:
        sizes = examined.sizes
        state = f"[red]{plural(examined.wrong, 'problem')}[/]" if examined.wrong else "[green]healthy[/]"
        created = "" if examined.exists else "  (created with the first event)"
        console.print(f"{state}  {escape(examined.location)}{created}", soft_wrap=True)
        shared = f", each context shared by {_events_per_context(sizes)} events" if sizes.contexts else ""
        held = f"{plural(sizes.events, 'event')}, {plural(sizes.marks, 'mark')}"
        compressed = f"; {sizes.aged:,} compressed into {plural(sizes.blocks, 'block')}" if sizes.aged else ""
        console.print(f"{held}{shared}{compressed}; {format_bytes(sizes.size_bytes)} on disk")
        for line in advice:
            console.print(f"[yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(_document(examined, advice), for_people)
    if examined.wrong:
        sys.exit(1)


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The results of examining a space: its contents, what is waiting, and problems."""

    location: str
    exists: bool
    problems: list[str]
    sizes: Sizes
    backlog_events: int
    backlog_bytes: int
    transcripts: int  # those with something new
    without_vector: int | None
    hook_failures: int
    failed_work: list[Event]
    refused: int
    sources: list[SourceHealth]
    emptiness: str | None  # without any event: how to begin

    @property
    def silent(self) -> list[SourceHealth]:
        return [each for each in self.sources if each.state == "missing"]

    @property
    def failing(self) -> list[SourceHealth]:
        return [each for each in self.sources if each.state == "failing"]

    @property
    def wrong(self) -> int:
        """The number of problems that make the space unhealthy."""
        return len(self.problems) + len(self.silent) + len(self.failing)


async def summarize_health(memory: Memory, place: Path | str) -> list[str]:
    """Return one sentence for each thing in a space that needs attention, with what to do about it.

    This is the quick part of `mica doctor`: stored data is not verified, and no source or transcript is read.
    """
    return _advice(await _examine(memory, [], place=place, is_quick=True))


async def _examine(memory: Memory, stored: list[str], *, place: Path | str, is_quick: bool = False) -> Examination:
    """Collect what may need attention in a space. `stored` are the problems found by verifying the stored data."""
    settings = load_settings()
    exists = memory.location != ":memory:" or str(place) == ":memory:"  # reading does not create a space
    now = utc_now()
    backlog_events, backlog_bytes = await memory.upkeep.backlog()
    spools = memory.clients.spools or Spools(hooks_folder(space_of(Path.cwd(), home=settings.home).file))
    return Examination(
        location=memory.location if exists else without_password(place),
        exists=exists,
        problems=stored + memory.upkeep.damaged + spools.damaged + _write_problems(place, memory.upkeep.segments),
        sizes=await memory.upkeep.sizes(),
        backlog_events=backlog_events,
        backlog_bytes=backlog_bytes,
        transcripts=0 if is_quick else len(await memory.clients.unread(_transcripts_of(memory.location))),
        without_vector=None if is_quick else await memory.upkeep.without_vector(),
        hook_failures=len(hook_failures(spools, settings)),
        failed_work=await memory.events.query(EventQuery(names=("job.failed",), since=now - FAILED_LATELY, limit=1)),
        refused=len(await memory.events.query(EventQuery(names=(REFUSED,), since=now - REFUSED_LATELY))),
        sources=[] if is_quick else await memory.sources.health(timeout_s=SOURCES_S),
        emptiness=None if is_quick else await describe_emptiness(memory),
    )


def _advice(examined: Examination) -> list[str]:
    """Return one sentence for each problem that was found; it says what to do."""
    advice = [*examined.problems, *map(_describe_failure, examined.failed_work)]
    if examined.refused:
        events = plural(examined.refused, "event")
        were = "it was" if examined.refused == 1 else "they were"
        advice.append(
            f"{events} could not be stored as {were} in the last week: `mica events query --name {REFUSED}` shows why"
        )
    if examined.backlog_events:
        events = f"{plural(examined.backlog_events, 'event')} ({format_bytes(examined.backlog_bytes)})"
        advice.append(f"{events} waiting to be stored: another process is writing")
    if examined.transcripts:
        advice.append(f"{plural(examined.transcripts, 'transcript')} with something new: run `mica import`")
    if examined.without_vector:
        marks = plural(examined.without_vector, "mark")
        advice.append(f"{marks} without a vector yet: run `mica upkeep embed`, or keep a server running")
    if examined.sizes.page_checksums is False:
        advice.append(
            "the PostgreSQL server keeps no checksums of its pages and may not notice a damaged disk: stop it once "
            "and run `pg_checksums --enable`"
        )
    if examined.hook_failures:
        advice.append(f"{plural(examined.hook_failures, 'hook')} failed lately: `mica upkeep hooks status` shows why")
    advice += [f"source {each.source} does not answer: {each.detail}" for each in examined.silent]
    advice += [
        f"source {each.source} is reachable, but its last {each.past.failed_in_a_row} queries failed: "
        f"{each.past.failure}"
        for each in examined.failing
    ]
    if examined.emptiness is not None:
        advice.append(examined.emptiness)
    return advice


def _document(examined: Examination, advice: list[str]) -> dict[str, object]:
    sizes = examined.sizes
    return {
        "healthy": not examined.wrong,
        "store": examined.location,
        "exists": examined.exists,
        "events": sizes.events,
        "marks": sizes.marks,
        "contexts": sizes.contexts,
        "events_per_context": _events_per_context(sizes),
        "payloads": sizes.payloads,
        "aged": sizes.aged,
        "blocks": sizes.blocks,
        "size_bytes": sizes.size_bytes,
        "page_checksums": sizes.page_checksums,
        "transcripts_waiting": examined.transcripts,
        "marks_without_vector": examined.without_vector,
        "hook_failures": examined.hook_failures,
        "sources": {
            "declared": len(examined.sources),
            "silent": [each.source for each in examined.silent],
            "failing": [each.source for each in examined.failing],
        },
        "backlog": {"events": examined.backlog_events, "size_bytes": examined.backlog_bytes},
        "problems": examined.problems,
        "refused_events": examined.refused,
        "failed_work": [{"at": event.at, **event.data} for event in examined.failed_work],
        "advice": advice,
        "versions": _versions(),
    }


def _events_per_context(sizes: Sizes) -> float | None:
    return round(sizes.events / sizes.contexts, 1) if sizes.contexts else None


async def _show_unavailable(memory: Memory, output: Output, reason: str) -> None:
    """Print why a store does not answer or cannot be written.

    If events wait for it, also print how many, how large they are, and the folder that they are in.
    """
    waiting_events, waiting_bytes = await memory.upkeep.backlog()
    problems = [reason, *memory.upkeep.damaged]
    advice = [*problems]
    if waiting_events:
        advice.append(
            f"{plural(waiting_events, 'event')} ({format_bytes(waiting_bytes)}) waiting in {memory.upkeep.segments}: "
            "nothing is lost; they are stored when the space is next opened from this machine and can be written"
        )
    document = {
        "healthy": False,
        "store": memory.location,
        "exists": True,
        "events": None,  # unknown
        "backlog": {"events": waiting_events, "size_bytes": waiting_bytes},
        "problems": problems,
        "advice": advice,
        "versions": _versions(),
    }

    def for_people(console: Console) -> None:
        console.print(f"[red]{plural(len(problems), 'problem')}[/]  {escape(memory.location)}", soft_wrap=True)
        for line in advice:
            console.print(f"[yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(document, for_people)


def _versions() -> dict[str, str]:
    return {"mica": version("mica"), "python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}


def _write_problems(place: Path | str, segments: Path | None) -> list[str]:
    """Return one sentence for each file or folder of a space that cannot be written or created.

    Nothing is checked for an address or for a space in memory: the result is empty.
    """
    if is_address(place) or str(place) == ":memory:":
        return []
    file = Path(place).expanduser().absolute()
    needed = [file.parent, *([file] if file.exists() else ()), *([] if segments is None else [segments])]
    existing = dict.fromkeys(next(path for path in (each, *each.parents) if path.exists()) for each in needed)
    return [
        f"{path} cannot be written, so nothing new is stored: check its owner, its permissions and whether its disk is "
        "mounted read-only, or set MICA_HOME or --store to another place"
        for path in existing
        if not os.access(path, os.W_OK) or (path != file and not path.is_dir())
    ]


def _describe_failure(event: Event) -> str:
    kind, reason = (one_line(str(event.data.get(name, "")), 300) for name in ("kind", "text"))
    return f"{kind} failed {format_time(event.at)}: {reason}; it is retried; `mica upkeep tick` retries now"


def _transcripts_of(location: str) -> list[Path]:
    """Return the transcripts on this machine whose project is stored at this location."""
    settings = load_settings()
    imports = plan_imports(usual_places(settings, current_user()), settings=settings, into=None)
    return [file for plan in imports.plans if str(plan.target) == location for file in plan.files]
