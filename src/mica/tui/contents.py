"""The contents of the terminal dashboard: values read from memory, formatted as texts. `mica.tui.app` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.text import Text

from mica.format.lines import format_time, one_line, plural, strip_control
from mica.format.tree import in_tree_order
from mica.memory import Memory
from mica.model.crystal import Crystal
from mica.model.event import MARK, Event, EventId, EventQuery
from mica.model.mark import Mark, mark_of

CRYSTALS_MAX = 500  # the latest crystals, which are shown: about a year of daily work
MARKS_COUNTED_MAX = 10_000
LABEL_CHARACTERS = 200  # the terminal cuts it further
COLOURS = {"session": "cyan", "day": "green", "week": "yellow", "epoch": "magenta"}


class DashboardContents(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a space that the dashboard shows, as it was at one moment."""

    crystals: tuple[Crystal, ...] = ()  # those that are not superseded or retracted, in order of their end
    session: str | None = None  # the latest active session
    session_marks: int = 0  # number of marks in this session
    has_marks: bool = False  # whether the space has any marks


async def read_contents(memory: Memory) -> DashboardContents:
    """Return the current contents of the dashboard. Raises StoreError if the store is unavailable."""
    crystals = await memory.crystals.list(limit=CRYSTALS_MAX)
    sessions = await memory.events.open_sessions()
    session = sessions[-1].session if sessions else None
    query = EventQuery(session=session, names=(MARK,), limit=MARKS_COUNTED_MAX)
    marks = await memory.events.query(query) if session is not None else []
    has_marks = bool(marks) or bool(await memory.events.query(EventQuery(names=(MARK,), limit=1)))
    return DashboardContents(crystals=tuple(crystals), session=session, session_marks=len(marks), has_marks=has_marks)


# -- Texts -----------------------------------------------------------------------------------------------------


def node_label(source: Crystal | Mark) -> Text:
    """Return a crystal or a mark as one line of the hierarchy."""
    if isinstance(source, Mark):
        label = Text.assemble((f"#{source.position} ", "green"), (" ".join(source.tags) + " ", "cyan"))
        return label.append(one_line(source.text, LABEL_CHARACTERS))
    name = one_line(source.label or source.period.partition(":")[2] or source.period, 60)
    return Text.assemble(
        (f"{source.level} ", COLOURS[source.level]),
        (name, "bold"),
        (f" {plural(source.marks, 'mark')} ", "dim"),
        _insight(source),
    )


def _insight(crystal: Crystal) -> str:
    return one_line(" · ".join(statement.text for statement in crystal.insight), LABEL_CHARACTERS)


def recent_label(source: Crystal | Mark) -> Text:
    """Return a crystal or a mark as one line of a list of recent crystals or of search results."""
    if isinstance(source, Mark):
        return node_label(source)
    return Text.assemble(
        (f"[{source.level}] ", COLOURS[source.level]),
        (f"{format_time(source.end_at)} ", "dim"),
        _insight(source),
    )


def status(contents: DashboardContents, *, level: str | None) -> str:
    marks = plural(contents.session_marks, "mark")
    now = f"session {one_line(contents.session, 40)}: {marks}" if contents.session else "no active session"
    chosen = f"{level} crystals" if level else "all levels"
    return " · ".join([now, plural(len(contents.crystals), "crystal"), chosen])


def next_steps(contents: DashboardContents) -> str:
    """Return the text that is shown in a space without crystals. It says how crystals are made."""
    if contents.has_marks:
        return "No crystals yet. They are made from marks when a session ends; C makes them now."
    return (
        "Nothing here yet.\n\n"
        "mica up                    imports the work of your agents\n"
        'mica mark "what you saw"   records an observation\n\n'
        "Crystals are made from marks when a session ends, or with C."
    )


