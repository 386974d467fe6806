"""Judgments: what agents decided about a concept, with verdict, confidence and reasons. Events, and a source.

Verdicts are words of whoever judges; mica knows no scale of them (K-30).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import Reads
from mica.model.event import Event, EventId, EventQuery
from mica.redact import redact
from mica.sources.protocol import JUDGED, JUDGMENT_RETRACTED, RANK_DATABASE, Concept, Declared, Fragment
from mica.words import terms

VERDICT_CHARACTERS_MAX = 200  # a verdict is a word or two; why it was given are the reasons
REASONS_MAX = 20
SHOWN_MAX = 20  # of the latest judgments about one concept
LOOKED_MAX = 1_000  # of the latest of all, where a concept has no word to look for


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided."""

    id: EventId
    concept: Concept
    verdict: str
    confidence: float
    reasons: tuple[str, ...]
    at: datetime
    agent: str | None = None
    session: str | None = None
    number: str = ""


class _Data(msgspec.Struct):
    concept: str
    verdict: str
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasons: tuple[str, ...] = ()


def judgment_data(
    concept: Concept, verdict: str, *, confidence: float, reasons: str | Iterable[str]
) -> dict[str, object]:
    """The data of the event that is a judgment, without secrets. Raises InvalidInput when it is none."""
    given = [reasons] if isinstance(reasons, str) else list(reasons)
    if not isinstance(verdict, str) or not verdict.strip() or len(verdict) > VERDICT_CHARACTERS_MAX:
        raise InvalidInput(f"a verdict has 1 to {VERDICT_CHARACTERS_MAX} characters, not {verdict!r:.60}")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise InvalidInput(f"a confidence of {confidence!r} is not possible; give a number from 0 to 1")
    if len(given) > REASONS_MAX or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f"reasons are up to {REASONS_MAX} texts")
    told = [redact(each.strip()) for each in given if each.strip()]
    said = f"{redact(verdict.strip())}: {'; '.join(told)}" if told else redact(verdict.strip())
    return {
        "concept": str(concept),
        "verdict": redact(verdict.strip()),
        "confidence": float(confidence),
        "reasons": told,
        "text": f"{concept} {said}",  # by which full text finds it, however many there are
    }


def retraction_data(judgment: Judgment, *, reason: str) -> dict[str, object]:
    """The data of the event that retracts a judgment, without secrets."""
    why = redact(reason.strip())
    return {
        "judgment": judgment.id,
        "concept": str(judgment.concept),
        "reason": why,
        "text": f"{judgment.concept} retracted: {why}",  # found where its judgment is
    }


def judgment_of(event: Event) -> Judgment | None:
    """The judgment that an event is; None when somebody else's event has its name."""
    try:
        told = msgspec.convert(event.data, _Data)
        concept = Concept.parse(told.concept)
    except (msgspec.ValidationError, InvalidInput):
        return None
    return Judgment(
        id=event.id,
        concept=concept,
        verdict=told.verdict,
        confidence=told.confidence,
        reasons=told.reasons,
        at=event.at,
        agent=event.context.agent,
        session=event.context.session,
        number=event.number,
    )


async def judgments(reads: Reads, *, concept: Concept | None = None, limit: int = SHOWN_MAX) -> list[Judgment]:
    """The latest judgments that were not retracted, of all or about one concept, oldest first."""
    if concept is None:
        gone = await reads.events(EventQuery(names=(JUDGMENT_RETRACTED,), limit=None))
        found = [*await reads.events(EventQuery(names=(JUDGED,), limit=limit + len(gone))), *gone]
    else:
        text = str(concept) if terms(str(concept)) else None
        found = await reads.events(EventQuery(names=(JUDGED, JUDGMENT_RETRACTED), text=text, limit=LOOKED_MAX))
    # As text, whatever somebody else's event of this name holds there.
    retracted = {str(event.data.get("judgment")) for event in found if event.name == JUDGMENT_RETRACTED}
    known = [each for event in found if event.name == JUDGED and (each := judgment_of(event)) is not None]
    standing = [each for each in known if each.id not in retracted and concept in (None, each.concept)]
    return standing[-limit:]


class Judgments:
    """The judgments of a space, as a source. A later one takes the place of those before it."""

    declared = Declared(name="judgments", rank=RANK_DATABASE, invalidated_by=("judgment.*",))
    made_by = (JUDGED,)  # after which there may be some where there were none

    def __init__(self, reads: Callable[[], Awaitable[Reads]]) -> None:
        self._reads = reads
        self.are_any: bool | None = None  # in this space; None: nobody has looked

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        if self.are_any is False:
            return []
        reads = await self._reads()
        known = [each for each in await judgments(reads, concept=concept) if each.at <= now]
        if not known and self.are_any is None:
            self.are_any = bool(await judgments(reads, limit=1))
        ends = [*(each.at for each in known[1:]), None]
        return [
            Fragment(
                key="verdict",
                text=": ".join(filter(None, [each.verdict, "; ".join(each.reasons)])),
                value=each.verdict,
                confidence=each.confidence,
                at=each.at,
                valid_until=end,
                source=self.declared.name,
                locator=each.number,
                sources=(each.id,),
            )
            for each, end in zip(known, ends, strict=False)
        ]

    async def close(self) -> None:
        """Nothing is held."""
