"""Whether a space tells briefs. Which sessions are held out, hooks and briefs alike, is drawn by `mica.hook`."""

from __future__ import annotations

from mica.model.event import EventQuery
from mica.store.protocol import Store

SWITCHED = "brief.switched"  # {"on": bool}; the latest holds


async def is_switched_on(store: Store) -> bool:
    """Whether this space tells briefs."""
    latest = await store.events(EventQuery(names=(SWITCHED,), limit=1))
    return not latest or latest[-1].data.get("on") is not False
