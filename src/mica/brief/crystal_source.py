"""Two sources for briefs: crystals, which summarize past work, and teachings.

A teaching has the statements of a crystal that was promoted. For a task, the latest teachings are returned, and those
that match it get a higher score. For a concept, those that contain its id are returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from mica.brief.excerpt import Excerpt
from mica.brief.work_source import ended_texts
from mica.brief.worth import BACKGROUND, OF_KIND
from mica.crystals.relevance import read_matching, score_recency, score_relevance
from mica.crystals.teachings import read_teachings
from mica.model.crystal import Crystal, CrystalQuery, join_statements
from mica.model.event import RETRACTED
from mica.model.teaching import Teaching
from mica.sources.protocol import RANK_DATABASE, Fragment, Question, SourceDeclaration
from mica.store.protocol import BeliefTable, CrystalIndex, EventLog
from mica.words import terms

CRYSTALS_MAX = 300  # the latest that are considered
READ_MAX = 80  # crystals with the most words of a task that are scored: scoring 300 takes half of a brief's time
OFFERED_MAX = 20  # best crystals whose statements are returned


class CrystalSource:
    """A source of statements of crystals, for the background: those that match a task, or those of the latest crystals.

    A statement that cites an ended belief is left out.
    """

    declared = SourceDeclaration(name="crystals", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, index: CrystalIndex, beliefs: BeliefTable) -> None:
        self._index = index
        self._beliefs = beliefs

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        best = await (self._match(question) if question.task else self._latest(question))
        cited = [event for _, crystal in best for each in crystal.statements for event in each.sources]
        ended = await ended_texts(self._beliefs, cited)
        return [
            excerpt_of_statement(crystal, number, score)
            for score, crystal in best
            for number, statement in enumerate(crystal.statements)
            if not any(
                statement.text in text or text in statement.text
                for event in statement.sources
                for text in ended.get(event, ())
            )
        ]

    async def _latest(self, question: Question) -> list[tuple[float, Crystal]]:
        """Return the latest crystals that no other crystal covers, each with a score."""
        top = await self._index.query(CrystalQuery(is_sealed=False, is_stale=False, limit=CRYSTALS_MAX))
        scored = [(BACKGROUND * score_recency(each.end_at, question.now), each) for each in top if not each.is_tree]
        return _best(scored)

    async def _match(self, question: Question) -> list[tuple[float, Crystal]]:
        """Return the crystals that match a task best, each with a score."""
        query_terms = frozenset(terms(question.task))
        latest = CrystalQuery(is_stale=False, limit=CRYSTALS_MAX)
        matches = await read_matching(self._index, query_terms, latest, limit=READ_MAX)
        weight = question.recency_weight
        return _best(
            (BACKGROUND * (weight * score_recency(crystal.end_at, question.now) + (1 - weight) * relevance), crystal)
            for crystal in matches
            if (relevance := score_relevance(crystal, query_terms, question.task)) > 0
        )

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _best(scored: Iterable[tuple[float, Crystal]]) -> list[tuple[float, Crystal]]:
    return sorted(scored, key=lambda pair: (-pair[0], pair[1].number, pair[1].id))[:OFFERED_MAX]


def excerpt_of_statement(crystal: Crystal, number: int, score: float) -> Excerpt:
    """Convert the statement of a crystal with this number to an excerpt."""
    statement = crystal.statements[number]
    return Excerpt(
        text=statement.text,
        sources=(crystal.id, *statement.sources),
        score=score,
        at=crystal.end_at,
        source=CrystalSource.declared.name,
        kind=f"{crystal.level} ({crystal.label or crystal.period.partition(':')[2]})",
        locator=f"#{crystal.position}",
        ordinal=number,
    )


def excerpt_of_crystal(crystal: Crystal) -> Excerpt:
    """Convert a whole crystal to an excerpt, with all of its statements."""
    cited = dict.fromkeys(each for statement in crystal.statements for each in statement.sources)
    first = excerpt_of_statement(crystal, 0, 0.0)
    text = join_statements(statement.text for statement in crystal.statements)
    return msgspec.structs.replace(first, text=text, sources=(crystal.id, *cited), ordinal=None)


ABOUT_CONCEPT_MAX = 5  # teachings about one concept; a brief shows fewer
TEXT_CHARACTERS_MAX = 1_000


class TeachingSource:
    """A source that answers a concept with the teachings that are in force. For a task, a teaching is a belief."""

    declared = SourceDeclaration(name="teachings", rank=RANK_DATABASE, invalidated_by=("teaching.*", RETRACTED))
    made_by = declared.invalidated_by

    def __init__(
        self, log: EventLog, index: CrystalIndex, *, stored: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`stored` waits until every event emitted so far is in the store; it is None for a log that does not grow."""
        self._log = log
        self._index = index
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        id_terms = set(terms(question.subject.id))
        if not id_terms:
            return []
        if self._stored is not None:
            await self._stored()
        teachings = await read_teachings(self._log, self._index)
        self.are_any = bool(teachings)
        naming = [each for each in teachings if each.at <= question.now and id_terms <= set(terms(_searchable(each)))]
        return [
            Fragment(
                key=f"#{each.position}",
                text=each.text[:TEXT_CHARACTERS_MAX],
                confidence=each.confidence,
                at=each.at,
                source=self.declared.name,
                locator=f"#{each.position}",
                sources=(each.id, *sorted(each.cites)),
            )
            for each in reversed(naming[-ABOUT_CONCEPT_MAX:])
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _searchable(teaching: Teaching) -> str:
    return " ".join([*(statement.text for statement in teaching.statements), *teaching.topics])


def excerpt_of_teaching(teaching: Teaching) -> Excerpt:
    """Convert a teaching to an excerpt. A person chose it, so it is worth as much as a rule."""
    cited = dict.fromkeys(mark for statement in teaching.statements for mark in statement.sources)
    return Excerpt(
        text=join_statements(statement.text for statement in teaching.statements),
        sources=(teaching.id, teaching.crystal, *cited),
        score=OF_KIND["rule"],
        at=teaching.at,
        source=TeachingSource.declared.name,
        kind="teaching",
        locator=f"#{teaching.position}",
        section="rules",
        stands_for=frozenset([teaching.crystal, *cited]),
    )
