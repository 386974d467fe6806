"""Trails as values: keys, gates, age and states."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import InvalidInput
from mica.model.event import EventId
from mica.model.trail import (
    STATES,
    Figures,
    Measured,
    Trail,
    bound,
    check_slug,
    exact_key,
    freshness,
    key_of,
    passes,
    ranked,
    resolve,
    seen,
    stands_for,
    trust,
    walked,
)
from mica.model.walk import Step
from mica.settings import TrailSettings, load_settings
from mica.testing.builders import START_AT

GATES = TrailSettings()


def step(path: str, *, tokens: int | None = 100, lines: tuple[int, int] | None = None, hash: str | None = None) -> Step:
    start, end = lines or (None, None)
    return Step(
        path=path,
        operation="read",
        start_line=start,
        end_line=end,
        tokens=tokens,
        content_hash=hash,
        at=START_AT,
        event=EventId("e"),
    )


def trail(*paths: str, tokens: int | None = 100, **given: object) -> Trail:
    steps = tuple(step(path, tokens=tokens) for path in paths or ("a.py", "b.py"))
    made = Trail(
        key=key_of(each.path for each in steps),
        exact=exact_key(steps),
        slug="fix-login",
        shape="fix-login",
        description="",
        steps=steps,
        first_at=START_AT,
        last_at=START_AT,
    )
    return msgspec.structs.replace(made, **given)


def test_three_of_three_is_just_hot_and_not_certain() -> None:
    """K-01: the bound is below what was seen, passes at the configured run, and asks for more to crystallize."""
    assert [bound(successes, 0, GATES) for successes in range(4)] == [0.0, 0.85, 0.88, 0.9]
    assert bound(8, 0, GATES) < GATES.crystallize <= bound(9, 0, GATES) < 1
    assert bound(3, 1, GATES) < GATES.suspend
    five = msgspec.structs.replace(GATES, runs=5)
    assert bound(4, 0, five) < five.hot <= bound(5, 0, five)


@given(st.integers(0, 200), st.integers(0, 200))
def test_trust_is_never_more_than_was_seen_and_grows_with_success(successes: int, failures: int) -> None:
    """K-01: a lower bound by law, not by example."""
    known = successes + failures
    found = bound(successes, failures, GATES)
    assert 0 <= found <= (successes / known if known else 0) + 1e-9
    assert bound(successes + 1, failures, GATES) >= found
    assert bound(successes, failures + 1, GATES) <= found


def test_a_first_walk_that_failed_is_zero_and_never_hot() -> None:
    """TA-03: success starts unknown, not at 100."""
    failed = trail(runs=1, sessions=1, failures=1)
    assert failed.success == 0.0
    assert trust(failed, GATES) == 0.0
    assert seen(failed, now=START_AT, gates=msgspec.structs.replace(GATES, runs=1, sessions=1)).state == "observed"
    assert trail(runs=1).success is None


def test_a_trail_is_hot_on_exactly_the_configured_run() -> None:
    """TA-07: run 3 makes it hot, not run 4; from two sessions, not from one."""
    states = [
        seen(trail(runs=runs, sessions=2, successes=runs), now=START_AT, gates=GATES).state for runs in range(1, 5)
    ]
    assert states == ["observed", "observed", "hot", "hot"]
    assert seen(trail(runs=9, sessions=1, successes=9), now=START_AT, gates=GATES).state == "observed"


def test_many_runs_of_unknown_end_are_not_hot() -> None:
    """TA-09: only explicit success counts."""
    unknown = trail(runs=50, sessions=20)
    assert seen(unknown, now=START_AT, gates=GATES).state == "observed"
    assert not passes(unknown, GATES)
    assert passes(trail(runs=9, sessions=2, successes=9), GATES)


def test_runs_count_for_small_trails_too() -> None:
    """TA-04, A-13: 900 tokens walked 50 times rank above 1,500 tokens walked three times."""
    small = seen(trail("a.py", tokens=900, runs=50), now=START_AT, gates=GATES)
    large = seen(trail("b.py", tokens=1_500, runs=3), now=START_AT, gates=GATES)
    assert [each.steps[0].path for each in ranked([large, small])] == ["a.py", "b.py"]
    assert small.score == pytest.approx(45)
    assert seen(trail("c.py", tokens=90, runs=3), now=START_AT, gates=GATES).score == pytest.approx(0.27)


@given(st.floats(0, 400), st.integers(1, 50))
def test_thirty_unused_days_halve_the_score(days: float, runs: int) -> None:
    """TA-14, K-07: whenever one starts to count."""
    walked_once = trail(runs=runs)
    then = START_AT + timedelta(days=days)
    before = seen(walked_once, now=then, gates=GATES).score
    after = seen(walked_once, now=then + timedelta(days=30), gates=GATES).score
    assert after == pytest.approx(before / 2, rel=0.01)


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 2),
    st.lists(st.floats(0, 100), min_size=2, max_size=6).map(sorted),
)
def test_without_use_time_only_moves_a_trail_on(successes: int, failures: int, version: int, days: list[float]) -> None:
    """K-07, A-44: from its state to cooling to archived, never back."""
    aged = trail(runs=successes + failures, sessions=3, successes=successes, failures=failures, version=version)
    places = [STATES.index(seen(aged, now=START_AT + timedelta(days=each), gates=GATES).state) for each in days]
    assert places == sorted(places)


def test_a_trail_cools_after_a_half_life_and_is_archived_when_cold() -> None:
    """K-52, A-44, K-07: 30 and 60 days by default; archived is kept, and a use brings it back."""
    named = trail(runs=9, sessions=3, successes=9, version=1)
    found = [seen(named, now=START_AT + timedelta(days=days), gates=GATES).state for days in (0, 29, 30, 59, 60, 500)]
    assert found == ["crystallized", "crystallized", "cooling", "cooling", "archived", "archived"]
    assert freshness(START_AT, now=START_AT + timedelta(days=60), gates=GATES) == pytest.approx(GATES.cold)
    again = msgspec.structs.replace(named, last_at=START_AT + timedelta(days=500))
    assert seen(again, now=START_AT + timedelta(days=500), gates=GATES).state == "crystallized"


def test_a_crystallized_trail_that_fails_is_suspended_with_the_reason() -> None:
    """K-01: below 0.80 nobody is told of it; what a person suspended stays so."""
    failing = seen(trail(runs=4, sessions=2, successes=3, failures=1, version=1), now=START_AT, gates=GATES)
    assert (failing.state, failing.is_offered) == ("cooling", False)
    assert failing.suspended == "3 of 4 tasks succeeded, which is too few"
    assert seen(trail(version=1, suspended="outdated"), now=START_AT, gates=GATES).suspended == "outdated"


def test_gates_are_settings() -> None:
    """K-01, A-47: each can be set, and nonsense is refused."""
    set_ = load_settings({"HOME": "/nowhere", "MICA_TRAILS_RUNS": "5", "MICA_TRAILS_AUTO": "false"}).trails
    assert (set_.runs, set_.auto, set_.hot) == (5, False, 0.90)


def test_preference_is_per_agent() -> None:
    """K-09: an agent's own figures count where it has some, else those of all."""
    shared = trail(
        runs=8, successes=6, failures=2, agents={"scout": Figures(runs=4, successes=4), "smith": Figures(runs=4)}
    )
    assert trust(shared, GATES, agent="scout") > trust(shared, GATES)
    even = trail(runs=9, successes=8, failures=1, agents={"ada": Figures(runs=2, successes=1, failures=1)})
    assert trust(even, GATES, agent="ada") == bound(1, 1, GATES) < trust(even, GATES)
    assert trust(shared, GATES, agent="smith") == trust(shared, GATES, agent="nobody") == trust(shared, GATES)


