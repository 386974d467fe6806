"""The log of one space: emitted events are stored exactly once despite failures, and listeners are called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unsteady_stores import UnsteadyStore

import mica
from mica import EventQuery, Memory, errors
from mica.errors import (
    Backlogged,
    InvalidEvent,
    InvalidInput,
    StoreFull,
    StoreUnavailable,
    UnknownEvent,
)
from mica.events import fold as folding
from mica.events import journal
from mica.events.log import Log, mark_data
from mica.model.event import Descent, Event
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.testing.builders import build


async def test_a_full_store_is_reported_and_nothing_is_lost(home: Settings) -> None:
    """keeps: U-04. Events that could not be stored wait, and are stored once there is room."""
    store = UnsteadyStore(*[StoreFull("no space left")] * 2)
    memory = Memory(store, settings=home)
    memory.emit("one")
    await memory.durable()
    with pytest.raises(StoreFull):
        await memory.events.query()
    with pytest.raises(StoreFull):
        await memory.search("one")
    memory.emit("two")

    assert [event.name for event in await memory.events.query()] == ["one", "two"]
    await memory.close()


async def test_the_background_task_retries_by_itself(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "RETRY_S", 0)
    monkeypatch.setattr(folding, "GATHER_S", 0)
    store = UnsteadyStore(StoreUnavailable("gone"), StoreUnavailable("gone"))
    memory = Memory(store, settings=home)
    memory.emit("one")
    async with asyncio.timeout(30):
        while not (await store.files.sizes()).events:
            await asyncio.sleep(0)
    assert [event.name for event in await store.log.read(0, limit=10)] == ["one"]
    await memory.close()


async def test_a_stuck_store_makes_observing_fail_loudly(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: U-04. The backlog is bounded and events are never dropped."""
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 1)
    store = UnsteadyStore(*[StoreUnavailable("gone fishing")] * 1000)
    memory = Memory(store, settings=home)
    emitted: list[int] = []

    def emit_without_end() -> None:
        for number in range(10_000):
            memory.emit("kept", {"n": number})
            emitted.append(number)

    with pytest.raises(Backlogged, match="wait for the store"):
        emit_without_end()

    store.errors.clear()

    assert [event.data["n"] for event in await memory.events.query(EventQuery(limit=None))] == emitted
    await memory.close()


async def test_a_refused_event_is_reported_and_blocks_no_other(home: Settings) -> None:
    memory = Memory(EphemeralStore(), settings=home)
    root = memory.emit("root")
    await memory.events.query()
    memory.emit("liar", {"said": "anyway"}, parent=mica.Ref(root.writer, root.sequence, Descent(7)))
    memory.emit("honest", parent=root)

    with pytest.raises(InvalidEvent, match="depth"):
        await memory.events.query()

    events = {event.name: event for event in await memory.events.query()}
    assert set(events) == {"root", "event.refused", "honest"}
    assert events["event.refused"].data["name"] == "liar"
    assert events["event.refused"].data["data"] == {"said": "anyway"}
    assert events["event.refused"].error
    await memory.close()


async def test_a_background_error_is_raised_by_the_next_read(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "GATHER_S", 0)
    store = UnsteadyStore(InvalidEvent("x"), InvalidEvent("x"))
    memory = Memory(store, settings=home)
    memory.emit("bad")
    while store.errors:
        await asyncio.sleep(0)
    memory.emit("fine")
    with pytest.raises(InvalidEvent):
        await memory.events.query()
    assert [event.name for event in await memory.events.query()] == ["event.refused", "fine"]
    await memory.close()


async def test_a_cancelled_wait_loses_and_doubles_nothing(memory: Memory) -> None:
    for number in range(50):
        memory.emit("step", {"n": number})
        task = asyncio.create_task(memory.durable())
        await asyncio.sleep(0)
        task.cancel()
    assert [event.data["n"] for event in await memory.events.query(EventQuery(limit=None))] == list(range(50))


