"""Digests of sessions, days and weeks in the words of their marks, made without a model.

The digest of a session says what was asked, decided, found and changed, how the session ended, and what is open. That
of a day lists its sessions by title, each with how it ended, and the hours without marks. That of a week has the main
outcomes: endings, decisions and commits, each once. The digests of days and weeks cite marks, not statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from mica.crystals.digest import TOPICS_MAX, Digest, DigestSource, extract
from mica.crystals.draft import material
from mica.crystals.open_marks import ANSWER_TAGS
from mica.crystals.periods import FIRST_AT
from mica.crystals.salience import units
from mica.crystals.sentences import is_covered, is_question
from mica.crystals.session_note import (
    CLOSING_TAGS,
    DECISION_TAGS,
    KEY_TAGS,
    SUMMARY_TAG,
    NoteLine,
    SessionNote,
    check_status,
    is_rule,
    read_note,
)
from mica.format.titles import TITLE_CHARACTERS_MAX, make_title
from mica.model.crystal import Crystal, Dropped, Statement
from mica.model.event import EventId
from mica.model.mark import Mark
from mica.store.priority import Pause, never_pause
from mica.tokens import estimate

METHOD = "extractive-2"
OVERTAKEN = "a later mark overtakes it"
EVIDENCE_MAX = 8  # marks that one line of a day cites
GAP_MIN = timedelta(hours=2)  # a shorter time without marks is a pause
GAPS_MAX = 4
POOL_TITLES_MAX, POOL_TITLE_CHARACTERS = 3, 40
LAST_WORDS_MIN = 9  # if the last words of a session are fewer, its day also has the ones before
ENDING_WORDS_MIN = 3  # "Not tested." does not say how a session ended


# -- Sessions -------------------------------------------------------------------------------------------------


def read_notes(marks: Sequence[Mark]) -> SessionNote:
    """Read the notes of one or several sessions into one, in order of time. `marks` must be in order of time."""
    by_session: dict[str | None, list[int]] = {}
    for place, mark in enumerate(marks):
        by_session.setdefault(mark.session, []).append(place)
    lines: list[NoteLine] = []
    gone: list[NoteLine] = []
    for places in by_session.values():
        note = read_note(material([marks[place] for place in places]).sources)
        for into, some in ((lines, note.lines), (gone, note.overtaken)):
            into += [msgspec.structs.replace(line, place=places[line.place]) for line in some]
    done = _fulfilled(marks)
    current = [line for line in lines if line.role != "open" or done.isdisjoint(line.sources)]
    return SessionNote(lines=tuple(sorted(current, key=lambda line: line.place)), overtaken=tuple(gone))


def _fulfilled(marks: Sequence[Mark]) -> set[EventId]:
    """Return the ids of the tasks and questions that a later mark fulfills or answers."""
    questions = {mark.id for mark in marks if "question" in mark.tags}
    return {
        mark.parent_id
        for mark in marks
        if mark.parent_id is not None
        and (mark.relation == "fulfills" or (mark.parent_id in questions and ANSWER_TAGS.intersection(mark.tags)))
    }


def digest_session(marks: Sequence[Mark], *, budget_tokens: int, task: str = "", pause: Pause = never_pause) -> Digest:
    """Make the digest of a session, or of a pool of small ones, from its marks.

    Each mark that no statement cites is listed with the reason.
    """
    ordered = sorted(marks, key=lambda mark: (mark.at, mark.position or 0))
    note = read_notes(ordered)
    sources = material(ordered).sources
    source_tokens = sum(estimate(source.text) for source in sources)
    choice = _Choice(min(budget_tokens, source_tokens - 1))
    for line in _by_importance(note.lines):
        pause()
        choice.offer(line)
    rest: Sequence[DigestSource] = [
        DigestSource(
            line.sources[0], line.text, tags=ordered[line.place].tags, at=ordered[line.place].at, is_whole=True
        )
        for line in note.lines
        if line.role == "found" and not line.is_proposal and not choice.covers(line)
    ]
    if not note.lines and not note.overtaken:
        rest = sources
    filled = extract(rest, budget_tokens=max(0, choice.left), task=task, may_cut=False, pause=pause)
    topics = extract(sources, budget_tokens=0, pause=pause).topics
    insight, significance, principles = _sections(choice, filled, ordered)
    statements = (*insight, *significance, *principles)
    return Digest(
        insight=insight,
        significance=significance,
        principles=principles,
        topics=topics,
        dropped=tuple(_dropped(ordered, note, statements, filled)),
        tokens=estimate("\n".join(each.text for each in statements)) if statements else 0,
        source_tokens=source_tokens,
    )


def title_of(marks: Sequence[Mark], *, task: str | None = None) -> str:
    """Return the title of a session: from its task, its first request or its first commit.

    A pool of several small sessions has their titles. Without any of these, a title names what was noted first.
    """
    by_session: dict[str | None, list[Mark]] = {}
    for mark in marks:
        by_session.setdefault(mark.session, []).append(mark)
    is_pool = len(by_session) > 1
    titles = dict.fromkeys(_title(some, None if is_pool else task, is_pool=is_pool) for some in by_session.values())
    named = [title for title in titles if title]
    more = f" and {len(named) - POOL_TITLES_MAX} more" if len(named) > POOL_TITLES_MAX else ""
    return "; ".join(named[:POOL_TITLES_MAX]) + more


def _title(marks: Sequence[Mark], task: str | None, *, is_pool: bool) -> str:
    return make_title(
        characters_max=POOL_TITLE_CHARACTERS if is_pool else TITLE_CHARACTERS_MAX,
        task=task,
        requests=[mark.text for mark in marks if "prompt" in mark.tags],
        commits=[mark.text for mark in marks if "commit" in mark.tags],
        other=next(
            (mark.text for tags in (DECISION_TAGS, KEY_TAGS) for mark in marks if tags.intersection(mark.tags)), ""
        )
        or next((mark.text for mark in marks), ""),
    )


class _Choice:
    """The lines that are chosen for a digest, within a budget."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.lines: list[NoteLine] = []
        self._covered: set[str] = set()
        self._texts: set[str] = set()

    def offer(self, line: NoteLine) -> None:
        """Choose a line if it fits and adds something."""
        cost = estimate(line.text + "\n")
        if line.text not in self._texts and cost <= self.left and not self.covers(line):
            self.left -= cost
            self.lines.append(line)
            self._texts.add(line.text)
            self._covered.update(units(line.text))

    def covers(self, line: NoteLine) -> bool:
        """Return True if the chosen lines say nearly all that a line says."""
        return bool(self.lines) and is_covered(set(units(line.text)), self._covered)


