"""The log of one open space: records events, stores them, and notifies listeners.

Every package receives the `Log`, which owns the journal and the fold (the task that moves events from the journal into
the store). Other work around an append or a purge is done by listeners, which `memory.py` adds. The data of a mark is
checked before its event is recorded.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TypeAlias, TypeVar, cast

from mica.errors import InvalidEvent, InvalidInput, StoreBusy, StoreError, StoreUnavailable, UnknownEvent
from mica.events.context import Here, current, received
from mica.events.emitter import Emit
from mica.events.fold import JournalFold
from mica.events.follower import Bell
from mica.events.hot import Reads, readable
from mica.events.journal import Journal
from mica.events.references import Reference, find_event
from mica.events.segment import Stretch
from mica.format.lines import plural
from mica.model.belief import Belief, is_belief_id
from mica.model.event import (
    EPOCH_OPENED,
    MARK,
    MILESTONE,
    Appended,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Origin,
    Ref,
    WriterId,
    encode_data,
    event_id,
    is_id,
    new_writer,
    split_id,
    utc_now,
)
from mica.model.mark import RELATIONS, Relation, check_mark
from mica.redact import redact
from mica.store.codec import remember
from mica.store.priority import observe_failure
from mica.store.protocol import Store
from mica.store.purges import PurgeFilter

LOG = logging.getLogger("mica")

STALL_S = 1.0  # an append takes milliseconds; after this time a read no longer waits for it

T = TypeVar("T")
BeforeAppend: TypeAlias = Callable[[Sequence[Event]], None]
OnAppend: TypeAlias = Callable[[Sequence[Event]], Awaitable[None]]
OnChange: TypeAlias = Callable[[], None]
Link: TypeAlias = str | Event | Ref | Belief  # an event or a belief, or the id of one

_SPACES: dict[WriterId, str] = {}  # the space of each writer of marks in this process


OBSERVED_FIRST = datetime(1970, 1, 1, tzinfo=UTC)  # an older time comes from a clock that was never set
_MILESTONE_IN_TEXT = re.compile(rf"(?<![\w#&/.-])#{MILESTONE}(?![\w-])", re.IGNORECASE)
AHEAD = timedelta(days=3_653)  # clocks differ and simulations run ahead, but not by ten years


def check_mark_time(at: object, *, now: datetime) -> None:
    """Raise InvalidInput unless `at` is an aware datetime between 1970 and ten years after `now`."""
    if not isinstance(at, datetime):
        raise InvalidInput(f"a mark cannot be dated {at!r}; use an aware datetime")
    if at.tzinfo is None:
        raise InvalidInput(f"a mark dated {at.isoformat()} has no time zone; use an aware datetime")
    if at < OBSERVED_FIRST:
        raise InvalidInput(f"a mark dated {at.isoformat()} is before {OBSERVED_FIRST.year}; use the observation time")
    if at > now + AHEAD:
        raise InvalidInput(f"a mark dated {at.isoformat()} is in the future; use the observation time")


def mark_data(
    text: str,
    tags: str | Sequence[str],
    why: str | None,
    principles: str | Sequence[str],
    *,
    check: Callable[..., None],
) -> dict[str, object]:
    """Build the data of a mark's event. Raises InvalidInput for an empty text, and any error that `check` raises.

    `check` is called once, with the text, `why`, the principles and the tags as separate arguments. Then secrets are
    redacted in all of them. `#milestone` in the text is added to the tags. Other words after `#` are
    not, because most of them are numbers, colours or code.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"a mark needs a text, not {text!r}")
    tags = [tags] if isinstance(tags, str) else tags
    principles = [principles] if isinstance(principles, str) else principles
    check(text, why or "", *principles, *tags)
    listed = [_redacted_tag(tag.lstrip("#")) for tag in tags]
    if "#" in text and MILESTONE not in listed and _MILESTONE_IN_TEXT.search(text):
        listed.append(MILESTONE)
    data: dict[str, object] = {"text": redact(text), "tags": listed}
    if why is not None:
        data["why"] = redact(why)
    if principles:
        data["principles"] = [redact(principle) for principle in principles]
    return data