# -- Listeners ------------------------------------------------------------------------------------------------


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    """The log of an empty space, without a memory around it."""
    opened = Log(EphemeralStore(), carrier={})
    yield opened
    opened.start_closing()
    await opened.close()
    opened.journal.close()


async def test_listeners_run_in_order_around_every_append(log: Log) -> None:
    calls: list[tuple[str, list[str]]] = []

    def before(name: str) -> Callable[[Sequence[Event]], None]:
        return lambda events: calls.append((name, [event.name for event in events]))

    async def after(events: Sequence[Event]) -> None:
        calls.append(("after", [event.name for event in events]))

    log.before_append += [before("first"), before("second")]
    log.on_append.append(after)

    log.emit("one")
    await log.stored()

    assert calls == [("first", ["one"]), ("second", ["one"]), ("after", ["one"])]


async def test_followers_are_notified_after_the_listeners(log: Log) -> None:
    rung = log.bell.next
    seen: list[bool] = []

    async def after(events: Sequence[Event]) -> None:
        seen.append(rung.is_set())

    log.on_append.append(after)
    await log.append([build(1)])

    assert seen == [False]
    assert rung.is_set()


async def test_every_read_runs_pending_work_first(log: Log) -> None:
    async def spooled() -> None:
        await log.append([build(1, "from.a.hook")])

    log.before_read.append(spooled)

    assert [event.name for event in await log.query(EventQuery())] == ["from.a.hook"]
    assert (await log.get(build(1).id)).name == "from.a.hook"


async def test_a_purge_by_another_process_is_noticed_at_the_next_append(home: Settings) -> None:
    """keeps: U-08. Cache owners are notified, and marks may not repeat purged text."""
    store = EphemeralStore()
    log = Log(store, carrier={})
    other = Memory(store, settings=home)
    purges: list[str] = []
    log.on_purge.append(lambda: purges.append("purged"))
    other.mark("the vault is called q7zx")
    await other.purge(value="q7zx")
    log.check_asserted("q7zx again")  # not known in this process yet

    await log.append([build(1)])

    assert purges == ["purged"]
    with pytest.raises(InvalidInput, match="'q7zx' was purged"):
        log.check_asserted("q7zx again")
    with pytest.raises(InvalidInput, match="purge --allow q7zx"):
        log.mark("q7zx again")
    await log.append([build(2)])
    assert purges == ["purged"], "each purge is notified once"
    log.start_closing()
    await log.close()
    log.journal.close()
    await other.close()


async def test_a_retraction_is_not_a_purge(log: Log) -> None:
    calls: list[str] = []
    log.on_purge.append(lambda: calls.append("purged"))
    log.on_withdrawal.append(lambda: calls.append("withdrawn"))

    log.notify_withdrawn()

    assert calls == ["withdrawn"]


async def test_a_pending_event_is_found_by_its_position(log: Log) -> None:
    log.emit("one")
    ref = log.emit("two")

    assert (await log.get(2)).id == ref.id
    assert await log.find(3, await log.reads()) is None
    with pytest.raises(UnknownEvent):
        await log.get(3)


async def test_ids_without_a_journal_are_unique_and_sorted(log: Log) -> None:
    ids = [next(log.ids) for _ in range(100)]

    assert ids == sorted(set(ids))


def tags_of(text: str, *tags: str) -> object:
    return mark_data(text, tags, None, (), check=lambda *texts: None)["tags"]


@pytest.mark.parametrize("text", ["#milestone 1.0 is out", "1.0 is out #Milestone", "Out (#milestone), at last"])
def test_a_milestone_in_the_text_is_a_tag(text: str) -> None:
    """keeps: B-23"""
    assert tags_of(text) == ["milestone"]
    assert tags_of(text, "release", "#milestone") == ["release", "milestone"]


