"""The front door: what is observed is kept, found and briefed, and failures are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica import EventQuery, Memory, errors
from mica.brief import layout as render
from mica.brief.gather import COLLECT_SHARE
from mica.brief.question import Question
from mica.errors import (
    Backlogged,
    DuplicateEvent,
    InvalidContext,
    InvalidEvent,
    InvalidInput,
    StoreFull,
    StoreUnavailable,
    UnknownEvent,
)
from mica.events import fold as folding
from mica.events import journal
from mica.memory import LATEST_SHARE
from mica.model.crystal import CrystalQuery
from mica.model.event import Appended, Descent, Event, Passage, new_writer, split_id, split_ids
from mica.search import ranker as rank
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT, build


class UnsteadyStore(EphemeralStore):
    """The reference store on a bad day: raises what it is told to, as often as it is told to."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def append(self, events: Sequence[Event]) -> Appended:
        if self.errors:
            raise self.errors.pop(0)
        return await super().append(events)


class HungStore(EphemeralStore):
    """The reference store behind a lock that somebody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def append(self, events: Sequence[Event]) -> Appended:
        await self.released.wait()
        return await super().append(events)


class UnreadableStore(EphemeralStore):
    """The reference store on a disk that takes and finds events, but reads nothing else."""

    async def events(self, query: EventQuery) -> list[Event]:
        raise StoreUnavailable("the disk is gone")

    async def agents(self) -> list[str]:
        raise StoreUnavailable("the disk is gone")

    async def unsealed(
        self, *, limit: int, session: str | None = None, latest: bool = False, after: int | None = None
    ) -> list[Event]:
        raise StoreUnavailable("the disk is gone")

    async def crystals(self, query: CrystalQuery) -> list[mica.Crystal]:
        raise StoreUnavailable("the disk is gone")


LONG_S = 20  # what would hang for ever fails after that


async def test_public_names_are_what_all_says() -> None:
    """E-07"""
    known = {*vars(mica), *mica._LATER}  # what is loaded when it is first used
    public = {name for name in known if not name.startswith("_") and name not in MODULES}
    assert sorted(mica.__all__) == mica.__all__
    assert public == set(mica.__all__)
    assert all(getattr(mica, name) is not None for name in mica.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Importer'"):
        _ = mica.Importer  # type: ignore[attr-defined]  # the point


def test_public_names_grow_and_do_not_shrink() -> None:
    """E-07: what the first version had, every later one has."""
    assert set(NAMES.split()) <= set(mica.__all__)
    assert set(VERBS.split()) <= set(dir(Memory))


NAMES = """
    Backlogged Brief ClaimLost Comparison Context Copied Difference DuplicateEvent Event EventQuery Failure
    Following Here Hit Impact Imported InvalidContext InvalidEvent InvalidInput InvalidSettings LogImported
    Mark Memory MicaError NotAStore Overview Passage Progress Purged Ref Resolved Retained SchemaTooNew
    Settings Sizes StoreBusy StoreError StoreFull StoreUnavailable UnknownEvent UnknownSpace compare guards
    load_settings
    open
"""
VERBS = """
    age age_s ancestors backlog brief carrier chain close context copy_to damaged descendants durable emit
    environment event events exported failures follow here impact import_log import_transcripts location log
    mark open_sessions overview pin position purge rebuild received replay resolve resumed retain search sizes
    space unpin unread verify
