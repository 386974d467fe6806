"""The values that gathering is made of: what cannot be used is refused with its value."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mica.errors import InvalidInput
from mica.sources.protocol import (
    CHARACTERS_MAX,
    FRAGMENTS_MAX,
    NUMBER_BITS_MAX,
    PHI,
    PHI_INV,
    PHI_INV_2,
    PHI_INV_3,
    RANK_MAX,
    Concept,
    Fragment,
    Partial,
    SourceDeclaration,
    covers,
    weight,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_a_concept_is_a_domain_a_type_and_an_id_that_may_hold_colons() -> None:
    """keeps: C-04"""
    assert Concept.parse("judgment:code_review:abc123") == Concept("judgment", "code_review", "abc123")
    assert Concept.parse("page:url:https://example.org/a b").id == "https://example.org/a b"


@pytest.mark.parametrize(
    "text",
    ["", "judgment", "judgment:code_review", "judgment::x", ":a:b", "a:b:", "a:b: c", "a b:c:d", "a:b:c\nd",
     "a:b:\u202ed", "a:b:" + "x" * 501, "x" * 65 + ":b:c"],
)  # fmt: skip
def test_an_invalid_concept_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(InvalidInput, match="concept"):
        Concept.parse(text)


@given(some.text(max_size=80))
def test_a_parsed_concept_prints_as_it_was_written(text: str) -> None:
    try:
        concept = Concept.parse(text)
    except InvalidInput:
        return
    assert str(concept) == text
    assert covers("*", concept)


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("*", True),
        ("judgment:*", True),
        ("judgment:*:*", True),
        ("*:code_*:*", True),
        ("judgment:code_review:abc12?", True),
        ("judgment:code_review:abc123", True),
        ("judgment:code_review:abc", False),
        ("learning:*", False),
        ("judgment:code:*", False),
    ],
)
def test_a_pattern_is_matched_part_by_part(pattern: str, covered: bool) -> None:
    assert covers(pattern, Concept("judgment", "code_review", "abc123")) is covered


def test_a_pattern_matches_letters_and_not_regular_expressions() -> None:
    assert not covers("judgment:.*:.*", Concept("judgment", "code_review", "abc123"))


@pytest.mark.parametrize("pattern", ["", "judgment", "a::b", ":*", "a:b"])
def test_a_pattern_that_covers_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="covers no concept"):
        SourceDeclaration(name="app", concepts=(pattern,))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": " "}, "key ' '"),
        ({"confidence": 1.1}, "confidence 1.1"),
        ({"confidence": math.nan}, "confidence nan"),
        ({"value": math.inf}, "value inf"),
        ({"at": datetime(2026, 1, 1)}, "a time with a zone"),  # noqa: DTZ001 - the fault itself
        ({"valid_until": datetime(2026, 1, 1)}, "a time with a zone"),  # noqa: DTZ001 - the fault itself
        ({"text": "x" * 20_001}, "at most 20,000"),
    ],
)
def test_an_incomplete_fragment_cannot_be_built(wrong: dict[str, object], said: str) -> None:
    whole: dict[str, object] = {"key": "verdict", "text": "approved", "at": NOW, "source": "app"}

    with pytest.raises(InvalidInput, match=said):
        Fragment(**(whole | wrong))  # type: ignore[arg-type]  # the fault itself


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "two words"}, "'two words'"),
        ({"rank": -1}, "rank = -1"),
        ({"ttl_s": math.inf}, "ttl_s = inf"),
        ({"concepts": ()}, "at least one pattern"),
        ({"time_share": 0.0}, "time_share = 0.0"),
        ({"fragments_max": 0}, "fragments_max = 0"),
        ({"characters_max": 0}, "characters_max = 0"),
        ({"invalidated_by": ("",)}, "names of events"),
    ],
)
def test_an_invalid_declaration_of_a_source_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        SourceDeclaration(**({"name": "app"} | wrong))  # type: ignore[arg-type]  # the fault itself


def test_bounds_are_inclusive() -> None:
    least = SourceDeclaration(name="app", rank=0, ttl_s=0, time_share=1, fragments_max=1, characters_max=1)
    most = SourceDeclaration(name="app", rank=RANK_MAX, fragments_max=FRAGMENTS_MAX, characters_max=CHARACTERS_MAX)

    assert (least.rank, least.time_share, most.rank) == (0, 1, RANK_MAX)
    for value in (0.5, -(2**NUMBER_BITS_MAX - 1), True, "ünits", None):
        assert Fragment(key="k", text="t", at=NOW, source="app", value=value, confidence=1).value == value


def test_powers_of_phi_have_the_values_of_their_names() -> None:
    """keeps: C-26"""
    powers = [PHI, PHI_INV, PHI_INV_2, PHI_INV_3]
    assert powers == pytest.approx([1.618034, 0.618034, 0.381966, 0.236068], abs=1e-6)


def test_ten_ranks_weigh_a_factor_of_phi() -> None:
    assert weight(10, 0.8) / weight(20, 0.8) == pytest.approx(PHI)
    assert weight(10, 0.8) / weight(10, 0.4) == pytest.approx(2)


def test_a_partial_answer_names_what_is_missing() -> None:
    said = Fragment(key="verdict", text="GROWL", at=NOW, source="judgments")
    known = Partial([said], missing="rows after the first 50 were left out")

    assert list(known) == [said]
    assert known.missing == "rows after the first 50 were left out"
