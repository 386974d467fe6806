"""The log over HTTP: the latest, page by page, chains, trees, impact, failures."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mica.events.chains import Difference, compare
from mica.format.documents import event_document, event_documents
from mica.memory import Memory
from mica.web.api.fields import Chosen, EventOut, Limit, Position, Reference, Which
from mica.web.operations import API


class LatestAsked(Which, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100


class PageAsked(Which, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Position = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class OneAsked(Chosen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference


class TreeAsked(OneAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    depth: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


class ResolveAsked(Chosen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    references: Annotated[tuple[Reference, ...], msgspec.Meta(max_length=100)]


class CompareAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    left: Reference
    right: Reference
    ignore: tuple[str, ...] = ()


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Events, oldest first."""

    events: list[EventOut]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Events in commit order, and the cursor of what comes after them; None at the end of the log."""

    events: list[EventOut]
    next: int | None


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """An event, what led to it, nearest first, and what it led to, oldest first."""

    event: EventOut
    ancestors: list[EventOut]
    descendants: list[EventOut]


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """What came after an event: caused by it, and apart from that merely in its chain."""

    event: EventOut
    descendants: list[EventOut]
    correlated: list[EventOut]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, what led to it, and who was part of it."""

    event: EventOut
    led: list[EventOut]
    agents: tuple[str, ...]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The latest failures, oldest first."""

    failures: list[Failure]


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Events in the order asked, and what is not there."""

    found: list[EventOut]
    missing: tuple[str, ...]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """How far two chains went together, and where they part."""

    same: int
    equal: bool
    left: EventOut | None
    right: EventOut | None
    differences: tuple[Difference, ...]


@API.get("/events", tag="events")
async def events(memory: Memory, asked: LatestAsked) -> Events:
    """The latest events that fit, oldest first."""
    found = await memory.events(asked.query(limit=asked.limit))
    return Events(events=event_documents(found, asked.chosen))


@API.get("/log", tag="events")
async def log(memory: Memory, asked: PageAsked) -> Page:
    """The log in commit order, page by page: `next` is the `after` of the next page. None is missed or repeated."""
    found = []
    async for event in memory.log(asked.query(limit=None), after=asked.after):
        found.append(event)
        if len(found) == asked.limit:
            break
    at_end = len(found) < asked.limit
    return Page(events=event_documents(found, asked.chosen), next=None if at_end else found[-1].position)


@API.get("/events/{reference}", tag="events")
async def event(memory: Memory, asked: OneAsked) -> EventOut:
    """One event by its id or position."""
    return event_document(await memory.event(asked.reference), asked.chosen)


@API.get("/events/{reference}/chain", tag="events")
async def chain(memory: Memory, asked: OneAsked) -> Events:
    """All events of the chain that an event belongs to, in order of time."""
    found = await memory.chain(await memory.event(asked.reference))
    return Events(events=event_documents(found, asked.chosen))


@API.get("/events/{reference}/tree", tag="events")
async def tree(memory: Memory, asked: TreeAsked) -> Tree:
    """What led to an event, and what it led to, at most `depth` steps below it."""
    found = await memory.event(asked.reference)
    return Tree(
        event=event_document(found, asked.chosen),
        ancestors=event_documents(await memory.ancestors(found), asked.chosen),
        descendants=event_documents(await memory.descendants(found, depth=asked.depth), asked.chosen),
    )


@API.get("/events/{reference}/impact", tag="events")
async def impact(memory: Memory, asked: OneAsked) -> Impact:
    """What came after an event: what it led to, and apart from that what merely followed in its chain."""
    found = await memory.event(asked.reference)
    told = await memory.impact(found)
    return Impact(
        event=event_document(found, asked.chosen),
        descendants=event_documents(told.descendants, asked.chosen),
        correlated=event_documents(told.correlated, asked.chosen),
    )


@API.get("/errors", tag="events")
async def errors(memory: Memory, asked: LatestAsked) -> Failures:
    """The latest failures that fit, each with the chain that led to it and the agents that were part of it."""
    fields = asked.chosen
    found = await memory.failures(asked.query(limit=min(asked.limit, 100)))
    return Failures(
        failures=[
            Failure(
                event=event_document(each.event, fields),
                led=event_documents(each.led, fields),
                agents=each.agents,
            )
            for each in found
        ]
    )


@API.post("/events/resolve", tag="events")
async def resolve(memory: Memory, asked: ResolveAsked) -> Resolved:
    """Up to 100 events by id or position, in the order given, and those that are not there by name."""
    told = await memory.resolve(asked.references)
    return Resolved(found=event_documents(told.found, asked.chosen), missing=told.missing)


@API.get("/compare", tag="events")
async def compare_runs(memory: Memory, asked: CompareAsked) -> Compared:
    """Compare the chains of two events step by step: where they part first, and in what."""
    left, right = [await memory.chain(await memory.event(each)) for each in (asked.left, asked.right)]
    told = compare(left, right, ignore=asked.ignore)
    return Compared(
        same=told.same,
        equal=told.is_equal,
        left=None if told.left is None else event_document(told.left),
        right=None if told.right is None else event_document(told.right),
        differences=told.differences,
    )
