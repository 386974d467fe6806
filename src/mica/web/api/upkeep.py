"""`memory.upkeep` over HTTP: run due jobs, check the stored data, and exempt events from retention."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mica.memory import Memory
from mica.store.protocol import Sizes
from mica.upkeep.schedule import JobRun
from mica.web.api.fields import Name, Reference
from mica.web.operations import API


class TickRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kinds: tuple[Name, ...] | None = None


class TickAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were due and ran."""

    ran: list[JobRun]


@API.post("upkeep.tick", needs="write")
async def tick(memory: Memory, request: TickRequest) -> TickAnswer:
    """Run the jobs that are due. Jobs that another process runs are skipped, so this is safe at any time."""
    return TickAnswer(ran=await memory.upkeep.tick(request.kinds))


@API.get("upkeep.sizes", needs="read")
async def sizes(memory: Memory) -> Sizes:
    """Report the size of this space."""
    return await memory.upkeep.sizes()


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The problems in the stored data, one sentence each."""

    problems: list[str]


@API.get("upkeep.verify", needs="read")
async def verify(memory: Memory) -> VerifyAnswer:
    """Check all stored data. The answer lists the problems; it is empty if there are none."""
    return VerifyAnswer(problems=await memory.upkeep.verify())


class AllowRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]  # a purged value, in any spelling


class AllowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the purges of this value that no longer apply."""

    allowed: tuple[str, ...]


@API.post("upkeep.allow", needs="admin")
async def allow(memory: Memory, request: AllowRequest) -> AllowAnswer:
    """Accept a purged value in new events again. Purged content is not restored."""
    return AllowAnswer(allowed=tuple(await memory.upkeep.allow(request.value)))


class PinRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ids: Annotated[tuple[Reference, ...], msgspec.Meta(min_length=1, max_length=100)]


class PinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the event that records the change."""

    event: str


@API.post("upkeep.pin", needs="write")
async def pin(memory: Memory, request: PinRequest) -> PinAnswer:
    """Exempt these events from retention."""
    ref = memory.upkeep.pin(*[await memory.events.get(each) for each in request.ids])
    await memory.durable()
    return PinAnswer(event=ref.id)


@API.post("upkeep.unpin", needs="write")
async def unpin(memory: Memory, request: PinRequest) -> PinAnswer:
    """Subject these events to retention again."""
    ref = memory.upkeep.unpin(*[await memory.events.get(each) for each in request.ids])
    await memory.durable()
    return PinAnswer(event=ref.id)
