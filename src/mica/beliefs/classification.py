"""Classifies statements: rule, preference, decision, fact, gotcha, task, question, or none of them.

Cues give points to kinds; the shape of the sentence, its speaker and its place add or remove points. The kind with the
most points wins if it reaches the threshold of its kind. All numbers are in the tables below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mica.beliefs.cues import (
    DECISION,
    FACT,
    GOTCHA,
    MOCKERY,
    PREFERENCE,
    QUESTION,
    RULE,
    TASK,
    CueFamily,
)
from mica.beliefs.signs import probabilities, signs_of
from mica.beliefs.statements import MarkStatement, is_chatter, without_quotations
from mica.model.belief import KINDS, BeliefKind
from mica.words import words


class Classified(NamedTuple):
    """The kind of a statement, and how sure it is, from 0 to 1."""

    kind: BeliefKind
    confidence: float


FAMILIES: dict[BeliefKind, CueFamily] = {
    "rule": RULE,
    "preference": PREFERENCE,
    "decision": DECISION,
    "fact": FACT,
    "gotcha": GOTCHA,
    "task": TASK,
    "question": QUESTION,
}
THRESHOLD: dict[BeliefKind, float] = {
    "rule": 1.9,  # a wrong rule misleads every later session, so one weak sign is not enough
    "preference": 1.9,
    "decision": 1.9,
    "fact": 2.4,
    "gotcha": 1.9,
    "task": 1.9,
    "question": 1.9,
}
# Of two kinds with equal points the first one wins: a specific kind before a general one.
PRIORITY: tuple[BeliefKind, ...] = ("question", "task", "rule", "gotcha", "decision", "preference", "fact")
TAG_KINDS: dict[str, BeliefKind] = {
    **{kind: kind for kind in KINDS},
    "todo": "task",
    "open": "task",
    "lesson": "gotcha",
    "friction": "gotcha",
    "insight": "fact",
    "answer": "fact",
    "policy": "rule",
    "convention": "rule",
    "gotchas": "gotcha",
}
_STATING: tuple[BeliefKind, ...] = ("rule", "preference", "decision", "fact", "gotcha", "task")  # not asking
# An agent makes no rules and has no preferences.
AGENT_KINDS: tuple[BeliefKind, ...] = ("decision", "fact", "gotcha", "task", "question")
# How probable a kind must be. A wrong rule misleads every later session.
PROBABILITY: dict[BeliefKind, float] = {
    "rule": 0.55,
    "preference": 0.45,
    "decision": 0.5,
    "fact": 0.5,
    "gotcha": 0.45,
    "task": 0.5,
    "question": 0.45,
}
PROBABILITY_NOTE = 0.4  # of a kind of a note; otherwise it is a fact
WORDS_MIN = 2  # a single word states nothing

_IMPERATIVE = CueFamily("imperative")
_ORDER_AFTER_COMMA = CueFamily("order_after_comma")
_OFFER_TO_ACT = CueFamily("offer_to_act")
_OWN_WORK = CueFamily("own_work")
_OWN_CHOICE = CueFamily("own_choice")
_STATUS = CueFamily("status")
_PAST = CueFamily("past")
_NEVER_IN_PAST = CueFamily("never_in_past")
_CODE = re.compile(
    r"[;{}]\s*$|^\s*(?:if|for|while|return|assert|select|def|class|import)\b.*[(=<>;]|^\w*(?:Error|Exception)\b|=>|\)\s*[;{]|^(?:fatal|error|warning)\b",
    re.IGNORECASE,
)
_TRIVIAL_COMMIT = CueFamily("trivial_commit")
_INTERROGATED = re.compile(r"\?[\s)\"'”»*_`]*$|？\s*$")


# What holds only until something else happens is an instruction for now, and no standing rule.
_FOR_NOW = re.compile(
    r"\b(?:yet|for now|for the moment|right now|until i|today|this time|noch (?:nicht|nichts|keine?n?)|vorerst|erstmal"
    r"|heute"
    r"|todavía|aún|por ahora|de momento|hoy|pour l'instant|pour le moment|pas encore|aujourd'hui|nog niet|voorlopig)\b",
    re.IGNORECASE,
)


def classify(statement: MarkStatement, *, tags: Sequence[str] = ()) -> Classified | None:
    """Return the kind of a statement, or None if it states nothing that should be remembered.

    A tag of its mark decides. Text of tools never has a kind.
    """
    if statement.by not in ("user", "agent"):
        return None
    for tag in tags:
        if kind := TAG_KINDS.get(tag.lower()):
            return Classified(kind, 1.0)
    if statement.is_answer:
        return Classified("decision", 0.9)
    if statement.place == "note":
        return _classify_note(statement)
    found = _most_probable(statement)
    if found is None:
        return None
    kind, probability = found
    if probability < PROBABILITY[kind] or (kind == "rule" and _FOR_NOW.search(statement.sentence)):
        return None
    return Classified(kind, min(1.0, 0.8 + 0.2 * probability))


def _most_probable(statement: MarkStatement) -> tuple[BeliefKind, float] | None:
    """Return the kind that is most probable by the signs of a statement; None if it can have no kind."""
    sentence = without_quotations(statement.sentence)
    if len(words(sentence)) < WORDS_MIN or _CODE.search(statement.sentence) or MOCKERY.matches(sentence):
        return None
    headed = f"{statement.header}: {sentence}" if statement.header else sentence
    signs = signs_of(headed, speaker=statement.by, place=statement.place, cues=kinds_with_cues(headed))
    chances = probabilities(signs)
    possible = KINDS if statement.by == "user" else AGENT_KINDS
    if _INTERROGATED.search(sentence):
        possible = ("question",)
    return max(((kind, chances[kind]) for kind in possible), key=lambda each: each[1])


def kinds_with_cues(headed: str) -> list[BeliefKind]:
    """Return the kinds of which a sentence has enough cues."""
    return [kind for kind in KINDS if FAMILIES[kind].weigh(headed) >= THRESHOLD[kind]]


def _classify_note(statement: MarkStatement) -> Classified | None:
    """Classify a note without a kind among its tags: a person or an agent wrote it to be remembered."""
    found = _most_probable(statement)
    if found is not None and found[1] >= PROBABILITY_NOTE:
        return Classified(found[0], 0.8)
    if is_chatter(statement.sentence) or len(words(statement.sentence)) < WORDS_MIN or _CODE.search(statement.sentence):
        return None
    return Classified("question" if _INTERROGATED.search(statement.sentence) else "fact", 0.6)
