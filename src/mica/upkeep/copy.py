"""A whole space from one store into another: in order, resumable, verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mica.errors import InvalidInput, StoreError
from mica.model.event import Event, EventId, Tombstone, is_tombstone, tombstone_of
from mica.store.protocol import Store
from mica.store.purges import steps
from mica.store.space import is_address

BATCH_EVENTS = 1_000  # one transaction of the target


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did."""

    events: int  # in the source
    stored: int  # that the target did not have
    repeated: int  # that it had, the same to the letter


async def copy(
    source: Store,
    target: Store,
    *,
    into_other: bool = False,
    on_progress: Callable[[int], None] = lambda count: None,
) -> Copied:
    """Bring every event of the source into the target, then prove that it is there.

    A copy that was cut off goes on when it is called again: what is there already counts as repeated. Raises
    DuplicateEvent when the target has other content under a known id, and StoreError when the proof fails. What was
    purged in the source is purged in the target, also what arrives there later.

    Raises InvalidInput when both are the same space, and when the target holds events and does not begin with the event
    that the source begins with, as every copy of it does: two spaces would become one. `into_other` allows the latter.
    """
    await _check_target(source, target, into_other=into_other)
    for purge in await source.purges():
        await target.keep_purge(purge)
    until = await source.last_position()  # what others write meanwhile is for the next copy
    first = await _pass(source, target, on_progress, until=until)
    second = await _pass(source, target, lambda _: None, until=until)
    if second.stored or second.events < first.events:
        raise StoreError(f"{second.stored:,} events were missing in {target.location} after the copy; run it again")
    return first


async def _check_target(source: Store, target: Store, *, into_other: bool) -> None:
    if source.space == target.space and _is_one_place(source.location, target.location):
        raise InvalidInput(f"{target.location} is this space itself; give another store to copy it to")
    begins, other = [[event.id for event in await store.log(0, limit=1)] for store in (source, target)]
    if other and other != begins and not into_other:
        raise InvalidInput(
            f"{target.location} holds another space, and the two would become one; give a store that is empty or a "
            "copy of this space, or say that you want it with --into-other"
        )


def _is_one_place(one: str, other: str) -> bool:
    # A space on a server has its id alone; a file may have been copied as a file, with the id in it.
    if is_address(one) or is_address(other):
        return is_address(one) and is_address(other)
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


async def _pass(source: Store, target: Store, on_progress: Callable[[int], None], *, until: int) -> Copied:
    after = events = stored = repeated = buried = 0
    while after < until and (batch := await source.log(after, limit=min(BATCH_EVENTS, until - after))):
        appended = await target.append([msgspec.structs.replace(event, position=None) for event in batch])
        buried += await _bury(target, batch)
        after = batch[-1].position or 0
        events += len(batch)
        stored += appended.stored
        repeated += appended.repeated
        on_progress(events)
    if buried:
        await target.scrub()
    return Copied(events=events, stored=stored, repeated=repeated)


async def _bury(target: Store, batch: Sequence[Event]) -> int:
    """Make tombstones in the target of what is one in the source: an earlier copy may have brought the content."""
    stones: dict[Tombstone, list[EventId]] = defaultdict(list)
    for event in batch:
        if is_tombstone(event):
            stones[tombstone_of(event)].append(event.id)
    return sum([await target.bury(some, told) for told, ids in stones.items() for some in steps(ids)])
