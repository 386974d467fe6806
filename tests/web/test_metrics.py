"""Metrics for Prometheus."""

from __future__ import annotations

import subprocess
import sys

import httpx2
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

import mica
from mica.testing.contract.trails import build_trail
from mica.web import metrics
from mica.web.memory_pool import MemoryPool
from mica.web.metrics import LoadDurations, Uses


async def read_metrics(client: httpx2.AsyncClient) -> dict[str, Metric]:
    """Read /metrics as Prometheus does; the parser drops `_total` from the names of counters."""
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def values_of(family: Metric) -> dict[tuple[str, ...], float]:
    """The samples of a metric, by the name and then the labels in alphabetical order."""
    return {
        (each.name, *(f"{label}={text}" for label, text in sorted(each.labels.items()))): each.value
        for each in family.samples
    }


async def test_metrics_have_the_promised_names(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """keeps: A-35"""
    memory = await pool.memory()
    steps = build_trail("fix-login", "auth/login.py", "auth/session.py").steps
    with memory.context(session="s1", agent="scout"):
        made = await memory.trails.create("fix-login", steps, description="fix the login")
        await memory.trails.track(made.slug, tokens=120)
    found = await read_metrics(client)

    assert values_of(found["crystal_usage"]) == {
        ("crystal_usage_total", "agent_id=scout", "crystal_name=nav:fix-login"): 1
    }
    assert values_of(found["mica_events"]) == {("mica_events", "space=shop"): await memory.events.position()}
    assert {name: family.type for name, family in found.items() if not name.startswith("process_")} == {
        "crystal_usage": "counter",
        "token_savings_total": "gauge",
        "pattern_success_rate": "gauge",
        "crystal_load_duration_seconds": "histogram",
        "mica_alert": "gauge",
        "mica_events": "gauge",
        "mica_marks": "gauge",
        "mica_contexts": "gauge",
        "mica_aged_events": "gauge",
        "mica_store_bytes": "gauge",
        "mica_backlog_events": "gauge",
        "mica_backlog_bytes": "gauge",
        "mica_requests": "counter",
        "mica_listeners": "gauge",
        "mica_spaces_open": "gauge",
    }
    assert found["process_resident_memory_bytes"].samples[0].value > 2**20


async def test_requests_are_counted_by_method_and_status(client: httpx2.AsyncClient) -> None:
    await client.get("/api/server/spaces")
    await client.get("/api/events/query?limit=none")

    found = await read_metrics(client)

    assert values_of(found["mica_requests"]) == {
        ("mica_requests_total", "method=GET", "status=200"): 1,
        ("mica_requests_total", "method=GET", "status=400"): 1,
    }


async def test_names_of_any_characters_are_read_back_unchanged(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    agent = 'a "quoted\\name"\nof {two} lines, ñ'
    memory = await pool.memory()
    with memory.context(agent=agent):
        memory.emit("trail.used", {"key": "unknown"})

    found = await read_metrics(client)

    assert values_of(found["crystal_usage"]) == {("crystal_usage_total", f"agent_id={agent}", "crystal_name=others"): 1}


async def test_load_durations_are_a_histogram_for_each_of_a_bounded_number_of_trails(
    client: httpx2.AsyncClient, app: Starlette, pool: MemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: A-35. Beyond the limit, the other trails share one histogram."""
    monkeypatch.setattr(metrics, "NAMES_MAX", 2)
    loads: LoadDurations = app.state.loads[(await pool.memory()).space]
    for name, seconds in (("a", 0.005), ("a", 0.3), ("a", 60.0), ("b", 0.0), ("c", 0.02), ("d", 0.02), ("a", 0.25)):
        loads.observe(name, seconds)

    values = values_of((await read_metrics(client))["crystal_load_duration_seconds"])

    name = "crystal_load_duration_seconds"
    limits = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "10.0", "+Inf")
    buckets = [values[f"{name}_bucket", "crystal_name=a", f"le={limit}"] for limit in limits]
    assert buckets == [1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4]
    counts = {key[1]: value for key, value in values.items() if key[0] == f"{name}_count"}
    assert counts == {"crystal_name=a": 4, "crystal_name=b": 1, "crystal_name=others": 2}
    assert values[f"{name}_sum", "crystal_name=a"] == pytest.approx(60.555)
    assert {key[0] for key in values} == {f"{name}_{part}" for part in ("bucket", "count", "sum")}


async def test_a_purge_forgets_the_durations_with_the_names_of_trails(
    client: httpx2.AsyncClient, app: Starlette, pool: MemoryPool
) -> None:
    """keeps: U-08."""
    memory = await pool.memory()
    secret = memory.mark("the name of the customer")
    await memory.events.get(secret.id)
    app.state.loads[memory.space].observe("nav:acme-gmbh-login", 0.1)
    before = await read_metrics(client)

    await memory.purge(ids=[secret])

    assert any("acme" in str(key) for key in values_of(before["crystal_load_duration_seconds"]))
    assert not values_of((await read_metrics(client))["crystal_load_duration_seconds"])


def test_a_server_loads_prometheus_at_the_first_request_for_metrics() -> None:
    """Importing the library takes 30 ms of CPU, and most servers are never asked."""
    code = "import sys, mica.cli.server_process, mica.web.app; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


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
