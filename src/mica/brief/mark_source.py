"""What was observed: the marks that answer the query, or the latest ones when nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from mica.brief.question import Question
from mica.model.event import MARK, Mark, Passage, mark_of
from mica.search.ranker import Hit
from mica.store.protocol import Store


class Marks:
    """The marks of a space."""

    name = "marks"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def passages(self, question: Question) -> Sequence[Passage]:
        if not question.query:
            open_ones = await self._store.unsealed(limit=question.limit, latest=True)  # crystals stand for the others
            return [passage(mark_of(event), 1 / rank) for rank, event in enumerate(reversed(open_ones), start=1)]
        return told(await question.hits())

    def quick(self, question: Question) -> Sequence[Passage]:
        return told(question.looked)


def told(hits: Sequence[Hit]) -> list[Passage]:
    """Hits as a brief shows them: of those that say the same the first, which is the latest."""
    best = max((hit.score for hit in hits), default=0.0) or 1.0
    positions = {hit.mark.id: hit.mark.position for hit in hits}
    distinct: dict[str, Hit] = {}
    for hit in hits:
        distinct.setdefault(hit.text, hit)
    return [
        passage(hit.mark, hit.score / best, f"corrected by #{positions[hit.corrected_by]}")
        if hit.corrected_by
        else passage(hit.mark, hit.score / best)
        for hit in distinct.values()
    ]


def passage(mark: Mark, score: float, note: str = "") -> Passage:
    """A mark as a brief shows it."""
    return Passage(
        text=mark.text,
        sources=(mark.id,),
        tokens=0,
        score=score,
        at=mark.at,
        source=Marks.name,
        kind=", ".join(filter(None, [next(iter(mark.tags), MARK), note])),
        handle=f"#{mark.position}",
    )
