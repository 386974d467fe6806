"""The inverted index gives the same scores after it was saved, loaded and changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import counts, save

from mica.navigation.engine.inverted_index import InvertedIndex


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
