"""What the dashboard shows, read from memory at once, and how it is said. Nothing here draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.text import Text

from mica.format.lines import counted, harmless, local, one_line
from mica.format.tree import in_tree_order
from mica.memory import Memory
from mica.model.crystal import Crystal
from mica.model.event import MARK, Event, EventId, EventQuery, Mark, mark_of

CRYSTALS_MAX = 500  # the latest; a year of daily work has about as many, and a tree of more is not read
MARKS_COUNTED_MAX = 10_000
LABEL_CHARACTERS = 200  # the terminal cuts it
COLOURS = {"session": "cyan", "day": "green", "week": "yellow", "epoch": "magenta"}


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, as of one moment."""

    crystals: tuple[Crystal, ...] = ()  # that stand, by their end
    session: str | None = None  # in which something happens now
    session_marks: int = 0
    has_marks: bool = False


async def look(memory: Memory) -> Shelf:
    """What there is now. Raises StoreError when the store is away."""
    crystals = await memory.crystals(limit=CRYSTALS_MAX)
    going_on = await memory.open_sessions()
    session = going_on[-1].session if going_on else None
    query = EventQuery(session=session, names=(MARK,), limit=MARKS_COUNTED_MAX)
    marks = await memory.events(query) if session is not None else []
    has_marks = bool(marks) or bool(await memory.events(EventQuery(names=(MARK,), limit=1)))
    return Shelf(crystals=tuple(crystals), session=session, session_marks=len(marks), has_marks=has_marks)


# -- How it is said ---------------------------------------------------------------------------------------------


def node_label(source: Crystal | Mark) -> Text:
    """One line of the hierarchy."""
    if isinstance(source, Mark):
        said = Text.assemble((f"#{source.position} ", "green"), (" ".join(source.tags) + " ", "cyan"))
        return said.append(one_line(source.text, LABEL_CHARACTERS))
    name = one_line(source.label or source.period.partition(":")[2] or source.period, 60)
    return Text.assemble(
        (f"{source.level} ", COLOURS[source.level]),
        (name, "bold"),
        (f" {counted(source.marks, 'mark')} ", "dim"),
        _insight(source),
    )


def _insight(crystal: Crystal) -> str:
    return one_line(" · ".join(statement.text for statement in crystal.insight), LABEL_CHARACTERS)


def recent_label(source: Crystal | Mark) -> Text:
    """One line of the list: what it is, when, and what it says."""
    if isinstance(source, Mark):
        return node_label(source)
    return Text.assemble(
        (f"[{source.level}] ", COLOURS[source.level]),
        (f"{local(source.end_at)} ", "dim"),
        _insight(source),
    )


def status(shelf: Shelf, *, level: str | None) -> str:
    now = f"session {one_line(shelf.session, 40)}: {counted(shelf.session_marks, 'mark')}" if shelf.session else ""
    chosen = f"{level} crystals" if level else "all levels"
    return " · ".join(filter(None, [now or "no session goes on", counted(len(shelf.crystals), "crystal"), chosen]))


def nothing(shelf: Shelf) -> str:
    """What to do where there is nothing to show."""
    if shelf.has_marks:
        return "No crystals yet. They are made of marks when a session is over; C makes them now."
    return (
        "Nothing here yet.\n\n"
        "mica up                    imports what your agents did\n"
        'mica mark "what you saw"   records an observation\n\n'
        "Crystals are made of marks when a session is over, or with C."
    )


