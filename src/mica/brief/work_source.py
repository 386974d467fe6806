"""The source of recent work: what the last sessions were asked, what they did, and how they ended.

Each sentence is a passage of its own. What later statements ended is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from mica.beliefs.statements import MarkStatement, statements
from mica.beliefs.testimony import place_of
from mica.brief.excerpt import Excerpt
from mica.brief.worth import (
    CLOSING,
    COMMIT,
    FIRST_PROMPT,
    LAST_CLOSING,
    LAST_PROMPT,
    MATCH,
    NOTE,
    NOW_FOR_TASK,
    PROMPT,
    SUMMARY,
    of_length,
    of_session,
    relevance,
)
from mica.crystals.open_marks import live_marks
from mica.model.belief import BeliefQuery, Place
from mica.model.brief import Section
from mica.model.event import MARK, EventId, EventQuery
from mica.model.mark import Mark
from mica.model.text_cache import remember_texts
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.protocol import BeliefTable, EventLog, TextIndex
from mica.tokens import estimate

MARKS_MAX = 300  # the latest that are read: several long sessions
ENDING = 2.0  # worth of the last closing words as a whole: long, and chosen before nearly everything else
ENDING_SHARE = 0.35  # of the budget at most, for the last closing words as a whole
SESSIONS_MAX = 6  # the latest; older work is known by beliefs and crystals
UNNAMED = ""  # the session of marks without one


class WorkStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of recent work, with its mark and its worth before the task is considered."""

    mark: Mark
    statement: MarkStatement
    worth: float


class RecentWorkSource:
    """A source of the sentences of the last sessions, for the section "now" of a brief."""

    declared = SourceDeclaration(name="work", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, log: EventLog, texts: TextIndex, beliefs: BeliefTable) -> None:
        self._log = log
        self._texts = texts
        self._beliefs = beliefs

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        events = await self._log.query(EventQuery(names=(MARK,), until=None, limit=MARKS_MAX))
        marks = [mark for mark in await live_marks(self._texts, events) if mark.at <= question.now]
        if question.session is not None:
            marks = [mark for mark in marks if mark.session != question.session]
        work = statements_of_work(marks)
        ended = await ended_texts(self._beliefs, [each.mark.id for each in work])
        shown = [each for each in work if each.worth and not is_ended(each.statement, ended.get(each.mark.id, ()))]
        matching = relevance(question.task, [each.statement.text for each in shown])
        factor = NOW_FOR_TASK if question.task else 1.0
        excerpts = [
            excerpt_of_statement(each.mark, each.statement, factor * each.worth + MATCH * share, section="now")
            for each, share in zip(shown, matching, strict=True)
        ]
        return _with_whole_ending(excerpts, shown, question)

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _with_whole_ending(excerpts: list[Excerpt], work: Sequence[WorkStatement], question: Question) -> list[Excerpt]:
    """Join the last closing words to one excerpt if they take at most ENDING_SHARE of the budget.

    How the last session ended is read as a whole: a sentence alone may say the opposite.
    """
    closings = [each.mark for each in work if each.statement.place == "closing"]
    last = max(closings, key=lambda mark: (mark.at, mark.position or 0), default=None)
    own = [number for number, each in enumerate(work) if last is not None and each.mark.id == last.id]
    if question.task or len(own) < 2:
        return excerpts
    texts = [work[number].statement for number in own]
    whole = " ".join(_joined(texts))
    if estimate(whole) > ENDING_SHARE * question.budget_tokens:
        return excerpts
    ending = msgspec.structs.replace(excerpts[own[0]], text=whole, score=ENDING)
    return [ending if n == own[0] else each for n, each in enumerate(excerpts) if n == own[0] or n not in own]


def _joined(statements: Sequence[MarkStatement]) -> list[str]:
    """Return the sentences of a mark; the header of a list stands before its first item only."""
    lines: list[str] = []
    header = ""
    for each in statements:
        if each.header and each.header != header:
            lines.append(f"{each.header}: {each.sentence}")
        else:
            if each.header and lines:
                lines[-1] = f"{lines[-1].rstrip('.;')};"
            lines.append(each.sentence)
        header = each.header
    return lines