def _by_importance(lines: Sequence[NoteLine]) -> Iterator[NoteLine]:
    """Yield the lines of a session, the most important first."""
    ended = [line for line in lines if line.role == "ended"]
    last = [line for line in ended if line.place == ended[-1].place]
    spoken = [line for line in lines if line.by_user]
    asked = [line for line in spoken if line.role == "asked"]
    yield from (line for line in last[:1] if not is_question(line.text))
    yield from (line for line in spoken[-1:] if line.role == "decided")
    yield from (line for line in last if line.is_open)
    yield from asked[:1]
    yield from (line for line in lines if line.is_open and (line.role == "open" or line.is_summary))
    yield from (line for line in reversed(lines) if line.role == "changed")
    yield from (line for line in last if not line.is_proposal)
    yield from (line for line in ended if line.is_open)
    yield from (line for line in reversed(lines) if line.role == "decided")
    yield from (line for line in reversed(lines) if line.is_key)
    yield from (line for line in ended if not line.is_proposal)
    yield from (line for line in lines if line.is_summary)
    yield from (line for line in asked if not is_question(line.text))


def _sections(choice: _Choice, filled: Digest, marks: Sequence[Mark]) -> tuple[tuple[Statement, ...], ...]:
    """Return insight, significance and principles: the chosen lines and the statements that fill the budget."""
    rules = [line for line in choice.lines if line.by_user and is_rule(line)]
    rules = rules if len(rules) < len(choice.lines) or filled.insight else []
    place = {mark.id: number for number, mark in enumerate(marks)}
    chosen = [(line.place, Statement(line.text, line.sources)) for line in _in_order(choice.lines) if line not in rules]
    chosen += [(place[each.sources[0]], each) for each in filled.insight]
    principles = [Statement(line.text, line.sources) for line in _in_order(rules)]
    insight = tuple(statement for _, statement in sorted(chosen, key=lambda pair: pair[0]))
    return insight, filled.significance, (*principles, *filled.principles)


