"""The page Health."""

from __future__ import annotations

import httpx2

import mica


async def test_laws_are_checked_and_due_jobs_run_on_request(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    laws = await client.post("/status/laws")
    ticked = await client.post("/status/tick")

    assert "All laws hold" in laws.text
    assert "crystallize" in ticked.headers["hx-trigger"]
    assert {work.kind for work in await memory.upkeep.planned()} >= {"crystallize", "evolve"}
