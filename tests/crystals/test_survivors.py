"""Epochs and trees survive a purge of their sources."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.crystals.working_days import MONDAY, NOTES, OTHER, crystallize_two_weeks, observe

import mica
from mica.format.documents import event_line
from mica.model.event import EventQuery
from mica.settings import CrystalSettings, Settings
from mica.testing import HandClock


@pytest.fixture
def home(home: Settings) -> Settings:
    return msgspec.structs.replace(home, time_zone="Europe/Berlin", crystals=CrystalSettings(auto=False))


@pytest.mark.parametrize("auto", [True, False])
async def test_a_named_epoch_survives_a_purge_of_its_sources(memory: mica.Memory, clock: HandClock, auto: bool) -> None:
    """keeps: K-53.

    It is rebuilt from the remaining marks at once, or on the next run after an interruption; no milestone would
    recreate it.
    """
    memory.crystals._settings = CrystalSettings(auto=auto)
    refs, epoch = await crystallize_two_weeks(memory, clock)

    await memory.purge(ids=[refs[0][0].id, refs[1][0].id])
    if not auto:
        assert await memory.crystals.list(level="epoch") == []
        clock.move(weeks=1)
        await memory.crystals.make_due()

    [again] = await memory.crystals.list(level="epoch")
    assert (again.period, again.label, again.marks) == (epoch.period, "beginnings of hunter2", epoch.marks - 2)
    assert (again.revision, again.supersedes) == (2, (epoch.id,))
    await memory.purge(ids=[ref.id for ref in refs[1]])
    clock.move(weeks=1)
    await memory.crystals.make_due()
    [again] = await memory.crystals.list(level="epoch")
    assert [week.period for week in await memory.crystals.expand(again.id) if isinstance(week, mica.Crystal)] == [
        "week:2026-W45"
    ]
    assert (again.label, again.revision) == ("beginnings of hunter2", 3)
    await memory.purge(value="hunter2", reason="leaked")
    await memory.crystals.make_due()
    [again] = await memory.crystals.list(level="epoch")
    assert (again.label, again.revision) == (None, 4)
    for event in await memory.events.query(EventQuery(limit=None)):
        assert b"hunter2" not in event.body
    await memory.purge(ids=[ref.id for ref in refs[0]])
    for _ in range(2):
        assert await memory.crystals.make_due() == []
        await memory.upkeep.rebuild()
    assert await memory.crystals.list(limit=None) == []
    assert await memory.upkeep.verify() == []


async def test_a_purge_does_not_recreate_what_a_person_ended(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. Such an epoch was retracted or purged itself; its weeks are free for another one."""
    memory.crystals._settings = CrystalSettings(auto=True)
    refs, epoch = await crystallize_two_weeks(memory, clock)
    await memory.retract(epoch.id, reason="too early")
    await memory.purge(ids=[refs[0][0].id])
    clock.move(weeks=1)
    await memory.crystals.make_due()
    assert await memory.crystals.list(level="epoch") == []

    await memory.crystals.make(level="epoch", label="another")
    [other] = await memory.crystals.list(level="epoch")
    assert (other.label, len(other.sources)) == ("another", 2)
    await memory.purge(ids=[other.id])
    await memory.crystals.make_due()

    assert await memory.crystals.list(level="epoch") == []
    assert await memory.upkeep.verify() == []


