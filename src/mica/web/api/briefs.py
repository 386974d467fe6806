"""search, brief, why, navigate, handoff, quality, briefs over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from mica.brief.quality import Quality
from mica.brief.question import RECENCY_WEIGHT
from mica.brief.why import Why
from mica.format.documents import crystal_document
from mica.memory import Memory, Preset
from mica.model.event import Brief
from mica.navigation.places import Place
from mica.search.ranker import Hit
from mica.search.search import CrystalHit, Depth
from mica.web.api.fields import Limit, Moment, Name, Words
from mica.web.operations import API

Budget = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class SearchAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words
    limit: Limit = 10
    since: Moment | None = None
    until: Moment | None = None
    agent: Name | None = None
    tags: tuple[Name, ...] = ()
    level: Depth | None = None
    with_sources: bool = False
    with_superseded: bool = False


class BriefAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words = ""
    budget_tokens: Budget | None = None
    preset: Preset | None = None
    recency_weight: Annotated[float, msgspec.Meta(ge=0, le=1)] = RECENCY_WEIGHT
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=60)] | None = None
    is_preview: bool = False  # shown to no agent: it gets no receipt


class WhyAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    about: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class NavigateAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: Words
    limit: Limit = 10
    session: Name | None = None


class HandoffAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Name | None = None
    budget_tokens: Budget | None = None


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """A time that the query names, and how it was understood."""

    words: str
    start_at: datetime
    end_at: datetime


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mark or a crystal that answers, and why."""

    id: str
    text: str
    at: datetime
    position: int | None
    score: float
    parts: dict[str, float]
    mark: dict[str, Any] | None = None
    crystal: dict[str, Any] | None = None


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What answers, best first."""

    query: str
    periods: list[Understood]
    hits: list[Answer]


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Files that a task will probably need, best first, and what could not be looked at."""

    task: str
    places: list[Place]
    missing: dict[str, str]


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """What each thing that was asked about rests on."""

    why: list[Why]


class HandoffOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the next agent is given: a text within the budget, and where each line comes from."""

    session: str | None
    text: str
    lines: list[dict[str, Any]]
    new_crystals: list[dict[str, Any]]
    recent_crystals: list[dict[str, Any]]
    tokens_used: int
    budget_tokens: int
    left_out: int
    errors: tuple[str, ...]


@API.get("/search", tag="recall")
async def search(memory: Memory, asked: SearchAsked) -> Answers:
    """The marks and crystals that answer the query, best first; empty when none does."""
    found = await memory.search(
        asked.query,
        limit=asked.limit,
        since=asked.since,
        until=asked.until,
        agent=asked.agent,
        tags=asked.tags,
        level=asked.level,
        with_sources=asked.with_sources,
        with_superseded=asked.with_superseded,
    )
    periods = [Understood(words=each.words, start_at=each.start_at, end_at=each.end_at) for each in found.periods]
    return Answers(query=asked.query, periods=periods, hits=[_answer(hit) for hit in found])


def _answer(hit: Hit | CrystalHit) -> Answer:
    return Answer(
        id=hit.id,
        text=hit.text,
        at=hit.at,
        position=hit.position,
        score=hit.score,
        parts=hit.parts,
        mark=msgspec.to_builtins(hit.mark) if isinstance(hit, Hit) else None,
        crystal=crystal_document(hit.crystal) if isinstance(hit, CrystalHit) else None,
    )


@API.post("/brief", tag="recall")
async def brief(memory: Memory, asked: BriefAsked) -> Brief:
    """What an agent should know now: never over the budget, never later than the deadline, its gaps named."""
    return await memory.brief(
        asked.query,
        budget_tokens=asked.budget_tokens,
        preset=asked.preset,
        deadline_s=asked.deadline_s,
        is_preview=asked.is_preview,
        recency_weight=asked.recency_weight,
    )


@API.get("/why", tag="recall")
async def why(memory: Memory, asked: WhyAsked) -> Reasons:
    """What a brief, a crystal or another event rests on: given its id, its position, or a line that ends in them."""
    return Reasons(why=await memory.why(asked.about))


@API.get("/navigate", tag="recall")
async def navigate(memory: Memory, asked: NavigateAsked) -> Places:
    """The files that a task will probably need, with the lines to begin at, how sure that is and why; best first."""
    found = await memory.navigate(asked.task, limit=asked.limit, session=asked.session)
    return Places(task=asked.task, places=list(found), missing=found.missing)


@API.post("/handoff", tag="recall")
async def handoff(memory: Memory, asked: HandoffAsked) -> HandoffOut:
    """Crystallize a session, and tell what the next agent needs to start: never over the budget, each line sourced."""
    made = await memory.handoff(session=asked.session, budget_tokens=asked.budget_tokens)
    return HandoffOut(
        session=made.session,
        text=made.text,
        lines=msgspec.to_builtins(made.lines),
        new_crystals=[crystal_document(each) for each in made.new_crystals],
        recent_crystals=[crystal_document(each) for each in made.recent_crystals],
        tokens_used=made.tokens_used,
        budget_tokens=made.budget_tokens,
        left_out=made.left_out,
        errors=made.errors,
    )


class QualityAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    weeks: Annotated[int, msgspec.Meta(ge=1, le=520)] = 8


class Judged(Quality, frozen=True, kw_only=True):
    """Whether briefs helped, in a sentence and in figures."""

    verdict: str


class Switch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether this space tells briefs."""

    on: bool


@API.get("/quality", tag="space")
async def quality(memory: Memory, asked: QualityAsked) -> Judged:
    """Tasks with briefs beside tasks without, by their outcomes, and what gathering cost."""
    found = await memory.quality(weeks=asked.weeks)
    return Judged(verdict=found.helped.verdict, **msgspec.structs.asdict(found))


@API.get("/briefs", tag="space")
async def briefs(memory: Memory) -> Switch:
    """Whether this space tells briefs."""
    return Switch(on=await memory.briefs_are_on())


@API.post("/briefs", tag="space")
async def switch_briefs(memory: Memory, asked: Switch) -> Switch:
    """Switch briefs on or off for this space. Off, agents are told nothing, by hooks neither."""
    await memory.switch_briefs(on=asked.on)
    return Switch(on=await memory.briefs_are_on())
