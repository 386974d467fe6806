"""An encoder for tests: words as directions, with meanings that the test gives. No model is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from mica.words import terms

if TYPE_CHECKING:
    from mica.llm.embeddings import Matrix

DIMENSIONS = 1_024


class WordEncoder:
    """Texts are near each other when they share words, or words that `meanings` says are the same."""

    def __init__(self, meanings: Mapping[str, str] | None = None, *, model: str = "words") -> None:
        self.model = model
        self.texts: list[str] = []  # that were read, in order
        self._meanings = {term: other for word, same in (meanings or {}).items()
                          for term, other in zip(terms(word), terms(same), strict=True)}  # fmt: skip

    def encode(self, texts: Sequence[str]) -> Matrix:
        import numpy

        self.texts += texts
        found = numpy.zeros((len(texts), DIMENSIONS), dtype=numpy.float32)
        for number, text in enumerate(texts):
            for term in terms(text):
                found[number, crc32(self._meanings.get(term, term).encode()) % DIMENSIONS] += 1
            found[number] /= numpy.linalg.norm(found[number]) or 1.0
        return found