@pytest.mark.parametrize(
    "text", ["the milestone", "#milestones", "docs.md#milestone", "##milestone", "#milestone-2", "#12 and #gotcha"]
)
def test_other_hashtags_are_not_tags(text: str) -> None:
    assert tags_of(text) == []


async def test_a_milestone_in_the_text_opens_an_epoch() -> None:
    """keeps: B-23"""
    async with mica.open(":memory:") as memory:
        memory.mark("Version 1.0 is out #milestone")

        assert [event.name for event in await memory.events.query()] == ["mark", "epoch.opened"]


@pytest.mark.parametrize("text", ["  \n", None, 5])
async def test_a_mark_without_text_is_refused(memory: Memory, text: str) -> None:
    with pytest.raises(InvalidInput, match="needs a text"):
        memory.mark(text)


@pytest.mark.parametrize("tag", ["two words", "</memory>", "line\nbreak", "", "x" * 61])
async def test_a_tag_must_be_one_word(memory: Memory, tag: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        memory.mark("text", tags=["gotcha", tag])

    rule = "a tag is one word of 1 to 60 letters, digits and signs among _ . : / + -"
    assert str(refused.value) == f"{tag!r} is not a tag; {rule}"


async def test_one_tag_may_be_given_as_text(memory: Memory) -> None:
    memory.mark("x marks the spot", tags="gotcha")
    assert (await memory.search("spot")).marks[0].mark.tags == ("gotcha",)


async def test_secrets_in_tags_are_redacted(memory: Memory) -> None:
    """keeps: U-09"""
    secret = "ghp_" + "a1B2" * 9
    mark = await memory.events.get(memory.mark("moved the key", tags=[secret, "#keys"]).id)

    assert mark.data["tags"] == ["redacted:github", "keys"]


async def test_secrets_are_redacted_in_marks_but_not_in_events(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9
    mark = await memory.events.get(memory.mark(f"token {secret}", why=secret).id)
    event = await memory.events.get(memory.emit("tool.ran", {"out": secret}).id)

    assert secret not in str(mark.data)
    assert event.data == {"out": secret}


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-03", "use an aware datetime"),
        (datetime.fromisoformat("2026-11-03T09:00"), "has no time zone; use an aware datetime"),
        (datetime(1, 1, 1, tzinfo=UTC), "before 1970"),
        (datetime(9999, 12, 31, tzinfo=UTC), "in the future"),
    ],
)
async def test_a_mark_with_an_impossible_time_is_refused(memory: Memory, at: datetime, said: str) -> None:
    """This holds with a parent too, whose time it is compared with."""
    root = memory.mark("The cookie is set before the redirect")
    for parent in (None, root):
        with pytest.raises(InvalidInput, match=said):
            memory.mark("It was the proxy", at=at, parent=parent)

    assert [event.id for event in await memory.events.query()] == [root.id]


async def test_an_invalid_parent_of_a_mark_is_named(memory: Memory) -> None:
    """The check is the same as for any event, before anything is recorded."""
    for record in (memory.mark, memory.emit):
        with pytest.raises(errors.InvalidEvent, match=r"parent 'nope' of .* is not an event; pass the result of emit"):
            record("seen", parent="nope")  # type: ignore[arg-type]  # as somebody may
    assert await memory.events.position() == 0


async def test_a_parent_in_another_space_is_refused_and_nothing_is_marked(home: Settings, tmp_path: Path) -> None:
    """keeps: U-09. No reference crosses a space boundary."""
    async with (
        mica.open(tmp_path / "one.db", settings=home) as one,
        mica.open(tmp_path / "two.db", settings=home) as two,
    ):
        foreign = one.mark("A cookie of the shop")
        for parent in (foreign, await one.events.get(foreign.id)):
            with pytest.raises(InvalidInput, match="another space"):
                two.mark("A cookie of the blog", parent=parent)
        own = two.mark("A cookie of the blog")
        two.mark("It is set twice", parent=own)

        assert await two.events.position() == 2
