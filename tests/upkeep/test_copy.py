"""Copying a space: complete, each event once, resumable, verified."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from tests.residue import residue

import mica
from mica.errors import DuplicateEvent, InvalidInput, StoreError, StoreUnavailable
from mica.model.event import Appended, Event, EventQuery
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.reference.log import ReferenceLog
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite.store import SqliteStore
from mica.testing import HandClock, build
from mica.testing.histories import History, histories
from mica.testing.postgres import LocalPostgres
from mica.upkeep import copy as copying
from mica.upkeep.copy import CopyResult, copy


@given(history=histories())
async def test_a_copy_gives_the_same_answers_as_the_original(history: History) -> None:
    source, target = EphemeralStore(), EphemeralStore()
    await source.log.append(history)

    assert await copy(source, target) == CopyResult(events=len(history), stored=len(history), repeated=0)
    assert await target.log.read(0, limit=1_000) == await source.log.read(0, limit=1_000)
    assert await copy(source, target) == CopyResult(events=len(history), stored=0, repeated=len(history))


async def test_an_interrupted_copy_can_be_continued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH_EVENTS", 10)

    class UnsteadyLog(ReferenceLog):
        appends_left = 3

        async def append(self, events: Sequence[Event]) -> Appended:
            self.appends_left -= 1
            if self.appends_left == 0:
                raise StoreUnavailable("gone")
            return await super().append(events)

    await store.log.append([build(number, "mark", {"text": f"mark {number}"}) for number in range(45)])
    target = EphemeralStore()
    target.log = UnsteadyLog(target.state)
    with pytest.raises(StoreUnavailable):
        await copy(store, target)
    done = await copy(store, target)

    assert done == CopyResult(events=45, stored=25, repeated=20)
    assert len(await target.log.query(EventQuery(limit=None))) == 45


async def test_a_space_can_be_copied_while_it_is_written(store: Store) -> None:
    """keeps: E-38. The verification covers the events that existed when the copy began."""
    await store.log.append([build(number) for number in range(5)])

    class OvertakenLog(ReferenceLog):
        async def append(self, events: Sequence[Event]) -> Appended:
            await store.log.append([build(100 + await store.log.last_position())])
            return await super().append(events)

    target = EphemeralStore()
    target.log = OvertakenLog(target.state)
    assert await copy(store, target) == CopyResult(events=5, stored=5, repeated=0)
    assert await target.log.last_position() == 5
    assert await store.log.last_position() > 5


async def test_other_content_under_a_known_id_is_refused(store: Store) -> None:
    await store.log.append([build(1, data={"n": 1})])
    target = EphemeralStore()
    await target.log.append([build(1, data={"n": 2})])
    with pytest.raises(DuplicateEvent):
        await copy(store, target)


async def test_spaces_are_not_mixed_unless_requested(store: Store, tmp_path: Path) -> None:
    """keeps: U-09. A copy is recognized by its first event and may have grown since."""
    await store.log.append([build(1), build(2)])
    other = await SqliteStore.open(tmp_path / "other.db")
    await other.log.append([build(2), build(9)])
    for source, target in ((store, other), (other, store)):
        before = await target.log.read(0, limit=10)
        with pytest.raises(InvalidInput, match="holds another space"):
            await copy(source, target)
        assert await target.log.read(0, limit=10) == before

    assert await copy(store, other, into_other=True) == CopyResult(events=2, stored=1, repeated=1)
    backup = EphemeralStore()
    await copy(store, backup)
    await backup.log.append([build(10)])
    await store.log.append([build(3)])
    assert await copy(store, backup) == CopyResult(events=3, stored=1, repeated=2)
    await other.close()


async def test_a_copy_that_lacks_an_event_says_how_many(store: Store) -> None:
    await store.log.append([build(1), build(2)])

    class ForgetfulLog(ReferenceLog):
        appends = 0

        async def append(self, events: Sequence[Event]) -> Appended:
            self.appends += 1
            return await super().append(events[:-1] if self.appends == 1 else events)

    target = EphemeralStore()
    target.log = ForgetfulLog(target.state)

    with pytest.raises(StoreError, match=r"^1 event was missing in .* after the copy; run it again$"):
        await copy(store, target)


async def test_a_source_that_shrinks_during_a_copy_is_named_with_both_counts() -> None:
    """Nothing is missing in the target then."""

    class ShrinkingLog(ReferenceLog):
        reads_from_start = 0

        async def read(self, after: int, *, limit: int) -> list[Event]:
            self.reads_from_start += not after and limit > 1
            events = await super().read(after, limit=limit)
            return events[1:] if self.reads_from_start == 2 else events

    source, target = EphemeralStore(), EphemeralStore()
    await source.log.append([build(1), build(2), build(3)])
    source.log = ShrinkingLog(source.state)

    with pytest.raises(StoreError, match=r"^3 events were copied, but .* has only 2 of them now; run the copy again$"):
        await copy(source, target)


async def test_a_space_is_not_copied_onto_itself(store: Store, tmp_path: Path) -> None:
    """A copy that changes nothing and reports success would pass for a backup."""
    await store.log.append([build(1)])
    with pytest.raises(InvalidInput, match="is this space itself"):
        await copy(store, store)

    file = await SqliteStore.open(tmp_path / "file.db")
    await file.log.append([build(1)])
    (tmp_path / "link.db").symlink_to(tmp_path / "file.db")
    link = await SqliteStore.open(tmp_path / "link.db")
    with pytest.raises(InvalidInput, match=r"link\.db is this space itself"):
        await copy(file, link)
    await link.close()
    await file.close()
    shutil.copy(tmp_path / "file.db", tmp_path / "twin.db")
    file, twin = [await SqliteStore.open(tmp_path / name) for name in ("file.db", "twin.db")]
    assert await copy(file, twin) == CopyResult(events=1, stored=0, repeated=1)
    await twin.close()
    await file.close()


async def test_a_server_space_is_recognized_under_every_address(server: LocalPostgres) -> None:
    address = server.address(space="same")
    one, other = [await PostgresStore.open(each) for each in (address, f"{address}&application_name=other")]
    with pytest.raises(InvalidInput, match="is this space itself"):
        await copy(one, other)
    await one.close()
    await other.close()


async def test_a_store_can_be_copied_into_a_file(store: Store, tmp_path: Path) -> None:
    await store.log.append([build(1, data={"large": "x" * 10_000}), build(2)])
    target = await SqliteStore.open(tmp_path / "copy.db")
    assert (await copy(store, target)).stored == 2
    assert await target.files.verify() == []
    await target.close()


# -- After a purge -------------------------------------------------------------------------------------------------

SECRET = "vault-NeedleInTheHay"


async def lived(memory: mica.Memory, clock: HandClock) -> mica.Ref:
    """Record a session with a crystal, a day, an epoch, a teaching and a brief; returns the mark with the secret."""
    with memory.context(session="s1", agent="scout"):
        root = memory.mark("The cookie is set before the redirect, so the session is lost on every login")
        leaked = memory.mark(f"The vault opens with {SECRET} when the cookie is lost", parent=root)
        for word in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"):
            clock.move(minutes=1)
            memory.mark(f"The {word} cookie is set before the redirect, so the {word} login is lost", parent=root)
        memory.emit("tool.ran", {"text": f"export VAULT={SECRET}"}, parent=leaked)
        await memory.crystals.make(tree=root.id, label="beginnings")
        [crystal] = await memory.crystals.make()
        await memory.crystals.make(level="day")
        await memory.crystals.promote(crystal.id, by="ann")
        await memory.brief("vault cookie login")
    return leaked


@pytest.fixture(params=["sqlite to sqlite", "sqlite to postgres", "postgres to sqlite"])
def places(request: pytest.FixtureRequest, tmp_path: Path, server: LocalPostgres) -> tuple[str, str]:
    address = {name: str(tmp_path / f"{name}.db") for name in ("source", "target")}
    for name in ("source", "target"):
        if request.param.startswith("postgres") if name == "source" else request.param.endswith("postgres"):
            address[name] = server.address()
    return address["source"], address["target"]


@pytest.mark.parametrize("by", ["value", "ids", "session"])
async def test_a_copy_after_a_purge_purges_what_an_earlier_copy_brought(
    places: tuple[str, str], clock: HandClock, tmp_path: Path, by: str
) -> None:
    """keeps: U-08, K-53. Issue 18: the second copy broke the law of overlap, and the secret stayed in the copy."""
    source, target = places
    settings = mica.load_settings({"HOME": str(tmp_path), "MICA_SEMANTIC": "off"})
    async with mica.open(source, settings=settings, clock=clock) as memory:
        leaked = await lived(memory, clock)
        await memory.upkeep.copy_to(target)
        clock.move(minutes=1)
        conditions: dict[str, object] = {"value": SECRET, "ids": [leaked], "session": "s1"}
        done = await memory.purge(**{by: conditions[by]})  # type: ignore[arg-type]  # one table for all kinds
        assert bool(done.remade) == (by != "session")

        copied = await memory.upkeep.copy_to(target)

        assert copied.purged >= done.events
        assert (await memory.upkeep.copy_to(target)).purged == 0
        expected = [event async for event in memory.events.log()]
        crystals = [each.id for each in await memory.crystals.list(limit=None)]
    async with mica.open(target, settings=settings, clock=clock) as copied_memory:
        assert [event async for event in copied_memory.events.log()] == expected
        assert await copied_memory.upkeep.verify() == []
        assert [each.id for each in await copied_memory.crystals.list(limit=None)] == crystals
        if by != "ids":  # the tool's event has the secret, too
            assert SECRET not in str([each.data for each in expected])
    if by != "ids" and not target.startswith("postgres"):
        assert residue(Path(target).parent, [SECRET]) == []


async def test_a_copy_after_a_purge_also_purges_what_the_copy_made_of_it(
    places: tuple[str, str], clock: HandClock, tmp_path: Path
) -> None:
    """keeps: U-08. The copy was used: its own crystals, teachings and briefs quote events that are purged later."""
    source, target = places
    settings = mica.load_settings({"HOME": str(tmp_path), "MICA_SEMANTIC": "off"})
    async with mica.open(source, settings=settings, clock=clock) as memory:
        with memory.context(session="s1"):
            root = memory.mark(f"The vault opens with {SECRET} when the cookie is lost")
            for word in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"):
                memory.mark(f"The {word} cookie is set before the redirect, so the {word} login is lost", parent=root)
        await memory.upkeep.copy_to(target)
        async with mica.open(target, settings=settings, clock=clock) as used:
            [tree] = await used.crystals.make(tree=root.id)
            await used.crystals.promote(tree.id, by="ann")
            await used.brief("vault cookie login")
            assert SECRET in str([event.body async for event in used.events.log()])
        clock.move(minutes=1)
        await memory.purge(ids=[root])
        await memory.upkeep.copy_to(target)
    async with mica.open(target, settings=settings, clock=clock) as used:
        assert SECRET not in str([event.body async for event in used.events.log()])
        assert await used.upkeep.verify() == []
