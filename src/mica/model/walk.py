"""Walks: what an agent opened, searched and changed for one prompt, in the order of access.

A walk is read from the log, never stored. It is what trails are learned from, what `navigate` is trained on and what a
replay walks again, so all three see the same steps (K-03).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mica.errors import InvalidInput
from mica.model.crystal import retracted_by
from mica.model.event import MARK, RETRACTED, Event, EventId

Operation = Literal["read", "edit", "create", "search", "list"]
Outcome = Literal["success", "failure", "partial", "unknown"]

STEPS: dict[str, Operation] = {
    "file.read": "read",
    "file.edit": "edit",
    "file.create": "create",
    "file.search": "search",
    "file.list": "list",
}
STARTED = "session.started"
TURN = "turn.started"  # a turn that nobody typed
COMMAND = "command.run"  # a slash command in the place of a prompt
SHELL = "shell.run"
ANSWER = "model.answer"
OFFER = "offer"  # paths that a prompt was answered with, or would have been: {"paths", "tokens", "held_out"}
OUTCOME = "task.outcome"  # what somebody said of a task: {"outcome": "success", "reason": …}
# What walks are read from.
WALKED = (MARK, RETRACTED, STARTED, TURN, COMMAND, SHELL, ANSWER, OFFER, OUTCOME, *STEPS)
WORKFLOW = "adw_"  # the task of a build workflow says its own kind
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "partial", "unknown")


WORKFLOW_CHARACTERS_MAX = 60  # a trail may be called so
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One access to one file: which lines, and what it cost."""

    path: str
    operation: Operation
    start_line: int | None = None  # without lines it is the whole file, or unknown which
    end_line: int | None = None
    total_lines: int | None = None
    tokens: int | None = None
    content_hash: str | None = None  # of the text that was shown
    pattern: str | None = None  # of a trail: any file that fits it may stand here, and `path` was the latest
    failed: bool = False
    call: str | None = None  # the tool call that it was a part of
    at: datetime
    event: EventId


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model, and how many tokens it had before it."""

    at: datetime
    model: str | None = None
    context_tokens: int = 0


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What mica told an agent about a prompt. Held out, it was decided and not said, for comparison."""

    paths: tuple[str, ...]
    tokens: int = 0
    held_out: bool = False


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and what followed from it."""

    id: EventId  # of the prompt
    prompt: str  # empty for a turn that nobody typed
    at: datetime
    ended_at: datetime  # of the last event that belongs to it
    session: str | None = None
    agent: str | None = None
    steps: tuple[Step, ...] = ()
    printed: dict[str, int] = {}  # tokens that each shell command showed, by call
    answers: tuple[Answer, ...] = ()
    offer: Offer | None = None
    outcome: Outcome = "unknown"  # until somebody says so (TA-09)
    committed: bool = False  # whether what it led to was committed
    subjects: tuple[str, ...] = ()  # of its commits
    task: str | None = None  # what the context calls it, as in adw_build

    @property
    def changed(self) -> tuple[str, ...]:
        """The files it changed, each once, in order."""
        steps = (step for step in self.steps if step.operation in ("edit", "create") and not step.failed)
        return tuple(dict.fromkeys(step.path for step in steps))

    @property
    def touched(self) -> tuple[str, ...]:
        """The files it read or changed, each once, in the order of first access; searches lead, they do not touch."""
        steps = (step for step in self.steps if step.operation in ("read", "edit", "create") and not step.failed)
        return tuple(dict.fromkeys(step.path for step in steps))


def workflow_task(name: str) -> str:
    """What the context of a build workflow's task says: `adw_` and the kind of workflow."""
    kind = _NO_LETTERS.sub("_", name.lower().removeprefix(WORKFLOW)).strip("_")
    return WORKFLOW + (kind[:WORKFLOW_CHARACTERS_MAX].strip("_") or "work")


def step_of(event: Event) -> Step | None:
    """The access that an event tells of; None where it tells of none, or of no path."""
    operation = STEPS.get(event.name)
    if operation is None:
        return None
    data = event.data
    path = data.get("path")
    if not isinstance(path, str) or not path:
        return None
    return Step(
        path=path,
        operation=operation,
        start_line=_number(data.get("start_line")),
        end_line=_number(data.get("end_line")),
        total_lines=_number(data.get("total_lines")),
        tokens=_number(data.get("tokens")),
        content_hash=_text(data.get("content_hash")),
        failed=event.error,
        call=_text(data.get("call")),
        at=event.at,
        event=event.id,
    )


