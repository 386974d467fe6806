"""Search statistics follow the changes of other processes."""

from __future__ import annotations

from pathlib import Path

from mica.model.event import RETRACTED, Context, Tombstone
from mica.store.sqlite.store import SqliteStore
from mica.testing import build


async def test_the_next_search_sees_changes_of_another_process(tmp_path: Path) -> None:
    """Cached statistics never outlive their texts."""
    ours, theirs = await SqliteStore.open(tmp_path / "space.db"), await SqliteStore.open(tmp_path / "space.db")
    marks = [build(number, "mark", {"text": "cookie"}, context=Context(session="s")) for number in range(1, 4)]

    async def search() -> tuple[int, list[int]]:
        found = await ours.texts.postings(["cooki"])
        return found.containing["cooki"], [text.position for text in await ours.texts.read([1, 2, 3], neighbours=0)]

    await theirs.log.append(marks[:2])
    assert await search() == (2, [1, 2])
    await theirs.log.append(marks[2:])
    assert await search() == (3, [1, 2, 3])
    await theirs.log.append([build(4, RETRACTED, {"mark": marks[1].id, "reason": "wrong"})])
    assert await search() == (2, [1, 3])
    await theirs.purges.bury([marks[2].id], Tombstone(purge=build(1_000).id, reason="leaked"))
    assert await search() == (1, [1])
    await ours.close()
    await theirs.close()