def statements_of_work(marks: Iterable[Mark]) -> list[WorkStatement]:
    """Return the statements of the last SESSIONS_MAX sessions among `marks`, each with its worth."""
    by_session: dict[str, list[Mark]] = defaultdict(list)
    for mark in sorted(marks, key=lambda mark: (mark.at, mark.position or 0)):
        by_session[mark.session or UNNAMED].append(mark)
    latest = sorted(by_session.values(), key=lambda of_session: of_session[-1].at, reverse=True)[:SESSIONS_MAX]
    return [each for rank, of_one in enumerate(latest) for each in _of_session(of_one, of_session(rank))]


def _of_session(marks: Sequence[Mark], share: float) -> list[WorkStatement]:
    prompts = [mark for mark in marks if place_of(mark.tags) == "prompt"]
    closings = [mark for mark in marks if place_of(mark.tags) == "closing"]
    found: list[WorkStatement] = []
    answered = ""
    for number, mark in enumerate(marks):
        place = place_of(mark.tags)
        worth = _WORTH[place]
        if closings and mark is closings[-1]:
            worth = LAST_CLOSING
        elif len(prompts) > 1 and mark is prompts[0]:
            worth = FIRST_PROMPT
        elif prompts and mark is prompts[-1]:
            worth = LAST_PROMPT
        is_answered = place == "closing" and any(place_of(later.tags) == "prompt" for later in marks[number + 1 :])
        found += [
            WorkStatement(mark=mark, statement=each, worth=worth * share * of_length(each.text))
            for each in statements_of(mark, answered)
            if not (is_answered and each.sentence.rstrip('"*_)').endswith("?"))
        ]
        answered = mark.text if place == "closing" else "" if place == "prompt" else answered
    return found


_WORTH: Mapping[Place, float] = {
    "prompt": PROMPT,
    "closing": CLOSING,
    "commit": COMMIT,
    "note": NOTE,
    "summary": SUMMARY,
    "judgment": NOTE,
    "teaching": NOTE,
}


def statements_of(mark: Mark, answered: str = "") -> Sequence[MarkStatement]:
    """Return the statements of a mark; `answered` is what the agent wrote before, which completes a short answer."""
    return _statements(mark.text, place_of(mark.tags), said_by(mark), answered)


@remember_texts(4_096)
def _statements(text: str, place: Place, by: str, answered: str) -> Sequence[MarkStatement]:
    return statements(text, place=place, by=by, answered=answered)


def said_by(mark: Mark) -> str:
    """Return who stated a mark, for the analysis of its sentences."""
    return "user" if mark.origin == "user" else "agent"


def speaker_of(mark: Mark) -> str:
    """Return who speaks in a mark, for the reader of a brief."""
    if "commit" in mark.tags:
        return "commit"
    if mark.origin == "user":
        return mark.user or "user"
    place = place_of(mark.tags)
    if place != "note":
        return "summary" if place == "summary" else "agent"
    label = next(iter(mark.tags), MARK)
    return f"{label} of {mark.user}" if mark.user else label


def excerpt_of_statement(mark: Mark, statement: MarkStatement, score: float, *, section: Section) -> Excerpt:
    """Convert a statement of a mark to an excerpt: one sentence, with its speaker as the kind."""
    return Excerpt(
        text=statement.text,
        sources=(mark.id,),
        score=score,
        at=mark.at,
        source=RecentWorkSource.declared.name,
        kind=speaker_of(mark),
        locator=f"#{mark.position}",
        section=section,
        ordinal=statement.ordinal,
    )


async def ended_texts(beliefs: BeliefTable, marks: Collection[EventId]) -> dict[EventId, list[str]]:
    """Return the texts of ended beliefs, by the mark that stated them."""
    ended = await beliefs.query(BeliefQuery(evidence=tuple(dict.fromkeys(marks)), states=("ended",), limit=None))
    found: dict[EventId, list[str]] = defaultdict(list)
    for belief in ended:
        for event in belief.evidence:
            found[event].append(belief.text)
    return found


def is_ended(statement: MarkStatement, texts: Iterable[str]) -> bool:
    """Return True if a statement is one of the ended beliefs with these texts."""
    return any(statement.sentence in text or text in statement.text for text in texts)
