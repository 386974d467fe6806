"""A whole space from one store into another: in order, resumable, verified."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mica.errors import StoreError
from mica.store.protocol import Store

BATCH_EVENTS = 1_000  # one transaction of the target


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did."""

    events: int  # in the source
    stored: int  # that the target did not have
    repeated: int  # that it had, the same to the letter


async def copy(source: Store, target: Store, *, on_progress: Callable[[int], None] = lambda count: None) -> Copied:
    """Bring every event of the source into the target, then prove that it is there.

    A copy that was cut off goes on when it is called again: what is there already counts as repeated. Raises
    DuplicateEvent when the target has other content under a known id, and StoreError when the proof fails.
    """
    first = await _pass(source, target, on_progress)
    second = await _pass(source, target, lambda _: None)
    if second.stored or second.events < first.events:
        raise StoreError(f"{second.stored:,} events were missing in {target.location} after the copy; run it again")
    return first


async def _pass(source: Store, target: Store, on_progress: Callable[[int], None]) -> Copied:
    after = events = stored = repeated = 0
    while batch := await source.log(after, limit=BATCH_EVENTS):
        appended = await target.append([msgspec.structs.replace(event, position=None) for event in batch])
        after = batch[-1].position or 0
        events += len(batch)
        stored += appended.stored
        repeated += appended.repeated
        on_progress(events)
    return Copied(events=events, stored=stored, repeated=repeated)
