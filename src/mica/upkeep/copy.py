"""Copies a whole space from one store into another and verifies the copy. An interrupted copy can be resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mica.errors import InvalidInput, StoreError
from mica.format.lines import plural
from mica.model.event import Event, EventId, Tombstone, is_tombstone, tombstone_of
from mica.store.protocol import Store
from mica.store.purges import steps
from mica.store.space import is_address
from mica.upkeep.quotations import find_quotations

BATCH_EVENTS = 1_000  # one transaction of the target


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many events a copy has read from the source, and how many of them were new in the target."""

    events: int  # events that were read
    stored: int  # events that were new in the target
    repeated: int  # events that the target already had, with the same content
    purged: int = 0  # events whose content the target had, and that were purged there because the source purged them
    unreached: tuple[str, ...] = ()  # one sentence for each place in the target that may still have the purged content


async def copy(
    source: Store,
    target: Store,
    *,
    into_other: bool = False,
    on_progress: Callable[[int], None] = lambda count: None,
) -> CopyResult:
    """Copy every event of the source into the target, then verify that all events are there.

    To continue an interrupted copy, call this function again: events that are already in the target count as
    `repeated`. What was purged in the source is also purged in the target, with everything there that quotes it, and so
    is matching content that arrives there later. `on_progress` is called with the number of events read so far.

    Raises InvalidInput if source and target are the same space, or if the target has another space, because the two
    spaces would be merged; `into_other` allows that. Raises DuplicateEvent if the target has an event with the same id
    but other content, and StoreError if the verification fails.
    """
    await _check_target(source, target, into_other=into_other)
    for purge in await source.purges.all():
        await target.purges.add(purge)
    until = await source.log.last_position()  # events written meanwhile are left for the next copy
    first = await _pass(source, target, on_progress, until=until)
    second = await _pass(source, target, lambda _: None, until=until)
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


async def _pass(source: Store, target: Store, on_progress: Callable[[int], None], *, until: int) -> CopyResult:
    after = events = stored = repeated = purged = 0
    while after < until and (batch := await source.log.read(after, limit=min(BATCH_EVENTS, until - after))):
        # First: a crystal that was made again takes the place of one that a tombstone in this batch removes.
        purged += await _purge(source, target, batch)
        appended = await target.log.append([msgspec.structs.replace(event, position=None) for event in batch])
        after = batch[-1].position or 0
        events += len(batch)
        stored += appended.stored
        repeated += appended.repeated
        on_progress(events)
    unreached = tuple(await target.purges.scrub()) if purged else ()
    return CopyResult(events=events, stored=stored, repeated=repeated, purged=purged, unreached=unreached)


async def _purge(source: Store, target: Store, batch: Sequence[Event]) -> int:
    """Purge in the target the events of which the source has only tombstones; returns how many were purged.

    An earlier copy may have stored their content before it was purged in the source. Events that were made in the
    target and quote this content are purged with it.
    """
    stones: dict[Tombstone, list[EventId]] = defaultdict(list)
    for event in batch:
        if is_tombstone(event):
            stones[tombstone_of(event)].append(event.id)
    purged = 0
    for stone, ids in stones.items():
        if not (content := await _with_content(target, ids)):
            continue
        quoting = (await find_quotations(target, content)).ids
        in_source = set(await _with_content(source, quoting))  # the source has checked these
        quoting = tuple(each for each in quoting if each not in in_source)
        purged += sum([await target.purges.bury(some, stone) for some in steps((*quoting, *content))])
    return purged


async def _with_content(store: Store, ids: Sequence[EventId]) -> list[EventId]:
    found = [event for some in steps(ids) for event in await store.log.get_many(some)]
    return [event.id for event in found if not is_tombstone(event)]
