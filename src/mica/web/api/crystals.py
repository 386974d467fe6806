"""Crystals and teachings over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mica.format.documents import crystal_document
from mica.memory import Memory
from mica.model.crystal import Crystal, Level, Waiting
from mica.model.teaching import Teaching
from mica.settings import DigestKind
from mica.upkeep.schedule import Ran
from mica.web.api.fields import CrystalOut, Limit, Moment, Name, Reference, Words
from mica.web.operations import API

Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class CrystalsAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words = ""
    level: Level | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 100


class CrystallizeAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Level = "session"
    session: Name | None = None
    tree: Reference | None = None
    since: Moment | None = None
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    digest: DigestKind | None = None
    dry_run: bool = False


class OneAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference


class EndAsked(OneAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason


class PromoteAsked(OneAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    by: Name | None = None


class TeachingsAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    with_ended: bool = False


class TickAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kinds: tuple[Name, ...] | None = None


class Crystals(msgspec.Struct, frozen=True, kw_only=True):
    """The crystals that stand: latest last, or best first where something was asked for."""

    crystals: list[CrystalOut]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The crystals that were made, lowest level first, and what could not be made yet."""

    crystals: list[CrystalOut]
    waiting: list[Waiting]
    dry_run: bool


class Expanded(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal and what it rests on: marks, or crystals of the level below; `left_out` says why one is not cited."""

    crystal: CrystalOut
    sources: list[dict[str, Any]]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What was retracted, and the event that says so."""

    retracted: str
    event: str


class Teachings(msgspec.Struct, frozen=True, kw_only=True):
    """Promoted crystals, oldest first."""

    teachings: list[Teaching]


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """What was due and is done."""

    ran: list[Ran]


@API.get("/crystals", tag="crystals")
async def crystals(memory: Memory, asked: CrystalsAsked) -> Crystals:
    """What marks meant: the crystals that stand, latest last; with a query, those that speak of it, best first."""
    found = await memory.crystals(
        asked.query, level=asked.level, since=asked.since, until=asked.until, limit=asked.limit
    )
    return Crystals(crystals=[crystal_document(each) for each in found])


@API.get("/crystals/{reference}", tag="crystals")
async def crystal(memory: Memory, asked: OneAsked) -> CrystalOut:
    """One crystal by its id or position."""
    return crystal_document(await memory.crystal(asked.reference))


@API.get("/crystals/{reference}/sources", tag="crystals")
async def expand(memory: Memory, asked: OneAsked) -> Expanded:
    """What a crystal rests on: its marks, or its crystals of the level below."""
    found = await memory.crystal(asked.reference)
    dropped = {each.id: each.reason for each in found.dropped}
    sources = [
        {
            **(crystal_document(each) if isinstance(each, Crystal) else msgspec.to_builtins(each)),
            "left_out": dropped.get(each.id),
        }
        for each in await memory.expand(found.id)
    ]
    return Expanded(crystal=crystal_document(found), sources=sources)


@API.post("/crystallize", tag="crystals")
async def crystallize(memory: Memory, asked: CrystallizeAsked) -> Made:
    """Close now what is open, up to a level; what is crystallized already is not made again."""
    made = await memory.crystallize(
        level=asked.level,
        session=asked.session,
        tree=None if asked.tree is None else (await memory.event(asked.tree)).id,
        since=asked.since,
        label=asked.label,
        digest=asked.digest,
        dry_run=asked.dry_run,
    )
    return Made(crystals=[crystal_document(each) for each in made], waiting=list(made.waiting), dry_run=asked.dry_run)


@API.post("/retract", tag="crystals")
async def retract(memory: Memory, asked: EndAsked) -> Ended:
    """Say that a mark, crystal or judgment does not hold any more. It stays in the log, and nothing rests on it."""
    found = await memory.event(asked.reference)
    return Ended(retracted=found.id, event=await memory.retract(found.id, reason=asked.reason))


@API.get("/teachings", tag="crystals")
async def teachings(memory: Memory, asked: TeachingsAsked) -> Teachings:
    """What agents are taught: promoted crystals, oldest first."""
    return Teachings(teachings=await memory.teachings(with_ended=asked.with_ended))


@API.post("/teachings", tag="crystals")
async def promote(memory: Memory, asked: PromoteAsked) -> Teaching:
    """Make a crystal a teaching: it may enter every brief until it is withdrawn."""
    return await memory.promote(asked.reference, by=asked.by or "a person", reason=asked.reason)


@API.post("/teachings/withdraw", tag="crystals")
async def withdraw(memory: Memory, asked: EndAsked) -> Teaching:
    """End a teaching; it stays in the log."""
    return await memory.withdraw(asked.reference, reason=asked.reason)


@API.post("/tick", tag="crystals")
async def tick(memory: Memory, asked: TickAsked) -> Ticked:
    """Do what is due and nobody else does; safe at any time, by several."""
    return Ticked(ran=await memory.tick(asked.kinds))