def crystal_detail(crystal: Crystal, handles: Mapping[EventId, str]) -> Text:
    """All that a crystal says, with the marks that each statement cites."""
    told = (
        f"{local(crystal.start_at)} – {local(crystal.end_at)}, {counted(crystal.marks, 'mark')}, "
        f"{crystal.tokens} of {crystal.source_tokens} tokens, confidence {crystal.confidence:.2f}, "
        f"{one_line(crystal.method, 40)}, revision {crystal.revision}\n\n"
    )
    text = Text.assemble(
        (f"{crystal.level} {one_line(crystal.label or crystal.period, 80)}", "bold"),
        (f"  #{crystal.position}\n", "green"),
        (told, "dim"),
    )
    parts = (("", crystal.insight), ("why it matters: ", crystal.significance), ("principle: ", crystal.principles))
    for kind, statements in parts:
        for statement in statements:
            cited = " ".join(handles.get(mark, "(gone)") for mark in statement.sources)
            text.append(kind, "yellow").append(harmless(statement.text)).append(f"  {cited}\n", "green")
    if crystal.topics:
        text.append(f"\ntopics: {one_line(', '.join(crystal.topics), 400)}\n", "dim")
    if crystal.open:
        text.append("open: " + " ".join(handles.get(mark, "(gone)") for mark in crystal.open) + "\n", "red")
    return text


def expanded_detail(crystal: Crystal, sources: Sequence[Mark] | Sequence[Crystal]) -> Text:
    """What a crystal rests on, and why something was left out."""
    cited = {mark for statement in crystal.statements for mark in statement.sources}
    reasons = {dropped.id: dropped.reason for dropped in crystal.dropped}
    text = Text.assemble(("rests on ", "bold"), f"{counted(len(crystal.sources), 'source')}\n")
    for source in sources:
        is_cited = source.id in cited if isinstance(source, Mark) else source.id not in reasons
        note = ("cited ", "green") if is_cited else (f"{reasons.get(source.id, 'left out')} ", "dim")
        text.append(*note).append_text(node_label(source)).append("\n")
    if gone := len(crystal.sources) - len(sources):
        text.append(f"{counted(gone, 'source')} cannot be read any more\n", "red")
    return text


def mark_detail(mark: Mark) -> Text:
    told = [
        local(mark.at),
        mark.session and f"session {mark.session}",
        mark.agent and f"agent {mark.agent}",
        mark.origin,
    ]
    text = Text.assemble(
        (" ".join(["mark", *mark.tags]), "bold"),
        (f"  #{mark.position}\n", "green"),
        (one_line(", ".join(filter(None, told)), 300) + "\n\n", "dim"),
        harmless(mark.text) + "\n",
    )
    if mark.why:
        text.append("why: ", "yellow").append(harmless(mark.why) + "\n")
    for principle in mark.principles:
        text.append("principle: ", "yellow").append(harmless(principle) + "\n")
    return text


def tree_detail(selected: Event, ancestors: Sequence[Event], below: Sequence[Event]) -> Text:
    """What led to an event, nearest last, and what it led to."""
    root_depth = ancestors[-1].depth if ancestors else selected.depth
    text = Text.assemble(("tree of ", "bold"), (f"{selected.number}\n", "green"))
    above = [(event, "dim") for event in reversed(ancestors)]
    for event, style in [*above, (selected, "reverse"), *((event, "") for event in in_tree_order(selected.id, below))]:
        data = event.data
        said = (
            mark_of(event).text if event.name == MARK else data.get("command") or data.get("path") or data.get("text")
        )
        relation = data.get("relation") if event.name == MARK else None
        name = f"{event.name} {relation}" if isinstance(relation, str) else event.name
        text.append("  " * (event.depth - root_depth)).append(f"{event.number} ", "green")
        text.append(one_line(f"{name}: {said if isinstance(said, str) else ''}", LABEL_CHARACTERS), style).append("\n")
    return text


def preview(crystals: Sequence[Crystal]) -> Text:
    """What crystallizing would make."""
    text = Text.assemble(("Crystallize now\n\n", "bold"))
    for crystal in crystals:
        name, marks = one_line(crystal.period, 80), counted(crystal.marks, "mark")
        text.append(f"{name}: {marks} in {crystal.tokens} of {crystal.source_tokens} tokens\n")
        text.append(f"  {_insight(crystal)}\n", "dim")
    return (
        text.append("\nEnter or y: make ", "bold")
        .append("them" if len(crystals) > 1 else "it")
        .append("   Esc or n: not")
    )
