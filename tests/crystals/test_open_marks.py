"""Open marks: tasks, questions and problems until a later mark fulfills them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.crystals.working_days import observe

import mica
from mica.errors import InvalidInput
from mica.model.event import EventQuery
from mica.model.mark import mark_of
from mica.testing import HandClock


async def test_an_open_problem_is_listed_until_a_mark_resolves_it(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: TB-17, B-59. Friction that was resolved is not a gap."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        friction = memory.mark("The tests take ten minutes", tags=("friction",))
        question = memory.mark("Who owns the vault?", tags=("question",))
        clock.move(minutes=1)
        memory.mark("The tests run in parallel now", parent=friction, relation="fulfills")
    [crystal] = await memory.crystals.make()
    assert crystal.open == (question.id,)


async def test_a_related_mark_cannot_precede_its_parent(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-24, B-39. A relation also needs a parent and a known kind."""
    first = memory.mark("first")
    event = await memory.events.get(first.id)
    with pytest.raises(InvalidInput, match="cannot be older than its parent"):
        memory.mark("earlier", parent=event, at=clock() - timedelta(seconds=1))
    with pytest.raises(InvalidInput, match="needs a parent"):
        memory.mark("alone", relation="continues")
    with pytest.raises(InvalidInput, match="no relation"):
        memory.mark("x", parent=event, relation="likes")  # type: ignore[arg-type]
    memory.mark("second", parent=event, relation="branches", principles=["keep it small"])
    [_, second] = [mark_of(each) for each in await memory.events.query(EventQuery(names=("mark",)))]
    assert (second.relation, second.principles, second.parent_id) == ("branches", ("keep it small",), first.id)
