"""Handoffs: the text for the agent that continues a session. It quotes what was recorded, under headings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, auto

import msgspec

from mica.crystals.note_digest import read_notes
from mica.crystals.open_marks import OPEN_TAGS, is_fulfilled, live_marks
from mica.crystals.session_note import NEXT_TAGS, NoteLine, Role
from mica.events.activity import STEP_NAMES, Visit, count_visits
from mica.format.fence import CLOSING, OPENING, bound_tokens, neutralize_entry
from mica.format.lines import HANDLES_MAX, plural
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import MARK, Event, EventId, EventQuery
from mica.model.mark import Mark
from mica.redact import redact
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex
from mica.store.query import latest_first
from mica.tokens import estimate

MARKS_MAX = 1_000  # the latest of a session that are read
STEPS_MAX = 500
LATEST_MAX = 10_000  # events searched for the latest session: a tenth of a second
RECENT_MAX, FAILED_MAX, FILES_MAX = 5, 3, 8
JOINED_TOKENS = 2  # extra cost of a line when joined to others
EXTRACTIVE = "extractive"  # prefix of the methods that only quote marks, which are read here anyway
QUOTE_CHARACTERS_MAX = 600  # a longer quote would crowd out the others; its handle leads to the full text

ASKED, DECIDED, FOUND, CHANGED, ENDED, OPEN, FAILED, FILES, EARLIER = (
    "Asked", "Decided", "Found", "Changed", "Ended", "Open", "Failed last", "Files", "Earlier",
)  # fmt: skip
SHOWN = (ASKED, DECIDED, FOUND, CHANGED, ENDED, OPEN, FILES, FAILED, EARLIER)
HEADINGS: dict[Role, str] = {
    "asked": ASKED, "decided": DECIDED, "found": FOUND, "changed": CHANGED, "ended": ENDED, "open": OPEN,
}  # fmt: skip


class Rank(IntEnum):
    """The priority of a line when space is scarce, the most important first."""

    LEFT_OPEN = auto()  # unfinished work in the last closing words
    OUTCOME = auto()  # the first of the last closing words
    LAST_WORD = auto()  # of the user
    OPEN = auto()  # tasks and questions that nothing fulfills
    ENDED = auto()  # the other closing words
    SUMMARY = auto()  # what an agent wrote to sum up the session
    FIRST_REQUEST = auto()
    DECIDED = auto()
    CHANGED = auto()
    ASKED = auto()
    FOUND = auto()
    FILES = auto()
    FAILED = auto()
    PROPOSED = auto()
    EARLIER = auto()


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a handoff: a quote under a heading, with its sources."""

    heading: str
    text: str
    sources: tuple[EventId, ...]
    handles: tuple[str, ...]  # the numbers of the sources, for people


class HandoffFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a session that a handoff is made from."""

    session: str | None
    task: str | None = None
    marks: tuple[Mark, ...] = ()  # the latest of this session, without retracted ones
    older: int = 0  # number of earlier marks of this session that were not read
    own: tuple[Crystal, ...] = ()  # the crystals that cover these marks
    recent: tuple[Crystal, ...] = ()  # the latest crystals of other work that no crystal covers
    open: tuple[Mark, ...] = ()  # questions, problems and tasks that no later mark fulfills
    failed: tuple[Event, ...] = ()  # the latest events with an error
    files: tuple[tuple[Visit, Event], ...] = ()  # each with its last step
    handles: dict[EventId, str] = {}  # numbers of the marks that crystals cite


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """The text for the agent that continues a session, never over the budget, and what it was made from."""

    session: str | None
    text: str
    lines: tuple[Quote, ...]
    new_crystals: tuple[Crystal, ...]
    recent_crystals: tuple[Crystal, ...]
    tokens_used: int
    budget_tokens: int
    crystallization_performed: bool
    left_out: int = 0  # lines that did not fit
    older_marks: int = 0  # marks of a very large session that were not read
    errors: tuple[str, ...] = ()  # failures while it was made


def compose_handoff(
    facts: HandoffFacts, *, budget_tokens: int, new_crystals: Sequence[Crystal] = (), errors: Sequence[str] = ()
) -> Handoff:
    """Compose a handoff. If not everything fits the budget, how the session ended and what is open have priority.

    `new_crystals` (made for this handoff) and `errors` (failures while they were made) are only copied to the result.
    """
    ranked = _rank_lines(facts)
    offered = [line for _, line in ranked]
    lines = _select_lines(facts, ranked, budget_tokens)
    text = _document(facts, lines) if lines else ""
    return Handoff(
        session=facts.session,
        text=text,
        lines=tuple(lines),
        new_crystals=tuple(new_crystals),
        recent_crystals=facts.recent,
        tokens_used=estimate(text),
        budget_tokens=budget_tokens,
        crystallization_performed=bool(new_crystals),
        left_out=len(offered) - len(lines),
        older_marks=facts.older,
        errors=tuple(errors),
    )


def _select_lines(facts: HandoffFacts, ranked: Sequence[tuple[Rank, Quote]], budget_tokens: int) -> list[Quote]:
    """Return the lines that are selected to fit the budget, in the order of display.

    Lines with a better rank are selected first; of equals, the later. JOINED_TOKENS are added to the cost of each line,
    because joined lines may cost more than the same lines separately.
    """
    left = budget_tokens - bound_tokens(_document(facts, [])) - JOINED_TOKENS
    headings: set[str] = set()
    chosen: set[int] = set()
    for place, (_, line) in sorted(enumerate(ranked), key=lambda pair: (pair[1][0], -pair[0])):
        heading = 0 if line.heading in headings else bound_tokens(f"## {line.heading}") + JOINED_TOKENS
        cost = heading + bound_tokens(_item(line)) + JOINED_TOKENS
        if cost <= left:
            left -= cost
            headings.add(line.heading)
            chosen.add(place)
    return [line for place, (_, line) in enumerate(ranked) if place in chosen]


def _item(line: Quote) -> str:
    return f"- {line.text} ({' '.join(line.handles[:HANDLES_MAX])})"


def _document(facts: HandoffFacts, lines: Sequence[Quote]) -> str:
    task = [f"task: {_quote(facts.task)}"] if facts.task else []
    title = f"# Handoff: {_quote(facts.session)}" if facts.session else "# Handoff"
    were = "was" if facts.older == 1 else "were"
    older = [f"{plural(facts.older, 'older mark')} {were} not read; `mica search` finds more"] if facts.older else []
    body = [title, *task, *older]
    for heading in SHOWN:
        of_part = [line for line in lines if line.heading == heading]
        body += [f"## {heading}"] if of_part else []
        body += map(_item, of_part)
    return "\n".join([OPENING, *body, CLOSING])


def _rank_lines(facts: HandoffFacts) -> list[tuple[Rank, Quote]]:
    """Return all lines in the order of display, each with its rank. A repeated text is listed once."""
    ranked = [
        *((Rank.OPEN, line) for line in _mark_lines(OPEN, facts.open)),
        *_note_lines(facts),
        *((Rank.SUMMARY, line) for crystal in facts.own for line in _statement_lines(crystal, facts)),
        *((Rank.FILES, _line(FILES, _visit(visit, step), [step.id], [step.number])) for visit, step in facts.files),
        *((Rank.FAILED, _line(FAILED, _failure(event), [event.id], [event.number])) for event in facts.failed),
        *((Rank.EARLIER, _earlier(crystal)) for crystal in facts.recent),
    ]
    open_ids = {mark.id for mark in facts.open}
    first: dict[str, tuple[Rank, Quote]] = {}
    for number, (rank, line) in enumerate(ranked):
        if number < len(facts.open) or not open_ids.issuperset(line.sources):
            first.setdefault(line.text, (rank, line))
    return sorted(first.values(), key=lambda pair: SHOWN.index(pair[1].heading))


def _note_lines(facts: HandoffFacts) -> Iterator[tuple[Rank, Quote]]:
    """Yield the lines of the session's note: the sentences of a paragraph on one line, each with its rank."""
    note = [line for line in read_notes(facts.marks).lines if line.role != "open"]  # those are `facts.open`
    spoken = [line.place for line in note if line.by_user]
    ended = next((line for line in note if line.role == "ended" and not line.is_open), None)
    handles = {mark.id: f"#{mark.position}" for mark in facts.marks}
    last = facts.marks[-1] if facts.marks else None
    for some in _paragraphs(note):
        line = some[0]
        rank = _rank(line, spoken=spoken, is_outcome=ended in some)
        heading = OPEN if line.is_open and line.role == "found" else HEADINGS[line.role]
        if last is not None and line.role == "asked" and facts.marks[line.place].id == last.id:
            heading = OPEN  # the session ended without an answer
        yield (
            rank,
            _line(heading, " ".join(each.text for each in some), line.sources, [handles[id] for id in line.sources]),
        )


