"""The page Briefs."""

from __future__ import annotations

import httpx2
from tests.web.pages.dashboard import page

import mica


async def test_briefs_are_switched_off_and_on(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """keeps: C-22"""
    off = await client.post("/briefs/switch", data={"on": "0"})
    brief = await memory.brief("login")
    shown = await page(client, "/briefs/helped")
    on = await client.post("/briefs/switch", data={"on": "1"})

    assert off.status_code == on.status_code == 200
    assert brief.text == ""
    assert "briefs are off" in shown
    assert await memory.briefs.is_on()
