"""defrag, warm, judge, judgments, sources over HTTP: what other systems know of a concept."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mica.memory import Memory
from mica.sources.account import Defragged
from mica.sources.health import Health
from mica.web.api.fields import Limit, Name
from mica.web.api.records import Recorded
from mica.web.operations import API

ConceptName = Annotated[
    str, msgspec.Meta(min_length=5, max_length=1_000, description="domain:type:id, as judgment:code_review:abc123")
]
Said = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class DefragAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName
    budget_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=60)] | None = None
    is_preview: bool = False  # shown to no agent: nothing is recorded


class WarmAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class JudgeAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName
    verdict: Said
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasons: tuple[Said, ...] = ()
    session: Name | None = None
    agent: Name | None = None


class JudgmentsAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName | None = None
    limit: Limit = 20


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """One account of a concept: what to show, how far sources agree, what they disagree in, who did not answer."""

    concept: str
    injection: str
    coherence: float | None
    fragments: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    missing: dict[str, str]
    degraded: list[dict[str, Any]]
    latency_ms: float
    tokens: int
    budget_tokens: int
    left_out: int
    receipt: str | None


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered ahead."""

    gathered: list[Gathered]


class Judgments(msgspec.Struct, frozen=True, kw_only=True):
    """Judgments, oldest first."""

    judgments: list[dict[str, Any]]


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """How every declared or registered source does."""

    sources: list[Health]


@API.post("/defrag", tag="recall")
async def defrag(memory: Memory, asked: DefragAsked) -> Gathered:
    """One account of a concept from every source that answers in time: conflicts are decided and shown."""
    told = await memory.defrag(
        asked.concept,
        budget_tokens=asked.budget_tokens,
        deadline_s=asked.deadline_s,
        is_preview=asked.is_preview,
    )
    return _gathered(told)


@API.post("/warm", tag="recall")
async def warm(memory: Memory, asked: WarmAsked) -> Warmed:
    """Gather ahead what the next session will ask about: the concepts judged last, and those every brief speaks of."""
    return Warmed(gathered=[_gathered(each) for each in await memory.warm(limit=asked.limit)])


def _gathered(told: Defragged) -> Gathered:
    document = msgspec.to_builtins(told)
    return Gathered(**{name: document[name] for name in Gathered.__struct_fields__})


@API.post("/judgments", tag="observe")
async def judge(memory: Memory, asked: JudgeAsked) -> Recorded:
    """Record what was decided about a concept, how surely and why; secrets are redacted."""
    with memory.context(session=asked.session, agent=asked.agent):
        ref = memory.judge(asked.concept, asked.verdict, confidence=asked.confidence, reasons=asked.reasons)
    await memory.durable()
    return Recorded(id=ref.id, root_id=ref.root_id, depth=ref.depth)


@API.get("/judgments", tag="recall")
async def judgments(memory: Memory, asked: JudgmentsAsked) -> Judgments:
    """The latest judgments, of all or about one concept, oldest first."""
    found = await memory.judgments(asked.concept, limit=asked.limit)
    return Judgments(judgments=[msgspec.to_builtins(each) for each in found])


@API.get("/sources", tag="space")
async def sources(memory: Memory) -> Sources:
    """Whether each declared or registered source answers now, and how its latest questions went."""
    return Sources(sources=await memory.check_sources())
