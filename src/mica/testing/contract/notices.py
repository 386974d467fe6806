"""Tests of the promises of `AppendNotices`, which run unchanged on every engine."""

from __future__ import annotations

from mica.store.protocol import Store
from mica.testing.builders import build


class NoticesContract:
    """Tests of `AppendNotices`. Inherit, and add a fixture `store` that yields a new, empty store."""

    async def test_a_listener_can_be_removed_twice(self, store: Store) -> None:
        """The test requires no notification, because an engine may send none."""
        rings: list[None] = []
        end = store.notices.listen(lambda: rings.append(None))

        await store.log.append([build(1)])

        assert isinstance(store.notices.is_live, bool)
        end()
        end()
