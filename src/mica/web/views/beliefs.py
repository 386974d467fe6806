"""The contents of the Beliefs page: beliefs by kind, conflicts, ended beliefs, and the history of one belief."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.format.beliefs import HEADINGS, certainty_words, ending_words, speaker
from mica.format.lines import one_line
from mica.memory import Memory
from mica.model.belief import KINDS, Belief, BeliefId, BeliefKind, Ending
from mica.model.event import Event, is_tombstone

LISTED = 500  # beliefs that hold; a person reads no more on one page
ENDED_LISTED = 50  # the latest
ENDINGS: dict[BeliefKind, Ending] = {"task": "done", "question": "answered"}  # of the button; else withdrawn


class BeliefRow(msgspec.Struct, frozen=True, kw_only=True):
    """One belief as a line, in words."""

    belief: Belief
    who: str
    certainty: str
    ending: str  # how and when it ended; "" while it holds
    conflicts: tuple[Belief, ...] = ()  # that hold, too, and say something else

    @property
    def closing(self) -> Ending:
        """How its button ends it: a task is done, a question is answered, anything else is withdrawn."""
        return ENDINGS.get(self.belief.kind, "withdrawn")


class BeliefShelf(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, by kind, and what ended lately."""

    groups: tuple[tuple[str, tuple[BeliefRow, ...]], ...] = ()  # headings and their beliefs
    forming: tuple[BeliefRow, ...] = ()  # no brief states them as facts yet
    ended: tuple[BeliefRow, ...] = ()
    conflicts: int = 0  # beliefs that another one contradicts


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A belief in a line of replacements, with its evidence."""

    row: BeliefRow
    evidence: tuple[tuple[Event, str], ...]  # each event and its text


class BeliefDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One belief, and the line of replacements that it belongs to, the latest first."""

    row: BeliefRow
    history: tuple[HistoryEntry, ...]


def row_of(belief: Belief, known: dict[BeliefId, Belief] | None = None) -> BeliefRow:
    """Return a belief as a line. `known` has the beliefs that it may conflict with."""
    others = [(known or {}).get(each) for each in belief.conflicts] if belief.state != "ended" else []
    return BeliefRow(
        belief=belief,
        who=one_line(speaker(belief), 40),
        certainty=certainty_words(belief),
        ending=ending_words(belief),
        conflicts=tuple(each for each in others if each is not None and each.state != "ended"),
    )


def kind_of(text: str | None) -> BeliefKind | None:
    """Return the kind of belief with this name, or None if there is no such kind."""
    return next((kind for kind in KINDS if kind == text), None)


async def shelf(memory: Memory, *, kind: BeliefKind | None = None) -> BeliefShelf:
    """Read what holds, those with the latest evidence first, and what ended lately."""
    beliefs = await memory.beliefs.list(kind, limit=LISTED)
    every = await _rows(memory, beliefs)
    rows = [row for row in every if row.belief.is_in_force]
    groups = tuple(
        (heading, tuple(row for row in rows if row.belief.kind == each))
        for each, heading in HEADINGS.items()
        if any(row.belief.kind == each for row in rows)
    )
    ended = await memory.beliefs.list(kind, "ended", limit=ENDED_LISTED)
    return BeliefShelf(
        groups=groups,
        forming=tuple(row for row in every if not row.belief.is_in_force),
        ended=tuple(map(row_of, ended)),
        conflicts=sum(bool(row.conflicts) for row in every),
    )


async def _rows(memory: Memory, beliefs: Sequence[Belief]) -> list[BeliefRow]:
    known = {each.id: each for each in beliefs}
    missing = {other for each in beliefs for other in each.conflicts} - set(known)
    known |= {each.id: each for each in await memory.beliefs.select(sorted(missing))}
    return [row_of(each, known) for each in beliefs]


async def belief_detail(memory: Memory, reference: str) -> BeliefDetail:
    """Read one belief with its evidence and its history. Raises the errors of `memory.beliefs.get`."""
    belief = await memory.beliefs.get(reference)
    [row] = await _rows(memory, [belief])
    line = [
        HistoryEntry(row=row_of(each), evidence=tuple(_texts(await memory.beliefs.evidence(each))))
        for each in reversed(await memory.beliefs.history(belief))
    ]
    return BeliefDetail(row=row, history=tuple(line))


def _texts(events: Iterable[Event]) -> list[tuple[Event, str]]:
    return [
        (event, "purged" if is_tombstone(event) else str(event.data.get("text") or event.data.get("reason") or ""))
        for event in events
    ]
