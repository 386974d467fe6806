"""What the next agent needs to start: headings and quotes within a budget, every line with where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mica.crystallize.asking import OPEN_TAGS, is_fulfilled, standing
from mica.crystals import Crystal, CrystalQuery
from mica.errors import InvalidInput
from mica.inject.lines import HANDLES_MAX
from mica.inject.render import CLOSING, OPENING, at_most, defused
from mica.model import MARK, Event, EventId, EventQuery, Mark
from mica.observe.redact import redact
from mica.select.sources.files import STEP_NAMES, Visit, visits
from mica.store.protocol import Store
from mica.tokens import estimate

NEXT_TAGS = frozenset(["next", "task", "todo"])  # of marks that say what is to be done
MARKS_MAX = 1_000  # of a session that are looked at: the latest
STEPS_MAX = 500
LATEST_EVENTS = 1_000  # among which the latest session is looked for
RECENT_MAX, FAILED_MAX, FILES_MAX = 5, 3, 8
QUOTE_CHARACTERS_MAX = 600  # a longer one would push out all others, and its handle leads to the whole

SESSION, NEXT, OPEN, FAILED, MARKS, FILES, EARLIER = (
    "This session", "Next", "Open", "Failed last", "Not crystallized", "Files", "Earlier",
)  # fmt: skip
SHOWN = (SESSION, MARKS, NEXT, OPEN, FAILED, FILES, EARLIER)
FIRST = (NEXT, OPEN, SESSION, FAILED, MARKS, FILES, EARLIER)  # who gets room when it is scarce


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A quote, and what it comes from."""

    heading: str
    text: str
    sources: tuple[EventId, ...]
    handles: tuple[str, ...]  # by which a person can ask for the sources


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a session is handed over."""

    session: str | None
    task: str | None = None
    marks: tuple[Mark, ...] = ()  # of this session, that stand
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
    lines: tuple[Line, ...]
    new_crystals: tuple[Crystal, ...]
    recent_crystals: tuple[Crystal, ...]
    tokens_used: int
    budget_tokens: int
    crystallization_performed: bool
    left_out: int = 0  # lines that did not fit
    errors: tuple[str, ...] = ()  # what failed on the way


def compose(
    told: Told, *, budget_tokens: int, new_crystals: Sequence[Crystal] = (), errors: Sequence[str] = ()
) -> Handoff:
    """The handoff: what is to be done and what is open come first when not all of it fits."""
    if budget_tokens < 0:
        raise InvalidInput(f"a handoff cannot have {budget_tokens} tokens; give 0 or more")
    offered = _distinct(told)
    chosen: list[Line] = []
    for line in sorted(offered, key=lambda line: FIRST.index(line.heading)):
        if at_most(_document(told, [*chosen, line])) <= budget_tokens:
            chosen.append(line)
    lines = [line for line in offered if line in chosen]
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
        errors=tuple(errors),
    )


def _document(told: Told, lines: Sequence[Line]) -> str:
    task = [f"task: {_quote(told.task)}"] if told.task else []
    title = f"# Handoff: {_quote(told.session)}" if told.session else "# Handoff"
    body = [title, *task]
    for heading in SHOWN:
        of_part = [line for line in lines if line.heading == heading]
        body += [f"## {heading}"] if of_part else []
        body += [f"- {line.text} ({' '.join(line.handles[:HANDLES_MAX])})" for line in of_part]
    return "\n".join([OPENING, *body, CLOSING])


def _distinct(told: Told) -> list[Line]:
    """Every line there is; what is said under two headings stands under the one that asks for more."""
    to_do = [mark for mark in told.open if NEXT_TAGS.intersection(mark.tags)]
    found: dict[str, list[tuple[str, Line]]] = {
        NEXT: _marks(NEXT, to_do),
        OPEN: _marks(OPEN, [mark for mark in told.open if mark not in to_do]),
        SESSION: [said for crystal in told.own for said in _statements(crystal, told)],
        FAILED: [(event.id, _line(FAILED, _failure(event), [event.id], [event.number])) for event in told.failed],
        MARKS: _marks(MARKS, told.uncovered),
        FILES: [(step.id, _line(FILES, _visit(visit, step), [step.id], [step.number])) for visit, step in told.files],
        EARLIER: [(crystal.id, _earlier(crystal)) for crystal in told.recent],
    }
    first: dict[str, Line] = {}
    for heading in FIRST:
        for claim, line in found[heading]:
            first.setdefault(claim, line)
    return sorted(first.values(), key=lambda line: SHOWN.index(line.heading))


def _line(heading: str, text: str, sources: Iterable[EventId], handles: Iterable[str]) -> Line:
    return Line(heading=heading, text=_quote(text), sources=tuple(sources), handles=tuple(handles))


def _marks(heading: str, marks: Iterable[Mark]) -> list[tuple[str, Line]]:
    return [
        (mark.text, _line(heading, f"{next(iter(mark.tags), MARK)}: {mark.text}", [mark.id], [f"#{mark.position}"]))
        for mark in marks
    ]


def _statements(crystal: Crystal, told: Told) -> Iterator[tuple[str, Line]]:
    """What a crystal says of this session; a pool of several sessions says more."""
    of_session = {mark.id for mark in told.marks}
    for statement in crystal.statements:
        if of_session.intersection(statement.sources):
            cited = [told.handles[mark] for mark in statement.sources if mark in told.handles]
            yield statement.text, _line(SESSION, statement.text, statement.sources, cited or [f"#{crystal.position}"])


def _earlier(crystal: Crystal) -> Line:
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
    flat = " ".join(defused(text[: 4 * QUOTE_CHARACTERS_MAX]).split())
    return flat if len(flat) <= QUOTE_CHARACTERS_MAX else flat[: QUOTE_CHARACTERS_MAX - 1] + "…"


# -- What is known ----------------------------------------------------------------------------------------------


async def latest_session(store: Store) -> str | None:
    """The session in which something happened last; None when there is none."""
    latest = await store.events(EventQuery(limit=LATEST_EVENTS))
    return next((event.context.session for event in reversed(latest) if event.context.session is not None), None)


async def collect(store: Store, session: str | None) -> Told:
    """What a store knows of a session, and of what came before it."""
    marks, task = await _marks_of(store, session)
    own = await _own(store, marks)
    recent = await _recent(store, besides=own)
    asked = [mark for crystal in (*own, *recent) for mark in crystal.open]
    asked += [mark.id for mark in marks if (OPEN_TAGS | NEXT_TAGS).intersection(mark.tags)]
    asking = await standing(store, await _events(store, asked))
    covered = {source for crystal in own for source in crystal.sources}
    cited = [mark for crystal in own for statement in crystal.statements for mark in statement.sources]
    failed = await store.events(EventQuery(session=session, errors=True, limit=FAILED_MAX))
    steps = await store.events(EventQuery(session=session, names=STEP_NAMES, limit=STEPS_MAX))
    used = [(visit, visit.last) for visit in visits(steps) if visit.last is not None]
    return Told(
        session=session,
        task=task,
        marks=tuple(marks),
        own=tuple(own),
        recent=tuple(recent),
        open=tuple([mark for mark in asking if not await is_fulfilled(store, mark.id)]),
        uncovered=tuple(mark for mark in marks if mark.id not in covered),
        failed=tuple(failed),
        files=tuple(sorted(used, key=lambda pair: pair[1].place, reverse=True)[:FILES_MAX]),
        handles={event.id: event.number for event in await _events(store, cited)},
    )


async def _events(store: Store, identifiers: Iterable[EventId]) -> list[Event]:
    found = [await store.event(identifier) for identifier in dict.fromkeys(identifiers)]
    return [event for event in found if event is not None]


async def _own(store: Store, marks: Sequence[Mark]) -> list[Crystal]:
    """The crystals over these marks, a pool of small sessions among them."""
    if not marks:
        return []
    known = {mark.id for mark in marks}
    live = await store.crystals(CrystalQuery(level="session", since=marks[0].at, limit=None))
    return [crystal for crystal in live if not crystal.is_tree and known.intersection(crystal.sources)]


async def _recent(store: Store, *, besides: Sequence[Crystal]) -> list[Crystal]:
    """The latest crystals that no other one covers; so none stands beside what it is made of."""
    own = [crystal.id for crystal in besides]
    known = {*own, *(await store.citing(own) if own else ())}  # nor what covers them
    found = await store.crystals(
        CrystalQuery(is_sealed=False, is_stale=False, limit=RECENT_MAX + len(known) + MARKS_MAX)
    )
    return [each for each in found if each.id not in known and not each.is_tree][-RECENT_MAX:]


async def _marks_of(store: Store, session: str | None) -> tuple[list[Mark], str | None]:
    """The marks of a session that stand, and the task it was about last."""
    if session is None:
        return [], None
    events = await store.events(EventQuery(session=session, names=(MARK,), limit=MARKS_MAX))
    task = next((event.context.task for event in reversed(events) if event.context.task), None)
    return await standing(store, events), task
