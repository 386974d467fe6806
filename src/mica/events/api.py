"""The public class behind `memory.events`: read, follow, analyse, import and export recorded events."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import msgspec

from mica.errors import InvalidInput, MicaError, UnknownEvent
from mica.events import chains
from mica.events.activity import IDLE, OpenSession, Overview, open_sessions, overview
from mica.events.context import Here, Scope, age_s, environment
from mica.events.follower import POLL_S, Follower, history, history_with_ancestors
from mica.events.hot import Reads
from mica.events.log import Log
from mica.events.log_export import LogExportResult, atomic_writer, record_export
from mica.events.log_import import Format, LogImportResult, import_log
from mica.events.references import Reference, ResolvedEvents, as_list, check_number, match_references
from mica.format.documents import FULL, Fields, exported_line
from mica.model.event import Appended, Clock, Event, EventQuery
from mica.model.walk import STARTED
from mica.store.protocol import AppendNotices, ChainIndex, EventLog
from mica.store.space import WorkingTrees

OVERVIEW_EVENTS = 20_000  # the latest; a few weeks of one person, read in a fraction of a second


class Events:
    """The events of a space: `await memory.events.query()`, `.get`, `.chain`, `.follow` …

    Every method sees all events that were emitted before the call. A reference is an event, its id or its position.
    """

    def __init__(
        self,
        log: Log,
        *,
        event_log: EventLog,
        chains: ChainIndex,
        notices: AppendNotices,
        location: str,
        clock: Clock,
        trees: WorkingTrees,
    ) -> None:
        self._log = log
        self._event_log = event_log
        self._chains = chains
        self._notices = notices
        self._location = location
        self._clock = clock
        self._trees = trees

    # -- Recording

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store complete events from another process, all or none. Followers in this process receive the events too."""
        return await self._log.append(events)

    def check_mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
    ) -> None:
        """Raise the error that `memory.mark` would raise for this content. Nothing is recorded."""
        self._log.check_mark(text, tags=tags, why=why, principles=principles)

    def environment(self) -> dict[str, str]:
        """The current context, as variables for a child process: `env=os.environ | memory.events.environment()`."""
        return environment(self._log.here, space=self._log.space)

    @property
    def age_s(self) -> float | None:
        """The seconds since the current `with memory.context(…)` block was opened; None outside of such a block."""
        return age_s(self._log.space)

    # -- Reading

    async def get(self, reference: Reference) -> Event:
        """The event with this id or position. Raises UnknownEvent."""
        return await self._log.get(reference)

    async def resolve(self, references: Iterable[Reference]) -> ResolvedEvents:
        """Look up at most 100 references. Returns their events in order, and the references that do not exist."""
        listed = as_list(references)
        reads = await self._log.reads()
        return match_references(listed, [await self._log.find(each, reads) for each in listed])

    async def query(self, query: EventQuery | None = None) -> list[Event]:
        """The matching events, oldest first. If they exceed the query's limit, only the latest are returned."""
        return await self._log.query(query or EventQuery())

    async def log(
        self, query: EventQuery | None = None, *, after: int = 0, with_ancestors: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Iterate over the matching events after a position, in commit order, up to the end of the log.

        `with_ancestors` also yields all ancestors of these events, so that every parent is present. The log is read in
        batches, so memory use does not grow with the size of the log. The query's limit is ignored.
        """
        check_number("after", after)
        await self._log.stored()
        log, query = self._event_log, query or EventQuery()
        events = (
            history_with_ancestors(log, query, chains=self._chains, after=after)
            if with_ancestors
            else history(log, query, after=after)
        )
        async for event in events:
            yield event

    async def names(self, query: EventQuery | None = None) -> dict[str, int]:
        """The names of the matching events with their counts, most frequent first.

        The whole log is read once, in batches. The query's limit is ignored.
        """
        counts: Counter[str] = Counter()
        async for event in self.log(query):
            counts[event.name] += 1
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))

    async def position(self) -> int:
        """The position of the last event, or 0. A follower that starts after it receives only later events."""
        await self._log.stored()
        return await self._event_log.last_position()

    def follow(self, query: EventQuery | None = None, *, after: int | None = None, poll_s: float = POLL_S) -> Follower:
        """Iterate over every matching event as soon as it is stored: in commit order, each event exactly once.

        Use it as `async for event in memory.events.follow(…)`. Iteration starts after the position `after`, or by
        default with the first event stored after the loop has started; `after=await memory.events.position()` makes
        that start exact. A position beyond the end of the log counts as the end. Events of other processes and
        machines are included. While the store is unavailable the iterator waits and retries; when this memory is
        closed it raises StoreUnavailable. Leaving the loop needs no cleanup. The query's limit is ignored. `poll_s`
        is the poll interval for events of other processes if the store cannot send notifications.
        """
        if after is not None:
            check_number("after", after)

        async def begin() -> int:
            if after is not None and after <= await self._event_log.last_position():
                return after
            last = await self.position()
            return last if after is None else min(after, last)

        return Follower(
            self._event_log,
            query or EventQuery(),
            notices=self._notices,
            begin=begin,
            bell=self._log.bell,
            is_closed=lambda: self._log.is_closed,
            poll_s=poll_s,
        )

    # -- Chains

    async def chain(self, event: Reference) -> list[Event]:
        """Return the chain of an event, oldest first. Raises UnknownEvent.

        The chain is all events with the same correlation or, if the event has none, with the same root.
        """
        reads = await self._log.reads()
        return await reads.chains.chain((await self._event(event, reads)).correlation)

    async def ancestors(self, event: Reference) -> list[Event]:
        """The ancestors of an event, beginning with its parent. Raises UnknownEvent."""
        reads = await self._log.reads()
        return await reads.chains.ancestors((await self._event(event, reads)).id)

    async def descendants(self, event: Reference, *, depth: int | None = None) -> list[Event]:
        """The descendants of an event, oldest first, at most `depth` generations below it. Raises UnknownEvent."""
        if depth is not None:
            check_number("depth", depth)
        reads = await self._log.reads()
        return await reads.chains.descendants((await self._event(event, reads)).id, depth=depth)

    async def impact(self, event: Reference) -> chains.Impact:
        """Return the later events of an event's chain in two groups: the event's descendants, and the other events."""
        reads = await self._log.reads()
        start = await self._event(event, reads)
        chain = await reads.chains.chain(start.correlation)
        return chains.impact(start, chain=chain, descendants=await reads.chains.descendants(start.id))

    async def failures(self, query: EventQuery | None = None) -> list[chains.Failure]:
        """The latest matching failed events, oldest first, each with its ancestors and the agents involved."""
        reads = await self._log.reads()
        failed = await reads.log.query(msgspec.structs.replace(query or EventQuery(), errors=True))
        return [
            chains.failure(
                event,
                ancestors=await reads.chains.ancestors(event.id),
                descendants=await reads.chains.descendants(event.id),
            )
            for event in failed
        ]

    async def replay(
        self,
        event: Reference,
        *,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncIterator[Event]:
        """Yield an event and the later events of its chain, without pauses or at a multiple of the recorded speed.

        With `speed`, the time between the first event and each other one is the recorded time divided by `speed`.
        `clock` returns seconds. Events are only yielded; nothing is executed again. Raises UnknownEvent, and
        InvalidInput for an impossible speed.
        """
        chains.check_speed(speed)
        reads = await self._log.reads()
        start = await self._event(event, reads)
        part = chains.since(start, await reads.chains.chain(start.correlation))
        async for other in chains.replay(part, speed=speed, clock=clock, sleep=sleep):
            yield other

    # -- Sessions

    async def open_sessions(self) -> list[OpenSession]:
        """The sessions without an end event that were active in the last 30 minutes, the most recent one last."""
        return open_sessions(await self.query(EventQuery(since=self._clock() - IDLE, limit=None)))

    async def resume(self, session: str) -> Scope:
        """A scope for a `with` block that continues a session of this or an earlier process.

        Events emitted in the block get the context of the session's last event and become its descendants. Raises
        InvalidInput if there is no such session.
        """
        last = await self.query(EventQuery(session=session, limit=1)) if session is not None else []
        if not last:
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica events sessions` shows those that are open"
            )
        here = Here(last[0].context, last[0].ref)
        return Scope(self._log.space, lambda: here)

    async def overview(self) -> Overview:
        """A summary of the latest work in this space, made from its latest 20,000 events (OVERVIEW_EVENTS)."""
        latest = await self.query(EventQuery(limit=OVERVIEW_EVENTS))
        return overview(latest, is_partial=len(latest) == OVERVIEW_EVENTS)

    async def directory(self) -> Path | None:
        """Return the root of the working tree that this space is about.

        It is the working tree of the current directory if that directory uses this store. Otherwise it is that of the
        latest session or, without sessions, that of the current directory; None if this tree is not on this machine or
        must not be read.
        """
        here = self._trees.current()
        started = await self.query(EventQuery(names=(STARTED,), limit=1))
        if str(here.file) == self._location:
            return here.root
        if not started:
            return here.root if self._trees.is_readable(here.root) else None
        return self._trees.latest(started)

    # -- Files

    async def import_log(
        self,
        file: Path | IO[bytes],
        *,
        format: Format | None = None,
        source: str = "",
        allow_orphans: bool = False,
    ) -> LogImportResult:
        """Store the events of a JSONL file, all or none; importing the same file again changes nothing.

        The formats are mica's own export, CloudEvents, and logs with embedded KSI or flat contexts; by default, the
        first event decides. An open file, such as standard input, is read from its current position. Events that were
        purged here before are stored as tombstones and counted. `source` is any text that distinguishes this log from
        other logs that use the same ids. Raises InvalidInput, with line numbers, for lines that cannot be read. Also
        raises it for events whose parent is neither in the file nor in this space, unless `allow_orphans` is True.
        """
        await self._log.stored()
        return await import_log(
            file,
            stored=self._event_log,
            append=self._log.append,
            now=self._clock(),
            format=format,
            source=source,
            allow_orphans=allow_orphans,
        )

    async def export(
        self,
        file: Path | IO[bytes],
        query: EventQuery | None = None,
        *,
        with_ancestors: bool = False,
        fields: Fields = FULL,
    ) -> LogExportResult:
        """Write the matching events as JSON lines, in the order of the log.

        Each line has the fields named in `fields`, by default all. `with_ancestors` also writes all ancestors of the
        matching events. An existing file is replaced completely or not at all.

        The path of a file is recorded in the log, so that a later purge can also remove events from the file; an open
        stream is not recorded. Raises InvalidInput if the file cannot be written.
        """
        count = 0
        with nullcontext(file) if not isinstance(file, Path) else atomic_writer(file) as stream:
            async for event in self.log(query, with_ancestors=with_ancestors):
                stream.write(exported_line(event, fields) + b"\n")
                count += 1
        try:
            if isinstance(file, Path):
                record_export(self._log, file, events=count)
        except MicaError as error:
            return LogExportResult(events=count, unrecorded=str(error))
        return LogExportResult(events=count)

    async def _event(self, reference: Reference, reads: Reads) -> Event:
        """Look up a reference. If the reference is an event, return it unchanged. Raises UnknownEvent."""
        event = reference if isinstance(reference, Event) else await self._log.find(reference, reads)
        if event is None:
            raise UnknownEvent(str(reference))
        return event
