"""Two sources for briefs: crystals, which summarize past work, and teachings.

A teaching has the statements of a crystal that was promoted. For a task, the latest teachings are returned, and those
that match it get a higher score. For a concept, those that contain its id are returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from mica.brief.excerpt import Excerpt
from mica.brief.mark_source import SharedSearch, excerpt_of
from mica.crystals.relevance import read_matching, score_recency, score_relevance
from mica.crystals.teachings import read_teachings
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, join_statements
from mica.model.event import MARK, RETRACTED, EventId
from mica.model.mark import Mark, mark_of
from mica.model.teaching import Teaching
from mica.sources.protocol import RANK_DATABASE, Fragment, Question, SourceDeclaration
from mica.store.protocol import CrystalIndex, EventLog
from mica.tokens import estimate
from mica.words import terms

CRYSTALS_MAX = 300  # the latest that are considered
READ_MAX = 80  # crystals with the most words of a task that are scored: scoring 300 takes half of a brief's time
OFFERED_MAX = 20  # best crystals that are returned for a task
BESIDE_MARKS = 0.8  # factor of a crystal's score: matching marks are the evidence and rank higher
ROOM = 0.6  # of the budget of a brief without a task, for crystals and their sources; the rest is for newer marks
LINE_TOKENS = 25  # cost of a line besides its text
UNFOLDED_MAX = 40
HIGHER = 1.0  # score per level: without a task, level counts more than recency


class CrystalSource:
    """A source of crystals: with a task, those that match it; without a task, those that no other crystal covers.

    Without a task, the latest of these crystals are replaced by their sources, as far as the budget allows.
    """

    declared = SourceDeclaration(name="crystals", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, log: EventLog, index: CrystalIndex, shared: SharedSearch) -> None:
        self._log = log
        self._index = index
        self._shared = shared

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if question.task:
            return await self._match(question)
        top = await self._index.query(CrystalQuery(is_sealed=False, is_stale=False, limit=CRYSTALS_MAX))
        shown = await self._unfold([each for each in top if not each.is_tree], question.budget_tokens * ROOM)
        return [
            excerpt_of_crystal(each, HIGHER * (1 + each.number) + score_recency(each.end_at, question.now))
            if isinstance(each, Crystal)
            else excerpt_of(each, score_recency(each.at, question.now))
            for each in shown
        ]

    async def _unfold(self, cover: Sequence[Crystal], room_tokens: float) -> list[Crystal | Mark]:
        """Replace crystals by what they summarize (marks or crystals), the latest crystal first.

        This stops before the first replacement after which the result would exceed `room_tokens`, or after UNFOLDED_MAX
        replacements.
        """
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

    async def _match(self, question: Question) -> list[Excerpt]:
        query_terms = frozenset(terms(question.task))
        latest = CrystalQuery(is_stale=False, limit=CRYSTALS_MAX)
        matches = await read_matching(self._index, query_terms, latest, limit=READ_MAX)
        weight = question.recency_weight
        scored = [
            (weight * score_recency(crystal.end_at, question.now) + (1 - weight) * relevance, crystal)
            for crystal in matches
            if (relevance := score_relevance(crystal, query_terms, question.task)) > 0
        ]
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1].number, pair[1].id))[:OFFERED_MAX]
        if not best:
            return []
        ids = {hit.position: hit.id for hit in await self._shared.hits(question)}
        ids |= {crystal.position or 0: crystal.id for _, crystal in best}
        above = await self._index.above(list(ids))
        return [
            excerpt_of_crystal(
                crystal, score * BESIDE_MARKS, [ids[each] for each, over in above.items() if crystal.position in over]
            )
            for score, crystal in best
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _cost(source: Crystal | Mark) -> int:
    return LINE_TOKENS + (source.tokens if isinstance(source, Crystal) else estimate(source.text))


def excerpt_of_crystal(crystal: Crystal, score: float, beneath: Iterable[EventId] = ()) -> Excerpt:
    """Convert a crystal to an excerpt.

    If the excerpt is shown, the crystal's sources, the marks it cites and the events in `beneath` need not be shown.
    """
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


TEACHINGS_MAX = 50  # the latest; a person with more should withdraw some
SCORE_WITHOUT_TASK = 6.0  # above every crystal: a person chose it
SCORE_MATCHING = 1.0  # to this, the share of the task's words in the teaching is added; marks and crystals have up to 1
SCORE_OTHER = 0.05  # a teaching that does not match the task fills the remaining budget
ABOUT_CONCEPT_MAX = 5  # teachings about one concept; a brief shows fewer
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
        """`stored` waits until every event emitted so far is in the store; it is None for a log that does not grow."""
        self._log = log
        self._index = index
        self._stored = stored
        self.are_any: bool | None = None

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if question.concept is not None:
            return await self._match_concept(question)
        teachings = (await read_teachings(self._log, self._index))[-TEACHINGS_MAX:]
        return [excerpt_of_teaching(teaching, score_teaching(teaching, question.task)) for teaching in teachings]

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


def score_teaching(teaching: Teaching, task: str) -> float:
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
