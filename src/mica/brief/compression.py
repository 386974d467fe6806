"""Less text of the same: the sentences of passages that say most of a question, in their own words and order.

Compression answers "too big"; gathering answers "too scattered" and comes first (C-02). It is only done when somebody
asks for it, and says how much of the whole is left: what was compressed is another input than the whole (K-29).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from mica.crystals.sentences import split
from mica.model.event import Passage
from mica.tokens import estimate
from mica.words import terms

SENTENCE_TOKENS_MIN = 5  # a shorter one says nothing without those around it
GAP = " … "  # stands where sentences were left out


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was offered is left."""

    sentences: int = 0
    of: int = 0

    def told(self) -> str:
        return f"compressed: {self.sentences} of {self.of} sentences are shown, in their own words"


def compressed(
    passages: Sequence[Passage],
    *,
    query: str,
    budget_tokens: int,
    cost: Callable[[Passage], Passage],
) -> tuple[list[Passage], Coverage | None]:
    """Passages whose lines cost at most the budget together, and how much of them is left; all and None where all fit.

    `cost` puts in what a line costs. Sentences are chosen by how much of the query they say, weighed by how rare the
    words are and how good their passage is, and stand where they stood.
    """
    whole = [cost(each) for each in passages]
    if sum(each.tokens for each in whole) <= budget_tokens:
        return whole, None
    pieces = [_pieces(each.text) for each in passages]
    scores = _scores(passages, pieces, query)
    kept: list[set[int]] = [set() for _ in passages]
    shown: list[Passage | None] = [None] * len(passages)
    left = budget_tokens
    for _, place, number in sorted((-score, place, number) for (place, number), score in scores.items()):
        candidate = cost(_joined(passages[place], pieces[place], kept[place] | {number}))
        before = shown[place]
        more = candidate.tokens - (0 if before is None else before.tokens)
        if more <= left:
            kept[place].add(number)
            shown[place] = candidate
            left -= more
    coverage = Coverage(sentences=sum(map(len, kept)), of=sum(map(len, pieces)))
    return [each for each in shown if each is not None], coverage


def _pieces(text: str) -> list[str]:
    return list(split(text)) or [text]


def _scores(passages: Sequence[Passage], pieces: Sequence[Sequence[str]], query: str) -> dict[tuple[int, int], float]:
    """What each sentence is worth; one too short to stand alone is none, unless it is all there is."""
    said = {
        (place, number): Counter(terms(sentence))
        for place, sentences in enumerate(pieces)
        for number, sentence in enumerate(sentences)
        if len(sentences) == 1 or estimate(sentence) >= SENTENCE_TOKENS_MIN
    }
    spread = Counter(term for counts in said.values() for term in counts)
    wanted = set(terms(query))
    scores = {}
    for (place, number), counts in said.items():
        rarity = {term: math.log(1 + len(said) / spread[term]) for term in counts}
        asked = math.fsum(rarity[term] for term in counts if term in wanted)
        own = math.fsum(rarity.values()) / (1 + len(rarity))
        scores[place, number] = (asked + 0.1 * own) * (0.5 + passages[place].score)
    return scores


def _joined(passage: Passage, sentences: Sequence[str], kept: set[int]) -> Passage:
    if len(kept) == len(sentences):
        return passage
    text = ""
    last = -1
    for number in sorted(kept):
        between = ("" if number == 0 else GAP.lstrip()) if last < 0 else (" " if number == last + 1 else GAP)
        text += between + sentences[number]
        last = number
    return msgspec.structs.replace(passage, text=text + (GAP.rstrip() if last + 1 < len(sentences) else ""))
