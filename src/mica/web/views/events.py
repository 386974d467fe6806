"""The contents of the Events page: matching events, and the chain of one event as a tree and a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from mica.brief.receipts import SWITCHED
from mica.format.charts import Dot, timeline
from mica.format.documents import BUNDLES, Document, event_document, select_fields
from mica.format.lines import one_line
from mica.format.tree import in_tree_order
from mica.memory import Memory
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MICROSECOND, Event, EventId, EventQuery, is_tombstone
from mica.model.walk import ANSWER

ROWS_MAX = 100
BEHIND_MAX = 300  # positions that a reconnecting tail catches up on: a screen or two
TIED_MAX = 1_000  # events with the same time; an import can create many
CHAIN_MAX = 400  # events of a chain that are drawn; the rest are only counted
INDENT_MAX = 12  # deepest indentation that is drawn
TEXT_FILTERS = ("session", "agent", "user", "text")


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The filters of the page, as in the query string of its address."""

    names: str = ""
    session: str = ""
    agent: str = ""
    user: str = ""
    text: str = ""
    errors: bool = False
    bundle: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> EventFilter:
        """Parse the fields of a query string. Unknown fields are ignored."""
        known = {name: fields.get(name, "").strip() for name in ("names", "bundle", *TEXT_FILTERS)}
        if known["bundle"] not in BUNDLES:
            known["bundle"] = ""
        return cls(errors=fields.get("errors", "") not in ("", "0"), **known)

    def query(self, limit: int | None = ROWS_MAX) -> EventQuery:
        filters = {name: getattr(self, name) or None for name in TEXT_FILTERS}
        return EventQuery(
            names=tuple(self.names.replace(",", " ").split()),
            errors=True if self.errors else None,
            limit=limit,
            **filters,
        )

    @property
    def is_narrowed(self) -> bool:
        return any((self.names, self.session, self.agent, self.user, self.text, self.errors))


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event as one row of the table, with a short summary."""

    id: EventId
    position: int | None
    name: str
    at: datetime
    summary: str
    session: str | None
    agent: str | None
    origin: str
    depth: int
    error: bool
    document: Document | None = None  # the fields of the chosen bundle


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the event table, latest first, and the position after which newer events begin."""

    rows: tuple[EventRow, ...]
    position: int
    has_older: bool = False  # there may be more before the last row


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a chain: its row in the table, its indentation in the tree, and its time in the chain."""

    row: EventRow
    indent: int
    after_s: float  # since the chain began
    offset: float  # the same as a share of the duration of the chain, 0 to 1
    is_current: bool  # it is the event that the page is about


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain (the events with the same correlation or, without one, the same root) as a tree, and its duration."""

    links: tuple[Link, ...]
    events: int
    span_s: float
    failures: int
    agents: tuple[str, ...]


def describe_event(event: Event) -> str:
    """Describe an event by its data, such as its text, path or command; empty if it has nothing of the kind."""
    if is_tombstone(event):
        return "purged"
    if event.name == CRYSTAL:
        return crystal_of(event).text
    data = event.data
    if event.name == SWITCHED:
        return "on" if data.get("on") else "off"
    if event.name == ANSWER:
        tokens = data.get("output_tokens")
        written = f"{tokens:,} tokens" if isinstance(tokens, int) else ""
        return ", ".join(filter(None, (str(data.get("model") or ""), written)))
    path = data.get("path")
    if isinstance(path, str):
        first, last = data.get("start_line"), data.get("end_line")
        lines = f":{first}–{last}" if isinstance(first, int) and isinstance(last, int) else ""
        return f"{path}{lines}"
    for name in ("text", "query", "concept", "command", "outcome", "reason", "slug", "name", "title", "error"):
        if isinstance(value := data.get(name), str) and value.strip():
            return value
    return ""


def row_of(event: Event, bundle: str = "") -> EventRow:
    document = event_document(event, select_fields(bundle=bundle)) if bundle else None
    return EventRow(
        id=event.id,
        position=event.position,
        name=event.name,
        at=event.at,
        summary=describe_event(event)[:400],
        session=event.context.session,
        agent=event.context.agent,
        origin=event.origin,
        depth=event.depth,
        error=event.error,
        document=document,
    )