"""


def test_every_error_can_be_caught_by_its_public_name() -> None:
    ours = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert ours <= set(mica.__all__)


MODULES = {path.stem for path in Path(mica.__file__).parent.iterdir()}


# -- Observe --------------------------------------------------------------------------------------------------


async def test_a_mark_is_found_briefed_and_explained(memory: Memory) -> None:
    """U-11: no key, no server, no model."""
    with memory.context(session="s1", agent="scout", task="login loses the session"):
        seen = memory.mark("Cookie is set before the redirect", tags=["#gotcha"], why="the browser drops it")
        memory.mark("Moved the cookie after the redirect", parent=seen)

    [hit, *_] = (await memory.search("redirect cookie", limit=10)).marks
    brief = await memory.brief("redirect cookie")

    assert hit.mark.tags == ("gotcha",)
    assert hit.mark.why == "the browser drops it"
    assert {hit.id for hit in await memory.search("cookies redirected")} >= {seen.id}
    assert "Cookie is set before the redirect" in brief.text
    assert seen.id in {source for passage in brief.passages for source in passage.sources}
    event = await memory.event(seen.id)
    assert [child.data["text"] for child in await memory.descendants(event)] == ["Moved the cookie after the redirect"]


async def test_data_is_kept_as_it_was_at_the_call(memory: Memory) -> None:
    data: dict[str, object] = {"list": [1], "at": START_AT}
    ref = memory.emit("tool.ran", data)
    data["list"] = "changed"

    assert (await memory.event(ref.id)).data == {"list": [1], "at": "2026-11-01T09:00:00Z"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"x": object()}, "object"),
        ({"x": float("nan")}, r"\$\.x"),
        ({"x": 1.5, "y": float("-inf")}, r"\$\.y"),
        ({"deep": [{"y": float("inf"), "z": None}]}, r"\$\.deep\.0\.y"),
        ({"x": "ab\ud800"}, r"half of a character, U\+D800, at character 3"),
        ({"x": "a\udcff"}, "a text with the byte 0xff at character 2, which is not UTF-8; decode it"),
        ([1], "list"),
    ],
)
async def test_data_that_cannot_be_kept_is_refused_and_nothing_else_is_lost(
    memory: Memory, data: dict[str, object], reason: str
) -> None:
    memory.emit("before")
    with pytest.raises(InvalidEvent, match=reason):
        memory.emit("tool.ran", data)
    memory.emit("after")

    assert [event.name for event in await memory.events()] == ["before", "after"]


async def test_keys_that_are_no_texts_are_refused_until_their_event_is_known(memory: Memory) -> None:
    """Whoever always gives such keys is told at once, and nothing is stored."""
    name = new_writer()  # never emitted before, by whatever ran in this process
    for _ in range(2):
        with pytest.raises(InvalidEvent, match=r"has the key 1; keys are texts"):
            memory.emit(name, {1: "one"})  # type: ignore[dict-item]  # the point
    assert await memory.events() == []


async def test_values_that_json_has_not_are_kept_as_it_can_hold_them(memory: Memory) -> None:
    """As `docs/events.md` says."""
    memory.emit("told", {"bytes": b"\x00\xff", "tuple": (1, 2), "set": {3}, "at": START_AT, "keys": {1: "one"}})

    [event] = await memory.events()
    assert event.data == {
        "bytes": "AP8=",
        "tuple": [1, 2],
        "set": [3],
        "at": "2026-11-01T09:00:00Z",
        "keys": {"1": "one"},
    }


async def test_keys_that_json_has_not_are_told_and_hold_nobody_up(memory: Memory) -> None:
    memory.emit("tool.ran", {"deep": {(1, 2): 3}})
    memory.emit("twice")
    memory.emit("twice", {1: "one", "1": "uno"})  # type: ignore[dict-item]  # the point
    memory.emit("after", {"large": 2**70, "numbers": {1: "one"}})

    refused, _, twice, after = await memory.events()
    assert "keys are texts" in str(twice.data["text"])

    assert (refused.name, refused.error) == ("event.refused", True)
    assert "cannot be written as JSON" in str(refused.data["text"])
    assert after.data == {"large": 2**70, "numbers": {"1": "one"}}


async def test_data_that_contains_itself_is_refused(memory: Memory) -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    with pytest.raises(InvalidEvent, match="cannot be written as JSON"):
        memory.emit("tool.ran", loop)


@pytest.mark.parametrize("name", ["", "two words", "new\nline", "x" * 201, "star*", "nul\0"])
async def test_names_that_cannot_be_asked_for_are_refused(memory: Memory, name: str) -> None:
    with pytest.raises(InvalidEvent, match="event name"):
        memory.emit(name)


@pytest.mark.parametrize("name", ["event.purged", "event.refused"])
async def test_names_of_what_stands_in_an_events_place_are_refused(memory: Memory, name: str) -> None:
    with pytest.raises(InvalidEvent, match="is what a store itself puts in an event's place"):
        memory.emit(name, {"purge": "x", "reason": "y"})


async def test_an_event_without_a_time_zone_is_refused(memory: Memory) -> None:
    """TB-16"""
    with pytest.raises(InvalidEvent, match="time zone"):
        memory.emit("x", at=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("text", ["  \n", None, 5])
async def test_a_mark_without_text_is_refused(memory: Memory, text: str) -> None:
    with pytest.raises(InvalidInput, match="needs a text"):
        memory.mark(text)


@pytest.mark.parametrize("tag", ["two words", "</memory>", "line\nbreak", "", "x" * 61])
async def test_a_tag_is_a_word(memory: Memory, tag: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        memory.mark("text", tags=["gotcha", tag])

    rule = "a tag is one word of 1 to 60 letters, digits and signs among _ . : / + -"
    assert str(refused.value) == f"{tag!r} is no tag; {rule}"


async def test_two_sources_of_one_name_are_refused(home: Settings) -> None:
    store = EphemeralStore()
    with pytest.raises(InvalidInput, match="two sources"):
        Memory(store, settings=home, sources=[Hanging(), Hanging()])


@pytest.mark.parametrize("query", ["\udcff", "cookie \ud800"])
async def test_a_brief_for_broken_text_does_not_raise(memory: Memory, query: str) -> None:
    memory.mark("the cookie is set")
    assert (await memory.brief(query)).receipt is None


async def test_one_tag_may_be_given_as_text(memory: Memory) -> None:
    memory.mark("x marks the spot", tags="gotcha")
    assert (await memory.search("spot")).marks[0].mark.tags == ("gotcha",)


async def test_wrong_kinds_of_values_are_named(memory: Memory) -> None:
    ref = memory.emit("root")
    with pytest.raises(InvalidEvent, match=r"parent '.*' of 'x' is no event"):
        memory.emit("x", parent=ref.id)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidContext, match="is no event"), memory.context(parent=ref.id):  # type: ignore[arg-type]  # the point
        pass
    with pytest.raises(InvalidEvent, match="event name 5 is a int"):
        memory.emit(5)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidEvent, match="not a mark"):
        memory.emit("mark", {"foo": 1})
    with pytest.raises(InvalidInput, match="a query is a text"):
        await memory.search(None)  # type: ignore[arg-type]  # the point
    for query in ("", " \n", "?! …", "🎉"):
        with pytest.raises(InvalidInput, match="no word to search for"):
            await memory.search(query)
    assert await memory.search("日") == []
    with pytest.raises(InvalidInput, match="nan seconds"):
        await memory.brief(deadline_s=float("nan"))
    assert await memory.event(ref) == await memory.event(ref.id)
    assert len(await memory.events()) == 1


def longest_given(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *functions: str) -> Callable[[], int]:
    """How long the longest text was that a module has given to these functions: their work is linear in it."""
    lengths = [0]

    def watched(work: Callable[[str], object]) -> Callable[[str], object]:
        def run(text: str) -> object:
            lengths.append(len(text))
            return work(text)

        return run

    for name in functions:
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    return lambda: max(lengths)


async def test_huge_marks_and_questions_do_not_cost_the_deadline(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-05: what cannot fit is not weighed to the last token, and of a pasted log only the beginning is read."""
    memory.mark("the cookie is set early")
    memory.mark("cookie " * 1_000_000)
    await memory.events()
    weighed = longest_given(monkeypatch, render, "estimate")
    read = longest_given(monkeypatch, rank, "terms", "words")

    brief = await memory.brief("cookie " * 200_000, budget_tokens=500, deadline_s=30)

    assert "set early" in brief.text
    assert brief.left_out == 1
    assert 0 < weighed() <= 500 * render.CHARACTERS_MAX
    assert 0 < read() <= rank.QUERY_CHARACTERS_MAX


