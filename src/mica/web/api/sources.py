"""`memory.sources` over HTTP: ask sources about a concept, record judgments, and check the health of sources."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from mica.memory import Memory
from mica.sources.account import GatheredAccount
from mica.sources.registry import SourceHealth
from mica.web.api.everyday import RecordedEvent
from mica.web.api.fields import Budget, Deadline, Limit, Name, Reason
from mica.web.operations import API

ConceptName = Annotated[
    str, msgspec.Meta(min_length=5, max_length=1_000, description="domain:type:id, as judgment:code_review:abc123")
]


class GatherRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName
    budget_tokens: Budget | None = None
    deadline_s: Deadline | None = None
    is_preview: bool = False  # no agent sees it, so nothing is recorded


class GatherAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of sources about a concept: the merged text, how far they agree, conflicts, and missing sources."""

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

    @classmethod
    def of(cls, account: GatheredAccount) -> GatherAnswer:
        document = msgspec.to_builtins(account)
        return cls(**{name: document[name] for name in cls.__struct_fields__})


@API.post("sources.gather", needs="admin")
async def gather(memory: Memory, request: GatherRequest) -> GatherAnswer:
    """Ask all sources about a concept, and merge their answers into one text.

    Sources that are late are listed. If sources contradict each other, one statement is chosen and the conflict listed.
    """
    account = await memory.sources.gather(
        request.concept,
        budget_tokens=request.budget_tokens,
        deadline_s=request.deadline_s,
        is_preview=request.is_preview,
    )
    return GatherAnswer.of(account)


class WarmRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class WarmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """For each concept that sources were asked about in advance, their merged answers."""

    gathered: list[GatherAnswer]


@API.post("sources.warm", needs="admin")
async def warm(memory: Memory, request: WarmRequest) -> WarmAnswer:
    """Ask sources in advance about the concepts judged last and those of every brief, so that they are cached."""
    return WarmAnswer(gathered=[GatherAnswer.of(each) for each in await memory.sources.warm(limit=request.limit)])


class JudgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName
    verdict: Reason
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasons: tuple[Reason, ...] = ()
    session: Name | None = None
    agent: Name | None = None


@API.post("sources.judge", needs="write")
async def judge(memory: Memory, request: JudgeRequest) -> RecordedEvent:
    """Record a decision about a concept, with its confidence and reasons. Secrets in it are redacted."""
    with memory.context(session=request.session, agent=request.agent):
        ref = await asyncio.to_thread(
            memory.sources.judge,
            request.concept,
            request.verdict,
            confidence=request.confidence,
            reasons=request.reasons,
        )
    await memory.durable()
    return RecordedEvent.of(ref)


class JudgmentsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concept: ConceptName | None = None
    limit: Limit = 20


class JudgmentList(msgspec.Struct, frozen=True, kw_only=True):
    """Judgments, oldest first."""

    judgments: list[dict[str, Any]]


@API.get("sources.judgments", needs="read")
async def judgments(memory: Memory, request: JudgmentsRequest) -> JudgmentList:
    """List the latest judgments, of all concepts or of one, oldest first."""
    latest = await memory.sources.judgments(request.concept, limit=request.limit)
    return JudgmentList(judgments=[msgspec.to_builtins(each) for each in latest])


class SourceList(msgspec.Struct, frozen=True, kw_only=True):
    """The health of every source."""

    sources: list[SourceHealth]


@API.get("sources.health", needs="read")
async def health(memory: Memory) -> SourceList:
    """Check the health of each declared source, and report the results of its latest requests."""
    return SourceList(sources=await memory.sources.health())
