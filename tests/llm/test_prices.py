"""Dollars come from a dated table, or are unknown."""

from __future__ import annotations

from datetime import date

import pytest

from mica.llm.prices import prices


def test_the_price_table_has_a_date_and_an_origin() -> None:
    """keeps: K-04"""
    table = prices()
    assert date.fromisoformat(table.at) >= date(2026, 11, 15)
    assert table.source
    assert all(0 < price.cache_read < price.read < price.written for price in table.models.values())


@pytest.mark.parametrize("name", ["claude-sonnet-5", "anthropic/claude-sonnet-5", "Claude-Sonnet-5-20261015"])
def test_a_model_is_found_by_its_usual_names(name: str) -> None:
    found = prices().of(name)
    assert found is not None
    assert found.read == 2


@pytest.mark.parametrize("name", ["claude-sonnet", "claude-sonnet-5x", "mock-model", "", None])
def test_a_model_that_is_not_in_the_table_is_unpriced(name: str | None) -> None:
    """keeps: K-04. No price is ever guessed from a similar name."""
    assert prices().of(name) is None


def test_tokens_in_the_window_are_paid_again_by_each_request() -> None:
    """keeps: K-04. The worked example of 2,000 tokens over 60 requests at Opus 5.5 costs 3.4 cents."""
    price = prices().of("claude-opus-5-5")
    assert price is not None
    assert price.of_cached_tokens(2_000, requests=60) == pytest.approx(0.034)
    assert price.of_cached_tokens(2_000, requests=-1) == price.of_cached_tokens(2_000, requests=0)


def test_the_cost_of_a_recorded_session_matches_its_usage() -> None:
    """keeps: K-04. 7 answers of 11 / 222 / 3,333 / 44 tokens cost the recorded $0.0117852."""
    price = prices().of("claude-sonnet-5")
    assert price is not None
    cost = price.of_usage(read=77, cache_write=1_554, cache_read=23_331, written=308)
    assert cost == pytest.approx(0.0117852)
