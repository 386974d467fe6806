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
    Measurement,
    Trail,
    check_slug,
    covered_share,
    exact_key,
    freshness,
    key_of,
    matches_step,
    passes,
    rank_trails,
    resolve,
    success_bound,
    trust,
    with_state,
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


def test_three_successes_of_three_are_hot_but_not_certain() -> None:
    """keeps: K-01.

    The lower bound is below the observed rate, passes at the configured run, and needs more runs to crystallize.
    """
    assert [success_bound(successes, 0, GATES) for successes in range(4)] == [0.0, 0.85, 0.88, 0.9]
    assert success_bound(8, 0, GATES) < GATES.crystallize <= success_bound(9, 0, GATES) < 1
    assert success_bound(3, 1, GATES) < GATES.suspend
    five = msgspec.structs.replace(GATES, runs=5)
    assert success_bound(4, 0, five) < five.hot <= success_bound(5, 0, five)


@given(st.integers(0, 200), st.integers(0, 200))
def test_trust_never_exceeds_the_observed_rate_and_grows_with_success(successes: int, failures: int) -> None:
    """keeps: K-01. It is a lower bound for any counts."""
    known = successes + failures
    found = success_bound(successes, failures, GATES)
    assert 0 <= found <= (successes / known if known else 0) + 1e-9
    assert success_bound(successes + 1, failures, GATES) >= found
    assert success_bound(successes, failures + 1, GATES) <= found


def test_a_failed_first_walk_scores_zero_and_is_never_hot() -> None:
    """keeps: TA-03, A-05. Success starts as unknown, not at 100."""
    failed = trail(runs=1, sessions=1, failures=1)
    assert failed.success == 0.0
    assert trust(failed, GATES) == 0.0
    assert (
        with_state(failed, now=START_AT, gates=msgspec.structs.replace(GATES, runs=1, sessions=1)).state == "observed"
    )
    assert trail(runs=1).success is None


def test_a_trail_is_hot_on_exactly_the_configured_run() -> None:
    """keeps: TA-07, A-02. Run 3 makes it hot, not run 4; from two sessions, not from one."""
    states = [
        with_state(trail(runs=runs, sessions=2, successes=runs), now=START_AT, gates=GATES).state
        for runs in range(1, 5)
    ]
    assert states == ["observed", "observed", "hot", "hot"]
    assert with_state(trail(runs=9, sessions=1, successes=9), now=START_AT, gates=GATES).state == "observed"


def test_many_runs_of_unknown_outcome_are_not_hot() -> None:
    """keeps: TA-09. Only explicit success counts."""
    unknown = trail(runs=50, sessions=20)
    assert with_state(unknown, now=START_AT, gates=GATES).state == "observed"
    assert not passes(unknown, GATES)
    assert passes(trail(runs=9, sessions=2, successes=9), GATES)


def test_runs_count_for_small_trails_too() -> None:
    """keeps: TA-04, A-13. 900 tokens walked 50 times rank above 1,500 tokens walked three times."""
    small = with_state(trail("a.py", tokens=900, runs=50), now=START_AT, gates=GATES)
    large = with_state(trail("b.py", tokens=1_500, runs=3), now=START_AT, gates=GATES)
    assert [each.steps[0].path for each in rank_trails([large, small])] == ["a.py", "b.py"]
    assert small.score == pytest.approx(45)
    assert with_state(trail("c.py", tokens=90, runs=3), now=START_AT, gates=GATES).score == pytest.approx(0.27)


@given(st.floats(0, 400), st.integers(1, 50))
def test_thirty_unused_days_halve_the_score(days: float, runs: int) -> None:
    """keeps: TA-14, K-07. This holds from any starting day."""
    walked_once = trail(runs=runs)
    then = START_AT + timedelta(days=days)
    before = with_state(walked_once, now=then, gates=GATES).score
    after = with_state(walked_once, now=then + timedelta(days=30), gates=GATES).score
    assert after == pytest.approx(before / 2, rel=0.01)


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 2),
    st.lists(st.floats(0, 100), min_size=2, max_size=6).map(sorted),
)
def test_without_use_a_trail_only_cools(successes: int, failures: int, version: int, days: list[float]) -> None:
    """keeps: K-07, A-44. It moves from its state to cooling to archived, never back."""
    aged = trail(runs=successes + failures, sessions=3, successes=successes, failures=failures, version=version)
    places = [STATES.index(with_state(aged, now=START_AT + timedelta(days=each), gates=GATES).state) for each in days]
    assert places == sorted(places)


