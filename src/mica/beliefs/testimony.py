"""Reads from one event what it says about beliefs: what is stated, confirmed, ended or retracted.

Only users and agents state beliefs. Text of tools and text that mica itself gave to an agent is never evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from mica.beliefs.classification import TAG_KINDS, classify
from mica.beliefs.cues import CHANGE, DONE, NOT_DONE, REVERSAL, WITHDRAWAL
from mica.beliefs.endings import is_hesitant
from mica.beliefs.statements import STATEMENTS_MAX, MarkStatement, statements
from mica.beliefs.subjects import subject_of
from mica.errors import InvalidEvent
from mica.model.belief import ADDED, CONFIRMED, ENDED, KINDS, BeliefKind, Ending, Place
from mica.model.event import JUDGED, JUDGMENT_RETRACTED, MARK, RETRACTED, Event, EventId
from mica.model.mark import decode_mark
from mica.model.teaching import PROMOTED, WITHDRAWN, teaching_of, withdrawal_of
from mica.words import words

NAMES = (MARK, RETRACTED, ADDED, CONFIRMED, ENDED, PROMOTED, WITHDRAWN, JUDGED, JUDGMENT_RETRACTED)
ENDING_WORDS_MIN = 3  # fewer words do not say what they end
TARGETS_MAX = 20  # beliefs or events that one event ends or replaces
_PLACES: tuple[Place, ...] = ("prompt", "closing", "commit", "summary")  # the tag of a mark is its place


class Assertion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A statement in an event, with its kind. Without a kind it is no belief, but it may end one."""

    text: str
    kind: BeliefKind | None
    place: Place
    confidence: float = 1.0
    ordinal: int = 0
    is_tagged: bool = False  # its author chose the kind
    is_answer: bool = False
    is_unsure: bool = False  # only its cues say that it ends something; it is kept, because what it ends may come later
    cites: tuple[EventId, ...] = ()  # further events that support it


