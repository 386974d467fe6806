"""The page Trails."""

from __future__ import annotations

import httpx2
from tests.web.pages.dashboard import page

import mica
from mica.web.memory_pool import MemoryPool


async def test_one_click_crystallizes_a_trail_and_another_suspends_it(
    client: httpx2.AsyncClient, memory: mica.Memory
) -> None:
    trail = next(each for each in await memory.trails.list(limit=None) if not each.version)

    named = await client.post(f"/admin/patterns/{trail.key}/crystallize", data={"slug": "by-hand"})
    refused = await client.post(f"/admin/patterns/{trail.key}/crystallize", data={"slug": "Not A Name"})
    suspended = await client.post(f"/admin/patterns/{trail.key}/suspend")

    assert named.status_code == suspended.status_code == 200
    assert (refused.status_code, "cannot be called" in refused.text) == (422, True)
    shown = await memory.trails.show("by-hand")
    assert (shown.version, shown.suspended) == (1, "suspended on the dashboard")
    await client.post(f"/admin/patterns/{trail.key}/resume")
    assert (await memory.trails.show("by-hand")).suspended is None


async def test_the_account_of_navigation_is_on_the_trails_page(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """Savings and offers are shown there, and not on the first screen."""
    memory = await pool.memory()
    with memory.context(session="s1", agent="me"):
        memory.mark("The cookie is set before the redirect")
    today, trails, worth = [await page(client, path) for path in ("/", "/admin/patterns", "/admin/patterns/worth")]

    assert ("/admin/patterns/worth" in trails, "worth" in today) == (True, False)
    assert ("No tasks this week" in worth, "<table" in worth) == (True, False)
    assert "has no offers yet" in await page(client, "/admin/patterns/figures")
