"""Checks that all engines share: of events before they are stored, and of stored data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import msgspec

from mica.errors import InvalidEvent
from mica.model.crystal import crystal_of, retraction_target
from mica.model.event import CRYSTAL, DEPTH_MAX, MARK, PURGED, RETRACTED, Event, EventId, Ref, split_id, tombstone_of
from mica.model.mark import decode_mark, searchable_text
from mica.model.teaching import PROMOTED, WITHDRAWN, teaching_of, withdrawal_of
from mica.words import terms_of, words

K = TypeVar("K")


class KnownParent(Protocol):
    """The properties of a parent event that its children are checked against."""

    @property
    def id(self) -> EventId: ...
    @property
    def root_id(self) -> EventId: ...
    @property
    def depth(self) -> int: ...


class ChainPlace(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """The lineage of an event: id, root and depth, and the keys under which an engine stores the event and its root."""

    id: EventId
    root_id: EventId
    depth: int
    own: K  # the key of the event
    root: K  # the key of its root


# The functions that decode the data of an event, by its name. Data that cannot be decoded is refused.
_READERS: dict[str, Callable[[Event], object]] = {
    MARK: decode_mark,
    PURGED: tombstone_of,
    CRYSTAL: crystal_of,
    RETRACTED: retraction_target,
    PROMOTED: teaching_of,
    WITHDRAWN: withdrawal_of,
}


def check_event(event: Event, parent: KnownParent | None) -> None:
    """Raise InvalidEvent if the event is malformed, or if its root or depth contradicts its parent.

    `parent` is None if the event has no parent, or if the parent is unknown.
    """
    split_id(event.id)
    check_content(event, parent)


def check_content(event: Event, parent: KnownParent | None) -> None:
    """Do the checks of `check_event`, except for the id of the event."""
    if parent is None:  # a known parent has a valid id and, as is checked below, the same root
        if event.root_id != event.id:
            split_id(event.root_id)
        if event.parent_id:
            split_id(event.parent_id)
    if (read := _READERS.get(event.name)) is not None:
        read(event)
    if not 0 <= event.depth <= DEPTH_MAX:
        raise InvalidEvent(f"event {event.id!r} has depth {event.depth}; it must be 0 to {DEPTH_MAX:,}")
    check_lineage(event, parent)


def check_lineage(event: Event, parent: KnownParent | None) -> None:
    """Raise InvalidEvent if the root or depth of the event contradicts its parent, or if it is its own parent."""
    if event.parent_id is None:
        if event.root_id != event.id or event.depth != 0:
            raise InvalidEvent(f"event {event.id!r} has no parent; its root must be itself and its depth 0")
    elif parent is not None and (event.root_id != parent.root_id or event.depth != parent.depth + 1):
        raise InvalidEvent(
            f"event {event.id!r} has root {event.root_id!r} and depth {event.depth}, "
            f"its parent {parent.id!r} has root {parent.root_id!r} and depth {parent.depth}"
        )
    elif event.parent_id == event.id:
        raise InvalidEvent(f"event {event.id!r} cannot be its own parent")


def broken_lineage(events: Iterable[Event]) -> list[str]:
    """Return one sentence for each event whose parent is missing or contradicts its root or depth."""
    lineage = LineageCheck()
    lineage.add(events)
    return lineage.broken()


class LineageCheck:
    """Checks that the parent of each event is stored, and that the event's root and depth follow from it.

    Add the events in the order of the log. `parents` are the ids of all events that have children. Passing them saves
    memory, because other events are not remembered.
    """

    def __init__(self, parents: Collection[str] | None = None) -> None:
        self._parents = parents
        self._refs: dict[str, Ref] = {}
        self._early: list[Event] = []  # children that came before their parents
        self._problems: list[tuple[int, str]] = []

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._parents is None or event.id in self._parents:
                self._refs[event.id] = event.ref
            if event.parent_id is None or event.parent_id in self._refs:
                self._check(event, None if event.parent_id is None else self._refs[event.parent_id])
            else:
                self._early.append(msgspec.structs.replace(event, body=b""))

    def broken(self) -> list[str]:
        """Return one sentence for each event that fails the check. Call it after the last `add`."""
        for event in self._early:
            if event.parent_id not in self._refs:
                missing = (
                    f"event {event.id} (position {event.position}) has a parent that is not stored: {event.parent_id}; "
                )
                missing += "import the log that contains it with `mica events import-log`"
                self._problems.append((event.position or 0, missing))
            self._check(event, self._refs.get(event.parent_id or ""))
        return [sentence for _, sentence in sorted(self._problems, key=itemgetter(0))]

    def _check(self, event: Event, parent: Ref | None) -> None:
        try:
            check_lineage(event, parent)
        except InvalidEvent as error:
            self._problems.append((event.position or 0, str(error)))


def stale_texts(events: Iterable[Event], lengths: dict[int, int], counts: dict[int, dict[str, int]]) -> list[str]:
    """Return one sentence for each event whose entry in the full-text index does not match its text.

    The entries are given by position: `lengths` has the number of words, and `counts` how often each term occurs. The
    entries of `events` are removed from both, so that entries without an event remain.
    """
    return [
        stale_text(event)
        for event in events
        if (lengths.pop(event.position or 0, None), counts.pop(event.position or 0, {})) != expected_entry(event)
    ]


def expected_entry(event: Event) -> tuple[int | None, dict[str, int]]:
    """Return the full-text index entry that an event should have: the number of words, and the count of each term.

    The number of words is None for an event without searchable text.
    """
    if (text := searchable_text(event)) is None:
        return None, {}
    found = words(text)
    return len(found), dict(Counter(terms_of(found)))


def stale_text(event: Event) -> str:
    return f"event {event.id} is not indexed as it is stored; `mica upkeep rebuild` repairs it"


def orphaned_texts(positions: Iterable[int]) -> list[str]:
    """Return one sentence for each of these positions, which are in the full-text index but not in the log."""
    return [
        f"the index has position {position}, where no event is; `mica upkeep rebuild` repairs it"
        for position in sorted(positions)
    ]


def missing_positions(gaps: Iterable[tuple[int, int]]) -> list[str]:
    """Return one sentence for each gap in the log. A gap is a pair of the first and the last missing position."""
    return [f"the events at positions {first} to {last} are missing from the log" for first, last in gaps]
