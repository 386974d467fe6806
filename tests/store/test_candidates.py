"""Query terms, term weights and statistics are the same in every engine because they are computed here."""

from __future__ import annotations

import math

import pytest

from mica.errors import InvalidInput
from mica.model.mark import Posting
from mica.store.candidates import group_by_origin, query_terms, rarity, term_weights, with_statistics


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
