"""The contents of the Crystals page: the hierarchy from epochs down to marks, and the details of one crystal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mica.events.references import REFERENCES_MAX
from mica.format.tree import forest
from mica.memory import Memory
from mica.model.crystal import LEVELS, Crystal, Level
from mica.model.event import MARK, MICROSECOND, Event, EventId, EventQuery
from mica.model.hit import CrystalHit
from mica.model.mark import Mark, mark_of

LISTED: dict[Level, int] = {"epoch": 20, "week": 40, "day": 60, "session": 80}  # how many of the latest are read
HITS_MAX = 25


class CrystalNode(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the hierarchy: a crystal or a mark."""

    id: EventId
    position: int | None
    level: str  # of a crystal, or "mark"
    name: str
    text: str
    at: datetime
    until: datetime
    marks: int = 0
    tokens: int = 0
    source_tokens: int = 0
    tags: tuple[str, ...] = ()
    agent: str | None = None
    open: int = 0
    left_out: str | None = None  # why the crystal above does not cite it
    score: float | None = None  # of a search result


class CrystalShelf(msgspec.Struct, frozen=True, kw_only=True):
    """The crystals that no other crystal covers, and counts. The sources of a crystal are loaded when it is opened."""

    nodes: tuple[CrystalNode, ...] = ()
    counts: dict[str, int] = {}  # number of crystals of each level; LISTED limits it
    has_marks: bool = False
    session: str | None = None  # the active one
    session_marks: int = 0


class CitedStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement and the events it cites."""

    kind: str  # insight, why it matters, principle
    text: str
    cited: tuple[Event, ...]
    missing: int = 0  # cited events that no longer exist


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One crystal, its statements with the events they cite, and its open marks."""

    crystal: Crystal
    statements: tuple[CitedStatement, ...]
    open: tuple[Mark, ...]
    is_live: bool  # neither superseded nor retracted


async def shelf(memory: Memory, *, level: Level | None = None) -> CrystalShelf:
    """Read the crystals that no other crystal covers, latest first; with `level`, the crystals of that level."""
    levels = [level] if level is not None else list(LISTED)
    by_level = {each: await memory.crystals.list(level=each, limit=LISTED[each]) for each in levels}
    crystals = [crystal for each in by_level.values() for crystal in each]
    sessions = await memory.events.open_sessions()
    session = sessions[-1].session if sessions else None
    query = EventQuery(session=session, names=(MARK,), limit=1_000)
    return CrystalShelf(
        nodes=tuple(node_of(branch.crystal) for branch in forest(crystals)),
        counts={each: len(listed) for each, listed in by_level.items()},
        has_marks=bool(await memory.events.query(EventQuery(names=(MARK,), limit=1))),
        session=session,
        session_marks=len(await memory.events.query(query)) if session is not None else 0,
    )


def node_of(source: Crystal | Mark, *, left_out: str | None = None, score: float | None = None) -> CrystalNode:
    if isinstance(source, Mark):
        return CrystalNode(
            id=source.id,
            position=source.position,
            level="mark",
            name=" ".join(source.tags) or "mark",
            text=source.text,
            at=source.at,
            until=source.at,
            tags=source.tags,
            agent=source.agent,
            left_out=left_out,
            score=score,
        )
    return CrystalNode(
        id=source.id,
        position=source.position,
        level="tree" if source.is_tree else source.level,
        name=source.label or source.period.partition(":")[2] or source.period,
        text=source.text,
        at=source.start_at,
        until=source.end_at,
        marks=source.marks,
        tokens=source.tokens,
        source_tokens=source.source_tokens,
        open=len(source.open),
        left_out=left_out,
        score=score,
    )


async def children(memory: Memory, reference: str) -> list[CrystalNode]:
    """Read the sources of a crystal, latest first. `left_out` of an uncited source says why no statement cites it."""
    crystal = await memory.crystals.get(reference)
    reasons = {dropped.id: dropped.reason for dropped in crystal.dropped}
    sources: Sequence[Crystal | Mark] = await memory.crystals.expand(crystal.id)
    return [node_of(source, left_out=reasons.get(source.id)) for source in reversed(sources)]


async def detail(memory: Memory, reference: str) -> Detail:
    """Read one crystal, with the events that its statements cite. Raises the errors of `memory.crystals.get`."""
    crystal = await memory.crystals.get(reference)
    cited = [mark for statement in crystal.statements for mark in statement.sources]
    references = list(dict.fromkeys([*cited, *crystal.open]))[:REFERENCES_MAX]
    known = {event.id: event for event in (await memory.events.resolve(references)).events}
    parts = (("", crystal.insight), ("why it matters", crystal.significance), ("principle", crystal.principles))
    statements = [
        CitedStatement(
            kind=kind,
            text=statement.text,
            cited=tuple(known[mark] for mark in statement.sources if mark in known),
            missing=sum(mark not in known for mark in statement.sources),
        )
        for kind, part in parts
        for statement in part
    ]
    just_after = crystal.start_at + MICROSECOND
    around = await memory.crystals.list(level=crystal.level, since=crystal.end_at, until=just_after, limit=None)
    return Detail(
        crystal=crystal,
        statements=tuple(statements),
        open=tuple(mark_of(known[mark]) for mark in crystal.open if mark in known and known[mark].name == MARK),
        is_live=any(each.id == crystal.id for each in around),
    )


async def answers(memory: Memory, query: str, *, level: Level | None = None) -> list[CrystalNode]:
    """Search marks and crystals, best first."""
    hits = await memory.search(query, level=level, limit=HITS_MAX)
    return [node_of(hit.crystal if isinstance(hit, CrystalHit) else hit.mark, score=hit.score) for hit in hits]


async def preview(memory: Memory) -> Sequence[CrystalNode]:
    """Return the session crystals that would be made now. Nothing is recorded."""
    made = await memory.crystals.make(level="session", dry_run=True)
    return [node_of(crystal) for crystal in made]


def level_of(text: str | None) -> Level | None:
    """Return the crystal level with this name, or None if there is no such level."""
    return next((level for level in LEVELS if level == text), None)
