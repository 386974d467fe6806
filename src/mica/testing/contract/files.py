"""Tests of the promises of `StoreFiles`, which run unchanged on every kind of store."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from mica.errors import DuplicateEvent, InvalidEvent
from mica.model.event import Appended, Context, EventQuery
from mica.store.protocol import Store
from mica.testing.builders import START_AT, build


class FilesContract:
    """Tests of `StoreFiles`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_rebuild_changes_no_answer(self, store: Store) -> None:
        """keeps: U-07. Indexes are derived from the log alone."""
        events = [build(n, "mark", {"text": f"cookie {n}"}, context=Context(session="s1")) for n in range(1, 6)]
        await store.log.append(events)
        before = (
            await store.texts.postings(["cooki"]),
            await store.texts.read([3]),
            await store.log.query(EventQuery(text="cookie")),
        )

        progress: list[int] = []
        assert await store.files.rebuild(on_progress=progress.append) == 5
        assert progress in ([], [5])  # a server reports no progress

        assert before == (
            await store.texts.postings(["cooki"]),
            await store.texts.read([3]),
            await store.log.query(EventQuery(text="cookie")),
        )
        assert await store.files.verify() == []

    async def test_ageing_changes_no_answer(self, store: Store) -> None:
        """keeps: E-03, E-30, K-43.

        Ageing compresses old events. They are read like all others, and can be appended again or become parents.
        """
        here = Context(session="s1", agent="scout", correlation="req-1")
        root = build(1, "mark", {"text": "cookie"}, context=here)
        child = build(2, "tool.failed", {"text": "x" * 20_000}, parent=root, context=here, error=True)
        others = [
            build(n, "mark", {"text": f"session {n}"}, context=Context(session=f"s{n % 3}")) for n in range(3, 40)
        ]
        await store.log.append([root, child, *others])

        async def answers() -> list[object]:
            return [
                await store.log.query(EventQuery(limit=None)),
                await store.log.query(EventQuery(session="s1", limit=5)),
                await store.log.query(EventQuery(agent="scout", names=("tool.*",), errors=True)),
                await store.log.query(EventQuery(text="cookie")),
                await store.log.read(5, limit=7),
                await store.log.get(child.id),
                await store.log.at(3),
                await store.chains.chain("req-1"),
                await store.chains.chain(root.id),
                await store.chains.ancestors(child.id),
                await store.chains.descendants(root.id),
                await store.texts.postings(["session"]),
                await store.texts.read([5, 9]),
                await store.chains.agents(),
                await store.files.verify(),
            ]

        before = await answers()
        while await store.files.age(START_AT + timedelta(seconds=20), limit=10):
            pass

        assert await answers() == before
        assert await store.log.append([root, child, *others]) == Appended(repeated=39)
        with pytest.raises(DuplicateEvent, match=child.id):
            await store.log.append([msgspec.structs.replace(child, body=b"{}")])
        with pytest.raises(InvalidEvent):
            await store.log.append([msgspec.structs.replace(build(50, parent=child), depth=9)])
        late = build(51, parent=child, after_s=1)
        assert await store.log.append([late]) == Appended(stored=1)
        assert [event.id for event in await store.chains.descendants(root.id)] == [late.id, child.id]
        assert [event.id for event in await store.chains.ancestors(late.id)] == [child.id, root.id]

    async def test_ageing_waits_until_enough_is_due(self, store: Store) -> None:
        await store.log.append([build(n) for n in range(1, 9)])
        assert await store.files.age(START_AT + timedelta(days=1), at_least=9) == 0
        assert (await store.files.sizes()).aged == 0

    async def test_verify_names_a_missing_parent(self, store: Store) -> None:
        child = build(2, parent=build(1))
        await store.log.append([child])
        problems = await store.files.verify()
        assert len(problems) == 1
        assert child.id in problems[0]
        assert build(1).id in problems[0]

    async def test_sizes_count_what_is_there(self, store: Store) -> None:
        await store.log.append([build(1, "mark", {"text": "x"}), build(2), build(3, context=Context(agent="a"))])
        sizes = await store.files.sizes()
        assert (sizes.events, sizes.marks, sizes.contexts) == (3, 1, 2)
