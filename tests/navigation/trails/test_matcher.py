"""Trails that match a task."""

from __future__ import annotations

from mica.navigation.trails.matcher import choose
from mica.settings import TrailSettings
from mica.testing.contract.trails import build_trail


def test_the_surest_kind_of_match_wins_and_is_named() -> None:
    """keeps: K-05. The order is exact, shape, words."""
    gates = TrailSettings()
    trails = [build_trail("login", "a.py", "b.py", "c.py", "d.py", "e.py"), build_trail("other", "x.py", "y.py")]

    def tiers(task: str, *paths: str) -> list[tuple[str, str]]:
        return [(choice.trail.slug, choice.match) for choice in choose(task, trails, gates=gates, paths=paths)]

    assert tiers("follow /nav:other") == [("other", "exact")]
    assert tiers("", "a.py", "b.py", "c.py", "d.py", "e.py") == [("login", "exact")]
    assert tiers("", "a.py", "b.py", "c.py", "d.py", "f.py") == [("login", "shape")]
    assert tiers("", "a.py", "b.py", "c.py", "f.py", "g.py") == []
    assert tiers("the login cookie") == [("login", "words"), ("other", "words")]
    assert tiers("it breaks in x.py and y.py") == [("other", "words")]
    assert tiers("nothing of it") == []
