"""Teachings: crystals that a person or a rule promoted. Briefs show a teaching, if the budget allows, until it ends.

A teaching is recorded as an event, with the statements of its crystal and the ids of the marks that they cite. It ends
when it is withdrawn, or when its crystal or a mark that it cites is retracted. If its crystal is superseded, the
teaching does not end, because the marks are still valid. Its field `superseded_by` is then the id of the crystal's
successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from mica.errors import InvalidEvent
from mica.model.crystal import LEVELS, Crystal, Level, Share, Statement, join_statements
from mica.model.event import Event, EventId

PROMOTED = "teaching.promoted"
WITHDRAWN = "teaching.withdrawn"
SOURCE = "witness:crystal:"  # prefix of the crystal's id

CONFIDENCE_MIN = 0.85  # of a crystal that a rule may promote
MARKS_MIN = 5  # that such a crystal covers
SHARE_MIN = 0.85  # the score of such a crystal, as a share of the highest possible score of its level
AUTO_MAX = 3  # crystals promoted by rule in one run: a person should be able to read what a rule promoted
MARKS_ENOUGH = 20  # marks beyond this number do not raise the score
LEVEL_BONUS = {"session": 0.0, "day": 0.0, "week": 0.1, "epoch": 0.2}


class Teaching(msgspec.Struct, frozen=True, kw_only=True):
    """A promoted crystal: its statements, each with the ids of the marks that it cites."""

    id: EventId
    content: tuple[Statement, ...]
    principles: tuple[Statement, ...]
    source: str  # witness:crystal:<id>
    crystal: EventId
    level: Level
    period: str
    topics: tuple[str, ...]
    confidence: float
    score: float
    by: str  # who promoted it
    reason: str
    at: datetime
    position: int | None = None
    superseded_by: EventId | None = None  # the successor of its crystal
    ended: str | None = None  # the reason why the teaching has ended; None if it has not

    @property
    def statements(self) -> tuple[Statement, ...]:
        return self.content + self.principles

    @property
    def text(self) -> str:
        return join_statements(statement.text for statement in self.content)

    @property
    def cites(self) -> frozenset[EventId]:
        """The ids of the teaching's crystal and of every mark that its statements cite."""
        return frozenset([self.crystal, *(mark for statement in self.statements for mark in statement.sources)])


class _Promotion(msgspec.Struct):
    content: tuple[Statement, ...]
    crystal: EventId
    level: Level
    period: str
    source: str
    principles: tuple[Statement, ...] = ()
    topics: tuple[str, ...] = ()
    confidence: Share = 0.5
    score: float = 0.0
    by: str = ""
    reason: str = ""


class Withdrawal(msgspec.Struct, frozen=True):
    """The recorded withdrawal of a teaching, with the reason."""

    teaching: EventId
    reason: str = ""
    successor: EventId | None = None  # the teaching that replaces it


def teaching_data(crystal: Crystal, *, by: str, reason: str) -> dict[str, object]:
    """Return the data of the event that promotes a crystal to a teaching. `by` is the person or rule that promotes."""
    promotion = _Promotion(
        content=crystal.insight + crystal.significance,
        principles=crystal.principles,
        source=f"{SOURCE}{crystal.id}",
        crystal=crystal.id,
        level=crystal.level,
        period=crystal.period,
        topics=crystal.topics,
        confidence=crystal.confidence,
        score=score(crystal),
        by=by,
        reason=reason,
    )
    return {"text": crystal.text, **msgspec.to_builtins(promotion)}


def teaching_of(event: Event) -> Teaching:
    """Decode the teaching that an event records. Raises InvalidEvent if the event does not record a teaching."""
    try:
        promotion = msgspec.json.decode(event.body, type=_Promotion)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} is not a teaching: {error}") from error
    known = {name: getattr(promotion, name) for name in promotion.__struct_fields__}
    return Teaching(id=event.id, at=event.at, position=event.position, **known)


def withdrawal_of(event: Event) -> Withdrawal:
    """Decode the withdrawal that an event records. Raises InvalidEvent if its data has no teaching id."""
    try:
        return msgspec.json.decode(event.body, type=Withdrawal)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} does not name a teaching to withdraw: {error}") from error


def resolve_teachings(
    teachings: Iterable[Teaching],
    withdrawals: Iterable[Withdrawal],
    *,
    retracted: frozenset[EventId] = frozenset(),
    successors: Mapping[EventId, EventId] | None = None,
) -> list[Teaching]:
    """Return the teachings with the fields `ended` and `superseded_by` filled in.

    `retracted` are the ids of retracted marks and crystals; `successors` maps superseded crystals to their successors.
    """
    reasons = {each.teaching: each.reason for each in withdrawals}
    resolved = []
    for teaching in teachings:
        ended = None
        if teaching.id in reasons:
            ended = f"withdrawn: {reasons[teaching.id]}" if reasons[teaching.id] else "withdrawn"
        elif teaching.crystal in retracted:
            ended = "its crystal was retracted"
        elif teaching.cites & retracted:
            ended = "a mark that it cites was retracted"
        successor = (successors or {}).get(teaching.crystal)
        resolved.append(msgspec.structs.replace(teaching, ended=ended, superseded_by=successor))
    return resolved


# -- Promotion by rule ----------------------------------------------------------------------------------------


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal that is good enough to be promoted by rule, with its score."""

    crystal: Crystal
    score: float
    share: float  # the score divided by the highest possible score of its level


def score(crystal: Crystal) -> float:
    """Return how suitable a crystal is as a teaching. The higher the score, the better.

    It depends on the crystal's confidence, its number of marks, its level, and its numbers of principles and topics.
    """
    return round(
        0.3 * crystal.confidence
        + 0.2 * min(crystal.marks / MARKS_ENOUGH, 1)
        + 0.1 * crystal.number
        + LEVEL_BONUS[crystal.level]
        + (0.1 if len(crystal.principles) >= 2 else 0)
        + (0.05 if len(crystal.topics) >= 3 else 0),
        6,
    )


def score_max(level: Level) -> float:
    """Return the highest score that a crystal of this level can have."""
    return round(0.3 + 0.2 + 0.1 * LEVELS.index(level) + LEVEL_BONUS[level] + 0.1 + 0.05, 6)


def select_candidates(crystals: Iterable[Crystal], *, besides: Iterable[tuple[str, str]] = ()) -> list[Candidate]:
    """Return the crystals that are good enough to be promoted by rule, best first.

    `besides` has a pair (level, period) for each crystal that is left out. A crystal needs at least MARKS_MIN marks;
    all marks that it covers are counted, because the crystal of a week has at most seven direct sources.
    """
    known = set(besides)
    scored = [
        Candidate(crystal=crystal, score=score(crystal), share=round(score(crystal) / score_max(crystal.level), 6))
        for crystal in crystals
        if (crystal.level, crystal.period) not in known
        and crystal.confidence >= CONFIDENCE_MIN
        and crystal.marks >= MARKS_MIN
    ]
    passed = [candidate for candidate in scored if candidate.share >= SHARE_MIN]
    return sorted(passed, key=lambda each: (-each.share, -each.score, each.crystal.id))