async def test_whatever_mica_records_comes_from_where_we_are(memory: Memory, tmp_path: Path) -> None:
    """E-09: nothing that emits has a context of its own making."""
    (tmp_path / "out.jsonl").touch()
    root = memory.emit("root")
    with memory.context(session="s1", agent="scout", branch="main", parent=root) as here:
        refs = [memory.emit("step"), memory.mark("seen"), memory.pin(root), memory.unpin(root)]
        brief = await memory.brief("seen")
        memory.exported(tmp_path / "out.jsonl", events=1)
        purged = await memory.purge(ids=[refs[0]])

    names = ("mark", "brief", "log.*")
    recorded = await memory.events(EventQuery(names=names, limit=None))
    assert {brief.receipt, purged.record} <= {event.id for event in recorded}
    assert [event.name for event in recorded if event.context != here.context] == []
    assert len(recorded) == 6


async def test_secrets_are_redacted_in_marks_and_kept_in_events(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9
    mark = await memory.event(memory.mark(f"token {secret}", why=secret).id)
    event = await memory.event(memory.emit("tool.ran", {"out": secret}).id)

    assert secret not in str(mark.data)
    assert event.data == {"out": secret}


async def test_a_clock_that_jumps_back_loses_nothing(memory: Memory, clock: HandClock) -> None:
    first = memory.emit("first")
    clock.move(hours=-5)
    second = memory.emit("second", parent=first)
    clock.move(hours=9)
    memory.emit("third")

    events = await memory.events(EventQuery(limit=None))
    assert [event.name for event in events] == ["second", "first", "third"]
    assert split_id(second.id)[1] == split_id(first.id)[1] + 1
    assert await memory.verify() == []


async def test_events_from_many_threads_all_arrive_once(memory: Memory) -> None:
    def work(number: int) -> None:
        for step in range(100):
            memory.emit("step", {"n": number * 100 + step})

    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(8)))
    events = await memory.events(EventQuery(limit=None))

    assert sorted(int(str(event.data["n"])) for event in events) == list(range(800))


