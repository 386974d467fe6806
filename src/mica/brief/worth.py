"""How much a sentence is worth in a brief: one table of numbers, with their reasons.

All numbers were set by hand on invented projects (`bench/continuity.py --between 3`). 1 is a standing rule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from mica.model.belief import BeliefKind
from mica.model.brief import Section
from mica.words import terms

# What an agent needs most if it can have only one line: a wrong rule breaks every task, a fact only some.
OF_KIND: Mapping[BeliefKind, float] = {
    "rule": 1.0,
    "task": 0.9,
    "preference": 0.85,
    "decision": 0.8,
    "gotcha": 0.75,
    "fact": 0.7,
    "question": 0.7,
}
# After how long a belief of this kind is worth half; None: it does not get old.
HALF_LIFE: Mapping[BeliefKind, timedelta | None] = {
    "rule": None,
    "preference": None,
    "decision": timedelta(days=45),
    "gotcha": timedelta(days=60),
    "fact": timedelta(days=60),
    "task": timedelta(days=14),
    "question": timedelta(days=21),
}
FULL_TERMS = 4  # of a sentence that can be understood alone
LEAST_SHARE = 0.4  # of its worth, which a belief keeps however old it is
# A sentence of recent work that is no belief, by where it stands.
LAST_CLOSING = 0.75  # the last words of a session say how it ended and what comes next
SUMMARY = 0.65  # an agent's own summary, when its window was compacted
NOTE = 0.6  # recorded on purpose
PROMPT = 0.5
FIRST_PROMPT = 0.4  # of several: it says what was wanted before anything was known
LAST_PROMPT = 0.6  # of several: what the session came to in the end
COMMIT = 0.45
CLOSING = 0.35  # of an earlier turn: mostly overtaken by the last one
SESSION_DECAY = 0.5  # the session before the last is worth 1 / (1 + this), the one before 1 / (1 + 2 × this) …
BACKGROUND = 0.3  # of a statement of a crystal at most: it describes the past
FILES = 0.5  # of the first file for a task; the others follow
USED_FILES = 0.2  # of the file that was used most, without a task
MATCH = 0.9  # added to a sentence with all words of the task
NOW_FOR_TASK = 0.5  # factor of recent work in a brief for a task, beside what matches the task
RELEVANCE_MIN = 0.3  # of the task's words; where no sentence has more, the best one is not a full match
OLD_MATCH = 0.6  # factor of a very old match
MATCH_HALF_LIFE = timedelta(days=10)
# Factor of a belief without a word of the task, by section: rules hold for every task, a decision mostly for its own.
UNRELATED: Mapping[Section, float] = {"rules": 0.85, "now": 0.5, "decisions": 0.35, "known": 0.35}
ASIDE = 0.4  # factor of a sentence without a word of the task in a mark that has one


def of_belief(kind: BeliefKind, certainty: float, age: timedelta) -> float:
    """Return the worth of a belief of a kind, by its certainty and the time since it was last stated."""
    half = HALF_LIFE[kind]
    fresh = 1.0 if half is None else LEAST_SHARE + (1 - LEAST_SHARE) * math.exp2(-max(age, timedelta(0)) / half)
    return OF_KIND[kind] * (0.5 + 0.5 * certainty) * fresh


def of_length(text: str) -> float:
    """Return a factor for a sentence: one of a few words says little without those around it."""
    return min(1.0, len(terms(text)) / FULL_TERMS)


def of_age(age: timedelta) -> float:
    """Return a factor for a match of a search: of two statements about the same thing the newer one is right."""
    return OLD_MATCH + (1 - OLD_MATCH) * math.exp2(-max(age, timedelta(0)) / MATCH_HALF_LIFE)


def of_session(rank: int) -> float:
    """Return the factor for sentences of a session; `rank` is 0 for the latest one."""
    return 1 / (1 + SESSION_DECAY * rank)


def relevance(task: str, texts: Sequence[str]) -> list[float]:
    """Return for each text how well it matches a task, from 0 to 1. Rare words of the task count more.

    The best text has 1 if it has at least RELEVANCE_MIN of the task's words.
    """
    wanted = frozenset(terms(task))
    if not wanted:
        return [0.0] * len(texts)
    found = [wanted.intersection(terms(text)) for text in texts]
    spread = Counter(term for each in found for term in each)
    rarity = {term: math.log(1 + (len(texts) + 1) / (1 + spread[term])) for term in wanted}
    everything = math.fsum(rarity.values())
    shares = [math.fsum(rarity[term] for term in each) / everything for each in found]
    best = max([*shares, RELEVANCE_MIN])
    return [share / best for share in shares]