class Testimony(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one event says about beliefs."""

    act: Literal["state", "confirm", "end", "retract"]
    event: EventId
    position: int
    at: datetime
    by: Literal["user", "agent", "tool"]
    session: str | None = None
    user: str | None = None
    agent: str | None = None
    stated: tuple[Assertion, ...] = ()
    replaces: tuple[str, ...] = ()  # ids of beliefs, or of events whose beliefs the first statement replaces
    ends: tuple[str, ...] = ()  # ids of beliefs, or of events whose beliefs it ends, confirms or no longer supports
    ending: Ending | None = None
    reason: str = ""
    kind: BeliefKind | None = None  # of the belief that is ended or confirmed
    fallback: tuple[EventId, ...] = ()  # evidence of the belief, by which it is found if its id has changed

    @property
    def targets(self) -> tuple[str, ...]:
        """The ids of all beliefs and events that it refers to."""
        return (*self.replaces, *self.ends, *self.fallback)


class _MarkLinks(msgspec.Struct):
    replaces: str | tuple[str, ...] = ()
    ends: str | tuple[str, ...] = ()


class _Change(msgspec.Struct):
    belief: str = ""
    kind: str = ""
    text: str = ""
    ending: str = ""
    reason: str = ""
    evidence: tuple[str, ...] = ()


class _Verdict(msgspec.Struct):
    concept: str
    verdict: str


_ENDINGS: tuple[Ending, ...] = ("replaced", "done", "answered", "withdrawn", "expired")


def read_testimony(event: Event, *, answered: str = "") -> Testimony | None:
    """Return what an event says about beliefs, or None if it says nothing about them.

    `answered` is what the agent wrote before a prompt, which completes a short answer.
    """
    try:
        match event.name:
            case "mark":
                return _of_mark(event, answered)
            case "mark.retracted" | "judgment.retracted":
                return _of_retraction(event)
            case "belief.added" | "belief.confirmed" | "belief.ended":
                return _of_change(event)
            case "teaching.promoted":
                return _of_teaching(event)
            case "teaching.withdrawn":
                withdrawal = withdrawal_of(event)
                return _testimony(
                    event, "end", ends=(withdrawal.teaching,), ending="withdrawn", reason=withdrawal.reason
                )
            case "judgment.made":
                return _of_judgment(event)
    except (InvalidEvent, msgspec.ValidationError, msgspec.DecodeError):  # another program may use the same name
        return None
    return None


def place_of(tags: Sequence[str]) -> Place:
    """Return the place of a mark with these tags."""
    return next((place for place in _PLACES if place in tags), "note")


def _of_mark(event: Event, answered: str) -> Testimony | None:
    if event.origin not in ("user", "agent"):
        return None
    mark = decode_mark(event)
    place = place_of(mark.tags)
    by = event.origin
    links = (
        msgspec.json.decode(event.body, type=_MarkLinks)
        if b'"replaces"' in event.body or b'"ends"' in event.body
        else _MarkLinks()
    )
    kind = next((TAG_KINDS[tag.lower()] for tag in mark.tags if tag.lower() in TAG_KINDS), None)
    if kind is not None and place == "note":
        stated = _tagged(mark.text, kind)
    else:
        found = statements(mark.text, place=place, by=by, answered=answered)
        stated = tuple([each for statement in found if (each := _assertion(statement, mark.tags)) is not None])
    stated += tuple(
        [
            Assertion(
                text=" ".join(text.split()),
                kind="rule" if by == "user" else "gotcha",
                place=place,
                ordinal=STATEMENTS_MAX + number,
            )
            for number, text in enumerate(mark.principles[:STATEMENTS_MAX])
            if text.strip()
        ]
    )
    ends = _ids(links.ends)
    if mark.relation == "fulfills" and event.parent_id is not None:
        ends = (*ends, event.parent_id)
    if not stated and not links.replaces and not ends:
        return None
    return _testimony(event, "state", stated=stated, replaces=_ids(links.replaces), ends=ends)


def _tagged(text: str, kind: BeliefKind) -> tuple[Assertion, ...]:
    """Return a note whose author chose its kind as one statement, in its own words."""
    flat = " ".join(text.split())
    return (Assertion(text=flat, kind=kind, place="note", is_tagged=True),) if flat else ()


def _assertion(statement: MarkStatement, tags: Sequence[str]) -> Assertion | None:
    classified = classify(statement, tags=tags)
    kind = None if classified is None else classified.kind
    if kind is None:
        kind = _kind_of_ending(statement)
        if kind is None and statement.by != "user":
            return None
    return Assertion(
        text=statement.text,
        kind=kind,
        place=statement.place,
        confidence=0.85 if classified is None else classified.confidence,
        ordinal=statement.ordinal,
        is_answer=statement.is_answer,
        is_unsure=classified is None,
    )


def _kind_of_ending(statement: MarkStatement) -> BeliefKind | None:
    """Return the kind of a statement that may end others but is nothing else: an account of work, or a reversal."""
    text = statement.sentence
    if is_hesitant(text) or len(words(text)) < ENDING_WORDS_MIN:
        return None
    if statement.by == "user" and (REVERSAL.matches(text) or WITHDRAWAL.matches(text)):
        return "decision"
    if statement.by == "user" and CHANGE.matches(text) and subject_of(text).values:
        return "fact"
    is_account = statement.place == "commit" or (DONE.matches(text) and not NOT_DONE.matches(text))
    return "fact" if is_account else None


def _of_retraction(event: Event) -> Testimony | None:
    target = event.data.get("mark" if event.name == RETRACTED else "judgment")
    if not isinstance(target, str):
        return None
    return _testimony(event, "retract", ends=(target,), reason=str(event.data.get("reason", "")))


def _of_change(event: Event) -> Testimony | None:
    if event.origin not in ("user", "agent"):
        return None
    change = msgspec.json.decode(event.body, type=_Change)
    kind = next((each for each in KINDS if each == change.kind), None)
    if event.name == ADDED:
        text = " ".join(change.text.split())
        if kind is None or not text:
            return None
        return _testimony(event, "state", stated=(Assertion(text=text, kind=kind, place="note", is_tagged=True),))
    return _testimony(
        event,
        "confirm" if event.name == CONFIRMED else "end",
        ends=(change.belief,),
        ending=next((each for each in _ENDINGS if each == change.ending), None),
        reason=change.reason,
        kind=kind,
        fallback=tuple([EventId(each) for each in change.evidence[:TARGETS_MAX]]),
    )


def _of_teaching(event: Event) -> Testimony | None:
    teaching = teaching_of(event)
    cites = (teaching.crystal, *sorted(teaching.cites - {teaching.crystal}))
    texts: list[tuple[str, BeliefKind]] = [(each.text, "fact") for each in teaching.content]
    texts += [(each.text, "rule") for each in teaching.principles]
    stated = tuple(
        [
            Assertion(
                text=" ".join(text.split()), kind=kind, place="teaching", ordinal=number, is_tagged=True, cites=cites
            )
            for number, (text, kind) in enumerate(texts[:STATEMENTS_MAX])
        ]
    )
    return _testimony(event, "state", stated=stated) if stated else None


def _of_judgment(event: Event) -> Testimony | None:
    if event.origin not in ("user", "agent"):
        return None
    verdict = msgspec.json.decode(event.body, type=_Verdict)
    text = f"`{verdict.concept}`: {verdict.verdict}"
    return _testimony(event, "state", stated=(Assertion(text=text, kind="fact", place="judgment"),))


def _testimony(event: Event, act: Literal["state", "confirm", "end", "retract"], **fields: object) -> Testimony:
    context = event.context
    return msgspec.structs.replace(
        Testimony(
            act=act,
            event=event.id,
            position=event.position or 0,
            at=event.at,
            by="user" if event.origin == "user" else "agent" if event.origin == "agent" else "tool",
            session=context.session,
            user=context.user,
            agent=context.agent,
        ),
        **fields,
    )


def _ids(value: str | Iterable[str]) -> tuple[str, ...]:
    return ((value,) if isinstance(value, str) else tuple(value))[:TARGETS_MAX]
