"""What agents are taught: promoted crystals, first where they answer the query, and last where there is room."""

from __future__ import annotations

from collections.abc import Sequence

from mica.brief.question import Question
from mica.crystals.teachings import known
from mica.model.crystal import in_one_piece
from mica.model.event import Passage
from mica.model.teaching import Teaching
from mica.store.protocol import Store
from mica.words import terms

TEACHINGS_MAX = 50  # the latest; more are no teachings any more, and a person should withdraw some
UNASKED = 6.0  # above every crystal: somebody chose it
ANSWERING = 1.0  # above every mark and crystal that answers, and more for each word it answers
BESIDE = 0.05  # what is taught, though nobody asked for it, fills what is left


class Teachings:
    """The teachings of a space that stand."""

    name = "teachings"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def passages(self, question: Question) -> Sequence[Passage]:
        standing = (await known(self._store))[-TEACHINGS_MAX:]
        return [_passage(teaching, score(teaching, question.query)) for teaching in standing]


def score(teaching: Teaching, query: str) -> float:
    """How much a teaching is worth telling now."""
    wanted = frozenset(terms(query))
    if not wanted:
        return UNASKED
    said = " ".join([*(statement.text for statement in teaching.statements), *teaching.topics])
    share = len(wanted.intersection(terms(said))) / len(wanted)
    return ANSWERING + share if share else BESIDE


def _passage(teaching: Teaching, score: float) -> Passage:
    cited = dict.fromkeys(mark for statement in teaching.statements for mark in statement.sources)
    return Passage(
        text=in_one_piece(statement.text for statement in teaching.statements),
        sources=(teaching.id, teaching.crystal, *cited),
        tokens=0,
        score=score,
        at=teaching.at,
        source=Teachings.name,
        kind="teaching",
        handle=f"#{teaching.position}",
        stands_for=frozenset([teaching.crystal, *cited]),
    )
