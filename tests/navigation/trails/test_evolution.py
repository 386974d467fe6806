"""The daily evolution crystallizes few trails, and none for files that already have a trail."""

from __future__ import annotations

import msgspec

from mica.model.trail import Trail, with_state
from mica.navigation.trails.evolution import (
    CRYSTALLIZED_MAX,
    NAMED_MAX,
    TrailChanges,
    summarize_trails,
    to_crystallize,
    to_refresh,
)
from mica.settings import TrailSettings
from mica.testing.builders import START_AT
from mica.testing.contract.trails import build_trail

GATES = TrailSettings()


def passing(slug: str, *paths: str, **changes: object) -> Trail:
    made = build_trail(slug, *paths, runs=9)
    made = msgspec.structs.replace(made, **{"successes": 9, "sessions": 3, **changes})
    return with_state(made, now=START_AT, gates=GATES)


def names(trails: list[Trail]) -> list[str]:
    return [trail.slug for trail in trails]


def test_files_of_a_crystallized_trail_get_no_second_name() -> None:
    """keeps: A-30.

    A trail that shares more than half of its files with a crystallized one would be a second command for them.
    """
    named = passing("login", "a.py", "b.py", "c.py", version=1)
    again = passing("again", "b.py", "c.py", "d.py")
    apart = passing("apart", "c.py", "x.py", "y.py")
    twin = passing("twin", "x.py", "y.py", "z.py", runs=8)
    assert names(to_crystallize([named, again, apart, twin], GATES)) == ["apart"]


def test_the_number_of_crystallized_trails_is_limited() -> None:
    """keeps: A-30, A-40. There is a limit per evolution and a limit in total."""
    many = [passing(f"t{number}", f"{number}.py", f"{number}.ts") for number in range(9)]
    assert len(to_crystallize(many, GATES)) == CRYSTALLIZED_MAX
    full = [passing(f"n{number}", f"n{number}.py", version=1) for number in range(NAMED_MAX)]
    assert to_crystallize([*many, *full], GATES) == []
    assert len(to_crystallize([*many, *full[1:]], GATES)) == 1


def test_a_trail_that_does_not_pass_the_gate_gets_no_name() -> None:
    """keeps: K-01. A hot trail that does not pass the gate and a suspended trail get no name."""
    hot = passing("hot", "a.py", "b.py", successes=3, runs=3)
    suspended = passing("suspended", "c.py", "d.py", suspended="by hand")
    assert hot.state == "hot"
    assert to_crystallize([hot, suspended], GATES) == []


def test_a_report_names_the_changed_trails() -> None:
    """keeps: A-17, A-02. The report has counts by state, and names, best first."""
    trails = [passing("login", "a.py", "b.py", version=1, drifted=True), passing("hot", "c.py", "d.py")]
    assert names(to_refresh(trails)) == ["login"]
    report = summarize_trails(trails, at=START_AT, changes=TrailChanges(crystallized=("nav:login",)))
    assert (report.states, report.hot, report.crystallized) == (
        {"crystallized": 1, "hot": 1},
        ("nav:hot",),
        ("nav:login",),
    )
