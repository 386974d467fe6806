"""`memory.crystals` over HTTP: list, get, expand, make, teachings, promote, withdraw."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mica.format.documents import crystal_document
from mica.memory import Memory
from mica.model.crystal import Crystal, Level, Waiting
from mica.model.teaching import Teaching
from mica.settings import DigestKind
from mica.web.api.fields import CrystalOut, Limit, Moment, Name, Reason, Reference, Words
from mica.web.operations import API


class CrystalsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words = ""
    level: Level | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 100


class CrystalList(msgspec.Struct, frozen=True, kw_only=True):
    """Crystals that are in force: the latest, in order of time, or those that match a query, best first."""

    crystals: list[CrystalOut]


@API.get("crystals.list", needs="read")
async def list_crystals(memory: Memory, request: CrystalsRequest) -> CrystalList:
    """List the crystals in force, latest last; with a query, those that match it, best first."""
    crystals = await memory.crystals.list(
        request.query, level=request.level, since=request.since, until=request.until, limit=request.limit
    )
    return CrystalList(crystals=[crystal_document(each) for each in crystals])


class CrystalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference


@API.get("crystals.get", needs="read")
async def get(memory: Memory, request: CrystalRequest) -> CrystalOut:
    """Get one crystal by its id or position."""
    return crystal_document(await memory.crystals.get(request.reference))


class ExpandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal and its sources: marks, or crystals of the level below.

    `left_out` of a source says why the crystal does not cite it.
    """

    crystal: CrystalOut
    sources: list[dict[str, Any]]


@API.get("crystals.expand", needs="read")
async def expand(memory: Memory, request: CrystalRequest) -> ExpandAnswer:
    """Get the sources of a crystal: its marks, or its crystals of the level below."""
    crystal = await memory.crystals.get(request.reference)
    dropped = {each.id: each.reason for each in crystal.dropped}
    sources = [
        {
            **(crystal_document(each) if isinstance(each, Crystal) else msgspec.to_builtins(each)),
            "left_out": dropped.get(each.id),
        }
        for each in await memory.crystals.expand(crystal.id)
    ]
    return ExpandAnswer(crystal=crystal_document(crystal), sources=sources)


class CrystallizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Level = "session"
    session: Name | None = None
    tree: Reference | None = None
    since: Moment | None = None
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    digest: DigestKind | None = None
    dry_run: bool = False


class CrystallizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The new crystals, lowest level first, and the periods of which no crystal can be made yet."""

    crystals: list[CrystalOut]
    waiting: list[Waiting]
    dry_run: bool


@API.post("crystals.make", needs="write")
async def make(memory: Memory, request: CrystallizeRequest) -> CrystallizeAnswer:
    """Summarize the marks that no crystal covers yet in new crystals, up to a level."""
    made = await memory.crystals.make(
        level=request.level,
        session=request.session,
        tree=None if request.tree is None else (await memory.events.get(request.tree)).id,
        since=request.since,
        label=request.label,
        digest=request.digest,
        dry_run=request.dry_run,
    )
    return CrystallizeAnswer(
        crystals=[crystal_document(each) for each in made], waiting=list(made.waiting), dry_run=request.dry_run
    )


class TeachingsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    with_ended: bool = False


class TeachingList(msgspec.Struct, frozen=True, kw_only=True):
    """Teachings, oldest first."""

    teachings: list[Teaching]


@API.get("crystals.teachings", needs="read")
async def teachings(memory: Memory, request: TeachingsRequest) -> TeachingList:
    """List the teachings, which are promoted crystals, oldest first."""
    return TeachingList(teachings=await memory.crystals.teachings(with_ended=request.with_ended))


class PromoteRequest(CrystalRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    by: Name | None = None


@API.post("crystals.promote", needs="write")
async def promote(memory: Memory, request: PromoteRequest) -> Teaching:
    """Make a crystal a teaching, which may enter every brief until it is withdrawn."""
    return await memory.crystals.promote(request.reference, by=request.by or "a person", reason=request.reason)


class WithdrawRequest(CrystalRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason


@API.post("crystals.withdraw", needs="write")
async def withdraw(memory: Memory, request: WithdrawRequest) -> Teaching:
    """End a teaching: briefs no longer show it, but it stays in the log."""
    return await memory.crystals.withdraw(request.reference, reason=request.reason)
