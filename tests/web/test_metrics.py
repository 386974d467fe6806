"""Metrics for Prometheus."""

from __future__ import annotations

import httpx2
import pytest

import mica
from mica.testing.contract.trails import build_trail
from mica.web import metrics
from mica.web.memory_pool import MemoryPool
from mica.web.metrics import Uses


async def test_metrics_have_the_promised_names(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """keeps: A-35"""
    memory = await pool.memory()
    steps = build_trail("fix-login", "auth/login.py", "auth/session.py").steps
    with memory.context(session="s1", agent="scout"):
        made = await memory.trails.create("fix-login", steps, description="fix the login")
        await memory.trails.track(made.slug, tokens=120)
    text = (await client.get("/metrics")).text

    assert 'crystal_usage_total{crystal_name="nav:fix-login",agent_id="scout"} 1' in text
    for name in ("token_savings_total", "pattern_success_rate", "crystal_load_duration_seconds", "mica_alert"):
        assert f"# TYPE {name} " in text
    assert 'mica_events{space="shop"}' in text
    assert "mica_requests_total" in text


@pytest.mark.parametrize("read_on_max", [20_000, 2], ids=["read on", "queried again"])
async def test_uses_of_trails_are_counted_once_and_purged(
    pool: MemoryPool, monkeypatch: pytest.MonkeyPatch, read_on_max: int
) -> None:
    """keeps: A-35. No use is missed or counted twice, however often the metrics are read."""
    monkeypatch.setattr(metrics, "READ_ON_MAX", read_on_max)
    memory, uses = await pool.memory(), Uses()

    def use(agent: str) -> mica.Ref:
        with memory.context(agent=agent):
            return memory.emit("trail.used", {"key": "k"})

    secret = use("Rosalind")
    assert await uses.of(memory) == {("k", "Rosalind"): 1}
    for _ in range(3):
        use("scout")
        memory.emit("tick")
    assert await uses.of(memory) == {("k", "Rosalind"): 1, ("k", "scout"): 3}
    assert await uses.of(memory) == {("k", "Rosalind"): 1, ("k", "scout"): 3}
    await memory.purge(ids=[secret.id])
    assert await uses.of(memory) == {("k", "scout"): 3}
