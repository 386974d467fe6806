"""The page Events."""

from __future__ import annotations

import httpx2
import pytest

import mica
from mica.web.memory_pool import MemoryPool


async def test_rows_after_a_position_are_only_the_new_ones(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    first = await client.get("/events/rows")
    memory.mark("just now", tags="finding")

    later = await client.get("/events/rows", params={"after": first.headers["mica-position"]})

    assert later.text.count("<tr") == 1
    assert "just now" in later.text
    assert int(later.headers["mica-position"]) == int(first.headers["mica-position"]) + 1


@pytest.mark.parametrize("after", ["9" * 5_000, str(2**70), "-1", "²", "nonsense"])
async def test_an_impossible_position_shows_the_latest(
    client: httpx2.AsyncClient, pool: MemoryPool, after: str
) -> None:
    (await pool.memory()).mark("the only one")

    found = await client.get("/events/rows", params={"after": after})

    assert (found.status_code, "the only one" in found.text) == (200, True)
