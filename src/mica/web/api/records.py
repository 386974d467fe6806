"""emit, mark, outcome: what is recorded over HTTP. Answered means on disk, power loss or not."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mica.events.context import Here
from mica.memory import Memory
from mica.model.event import Context, Origin, Ref, Relation
from mica.model.walk import Outcome
from mica.web.api.fields import Moment, Name, Reference
from mica.web.operations import API

TEXT_CHARACTERS_MAX = 1_000_000  # of one mark over HTTP; what is larger is a file


class Told(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where something came from; what is not given comes from the headers, or is not known."""

    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    task: Name | None = None
    correlation: Name | None = None
    labels: dict[Name, Name] = {}
    parent: Reference | None = None  # the event that led to it
    origin: Origin = "agent"
    at: Moment | None = None


class NewEvent(Told, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that happened."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    data: dict[str, Any] = {}
    error: bool = False


class NewEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events in the order in which they happened."""

    events: Annotated[tuple[NewEvent, ...], msgspec.Meta(min_length=1, max_length=1_000)]


class NewMark(Told, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An observation."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]
    tags: tuple[str, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation = "causes"


class NewOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task ended."""

    reference: Reference  # of its prompt
    outcome: Outcome
    reason: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event stands in its chain."""

    id: str
    root_id: str
    depth: int


class AllRecorded(msgspec.Struct, frozen=True, kw_only=True):
    """Where events stand, in the order in which they were given."""

    events: tuple[Recorded, ...]


@API.post("/events", tag="observe")
async def emit(memory: Memory, asked: NewEvents) -> AllRecorded:
    """Record what happened, up to 1,000 events. Answered means on disk, power loss or not."""
    refs = []
    for event in asked.events:
        context, parent = await _place(memory, event)
        refs.append(
            memory.emit(
                event.name,
                event.data,
                parent=parent,
                context=context,
                origin=event.origin,
                error=event.error,
                at=event.at,
            )
        )
    await memory.durable()
    return AllRecorded(events=tuple(map(_recorded, refs)))


@API.post("/marks", tag="observe")
async def mark(memory: Memory, asked: NewMark) -> Recorded:
    """Record an observation; secrets are redacted on the way in. Answered means on disk, power loss or not."""
    context, parent = await _place(memory, asked)
    ref = memory.mark(
        asked.text,
        tags=asked.tags,
        why=asked.why,
        principles=asked.principles,
        parent=parent,
        relation=asked.relation,
        context=context,
        origin=asked.origin,
        at=asked.at,
    )
    await memory.durable()
    return _recorded(ref)


@API.post("/outcomes", tag="observe")
async def outcome(memory: Memory, asked: NewOutcome) -> Recorded:
    """Say how a task ended. The last word counts; without one it is unknown."""
    ref = memory.outcome(await memory.event(asked.reference), asked.outcome, reason=asked.reason)
    await memory.durable()
    return _recorded(ref)


async def _place(memory: Memory, told: Told) -> tuple[Context | Here, Ref | None]:
    """The context of what is told, around that of the request, and what led to it."""
    here = memory.here
    context = here.context.with_(
        labels=told.labels,
        session=told.session,
        agent=told.agent,
        user=told.user,
        task=told.task,
        correlation=told.correlation,
    )
    if told.parent is not None:
        return context, (await memory.event(told.parent)).ref
    return Here(context, here.parent), None


def _recorded(ref: Ref) -> Recorded:
    return Recorded(id=ref.id, root_id=ref.root_id, depth=ref.depth)