def test_a_trail_cools_after_a_half_life_and_is_archived_when_cold() -> None:
    """keeps: K-52, A-44, K-07.

    30 and 60 days by default; an archived trail is not deleted, and a use brings it back.
    """
    named = trail(runs=9, sessions=3, successes=9, version=1)
    found = [
        with_state(named, now=START_AT + timedelta(days=days), gates=GATES).state for days in (0, 29, 30, 59, 60, 500)
    ]
    assert found == ["crystallized", "crystallized", "cooling", "cooling", "archived", "archived"]
    assert freshness(START_AT, now=START_AT + timedelta(days=60), gates=GATES) == pytest.approx(GATES.cold)
    again = msgspec.structs.replace(named, last_at=START_AT + timedelta(days=500))
    assert with_state(again, now=START_AT + timedelta(days=500), gates=GATES).state == "crystallized"


def test_a_crystallized_trail_that_fails_is_suspended_with_the_reason() -> None:
    """keeps: K-01. Below 0.80 it is no longer shown; a trail that a person suspended stays suspended."""
    failing = with_state(trail(runs=4, sessions=2, successes=3, failures=1, version=1), now=START_AT, gates=GATES)
    assert (failing.state, failing.is_offered) == ("cooling", False)
    assert failing.suspended == "3 of 4 tasks succeeded, which is too few"
    assert with_state(trail(version=1, suspended="outdated"), now=START_AT, gates=GATES).suspended == "outdated"


def test_gates_are_settings() -> None:
    """keeps: K-01, A-39. Each can be set, and impossible values are refused."""
    set_ = load_settings({"HOME": "/nowhere", "MICA_TRAILS_RUNS": "5", "MICA_TRAILS_AUTO": "false"}).trails
    assert (set_.runs, set_.auto, set_.hot) == (5, False, 0.90)


def test_preference_is_per_agent() -> None:
    """keeps: K-09. An agent's own figures count if it has some, otherwise those of all agents."""
    shared = trail(
        runs=8, successes=6, failures=2, agents={"scout": Figures(runs=4, successes=4), "smith": Figures(runs=4)}
    )
    assert trust(shared, GATES, agent="scout") > trust(shared, GATES)
    even = trail(runs=9, successes=8, failures=1, agents={"ada": Figures(runs=2, successes=1, failures=1)})
    assert trust(even, GATES, agent="ada") == success_bound(1, 1, GATES) < trust(even, GATES)
    assert trust(shared, GATES, agent="smith") == trust(shared, GATES, agent="nobody") == trust(shared, GATES)


def test_a_trail_has_a_shape_key_and_an_exact_key() -> None:
    """keeps: K-02. The order of files makes the shape; ranges and hashes change only the exact key."""
    plain, ranged = [step("a.py"), step("b.py")], [step("a.py", lines=(1, 9), hash="x"), step("b.py")]
    assert key_of(["a.py", "b.py"]) != key_of(["b.py", "a.py"])
    assert exact_key(plain) != exact_key(ranged)
    assert exact_key(ranged) != exact_key([step("a.py", lines=(1, 9), hash="y"), step("b.py")])


def test_a_trail_is_found_by_name_slug_and_every_key() -> None:
    """keeps: TA-14. Keys of merged trails still resolve."""
    held = trail(merged=("old",))
    assert all(
        resolve(name, [held]) == held for name in ("fix-login", "nav:fix-login", "/nav:fix-login", "old", held.key)
    )
    assert resolve("other", [held]) is None


def test_a_saving_is_unknown_until_measured() -> None:
    """keeps: TA-05, TA-06. It has a method and a sample; a loss is negative."""
    assert trail().measured is None
    assert Measurement(method="replay", sample=12, baseline_tokens=900, tokens=1_200).saving == -300


def test_a_pattern_matches_the_files_of_its_folder() -> None:
    """keeps: TA-08. `a/*.py` matches `a/z.py`, but not `a/b/z.py`."""
    assert matches_step("a/*.py", "a/z.py")
    assert not matches_step("a/*.py", "a/b/z.py")
    assert not matches_step("a/x.py", "a/z.py")
    assert covered_share(("a/*.py", "b.ts", "c.ts", "d.ts"), ["b.ts", "a/new.py", "d.ts"]) == 0.75


@pytest.mark.parametrize("slug", ["", "Fix", "a--b", "-a", "a/b", "../up", "a" * 61, "nav:"])
def test_a_name_that_is_not_a_valid_command_is_refused(slug: str) -> None:
    """keeps: A-23. It becomes a file and a folder name, so it cannot contain a path."""
    with pytest.raises(InvalidInput, match="cannot be called"):
        check_slug(slug)


def test_a_name_may_be_given_as_the_command() -> None:
    """keeps: A-10. `nav:<slug>` is the name."""
    assert check_slug("/nav:fix-login") == "fix-login"
    assert check_slug("a" * 60) == "a" * 60
    assert trail().name == "nav:fix-login"


def test_a_name_that_looks_like_a_secret_is_refused_and_not_shown() -> None:
    slug = "glp" + "at-" + "a1b2c3d4e5f6g7h8i9j0"
    with pytest.raises(InvalidInput, match="looks like a secret") as refused:
        check_slug(slug)

    assert slug not in str(refused.value)
