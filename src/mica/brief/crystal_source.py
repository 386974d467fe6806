"""What marks meant: the highest crystals that cover the time, or those that answer the query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mica.brief.excerpt import Excerpt
from mica.brief.mark_source import SharedSearch, excerpt_of
from mica.crystals.relevance import read_matching, score_recency, score_relevance
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, join_statements
from mica.model.event import MARK, EventId
from mica.model.mark import Mark, mark_of
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.protocol import CrystalIndex, EventLog
from mica.tokens import estimate
from mica.words import terms

CRYSTALS_MAX = 300  # the latest that are looked at
READ_MAX = 80  # of those, that have most of a query's words: reading and weighing 300 takes half of a brief's time
OFFERED_MAX = 20  # of those, that answer a query
BESIDE_MARKS = 0.8  # of a crystal's score, where marks answer too: they are the evidence
ROOM = 0.6  # of a brief without a question, for crystals and what they rest on; the rest is for what is newer
LINE_TOKENS = 25  # of a line besides its text
UNFOLDED_MAX = 40
HIGHER = 1.0  # a level more counts more than being fresh, where nothing is asked


class CrystalSource:
    """The crystals of a space."""

    declared = SourceDeclaration(name="crystals", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, log: EventLog, index: CrystalIndex, shared: SharedSearch) -> None:
        self._log = log
        self._index = index
        self._shared = shared

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if question.task:
            return await self._answering(question)
        top = await self._index.query(CrystalQuery(is_sealed=False, is_stale=False, limit=CRYSTALS_MAX))
        shown = await self._unfolded([each for each in top if not each.is_tree], question.budget_tokens * ROOM)
        return [
            _excerpt(each, HIGHER * (1 + each.number) + score_recency(each.end_at, question.now))
            if isinstance(each, Crystal)
            else excerpt_of(each, score_recency(each.at, question.now))
            for each in shown
        ]

    async def _unfolded(self, cover: Sequence[Crystal], room_tokens: float) -> list[Crystal | Mark]:
        """The crystals, and in place of the latest what they rest on, as long as all of it has room."""
        shown: list[Crystal | Mark] = list(cover)
        left = room_tokens - sum(map(_cost, shown))
        for _ in range(UNFOLDED_MAX):
            folded = [each for each in shown if isinstance(each, Crystal)]
            latest = max(folded, key=lambda crystal: (crystal.end_at, crystal.number), default=None)
            if latest is None:
                break
            events = await self._log.get_many(latest.sources)
            beneath = [mark_of(event) if event.name == MARK else crystal_of(event) for event in events]
            more = sum(map(_cost, beneath)) - _cost(latest)
            if more > left:
                break
            left -= more
            shown = [each for each in shown if each is not latest] + beneath
        return shown

    async def _answering(self, question: Question) -> list[Excerpt]:
        wanted = frozenset(terms(question.task))
        latest = CrystalQuery(is_stale=False, limit=CRYSTALS_MAX)
        found = await read_matching(self._index, wanted, latest, limit=READ_MAX)
        weight = question.recency_weight
        scored = [
            (weight * score_recency(crystal.end_at, question.now) + (1 - weight) * relevance, crystal)
            for crystal in found
            if (relevance := score_relevance(crystal, wanted, question.task)) > 0
        ]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1].number, pair[1].id))[:OFFERED_MAX]
        if not best:
            return []
        ids = {hit.position: hit.id for hit in await self._shared.hits(question)}
        ids |= {crystal.position or 0: crystal.id for _, crystal in best}
        above = await self._index.above(list(ids))
        return [
            _excerpt(
                crystal, score * BESIDE_MARKS, [ids[each] for each, over in above.items() if crystal.position in over]
            )
            for score, crystal in best
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _cost(source: Crystal | Mark) -> int:
    """About what a line of it costs."""
    return LINE_TOKENS + (source.tokens if isinstance(source, Crystal) else estimate(source.text))


def _excerpt(crystal: Crystal, score: float, beneath: Iterable[EventId] = ()) -> Excerpt:
    """Everything it says, with the marks it cites."""
    cited = dict.fromkeys(each for statement in crystal.statements for each in statement.sources)
    return Excerpt(
        text=join_statements(statement.text for statement in crystal.statements),
        sources=(crystal.id, *cited),
        score=score,
        at=crystal.end_at,
        source=CrystalSource.declared.name,
        kind=f"{crystal.level} ({crystal.label or crystal.period.partition(':')[2]})",
        locator=f"#{crystal.position}",
        stands_for=frozenset([crystal.id, *cited, *crystal.sources, *beneath]),
    )
