"""What a day does to trails: few names, and none twice for the same place."""

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


def passing(slug: str, *paths: str, **given: object) -> Trail:
    made = build_trail(slug, *paths, runs=9)
    made = msgspec.structs.replace(made, **{"successes": 9, "sessions": 3, **given})
    return with_state(made, now=START_AT, gates=GATES)


def names(trails: list[Trail]) -> list[str]:
    return [trail.slug for trail in trails]


def test_a_place_gets_one_name() -> None:
    """keeps: A-30.

    More than half of the files of a crystallized trail, and it would be a second command for the same.
    """
    named = passing("login", "a.py", "b.py", "c.py", version=1)
    again = passing("again", "b.py", "c.py", "d.py")
    apart = passing("apart", "c.py", "x.py", "y.py")
    twin = passing("twin", "x.py", "y.py", "z.py", runs=8)
    assert names(to_crystallize([named, again, apart, twin], GATES)) == ["apart"]


def test_names_are_few() -> None:
    """keeps: A-30, A-40. So many a day, so many in all; what has cooled makes room."""
    many = [passing(f"t{number}", f"{number}.py", f"{number}.ts") for number in range(9)]
    assert len(to_crystallize(many, GATES)) == CRYSTALLIZED_MAX
    full = [passing(f"n{number}", f"n{number}.py", version=1) for number in range(NAMED_MAX)]
    assert to_crystallize([*many, *full], GATES) == []
    assert len(to_crystallize([*many, *full[1:]], GATES)) == 1


def test_what_does_not_pass_gets_no_name() -> None:
    """keeps: K-01. Hot is not enough, nor is what a person suspended."""
    hot = passing("hot", "a.py", "b.py", successes=3, runs=3)
    suspended = passing("suspended", "c.py", "d.py", suspended="by hand")
    assert hot.state == "hot"
    assert to_crystallize([hot, suspended], GATES) == []


def test_a_report_names_what_changed() -> None:
    """keeps: A-17, A-02. Counts by state, and names, the best first."""
    trails = [passing("login", "a.py", "b.py", version=1, drifted=True), passing("hot", "c.py", "d.py")]
    assert names(to_refresh(trails)) == ["login"]
    report = summarize_trails(trails, at=START_AT, changes=TrailChanges(crystallized=("nav:login",)))
    assert (report.states, report.hot, report.crystallized) == (
        {"crystallized": 1, "hot": 1},
        ("nav:hot",),
        ("nav:login",),
    )
