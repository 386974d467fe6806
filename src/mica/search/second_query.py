"""Asking a second time: with words that the best answers taught, and members of the kind of thing that is asked for.

The best of the first asking keep their places, and so does whatever says all words of a bare list of them; the second
fills what comes after. A question for several things
("which cities", "how many pets") has its answer in many sessions: there the second asking listens to the named speaker,
lets neighbours lend less, and takes from each session in turn.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import msgspec

from mica.search import kinds
from mica.search.ranker import GENERIC, Hit, Query, QueryTerm
from mica.words import terms, terms_of, words

# Weights were measured on the development split; docs/ranking.md has the values tried.
KEPT = 5  # hits of the first asking that stay in front
BEHIND = 0.999  # the best of the second asking beside the last that was kept
TEACHERS = 10  # hits whose words are learned
CLASS = 50  # hits among which a word is common or rare
WORDS_MAX = 100  # of a hit: an answer of many pages would teach only its own words
CHARACTERS_MAX = 20 * WORDS_MAX  # that are looked at for them
LEARNED = 10  # words
LEARNED_WEIGHT = 0.2  # of the best of them
MEMBER_WEIGHT = 0.4
REACH = 4  # words after "which" or "how many" among which the kind stands
SEVERAL_SPEAKER_FACTOR = 2.5
SEVERAL_NEIGHBOUR_SHARE = 0.3
SEVERAL_SPREAD = 0.85  # what a hit keeps of its score for every better one of its session

_ASKS_FOR = frozenset({"what", "which", "many"})
_SEVERAL = re.compile(
    r"\b(?:how many|(?:what|which)(?: \w+){0,3}? (?!is\b|was\b|does\b|has\b|this\b)\w+[^\Wus]s|both|in common)\b",
    re.IGNORECASE,
)


def asks_for_several(query: str) -> bool:
    """Whether a question wants a list: it asks how many, or which of something in the plural."""
    return _SEVERAL.search(query) is not None


def broader(query: Query, hits: Sequence[Hit]) -> Query:
    """The question to ask the second time, knowing what the first answered."""
    known = {term.term for term in query.terms} | {term for name in query.speakers for term in terms(name)}
    added = {term.term: term for term in (*learned(hits, known), *members(query, known))}
    several = asks_for_several(query.text)
    return msgspec.structs.replace(
        query,
        learned=tuple(added.values()),
        speaker_factor=SEVERAL_SPEAKER_FACTOR if several else query.speaker_factor,
        neighbour_share=SEVERAL_NEIGHBOUR_SHARE if several else query.neighbour_share,
    )


def learned(hits: Sequence[Hit], known: set[str]) -> list[QueryTerm]:
    """The words that the best hits say more than the hits after them do, best first."""
    speakers = {term for agent in {hit.mark.agent for hit in hits[:CLASS]} if agent for term in terms(agent)}
    said = [terms_of(words(hit.mark.text[:CHARACTERS_MAX])[:WORDS_MAX]) for hit in hits[:CLASS]]
    common = Counter(chain.from_iterable(map(set, said)))
    taught: dict[str, float] = {}
    for hit, found in zip(hits[:TEACHERS], said, strict=False):
        for term, count in Counter(found).items():
            if term not in known and term not in speakers and term not in GENERIC and not term.isdigit():
                share = hit.score / hits[0].score * count / (count + 1)
                taught[term] = taught.get(term, 0.0) + share
    weights = {term: share * math.log1p(len(said) / common[term]) for term, share in taught.items()}
    best = sorted(weights, key=lambda term: (-weights[term], term))[:LEARNED]
    return [QueryTerm(term, LEARNED_WEIGHT * weights[term] / weights[best[0]]) for term in best]


def members(query: Query, known: set[str]) -> list[QueryTerm]:
    """The members of the kinds that a question asks for."""
    said = words(query.text)
    near = {
        word for place, word in enumerate(said) if word in _ASKS_FOR for word in said[place + 1 : place + 1 + REACH]
    }
    asked_for = set(terms_of(near))
    found = {
        member: term.weight
        for term in query.terms
        if term.term in asked_for
        for member in kinds.members().get(term.term, ())
        if member not in known
    }
    return [QueryTerm(term, MEMBER_WEIGHT * weight) for term, weight in found.items()]


def kept_first(first: Sequence[Hit]) -> list[Hit]:
    """The hits of the first asking that stay in front: the best, and those with all words of a bare list of them."""
    return [hit for place, hit in enumerate(first) if place < KEPT or "complete" in hit.parts]


def joined(query: Query, first: Sequence[Hit], second: Sequence[Hit]) -> list[Hit]:
    """Both answers as one, by falling score: what stays of the first, then the second without them."""
    kept = kept_first(first)
    there = {hit.mark.position for hit in kept}
    rest = [hit for hit in second if hit.mark.position not in there]
    if asks_for_several(query.text):
        rest = spread(rest, kept)
    if not kept or not rest:
        return kept + rest
    factor = min(1.0, BEHIND * kept[-1].score / rest[0].score)  # what the two scored cannot be compared otherwise
    return kept + [_times(hit, second=factor) for hit in rest]


def spread(hits: Sequence[Hit], before: Sequence[Hit]) -> list[Hit]:
    """The hits in a new order: each loses something for every better one of its session."""
    better: Counter[str | None] = Counter(hit.mark.session for hit in before if hit.mark.session is not None)
    placed: list[Hit] = []
    for hit in hits:
        placed.append(_times(hit, spread=SEVERAL_SPREAD ** better[hit.mark.session]))
        if hit.mark.session is not None:
            better[hit.mark.session] += 1
    return sorted(placed, key=lambda hit: -hit.score)  # equal ones as they stand


def _times(hit: Hit, **factor: float) -> Hit:
    (value,) = factor.values()
    return msgspec.structs.replace(hit, score=hit.score * value, parts=hit.parts | factor)
