"""The page Trails."""

from __future__ import annotations

import httpx2

import mica


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
