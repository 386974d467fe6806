"""Search: the store's candidates, ranked by one pure formula."""

from __future__ import annotations

from datetime import datetime

from mica.select.rank import NEIGHBOURS, Hit, parse, rank, shortlist
from mica.store.protocol import Store


async def search(store: Store, query: str, *, limit: int, now: datetime) -> list[Hit]:
    """The marks that answer the query, best first."""
    asked = parse(query, now=now, speakers=await store.agents())
    postings = await store.postings(asked.wanted)
    texts = await store.texts(shortlist(asked, postings, limit=max(limit, 200)), neighbours=NEIGHBOURS)
    return rank(asked, texts, postings)[:limit]
