"""Whether briefs are told: switched for a space, or held out for some sessions, so that both can be compared."""

from __future__ import annotations

from hashlib import blake2b

from mica.model import EventQuery
from mica.store.protocol import Store

SWITCHED = "brief.switched"  # {"on": bool}; the latest holds


async def is_switched_on(store: Store) -> bool:
    """Whether this space tells briefs."""
    latest = await store.events(EventQuery(names=(SWITCHED,), limit=1))
    return not latest or latest[-1].data.get("on") is not False


def is_held_out(session: str | None, *, space: str, share: float) -> bool:
    """Whether a session is one of the share that is told nothing. The same session always is, or never."""
    if session is None or share <= 0:
        return False
    drawn = int.from_bytes(blake2b(f"{space}\n{session}".encode(), digest_size=8).digest())
    return drawn < share * 2**64
