"""Receipts, and tasks with and without briefs."""

from __future__ import annotations

from datetime import UTC, datetime

import mica
from mica.web.views import briefs

NOW = datetime(2026, 11, 13, 15, 0, tzinfo=UTC)


async def test_every_line_of_a_receipt_leads_to_its_source(memory: mica.Memory) -> None:
    listed = await briefs.receipts(memory)

    found = await briefs.explained(memory, listed[0].id)

    assert found is not None
    assert len(found.why.because) == listed[0].lines
    assert all(line.evidence for line in found.why.because)


async def test_tasks_with_briefs_stand_beside_tasks_without(memory: mica.Memory) -> None:
    """keeps: C-50. By the figures of `mica briefs quality`, over the same eight weeks."""
    found = await briefs.helped(memory, now=NOW)

    assert found.is_on
    assert found.quality.helped == (await memory.briefs.quality(until=NOW)).helped
    assert found.quality.helped.on.tasks + found.quality.helped.off.tasks > 0
    assert "too few" in found.quality.helped.verdict
    assert not found.is_partial


async def test_an_event_of_somebody_else_named_brief_is_no_receipt(memory: mica.Memory) -> None:
    ref = memory.emit("brief", {"passages": "none"})

    assert await briefs.explained(memory, ref.id) is None
    assert ref.id not in {each.id for each in await briefs.receipts(memory)}
