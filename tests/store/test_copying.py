"""Copying a space: everything, once, resumable, proven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from mica.errors import DuplicateEvent, StoreUnavailable
from mica.model import Appended, Event, EventQuery
from mica.store import copying
from mica.store.copying import Copied, copy
from mica.store.ephemeral import EphemeralStore
from mica.store.protocol import Store
from mica.store.sqlite import SqliteStore
from mica.testing import History, build, histories


@given(history=histories())
async def test_a_copy_answers_as_the_original(history: History) -> None:
    source, target = EphemeralStore(), EphemeralStore()
    await source.append(history)

    assert await copy(source, target) == Copied(events=len(history), stored=len(history), repeated=0)
    assert await target.log(0, limit=1_000) == await source.log(0, limit=1_000)
    assert await copy(source, target) == Copied(events=len(history), stored=0, repeated=len(history))


async def test_a_copy_that_was_cut_off_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH_EVENTS", 10)

    class Unsteady(EphemeralStore):
        left = 3

        async def append(self, events: Sequence[Event]) -> Appended:
            self.left -= 1
            if self.left == 0:
                raise StoreUnavailable("gone")
            return await super().append(events)

    await store.append([build(number, "mark", {"text": f"mark {number}"}) for number in range(45)])
    target = Unsteady()
    with pytest.raises(StoreUnavailable):
        await copy(store, target)
    done = await copy(store, target)

    assert done == Copied(events=45, stored=25, repeated=20)
    assert len(await target.events(EventQuery(limit=None))) == 45


async def test_other_content_under_a_known_id_is_refused(store: Store) -> None:
    await store.append([build(1, data={"n": 1})])
    target = EphemeralStore()
    await target.append([build(1, data={"n": 2})])
    with pytest.raises(DuplicateEvent):
        await copy(store, target)


async def test_a_store_can_be_copied_into_a_file(store: Store, tmp_path: Path) -> None:
    await store.append([build(1, data={"large": "x" * 10_000}), build(2)])
    target = await SqliteStore.open(tmp_path / "copy.db")
    assert (await copy(store, target)).stored == 2
    assert await target.verify() == []
    await target.close()
