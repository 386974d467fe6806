"""The hierarchy of crystals."""

from __future__ import annotations

import mica
from mica.web.views import crystals


async def test_the_hierarchy_opens_down_to_marks(memory: mica.Memory) -> None:
    """keeps: B-32"""
    shelf = await crystals.shelf(memory)
    node = next(each for each in shelf.nodes if each.level == "week")

    levels = [node.level]
    while node.level != "mark":
        node = (await crystals.children(memory, node.id))[0]
        levels.append(node.level)

    assert levels == ["week", "day", "session", "mark"]
    assert shelf.session == "now"
    assert shelf.session_marks > 0


async def test_a_crystal_shows_each_statement_with_the_marks_it_cites(memory: mica.Memory) -> None:
    crystal = (await memory.crystals.list(level="session"))[0]

    found = await crystals.detail(memory, crystal.id)

    assert [each.text for each in found.statements] == [each.text for each in crystal.statements]
    assert [[event.id for event in each.cited] for each in found.statements] == [
        list(each.sources) for each in crystal.statements
    ]
    assert found.is_live


async def test_a_retracted_crystal_is_shown_as_retracted(memory: mica.Memory) -> None:
    crystal = (await memory.crystals.list(level="session"))[0]

    await memory.retract(crystal.id, reason="wrong")

    assert not (await crystals.detail(memory, crystal.id)).is_live
