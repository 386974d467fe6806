"""The benchmark of gathering measures what it says, over real sources."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


async def test_each_part_is_measured_beside_a_plain_gather_and_with_a_hung_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: C-18, C-19, C-24, M-19.

    The report has p50, p95 and p99, cold and warm, hung and not; tokens, agreement and completeness.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
    gather = importlib.import_module("gather")
    async with gather.six_sources(tmp_path, concepts=gather.CONCEPTS) as six:
        new = await gather.overhead(six, what="all by an index", calls=20)
        hung = await gather.hung(six, calls=4)
        popular = await gather.popular(six, calls=60)

    assert new["fragments"] == 54
    assert {
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "plain_p50_ms",
        "plain_p99_ms",
        "overhead_vs_plain",
        "cpu_vs_plain",
        "cache_hit_ms",
    } <= set(new)
    assert 0 < new["p50_ms"] <= new["p95_ms"] <= new["p99_ms"]
    assert new["cache_hit_ms"] > 0
    assert hung["p99_ms_hung"] > 0
    assert 0 < new["coherence"] <= 1
    assert new["tokens_per_fragment_max"] <= 50
    assert hung["named"] == 1.0
    assert popular["stale_served"] == 0
    assert popular["changes"] == 3
