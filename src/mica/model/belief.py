"""Beliefs: statements that mica holds to be true now, with their evidence, certainty, state and history."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, NewType

import msgspec

from mica.errors import InvalidInput
from mica.model.event import EventId

BeliefId = NewType("BeliefId", str)  # "b" and letters, derived from the first evidence; a rebuild gives the same id

_BELIEF_ID = re.compile(r"b[a-z]{12}")


def is_belief_id(text: object) -> bool:
    """True if a value has the form of a belief's id."""
    return isinstance(text, str) and _BELIEF_ID.fullmatch(text) is not None


BeliefKind = Literal["rule", "preference", "decision", "fact", "gotcha", "task", "question"]
KINDS: tuple[BeliefKind, ...] = ("rule", "preference", "decision", "fact", "gotcha", "task", "question")
BeliefState = Literal["forming", "held", "settled", "ended"]
STATES: tuple[BeliefState, ...] = ("forming", "held", "settled", "ended")
IN_FORCE: tuple[BeliefState, ...] = ("held", "settled")  # only these enter a brief as facts
Ending = Literal["replaced", "done", "answered", "withdrawn", "expired"]
Place = Literal["prompt", "closing", "commit", "note", "summary", "judgment", "teaching"]

ADDED = "belief.added"  # a person stated it: data has kind and text
CONFIRMED = "belief.confirmed"  # a person confirmed it: data has belief
ENDED = "belief.ended"  # a person or an agent ended it: data has belief, ending and reason
BELIEF_EVENTS = (ADDED, CONFIRMED, ENDED)


class Belief(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One statement, as it stands after all evidence so far."""

    id: BeliefId
    kind: BeliefKind
    text: str  # whole sentences, in the words of the evidence
    state: BeliefState
    certainty: float  # from 0 to 1, computed from the evidence only
    by: Literal["user", "agent", "tool"]  # who stated it first; a user outranks an agent
    place: Place  # where it was stated first
    at: datetime  # when it was stated first
    last_at: datetime  # when the latest evidence for it was stated
    session: str | None = None  # of the first statement
    user: str | None = None  # who said it, if the context names a user
    agent: str | None = None
    evidence: tuple[EventId, ...]  # the events that support it, the first one first; at most EVIDENCE_MAX
    position: int  # of the first evidence in the log
    keys: tuple[str, ...] = ()  # identifiers and terms of its subject, sorted, by which it is linked and looked up
    ending: Ending | None = None  # None while it is not ended
    ended_by: EventId | None = None  # the event that ended it
    ended_at: datetime | None = None
    reason: str = ""  # why it ended, if a person gave a reason
    replaces: tuple[BeliefId, ...] = ()  # the beliefs that it replaced
    replaced_by: BeliefId | None = None
    conflicts: tuple[BeliefId, ...] = ()  # beliefs about the same subject that say something else; both are shown

    @property
    def is_in_force(self) -> bool:
        """True if a brief may state it as a fact."""
        return self.state in IN_FORCE


EVIDENCE_MAX = 20  # the first and the latest; more would make a rule that is repeated daily grow without end


class BeliefQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for beliefs. All fields that are not empty must match. The newest (by `last_at`) come first."""

    kinds: tuple[BeliefKind, ...] = ()
    states: tuple[BeliefState, ...] = ()
    ids: tuple[BeliefId, ...] = ()
    evidence: tuple[EventId, ...] = ()  # beliefs that have one of these events as evidence
    session: str | None = None
    since: datetime | None = None  # `last_at` at or after this time
    limit: int | None = 200  # None for all

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidInput(f"a limit of {self.limit} is not possible; use 0 or more, or None for all")