async def latest(memory: Memory, filters: EventFilter) -> EventPage:
    """Read the latest matching events."""
    position = await memory.events.position()
    events = await memory.events.query(filters.query())
    return EventPage(rows=_latest_first(events, filters), position=position, has_older=len(events) == ROWS_MAX)


async def older(memory: Memory, filters: EventFilter, *, before: EventId) -> EventPage:
    """Read the matching events before an event, latest first. Raises UnknownEvent."""
    first = await memory.events.get(before)
    query = msgspec.structs.replace(filters.query(ROWS_MAX + TIED_MAX), until=first.at + MICROSECOND)
    earlier = [event for event in await memory.events.query(query) if event.sort_key < first.sort_key]
    shown = earlier[-ROWS_MAX:]
    return EventPage(rows=_latest_first(shown, filters), position=first.position or 0, has_older=len(shown) == ROWS_MAX)


def _latest_first(events: Sequence[Event], filters: EventFilter) -> tuple[EventRow, ...]:
    return tuple(row_of(event, filters.bundle) for event in reversed(events))


async def later(memory: Memory, filters: EventFilter, *, after: int) -> EventPage:
    """Read the matching events after a position, latest first.

    Only the last BEHIND_MAX positions of the log are searched, and at most the last ROWS_MAX events are returned.
    """
    position = await memory.events.position()
    start = max(after, position - BEHIND_MAX)
    events = [event async for event in memory.events.log(filters.query(None), after=start)]
    return EventPage(rows=_latest_first(events[-ROWS_MAX:], filters), position=position)


async def chain_of(memory: Memory, event: Event) -> Chain:
    """Read the chain of an event, arranged as a tree, each event with its time since the chain began."""
    events = await memory.events.chain(event)
    return arrange_chain(events, current=event.id)


def arrange_chain(events: Sequence[Event], *, current: EventId) -> Chain:
    """Arrange the events of a chain as a tree. `current` is the id of the event that the page is about.

    Of a long chain, only CHAIN_MAX events around that event become links.
    """
    known = {event.id for event in events}
    tops = [event for event in events if event.parent_id is None or event.parent_id not in known]
    ordered = [each for top in tops for each in (top, *in_tree_order(top.id, events))]
    begins, ends = (min(e.at for e in events), max(e.at for e in events)) if events else (None, None)
    span_s = (ends - begins).total_seconds() if begins is not None and ends is not None else 0.0
    lowest = min((event.depth for event in events), default=0)
    place = next((number for number, event in enumerate(ordered) if event.id == current), 0)
    first = max(0, min(place - CHAIN_MAX // 2, len(ordered) - CHAIN_MAX))
    links = []
    for event in ordered[first : first + CHAIN_MAX]:
        after_s = (event.at - begins).total_seconds() if begins is not None else 0.0
        links.append(
            Link(
                row=row_of(event),
                indent=min(INDENT_MAX, event.depth - lowest),
                after_s=after_s,
                offset=after_s / span_s if span_s else 0.0,
                is_current=event.id == current,
            )
        )
    return Chain(
        links=tuple(links),
        events=len(events),
        span_s=span_s,
        failures=sum(event.error for event in events),
        agents=tuple(sorted({event.context.agent for event in events if event.context.agent})),
    )


def chain_chart(chain: Chain) -> str:
    """Draw the events of a chain as an SVG chart by time and depth."""
    dots = [
        Dot(
            after_s=link.after_s,
            row=link.indent,
            title="\n".join(filter(None, (link.row.name, one_line(link.row.summary, 60), f"+{link.after_s:.3g} s"))),
            kind="bad" if link.row.error else "accent" if link.is_current else "session",
            radius=7.0 if link.is_current else 4.5,
        )
        for link in chain.links
    ]
    depth = max((link.indent for link in chain.links), default=0)
    return timeline(
        "The events of the chain by time and depth", dots, rows=[f"depth {row}" for row in range(depth + 1)]
    )
