"""Helpers to read a page, or a part of one, as a browser does."""

from __future__ import annotations

import httpx2

PARTS = (
    "/today/happened",
    "/today/open",
    "/today/next",
    "/today/found",
    "/today/well",
    "/beliefs/list",
    "/beliefs/list?kind=rule",
    "/beliefs/add",
    "/crystals/forest",
    "/crystals/forest?q=cookie",
    "/crystals/forest?q=%3F%21",
    "/crystals/crystallize",
    "/admin/patterns/hot",
    "/admin/patterns/map",
    "/admin/patterns/worth",
    "/admin/patterns/worth?period=day",
    "/admin/patterns/figures",
    "/admin/patterns/evolution",
    "/events/rows",
    "/events/rows?bundle=full&names=mark",
    "/briefs/list",
    "/briefs/arms",
    "/briefs/helped",
    "/sources/answered",
    "/sources/declared",
    "/sources/gathered?concept=judgment:code_review:1",
    "/status/space",
    "/status/errors",
    "/status/uncovered",
)


async def page(client: httpx2.AsyncClient, address: str) -> str:
    answer = await client.get(address, headers={"hx-request": "true"} if address in PARTS else {})
    assert answer.status_code == 200, (address, answer.text)
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text
