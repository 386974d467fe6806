"""Teachings as a source: of a task, first where they match it and last where there is room; of a concept, by its id."""

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

TEACHINGS_MAX = 50  # the latest; with more, a person should withdraw some
UNASKED = 6.0  # above every crystal: a person chose it
ANSWERING = 1.0  # above every mark and crystal that matches, and more for each word that matches
BESIDE = 0.05  # a teaching that does not match the task fills the room that is left
ABOUT_CONCEPT_MAX = 5  # more than a reader is shown of a concept
TEXT_CHARACTERS_MAX = 1_000


class TeachingSource:
    """The teachings of a space that hold."""

    declared = SourceDeclaration(
        name="teachings", rank=RANK_DATABASE, invalidated_by=("teaching.*", RETRACTED), answers_tasks=True
    )
    made_by = declared.invalidated_by

    def __init__(
        self, log: EventLog, index: CrystalIndex, *, stored: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`stored` returns when everything emitted before is in the store."""
        self._log = log
        self._index = index
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if question.concept is not None:
            return await self._naming(question)
        held = (await read_teachings(self._log, self._index))[-TEACHINGS_MAX:]
        return [_excerpt(teaching, score(teaching, question.task)) for teaching in held]

    async def _naming(self, question: Question) -> Sequence[Fragment]:
        wanted = set(terms(question.subject.id))
        if not wanted:
            return []
        if self._stored is not None:
            await self._stored()
        held = await read_teachings(self._log, self._index)
        self.are_any = bool(held)
        naming = [each for each in held if each.at <= question.now and wanted <= set(terms(_searchable(each)))]
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
        """Nothing is held."""


def score(teaching: Teaching, task: str) -> float:
    """How much a teaching is worth showing for a task."""
    wanted = frozenset(terms(task))
    if not wanted:
        return UNASKED
    share = len(wanted.intersection(terms(_searchable(teaching)))) / len(wanted)
    return ANSWERING + share if share else BESIDE


def _searchable(teaching: Teaching) -> str:
    return " ".join([*(statement.text for statement in teaching.statements), *teaching.topics])


def _excerpt(teaching: Teaching, score: float) -> Excerpt:
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
