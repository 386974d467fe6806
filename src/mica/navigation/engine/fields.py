"""Words of numbered documents, and which documents are most about a question (BM25)."""

from __future__ import annotations

import math

from mica.navigation.engine.lookup_file import Kept, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SATURATION, LENGTH_SHARE = 1.2, 0.75  # BM25's k1 and b, as in every textbook
COUNT_MAX = 65_535  # of one word in one document; BM25 is flat long before
TERMS_MAX = 120  # of a question: a pasted log has thousands, and beyond the rarest they add time and noise


class Field:
    """An inverted index. What is kept in a file is read only for the terms that somebody asks for."""

    def __init__(self, kept: Kept | None = None, name: str = "") -> None:
        """With `kept`, what `entries` wrote there under this name."""
        self._name = name
        self._lengths: dict[int, int] = {} if kept is None else kept.get(name, "lengths", {})
        self._total = sum(self._lengths.values())
        self._kept = kept
        self._postings: dict[str, dict[int, int]] = {}  # read or changed since; empty for a term that is gone
        self._terms: dict[int, str] = {}  # of documents put since: to take them out again

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
        terms = self._terms.pop(number, None)
        if terms is None and self._kept is not None:
            terms = self._kept.get(f"{self._name}.terms", str(number), "")
        for term in (terms or "").split():
            self._of(term).pop(number, None)

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

    def entries(self, name: str) -> Iterator[tuple[str, str, bytes]]:
        """What a file keeps of it, so that the constructor finds it there by this name."""
        yield name, "lengths", packed(self._lengths)
        for term, postings in self._postings.items():
            if postings:
                yield f"{name}.postings", term, packed(postings)
        for number, terms in self._terms.items():
            yield f"{name}.terms", str(number), packed(terms)
        if self._kept is not None:
            for term, raw in self._kept.raws(f"{self._name}.postings"):
                if term not in self._postings:
                    yield f"{name}.postings", term, raw
            for told, raw in self._kept.raws(f"{self._name}.terms"):
                if int(told) in self._lengths and int(told) not in self._terms:
                    yield f"{name}.terms", told, raw

    def _known(self, term: str) -> dict[int, int] | None:
        postings = self._postings.get(term)
        if postings is None and self._kept is not None:
            found: dict[int, int] = self._kept.get(f"{self._name}.postings", term, {})
            if found:
                postings = self._postings[term] = found
        return postings

    def _of(self, term: str) -> dict[int, int]:
        postings = self._known(term)
        if postings is None:
            postings = self._postings[term] = {}
        return postings


def counted(terms: Iterable[str]) -> dict[str, int]:
    """How often each term occurs, in the order of first occurrence."""
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return counts