def test_a_trail_has_a_key_to_be_matched_by_and_one_of_its_freshness() -> None:
    """K-02: order makes the shape; ranges and hashes change only the exact key."""
    plain, ranged = [step("a.py"), step("b.py")], [step("a.py", lines=(1, 9), hash="x"), step("b.py")]
    assert key_of(["a.py", "b.py"]) != key_of(["b.py", "a.py"])
    assert exact_key(plain) != exact_key(ranged)
    assert exact_key(ranged) != exact_key([step("a.py", lines=(1, 9), hash="y"), step("b.py")])


def test_a_trail_is_found_by_name_slug_and_every_key() -> None:
    """TA-14: keys that were merged still resolve."""
    held = trail(merged=("old",))
    assert all(
        resolve(name, [held]) == held for name in ("fix-login", "nav:fix-login", "/nav:fix-login", "old", held.key)
    )
    assert resolve("other", [held]) is None


def test_a_saving_is_unknown_until_it_was_measured() -> None:
    """TA-05, TA-06: with method and sample; a loss is negative."""
    assert trail().measured is None
    assert Measured(method="replay", sample=12, baseline_tokens=900, tokens=1_200).saving == -300


def test_a_pattern_stands_for_the_files_of_its_folder() -> None:
    """TA-08: `a/*.py` is `a/z.py`, and not `a/b/z.py`."""
    assert stands_for("a/*.py", "a/z.py")
    assert not stands_for("a/*.py", "a/b/z.py")
    assert not stands_for("a/x.py", "a/z.py")
    assert walked(("a/*.py", "b.ts", "c.ts", "d.ts"), ["b.ts", "a/new.py", "d.ts"]) == 0.75


@pytest.mark.parametrize("slug", ["", "Fix", "a--b", "-a", "a/b", "../up", "a" * 61, "nav:"])
def test_a_name_that_no_command_could_have_is_refused(slug: str) -> None:
    """A-23: it becomes a file and a folder, so it has no way out of them."""
    with pytest.raises(InvalidInput, match="cannot be called"):
        check_slug(slug)


def test_a_name_may_be_given_as_the_command() -> None:
    """A-10: `nav:<slug>` is the name."""
    assert check_slug("/nav:fix-login") == "fix-login"
    assert check_slug("a" * 60) == "a" * 60
    assert trail().name == "nav:fix-login"