def link_ids(links: Link | Sequence[Link]) -> list[str]:
    """Return the ids of events and beliefs. Raises InvalidInput for anything else."""
    several = [links] if isinstance(links, str | Event | Ref | Belief) else list(links)
    ids = [each if isinstance(each, str) else str(each.id) for each in several]
    for each in ids:
        if not is_id(each) and not is_belief_id(each):
            raise InvalidInput(f"{each!r:.60} is not the id of an event or a belief; `mica beliefs` lists the ids")
    return ids


def _redacted_tag(tag: str) -> str:
    """Return a tag, with secrets in it replaced by `redacted:<kind>`: a tag has no brackets."""
    clean = redact(tag)
    return tag if clean == tag else clean.replace("[", "").replace("]", "")


def check_relation(relation: Relation, *, has_parent: bool) -> None:
    """Raise InvalidInput for an unknown relation, or if a mark without a parent has a relation other than `causes`."""
    if relation not in RELATIONS:
        raise InvalidInput(f"there is no relation {relation!r}; use one of {', '.join(RELATIONS)}")
    if relation != "causes" and not has_parent:
        raise InvalidInput(f"a mark that {relation} something needs a parent; pass the event that it {relation}")


def check_parent(
    parent: Event | Ref,
    *,
    marked_at: datetime,
    times: Mapping[tuple[WriterId, int], datetime],
    space: str,
    spaces: Mapping[WriterId, str],
) -> None:
    """Raise an error if a mark made at `marked_at` cannot have this parent.

    `times` has the times of the marks made in this process, by writer and sequence number; `spaces` has the space of
    each writer in this process. Raises InvalidEvent if the parent is not an event, and InvalidInput if it is later than
    the mark or is known to belong to another space.
    """
    if not isinstance(parent, Event | Ref):
        raise InvalidEvent(f"parent {parent!r} of a mark is not an event; pass the result of emit, mark or event")
    writer = parent.writer if isinstance(parent, Ref) else split_id(parent.id)[0]
    if spaces.get(writer, space) != space:
        raise InvalidInput(
            f"{parent.id} belongs to another space, and events cannot have a parent in another space; "
            "leave out the parent, or mark it in its own space"
        )
    caused_at = parent.at if isinstance(parent, Event) else times.get((parent.writer, parent.sequence))
    if caused_at is not None and marked_at < caused_at:
        raise InvalidInput(f"a mark cannot be older than its parent: {parent.id} is dated {caused_at.isoformat()}")


