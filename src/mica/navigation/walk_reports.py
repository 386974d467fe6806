"""Walks that others tell of: an orchestrator or build workflow writes a line for each task that it has watched.

A line is named by its `id`, else by what it says, so that telling it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated

import msgspec

from mica.errors import InvalidEvent, InvalidInput
from mica.model.event import MARK, Context, Event, Origin, event_id, make_event, sequence_named, writer_named
from mica.model.walk import OUTCOME, Outcome, fields_of, workflow_task
from mica.redact import redact

WRITER = writer_named("walks")
WALKS_MAX = 10_000  # of one file: some years of one workflow
STEPS_MAX = 10_000  # of one walk
COMPLAINTS_MAX = 5  # that an error names


class Reported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line: a task, what was opened and changed for it in order, and how it ended."""

    task: Annotated[str, msgspec.Meta(min_length=1)]
    steps: Annotated[list[dict[str, object]], msgspec.Meta(max_length=STEPS_MAX)]
    outcome: Outcome = "unknown"
    reason: str = ""
    workflow: str | None = None  # the kind of task, as in build
    session: str | None = None
    agent: str | None = None
    at: Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})] | None = None
    id: str | None = None


def reported(lines: Iterable[bytes], *, now: datetime) -> list[Event]:
    """The events of these lines of JSON. Raises InvalidInput, naming the lines, where one is no walk."""
    events: list[Event] = []
    wrong: list[str] = []
    walks = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        walks += 1
        if walks > WALKS_MAX:
            raise InvalidInput(f"more than {WALKS_MAX:,} walks at once; give them in several files")
        try:
            events += _events(line, now=now)
        except (msgspec.DecodeError, InvalidInput, InvalidEvent, UnicodeDecodeError) as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        others = f", and {len(wrong) - COMPLAINTS_MAX:,} more" if len(wrong) > COMPLAINTS_MAX else ""
        raise InvalidInput(f"nothing was taken in: {'; '.join(wrong[:COMPLAINTS_MAX])}{others}")
    return events


def _events(line: bytes, *, now: datetime) -> list[Event]:
    told = msgspec.json.decode(line, type=Reported)
    if not told.task.strip():
        raise InvalidInput("a task needs a text")
    name = told.id or blake2b(msgspec.json.encode(told, order="sorted"), digest_size=16).hexdigest()
    at = told.at or now
    if at.tzinfo is None:
        raise InvalidInput(f"{at.isoformat()} has no time zone")
    task = None if told.workflow is None else workflow_task(told.workflow)
    context = Context(session=told.session, agent=told.agent, task=task)
    mark = make_event(
        event_id(WRITER, sequence_named(name)),
        MARK,
        {"text": redact(told.task), "tags": ["prompt"]},
        at=at,
        context=context,
        origin="user",
    )
    events = [mark]

    def follow(name_of: str, data: Mapping[str, object], *, failed: bool) -> None:
        identifier = event_id(WRITER, sequence_named(f"{name}:{len(events)}"))
        after = at + timedelta(microseconds=len(events))  # in the order in which they are told
        origin: Origin = "user" if name_of == OUTCOME else "tool"
        events.append(
            make_event(identifier, name_of, data, at=after, context=context, parent=mark, origin=origin, error=failed)
        )

    for step in told.steps:
        name_of, data, failed = fields_of(step)
        follow(name_of, data, failed=failed)
    if told.outcome != "unknown":
        follow(
            OUTCOME, {"outcome": told.outcome} | ({"reason": redact(told.reason)} if told.reason else {}), failed=False
        )
    return events
