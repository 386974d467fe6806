"""Tests of the promises of `ChainIndex`, which run unchanged on every kind of store."""

from __future__ import annotations

import msgspec
import pytest

from mica.errors import InvalidEvent
from mica.model.event import Context
from mica.store.protocol import Store
from mica.testing.builders import build


class ChainContract:
    """Tests of `ChainIndex`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_a_chain_has_the_events_of_one_root_or_correlation(self, store: Store) -> None:
        """keeps: E-30. A chain contains no unrelated events."""
        root = build(1)
        child = build(2, parent=root)
        elsewhere = Context(correlation="req-1")
        await store.log.append([root, child, build(3), build(4, parent=child), build(5, context=elsewhere)])
        await store.log.append([build(6, context=elsewhere)])

        assert [event.position for event in await store.chains.chain(root.id)] == [1, 2, 4]
        assert [event.position for event in await store.chains.chain("req-1")] == [5, 6]
        assert [event.position for event in await store.chains.chain(child.id)] == []

    async def test_ancestors_and_descendants_are_causal_only(self, store: Store) -> None:
        """keeps: TE-17, E-25, E-30, E-31.

        A later event of the same chain is a descendant only if its parents lead back to the event. One that only has
        the same correlation is not.
        """
        shared = Context(correlation="req-1")
        root = build(1, context=shared)
        left, right = build(2, parent=root, context=shared), build(3, parent=root, context=shared)
        leaf = build(4, parent=left, context=shared)
        await store.log.append([root, left, right, leaf, build(5, context=shared)])

        assert [event.position for event in await store.chains.ancestors(leaf.id)] == [2, 1]
        assert [event.position for event in await store.chains.descendants(root.id)] == [2, 3, 4]
        assert [event.position for event in await store.chains.descendants(root.id, depth=1)] == [2, 3]
        assert [event.position for event in await store.chains.descendants(left.id)] == [4]
        assert [event.position for event in await store.chains.descendants(left.id, depth=1)] == [4]
        assert await store.chains.descendants(left.id, depth=0) == []

    async def test_an_event_is_never_its_own_ancestor(self, store: Store) -> None:
        """keeps: TE-02"""
        event = build(1)
        with pytest.raises(InvalidEvent):
            await store.log.append([msgspec.structs.replace(event, parent_id=event.id, depth=1)])

    async def test_agents_are_listed_once(self, store: Store) -> None:
        names = ["smith", "scout", None, "smith"]
        await store.log.append([build(n, context=Context(agent=name, user=str(n))) for n, name in enumerate(names)])
        assert await store.chains.agents() == ["scout", "smith"]
