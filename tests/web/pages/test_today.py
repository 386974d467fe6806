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
    today, happened, found = [await page(client, path) for path in ("/", "/today/happened", "/today/found")]

    assert "1 session: 1 mark." in happened
    assert "0 prompts" not in happened
    assert "No rules, decisions or open ends yet" in found
    assert today.index("/today/found") < today.index("/today/next") < today.index("/today/happened")
    assert "All is well" in await page(client, "/today/well")


async def test_today_counts_what_mica_found_and_shows_the_newest(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    await memory.beliefs.add("rule", "Always use uv run, never python directly")
    await memory.beliefs.add("decision", "We go with the unique index on orders.number")
    await memory.beliefs.add("task", "Write the migration for the unique index")
    found, opened = await page(client, "/today/found"), await page(client, "/today/open")

    assert "1 rule, 1 decision, 1 open task" in found
    assert found.index("Always use uv run") < found.index("unique index on orders.number")
    assert "Write the migration" in opened


async def test_a_line_of_the_next_brief_can_be_corrected_and_ended(
    client: httpx2.AsyncClient, pool: MemoryPool
) -> None:
    """The buttons of a line lead to the belief or the mark behind it, and the next brief follows."""
    memory = await pool.memory()
    with memory.context(session="s1", agent="claude"):
        memory.mark("The login proxy times out after 30 seconds", tags=["gotcha"])
        plain = memory.mark("I looked at the start page of the shop for a while")
    [belief] = await memory.beliefs.list("gotcha")

    before = await page(client, "/today/next")
    done = await client.post(f"/correct/{belief.id}", data={"text": "The login proxy times out after 60 seconds"})
    after = await page(client, "/today/next")

    assert f"/correct/{belief.id}" in before
    assert f"/beliefs/{belief.id}/end" in before
    assert plain.id not in before or f"/retract/{plain.id}" in before
    assert done.status_code == 303
    assert ("60 seconds" in after, "30 seconds" in after) == (True, False)
