"""Receipts, and tasks with and without briefs."""

from __future__ import annotations

from tests.web.views.conftest import NOW

import mica
from mica.web.views import briefs


async def test_every_line_of_a_receipt_leads_to_its_source(memory: mica.Memory) -> None:
    listed = await briefs.receipts(memory)

    found = await briefs.explain(memory, listed[0].id)

    assert found is not None
    assert len(found.why.because) == listed[0].lines
    assert all(line.evidence for line in found.why.because)


async def test_tasks_with_and_without_briefs_are_compared(memory: mica.Memory) -> None:
    """keeps: C-50. The figures equal those of `mica briefs quality` over the same eight weeks."""
    found = await briefs.brief_effect(memory, now=NOW)

    assert found.is_on
    assert found.quality.helped == (await memory.briefs.quality(until=NOW)).helped
    assert found.quality.helped.on.tasks + found.quality.helped.off.tasks > 0
    assert "too few" in found.quality.helped.verdict
    assert not found.is_partial


async def test_a_foreign_event_named_brief_is_not_a_receipt(memory: mica.Memory) -> None:
    ref = memory.emit("brief", {"passages": "none"})

    assert await briefs.explain(memory, ref.id) is None
    assert ref.id not in {each.id for each in await briefs.receipts(memory)}
