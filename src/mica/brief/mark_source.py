"""The sources of marks, which are observations in words: marks that match a task, and marks that mention a concept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from weakref import WeakKeyDictionary

import msgspec

from mica.beliefs.testimony import place_of
from mica.brief.excerpt import Excerpt
from mica.brief.work_source import ended_texts, excerpt_of_statement, is_ended, statements_of
from mica.brief.worth import ASIDE, MATCH, OUTCOME, of_age, of_length, relevance
from mica.model.event import MARK, EventId
from mica.model.hit import Hit
from mica.model.mark import Mark
from mica.search.mark_search import Hits, search
from mica.search.ranker import ParsedQuery
from mica.search.search import find
from mica.search.vectors import MarkVectors
from mica.sources.protocol import PHI_INV, Fragment, Question, SourceDeclaration
from mica.store.priority import observe_failure
from mica.store.protocol import BeliefTable, ChainIndex, CrystalIndex, EventLog, TextIndex
from mica.words import terms

FOLLOWED_MAX = 8  # the best hits, whose outcomes are shown, too
FOLLOWING_MAX = 4  # marks on each side of a hit that are read for its outcome
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
    """A source of the marks that match a task, sentence by sentence. Without a task it has nothing to say."""

    declared = SourceDeclaration(name="marks", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, shared: SharedSearch, texts: TextIndex, beliefs: BeliefTable) -> None:
        self._shared = shared
        self._texts = texts
        self._beliefs = beliefs

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if not question.task:
            return []
        hits = await self._shared.hits(question)
        best = [hit for hit in hits if hit.position is not None][:FOLLOWED_MAX]
        around = await self._texts.read([hit.position for hit in best], neighbours=FOLLOWING_MAX) if best else []
        matches = [*matches_of(hits), *outcomes_of(best, [text.mark for text in around])]
        ended = await ended_texts(self._beliefs, [match.mark.id for match in matches])
        return sentences_of_matches(matches, question, ended)

    def quick(self, question: Question) -> Sequence[Fragment]:
        return sentences_of_matches(matches_of(self._shared.first_hits(question)), question, {})

    async def close(self) -> None:
        """Do nothing: no resource is held."""


class TaskMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that matches a task, or that tells what came of one that matches."""

    mark: Mark
    score: float  # the best match has 1
    note: str = ""
    is_outcome: bool = False


def matches_of(hits: Sequence[Hit]) -> list[TaskMatch]:
    """Return search hits as matches. A mark that another hit corrects gets a note."""
    best = max((hit.score for hit in hits), default=0.0) or 1.0
    positions = {hit.mark.id: hit.mark.position for hit in hits}
    return [
        TaskMatch(
            mark=hit.mark,
            score=hit.score / best,
            note=f", corrected by #{positions[hit.corrected_by]}" if hit.corrected_by else "",
        )
        for hit in hits
    ]


def outcomes_of(hits: Sequence[Hit], around: Iterable[Mark]) -> list[TaskMatch]:
    """Return what came of the best hits: later prompts, commits and closing words close to them in their sessions.

    `around` has the marks near the hits. An outcome often has no word of the task: it says what was done instead.
    """
    best = max((hit.score for hit in hits), default=0.0) or 1.0
    found: dict[EventId, TaskMatch] = {}
    for mark in around:
        before = [hit for hit in hits if hit.mark.session == mark.session and hit.mark.at < mark.at]
        if mark.session is None or not before or place_of(mark.tags) == "note":
            continue
        score = OUTCOME * max(hit.score for hit in before) / best
        found[mark.id] = TaskMatch(mark=mark, score=score, is_outcome=True)
    return list(found.values())


def sentences_of_matches(
    matches: Iterable[TaskMatch], question: Question, ended: Mapping[EventId, Iterable[str]]
) -> list[Excerpt]:
    """Return the sentences of matches as excerpts, without ended statements and without the asking session.

    A sentence is worth more if its mark matches well, if it has the words of the task, and if it is newer.
    """
    found = [
        (match, statement)
        for match in matches
        if question.session is None or match.mark.session != question.session
        for statement in statements_of(match.mark)
        if not is_ended(statement, ended.get(match.mark.id, ()))
    ]
    shares = relevance(question.task, [statement.text for _, statement in found])
    best_of: dict[EventId, float] = {}
    for (match, _), share in zip(found, shares, strict=True):
        best_of[match.mark.id] = max(share, best_of.get(match.mark.id, 0.0))
    excerpts: dict[tuple[EventId, int], Excerpt] = {}
    for (match, statement), share in zip(found, shares, strict=True):
        own = 1.0 if match.is_outcome else share / best_of[match.mark.id] if best_of[match.mark.id] else 1.0
        worth = MATCH * match.score * (ASIDE + (1 - ASIDE) * own)
        worth *= of_age(question.now - match.mark.at) * of_length(statement.text)
        made = excerpt_of_statement(match.mark, statement, worth, section="known")
        made = msgspec.structs.replace(made, source=MarkSource.declared.name, kind=made.kind + match.note)
        known = excerpts.get((match.mark.id, statement.ordinal))
        if worth and (known is None or known.score < made.score):
            excerpts[match.mark.id, statement.ordinal] = made
    return list(excerpts.values())


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
