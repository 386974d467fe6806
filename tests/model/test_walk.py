"""Walks read from the log: the same steps for learning, navigating and replaying."""

from __future__ import annotations

from pathlib import Path

import pytest

import mica
from mica.model.event import EventQuery
from mica.model.walk import OUTCOME, WALK_EVENTS, latest_directory, step_of, walks_of
from mica.testing import build

FIXTURES = Path(__file__).parents[1] / "fixtures" / "claude-code"


async def test_a_walk_has_the_steps_of_its_prompt_in_the_order_of_access(tmp_path: Path) -> None:
    """keeps: K-03, TA-02. Every reader uses one step type with path, lines, cost and hash."""
    async with mica.open(tmp_path / "shop.db") as memory:
        await memory.clients.import_transcripts([FIXTURES / "transcript-a.jsonl"])
        (walk,) = walks_of(await memory.events.query())
    assert walk.prompt == "Explain how auth works"
    assert [(step.path, step.operation, step.start_line, step.end_line) for step in walk.steps if not step.failed] == [
        ("src/db.py", "read", 1, 60),
        ("src/auth.py", "read", 10, 39),
        ("src/db.py", "read", 1, 5),
        ("src/auth.py", "read", 1, 3),
    ]
    assert walk.touched == ("src/db.py", "src/auth.py")
    assert all(step.tokens and step.content_hash for step in walk.steps if not step.failed)
    assert len(walk.answers) == 7
    assert walk.answers[0].context_tokens == 3_566
    (shell,) = {step.call for step in walk.steps if step.call in walk.printed}
    assert walk.printed[str(shell)] == 36
    assert walk.at < walk.steps[0].at <= walk.ended_at


async def test_an_outcome_is_unknown_until_it_is_reported(tmp_path: Path) -> None:
    """keeps: TA-09. Success is never assumed; the last report counts, and an invalid one is ignored."""
    async with mica.open(tmp_path / "shop.db") as memory:
        with memory.context(session="s1"):
            prompt = memory.mark("Mend the login", tags=("prompt",))
            memory.emit("file.read", {"path": "auth.py"}, parent=prompt)
            other = memory.mark("Another thing", tags=("prompt",))
            memory.emit(OUTCOME, {"outcome": "partial"}, parent=prompt)
            memory.emit(OUTCOME, {"outcome": "success"}, parent=prompt)
            memory.emit(OUTCOME, {"outcome": "splendid"}, parent=other)
        reported, unreported = walks_of(await memory.events.query())
    assert (reported.outcome, unreported.outcome) == ("success", "unknown")


async def test_a_retracted_prompt_has_no_walk(tmp_path: Path) -> None:
    """keeps: A-45. This also holds where only the events that walks are read from are queried."""
    async with mica.open(tmp_path / "shop.db") as memory:
        for task in ("Mend the login", "Mend the basket"):
            memory.trails.record(task, [{"path": "auth.py", "operation": "read"}])
        [wrong, _] = await memory.events.query(EventQuery(names=("mark",)))
        await memory.retract(wrong.id, reason="it was meant for another project")
        for query in (EventQuery(), EventQuery(names=WALK_EVENTS)):
            assert [walk.prompt for walk in walks_of(await memory.events.query(query))] == ["Mend the basket"]


async def test_an_event_that_is_not_a_file_access_is_not_a_step(tmp_path: Path) -> None:
    """keeps: K-03. Bare strings, other events and events without a path are refused."""
    async with mica.open(tmp_path / "shop.db") as memory:
        memory.emit("file.read", {"path": ["auth.py"]})
        memory.emit("file.read", {})
        memory.emit("shell.run", {"path": "auth.py"})
        assert [step_of(event) for event in await memory.events.query()] == [None, None, None]
        assert walks_of(await memory.events.query()) == []


def test_a_command_begins_a_walk_by_its_text_or_its_name() -> None:
    named = build(1, "command.run", {"name": "review", "text": "/review auth"})
    bare = build(2, "command.run", {"name": "compact"})

    assert [walk.prompt for walk in walks_of([named, bare])] == ["/review auth", "/compact"]


@pytest.mark.parametrize("value", [True, "90", 9.5, None])
def test_an_invalid_number_is_an_unknown_cost(value: object) -> None:
    step = step_of(build(1, "file.read", {"path": "auth.py", "tokens": value, "start_line": value}))

    assert step is not None
    assert (step.tokens, step.start_line) == (None, None)


def test_the_latest_directory_is_that_of_the_last_session(tmp_path: Path) -> None:
    folder, other = tmp_path / "shop", tmp_path / "other"
    first, last = (build(n, "session.started", {"cwd": str(path)}) for n, path in ((1, other), (2, folder)))
    nameless, elsewhere = build(3, "session.started", {"cwd": 7}), build(4, "shell.run", {"cwd": str(other)})

    assert latest_directory([first, last, nameless, elsewhere]) == folder
    assert latest_directory([nameless, elsewhere]) is None
    assert latest_directory([build(6, "session.started", {"cwd": "."})]) is None


async def test_a_workflow_reports_its_files_by_one_call(memory: mica.Memory) -> None:
    """keeps: A-20.

    It makes the same events as hooks, under the workflow's task kind and with the reported outcome.
    """
    walk = memory.trails.record(
        "Build the login page",
        [
            {"path": "src/login.py", "operation": "read", "start_line": 1, "end_line": 40, "tokens": 200},
            {"path": "src/login.py", "operation": "edit", "start_line": 3, "end_line": 4},
            {"path": "src/gone.py", "operation": "read", "failed": True},
        ],
        outcome="success",
        reason="all tests pass",
        workflow="adw_build",
        session="build-7",
        agent="builder",
    )
    open_end = memory.trails.record("Look around", [], workflow="adw_build")

    first, second = walks_of(await memory.events.query(EventQuery(limit=None)))

    assert (first.id, first.prompt, first.outcome, first.session) == (
        walk.id,
        "Build the login page",
        "success",
        "build-7",
    )
    assert [(step.operation, step.path, step.start_line, step.failed) for step in first.steps] == [
        ("read", "src/login.py", 1, False),
        ("edit", "src/login.py", 3, False),
        ("read", "src/gone.py", None, True),
    ]
    assert (second.id, second.outcome) == (open_end.id, "unknown")
    assert [walk.task for walk in (first, second)] == ["adw_build"] * 2
    memory.trails.outcome(open_end, "failure")
    assert [walk.outcome for walk in walks_of(await memory.events.query(EventQuery(limit=None)))] == [
        "success",
        "failure",
    ]


@pytest.mark.parametrize(
    "step",
    [
        "src/login.py",
        {"path": "a"},
        {"path": "", "operation": "read"},
        {"path": "a", "operation": "eat"},
        {"path": "a", "operation": "read", "start_line": 0},
        {"path": "a", "operation": "read", "colour": 1},
    ],
)
async def test_an_invalid_step_is_refused_before_anything_is_recorded(memory: mica.Memory, step: object) -> None:
    """keeps: K-03. Bare path strings are refused."""
    with pytest.raises(mica.InvalidInput, match="is not a step"):
        memory.trails.record("task", [step])  # type: ignore[list-item]
    with pytest.raises(mica.InvalidInput, match="no outcome"):
        memory.trails.record("task", [], outcome="great")  # type: ignore[arg-type]

    assert await memory.events.query() == []