def _in_order(lines: Iterable[NoteLine]) -> list[NoteLine]:
    return sorted(lines, key=lambda line: (line.place, line.number))


def _dropped(
    marks: Sequence[Mark], note: SessionNote, statements: Sequence[Statement], filled: Digest
) -> Iterator[Dropped]:
    """Yield each mark that no statement cites, with the reason."""
    cited = {source for statement in statements for source in statement.sources}
    reasons = {each.id: each for each in filled.dropped}
    overtaken = {source for line in note.overtaken for source in line.sources}
    spoken = {source for line in note.lines for source in line.sources}
    for mark in marks:
        if mark.id in cited:
            continue
        if mark.id in reasons:
            yield reasons[mark.id]
        elif mark.id in overtaken:
            yield Dropped(mark.id, OVERTAKEN)
        elif mark.id not in spoken:
            yield Dropped(mark.id, "filler" if units(mark.text) else "empty")
        else:
            yield Dropped(mark.id, "only asked" if "prompt" in mark.tags else "no room")


# -- Days -----------------------------------------------------------------------------------------------------


def digest_day(
    sessions: Sequence[Crystal],
    marks: Sequence[Mark],
    *,
    budget_tokens: int,
    clock_time: Callable[[datetime], str],
) -> Digest:
    """Make the digest of a day: for each session its title and how it ended, and the hours without marks.

    `marks` are all marks beneath the sessions. If not all lines fit, sessions are listed by title alone, the earliest
    first. `clock_time` formats the time of day.
    """
    known = {mark.id: mark for mark in marks}
    sessions = sorted(sessions, key=lambda each: each.start_at)
    lines = [_session_line(session, known, is_full=True) for session in sessions]
    brief = [_session_line(session, known, is_full=False) for session in sessions]
    titles = [_title_line(session, line) for session, line in zip(sessions, lines, strict=True)]
    for shorter in (brief, titles):
        for number, line in enumerate(shorter):
            if _cost(lines) <= budget_tokens:
                break
            lines[number] = line
    while lines and _cost(lines) > budget_tokens:
        lines.pop(0)
    for gap in _gaps(marks, {source for line in lines for source in line.sources}, clock_time):
        if lines and _cost([*lines, gap]) <= budget_tokens:
            lines.append(gap)
    return Digest(insight=tuple(lines), topics=_topics(sessions), tokens=_cost(lines), source_tokens=_tokens(sessions))


def _session_line(session: Crystal, marks: Mapping[EventId, Mark], *, is_full: bool) -> Statement:
    """Return the line of a session in the crystal of its day: the title and how the session ended.

    If the line is not to be full, it has the first and the last of the closing words.
    """
    statements = [each for each in session.statements if each.sources]
    endings = [each for each in statements if all(_is_closing(marks.get(source)) for source in each.sources)]
    ended: list[Statement] = []
    for at in sorted({_time(each, marks) for each in endings}, reverse=True):
        ended = [each for each in endings if _time(each, marks) == at] + ended
        if sum(len(each.text.split()) for each in ended) >= LAST_WORDS_MIN:
            break
    ended = ended or [max(statements, key=lambda each: _time(each, marks))]
    texts = [each.text for each in (ended if is_full else [*ended[:1], *ended[1:][-1:]])]
    text = " ".join(text if text.endswith((".", "!", "?", ":", ";", "…")) else f"{text}." for text in texts)
    title = session.label or ""
    named = set(units(title))
    is_said = not title or (named and is_covered(named, set(units(text))))
    evidence = dict.fromkeys(source for each in (*ended, *statements) for source in each.sources)
    return Statement(text if is_said else f"{title}: {text}", tuple(evidence)[:EVIDENCE_MAX])


def _title_line(session: Crystal, line: Statement) -> Statement:
    return Statement(session.label, line.sources) if session.label else line


def _is_closing(mark: Mark | None) -> bool:
    return mark is not None and bool(CLOSING_TAGS.intersection(mark.tags) or SUMMARY_TAG in mark.tags)


