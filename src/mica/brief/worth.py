"""How much a sentence is worth in a brief: one table of numbers, with their reasons.

All numbers were set by hand on invented projects (`bench/continuity.py --between 3`). 1 is a standing rule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from mica.model.belief import Belief, BeliefKind
from mica.model.brief import Passage, Section
from mica.words import terms

# What an agent needs most if it can have only one line: a wrong rule breaks every task, a fact only some.
OF_KIND: Mapping[BeliefKind, float] = {
    "rule": 0.85,
    "task": 0.75,
    "preference": 0.7,
    "decision": 0.65,
    "gotcha": 0.6,
    "fact": 0.5,
    "question": 0.6,
}
# Factor of what an agent states: it reports its own work, and calls much a decision that nobody will ask for.
BY_AGENT: Mapping[BeliefKind, float] = {
    "rule": 0.8,
    "task": 1.0,
    "preference": 0.8,
    "decision": 0.65,
    "gotcha": 1.0,
    "fact": 0.8,
    "question": 0.8,
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
DATED: tuple[Section, ...] = ("now", "decisions", "known")  # sections in which a newer statement overtakes an older
STRONG = 0.35  # score from which a passage hands on its score
STRONG_MAX = 40
RARE_MIN, RARE_SHARE = 3, 15  # a word in at most so many passages, or in one of so many, says what they are about
SHARED_MIN = 2  # rare words that two passages about the same thing share
HANDED_ON = 0.9
OVERTAKEN = 0.8
TERMS_MIN = 2
FULL_TERMS = 4  # of a sentence that can be understood alone
LEAST_SHARE = 0.4  # of its worth, which a belief keeps however old it is
# A sentence of recent work that is no belief, by where it stands.
LAST_CLOSING = 0.9  # the last words of a session say how it ended and what comes next
SUMMARY = 0.65  # an agent's own summary, when its window was compacted
NOTE = 0.6  # recorded on purpose
PROMPT = 0.7
FIRST_PROMPT = 0.55  # of several: it says what was wanted before anything was known
LAST_PROMPT = 0.85  # of several: what the session came to in the end
COMMIT = 0.6
CLOSING = 0.5  # of an earlier turn: mostly overtaken by the last one
SESSION_DECAY = 0.7  # the session before the last is worth 1 / (1 + this), the one before 1 / (1 + 2 × this) …
BACKGROUND = 0.3  # of a statement of a crystal at most: it describes the past
FILES = 0.5  # of the first file for a task; the others follow
USED_FILES = 0.2  # of the file that was used most, without a task
MATCH = 2.0  # added to a sentence that matches the task best: more than any rule is worth
NOW_FOR_TASK = 0.35  # factor of recent work in a brief for a task, beside what matches the task
RELEVANCE_MIN = 0.3  # of the task's words; where no sentence has more, the best one is not a full match
OLD_MATCH = 0.6  # factor of a very old match
MATCH_HALF_LIFE = timedelta(days=10)
# Factor of a belief without a word of the task, by section: rules hold for every task, a decision mostly for its own.
UNRELATED: Mapping[Section, float] = {"rules": 0.6, "now": 0.35, "decisions": 0.35, "known": 0.35}
OUTCOME = 0.7  # factor of what came of a match: the commit and the closing words after a prompt
ASIDE = 0.4  # factor of a sentence without a word of the task in a mark that has one


def of_belief(belief: Belief, *, now: datetime) -> float:
    """Return the worth of a belief, by its kind, its speaker, its certainty and the time since it was last stated."""
    kind, age = belief.kind, now - belief.last_at
    half = HALF_LIFE[kind]
    fresh = 1.0 if half is None else LEAST_SHARE + (1 - LEAST_SHARE) * math.exp2(-max(age, timedelta(0)) / half)
    speaker = 1.0 if belief.by == "user" else BY_AGENT[kind]
    return OF_KIND[kind] * speaker * (0.5 + 0.5 * belief.certainty) * fresh * of_length(belief.text)


def of_length(text: str) -> float:
    """Return a factor for a sentence: one of a few words says little without those around it; one word says nothing."""
    count = len(frozenset(terms(text)))
    return min(1.0, count / FULL_TERMS) if count >= TERMS_MIN else 0.0


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


def prefer_newer(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages with the scores for a task, so that of two about the same thing the newer one is preferred.

    A passage that shares rare words with an older one that matches the task well gets nearly its score, and the older
    one loses some. So a reversal in other words than those of the task is shown, and before what it reversed.
    """
    units = [frozenset(terms(each.text)) for each in passages]
    spread = Counter(unit for each in units for unit in each)
    often = max(RARE_MIN, len(passages) // RARE_SHARE)
    rare = [frozenset(unit for unit in each if spread[unit] <= often) for each in units]
    scores = [each.score for each in passages]
    strong = sorted(
        (n for n, each in enumerate(passages) if each.section in DATED and each.score >= STRONG),
        key=lambda n: (-passages[n].score, n),
    )[:STRONG_MAX]
    for old in strong:
        for new, passage in enumerate(passages):
            if (
                passage.section not in DATED
                or passage.at <= passages[old].at
                or passage.sources == passages[old].sources
            ):
                continue
            if len(rare[old] & rare[new]) >= SHARED_MIN:
                scores[new] = max(scores[new], HANDED_ON * passages[old].score)
                scores[old] = min(scores[old], OVERTAKEN * passages[old].score)
    return [msgspec.structs.replace(each, score=score) for each, score in zip(passages, scores, strict=True)]
