"""From a digest to a crystal."""

from __future__ import annotations

from datetime import timedelta

from mica.crystals.digest import extract
from mica.crystals.draft import drafted, material
from mica.crystals.periods import Closing
from mica.model.event import EventId, Mark
from mica.testing import build
from mica.testing.builders import START_AT

TEXTS = (
    "Moved the session cookie after the proxy redirect.",
    "After the proxy redirect the session cookie moved.",
    "PostgreSQL partitions are closed every month by the ageing job.",
)


def test_a_crystal_says_which_source_says_what_another_was_dropped_for() -> None:
    """TB-12, B-59"""
    marks = tuple(
        Mark(id=EventId(build(number).id), text=text, at=START_AT + timedelta(minutes=number))
        for number, text in enumerate(TEXTS, 1)
    )
    made_of = material(marks)
    closing = Closing(level="session", period="session:s1", sources=marks)
    draft = drafted(closing, made_of, extract(made_of.sources, budget_tokens=30), method="test")
    assert draft is not None
    [dropped] = draft.dropped
    assert (dropped.reason, {dropped.id, dropped.similar_to}) == ("said by another", {marks[0].id, marks[1].id})
