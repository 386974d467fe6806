"""Words of numbered documents, and which documents are most about a question (BM25)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping

import msgspec

SATURATION, LENGTH_SHARE = 1.2, 0.75  # BM25's k1 and b, as in every textbook
COUNT_MAX = 65_535  # of one word in one document, as two bytes have it; BM25 is flat long before
TERMS_MAX = 120  # of a question: a pasted log has thousands, and beyond the rarest they add time and noise


class Packed(msgspec.Struct, frozen=True):
    """A field as it is written to a file."""

    lengths: dict[int, int]
    postings: dict[str, bytes]
    terms: dict[int, str]


class Field:
    """An inverted index. What was packed is unpacked only for the terms that somebody asks for."""

    def __init__(self, packed: Packed | None = None) -> None:
        self._lengths: dict[int, int] = dict(packed.lengths) if packed else {}
        self._total = sum(self._lengths.values())
        self._packed: dict[str, bytes] = dict(packed.postings) if packed else {}
        self._postings: dict[str, dict[int, int]] = {}
        self._terms: dict[int, str] = dict(packed.terms) if packed else {}  # of each document, to take it out again

    def __len__(self) -> int:
        return len(self._lengths)

    def put(self, number: int, counts: Mapping[str, int]) -> None:
        """Add a document, in the place of what had its number."""
        self.drop(number)
        for term, count in counts.items():
            self._of(term)[number] = min(count, COUNT_MAX)
        length = sum(counts.values())
        self._lengths[number] = length
        self._terms[number] = " ".join(counts)
        self._total += length

    def drop(self, number: int) -> None:
        """Take a document out, if it is there."""
        length = self._lengths.pop(number, None)
        if length is None:
            return
        self._total -= length
        for term in self._terms.pop(number, "").split():
            postings = self._of(term)
            postings.pop(number, None)
            if not postings:
                del self._postings[term]

    def scores(self, asked: Mapping[str, int], *, limit: int = TERMS_MAX) -> dict[int, float]:
        """What each document says of the question; without those that share no word with it."""
        if not self._lengths:
            return {}
        documents = len(self._lengths)
        weighed: list[tuple[float, str, dict[int, int]]] = []
        for term, count in asked.items():
            postings = self._known(term)
            if postings:
                rarity = math.log(1 + (documents - len(postings) + 0.5) / (len(postings) + 0.5))
                weighed.append((rarity * (1 + math.log(count)), term, postings))
        weighed.sort(key=lambda each: (-each[0], each[1]))
        mean = self._total / documents or 1.0
        found: dict[int, float] = {}
        lengths = self._lengths
        flat = SATURATION * (1 - LENGTH_SHARE)
        slope = SATURATION * LENGTH_SHARE / mean
        for weight, _, postings in weighed[:limit]:
            raised = weight * (SATURATION + 1)
            for number, count in postings.items():
                found[number] = found.get(number, 0.0) + raised * count / (count + flat + slope * lengths[number])
        return found

    def packed(self) -> Packed:
        """What the constructor takes, small enough to be written to a file."""
        packed = dict(self._packed)
        for term, postings in self._postings.items():
            packed[term] = array("I", postings).tobytes() + array("H", postings.values()).tobytes()
        return Packed(dict(self._lengths), packed, dict(self._terms))

    def _known(self, term: str) -> dict[int, int] | None:
        return self._of(term) if term in self._packed else self._postings.get(term)

    def _of(self, term: str) -> dict[int, int]:
        postings = self._postings.get(term)
        if postings is None:
            postings = self._postings[term] = _unpacked(self._packed.pop(term, b""))
        return postings


def _unpacked(packed: bytes) -> dict[int, int]:
    count = len(packed) // 6
    numbers, counts = array("I"), array("H")
    numbers.frombytes(packed[: 4 * count])
    counts.frombytes(packed[4 * count :])
    return dict(zip(numbers, counts, strict=True))


def counted(terms: Iterable[str]) -> dict[str, int]:
    """How often each term occurs, in the order of first occurrence."""
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return counts
