"""Open marks: tasks, questions and problems that no later mark fulfills."""

from __future__ import annotations

from collections.abc import Iterable

from mica.model.crystal import CrystalQuery
from mica.model.event import MARK, Event
from mica.model.mark import Mark, mark_of
from mica.store.protocol import LATEST_MARKS, ChainIndex, CrystalIndex, EventLog, TextIndex

OPEN_TAGS = frozenset(["friction", "question", "task", "todo", "blocked"])  # of marks that can be fulfilled
ANSWER_TAGS = frozenset(["answer", "decision"])  # of marks that answer the question that they follow from

CRYSTALS_MAX = 60  # the latest crystals that no other covers; marks that are open in older ones were left so on purpose


async def find_unfulfilled(
    *, log: EventLog, chains: ChainIndex, texts: TextIndex, crystals: CrystalIndex, limit: int
) -> list[Mark]:
    """Return the latest `limit` marks about tasks, questions and problems that no other mark fulfills, oldest first."""
    latest = await crystals.query(CrystalQuery(is_sealed=False, limit=CRYSTALS_MAX))
    ids = dict.fromkeys(mark for crystal in latest for mark in crystal.open)
    fresh = await crystals.unsealed(limit=LATEST_MARKS, latest=True)
    ids |= dict.fromkeys(event.id for event in fresh if OPEN_TAGS.intersection(mark_of(event).tags))
    marks: list[Mark] = []
    for mark in reversed(await live_marks(texts, await log.get_many(list(ids)))):
        if len(marks) == limit:
            break
        if not await is_fulfilled(chains, texts, mark):
            marks.append(mark)
    return marks[::-1]


async def is_fulfilled(chains: ChainIndex, texts: TextIndex, mark: Mark) -> bool:
    """Return True if a child of this mark fulfills it and was not retracted.

    A decision or answer that follows from a question answers it.
    """
    below = await live_marks(texts, await chains.descendants(mark.id, depth=1))
    answers = ANSWER_TAGS if "question" in mark.tags else frozenset[str]()
    return any(
        each.parent_id == mark.id and (each.relation == "fulfills" or not answers.isdisjoint(each.tags))
        for each in below
    )


async def live_marks(texts: TextIndex, events: Iterable[Event]) -> list[Mark]:
    """Return the marks in `events`, in order of time. Retracted marks and marks with recalled text are left out."""
    positions = sorted({event.position for event in events if event.name == MARK and event.position is not None})
    marks = [text.mark for text in await texts.read(positions, neighbours=0)] if positions else []
    return sorted(marks, key=lambda mark: (mark.at, mark.position or 0))