def crystal_detail(crystal: Crystal, numbers: Mapping[EventId, str]) -> Text:
    """Return a whole crystal as text. Each statement ends with the numbers of the marks that it cites.

    `numbers` maps the id of each mark to its number, such as `#12`.
    """
    facts = (
        f"{format_time(crystal.start_at)} – {format_time(crystal.end_at)}, {plural(crystal.marks, 'mark')}, "
        f"{crystal.tokens} of {crystal.source_tokens} tokens, confidence {crystal.confidence:.2f}, "
        f"{one_line(crystal.method, 40)}, revision {crystal.revision}\n\n"
    )
    text = Text.assemble(
        (f"{crystal.level} {one_line(crystal.label or crystal.period, 80)}", "bold"),
        (f"  #{crystal.position}\n", "green"),
        (facts, "dim"),
    )
    parts = (("", crystal.insight), ("why it matters: ", crystal.significance), ("principle: ", crystal.principles))
    for kind, statements in parts:
        for statement in statements:
            cited = " ".join(numbers.get(mark, "(missing)") for mark in statement.sources)
            text.append(kind, "yellow").append(strip_control(statement.text)).append(f"  {cited}\n", "green")
    if crystal.topics:
        text.append(f"\ntopics: {one_line(', '.join(crystal.topics), 400)}\n", "dim")
    if crystal.open:
        text.append("open: " + " ".join(numbers.get(mark, "(missing)") for mark in crystal.open) + "\n", "red")
    return text


def expanded_detail(crystal: Crystal, sources: Sequence[Mark] | Sequence[Crystal]) -> Text:
    """Return the sources of a crystal as text: each as cited, or with the reason why the crystal does not cite it.

    `sources` are the sources that could be read.
    """
    cited = {mark for statement in crystal.statements for mark in statement.sources}
    reasons = {dropped.id: dropped.reason for dropped in crystal.dropped}
    text = Text.assemble(("made from ", "bold"), f"{plural(len(crystal.sources), 'source')}\n")
    for source in sources:
        is_cited = source.id in cited if isinstance(source, Mark) else source.id not in reasons
        note = ("cited ", "green") if is_cited else (f"{reasons.get(source.id, 'left out')} ", "dim")
        text.append(*note).append_text(node_label(source)).append("\n")
    if missing := len(crystal.sources) - len(sources):
        text.append(f"{plural(missing, 'source')} can no longer be read\n", "red")
    return text


def mark_detail(mark: Mark) -> Text:
    facts = [
        format_time(mark.at),
        mark.session and f"session {mark.session}",
        mark.agent and f"agent {mark.agent}",
        mark.origin,
    ]
    text = Text.assemble(
        (" ".join(["mark", *mark.tags]), "bold"),
        (f"  #{mark.position}\n", "green"),
        (one_line(", ".join(filter(None, facts)), 300) + "\n\n", "dim"),
        strip_control(mark.text) + "\n",
    )
    if mark.why:
        text.append("why: ", "yellow").append(strip_control(mark.why) + "\n")
    for principle in mark.principles:
        text.append("principle: ", "yellow").append(strip_control(principle) + "\n")
    return text


def tree_detail(selected: Event, ancestors: Sequence[Event], below: Sequence[Event]) -> Text:
    """Return an indented tree as text: the ancestors of an event, the event itself, and its descendants.

    `ancestors` begins with the parent of the event, and `below` are the descendants in order of time.
    """
    root_depth = ancestors[-1].depth if ancestors else selected.depth
    text = Text.assemble(("tree of ", "bold"), (f"{selected.number}\n", "green"))
    above = [(event, "dim") for event in reversed(ancestors)]
    for event, style in [*above, (selected, "reverse"), *((event, "") for event in in_tree_order(selected.id, below))]:
        data = event.data
        summary = (
            mark_of(event).text if event.name == MARK else data.get("command") or data.get("path") or data.get("text")
        )
        relation = data.get("relation") if event.name == MARK else None
        name = f"{event.name} {relation}" if isinstance(relation, str) else event.name
        text.append("  " * (event.depth - root_depth)).append(f"{event.number} ", "green")
        line = one_line(f"{name}: {summary if isinstance(summary, str) else ''}", LABEL_CHARACTERS)
        text.append(line, style).append("\n")
    return text


def preview(crystals: Sequence[Crystal]) -> Text:
    """Return the crystals that would be made now as text, with the keys that confirm or cancel."""
    text = Text.assemble(("Crystallize now\n\n", "bold"))
    for crystal in crystals:
        name, marks = one_line(crystal.period, 80), plural(crystal.marks, "mark")
        text.append(f"{name}: {marks} in {crystal.tokens} of {crystal.source_tokens} tokens\n")
        text.append(f"  {_insight(crystal)}\n", "dim")
    return (
        text.append("\nEnter or y: make ", "bold")
        .append("them" if len(crystals) > 1 else "it")
        .append("   Esc or n: cancel")
    )
