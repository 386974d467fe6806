"""What marks meant: the highest crystals that cover the time, or those that answer the query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec

from mica.brief.mark_source import passage
from mica.brief.question import Question
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, in_one_piece
from mica.model.event import MARK, EventId, Mark, Passage, left_after, mark_of
from mica.store.protocol import Store
from mica.tokens import estimate
from mica.words import terms, terms_of, words

CRYSTALS_MAX = 300  # the latest that are looked at
READ_MAX = 80  # of those, that have most of a query's words: reading and weighing 300 takes half of a brief's time
OFFERED_MAX = 20  # of those, that answer a query
HALF_LIFE_DAYS = 7.0
PHRASE = 0.3  # for a query that stands in it word for word
BESIDE_MARKS = 0.8  # of a crystal's score, where marks answer too: they are the evidence
ROOM = 0.6  # of a brief without a question, for crystals and what they rest on; the rest is for what is newer
LINE_TOKENS = 25  # of a line besides its text
UNFOLDED_MAX = 40
HIGHER = 1.0  # a level more counts more than being fresh, where nothing is asked


class Crystals:
    """The crystals of a space."""

    name = "crystals"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def passages(self, question: Question) -> Sequence[Passage]:
        if question.query:
            return await self._answering(question)
        top = await self._store.crystals(CrystalQuery(is_sealed=False, is_stale=False, limit=CRYSTALS_MAX))
        shown = await self._unfolded([each for each in top if not each.is_tree], question.budget_tokens * ROOM)
        return [
            _passage(each, HIGHER * (1 + each.number) + recency(each.end_at, question.now))
            if isinstance(each, Crystal)
            else passage(each, recency(each.at, question.now))
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
            events = await self._store.events_of(latest.sources)
            beneath = [mark_of(event) if event.name == MARK else crystal_of(event) for event in events]
            more = sum(map(_cost, beneath)) - _cost(latest)
            if more > left:
                break
            left -= more
            shown = [each for each in shown if each is not latest] + beneath
        return shown

    async def _answering(self, question: Question) -> list[Passage]:
        wanted = frozenset(terms(question.query))
        latest = CrystalQuery(is_stale=False, limit=CRYSTALS_MAX)
        found = await saying(self._store, wanted, latest, most=READ_MAX)
        weight = question.recency_weight
        scored = [
            (weight * recency(crystal.end_at, question.now) + (1 - weight) * relevance, crystal)
            for crystal in found
            if (relevance := relevant(crystal, wanted, question.query)) > 0
        ]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1].number, pair[1].id))[:OFFERED_MAX]
        if not best:
            return []
        ids = {hit.position: hit.id for hit in await question.hits()}
        ids |= {crystal.position or 0: crystal.id for _, crystal in best}
        above = await self._store.above(list(ids))
        return [
            _passage(
                crystal, score * BESIDE_MARKS, [ids[each] for each, over in above.items() if crystal.position in over]
            )
            for score, crystal in best
        ]


def recency(at: datetime, now: datetime) -> float:
    """Half of it for every week that has gone by."""
    return left_after(now - at, half_life_days=HALF_LIFE_DAYS)


def relevant(crystal: Crystal, wanted: frozenset[str], query: str) -> float:
    """How much of a query a crystal speaks of: the share of its terms, and more when it says it word for word."""
    if not wanted:
        return 0.0
    told = " ".join([*(statement.text for statement in crystal.statements), *crystal.topics, crystal.label or ""])
    said = words(told)
    share = len(wanted.intersection(terms_of(said))) / len(wanted)
    asked = words(query)
    is_phrase = len(asked) > 1 and f" {' '.join(asked)} " in f" {' '.join(said)} "
    return min(1.0, share + (PHRASE if is_phrase and share else 0.0))


async def saying(
    store: Store, wanted: Collection[str], query: CrystalQuery, *, most: int | None = None
) -> list[Crystal]:
    """The crystals that fit and have one of these terms; whether a crystal is stale is asked of those alone.

    Of more than `most` those are read that have most of the terms, of equal ones the latest.
    """
    of_any = msgspec.structs.replace(query, is_stale=None)
    said = await store.crystal_postings(sorted(wanted), of_any) if wanted else {}
    having = Counter(posting.position for found in said.values() for posting in found)
    best = sorted(having, key=lambda position: (-having[position], -position))
    positions = frozenset(best[:most])
    return await store.crystals(msgspec.structs.replace(query, positions=positions, limit=None)) if positions else []


def speaking(crystals: Iterable[Crystal], query: str) -> list[Crystal]:
    """The crystals that speak of a query, those first that say most of it; of equal ones the latest."""
    wanted = frozenset(terms(query))
    scored = [(relevance, each) for each in crystals if (relevance := relevant(each, wanted, query)) > 0]
    return [each for _, each in sorted(scored, key=lambda pair: (pair[0], pair[1].end_at), reverse=True)]


def _cost(source: Crystal | Mark) -> int:
    """About what a line of it costs."""
    return LINE_TOKENS + (source.tokens if isinstance(source, Crystal) else estimate(source.text))


def _passage(crystal: Crystal, score: float, beneath: Iterable[EventId] = ()) -> Passage:
    """Everything it says, with the marks it cites."""
    cited = dict.fromkeys(each for statement in crystal.statements for each in statement.sources)
    return Passage(
        text=in_one_piece(statement.text for statement in crystal.statements),
        sources=(crystal.id, *cited),
        tokens=0,
        score=score,
        at=crystal.end_at,
        source=Crystals.name,
        kind=f"{crystal.level} ({crystal.label or crystal.period.partition(':')[2]})",
        handle=f"#{crystal.position}",
        stands_for=frozenset([crystal.id, *cited, *crystal.sources, *beneath]),
    )
