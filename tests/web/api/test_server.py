"""Operations of the server itself."""

from __future__ import annotations

import httpx2
from tests.web.conftest import Calling

import mica
from mica.settings import Settings
from mica.web.access import Access


async def test_a_token_of_one_space_opens_no_other(
    client: httpx2.AsyncClient, calling: Calling, access: Access, home: Settings
) -> None:
    """keeps: U-09. Spaces are isolated over HTTP too."""
    for name in ("one", "two"):
        async with mica.open(home.home / "spaces" / f"{name}.db", settings=home) as memory:
            memory.mark(f"only {name} knows")
    secret, _ = access.tokens.make("guest", spaces=["one"])

    async with calling(secret) as guest:
        own = await guest.get("/api/events/query")
        other = await guest.get("/api/events/query", params={"space": "two"})
        default = await guest.get("/api/events/query", params={"space": "shop"})
        listed = (await guest.get("/api/server/spaces")).json()
        linked = await guest.post("/api/server/link")

    assert "only one knows" in own.text
    assert (other.status_code, default.status_code, linked.status_code) == (403, 403, 403)
    assert listed == {"spaces": ["one"], "default": "one"}
    assert "only two knows" in (await client.get("/api/events/query", params={"space": "two"})).text
