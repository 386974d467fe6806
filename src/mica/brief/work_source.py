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
from mica.model.event import MARK, EventId, EventQuery
from mica.model.mark import Mark
from mica.model.text_cache import remember_texts
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.protocol import BeliefTable, EventLog, TextIndex

MARKS_MAX = 300  # the latest that are read: several long sessions
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
        return [
            excerpt_of_statement(each.mark, each.statement, factor * each.worth + MATCH * share, section="now")
            for each, share in zip(shown, matching, strict=True)
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


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
    for mark in marks:
        place = place_of(mark.tags)
        worth = _WORTH[place]
        if closings and mark is closings[-1]:
            worth = LAST_CLOSING
        elif len(prompts) > 1 and mark is prompts[0]:
            worth = FIRST_PROMPT
        elif prompts and mark is prompts[-1]:
            worth = LAST_PROMPT
        found += [
            WorkStatement(mark=mark, statement=each, worth=worth * share * of_length(each.text))
            for each in statements_of(mark, answered)
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
        return "user"
    place = place_of(mark.tags)
    return next(iter(mark.tags), MARK) if place == "note" else "summary" if place == "summary" else "agent"


def excerpt_of_statement(mark: Mark, statement: MarkStatement, score: float, *, section: str) -> Excerpt:
    """Convert a statement of a mark to an excerpt: one sentence, with its speaker as the kind."""
    return Excerpt(
        text=statement.text,
        sources=(mark.id,),
        score=score,
        at=mark.at,
        source=RecentWorkSource.declared.name,
        kind=speaker_of(mark),
        locator=f"#{mark.position}",
        section=section,  # type: ignore[arg-type]
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
