"""The page Today."""

from __future__ import annotations

import httpx2
from tests.web.pages.dashboard import page

from mica.web.memory_pool import MemoryPool


async def test_today_shows_no_list_of_zeros(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """A space with one mark shows it and the next brief, and says why there are no figures yet."""
    memory = await pool.memory()
    with memory.context(session="s1", agent="me"):
        memory.mark("The cookie is set before the redirect")
    today, happened, worth = [await page(client, path) for path in ("/", "/today/happened", "/today/worth")]

    assert "1 session: 1 mark." in happened
    assert "0 prompts" not in happened
    assert ("No tasks this week" in worth, "<table" in worth) == (True, False)
    assert today.index("/today/next") < today.index("/today/worth")
    assert "has no offers yet" in await page(client, "/today/figures")
