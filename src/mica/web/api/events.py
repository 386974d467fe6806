"""`memory.events` over HTTP: read events, what caused them and what they caused, failures, and active sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from mica.events.activity import Overview
from mica.events.chains import Difference, compare
from mica.format.documents import event_document, event_documents
from mica.memory import Memory
from mica.web.api.fields import EventOut, EventSelection, FieldSelection, Limit, Position, Reference
from mica.web.operations import API


class LatestRequest(EventSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of events, oldest first; in the answer of `events.ancestors`, nearest first."""

    events: list[EventOut]


@API.get("events.query", needs="read")
async def query(memory: Memory, request: LatestRequest) -> EventList:
    """Get the latest events that match, oldest first."""
    events = await memory.events.query(request.query(limit=request.limit))
    return EventList(events=event_documents(events, request.selected_fields))


class PageRequest(EventSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Position = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events in commit order, and the cursor of the next page. The cursor is None at the end of the log."""

    events: list[EventOut]
    next: int | None


@API.get("events.log", needs="read")
async def log(memory: Memory, request: PageRequest) -> LogPage:
    """Read the log in commit order, page by page. Pass `next` of a page as `after` of the following request.

    No event is missed or repeated.
    """
    events = []
    async for event in memory.events.log(request.query(limit=None), after=request.after):
        events.append(event)
        if len(events) == request.limit:
            break
    at_end = len(events) < request.limit
    return LogPage(
        events=event_documents(events, request.selected_fields), next=None if at_end else events[-1].position
    )


class EventRequest(FieldSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference


@API.get("events.get", needs="read")
async def get(memory: Memory, request: EventRequest) -> EventOut:
    """Get one event by its id or position."""
    return event_document(await memory.events.get(request.reference), request.selected_fields)


class ResolveRequest(FieldSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    references: Annotated[tuple[Reference, ...], msgspec.Meta(max_length=100)]


class ResolveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Events in the order of the request, and the references for which there is no event."""

    found: list[EventOut]
    missing: tuple[str, ...]


@API.post("events.resolve", needs="read")
async def resolve(memory: Memory, request: ResolveRequest) -> ResolveAnswer:
    """Get up to 100 events by id or position, in the order of the request.

    `missing` lists the references for which there is no event.
    """
    resolved = await memory.events.resolve(request.references)
    return ResolveAnswer(found=event_documents(resolved.events, request.selected_fields), missing=resolved.missing)


# -- Chains -------------------------------------------------------------------------------------------------------


@API.get("events.chain", needs="read")
async def chain(memory: Memory, request: EventRequest) -> EventList:
    """Get the chain of an event, oldest first: all events with its correlation or, if it has none, with its root."""
    events = await memory.events.chain(await memory.events.get(request.reference))
    return EventList(events=event_documents(events, request.selected_fields))


@API.get("events.ancestors", needs="read")
async def ancestors(memory: Memory, request: EventRequest) -> EventList:
    """Get the events that caused an event, nearest first."""
    events = await memory.events.ancestors(await memory.events.get(request.reference))
    return EventList(events=event_documents(events, request.selected_fields))


class DescendantsRequest(EventRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    depth: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


@API.get("events.descendants", needs="read")
async def descendants(memory: Memory, request: DescendantsRequest) -> EventList:
    """Get the events that an event caused, oldest first, at most `depth` steps below it."""
    events = await memory.events.descendants(await memory.events.get(request.reference), depth=request.depth)
    return EventList(events=event_documents(events, request.selected_fields))


class ImpactAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a chain after a given one: those that it caused, and the others."""

    event: EventOut
    descendants: list[EventOut]
    correlated: list[EventOut]


@API.get("events.impact", needs="read")
async def impact(memory: Memory, request: EventRequest) -> ImpactAnswer:
    """Get the later events of the chain of an event: those it caused and, separately, the others."""
    event = await memory.events.get(request.reference)
    after = await memory.events.impact(event)
    return ImpactAnswer(
        event=event_document(event, request.selected_fields),
        descendants=event_documents(after.descendants, request.selected_fields),
        correlated=event_documents(after.correlated, request.selected_fields),
    )


class FailureAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, the events that caused it, and the agents involved."""

    event: EventOut
    led: list[EventOut]
    agents: tuple[str, ...]


class FailureList(msgspec.Struct, frozen=True, kw_only=True):
    """The latest failures, oldest first."""

    failures: list[FailureAnswer]


@API.get("events.failures", needs="read")
async def failures(memory: Memory, request: LatestRequest) -> FailureList:
    """Get the latest failures that match, at most 100, each with the events that caused it and the agents involved."""
    fields = request.selected_fields
    latest = await memory.events.failures(request.query(limit=min(request.limit, 100)))
    return FailureList(
        failures=[
            FailureAnswer(
                event=event_document(each.event, fields),
                led=event_documents(each.ancestors, fields),
                agents=each.agents,
            )
            for each in latest
        ]
    )


class CompareRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    left: Reference
    right: Reference
    ignore: tuple[str, ...] = ()


class CompareAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many events two chains have in common before their first difference, and that difference."""

    same: int
    equal: bool
    left: EventOut | None
    right: EventOut | None
    differences: tuple[Difference, ...]


@API.get("events.compare", needs="read")
async def compare_chains(memory: Memory, request: CompareRequest) -> CompareAnswer:
    """Compare the chains of two events, event by event, up to the first difference."""
    left, right = [await memory.events.chain(await memory.events.get(each)) for each in (request.left, request.right)]
    compared = compare(left, right, ignore=request.ignore)
    return CompareAnswer(
        same=compared.same,
        equal=compared.is_equal,
        left=None if compared.left is None else event_document(compared.left),
        right=None if compared.right is None else event_document(compared.right),
        differences=compared.differences,
    )


# -- Activity -----------------------------------------------------------------------------------------------------


class OpenSessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An active session, its title, its agents, and its latest event."""

    session: str
    title: str
    agents: tuple[str, ...]
    last_at: datetime
    last: EventOut


class OpenSessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Active sessions, latest last."""

    sessions: list[OpenSessionAnswer]


@API.get("events.open_sessions", needs="read")
async def open_sessions(memory: Memory) -> OpenSessionList:
    """List active sessions, which have not ended and had an event in the last 30 minutes."""
    return OpenSessionList(
        sessions=[
            OpenSessionAnswer(
                session=each.session,
                title=each.title,
                agents=each.agents,
                last_at=each.last_at,
                last=event_document(each.last),
            )
            for each in await memory.events.open_sessions()
        ]
    )


@API.get("events.overview", needs="read")
async def overview(memory: Memory) -> Overview:
    """Summarize recent activity in this space."""
    return await memory.events.overview()
