"""The source of teachings, which are statements that a person promoted from a crystal.

For a task it answers with all teachings, matching ones first; for a concept, with those that contain the concept's id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from mica.brief.excerpt import Excerpt
from mica.crystals.teachings import read_teachings
from mica.model.crystal import join_statements
from mica.model.event import RETRACTED
from mica.model.teaching import Teaching
from mica.sources.protocol import RANK_DATABASE, Fragment, Question, SourceDeclaration
from mica.store.protocol import CrystalIndex, EventLog
from mica.words import terms

TEACHINGS_MAX = 50  # the latest; a person with more should withdraw some
SCORE_WITHOUT_TASK = 6.0  # above every crystal: a person chose it
SCORE_MATCHING = 1.0  # above every matching mark and crystal, plus the share of matching words
SCORE_OTHER = 0.05  # a teaching that does not match the task fills the remaining budget
ABOUT_CONCEPT_MAX = 5  # more than a reader is shown of a concept
TEXT_CHARACTERS_MAX = 1_000


class TeachingSource:
    """A source that answers a task or a concept with the teachings that are in force."""

    declared = SourceDeclaration(
        name="teachings", rank=RANK_DATABASE, invalidated_by=("teaching.*", RETRACTED), answers_tasks=True
    )
    made_by = declared.invalidated_by

    def __init__(
        self, log: EventLog, index: CrystalIndex, *, stored: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`stored` waits until every event emitted so far is in the store."""
        self._log = log
        self._index = index
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if question.concept is not None:
            return await self._match_concept(question)
        teachings = (await read_teachings(self._log, self._index))[-TEACHINGS_MAX:]
        return [excerpt_of_teaching(teaching, score(teaching, question.task)) for teaching in teachings]

    async def _match_concept(self, question: Question) -> Sequence[Fragment]:
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


def score(teaching: Teaching, task: str) -> float:
    """Return the score of a teaching, which is higher if it contains more of the task's terms.

    Without a task, every teaching gets the same score, above all crystals.
    """
    task_terms = frozenset(terms(task))
    if not task_terms:
        return SCORE_WITHOUT_TASK
    share = len(task_terms.intersection(terms(_searchable(teaching)))) / len(task_terms)
    return SCORE_MATCHING + share if share else SCORE_OTHER


def _searchable(teaching: Teaching) -> str:
    return " ".join([*(statement.text for statement in teaching.statements), *teaching.topics])


def excerpt_of_teaching(teaching: Teaching, score: float) -> Excerpt:
    cited = dict.fromkeys(mark for statement in teaching.statements for mark in statement.sources)
    return Excerpt(
        text=join_statements(statement.text for statement in teaching.statements),
        sources=(teaching.id, teaching.crystal, *cited),
        score=score,
        at=teaching.at,
        source=TeachingSource.declared.name,
        kind="teaching",
        locator=f"#{teaching.position}",
        stands_for=frozenset([teaching.crystal, *cited]),
    )