def _time(statement: Statement, marks: Mapping[EventId, Mark]) -> datetime:
    return max((marks[source].at for source in statement.sources if source in marks), default=FIRST_AT)


def _gaps(marks: Sequence[Mark], citable: set[EventId], clock_time: Callable[[datetime], str]) -> Iterator[Statement]:
    """Yield a statement that names the hours without marks, if there are any."""
    ordered = sorted(marks, key=lambda mark: (mark.at, mark.position or 0))
    gaps = [(one, two) for one, two in pairwise(ordered) if two.at - one.at >= GAP_MIN]
    if not gaps:
        return
    gaps = sorted(sorted(gaps, key=lambda pair: pair[0].at - pair[1].at)[:GAPS_MAX], key=lambda pair: pair[0].at)
    times = ", ".join(f"{clock_time(one.at)}–{clock_time(two.at)}" for one, two in gaps)
    # A law: statements cite marks that the sources cite. The nearest such marks are those at the edges of a gap.
    known = [mark for mark in ordered if mark.id in citable]
    edges = [min(known, key=lambda mark: abs(mark.at - edge.at)).id for pair in gaps for edge in pair if known]
    if edges:
        yield Statement(f"No marks {times}.", tuple(dict.fromkeys(edges)))


# -- Weeks ----------------------------------------------------------------------------------------------------


def digest_week(days: Sequence[Crystal], marks: Sequence[Mark], *, budget_tokens: int) -> Digest:
    """Make the digest of a week: the endings of its sessions, the decisions and the commits, the latest first to fit.

    `marks` are all marks beneath the days. Only those that the days cite can be cited.
    """
    citable = {source for day in days for statement in day.statements for source in statement.sources}
    ordered = sorted(marks, key=lambda mark: (mark.at, mark.position or 0))
    lines = check_status(read_notes(ordered).lines).lines
    sessions: dict[str | None, list[NoteLine]] = {}
    for line in lines:
        if citable.issuperset(line.sources):
            sessions.setdefault(ordered[line.place].session, []).append(line)
    choice = _Choice(budget_tokens)
    latest = sorted(sessions.values(), key=lambda some: some[-1].place, reverse=True)
    endings = [_endings(some) for some in latest]
    for line in (line for some in endings[:1] for line in some if line.is_open):
        choice.offer(line)  # what the last session left open
    for some in endings:
        for line in some[:1]:
            choice.offer(line)
    for role in ("decided", "changed"):
        for some in latest:
            for line in reversed(some):
                if line.role == role:
                    choice.offer(line)
    for some in endings:
        for line in some[1:]:
            choice.offer(line)
    for some in latest:
        if not any(line.role == "ended" for line in some):
            for line in some:
                if line.role == "found" and not line.is_proposal:
                    choice.offer(line)
    insight = tuple(Statement(line.text, line.sources) for line in _in_order(choice.lines))
    return Digest(insight=insight, topics=_topics(days), tokens=_cost(insight), source_tokens=_tokens(days))


def _endings(lines: Sequence[NoteLine]) -> list[NoteLine]:
    """Return how a session ended, open work last; if no closing words are cited, its last line."""
    lines = [line for line in lines if len(line.text.split()) >= ENDING_WORDS_MIN]
    ended = [line for line in lines if line.role == "ended" and not (line.is_proposal and not line.is_open)]
    others = [line for line in lines if line.role in {"found", "open"} and not line.is_proposal]
    return [line for line in ended if not line.is_open] + [line for line in ended if line.is_open] or others[-1:]


def _topics(crystals: Sequence[Crystal]) -> tuple[str, ...]:
    """Return the topics of most crystals first."""
    counts: dict[str, int] = {}
    for crystal in crystals:
        for topic in crystal.topics:
            counts[topic] = counts.get(topic, 0) + 1
    return tuple(sorted(counts, key=lambda topic: -counts[topic])[:TOPICS_MAX])


def _cost(statements: Sequence[Statement]) -> int:
    return estimate("\n".join(statement.text for statement in statements)) if statements else 0


def _tokens(crystals: Sequence[Crystal]) -> int:
    return sum(crystal.tokens for crystal in crystals)
