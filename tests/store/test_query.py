"""Matching one event with a query gives the same result as a store."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.sqlite.direct_store import DirectStore

from mica.errors import InvalidInput
from mica.model.event import EventQuery
from mica.model.mark import Posting
from mica.store.query import group_by_origin, matcher, query_terms, rarity, term_weights, with_statistics
from mica.testing.builders import START_AT
from mica.testing.histories import History, histories

MOMENTS = st.none() | st.integers(-6, 21).map(lambda seconds: START_AT + timedelta(seconds=seconds))
QUERIES = st.builds(
    EventQuery,
    session=st.sampled_from([None, None, "s1"]),
    agent=st.sampled_from([None, None, "scout"]),
    user=st.sampled_from([None, None, "ann"]),
    names=st.sampled_from([(), (), ("file.*",), ("mark", "shell.ru?")]),
    since=MOMENTS,
    until=MOMENTS,
    text=st.sampled_from([None, None, "cookies", "session redirected"]),
    errors=st.sampled_from([None, None, True, False]),
    limit=st.none(),
)


@given(histories(), st.lists(QUERIES, min_size=1, max_size=8))
def test_the_matcher_agrees_with_the_store(history: History, queries: list[EventQuery]) -> None:
    """keeps: E-29, TE-18"""
    with TemporaryDirectory() as folder:
        store = DirectStore(Path(folder) / "space.db")
        store.log.append(history)
        log = store.log.read(0, limit=100)
        found = [{event.id for event in store.log.query(query)} for query in queries]
        store.close()

    assert found == [{event.id for event in log if matcher(query)(event)} for query in queries]


def test_query_terms_are_distinct_and_sorted() -> None:
    assert query_terms("session cookie session") == sorted({*query_terms("cookie"), *query_terms("session")})


@pytest.mark.parametrize("text", ["", " ", "the"])
def test_a_query_without_a_search_term_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="at least one word"):
        query_terms(text)


def test_rarity_falls_with_every_document_and_stays_above_zero() -> None:
    weights = [rarity(containing, 100) for containing in (0, 1, 50, 100, 200)]

    assert weights == sorted(weights, reverse=True)
    assert min(weights) > 0


def test_weights_are_whole_numbers_of_at_least_one_and_follow_rarity_and_the_given_weights() -> None:
    containing = {"rare": 1, "weighted": 1, "common": 1_000}

    weights = term_weights(containing, {"weighted": 3.0}, 1_000)

    assert weights["weighted"] > weights["rare"] > weights["common"] == 1


def test_statistics_come_from_the_histogram_of_lengths() -> None:
    posting = Posting(1, 2, 4, "s1")

    postings = with_statistics({"cookie": (posting,)}, [(1, 3), (4, 1)])

    assert (postings.marks, postings.mean_length) == (4, 1.75)
    assert postings.length_spread == pytest.approx(math.log(4) ** 2 * 3 / 16)
    assert postings.count_marks("cookie") == 1


def test_statistics_of_no_marks_are_zero() -> None:
    postings = with_statistics({}, [])

    assert (postings.marks, postings.mean_length, postings.length_spread) == (0, 0.0, 0.0)


def test_counts_of_marks_that_are_not_listed_are_kept() -> None:
    assert with_statistics({"cookie": ()}, [(1, 9)], {"cookie": 7}).count_marks("cookie") == 7


def test_positions_are_grouped_by_origin_with_an_empty_set_for_none() -> None:
    assert group_by_origin([1, 2], [(1, 5), (1, 6), (1, 5)]) == {1: frozenset({5, 6}), 2: frozenset()}