@given(count=st.integers(1, 2_000))
def test_ids_are_unique_and_sort_by_age(count: int) -> None:
    """TE-13: 80 random bits for each writer, a counter within it."""
    writers = [new_writer() for _ in range(count)]
    assert len(set(writers)) == count
    assert [writer[:10] for writer in writers] == sorted(writer[:10] for writer in writers)


def test_a_writer_has_eighty_random_bits() -> None:
    """TE-13: every bit below the time takes both values."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    numbers = [sum(alphabet.index(c) << 5 * (25 - n) for n, c in enumerate(new_writer())) for _ in range(200)]
    ones, zeros = 0, 0
    for number in numbers:
        ones |= number
        zeros |= ~number
    assert (ones & zeros) % 2**80 == 2**80 - 1


async def test_ids_of_one_memory_sort_in_the_order_of_emitting(memory: Memory) -> None:
    """K-47"""
    identifiers = [memory.emit("step").id for _ in range(300)]
    assert identifiers == sorted(identifiers)


def test_ids_are_read_alike_one_by_one_and_together() -> None:
    identifiers = [f"{new_writer()}-{sequence:016x}" for sequence in (0, 1, 2**63 - 1)]

    assert split_ids(identifiers) == [split_id(identifier) for identifier in identifiers]
    for wrong in ("", identifiers[0].upper(), identifiers[0] + "0", identifiers[2].replace("-7", "-8")):
        with pytest.raises(InvalidEvent, match="is not an event id"):
            split_ids([*identifiers, wrong])


async def test_a_chain_is_everything_of_one_correlation(memory: Memory) -> None:
    """E-30: several roots that answer one request are one chain; without a correlation the root names it."""
    with memory.context(correlation="req-1"):
        first = memory.emit("asked")
        memory.emit("looked", parent=first)
        memory.emit("asked.again")
    alone = memory.emit("alone")
    memory.emit("alone.too", parent=alone)

    chain = await memory.chain(await memory.event(first))

    assert [event.name for event in chain] == ["asked", "looked", "asked.again"]
    assert [event.name for event in await memory.chain(await memory.event(alone))] == ["alone", "alone.too"]


# -- Trouble --------------------------------------------------------------------------------------------------


async def opened(store: EphemeralStore, home: Settings) -> Memory:
    return Memory(store, settings=home)


async def test_a_full_store_is_told_and_nothing_is_lost(home: Settings) -> None:
    """U-04: what could not be stored stays, and is stored when there is room again."""
    store = UnsteadyStore(*[StoreFull("no space left")] * 2)
    memory = await opened(store, home)
    memory.emit("one")
    await memory.durable()
    with pytest.raises(StoreFull):
        await memory.events()
    with pytest.raises(StoreFull):
        await memory.search("one")
    memory.emit("two")

    assert [event.name for event in await memory.events()] == ["one", "two"]
    await memory.close()


async def test_the_background_tries_again_by_itself(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "RETRY_S", 0)
    monkeypatch.setattr(folding, "GATHER_S", 0)
    store = UnsteadyStore(StoreUnavailable("gone"), StoreUnavailable("gone"))
    memory = await opened(store, home)
    memory.emit("one")
    async with asyncio.timeout(30):
        while not (await store.sizes()).events:
            await asyncio.sleep(0)
    assert [event.name for event in await store.log(0, limit=10)] == ["one"]
    await memory.close()


async def test_a_stuck_store_makes_observing_fail_loudly(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-04: bounded, never dropped."""
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 1)
    store = UnsteadyStore(*[StoreUnavailable("gone fishing")] * 1000)
    memory = await opened(store, home)
    taken: list[int] = []

    def emit_without_end() -> None:
        for number in range(10_000):
            memory.emit("kept", {"n": number})
            taken.append(number)

    with pytest.raises(Backlogged, match="wait for the store"):
        emit_without_end()

    store.errors.clear()

    assert [event.data["n"] for event in await memory.events(EventQuery(limit=None))] == taken
    await memory.close()


