"""The promises of `AppendNotices`, as tests that run unchanged on every engine."""

from __future__ import annotations

from mica.store.protocol import Store
from mica.testing.builders import build


class NoticesContract:
    """Inherit, and add a fixture `store` that yields a new, empty store."""

    async def test_a_listener_can_be_removed_twice(self, store: Store) -> None:
        """A notification is a hint: an engine may send none."""
        rings: list[None] = []
        end = store.notices.listen(lambda: rings.append(None))

        await store.log.append([build(1)])

        assert isinstance(store.notices.is_live, bool)
        end()
        end()
