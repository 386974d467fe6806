"""sessions, overview, report, replay, doctor, sizes, verify, purge, allow, pins: a space as a whole, over HTTP."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from mica.errors import InvalidInput
from mica.events.activity import Overview
from mica.format.documents import crystal_document, event_document, event_documents
from mica.memory import Memory
from mica.model.crystal import Waiting
from mica.model.event import EventQuery
from mica.navigation.report import Period, Report
from mica.store.protocol import Sizes
from mica.store.purges import BY_HAND
from mica.web.api.fields import CrystalOut, EventOut, Moment, Name, Reference
from mica.web.operations import API

FAILED_SHOWN = 20


class ReportAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    period: Period = "day"
    until: Moment | None = None


class ReplayAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    latest: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300


class DoctorAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verify: bool = False  # also look at all that is stored, which takes seconds for each million events


class PurgeAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must go. Without `confirm` nothing goes: the answer shows what would, and the word that confirms it."""

    ids: Annotated[tuple[Reference, ...], msgspec.Meta(max_length=1_000)] = ()
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)] | None = None
    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200)] = BY_HAND
    confirm: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class AllowAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]  # that was purged, in whichever spelling


class PinAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ids: Annotated[tuple[Reference, ...], msgspec.Meta(min_length=1, max_length=100)]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session that goes on."""

    session: str
    agents: tuple[str, ...]
    last_at: datetime
    last: EventOut


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that have not ended, latest last."""

    sessions: list[Session]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What naming files in advance would have saved and wasted, over this space's own history."""

    verdict: str
    replay: dict[str, Any]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a space is: what it holds, what waits, what failed, what is broken."""

    healthy: bool
    verified: bool  # whether all that is stored was looked at
    location: str
    position: int
    sizes: Sizes
    backlog_events: int
    backlog_bytes: int
    marks_without_vector: int | None
    problems: list[str]
    work: list[dict[str, Any]]  # what is planned, and who does it
    failed_work: list[EventOut]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Every broken promise in the stored data, one sentence each."""

    problems: list[str]


class PurgeOut(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would go."""

    events: int
    ids: tuple[str, ...]
    names: dict[str, int]
    sessions: tuple[str, ...]
    spellings: dict[str, int]  # how the value is written in them, and in how many; empty when they are gone
    first: list[EventOut]
    record: str | None
    stands: bool
    exports: tuple[str, ...]
    removed: tuple[str, ...]
    remade: list[CrystalOut]  # crystals that were made anew of what is left
    ended: tuple[Waiting, ...]  # crystals that were not, and why
    unreached: tuple[str, ...]
    confirm: str | None  # send the same again with this word, and it goes for good; None when it is gone


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The records of the purges that refuse the value no more."""

    allowed: tuple[str, ...]


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The event that says so."""

    event: str


@API.get("/sessions", tag="space")
async def sessions(memory: Memory) -> Sessions:
    """Sessions that go on: not ended, and somebody has written in the last 30 minutes."""
    found = await memory.open_sessions()
    return Sessions(
        sessions=[
            Session(session=each.session, agents=each.agents, last_at=each.last_at, last=event_document(each.last))
            for each in found
        ]
    )


@API.get("/overview", tag="space")
async def overview(memory: Memory) -> Overview:
    """What agents did lately in this space."""
    return await memory.overview()


@API.get("/report", tag="space")
async def report(memory: Memory, asked: ReportAsked) -> Report:
    """A day's or a week's work, beside the period before it, with the arms of all that was offered."""
    return await memory.report(asked.period, until=asked.until)


@API.get("/replay", tag="space")
async def replay(memory: Memory, asked: ReplayAsked) -> Replayed:
    """What offering paths would have been worth over the latest tasks, learning only from the past."""
    told = await memory.replay_walks(latest=asked.latest)
    return Replayed(verdict=told.verdict, replay=msgspec.to_builtins(told))


@API.get("/doctor", tag="space")
async def doctor(memory: Memory, asked: DoctorAsked) -> Health:
    """How the space is: where it lives, what it holds, what is waiting, what is broken."""
    events, size_bytes = await memory.backlog()
    problems = [*memory.damaged, *(await memory.verify() if asked.verify else ())]
    failed = await memory.events(EventQuery(names=("job.failed",), limit=FAILED_SHOWN))
    return Health(
        healthy=not problems,
        verified=asked.verify,
        location=memory.location,
        position=await memory.position(),
        sizes=await memory.sizes(),
        backlog_events=events,
        backlog_bytes=size_bytes,
        marks_without_vector=await memory.without_vector(),
        problems=problems,
        work=[msgspec.to_builtins(each) for each in await memory.store.work()],
        failed_work=event_documents(failed),
    )


@API.get("/sizes", tag="space")
async def sizes(memory: Memory) -> Sizes:
    """How much this space holds."""
    return await memory.sizes()


@API.get("/verify", tag="space")
async def verify(memory: Memory) -> Verified:
    """Every broken promise in the stored data; empty when all hold."""
    return Verified(problems=await memory.verify())


@API.post("/purge", tag="space")
async def purge(memory: Memory, asked: PurgeAsked) -> PurgeOut:
    """Remove the content of every event that fits all that is given; a tombstone stays in the place of each.

    Two steps: without `confirm` the answer shows what would go. The word in it confirms exactly that; when something
    else would go by then, it is refused.
    """
    selected = msgspec.structs.asdict(asked)
    confirm = selected.pop("confirm")
    tried = await memory.purge(**selected, dry_run=True)
    word = blake2b(msgspec.json.encode([memory.space, selected, sorted(tried.ids)]), digest_size=12).hexdigest()
    if confirm is not None and confirm != word:
        raise InvalidInput(f"{confirm!r} confirms something else; ask again without it to see what would go")
    done = tried if confirm is None else await memory.purge(**selected)
    told = {name: getattr(done, name) for name in done.__struct_fields__}
    told |= {"first": event_documents(done.first), "remade": list(map(crystal_document, done.remade))}
    return PurgeOut(**told, confirm=word if confirm is None else None)


@API.post("/purge/allow", tag="space")
async def allow(memory: Memory, asked: AllowAsked) -> Allowed:
    """Let a value be said again that was purged: marks and judgments refuse it no more. What was purged stays gone."""
    return Allowed(allowed=tuple(await memory.allow(asked.value)))


@API.post("/pins", tag="space")
async def pin(memory: Memory, asked: PinAsked) -> Pinned:
    """Keep these events for good, whatever retention is set to."""
    ref = memory.pin(*[await memory.event(each) for each in asked.ids])
    await memory.durable()
    return Pinned(event=ref.id)


@API.post("/pins/remove", tag="space")
async def unpin(memory: Memory, asked: PinAsked) -> Pinned:
    """Let retention take these events again."""
    ref = memory.unpin(*[await memory.event(each) for each in asked.ids])
    await memory.durable()
    return Pinned(event=ref.id)