async def test_a_refused_event_is_told_and_holds_nobody_up(home: Settings) -> None:
    memory = await opened(EphemeralStore(), home)
    root = memory.emit("root")
    await memory.events()
    memory.emit("liar", {"said": "anyway"}, parent=mica.Ref(root.writer, root.sequence, Descent(7)))
    memory.emit("honest", parent=root)

    with pytest.raises(InvalidEvent, match="depth"):
        await memory.events()

    kept = {event.name: event for event in await memory.events()}
    assert set(kept) == {"root", "event.refused", "honest"}
    assert kept["event.refused"].data["name"] == "liar"
    assert kept["event.refused"].data["data"] == {"said": "anyway"}
    assert kept["event.refused"].error
    await memory.close()


async def test_an_error_of_the_background_is_kept_for_the_next_who_asks(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "GATHER_S", 0)
    store = UnsteadyStore(DuplicateEvent("x"), DuplicateEvent("x"))
    memory = await opened(store, home)
    memory.emit("doubled")
    while store.errors:
        await asyncio.sleep(0)
    memory.emit("fine")
    with pytest.raises(DuplicateEvent):
        await memory.events()
    assert [event.name for event in await memory.events()] == ["fine"]
    await memory.close()


async def test_a_cancelled_wait_loses_and_doubles_nothing(memory: Memory) -> None:
    for number in range(50):
        memory.emit("step", {"n": number})
        task = asyncio.create_task(memory.durable())
        await asyncio.sleep(0)
        task.cancel()
    assert [event.data["n"] for event in await memory.events(EventQuery(limit=None))] == list(range(50))


async def test_a_closed_memory_says_so(memory: Memory) -> None:
    await memory.close()
    await memory.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        memory.emit("late")
    with pytest.raises(StoreUnavailable, match="closed"):
        await memory.events()


@pytest.mark.parametrize("engine", [":memory:", "space.db", "postgres"])
async def test_nothing_is_left_running(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, engine: str
) -> None:
    """U-06: no task, no thread of ours, no process."""
    target: str | Path = tmp_path / engine if engine == "space.db" else engine
    if engine == "postgres":
        target = request.getfixturevalue("server").address()
    processes = set(psutil.Process().children())

    async with mica.open(target, settings=home) as memory:
        memory.mark("one")
        await memory.durable()
        await memory.search("one")
        await memory.age(timedelta(0))

    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert [thread.name for thread in threading.enumerate() if "mica" in thread.name] == []
    assert set(psutil.Process().children()) <= processes


async def test_unknown_events_are_named(memory: Memory) -> None:
    with pytest.raises(UnknownEvent, match="'12'"):
        await memory.event(12)
    with pytest.raises(UnknownEvent):
        await memory.event(build(1).id)
    with pytest.raises(InvalidEvent, match="'nonsense'"):
        await memory.event("nonsense")


async def test_an_address_without_a_store_is_refused(home: Settings) -> None:
    with pytest.raises(InvalidInput, match="surreal"):
        await mica.open("surreal://localhost", settings=home)


