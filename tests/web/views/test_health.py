"""The health of a space."""

from __future__ import annotations

from tests.web.views.conftest import NOW

import mica
from mica.web.views import health


async def test_health_shows_due_jobs_and_failures(memory: mica.Memory) -> None:
    memory.emit("job.failed", {"kind": "evolve", "text": "no space left"}, error=True)
    await memory.upkeep.tick()

    found = await health.health(memory, now=NOW)

    assert {each.kind for each in found.work} >= {"crystallize", "evolve"}
    assert [event.data["text"] for event in found.own_failures] == ["no space left"]
    assert any("failed in the last week" in line for line in found.advice)
    assert await health.laws(memory) == []
