"""The page Today."""

from __future__ import annotations

import httpx2
from tests.web.pages.dashboard import page

from mica.web.memory_pool import MemoryPool


async def test_today_tells_what_there_is_and_no_list_of_zeros(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """Of a space with one mark: what was seen and what the next agent is told, then why there are no figures yet."""
    memory = await pool.memory()
    with memory.context(session="s1", agent="me"):
        memory.mark("The cookie is set before the redirect")
    today, happened, worth = [await page(client, path) for path in ("/", "/today/happened", "/today/worth")]

    assert "1 session: 1 mark." in happened
    assert "0 prompts" not in happened
    assert ("No task was seen this week" in worth, "<table" in worth) == (True, False)
    assert today.index("/today/next") < today.index("/today/worth")
    assert "was offered nothing yet" in await page(client, "/today/figures")