async def test_without_a_target_the_space_of_the_directory_is_opened(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    monkeypatch.chdir(project / "src")
    async with mica.open(settings=home) as memory:
        memory.mark("here")
    monkeypatch.chdir(project)
    async with mica.open(settings=home) as memory:
        assert len(await memory.search("here")) == 1
    assert not list(project.rglob("*.db"))


# -- Briefs ---------------------------------------------------------------------------------------------------


class Hanging:
    name = "hanging"

    async def passages(self, question: Question) -> Sequence[Passage]:
        await asyncio.Event().wait()
        return []


class Failing:
    name = "failing"

    async def passages(self, question: Question) -> Sequence[Passage]:
        raise StoreUnavailable("the wiki is down")


async def test_a_hung_or_failed_source_is_named_and_the_others_speak(home: Settings) -> None:
    """U-05, TC-03: the answer comes in time and says what is missing."""
    memory = Memory(EphemeralStore(), settings=home, sources=[Hanging(), Failing()])
    memory.mark("the cookie is set before the redirect")

    brief = await memory.brief("cookie", deadline_s=1)

    assert "the cookie is set" in brief.text
    assert set(brief.missing) == {"hanging", "failing"}
    assert brief.missing["hanging"].startswith("no answer within")
    assert "missing: failing (the wiki is down)" in brief.text
    await memory.close()


async def test_a_brief_has_100_ms_unless_told_otherwise(tmp_path: Path) -> None:
    """U-05"""
    settings = mica.load_settings({"HOME": str(tmp_path)})
    memory = Memory(EphemeralStore(), settings=settings, sources=[Hanging()])

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("cookie")

    given_ms = int(brief.missing["hanging"].removeprefix("no answer within ").removesuffix(" ms"))
    assert given_ms <= 1_000 * 0.1 * COLLECT_SHARE
    await memory.close()


async def test_sources_get_what_is_left_of_the_deadline(home: Settings) -> None:
    """TC-03: what waiting for the store has taken is not given again to the sources."""
    store = HungStore()
    memory = Memory(store, settings=home, sources=[Hanging()])
    memory.mark("not stored yet")

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("cookie", deadline_s=0.2)

    given_ms = int(brief.missing["hanging"].removeprefix("no answer within ").removesuffix(" ms"))
    assert given_ms <= 1_000 * 0.2 * (1 - LATEST_SHARE) * COLLECT_SHARE
    store.released.set()
    await memory.close()


async def test_a_brief_names_the_real_reason_when_nothing_waits(home: Settings) -> None:
    """U-05: «0 events wait» explains nothing."""
    memory = Memory(EphemeralStore(), settings=home)

    async with memory._folding.paused():
        brief = await memory.brief("stored", deadline_s=0.2)

    assert brief.missing["latest"] == "the store did not answer within 40 ms"
    await memory.close()


async def test_a_brief_does_not_wait_for_a_store_that_hangs(home: Settings) -> None:
    """U-05: what was emitted just before is missing, and said to be."""
    store = HungStore()
    memory = Memory(store, settings=home)
    memory.mark("not stored yet")

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("stored", deadline_s=0.2)

    assert brief.missing["latest"].endswith("events wait for the store")
    store.released.set()
    assert len(await memory.search("stored")) == 1
    await memory.close()


async def test_a_store_that_cannot_be_read_is_a_line_for_each_source(home: Settings) -> None:
    """TC-09: nothing is raised, the agent is told what is missing, and the receipt keeps it."""
    memory = Memory(UnreadableStore(), settings=home, sources=[Failing()])
    memory.mark("the cookie is set early")

    asked, unasked = await memory.brief("cookie"), await memory.brief()

    for brief in (asked, unasked):
        assert brief.text.splitlines() == [
            render.OPENING,
            "- missing: crystals (the disk is gone)",
            "- missing: failing (the wiki is down)",
            "- missing: files (the disk is gone)",
            "- missing: marks (the disk is gone)",
            "- missing: teachings (the disk is gone)",
            render.CLOSING,
        ]
        assert brief.passages == ()
        assert (await memory.event(brief.receipt or "")).data["missing"] == brief.missing
    await memory.close()


async def test_nothing_known_is_no_text_and_still_has_a_receipt(memory: Memory) -> None:
    """TC-09, C-31: no header around nothing."""
    brief = await memory.brief("anything")
    assert (brief.text, brief.tokens, brief.passages, brief.missing) == ("", 0, (), {})
    assert (await memory.event(brief.receipt or "")).origin == "recalled"


async def test_a_stuck_store_gives_a_brief_that_says_so(home: Settings) -> None:
    """U-05: a brief never raises into an agent's turn."""
    store = UnsteadyStore()
    memory = await opened(store, home)
    memory.mark("known before")
    await memory.events()
    store.errors = [StoreFull("no space left")] * 1000
    memory.mark("not stored yet")

    brief = await memory.brief("known stored")

    assert "known before" in brief.text
    assert "not stored yet" not in brief.text
    assert brief.missing == {"latest": "no space left"}
    store.errors.clear()
    await memory.close()


async def test_a_brief_from_a_place_that_cannot_be_written_has_no_receipt(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.mark("the cookie is set early")
        await memory.events()
    (tmp_path / "space.db-segments").rmdir()
    (tmp_path / "space.db-segments").write_text("in the way")
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        brief = await memory.brief("cookie")
        assert "set early" in brief.text
        assert brief.receipt is None


async def test_a_receipt_says_what_was_shown(memory: Memory) -> None:
    seen = memory.mark("the cookie is set before the redirect")
    brief = await memory.brief("cookie", budget_tokens=500)
    receipt = await memory.event(brief.receipt or "")

    assert receipt.name == "brief"
    assert receipt.data["query"] == "cookie"
    assert receipt.data["tokens"] == brief.tokens
    assert seen.id in str(receipt.data["passages"])


async def test_secrets_in_a_question_are_not_kept(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9
    brief = await memory.brief(f"why is {secret} refused")
    receipt = await memory.event(brief.receipt or "")

    assert secret not in receipt.body.decode()
    assert str(receipt.data["query"]).startswith("why is ")


async def test_what_was_recalled_is_never_evidence(memory: Memory) -> None:
    """K-58, TC-11: asking again and again changes no answer."""
    memory.mark("the cookie is set before the redirect")
    first = await memory.brief("cookie redirect")
    for _ in range(3):
        memory.mark(first.text, origin="recalled")
        again = await memory.brief("cookie redirect")
        assert again.text == first.text
    assert len(await memory.search("cookie")) == 1
    told = memory.mark(first.text, origin="recalled")
    with pytest.raises(InvalidInput, match="was only recalled"):
        await memory.retract(told.id, reason="nobody saw it")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-03", "has no time; give an aware datetime"),
        (datetime.fromisoformat("2026-11-03T09:00"), "has no time zone; use an aware datetime"),
        (datetime(1, 1, 1, tzinfo=UTC), "older than 1970"),
        (datetime(9999, 12, 31, tzinfo=UTC), "still to come"),
    ],
)
async def test_a_mark_of_a_time_that_cannot_be_meant_is_refused(memory: Memory, at: datetime, said: str) -> None:
    """B-43: also beside a parent, with which it is compared."""
    root = memory.mark("The cookie is set before the redirect")
    for parent in (None, root):
        with pytest.raises(InvalidInput, match=said):
            memory.mark("It was the proxy", at=at, parent=parent)

    assert [event.id for event in await memory.events()] == [root.id]


async def test_a_parent_that_is_no_event_is_named_for_marks_too(memory: Memory) -> None:
    """As for any event, before anything is recorded."""
    for record in (memory.mark, memory.emit):
        with pytest.raises(errors.InvalidEvent, match=r"parent 'nope' of .* is no event; give what emit"):
            record("seen", parent="nope")  # type: ignore[arg-type]  # as somebody may
    assert await memory.position() == 0


async def test_what_was_recalled_is_not_told_as_the_latest(memory: Memory) -> None:
    """TC-11: not even when nothing is asked."""
    memory.mark("the cookie is set before the redirect")
    memory.mark("recalled: all cookies are fine", origin="recalled")

    brief = await memory.brief()

    assert "set before the redirect" in brief.text
    assert "all cookies are fine" not in brief.text


async def test_a_preview_leaves_no_receipt(memory: Memory) -> None:
    memory.mark("x marks the spot")
    brief = await memory.brief(is_preview=True)
    assert brief.receipt is None
    assert [event.name for event in await memory.events()] == ["mark"]


async def test_without_a_question_the_latest_is_told(memory: Memory, clock: HandClock) -> None:
    for number in range(20):
        memory.mark(f"observation number {number}")
        clock.move(minutes=1)
    brief = await memory.brief(budget_tokens=100)
    assert "number 19" in brief.text
    assert "number 0 " not in brief.text
    assert brief.left_out > 0


@pytest.mark.parametrize("budget_tokens", [0, -1])
async def test_a_budget_of_nothing_is_refused(memory: Memory, budget_tokens: int) -> None:
    memory.mark("The cookie is set before the redirect")
    for asked in (
        memory.brief(budget_tokens=budget_tokens),
        memory.defrag("service:app:login", budget_tokens=budget_tokens),
        memory.handoff(budget_tokens=budget_tokens),
    ):
        with pytest.raises(InvalidInput, match=f"cannot have {budget_tokens} tokens; give a whole number, 1 or more"):
            await asked


async def test_files_of_similar_prompts_are_told(memory: Memory) -> None:
    """A few paths may pay; file contents are never stored or shown."""
    for number, path in enumerate(["auth/session.py", "auth/session.py", "db.py"]):
        with memory.context(session=f"s{number}"):
            asked = memory.mark(
                "login redirect loses the session" if number < 2 else "speed up queries", tags=["prompt"]
            )
            memory.emit("file.read", {"path": path, "start_line": 40, "end_line": 92, "tokens": 300}, parent=asked)

    brief = await memory.brief("the login loses its session")

    [files] = [passage for passage in brief.passages if passage.source == "files"]
    assert files.text.startswith("auth/session.py:40-92 (2 turns)")


async def test_an_overview_counts_what_agents_did(memory: Memory) -> None:
    asked_at = START_AT
    with memory.context(session="s1", agent="scout"):
        asked = memory.mark("fix the login", tags=["prompt"], at=asked_at)
        with memory.context(parent=asked):
            step = {"path": "a.py", "tokens": 10}
            memory.emit("file.read", step, at=asked_at + timedelta(seconds=1))
            memory.emit("file.read", step | {"tokens": None}, at=asked_at + timedelta(seconds=2))
            memory.emit("file.edit", step, at=asked_at + timedelta(seconds=3))
            memory.emit("file.read", {"path": "gone.py"}, error=True, at=asked_at + timedelta(seconds=4))
            memory.emit("shell.run", {"command": "make"}, at=asked_at + timedelta(seconds=5))
            memory.emit("model.answer", {"input_tokens": 5, "output_tokens": 7}, at=asked_at + timedelta(seconds=6))
            memory.mark("the login works", tags=["closing"], at=asked_at + timedelta(seconds=7))

    seen = await memory.overview()

    [line] = seen.sessions
    assert (line.prompt, line.closing, line.prompts) == ("fix the login", "the login works", 1)
    assert (line.reads, line.edits, line.commands, line.failures, line.tokens_read) == (2, 1, 1, 1, 10)
    assert [(file.path, file.sessions, file.reads, file.edits, file.tokens) for file in seen.files] == [
        ("a.py", 1, 2, 1, 10)
    ]
    assert (seen.usage.answers, seen.usage.input_tokens, seen.usage.output_tokens) == (1, 5, 7)
    assert seen.since == asked_at.astimezone(UTC)


async def test_ageing_changes_nothing_that_memory_answers(memory: Memory, clock: HandClock) -> None:
    """E-03, TE-09: rows of the last 24 hours stay; older ones take less room and are found all the same."""
    with memory.context(session="s1", agent="scout"):
        first = memory.mark("The cookie is set before the redirect")
        second = memory.mark("Moved the cookie after the redirect", parent=first)
    assert await memory.age() == 0
    before = await memory.search("cookie")
    chain = await memory.chain(await memory.event(first.id))
    events = await memory.events(EventQuery(session="s1"))

    clock.move(hours=25)
    memory.mark("still young")
    told: list[int] = []
    count = await memory.age(on_progress=told.append)

    assert count == sum(told[-1:]) == (await memory.sizes()).aged
    assert await memory.chain(await memory.event(first.id)) == chain
    assert await memory.events(EventQuery(session="s1")) == events
    assert [hit.id for hit in await memory.search("cookie")] == [hit.id for hit in before]
    assert (await memory.event(second.id)).parent_id == first.id
    with pytest.raises(InvalidInput, match="future"):
        await memory.age(timedelta(hours=-1))


async def test_a_parent_of_another_space_is_refused_and_nothing_is_marked(home: Settings, tmp_path: Path) -> None:
    """U-09: nothing leads from one space to another."""
    async with (
        mica.open(tmp_path / "one.db", settings=home) as one,
        mica.open(tmp_path / "two.db", settings=home) as two,
    ):
        foreign = one.mark("A cookie of the shop")
        for parent in (foreign, await one.event(foreign.id)):
            with pytest.raises(InvalidInput, match="another space"):
                two.mark("A cookie of the blog", parent=parent)
        own = two.mark("A cookie of the blog")
        two.mark("It is set twice", parent=own)

        assert await two.position() == 2


@pytest.mark.parametrize("name", ["x" * 300, "nul\0.db"])
async def test_what_cannot_be_a_file_is_told(home: Settings, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a file"):
        await mica.open(name, settings=home)
