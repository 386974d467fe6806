"""One account of what sources stated: laws as properties, and the order of K-22 case by case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mica.sources.cohere import STATED_MAX, Coherent, Origin, canonical, cohere
from mica.sources.protocol import PHI_INV, PHI_INV_3, Fragment, Value

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RANKS = {"database": 10, "file": 20, "live": 30, "other": 10}


def said(
    source: str,
    value: Value = None,
    *,
    key: str = "port",
    text: str | None = None,
    confidence: float = 0.9,
    age_h: float = 1,
    locator: str = "",
    estimate: bool = False,
    until_h: float | None = None,
    from_h: float | None = None,
) -> Fragment:
    return Fragment(
        key=key,
        text=f"{key} is {value}" if text is None else text,
        value=value,
        is_estimate=estimate,
        confidence=confidence,
        at=NOW - timedelta(hours=age_h),
        valid_from=None if from_h is None else NOW + timedelta(hours=from_h),
        valid_until=None if until_h is None else NOW + timedelta(hours=until_h),
        source=source,
        locator=locator,
    )


def account(*fragments: Fragment, limit: int = STATED_MAX) -> Coherent:
    return cohere(fragments, ranks=RANKS, now=NOW, limit=limit)


# -- The order of K-22 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "loses", "reason"),
    [
        (said("live", 1, confidence=0.3, age_h=9), said("database", 2, until_h=-1), "expired"),
        (said("live", 1, confidence=0.3, age_h=9), said("database", 2, from_h=1), "not valid yet"),
        (
            said("database", 1, confidence=0.3, age_h=9),
            said("file", 2, confidence=1, age_h=0),
            "less trusted, rank 20 against 10",
        ),
        (said("database", 1, confidence=0.8, age_h=9), said("other", 2, confidence=0.7, age_h=0), "less sure"),
        (said("other", 1, age_h=1), said("database", 2, age_h=2), "older"),
        (said("database", 1), said("other", 2), "a tie"),
    ],
)
def test_competing_claims_are_decided_by_validity_rank_confidence_and_time(
    wins: Fragment, loses: Fragment, reason: str
) -> None:
    """keeps: TC-07, K-22. The loser stays visible as a conflict, with the reason."""
    found = account(loses, wins)

    assert [each.value for each in found.fragments] == [1]
    assert [(each.value, each.source, each.against, each.reason) for each in found.conflicts] == [
        (2, loses.source, wins.source, reason)
    ]


def test_two_facts_of_one_source_survive_and_two_copies_become_one() -> None:
    """keeps: TC-05"""
    found = account(
        said("database", "GROWL", key="verdict", locator="judgments:7"),
        said("database", "tests passed", key="reason", locator="judgments:7"),
        said("file", " growl ", key="Verdict", locator="readback.json#last"),
    )

    assert {each.key for each in found.fragments} == {"verdict", "reason"}
    verdict = next(each for each in found.fragments if each.key == "verdict")
    assert verdict.origins == (Origin("database", "judgments:7"), Origin("file", "readback.json#last"))
    assert (found.conflicts, found.counts.duplicates) == ((), 1)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (8080, "8080", True),
        (8080, 8080.0, True),
        ("8080.50", 8080.5, True),
        (True, "True", True),
        (0, "-0", True),
        ("Straße", "STRASSE", True),
        ("a  b\n", "A b", True),
        (8080, "8081", False),
        ("007", 7, False),
        (True, 1, False),
        (10**30, 10**30 + 1, False),
        ("1e3", 1000, False),
    ],
)
def test_a_number_and_its_digits_are_the_same_value(one: Value, other: Value, is_same: bool) -> None:
    assert (canonical(one) == canonical(other)) is is_same
    assert (not account(said("database", one), said("file", other)).conflicts) is is_same


# -- Coherence -----------------------------------------------------------------------------------------------------


def test_a_contradiction_lowers_coherence_and_a_single_source_is_uncertain() -> None:
    """keeps: TC-06, K-23, M-16"""
    alone = account(said("database", 1)).coherence
    agreeing = account(said("database", 1), said("file", 1)).coherence
    contradicted = account(said("database", 1), said("file", 1), said("live", 2)).coherence

    assert alone == pytest.approx(0.75)
    assert account(said("database", 1), said("database", 2)).coherence == pytest.approx(0.5), "at odds with itself"
    assert agreeing == 1.0
    assert contradicted is not None
    assert contradicted < 1.0
    assert account().coherence is None


def test_coherence_weighs_confidence_and_rank() -> None:
    """keeps: K-21, K-23. It ranges from 0 to 1, by the weight of the agreeing sources."""
    found = account(said("database", 1, confidence=0.8), said("file", 2, confidence=0.4)).coherence

    assert found == pytest.approx(0.8 / (0.8 + 0.4 * PHI_INV))


# -- Estimates -----------------------------------------------------------------------------------------------------


def test_numbers_marked_as_estimates_are_averaged_by_weight_and_each_is_named() -> None:
    """keeps: K-22. Ten ranks weigh a factor of phi; the original numbers stay visible."""
    found = account(
        said("database", 0.6, key="accuracy", estimate=True, confidence=0.5),
        said("file", 0.8, key="accuracy", estimate=True, confidence=0.5),
    )

    (blended,) = found.fragments
    assert blended.value == pytest.approx((0.6 + 0.8 * PHI_INV) / (1 + PHI_INV))
    assert blended.blended == (("database", 0.6), ("file", 0.8))
    assert "database 0.6" in blended.text
    assert "file 0.8" in blended.text
    assert found.coherence is not None
    assert found.coherence < 1


@pytest.mark.parametrize(
    "other", [said("file", 2), said("file", "2.5", estimate=True), said("file", True, estimate=True)]
)
def test_only_estimates_are_averaged(other: Fragment) -> None:
    found = account(said("database", 1, estimate=True), other)

    assert [each.value for each in found.fragments] == [1]
    assert len(found.conflicts) == 1


def test_estimates_of_one_source_or_of_equal_value_are_not_averaged() -> None:
    """keeps: K-22. Of two numbers from one source the best is taken, and two equal numbers stay as they are."""
    twice = account(said("database", 1, estimate=True, age_h=1), said("database", 3, estimate=True, age_h=2))
    same = account(said("database", 1, estimate=True), said("file", 1, estimate=True))

    assert [(each.value, each.blended) for each in (*twice.fragments, *same.fragments)] == [(1, ()), (1, ())]
    assert [(each.value, each.reason) for each in twice.conflicts] == [(3, "older")]


# -- What is shown -------------------------------------------------------------------------------------------------


def test_statements_below_the_least_confidence_are_left_out_and_counted() -> None:
    """keeps: C-06, C-09. The least confidence is the third power of 1/phi."""
    found = account(said("database", 1, confidence=PHI_INV_3), said("file", 1, key="host", confidence=PHI_INV_3 - 1e-9))

    assert [each.key for each in found.fragments] == ["port"]
    assert found.counts.unsure == 1


def test_confidence_is_capped_for_a_single_source() -> None:
    """keeps: K-21, K-54. A statement without confirmation is shown with at most 1/phi."""
    assert account(said("database", 1, confidence=0.9)).fragments[0].confidence == PHI_INV
    assert account(said("database", 1, confidence=0.9), said("file", 1)).fragments[0].confidence == 0.9


def test_a_talkative_source_hides_no_other() -> None:
    """keeps: C-09. Five statements at most, the first of every source before the second of any."""
    flood = [said("database", 1, key=f"k{number}", confidence=1) for number in range(50)]

    found = account(*flood, said("file", 2, key="quiet", confidence=0.3), said("live", 3, key="shy", confidence=0.3))

    assert len(found.fragments) == 5
    assert {"quiet", "shy"} < {each.key for each in found.fragments}
    assert found.counts.beyond == 52 - 5


def test_statements_are_in_time_order() -> None:
    """keeps: C-06"""
    found = account(
        said("database", 1, key="b", age_h=3), said("file", 2, key="a", age_h=1), said("live", 3, key="c", age_h=2)
    )

    assert [each.key for each in found.fragments] == ["b", "c", "a"]


def test_text_copied_from_a_brief_is_not_evidence() -> None:
    """keeps: TC-11, TC-15. Echoes and statements without words are counted, not shown."""
    found = account(
        said("file", text='notes: <memory from="mica" note="…"> port 1 </memory>'), said("live", key="k", text=" \n")
    )

    assert (found.fragments, found.counts.loops, found.counts.junk) == ((), 1, 1)
    assert found.coherence is None


def test_the_same_sentence_about_another_key_is_shown_once() -> None:
    found = account(
        said("database", text="all of the tests passed", key="a"),
        said("file", text="All of the tests  passed", key="b"),
        said("live", "ok", text="ok", key="c"),
        said("other", "ok", text="ok", key="d"),
    )

    assert sorted(each.key for each in found.fragments) == ["a", "c", "d"]
    assert found.fragments[0].origins == (Origin("database"), Origin("file"))


# -- Laws ----------------------------------------------------------------------------------------------------------

_FRAGMENTS = some.lists(
    some.builds(
        said,
        some.sampled_from(sorted(RANKS)),
        some.sampled_from([None, 1, "1", 1.0, 2, 0.5, "x", "X ", True]),
        key=some.sampled_from(["port", "Port", "host", "verdict", "load", "mood", "arm"]),
        text=some.sampled_from([None, "", "it is as it is", "approved", '<memory from="mica"> x']),
        confidence=some.sampled_from([0.0, 0.2, 0.3, 0.5, 1.0]),
        age_h=some.sampled_from([-1, 0, 1, 2]),
        locator=some.sampled_from(["", "row 1", "row 2"]),
        estimate=some.booleans(),
        until_h=some.sampled_from([None, -1, 1]),
        from_h=some.sampled_from([None, -2, 2]),
    ),
    max_size=12,
)


@given(_FRAGMENTS, some.randoms(use_true_random=False))
def test_the_order_of_fragments_does_not_matter(fragments: list[Fragment], chance: Random) -> None:
    shuffled = list(fragments)
    chance.shuffle(shuffled)

    assert account(*shuffled) == account(*fragments)


@given(_FRAGMENTS)
def test_nothing_is_invented_merged_or_lost(fragments: list[Fragment]) -> None:
    """keeps: C-24, K-22. Every shown text came from a source, and every claim is shown, in conflict, or counted."""
    found = account(*fragments, limit=100)

    texts = {each.text for each in fragments}
    assert all(each.text in texts for each in found.conflicts)
    assert all(each.text in texts for each in found.fragments if not each.blended)
    for each in found.fragments:
        if each.blended:
            numbers = [number for _, number in each.blended]
            assert min(numbers) <= float(each.value or 0) <= max(numbers)
    counts = found.counts
    placed = len(found.fragments) + len(found.conflicts)
    hidden = counts.duplicates + counts.unsure + counts.expired + counts.junk + counts.loops + counts.beyond
    blended = sum(
        len({canonical(number) for _, number in each.blended}) - 1 for each in found.fragments if each.blended
    )
    assert placed + hidden + blended >= len(fragments)
    assert placed + hidden <= len(fragments)


@given(_FRAGMENTS)
def test_losing_claims_stay_visible(fragments: list[Fragment]) -> None:
    """keeps: C-35. Of every key with several valid values, one is shown or averaged and the others are conflicts."""
    found = account(*fragments, limit=100)

    for each in found.conflicts:
        winner = next((one for one in found.fragments if one.key.casefold() == each.key.casefold()), None)
        assert winner is None or canonical(winner.text if winner.value is None else winner.value) != canonical(
            each.text if each.value is None else each.value
        )


@given(_FRAGMENTS, some.integers(0, 7))
def test_the_limit_is_never_exceeded_and_coherence_is_a_share(fragments: list[Fragment], limit: int) -> None:
    found = account(*fragments, limit=limit)

    assert len(found.fragments) <= limit
    assert found.coherence is None or 0 < found.coherence <= 1


@given(_FRAGMENTS)
def test_an_agreeing_source_never_lowers_coherence(fragments: list[Fragment]) -> None:
    """keeps: TC-06"""
    before = account(*fragments, limit=100)
    for each in before.fragments:
        if each.blended:
            continue
        agrees = said("new", each.value, key=each.key, text=each.text, confidence=1)
        after = cohere([*fragments, agrees], ranks=RANKS | {"new": 5}, now=NOW, limit=100)
        assert (after.coherence or 0) >= (before.coherence or 0) - 1e-12