def _paragraphs(lines: Sequence[NoteLine]) -> Iterator[list[NoteLine]]:
    """Yield the lines of each paragraph together, as long as they fit one quote."""
    some: list[NoteLine] = []
    for line in lines:
        is_same = some and (line.place, line.paragraph, line.role, line.sources, line.is_open) == (
            some[0].place, some[0].paragraph, some[0].role, some[0].sources, some[0].is_open,
        )  # fmt: skip
        if some and (not is_same or sum(len(each.text) + 1 for each in (*some, line)) > QUOTE_CHARACTERS_MAX):
            yield some
            some = []
        some.append(line)
    if some:
        yield some


def _rank(line: NoteLine, *, spoken: Sequence[int], is_outcome: bool) -> Rank:
    if line.by_user:
        if line.place == spoken[-1]:
            return Rank.LAST_WORD
        if line.place == spoken[0]:
            return Rank.FIRST_REQUEST
        return Rank.DECIDED if line.role == "decided" else Rank.ASKED
    if line.role == "ended":
        return Rank.LEFT_OPEN if line.is_open else Rank.OUTCOME if is_outcome else Rank.ENDED
    if line.is_open:
        return Rank.OPEN
    if line.is_summary:
        return Rank.SUMMARY
    if line.role == "found":
        return Rank.PROPOSED if line.is_proposal else Rank.FOUND
    return {"decided": Rank.DECIDED, "changed": Rank.CHANGED}.get(line.role, Rank.FOUND)


def _line(heading: str, text: str, sources: Iterable[EventId], handles: Iterable[str]) -> Quote:
    return Quote(heading=heading, text=_quote(text), sources=tuple(sources), handles=tuple(handles))


def _mark_lines(heading: str, marks: Iterable[Mark]) -> list[Quote]:
    return [
        _line(heading, f"{next(iter(mark.tags), MARK)}: {mark.text}", [mark.id], [f"#{mark.position}"])
        for mark in marks
    ]


def _statement_lines(crystal: Crystal, facts: HandoffFacts) -> Iterator[Quote]:
    """Yield the statements of a crystal that an agent or a model wrote and that cite a mark of this session."""
    if crystal.method.startswith(EXTRACTIVE):
        return
    of_session = {mark.id for mark in facts.marks}
    for statement in crystal.statements:
        if of_session.intersection(statement.sources):
            cited = [facts.handles[mark] for mark in statement.sources if mark in facts.handles]
            yield _line(FOUND, statement.text, statement.sources, cited or [f"#{crystal.position}"])


def _earlier(crystal: Crystal) -> Quote:
    """Return the line of earlier work. A session is named by its title and how it ended."""
    text = f"{crystal.period}: {crystal.text}"
    if crystal.level == "session":
        text = f"{crystal.end_at:%Y-%m-%d} {crystal.label or crystal.period}: {crystal.insight[-1].text}"
    return _line(EARLIER, text, [crystal.id], [f"#{crystal.position}"])


def _failure(event: Event) -> str:
    data = event.data
    details = [
        value for name in ("command", "path", "text", "reason", "error") if isinstance(value := data.get(name), str)
    ]
    return redact(": ".join([event.name, *details[:2]]))


def _visit(visit: Visit, last: Event) -> str:
    start, end = (last.data.get(name) for name in ("start_line", "end_line"))
    lines = f":{start}-{end}" if isinstance(start, int) and isinstance(end, int) else ""
    counts = [f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in _uses(visit) if count]
    return f"{visit.path}{lines}, {', '.join(counts)}"


def _uses(visit: Visit) -> tuple[tuple[int, str], ...]:
    return (visit.reads, "read"), (visit.edits, "edit")


def _quote(text: str) -> str:
    """Return a text as one line, cut to QUOTE_CHARACTERS_MAX, without tags that could end the handoff."""
    flat = " ".join(neutralize_entry(text[: 4 * QUOTE_CHARACTERS_MAX]).split())
    return flat if len(flat) <= QUOTE_CHARACTERS_MAX else flat[: QUOTE_CHARACTERS_MAX - 1].rpartition(" ")[0] + "…"


# -- Facts -----------------------------------------------------------------------------------------------------


