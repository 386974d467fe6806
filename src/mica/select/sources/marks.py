"""What was observed: the marks that answer the query, or the latest ones when nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model import MARK, EventQuery, Mark, Passage, mark_of
from mica.select.sources import Question
from mica.store.protocol import Store


class Marks:
    """The marks of a space."""

    name = "marks"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def passages(self, question: Question) -> Sequence[Passage]:
        if not question.query:
            latest = await self._store.events(EventQuery(names=(MARK,), limit=question.limit))
            newest_first = [mark_of(event) for event in reversed(latest) if event.origin != "recalled"]
            return [_passage(mark, 1 / rank) for rank, mark in enumerate(newest_first, start=1)]
        hits = await question.hits()
        best = max((hit.score for hit in hits), default=0.0) or 1.0
        return [_passage(hit.mark, hit.score / best) for hit in hits]


def _passage(mark: Mark, score: float) -> Passage:
    return Passage(
        text=mark.text,
        sources=(mark.id,),
        tokens=0,
        score=score,
        at=mark.at,
        source=Marks.name,
        kind=next(iter(mark.tags), MARK),
        handle=f"#{mark.position}",
    )
