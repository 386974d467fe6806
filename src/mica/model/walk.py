"""Walks: the files that an agent opened, searched or changed for one prompt, in order of access.

A walk is computed from the log and never stored. Trails, the training of `navigate` and the replay of past tasks all
use walks, so they all work with the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mica.errors import InvalidInput
from mica.model.crystal import retraction_target
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
TURN = "turn.started"  # a turn without a typed prompt
COMMAND = "command.run"  # a slash command in the place of a prompt
SHELL = "shell.run"
ANSWER = "model.answer"
OFFER = "offer"  # paths that were suggested for a prompt, or withheld for comparison: {"paths", "tokens", "held_out"}
OUTCOME = "task.outcome"  # the reported outcome of a task: {"outcome": "success", "reason": …}
# The events that walks are computed from.
WALK_EVENTS = (MARK, RETRACTED, STARTED, TURN, COMMAND, SHELL, ANSWER, OFFER, OUTCOME, *STEPS)
WORKFLOW = "adw_"  # prefix of the task of a build workflow
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "partial", "unknown")


WORKFLOW_CHARACTERS_MAX = 60  # it may become the name of a trail
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One access to one file: the operation, the lines and the tokens."""

    path: str
    operation: Operation
    start_line: int | None = None  # None for the whole file, or if unknown
    end_line: int | None = None
    total_lines: int | None = None  # number of lines of the file
    tokens: int | None = None  # of the text that was read or searched
    content_hash: str | None = None  # of the lines that were shown
    pattern: str | None = None  # in a trail: any file that matches it fits, and `path` is the one used last
    failed: bool = False
    call: str | None = None  # the id of the tool call; one call may access several files
    at: datetime
    event: EventId


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of a model, and the number of tokens in its context window."""

    at: datetime
    model: str | None = None
    context_tokens: int = 0


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Paths that mica suggested for a prompt. If `held_out`, they were withheld as a control for comparison."""

    paths: tuple[str, ...]
    tokens: int = 0
    held_out: bool = False


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and the file accesses, model replies and commits that followed from it."""

    id: EventId  # of the prompt
    prompt: str  # empty for a turn without a typed prompt
    at: datetime
    ended_at: datetime  # the time of the last event that belongs to the walk
    session: str | None = None
    agent: str | None = None
    steps: tuple[Step, ...] = ()
    printed: dict[str, int] = {}  # tokens in the output of each shell command, by the id of its tool call
    answers: tuple[ModelReply, ...] = ()
    offer: Offer | None = None
    outcome: Outcome = "unknown"  # as it was reported
    committed: bool = False  # True if a commit followed
    subjects: tuple[str, ...] = ()  # the first lines of the commits' messages
    task: str | None = None  # the task in the context, such as adw_build

    @property
    def changed(self) -> tuple[str, ...]:
        """The changed files, each once, in order."""
        steps = (step for step in self.steps if step.operation in ("edit", "create") and not step.failed)
        return tuple(dict.fromkeys(step.path for step in steps))

    @property
    def touched(self) -> tuple[str, ...]:
        """The files that were read or changed, each once, in order of first access; searches do not count."""
        steps = (step for step in self.steps if step.operation in ("read", "edit", "create") and not step.failed)
        return tuple(dict.fromkeys(step.path for step in steps))


def workflow_task(name: str) -> str:
    """Return the task name of a build workflow: `adw_` and its `name`, in small letters, digits and `_`."""
    kind = _NO_LETTERS.sub("_", name.lower().removeprefix(WORKFLOW)).strip("_")
    return WORKFLOW + (kind[:WORKFLOW_CHARACTERS_MAX].strip("_") or "work")


def step_of(event: Event) -> Step | None:
    """Return the file access that an event records; None for other events and for events without a path."""
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


def step_fields(step: Step | Mapping[str, object]) -> tuple[str, dict[str, object], bool]:
    """Return what an event needs to record a step, as a tuple: the event's name, its data, and whether it failed.

    Raises InvalidInput if the step is invalid.
    """
    if isinstance(step, Step):
        step = {name: getattr(step, name) for name in _STEP_FIELDS}
    if not isinstance(step, Mapping):
        raise InvalidInput(f"{step!r} is not a step; pass a mapping with `path` and `operation`")
    try:
        data = msgspec.convert(dict(step), StepData)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{dict(step)!r} is not a step: {error}") from error
    fields = {
        name: value
        for name in _STEP_FIELDS
        if name not in ("operation", "failed") and (value := getattr(data, name)) is not None
    }
    return next(name for name, operation in STEPS.items() if operation == data.operation), fields, data.failed


class StepData(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A step as reported by another program; unknown or invalid fields are errors."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    operation: Operation
    start_line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    end_line: Annotated[int, msgspec.Meta(ge=1)] | None = None
    total_lines: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    content_hash: str | None = None
    failed: bool = False


_STEP_FIELDS = StepData.__struct_fields__


def _answer(event: Event) -> ModelReply:
    data = event.data
    counts = [_number(data.get(name)) or 0 for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")]
    return ModelReply(at=event.at, model=_text(data.get("model")), context_tokens=sum(counts))


def _offer(event: Event) -> Offer:
    data = event.data
    paths = data.get("paths")
    return Offer(
        paths=tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else (),
        tokens=_number(data.get("tokens")) or 0,
        held_out=data.get("held_out") is True,
    )


def walks_of(events: Iterable[Event]) -> list[Walk]:
    """Return the walks that these events show, oldest first. The events must be in order of time.

    Events that do not descend from a prompt are ignored. The walks of retracted prompts are left out; for this, the
    input must include the events named RETRACTED.
    """
    retracted: set[EventId] = set()
    prompts: dict[EventId, tuple[Event, str]] = {}
    followed: dict[EventId, list[Event]] = {}
    for event in events:
        if event.name == RETRACTED:
            retracted.add(retraction_target(event))
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
    """Return the absolute path of the working directory of the latest session; None if it is not known.

    The directory may no longer exist.
    """
    latest = None
    for event in events:
        if event.name == STARTED and isinstance(cwd := event.data.get("cwd"), str):
            latest = cwd
    path = None if latest is None else Path(latest)
    return path if path is not None and path.is_absolute() else None


def _walk(event: Event, prompt: str, followed: Iterable[Event]) -> Walk:
    steps: list[Step] = []
    answers: list[ModelReply] = []
    printed: dict[str, int] = {}
    offer: Offer | None = None
    subjects: list[str] = []
    ended_at, outcome = event.at, "unknown"
    for later in followed:
        ended_at = max(ended_at, later.at)
        if (step := step_of(later)) is not None:
            steps.append(step)
        elif later.name == OUTCOME and (reported := later.data.get("outcome")) in OUTCOMES:
            outcome = str(reported)
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
    """Return the prompt of an event that begins a walk; None for other events.

    The result is "" if the walk has no prompt.
    """
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