async def latest_session(log: EventLog) -> str | None:
    """Return the session of the latest event that has a session, or None.

    Events are read from the latest back. After `LATEST_MAX` events without a session, only the latest MARKS_MAX marks
    are considered.
    """
    count = 0
    async for events in latest_first(log, EventQuery()):
        if (session := _last_session(events)) is not None:
            return session
        count += len(events)
        if count >= LATEST_MAX:
            return _last_session(await log.query(EventQuery(names=(MARK,), limit=MARKS_MAX)))
    return None


def _last_session(events: Sequence[Event]) -> str | None:
    return next((each.context.session for each in reversed(events) if each.context.session is not None), None)


async def collect_facts(
    session: str | None, *, log: EventLog, chains: ChainIndex, texts: TextIndex, crystals: CrystalIndex
) -> HandoffFacts:
    """Collect what a handoff is made from: marks, crystals, open work, failures and files of a session.

    If `session` is None, there are no marks, and the failures and files are those of the whole space.
    """
    marks, task = await _marks_of(log, texts, session)
    own = await _covering_crystals(crystals, marks)
    recent = await _recent_crystals(crystals, besides=own)
    open_ids = [mark for crystal in (*own, *recent) for mark in crystal.open]
    open_ids += [mark.id for mark in marks if (OPEN_TAGS | NEXT_TAGS).intersection(mark.tags)]
    open_marks = await live_marks(texts, await log.get_many(open_ids))
    cited = [mark for crystal in own for statement in crystal.statements for mark in statement.sources]
    failed = await _last_failures(log, session)
    steps = await log.query(EventQuery(session=session, names=STEP_NAMES, limit=STEPS_MAX))
    used = [(visit, visit.last) for visit in count_visits(steps) if visit.last is not None]
    return HandoffFacts(
        session=session,
        task=task,
        marks=tuple(marks),
        older=await _count_older(texts, marks),
        own=tuple(own),
        recent=tuple(recent),
        open=tuple([mark for mark in open_marks if not await is_fulfilled(chains, texts, mark)]),
        failed=tuple(failed),
        files=tuple(sorted(used, key=lambda pair: pair[1].sort_key, reverse=True)[:FILES_MAX]),
        handles={event.id: event.number for event in await log.get_many(cited)},
    )


async def _last_failures(log: EventLog, session: str | None) -> list[Event]:
    """Return the latest failures of a session, without those of a command that worked later."""
    failed = await log.query(EventQuery(session=session, errors=True, limit=STEPS_MAX))
    commands = await log.query(EventQuery(session=session, names=("shell.run",), limit=STEPS_MAX)) if failed else []
    worked = {event.data.get("command"): event.sort_key for event in commands if not event.error}
    latest = [event for event in failed if worked.get(event.data.get("command"), event.sort_key) <= event.sort_key]
    return latest[-FAILED_MAX:]


async def _covering_crystals(index: CrystalIndex, marks: Sequence[Mark]) -> list[Crystal]:
    """Return the live session crystals that cover any of `marks`, which are in order of time."""
    if not marks:
        return []
    known = {mark.id for mark in marks}
    live = await index.query(CrystalQuery(level="session", since=marks[0].at, limit=None))
    return [crystal for crystal in live if not crystal.is_tree and known.intersection(crystal.sources)]


async def _recent_crystals(index: CrystalIndex, *, besides: Sequence[Crystal]) -> list[Crystal]:
    """Return the latest crystals that no other crystal covers.

    The crystals in `besides`, and the crystals that cover one of these, are left out.
    """
    own = [crystal.id for crystal in besides]
    known = {*own, *(await index.citing(own) if own else ())}  # and the crystals that cover them
    latest = await index.query(CrystalQuery(is_sealed=False, is_stale=False, limit=RECENT_MAX + len(known) + MARKS_MAX))
    return [each for each in latest if each.id not in known and not each.is_tree][-RECENT_MAX:]


async def _count_older(texts: TextIndex, marks: Sequence[Mark]) -> int:
    """Return how many marks of a session are older than `marks`, the latest marks of that session in order of time."""
    first = await texts.read([marks[0].position or 0], neighbours=0) if marks else []
    return first[0].ordinal if first else 0


async def _marks_of(log: EventLog, texts: TextIndex, session: str | None) -> tuple[list[Mark], str | None]:
    """Return the latest marks of a session that are not retracted, and the session's latest task."""
    if session is None:
        return [], None
    events = await log.query(EventQuery(session=session, names=(MARK,), limit=MARKS_MAX))
    task = next((event.context.task for event in reversed(events) if event.context.task), None)
    return await live_marks(texts, events), task
