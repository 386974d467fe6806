"""What the next agent needs to start: headings and quotes within a budget, every line with where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mica.crystals.open_marks import OPEN_TAGS, is_fulfilled, live_marks
from mica.events.activity import STEP_NAMES, Visit, count_visits
from mica.format.fence import CLOSING, OPENING, bound_tokens, neutralize_entry
from mica.format.lines import HANDLES_MAX
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import MARK, Event, EventId, EventQuery
from mica.model.mark import Mark
from mica.redact import redact
from mica.store.protocol import CrystalIndex, EventLog, Store, TextIndex
from mica.store.query import latest_first
from mica.tokens import estimate

NEXT_TAGS = frozenset(["next", "task", "todo"])  # of marks that say what is to be done
MARKS_MAX = 1_000  # of a session that are looked at: the latest
STEPS_MAX = 500
LATEST_MAX = 10_000  # events that are looked through for the latest session: a tenth of a second
RECENT_MAX, FAILED_MAX, FILES_MAX = 5, 3, 8
JOINED_TOKENS = 2  # that a line costs besides, where it is joined to others
QUOTE_CHARACTERS_MAX = 600  # a longer one would push out all others, and its handle leads to the whole

SESSION, NEXT, OPEN, FAILED, MARKS, FILES, EARLIER = (
    "This session", "Next", "Open", "Failed last", "Not crystallized", "Files", "Earlier",
)  # fmt: skip
SHOWN = (SESSION, MARKS, NEXT, OPEN, FAILED, FILES, EARLIER)
FIRST = (NEXT, OPEN, SESSION, FAILED, MARKS, FILES, EARLIER)  # who gets room when it is scarce


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A quote, and what it comes from."""

    heading: str
    text: str
    sources: tuple[EventId, ...]
    handles: tuple[str, ...]  # by which a person can ask for the sources


class HandoffFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a session is handed over."""

    session: str | None
    task: str | None = None
    marks: tuple[Mark, ...] = ()  # of this session, that stand: the latest
    older: int = 0  # marks of this session, more than are looked at
    own: tuple[Crystal, ...] = ()  # over them
    recent: tuple[Crystal, ...] = ()  # of others, none beside its own sources
    open: tuple[Mark, ...] = ()  # that nothing has fulfilled
    uncovered: tuple[Mark, ...] = ()  # of its marks: those in no crystal
    failed: tuple[Event, ...] = ()
    files: tuple[tuple[Visit, Event], ...] = ()  # with the last step in each
    handles: dict[EventId, str] = {}  # of the marks that crystals cite


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """What the next agent is given. The text is data for it, fenced as such, and never over the budget."""

    session: str | None
    text: str
    lines: tuple[Quote, ...]
    new_crystals: tuple[Crystal, ...]
    recent_crystals: tuple[Crystal, ...]
    tokens_used: int
    budget_tokens: int
    crystallization_performed: bool
    left_out: int = 0  # lines that did not fit
    older_marks: int = 0  # of a very large session, that were not looked at
    errors: tuple[str, ...] = ()  # what failed on the way


def compose_handoff(
    told: HandoffFacts, *, budget_tokens: int, new_crystals: Sequence[Crystal] = (), errors: Sequence[str] = ()
) -> Handoff:
    """The handoff: what is to be done and what is open come first when not all of it fits."""
    offered = _distinct(told)
    lines = _fitting(told, offered, budget_tokens)
    text = _document(told, lines) if lines else ""
    return Handoff(
        session=told.session,
        text=text,
        lines=tuple(lines),
        new_crystals=tuple(new_crystals),
        recent_crystals=told.recent,
        tokens_used=estimate(text),
        budget_tokens=budget_tokens,
        crystallization_performed=bool(new_crystals),
        left_out=len(offered) - len(lines),
        older_marks=told.older,
        errors=tuple(errors),
    )


def _fitting(told: HandoffFacts, offered: Sequence[Quote], budget_tokens: int) -> list[Quote]:
    """The lines to show, in their order, as many as there is room for. Linear in them.

    Lines cost what they cost apart and a little more for being joined, so what fits by that fits as a whole.
    """
    left = budget_tokens - bound_tokens(_document(told, [])) - JOINED_TOKENS
    headings: set[str] = set()
    chosen: set[int] = set()
    for place, line in sorted(enumerate(offered), key=lambda pair: FIRST.index(pair[1].heading)):
        heading = 0 if line.heading in headings else bound_tokens(f"## {line.heading}") + JOINED_TOKENS
        cost = heading + bound_tokens(_item(line)) + JOINED_TOKENS
        if cost <= left:
            left -= cost
            headings.add(line.heading)
            chosen.add(place)
    return [line for place, line in enumerate(offered) if place in chosen]


def _item(line: Quote) -> str:
    return f"- {line.text} ({' '.join(line.handles[:HANDLES_MAX])})"


def _document(told: HandoffFacts, lines: Sequence[Quote]) -> str:
    task = [f"task: {_quote(told.task)}"] if told.task else []
    title = f"# Handoff: {_quote(told.session)}" if told.session else "# Handoff"
    older = [f"{told.older:,} older marks were not looked at; `mica search` finds them"] if told.older else []
    body = [title, *task, *older]
    for heading in SHOWN:
        of_part = [line for line in lines if line.heading == heading]
        body += [f"## {heading}"] if of_part else []
        body += map(_item, of_part)
    return "\n".join([OPENING, *body, CLOSING])


def _distinct(told: HandoffFacts) -> list[Quote]:
    """Every line there is; what is said under two headings stands under the one that asks for more."""
    to_do = [mark for mark in told.open if NEXT_TAGS.intersection(mark.tags)]
    found: dict[str, list[tuple[str, Quote]]] = {
        NEXT: _marks(NEXT, to_do),
        OPEN: _marks(OPEN, [mark for mark in told.open if mark not in to_do]),
        SESSION: [said for crystal in told.own for said in _statements(crystal, told)],
        FAILED: [(event.id, _line(FAILED, _failure(event), [event.id], [event.number])) for event in told.failed],
        MARKS: _marks(MARKS, told.uncovered),
        FILES: [(step.id, _line(FILES, _visit(visit, step), [step.id], [step.number])) for visit, step in told.files],
        EARLIER: [(crystal.id, _earlier(crystal)) for crystal in told.recent],
    }
    first: dict[str, Quote] = {}
    for heading in FIRST:
        for claim, line in found[heading]:
            first.setdefault(claim, line)
    return sorted(first.values(), key=lambda line: SHOWN.index(line.heading))


def _line(heading: str, text: str, sources: Iterable[EventId], handles: Iterable[str]) -> Quote:
    return Quote(heading=heading, text=_quote(text), sources=tuple(sources), handles=tuple(handles))


def _marks(heading: str, marks: Iterable[Mark]) -> list[tuple[str, Quote]]:
    return [
        (mark.text, _line(heading, f"{next(iter(mark.tags), MARK)}: {mark.text}", [mark.id], [f"#{mark.position}"]))
        for mark in marks
    ]


def _statements(crystal: Crystal, told: HandoffFacts) -> Iterator[tuple[str, Quote]]:
    """What a crystal says of this session; a pool of several sessions says more."""
    of_session = {mark.id for mark in told.marks}
    for statement in crystal.statements:
        if of_session.intersection(statement.sources):
            cited = [told.handles[mark] for mark in statement.sources if mark in told.handles]
            yield statement.text, _line(SESSION, statement.text, statement.sources, cited or [f"#{crystal.position}"])


def _earlier(crystal: Crystal) -> Quote:
    text = f"{crystal.label or crystal.period}: {crystal.text}"
    return _line(EARLIER, text, [crystal.id], [f"#{crystal.position}"])


def _failure(event: Event) -> str:
    data = event.data
    said = [
        value for name in ("command", "path", "text", "reason", "error") if isinstance(value := data.get(name), str)
    ]
    return redact(": ".join([event.name, *said[:2]]))


def _visit(visit: Visit, last: Event) -> str:
    start, end = (last.data.get(name) for name in ("start_line", "end_line"))
    lines = f":{start}-{end}" if isinstance(start, int) and isinstance(end, int) else ""
    counts = [f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in _uses(visit) if count]
    return f"{visit.path}{lines}, {', '.join(counts)}"


def _uses(visit: Visit) -> tuple[tuple[int, str], ...]:
    return (visit.reads, "read"), (visit.edits, "edit")


def _quote(text: str) -> str:
    """A text on one line, that can neither end the fence nor begin a part of its own."""
    flat = " ".join(neutralize_entry(text[: 4 * QUOTE_CHARACTERS_MAX]).split())
    return flat if len(flat) <= QUOTE_CHARACTERS_MAX else flat[: QUOTE_CHARACTERS_MAX - 1] + "…"


# -- What is known ----------------------------------------------------------------------------------------------


async def latest_session(log: EventLog) -> str | None:
    """The session in which something happened last; None when there is none.

    Behind very many events of no session it is the one that was marked in last.
    """
    looked = 0
    async for events in latest_first(log, EventQuery()):
        if (session := _last_session(events)) is not None:
            return session
        looked += len(events)
        if looked >= LATEST_MAX:
            return _last_session(await log.query(EventQuery(names=(MARK,), limit=MARKS_MAX)))
    return None


def _last_session(events: Sequence[Event]) -> str | None:
    return next((each.context.session for each in reversed(events) if each.context.session is not None), None)


async def collect_facts(store: Store, session: str | None) -> HandoffFacts:
    """What a store knows of a session, and of what came before it."""
    marks, task = await _marks_of(store.log, store.texts, session)
    own = await _own(store.crystals, marks)
    recent = await _recent(store.crystals, besides=own)
    asked = [mark for crystal in (*own, *recent) for mark in crystal.open]
    asked += [mark.id for mark in marks if (OPEN_TAGS | NEXT_TAGS).intersection(mark.tags)]
    asking = await live_marks(store.texts, await store.log.get_many(asked))
    covered = {source for crystal in own for source in crystal.sources}
    cited = [mark for crystal in own for statement in crystal.statements for mark in statement.sources]
    failed = await store.log.query(EventQuery(session=session, errors=True, limit=FAILED_MAX))
    steps = await store.log.query(EventQuery(session=session, names=STEP_NAMES, limit=STEPS_MAX))
    used = [(visit, visit.last) for visit in count_visits(steps) if visit.last is not None]
    return HandoffFacts(
        session=session,
        task=task,
        marks=tuple(marks),
        older=await _older(store.texts, marks),
        own=tuple(own),
        recent=tuple(recent),
        open=tuple([mark for mark in asking if not await is_fulfilled(store.chains, store.texts, mark.id)]),
        uncovered=tuple(mark for mark in marks if mark.id not in covered),
        failed=tuple(failed),
        files=tuple(sorted(used, key=lambda pair: pair[1].sort_key, reverse=True)[:FILES_MAX]),
        handles={event.id: event.number for event in await store.log.get_many(cited)},
    )


async def _own(index: CrystalIndex, marks: Sequence[Mark]) -> list[Crystal]:
    """The crystals over these marks, a pool of small sessions among them."""
    if not marks:
        return []
    known = {mark.id for mark in marks}
    live = await index.query(CrystalQuery(level="session", since=marks[0].at, limit=None))
    return [crystal for crystal in live if not crystal.is_tree and known.intersection(crystal.sources)]


async def _recent(index: CrystalIndex, *, besides: Sequence[Crystal]) -> list[Crystal]:
    """The latest crystals that no other one covers; so none stands beside what it is made of."""
    own = [crystal.id for crystal in besides]
    known = {*own, *(await index.citing(own) if own else ())}  # nor what covers them
    found = await index.query(CrystalQuery(is_sealed=False, is_stale=False, limit=RECENT_MAX + len(known) + MARKS_MAX))
    return [each for each in found if each.id not in known and not each.is_tree][-RECENT_MAX:]


async def _older(texts: TextIndex, marks: Sequence[Mark]) -> int:
    """How many marks of a session come before these, its latest."""
    first = await texts.read([marks[0].position or 0], neighbours=0) if marks else []
    return first[0].ordinal if first else 0


async def _marks_of(log: EventLog, texts: TextIndex, session: str | None) -> tuple[list[Mark], str | None]:
    """The marks of a session that stand, and the task it was about last."""
    if session is None:
        return [], None
    events = await log.query(EventQuery(session=session, names=(MARK,), limit=MARKS_MAX))
    task = next((event.context.task for event in reversed(events) if event.context.task), None)
    return await live_marks(texts, events), task
