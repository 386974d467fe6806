"""Judgments: decisions of agents about a concept, each with a verdict, a confidence and reasons.

They are stored as events, and `JudgmentSource` answers questions from them. A verdict is free text; there is no fixed
list of verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import ReadLog
from mica.model.event import JUDGED, JUDGMENT_RETRACTED, Event, EventId, EventQuery
from mica.redact import redact
from mica.sources.protocol import (
    RANK_DATABASE,
    Concept,
    Fragment,
    Question,
    SourceDeclaration,
)
from mica.store.protocol import EventLog
from mica.words import terms

VERDICT_CHARACTERS_MAX = 200  # a verdict is a word or two; the reasons explain it
REASONS_MAX = 20
SHOWN_MAX = 20  # judgments returned by default: the latest ones
LOOKED_MAX = 1_000  # the latest events that are searched for judgments about one concept


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's recorded decision about a concept."""

    id: EventId
    concept: Concept
    verdict: str
    confidence: float
    reasons: tuple[str, ...]
    at: datetime
    agent: str | None = None
    session: str | None = None
    number: str = ""


class JudgmentData(msgspec.Struct):
    concept: str
    verdict: str
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasons: tuple[str, ...] = ()


def judgment_data(
    concept: Concept, verdict: str, *, confidence: float, reasons: str | Iterable[str]
) -> dict[str, object]:
    """Return the data of the event that records a judgment, with secrets removed.

    Raises InvalidInput for an invalid verdict, confidence or reason.
    """
    texts = [reasons] if isinstance(reasons, str) else list(reasons)
    if not isinstance(verdict, str) or not verdict.strip() or len(verdict) > VERDICT_CHARACTERS_MAX:
        raise InvalidInput(f"a verdict has 1 to {VERDICT_CHARACTERS_MAX} characters, not {verdict!r:.60}")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise InvalidInput(f"a confidence of {confidence!r} is not possible; give a number from 0 to 1")
    if len(texts) > REASONS_MAX or not all(isinstance(each, str) for each in texts):
        raise InvalidInput(f"these reasons are not possible; give at most {REASONS_MAX} texts")
    cleaned = [redact(each.strip()) for each in texts if each.strip()]
    summary = f"{redact(verdict.strip())}: {'; '.join(cleaned)}" if cleaned else redact(verdict.strip())
    return {
        "concept": str(concept),
        "verdict": redact(verdict.strip()),
        "confidence": float(confidence),
        "reasons": cleaned,
        "text": f"{concept} {summary}",  # full-text search finds it by this
    }


def retraction_data(judgment: Judgment, *, reason: str) -> dict[str, object]:
    """Return the data of the event that retracts a judgment, with secrets removed from the reason."""
    why = redact(reason.strip())
    return {
        "judgment": judgment.id,
        "concept": str(judgment.concept),
        "reason": why,
        "text": f"{judgment.concept} retracted: {why}",  # full-text search finds it beside its judgment
    }


def judgment_of(event: Event) -> Judgment | None:
    """Return the judgment that an event records.

    Return None if the event's data is not that of a judgment: another program may use the same event name.
    """
    try:
        data = msgspec.convert(event.data, JudgmentData)
        concept = Concept.parse(data.concept)
    except (msgspec.ValidationError, InvalidInput):
        return None
    return Judgment(
        id=event.id,
        concept=concept,
        verdict=data.verdict,
        confidence=data.confidence,
        reasons=data.reasons,
        at=event.at,
        agent=event.context.agent,
        session=event.context.session,
        number=event.number,
    )


async def judgments(log: ReadLog, *, concept: Concept | None = None, limit: int = SHOWN_MAX) -> list[Judgment]:
    """Return the latest judgments about a concept, at most `limit`, oldest first. Retracted judgments are left out.

    If `concept` is None, judgments about all concepts are returned.
    """
    if concept is None:
        retractions = await log.query(EventQuery(names=(JUDGMENT_RETRACTED,), limit=None))
        found = [*await log.query(EventQuery(names=(JUDGED,), limit=limit + len(retractions))), *retractions]
    else:
        text = str(concept) if terms(str(concept)) else None
        found = await log.query(EventQuery(names=(JUDGED, JUDGMENT_RETRACTED), text=text, limit=LOOKED_MAX))
    # Converted to text, because an event of this name from another program may have any value in "judgment".
    retracted = {str(event.data.get("judgment")) for event in found if event.name == JUDGMENT_RETRACTED}
    known = [each for event in found if event.name == JUDGED and (each := judgment_of(event)) is not None]
    valid = [each for each in known if each.id not in retracted and concept in (None, each.concept)]
    return valid[-limit:]


class JudgmentSource:
    """A source whose statements are the judgments recorded in the space.

    A judgment is valid until the next judgment about the same concept.
    """

    declared = SourceDeclaration(name="judgments", rank=RANK_DATABASE, invalidated_by=("judgment.*",))
    made_by = (JUDGED,)

    def __init__(self, log: EventLog, *, stored: Callable[[], Awaitable[None]]) -> None:
        self._log = log
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if self.are_any is False:
            return []
        await self._stored()
        known = [each for each in await judgments(self._log, concept=question.subject) if each.at <= question.now]
        if not known and self.are_any is None:
            self.are_any = bool(await judgments(self._log, limit=1))
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
        """Do nothing: this source holds no resources."""
