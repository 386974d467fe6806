"""The kind of a task, from its prompt."""

from __future__ import annotations

from tests.navigation.trails.walks import walk

from mica.navigation.trails.learner import learn_trails
from mica.navigation.trails.task_kinds import shape_of, slug_of, verb_class
from mica.settings import TrailSettings

GATES = TrailSettings()


def test_the_shape_of_a_task_is_its_verb_and_its_objects() -> None:
    """keeps: A-02, A-20. Without a model; a workflow's shape is its own name."""
    assert shape_of(["Please fix the login redirect"], [None], rarity={}) == "fix-login-redirect"
    assert shape_of(["How does the session cookie work?"], [None], rarity={}) == "explain-session-cookie"
    assert shape_of(["Implement the following plan: upload videos"], ["adw_build"], rarity={}) == "adw_build"
    assert verb_class("登录") == "work"
    assert shape_of([""], [None], rarity={}) == "work"
    assert slug_of("Fix: Café au lait!") == "fix-caf-au-lait"
    assert slug_of("登录") == "work"


def test_a_workflow_is_a_kind_of_task() -> None:
    """keeps: A-20. `adw_<workflow>`."""
    (trail,) = learn_trails([walk(1, ["a.py", "b.py"], task="adw_build")], gates=GATES)
    assert (trail.shape, trail.slug) == ("adw_build", "adw-build")