def fields_of(step: Step | Mapping[str, object]) -> tuple[str, dict[str, object], bool]:
    """A step as an event tells it: its name, its data, and whether it failed. Raises InvalidInput for what is none."""
    if isinstance(step, Step):
        step = {name: getattr(step, name) for name in _TOLD}
    if not isinstance(step, Mapping):
        raise InvalidInput(f"{step!r} is no step; give a mapping with `path` and `operation`")
    try:
        told = msgspec.convert(dict(step), _Told)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{dict(step)!r} is no step: {error}") from error
    fields = {
        name: value
        for name in _TOLD
        if name not in ("operation", "failed") and (value := getattr(told, name)) is not None
    }
    return next(name for name, operation in STEPS.items() if operation == told.operation), fields, told.failed


class _Told(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A step as somebody outside tells it."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    operation: Operation
    start_line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    end_line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    total_lines: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    content_hash: str | None = None
    failed: bool = False


_TOLD = _Told.__struct_fields__


def _answer(event: Event) -> Answer:
    data = event.data
    read = [_number(data.get(name)) or 0 for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")]
    return Answer(at=event.at, model=_text(data.get("model")), context_tokens=sum(read))


def _offer(event: Event) -> Offer:
    data = event.data
    paths = data.get("paths")
    return Offer(
        paths=tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else (),
        tokens=_number(data.get("tokens")) or 0,
        held_out=data.get("held_out") is True,
    )


def walks_of(events: Iterable[Event]) -> list[Walk]:
    """The walks in these events, which come in order of time; oldest first. What no prompt led to is left out.

    So is what a prompt led to that was retracted: who reads walks asks for RETRACTED, too.
    """
    retracted: set[EventId] = set()
    prompts: dict[EventId, tuple[Event, str]] = {}
    followed: dict[EventId, list[Event]] = {}
    for event in events:
        if event.name == RETRACTED:
            retracted.add(retracted_by(event))
            continue
        prompt = _prompt(event) if event.parent_id is None else None
        if prompt is not None:
            prompts[event.id] = (event, prompt)
        elif event.root_id != event.id:
            followed.setdefault(event.root_id, []).append(event)
    return [
        _walk(event, prompt, followed.get(id, ())) for id, (event, prompt) in prompts.items() if id not in retracted
    ]


def latest_directory(events: Iterable[Event]) -> Path | None:
    """Where the latest session worked, if that directory is still there."""
    found = None
    for event in events:
        if event.name == STARTED and isinstance(cwd := event.data.get("cwd"), str):
            found = cwd
    path = None if found is None else Path(found)
    return path if path is not None and path.is_absolute() and path.is_dir() else None


def _walk(event: Event, prompt: str, followed: Iterable[Event]) -> Walk:
    steps: list[Step] = []
    answers: list[Answer] = []
    printed: dict[str, int] = {}
    offer: Offer | None = None
    subjects: list[str] = []
    ended_at, outcome = event.at, "unknown"
    for later in followed:
        ended_at = max(ended_at, later.at)
        if (step := step_of(later)) is not None:
            steps.append(step)
        elif later.name == OUTCOME and (said := later.data.get("outcome")) in OUTCOMES:
            outcome = str(said)
        elif later.name == OFFER:
            offer = _offer(later)
        elif later.name == ANSWER:
            answers.append(_answer(later))
        elif later.name == SHELL and (call := _text(later.data.get("call"))):
            printed[call] = _number(later.data.get("tokens")) or 0
        elif later.name == MARK and "commit" in _tags(later):
            subjects.append((_text(later.data.get("text")) or "").strip().partition("\n")[0])
    return Walk(
        id=event.id,
        prompt=prompt,
        at=event.at,
        ended_at=ended_at,
        session=event.context.session,
        agent=event.context.agent,
        steps=tuple(steps),
        printed=printed,
        answers=tuple(answers),
        offer=offer,
        outcome=msgspec.convert(outcome, Outcome),
        committed=bool(subjects),
        subjects=tuple(subjects),
        task=event.context.task,
    )


def _prompt(event: Event) -> str | None:
    """What was asked, where an event begins a turn."""
    data = event.data
    if event.name == MARK:
        return str(data.get("text", "")) if "prompt" in _tags(event) else None
    if event.name == COMMAND:
        return str(data.get("text") or f"/{data.get('name')}")
    return "" if event.name == TURN else None


def _tags(event: Event) -> list[object]:
    tags = event.data.get("tags")
    return tags if isinstance(tags, list) else []


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