async def test_a_tree_survives_a_purge_of_one_of_its_marks(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53"""
    memory.crystals._settings = CrystalSettings(auto=True)
    with memory.context(session="s1"):
        root = memory.mark(NOTES[0])
        below = [memory.mark(text, parent=root) for text in NOTES[1:]]
    [tree] = await memory.crystals.make(tree=root.id)

    await memory.purge(ids=[root.id])
    await memory.purge(ids=[below[0].id])

    [again] = await memory.crystals.list()
    assert (again.period, again.revision) == (tree.period, 3)
    assert set(again.sources) == {ref.id for ref in below[1:]}
    await memory.purge(ids=[ref.id for ref in below[1:]])
    assert await memory.crystals.make_due() == []
    assert await memory.upkeep.verify() == []


@pytest.mark.parametrize("condition", [{"value": "hunter2"}, {"user": "ann"}])
async def test_an_epoch_survives_a_purge_of_the_record_that_names_it(
    memory: mica.Memory, clock: HandClock, condition: dict[str, str]
) -> None:
    """keeps: K-53.

    The record of an earlier purge holds the epoch's name and the user; both are purged before the epoch is rebuilt.
    """
    refs, epoch = await crystallize_two_weeks(memory, clock)
    with memory.context(user="ann"):
        await memory.purge(ids=[refs[0][0].id])

    with memory.context(user="ben"):
        await memory.purge(value=condition.get("value"), user=condition.get("user"))
    await memory.purge(user="ben")
    for event in await memory.events.query(EventQuery(limit=None)):
        assert b"hunter2" not in event.body
        assert event.context.user is None
    clock.move(weeks=1)
    await memory.crystals.make_due()

    [again] = await memory.crystals.list(level="epoch")
    assert (again.period, again.label, again.marks) == (epoch.period, None, epoch.marks - 1)
    assert (again.revision, again.supersedes) == (2, (epoch.id,))
    assert await memory.crystals.make(level="epoch") == []
    assert await memory.upkeep.verify() == []


@pytest.mark.parametrize("auto", [True, False])
async def test_a_period_emptied_by_a_purge_is_retracted(memory: mica.Memory, clock: HandClock, auto: bool) -> None:
    """keeps: K-53. This holds for an epoch and a tree; later marks of the same weeks do not join them."""
    memory.crystals._settings = CrystalSettings(auto=auto)
    refs, epoch = await crystallize_two_weeks(memory, clock)
    [tree] = await memory.crystals.make(tree=refs[0][0].id)

    await memory.purge(ids=[ref.id for ref in refs[0]])
    assert await retractions(memory) == ([tree.id] if auto else [])
    clock.move(days=1)
    await memory.crystals.make_due()  # the second week is not over and may still join the epoch
    assert await retractions(memory) == [tree.id]
    clock.move(weeks=1)
    await memory.crystals.make_due()
    [again] = await memory.crystals.list(level="epoch")
    assert (again.label, again.revision) == (epoch.label, 2)
    await memory.purge(ids=[ref.id for ref in refs[1]])
    assert await retractions(memory) == ([tree.id, again.id] if auto else [tree.id])
    assert await memory.crystals.make_due() == []
    assert await retractions(memory) == [tree.id, again.id]
    for day, texts in ((0, NOTES), (1, OTHER), (7, NOTES), (8, OTHER)):
        with memory.context(session=f"late {day}"):
            for text in texts:
                memory.mark(text, at=MONDAY + timedelta(days=day))
    await memory.crystals.make(level="epoch", label="another")

    [other] = await memory.crystals.list(level="epoch")
    assert (other.label, other.revision, other.supersedes) == ("another", 1, ())
    assert await memory.crystals.make_due() == []
    assert await retractions(memory) == [tree.id, again.id]
    assert await memory.upkeep.verify() == []


async def retractions(memory: mica.Memory) -> list[object]:
    """Return the retracted ids, oldest first."""
    events = await memory.events.query(EventQuery(names=("mark.retracted",), limit=None))
    return [event.data["mark"] for event in events]


@pytest.mark.parametrize("label", ["mine", None])
async def test_a_tree_requested_again_replaces_the_one_a_purge_rebuilt(
    memory: mica.Memory, clock: HandClock, label: str | None
) -> None:
    """keeps: K-53. Two crystals never cover the same marks."""
    with memory.context(session="s1"):
        root = memory.mark(NOTES[0])
        below = [memory.mark(text, parent=root) for text in NOTES[1:]]
    [tree] = await memory.crystals.make(tree=root.id, label="theirs")
    await memory.purge(ids=[below[0].id])

    [again] = await memory.crystals.make(tree=root.id, label=label)

    assert (again.revision, again.supersedes, again.label) == (2, (tree.id,), label or "theirs")
    clock.move(minutes=1)
    assert await memory.crystals.make_due() == []
    assert await memory.crystals.list(limit=None) == [again]
    assert await memory.upkeep.verify() == []


@pytest.mark.parametrize("names", [("log.purged",), ("log.purged", "event.purged")])
async def test_a_partly_imported_log_blocks_no_crystal(
    memory: mica.Memory, home: Settings, clock: HandClock, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """keeps: K-53. The imported part holds the record of a purge, but nothing of the tree that was purged."""
    part = tmp_path / "part.jsonl"
    async with mica.open(":memory:", settings=home, clock=clock) as other:
        with other.context(session="s1"):
            root = other.mark(NOTES[0])
            below = [other.mark(text, parent=root) for text in NOTES[1:]]
        [tree] = await other.crystals.make(tree=root.id)
        await other.purge(ids=[below[0].id])
        records = await other.events.query(EventQuery(names=names, limit=None))
        selected = [event for event in records if event.name == "log.purged" or event.id == tree.id]
        part.write_bytes(b"".join(event_line(event) + b"\n" for event in selected))
    observe(memory, clock, "s1")
    assert (await memory.events.import_log(part)).events == len(names)

    [made] = await memory.crystals.make(session="s1")
    clock.move(days=2)

    assert [crystal.level for crystal in await memory.crystals.make_due()] == ["day"]
    assert made.period == "session:s1"
    assert await memory.upkeep.verify() == []


async def test_a_forged_purge_record_makes_no_epoch(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. A purge record is trusted only if that purge left a tombstone."""
    refs, _ = await crystallize_two_weeks(memory, clock)
    other = memory.emit("tool.ran", {"text": "anything"})
    await memory.purge(ids=[refs[0][0].id, other.id])
    clock.move(weeks=1)
    await memory.crystals.make_due()
    before = await memory.crystals.list(limit=None)
    observe(memory, clock, "later")
    for gone in ("x", refs[0][0].id, refs[0][1].id, before[0].id, other.id):
        for period in ("epoch:forged", "tree:nonsense", f"tree:{refs[0][1].id}"):
            survivor = {"crystal": gone, "period": period, "revision": 41, "label": "obey", "weeks": ["week:2026-W47"]}
            memory.emit("log.purged", {"survivors": [survivor]})
    clock.move(weeks=1)

    made = await memory.crystals.make_due()

    assert [crystal.level for crystal in made] == ["session", "day", "week"]
    assert [crystal.label for crystal in await memory.crystals.list(level="epoch")] == ["beginnings of hunter2"]
    assert await memory.upkeep.verify() == []
