"""Read recorded work as walks: sessions of coding agents, and commits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mica.model.event import EventId, event_id, sequence_named, writer_named
from mica.model.walk import Operation, Step, Walk

COMMIT_FILES_MAX = 20  # a commit of more files is a sweep
OPERATIONS: dict[str, Operation] = {"Read": "read", "Edit": "edit", "MultiEdit": "edit", "Write": "create"}


class Action(msgspec.Struct):
    """A call of a tool."""

    tool: str
    ts: datetime
    repo_file: str | None = None
    result_tokens: int | None = None
    result_sha: str | None = None
    error: bool = False
    start_line: int | None = None
    num_lines: int | None = None
    total_lines: int | None = None


class Task(msgspec.Struct):
    """A prompt and the actions that followed."""

    prompt: str
    ts: datetime
    actions: list[Action]
    human: bool = False


class Session(msgspec.Struct):
    """A recorded session; `split` is test or training."""

    session_id: str
    agent: str
    start: float
    split: str
    tasks: list[Task]


def sessions(path: Path) -> list[Session]:
    """Read the sessions of a file, in the order in which they began."""
    with path.open("rb") as lines:
        found = [msgspec.json.decode(line, type=Session) for line in lines if line.strip()]
    return sorted(found, key=lambda session: (session.start, session.session_id))


def walks(session: Session) -> Iterator[Walk]:
    """Yield one walk for each prompt of a session."""
    for number, task in enumerate(session.tasks):
        identifier = _id(f"{session.session_id} {number}")
        steps = tuple(step for action in task.actions if (step := _step(action, identifier)) is not None)
        yield Walk(
            id=identifier,
            prompt=task.prompt,
            at=task.ts,
            ended_at=max([task.ts, *(action.ts for action in task.actions)]),
            session=session.session_id,
            agent=session.agent,
            steps=steps,
        )


class Commit(msgspec.Struct):
    """A commit: its subject, time and changes to files."""

    h: str
    t: int
    s: str
    files: list[list[str]]
    merge: bool = False
    bot: bool = False


def commits(path: Path) -> list[Walk]:
    """Read commits as walks over the files that existed before. Merges, bots and sweeps are left out."""
    with path.open("rb") as lines:
        found = [msgspec.json.decode(line, type=Commit) for line in lines if line.strip()]
    return [
        walk
        for commit in found
        if not commit.merge and not commit.bot and len(commit.files) <= COMMIT_FILES_MAX and (walk := _commit(commit))
    ]


def _commit(commit: Commit) -> Walk | None:
    at, identifier = datetime.fromtimestamp(commit.t, UTC), _id(commit.h)
    steps = tuple(
        Step(path=names[0], operation="edit", at=at, event=identifier)
        for status, *names in commit.files
        if status[:1] in "MDTR"
    )
    if not steps:
        return None
    return Walk(id=identifier, prompt=commit.s, at=at, ended_at=at, session=commit.h, steps=steps)


def _step(action: Action, event: EventId) -> Step | None:
    operation = OPERATIONS.get(action.tool)
    if operation is None or not action.repo_file:
        return None
    start, lines = action.start_line, action.num_lines
    return Step(
        path=action.repo_file,
        operation=operation,
        start_line=start,
        end_line=start + lines - 1 if start and lines else None,
        total_lines=action.total_lines,
        tokens=action.result_tokens,
        content_hash=action.result_sha,
        failed=action.error,
        at=action.ts,
        event=event,
    )


def _id(name: str) -> EventId:
    return event_id(writer_named("bench"), sequence_named(name))
