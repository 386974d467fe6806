"""Walks that orchestrators and build workflows report."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica.errors import InvalidInput
from mica.model.event import EventQuery
from mica.model.walk import WALK_EVENTS, walks_of, workflow_task
from mica.navigation.walk_reports import parse_walks
from mica.testing.builders import START_AT

WALK = {
    "task": "Build the login page, the password is hunter2secret",
    "steps": [
        {"path": "src/login.py", "operation": "read", "start_line": 1, "end_line": 40},
        {"path": "src/login.py", "operation": "edit"},
    ],
    "workflow": "Build",
    "outcome": "success",
    "session": "b7",
    "agent": "builder",
}


def line(**changed: object) -> bytes:
    return json.dumps({**WALK, **changed}).encode()


async def test_walks_of_a_workflow_are_stored_once_even_if_imported_again(memory: mica.Memory) -> None:
    """keeps: A-20. A walk has its steps in order, its kind of task and its outcome."""
    lines = [line(id="7", at=START_AT.isoformat()), b"\n", line(task="Another")]
    first = await memory.trails.import_walks(lines)
    again = await memory.trails.import_walks(lines)

    assert (first.stored, first.repeated) == (8, 0)
    assert (again.stored, again.repeated) == (0, 8)
    walk, _ = sorted(
        walks_of(await memory.events.query(EventQuery(names=WALK_EVENTS, limit=None))), key=lambda each: each.at
    )
    assert [step.operation for step in walk.steps] == ["read", "edit"]
    assert (walk.task, walk.outcome, walk.session, walk.agent) == ("adw_build", "success", "b7", "builder")
    assert "hunter2secret" not in walk.prompt
    assert (await memory.trails.log("Build it", walk.steps, workflow="adw_build")) is None  # one file is not a trail


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"{", "line 2"),
        (line(steps=["src/login.py"]), "line 2"),
        (line(steps=[{"path": "a.py"}]), "operation"),
        (line(task=" "), "text"),
        (line(task=""), "line 2"),
        (line(at="2026-01-01T00:00:00"), "time zone"),
        (line(outcome="splendid"), "splendid"),
        (line(surprise=1), "surprise"),
        (b'{"task": "\xff"}', "line 2"),
    ],
)
async def test_an_invalid_line_is_reported_and_nothing_is_imported(
    memory: mica.Memory, wrong: bytes, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await memory.trails.import_walks([line(), wrong])

    assert await memory.events.query(EventQuery(names=("mark",))) == []


@given(st.text(max_size=80))
def test_spellings_of_a_workflow_give_one_name(name: str) -> None:
    """keeps: A-20. It is `adw_` followed by a name that is valid for a command."""
    task = workflow_task(name)

    assert task.startswith("adw_")
    assert workflow_task(task) == task
    assert workflow_task("ADW_Build-All") == workflow_task("build all") == "adw_build_all"


def test_steps_keep_their_order() -> None:
    many = [{"path": f"{number}.py", "operation": "read"} for number in range(50)]
    events = parse_walks([line(steps=many, outcome="unknown")], now=START_AT)

    assert [event.at - START_AT for event in events] == [timedelta(microseconds=number) for number in range(51)]
    assert len({event.id for event in events}) == 51
