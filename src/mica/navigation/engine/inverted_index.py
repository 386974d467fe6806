"""An inverted index that ranks documents by BM25. Each document has a number as its id."""

from __future__ import annotations

import math

from mica.navigation.engine.lookup_file import LookupFile, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SATURATION, LENGTH_SHARE = 1.2, 0.75  # BM25's k1 and b, with the usual values
COUNT_MAX = 65_535  # of one term in one document; BM25 saturates long before
TERMS_MAX = 120  # of a query: a pasted log has thousands, and all but the rarest add time and noise


class InvertedIndex:
    """Maps each term to the documents that contain it, and to its counts in them.

    If the index was saved to a file, only the terms that a query needs are read from the file.
    """

    def __init__(self, saved: LookupFile | None = None, name: str = "") -> None:
        """Make an empty index; or, with `saved`, use the index that is stored in this file under `name`.

        To create such a file, write the entries that `entries` yields.
        """
        self._name = name
        self._lengths: dict[int, int] = {} if saved is None else saved.get(name, "lengths", {})
        self._total = sum(self._lengths.values())
        self._saved = saved
        self._postings: dict[str, dict[int, int]] = {}  # read or changed since loading; empty for a removed term
        self._terms: dict[int, str] = {}  # of documents added since loading, so that they can be removed

    def __len__(self) -> int:
        return len(self._lengths)

    def put(self, number: int, counts: Mapping[str, int]) -> None:
        """Add the document with the id `number`, or replace it. `counts` has the count of each of its terms."""
        self.remove(number)
        for term, count in counts.items():
            self._postings_of(term)[number] = min(count, COUNT_MAX)
        length = sum(counts.values())
        self._lengths[number] = length
        self._terms[number] = " ".join(counts)
        self._total += length

    def remove(self, number: int) -> None:
        """Remove the document with the id `number`. Without such a document, nothing happens."""
        length = self._lengths.pop(number, None)
        if length is None:
            return
        self._total -= length
        terms = self._terms.pop(number, None)
        if terms is None and self._saved is not None:
            terms = self._saved.get(f"{self._name}.terms", str(number), "")
        for term in (terms or "").split():
            self._postings_of(term).pop(number, None)

    def scores(self, query: Mapping[str, int], *, limit: int = TERMS_MAX) -> dict[int, float]:
        """Return the BM25 score of each document that has a term of the query, by the id of the document.

        `query` maps terms to counts. Only the `limit` terms with the highest weights are used.
        """
        if not self._lengths:
            return {}
        documents = len(self._lengths)
        weighted: list[tuple[float, str, dict[int, int]]] = []
        for term, count in query.items():
            postings = self._lookup(term)
            if postings:
                rarity = math.log(1 + (documents - len(postings) + 0.5) / (len(postings) + 0.5))
                weighted.append((rarity * (1 + math.log(count)), term, postings))
        weighted.sort(key=lambda each: (-each[0], each[1]))
        mean = self._total / documents or 1.0
        scores: dict[int, float] = {}
        lengths = self._lengths
        flat = SATURATION * (1 - LENGTH_SHARE)
        slope = SATURATION * LENGTH_SHARE / mean
        for weight, _, postings in weighted[:limit]:
            raised = weight * (SATURATION + 1)
            for number, count in postings.items():
                scores[number] = scores.get(number, 0.0) + raised * count / (count + flat + slope * lengths[number])
        return scores

    def entries(self, name: str) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to save in a lookup file, as (table, key, value encoded by `pack`).

        `name` is the name under which the file will have this index.
        """
        yield name, "lengths", pack(self._lengths)
        for term, postings in self._postings.items():
            if postings:
                yield f"{name}.postings", term, pack(postings)
        for number, terms in self._terms.items():
            yield f"{name}.terms", str(number), pack(terms)
        if self._saved is not None:
            for term, raw in self._saved.raws(f"{self._name}.postings"):
                if term not in self._postings:
                    yield f"{name}.postings", term, raw
            for number_text, raw in self._saved.raws(f"{self._name}.terms"):
                if int(number_text) in self._lengths and int(number_text) not in self._terms:
                    yield f"{name}.terms", number_text, raw

    def _lookup(self, term: str) -> dict[int, int] | None:
        postings = self._postings.get(term)
        if postings is None and self._saved is not None:
            found: dict[int, int] = self._saved.get(f"{self._name}.postings", term, {})
            if found:
                postings = self._postings[term] = found
        return postings

    def _postings_of(self, term: str) -> dict[int, int]:
        postings = self._lookup(term)
        if postings is None:
            postings = self._postings[term] = {}
        return postings


def count_terms(terms: Iterable[str]) -> dict[str, int]:
    """Return how often each term occurs. The terms of the result are in the order of their first occurrence."""
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return counts
