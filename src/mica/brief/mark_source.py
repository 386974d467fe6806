"""The sources of marks, which are observations in words: marks that match a task, and marks that mention a concept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from weakref import WeakKeyDictionary

from mica.brief.excerpt import Excerpt
from mica.model.event import MARK
from mica.model.hit import Hit
from mica.model.mark import Mark, mark_of
from mica.search.mark_search import Hits, search
from mica.search.ranker import ParsedQuery
from mica.search.search import find
from mica.search.vectors import MarkVectors
from mica.sources.protocol import PHI_INV, Fragment, Question, SourceDeclaration
from mica.store.priority import observe_failure
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex
from mica.words import terms

MENTIONS_READ = 50  # the best marks and crystals for a concept's id
MENTIONS_MAX = 5
MENTION_CHARACTERS_MAX = 1_000


class SharedSearch:
    """A search for the marks that match a task. It runs once per question, for all sources that need its results."""

    def __init__(
        self,
        *,
        log: EventLog,
        chains: ChainIndex,
        texts: TextIndex,
        vectors: MarkVectors | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        self._log = log
        self._chains = chains
        self._texts = texts
        self._vectors = vectors
        self._zone = zone
        self._searches: WeakKeyDictionary[Question, TaskSearch] = WeakKeyDictionary()

    async def hits(self, question: Question) -> Sequence[Hit]:
        """Return the matching marks, best first. The first call starts the search; all calls wait for it."""
        if not question.task:
            return []
        running = self._searches.get(question)
        if running is None:
            running = self._searches[question] = TaskSearch()
            running.begin(
                search(
                    question.task,
                    log=self._log,
                    chains=self._chains,
                    texts=self._texts,
                    limit=question.limit,
                    now=question.now,
                    zone=self._zone,
                    likeness=partial(self._likeness, question),
                    on_partial=running.set_first_hits,
                )
            )
        return await running.result()

    def first_hits(self, question: Question) -> Sequence[Hit]:
        """Return the preliminary hits found so far, without waiting for the search."""
        running = self._searches.get(question)
        return [] if running is None else running.first_hits

    async def _likeness(self, question: Question, query: ParsedQuery) -> Mapping[int, float] | None:
        """Return how similar the meaning of each mark is to the query, by the position of the mark.

        The embedding model computes this. Without a model, the result is None. If the model fails or is late, the
        result is None, too, and `question.missing` gets the reason.
        """
        if self._vectors is None:
            return None
        reading = asyncio.ensure_future(self._vectors.likeness(query))
        reading.add_done_callback(observe_failure)
        await asyncio.wait([reading], timeout=question.slow_s)
        if not reading.done():
            question.missing["meaning"] = "the model is not loaded yet; words alone were compared"
            return None
        if (error := reading.exception()) is not None:
            question.missing["meaning"] = str(error)
            return None
        return reading.result()


class TaskSearch:
    """A search that several callers wait for. It is cancelled as soon as no caller waits."""

    def __init__(self) -> None:
        self.first_hits: list[Hit] = []
        self._task: asyncio.Task[Hits] | None = None
        self._waiting = 0

    def begin(self, searching: Awaitable[Hits]) -> None:
        self._task = asyncio.ensure_future(searching)
        self._task.add_done_callback(observe_failure)

    def set_first_hits(self, hits: list[Hit]) -> None:
        self.first_hits = hits

    async def result(self) -> Sequence[Hit]:
        assert self._task is not None
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()


class MarkSource:
    """A source of marks: with a task, those that match it; without a task, the latest that no crystal covers."""

    declared = SourceDeclaration(name="marks", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, crystals: CrystalIndex, shared: SharedSearch) -> None:
        self._crystals = crystals
        self._shared = shared

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if not question.task:
            # Crystals cover the other marks.
            uncovered = await self._crystals.unsealed(limit=question.limit, latest=True)
            return [excerpt_of(mark_of(event), 1 / rank) for rank, event in enumerate(reversed(uncovered), start=1)]
        return excerpts_of(await self._shared.hits(question))

    def quick(self, question: Question) -> Sequence[Fragment]:
        return excerpts_of(self._shared.first_hits(question))

    async def close(self) -> None:
        """Do nothing: no resource is held."""


class MentionSource:
    """A source of statements about a concept: the best marks and crystals with all words of the concept's id."""

    declared = SourceDeclaration(name="mica", invalidated_by=("mark", "mark.*", "crystal.*"))
    made_by = declared.invalidated_by

    def __init__(
        self,
        *,
        log: EventLog,
        chains: ChainIndex,
        texts: TextIndex,
        crystals: CrystalIndex,
        stored: Callable[[], Awaitable[None]],
    ) -> None:
        self._log = log
        self._chains = chains
        self._texts = texts
        self._crystals = crystals
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        concept, now = question.subject, question.now
        id_terms = set(terms(concept.id))
        if not id_terms or self.are_any is False:
            return []
        await self._stored()
        known = await self._texts.postings(sorted(id_terms), limit=1)
        self.are_any = known.marks > 0
        if not all(known.count_marks(term) for term in id_terms):
            return []
        hits = await find(
            concept.id,
            log=self._log,
            chains=self._chains,
            texts=self._texts,
            crystals=self._crystals,
            limit=MENTIONS_READ,
            now=now,
        )
        naming = [hit for hit in hits if id_terms <= set(terms(hit.text)) and hit.at <= now][:MENTIONS_MAX]
        return [
            Fragment(
                key=f"#{hit.position}",
                text=hit.text[:MENTION_CHARACTERS_MAX],
                confidence=PHI_INV,
                at=hit.at,
                source=self.declared.name,
                locator=f"#{hit.position}",
                sources=(hit.id,),
            )
            for hit in naming
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def excerpts_of(hits: Sequence[Hit]) -> list[Fragment]:
    """Convert search hits to excerpts. The best hit gets the score 1. Hits with the same text become one excerpt."""
    best = max((hit.score for hit in hits), default=0.0) or 1.0
    positions = {hit.mark.id: hit.mark.position for hit in hits}
    distinct: dict[str, Hit] = {}
    for hit in hits:
        distinct.setdefault(hit.text, hit)
    return [
        excerpt_of(hit.mark, hit.score / best, f"corrected by #{positions[hit.corrected_by]}")
        if hit.corrected_by
        else excerpt_of(hit.mark, hit.score / best)
        for hit in distinct.values()
    ]


def excerpt_of(mark: Mark, score: float, note: str = "") -> Excerpt:
    """Convert a mark to an excerpt.

    The kind of the excerpt, which a brief shows, is the first tag of the mark (or "mark"), followed by `note`.
    """
    return Excerpt(
        text=mark.text,
        sources=(mark.id,),
        score=score,
        at=mark.at,
        source=MarkSource.declared.name,
        kind=", ".join(filter(None, [next(iter(mark.tags), MARK), note])),
        locator=f"#{mark.position}",
    )
