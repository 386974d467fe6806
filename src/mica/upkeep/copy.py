"""Copies a whole space from one store into another and verifies the copy. An interrupted copy can be resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mica.errors import InvalidInput, StoreError
from mica.format.lines import plural
from mica.model.event import Event, EventId, Tombstone, is_tombstone, tombstone_of
from mica.store.protocol import EventLog, PurgeLog, Store
from mica.store.purges import steps
from mica.store.space import is_address

BATCH_EVENTS = 1_000  # one transaction of the target


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many events a copy has read from the source, and how many of them were new in the target."""

    events: int  # events that were read
    stored: int  # events that were new in the target
    repeated: int  # events that the target already had, with the same content


async def copy(
    source: Store,
    target: Store,
    *,
    into_other: bool = False,
    on_progress: Callable[[int], None] = lambda count: None,
) -> CopyResult:
    """Copy every event of the source into the target, then verify that all events are there.

    To continue an interrupted copy, call this function again: events that are already in the target count as
    `repeated`. What was purged in the source is also purged in the target, and so is matching content that arrives
    there later. `on_progress` is called with the number of events read so far.

    Raises InvalidInput if source and target are the same space, or if the target has another space, because the two
    spaces would be merged; `into_other` allows that. Raises DuplicateEvent if the target has an event with the same id
    but other content, and StoreError if the verification fails.
    """
    await _check_target(source, target, into_other=into_other)
    for purge in await source.purges.all():
        await target.purges.add(purge)
    until = await source.log.last_position()  # events written meanwhile are left for the next copy
    first = await _pass(source.log, target.log, on_progress, purges=target.purges, until=until)
    second = await _pass(source.log, target.log, lambda _: None, purges=target.purges, until=until)
    if second.stored:
        were = "was" if second.stored == 1 else "were"
        missing = f"{plural(second.stored, 'event')} {were} missing in {target.location}"
        raise StoreError(f"{missing} after the copy; run it again")
    if second.events < first.events:
        were = "was" if first.events == 1 else "were"
        raise StoreError(
            f"{plural(first.events, 'event')} {were} copied, but {source.location} has only {second.events:,} of them "
            "now; run the copy again"
        )
    return first


async def _check_target(source: Store, target: Store, *, into_other: bool) -> None:
    if source.space == target.space and _is_one_place(source.location, target.location):
        raise InvalidInput(f"{target.location} is this space itself; choose another store")
    first, other = [[event.id for event in await store.log.read(0, limit=1)] for store in (source, target)]
    if other and other != first and not into_other:
        raise InvalidInput(
            f"{target.location} holds another space, and the two would be merged; choose an empty store or a "
            "copy of this space, or allow it with --into-other"
        )


def _is_one_place(one: str, other: str) -> bool:
    # On a server the id of a space is unique; a file may have been copied together with its id.
    if is_address(one) or is_address(other):
        return is_address(one) and is_address(other)
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


async def _pass(
    source: EventLog, target: EventLog, on_progress: Callable[[int], None], *, purges: PurgeLog, until: int
) -> CopyResult:
    after = events = stored = repeated = buried = 0
    while after < until and (batch := await source.read(after, limit=min(BATCH_EVENTS, until - after))):
        appended = await target.append([msgspec.structs.replace(event, position=None) for event in batch])
        buried += await _bury(purges, batch)
        after = batch[-1].position or 0
        events += len(batch)
        stored += appended.stored
        repeated += appended.repeated
        on_progress(events)
    if buried:
        await purges.scrub()
    return CopyResult(events=events, stored=stored, repeated=repeated)


async def _bury(purges: PurgeLog, batch: Sequence[Event]) -> int:
    """Purge in the target the events of which the source has only tombstones; returns how many were purged.

    An earlier copy may have stored their content before it was purged in the source. `purges` are those of the target.
    """
    stones: dict[Tombstone, list[EventId]] = defaultdict(list)
    for event in batch:
        if is_tombstone(event):
            stones[tombstone_of(event)].append(event.id)
    return sum([await purges.bury(some, stone) for stone, ids in stones.items() for some in steps(ids)])