class Log:
    """Records events in a journal, stores them, and calls listeners.

    Listeners run in the order in which they were added: `before_read` before every read, `before_append` before and
    `on_append` after every append, `on_purge` after this or another process has purged something, and `on_withdrawal`
    when a recorded statement no longer holds, for example after a retraction.
    """

    def __init__(self, store: Store, *, carrier: Mapping[str, str], clock: Clock = utc_now) -> None:
        self.before_read: list[Callable[[], Awaitable[None]]] = []
        self.before_append: list[BeforeAppend] = []
        self.on_append: list[OnAppend] = []
        self.on_purge: list[OnChange] = []
        self.on_withdrawal: list[OnChange] = []
        self.space = store.space
        self.base = received(carrier, space=store.space)
        self.bell = Bell()  # rings after every append of this process
        self.is_closed = False
        self.ids: Iterator[EventId] = map(partial(event_id, new_writer()), count(1))  # for events that skip the journal
        self._store = store
        self._appends: list[float] = []  # when the appends that are running now began
        self._clock = clock
        self._generation = store.purges.generation
        self._purges = PurgeFilter()  # the purges known when the list was last reloaded
        self._marked_at: dict[tuple[WriterId, int], datetime] = {}  # times of marks made here, since a Ref has no time
        self._folding = JournalFold(self.append, store.log.get_many, store.segments)
        self.journal = Journal(
            store.segments,
            space=store.space,
            base=self.base,
            clock=None if clock is utc_now else clock,
            wake=self._folding.wake,
        )
        self._folding.begin(self.journal)

    # -- Recording

    @property
    def here(self) -> Here:
        """The context and the parent that an event emitted now would get."""
        return current(self.space) or self.base

    @property
    def emit(self) -> Emit:
        """The `emit` function of the current journal."""
        return self.journal.emit

    def mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
        parent: Event | Ref | None = None,
        relation: Relation = "causes",
        context: Context | Here | None = None,
        origin: Origin = "agent",
        at: datetime | None = None,
        replaces: Link | Sequence[Link] = (),
        ends: Link | Sequence[Link] = (),
    ) -> Ref:
        """Record a mark with secrets redacted, and return its reference. See `Memory.mark` for the parameters."""
        marked_at = self._clock()
        if at is not None:
            check_mark_time(at, now=marked_at)
            marked_at = at
        data = mark_data(text, tags, why, principles, check=self.check_asserted)
        if parent is not None:
            check_parent(parent, marked_at=marked_at, times=self._marked_at, space=self.space, spaces=_SPACES)
        if relation != "causes":
            check_relation(relation, has_parent=parent is not None or self.here.parent is not None)
            data["relation"] = relation
        for key, links in (("replaces", replaces), ("ends", ends)):
            if listed := link_ids(links):
                data[key] = listed
        ref = self.emit(MARK, data, parent=parent, context=context, origin=origin, at=at)
        remember(self._marked_at, (ref.writer, ref.sequence), marked_at)  # cheaper than making its id
        remember(_SPACES, ref.writer, self.space)
        if MILESTONE in cast(list[str], data["tags"]):
            self.emit(EPOCH_OPENED, {"mark": ref.id}, parent=ref, context=context, origin=origin, at=at)
        return ref

    def check_mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
    ) -> None:
        """Raise the error that `mark` would raise for this content. Nothing is recorded."""
        data = mark_data(text, tags, why, principles, check=self.check_asserted)
        check_mark(data)
        encode_data(MARK, data)

    def check_asserted(self, *texts: str) -> None:
        """Raise InvalidInput if one of these texts contains a purged value."""
        for text in texts:
            if (purge := self._purges.find_purge(text)) is not None:
                value = purge.written_in(text) or text
                raise InvalidInput(
                    f"{value!r} was purged on {purge.at:%Y-%m-%d} ({purge.tombstone.reason}; "
                    f"record {purge.tombstone.purge}) and must not be recorded again; use other words, or allow it: "
                    f"`mica purge --allow {shlex.quote(value)}`"
                )

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store complete events, all or none, and call the listeners. Events stored earlier count as repeated."""
        for before in self.before_append:
            before(events)
        began = asyncio.get_running_loop().time()
        self._appends.append(began)
        try:
            appended = await self._store.log.append(events)
        finally:
            self._appends.remove(began)
        for after in self.on_append:
            await after(events)
        self.bell.ring()
        if (
            self._store.purges.generation != self._generation
        ):  # another process has purged: leave no copy in our segments
            self._generation = self._store.purges.generation
            self.journal.leave()
            await self.notify_purged()
        return appended

    async def durable(self) -> None:
        """Write every event emitted before to disk, so that it survives power loss. Raises StoreUnavailable."""
        if self.journal.is_forked:  # its event loop and threads belong to the parent process
            self.journal.sync()
        else:
            await asyncio.to_thread(self.journal.sync)

    # -- Reading

    async def stored(self) -> None:
        """Run the `before_read` listeners, then store every event emitted before. Raises the errors of the store."""
        await self.collect()
        await self._folding.flush()

    async def reads(self) -> Reads:
        """Return a reader of every event emitted before the call, whether it is stored or still in a segment."""
        await self.collect()
        return await readable(self._store, self._store.purges, self._folding, settle=self._flush_unless_stalled)

    async def settle(self) -> bool:
        """Store every event emitted before. Returns True if they are stored, and False if the store is busy.

        Call it before a read of an index, because indexes do not cover segments. If the result is False, the read
        misses the events that are not stored. Raises all errors of the store except StoreBusy.
        """
        await self.collect()
        is_stored = await self._flush_unless_stalled()
        if not is_stored:
            LOG.warning("%s is busy; what was not stored yet is not in this answer", self._store.location)
        return is_stored

    async def _flush_unless_stalled(self) -> bool:
        try:
            return await self.wait_unless_stalled(asyncio.ensure_future(self._folding.flush()))
        except StoreBusy:
            return False

    async def wait_unless_stalled(self, task: asyncio.Future[T]) -> bool:
        """Wait for a task that appends to the store. Returns False if no append has succeeded for STALL_S seconds.

        After False, the task continues, and its later errors are ignored.
        """
        task.add_done_callback(observe_failure)
        while not task.done():
            if self._is_stalled:
                return False
            now = asyncio.get_running_loop().time()
            await asyncio.wait([task], timeout=max(0.0, min(self._appends, default=now) + STALL_S - now))
        task.result()
        return True

    async def query(self, query: EventQuery) -> list[Event]:
        """The matching events, oldest first, including events that are not stored yet.

        If they exceed the query's limit, only the latest are returned.
        """
        return await (await self.reads()).log.query(query)

    async def get(self, reference: Reference) -> Event:
        """The event with this id or position. Raises UnknownEvent."""
        event = await self.find(reference, await self.reads())
        if event is None:
            raise UnknownEvent(str(reference))
        return event

    async def find(self, reference: Reference, reads: Reads) -> Event | None:
        """Look up an event by its id or position in `reads`, a result of `reads()`. Returns None if there is none."""
        return await find_event(reference, reads=reads, stored=self._store.log, settle=self.settle)

    async def collect(self) -> None:
        """Run the `before_read` listeners. Raises StoreUnavailable in a forked process or another event loop."""
        if self.journal.is_forked:
            raise StoreUnavailable(
                "this memory was opened by the parent of this process: events emitted here are stored later; to read, "
                "open the space again in this process"
            )
        if not self._folding.is_here:
            raise StoreUnavailable(
                "this memory was opened in another event loop: every thread may emit, but only that loop can read or "
                "close it; open the space again in this loop"
            )
        for prepare in self.before_read:
            await prepare()

    async def flush(self) -> None:
        """Store every event emitted before, without running the `before_read` listeners. Raises the store's errors."""
        await self._folding.flush()

    async def clear(self) -> None:
        """Store every event emitted before, and remove these events from the segments of this process."""
        await self._folding.clear()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[list[Stretch]]:
        """Pause storing inside the block. Yields the ranges of frames (records in segments) that are not yet stored."""
        async with self._folding.paused() as waiting:
            yield waiting

    @asynccontextmanager
    async def paused_unless_stalled(self) -> AsyncIterator[list[Stretch]]:
        """Like `paused`, but if the store has been busy for STALL_S seconds, do not wait and do not pause."""
        if self._is_stalled:
            yield self.unfolded
            return
        async with self.paused() as waiting:
            yield waiting

    @property
    def _is_stalled(self) -> bool:
        now = asyncio.get_running_loop().time()
        return now - min(self._appends, default=now) >= STALL_S

    @property
    def unfolded(self) -> list[Stretch]:
        """The ranges of frames (records in a segment) that are not stored yet.

        These are the frames of this process, and of those dead writers whose segments it has claimed so far.
        """
        return self._folding.unfolded

    @property
    def damaged(self) -> list[str]:
        """Descriptions of the segments of dead writers that could not be read completely."""
        return self._folding.damaged

    # -- Purges

    async def notify_purged(self) -> None:
        """Call the `on_purge` listeners and reload the list of purges."""
        for listener in self.on_purge:
            listener()
        await self.reload_purges()

    def notify_withdrawn(self) -> None:
        """Call the `on_withdrawal` listeners."""
        for listener in self.on_withdrawal:
            listener()

    async def reload_purges(self) -> None:
        """Reload the purged values, which new marks must not contain. If the store fails, the old list stays in use."""
        with suppress(StoreError):
            self._purges = PurgeFilter(await self._store.purges.all())

    # -- Closing

    @property
    def is_detached(self) -> bool:
        """True in a forked child, and after the event loop that opened this log was closed."""
        return self.journal.is_forked or self._folding.has_ended

    def start_closing(self) -> None:
        """Mark the log as closed, which ends its followers. Raises StoreUnavailable in another event loop."""
        if not self.is_detached and not self._folding.is_here:
            raise StoreUnavailable("this memory was opened in another event loop; only that loop can close it")
        self.is_closed = True

    async def close(self) -> None:
        """Store the remaining events. Events that cannot be stored stay on disk, and their number is logged."""
        await self._folding.close()
        if waiting := self.journal.waiting_events:
            LOG.warning(
                "%s could not be stored in %s: saved in %s until this space is opened again on this machine",
                plural(waiting, "event"),
                self._store.location,
                self._store.segments,
            )
