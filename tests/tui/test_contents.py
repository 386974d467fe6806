"""The contents of the dashboard, without a screen."""

from __future__ import annotations

from tests.brief.test_handoff import NOTES

import mica
from mica.model.mark import mark_of
from mica.tui import contents
from mica.tui.contents import DashboardContents, read_contents


async def test_contents_are_the_active_session_and_the_crystals(memory: mica.Memory) -> None:
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(text).id for text in NOTES]
    crystal = await memory.crystals.commit([("The proxy drops cookies", ids[:2])], sources=ids, period="session:s1")

    current = await read_contents(memory)

    assert current == DashboardContents(crystals=(crystal,), session="s1", session_marks=len(NOTES), has_marks=True)
    assert contents.status(current, level=None) == f"session s1: {len(NOTES)} marks · 1 crystal · all levels"


def test_the_status_without_a_session_names_the_level() -> None:
    assert contents.status(DashboardContents(), level="day") == "no active session · 0 crystals · day crystals"


def test_the_next_steps_depend_on_whether_there_are_marks() -> None:
    assert "mica up" in contents.next_steps(DashboardContents())
    assert contents.next_steps(DashboardContents(has_marks=True)).startswith("No crystals yet.")


async def test_the_sources_of_a_crystal_are_cited_or_have_a_reason(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(text).id for text in NOTES]
    crystal = await memory.crystals.commit([("The proxy drops cookies", ids[:2])], sources=ids, period="session:s1")
    marks = [mark_of(await memory.events.get(each)) for each in ids]

    lines = contents.expanded_detail(crystal, marks[:-1]).plain.splitlines()

    assert lines[0] == f"made from {len(ids)} sources"
    assert [line.startswith("cited #") for line in lines[1:-1]] == [True, True, *[False] * (len(ids) - 3)]
    assert lines[-1] == "1 source can no longer be read"
