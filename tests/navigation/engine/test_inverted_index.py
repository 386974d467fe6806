"""The inverted index gives the same scores after it was saved, loaded and changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.engine.inverted_index import InvertedIndex
from mica.navigation.engine.lookup_file import LookupFile, build_file

WORDS = "cookie session redirect login invoice charge customer total renew".split()
counts = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 5), max_size=6)


@given(st.lists(counts, max_size=6), st.lists(st.tuples(st.integers(0, 7), counts), max_size=4), counts)
def test_a_saved_index_scores_like_one_that_was_never_saved(
    documents: list[dict[str, int]], later: list[tuple[int, dict[str, int]]], query: dict[str, int]
) -> None:
    """The scores stay equal after saving, loading, changing and saving again."""
    field = InvertedIndex()
    for number, terms in enumerate(documents):
        field.put(number, terms)
    loaded = InvertedIndex(save(field.entries("a")), "a")
    for number, terms in later:
        for each in (field, loaded):
            each.remove(number) if not terms else each.put(number, terms)

    assert loaded.scores(query) == field.scores(query)
    assert InvertedIndex(save(loaded.entries("b")), "b").scores(query) == field.scores(query)


def save(entries: Iterable[tuple[str, str, bytes]]) -> LookupFile:
    with tempfile.TemporaryFile() as file:
        file.write(build_file(entries))
        file.flush()
        return LookupFile(file.fileno())
