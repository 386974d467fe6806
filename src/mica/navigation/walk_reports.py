"""Import walks that an orchestrator or build workflow reports, one line of JSON per task.

A line is identified by its `id`, or else by a hash of its content, so importing the line again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated

import msgspec

from mica.errors import InvalidEvent, InvalidInput
from mica.model.event import MARK, Context, Event, Origin, event_id, make_event, sequence_named, writer_named
from mica.model.walk import OUTCOME, Outcome, step_fields, workflow_task
from mica.redact import redact

WRITER = writer_named("walks")
WALKS_MAX = 10_000  # walks in one file: some years of one workflow
STEPS_MAX = 10_000  # steps of one walk
COMPLAINTS_MAX = 5  # invalid lines that an error lists; the others are only counted


class WalkReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of JSON that reports a walk: a task, the files that were opened or changed for it, and its outcome."""

    task: Annotated[str, msgspec.Meta(min_length=1)]
    steps: Annotated[list[dict[str, object]], msgspec.Meta(max_length=STEPS_MAX)]
    outcome: Outcome = "unknown"
    reason: str = ""
    workflow: str | None = None  # the kind of task, such as "build"
    session: str | None = None
    agent: str | None = None
    at: Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})] | None = None
    id: str | None = None


def parse_walks(lines: Iterable[bytes], *, now: datetime) -> list[Event]:
    """Convert reported walks, one JSON object in each line, to events. A walk without a time gets the time `now`.

    Raises InvalidInput, with the numbers of the invalid lines, if a line is invalid or there are too many.
    """
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
        raise InvalidInput(f"nothing was imported: {'; '.join(wrong[:COMPLAINTS_MAX])}{others}")
    return events


def _events(line: bytes, *, now: datetime) -> list[Event]:
    report = msgspec.json.decode(line, type=WalkReport)
    if not report.task.strip():
        raise InvalidInput("a task needs a text")
    name = report.id or blake2b(msgspec.json.encode(report, order="sorted"), digest_size=16).hexdigest()
    at = report.at or now
    if at.tzinfo is None:
        raise InvalidInput(f"{at.isoformat()} has no time zone")
    task = None if report.workflow is None else workflow_task(report.workflow)
    context = Context(session=report.session, agent=report.agent, task=task)
    mark = make_event(
        event_id(WRITER, sequence_named(name)),
        MARK,
        {"text": redact(report.task), "tags": ["prompt"]},
        at=at,
        context=context,
        origin="user",
    )
    events = [mark]

    def follow(name_of: str, data: Mapping[str, object], *, failed: bool) -> None:
        identifier = event_id(WRITER, sequence_named(f"{name}:{len(events)}"))
        after = at + timedelta(microseconds=len(events))  # keeps their order
        origin: Origin = "user" if name_of == OUTCOME else "tool"
        events.append(
            make_event(identifier, name_of, data, at=after, context=context, parent=mark, origin=origin, error=failed)
        )

    for step in report.steps:
        name_of, data, failed = step_fields(step)
        follow(name_of, data, failed=failed)
    if report.outcome != "unknown":
        follow(
            OUTCOME,
            {"outcome": report.outcome} | ({"reason": redact(report.reason)} if report.reason else {}),
            failed=False,
        )
    return events
