"""Tests of the promises of `AppendNotices`, which run unchanged on every kind of store."""

from __future__ import annotations

import asyncio
import threading

from mica.store.protocol import Store
from mica.testing.builders import build

ENOUGH_S = 60  # a notification that takes longer on a busy machine never comes


class NoticesContract:
    """Tests of `AppendNotices`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_a_live_listener_is_notified_of_an_append(self, store: Store) -> None:
        """A store without notifications says so, and never calls the listener."""
        loop, rang = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            loop.call_soon_threadsafe(rang.set)

        end = store.notices.listen(ring)
        is_live = store.notices.is_live

        await store.log.append([build(1)])

        if is_live:
            async with asyncio.timeout(ENOUGH_S):
                await rang.wait()
        assert isinstance(is_live, bool)
        end()

    async def test_a_removed_listener_is_not_notified(self, store: Store) -> None:
        rings: list[None] = []
        store.notices.listen(lambda: rings.append(None))()

        await store.log.append([build(1)])

        assert await store.log.last_position() == 1
        assert rings == []

    async def test_a_listener_can_be_removed_twice_and_from_another_thread(self, store: Store) -> None:
        end = store.notices.listen(lambda: None)

        thread = threading.Thread(target=end)
        thread.start()
        await asyncio.to_thread(thread.join)
        end()

        assert (await store.log.append([build(1)])).stored == 1
