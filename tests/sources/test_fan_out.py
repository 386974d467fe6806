"""Gathering from live sources: one deadline, failures named, replies kept while they are fresh and no longer."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

import mica
from mica import EventQuery, Memory
from mica.errors import InvalidInput, SourceFailed, StoreUnavailable
from mica.settings import Settings
from mica.sources import fan_out as collecting
from mica.sources.breaker import FAILURES_MAX
from mica.sources.protocol import Concept, Declared, Fragment, Partial, Value
from mica.sources.replies import FIBONACCI, NOTES_MAX, ttl_s
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock

CONCEPT = "judgment:code_review:abc123"
SOON_S = 0.25  # a deadline that only a hung source misses


class Told:
    """A source that says what it is told to say."""

    limit_s = math.inf

    def __init__(self, name: str = "app", value: Value = 8080, **declared: object) -> None:
        self.declared = Declared(**({"name": name, "rank": 10} | declared))  # type: ignore[arg-type]  # a test's own
        self.value = value
        self.error: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.is_closed = False

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        self.asked.append(concept.id)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [fragment(self.value, at=now)]

    async def close(self) -> None:
        self.is_closed = True


def fragment(value: Value, *, at: datetime, key: str = "port", text: str | None = None) -> Fragment:
    said = f"the port is {value}" if text is None else text
    return Fragment(key=key, text=said, value=value, confidence=0.8, at=at, source="?", locator="row 1")


class Slow(Told):
    """A source that takes longer than it is given when nobody waits."""

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(5 * collecting.PATIENCE_S, later.set_result, None)
        await later
        return await super().fragments(concept, now=now)


class Shaped(Told):
    """A source whose answer has another shape."""

    def __init__(self, answer: object, name: str = "shaped", **declared: object) -> None:
        super().__init__(name, **declared)  # type: ignore[arg-type]  # a test's own
        self.answer = answer

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        return self.answer  # type: ignore[return-value]  # the fault itself


# -- Under one deadline --------------------------------------------------------------------------------------------


async def test_all_sources_are_asked_at_once(memory: Memory) -> None:
    """C-05: each of them waits until the other was asked."""
    one, other = Told("one"), Told("other")
    one.gate, other.gate = asyncio.Event(), asyncio.Event()

    async def release() -> None:
        while not (one.asked and other.asked):
            await asyncio.sleep(0)
        one.gate.set()
        other.gate.set()

    memory.sources.add(one)
    memory.sources.add(other)
    answer, _ = await asyncio.gather(memory.defrag(CONCEPT), release())

    assert [origin.source for origin in answer.fragments[0].origins] == ["one", "other"]
    assert answer.missing == {}


async def test_a_hung_source_costs_only_its_own_say(memory: Memory) -> None:
    """TC-03, C-09, K-26: the others are complete, and the timeout is named in 80 % of the deadline."""
    hung, app = Told("hung"), Told()
    hung.gate.clear()
    memory.sources.add(hung)
    memory.sources.add(app)

    answer = await memory.defrag(CONCEPT, deadline_s=SOON_S)

    assert answer.missing["hung"] == "no answer within 200 ms"
    assert [each.source for each in answer.fragments] == ["app"]
    assert "- missing: hung (no answer within 200 ms)" in answer.injection


async def test_many_hung_sources_silence_none_that_answers(home: Settings) -> None:
    """TC-03, C-09: nor are they cancelled early, or blamed for it, however often they are asked."""
    release = threading.Event()

    def hang(concept: object) -> None:
        release.wait()

    async with mica.open(":memory:", settings=home) as memory:
        for number in range(12):
            memory.register(f"hung{number}", hang)
        good = Told("good")
        memory.sources.add(good)
        memory.register("thread", lambda concept: [{"key": "k", "text": "here in time"}])
        first = await memory.defrag(CONCEPT, deadline_s=1)
        later = [await memory.defrag(f"a:b:{number}", deadline_s=0.02) for number in range(FAILURES_MAX)]
        reasons = {reason for answer in (first, *later) for name, reason in answer.missing.items() if "hung" in name}
        release.set()

    assert {each.source for each in first.fragments} == {"good", "thread"}
    assert {reason for reason in reasons if "no answer within" not in reason} == set()


async def test_each_source_has_its_share_of_the_time(memory: Memory) -> None:
    slow = Told("slow", time_share=0.5)
    slow.gate.clear()
    memory.sources.add(slow)

    answer = await memory.defrag(CONCEPT, deadline_s=SOON_S)

    assert answer.missing["slow"] == "no answer within 100 ms"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("no such table"), "RuntimeError: no such table"),
        (SourceFailed("app", "the server is down; start it"), "the server is down; start it"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "it was cancelled"),
        (TimeoutError("the server is slow"), "TimeoutError: the server is slow"),
    ],
)
async def test_whatever_a_source_raises_is_one_line(home: Settings, error: BaseException, said: str) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        bad = Told("bad")
        bad.error = error
        memory.sources.add(bad)
        memory.sources.add(Told("app"))

        answer = await memory.defrag(CONCEPT)

    assert answer.missing == {"bad": said}
    assert [each.source for each in answer.fragments] == ["app"]
    assert sum("bad" in line for line in answer.injection.splitlines()) == 1


async def test_all_sources_down_is_empty_and_counted(memory: Memory) -> None:
    """TC-09, C-17: no exception, no statement, and a line for each with the reason."""
    bad = Told("bad")
    bad.error = RuntimeError("down")
    memory.sources.add(bad)

    answer = await memory.defrag(CONCEPT)

    assert (answer.fragments, answer.coherence) == ((), None)
    assert answer.injection.splitlines()[1:] == ["- missing: bad (RuntimeError: down)", "</memory>"]
    assert answer.missing == {"bad": "RuntimeError: down"}
    (recorded,) = await memory.events(EventQuery(names=("defrag",)))
    assert recorded.data["missing"] == {"bad": "RuntimeError: down"}


async def test_nothing_known_prints_nothing(memory: Memory) -> None:
    """C-31"""
    answer = await memory.defrag("nobody:knows:this")

    assert (answer.injection, answer.missing, answer.fragments) == ("", {}, ())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "TypeError"),
        ([1], "it gave a int, not a fragment"),
        ({"key": "port"}, "it gave a str, not a fragment"),
    ],
)
async def test_an_answer_of_another_shape_is_named(home: Settings, given: object, said: str) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(Shaped(given))

        assert said in (await memory.defrag(CONCEPT)).missing["shaped"]


async def test_an_iterator_that_blocks_holds_nobody_up(home: Settings, clock: HandClock) -> None:
    """TC-04: it waits in a thread for what the event loop does meanwhile."""
    release = threading.Event()

    class Blocking:
        def __iter__(self) -> Iterator[Fragment]:
            assert release.wait(20)
            yield fragment(1, at=clock())

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(Blocking()))
        asking = asyncio.ensure_future(memory.defrag(CONCEPT))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        release.set()

        assert [each.value for each in (await asking).fragments] == [1]


async def test_an_answer_that_blocks_ends_though_its_source_limits_itself(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-04, C-09: the limit of a declared source ends with its answer, and what is read of that has one, too."""
    release = threading.Event()
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.05)

    class Blocking:
        def __iter__(self) -> Iterator[Fragment]:
            read.append(self)
            release.wait()
            yield fragment(1, at=clock())

    class Limited(Shaped):
        limit_s = 0.01

    read: list[Blocking] = []
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Limited(Blocking()))
        async with asyncio.timeout(60):
            first = await memory.defrag(CONCEPT, deadline_s=0.02)
            while len(read) < 2:  # nobody asks it again before that has ended
                await memory.defrag(CONCEPT, deadline_s=0.02)
        release.set()

    assert "no answer within" in first.missing["shaped"]


async def test_a_source_may_take_as_long_as_somebody_waits(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-09: the deadline of whoever asks is the limit; what a source is given beyond it is for the next question."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Slow("app"))
        answer = await memory.defrag(CONCEPT)

    assert answer.missing == {}
    assert [each.value for each in answer.fragments] == [8080]


@pytest.mark.parametrize("late_max", [0, collecting.LATE_MAX])
async def test_who_joins_a_question_under_way_waits_as_long_as_it_likes(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch, late_max: int
) -> None:
    """C-09: the limit of whoever asked first is not that of the others, nor is its leaving."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)
    monkeypatch.setattr(collecting, "LATE_MAX", late_max)
    app = Slow("app")

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(app)
        _, patient = await asyncio.gather(
            memory.defrag(CONCEPT, deadline_s=0.02), memory.defrag(CONCEPT, deadline_s=60)
        )

    assert patient.missing == {}
    assert [each.value for each in patient.fragments] == [8080]
    assert len(app.asked) == 1


@pytest.mark.parametrize("limit_s", [math.inf, 300.0])
async def test_a_question_that_nobody_waits_for_ends_soon(
    home: Settings, monkeypatch: pytest.MonkeyPatch, limit_s: float
) -> None:
    """C-09: whatever time whoever asked it would have had, and whatever limit its source has."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)
    ended = asyncio.Event()

    class Hung(Told):
        async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
            try:
                return await super().fragments(concept, now=now)
            finally:
                ended.set()

    hung = Hung("hung")
    hung.limit_s = limit_s
    hung.gate.clear()
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(hung)
        asking = asyncio.ensure_future(memory.defrag(CONCEPT, deadline_s=600))
        while not hung.asked:
            await asyncio.sleep(0)

        asking.cancel()

        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_source_speaks_in_its_own_name_without_secrets_and_not_without_end(
    home: Settings, clock: HandClock
) -> None:
    secret = "ghp_" + "a1B2" * 9
    told = [fragment(number, at=clock(), key=f"k{number}", text=f"token {secret}") for number in range(60)]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(told))
        answer = await memory.defrag(CONCEPT)

    assert {each.source for each in answer.fragments} == {"shaped"}
    assert secret not in answer.injection
    assert answer.missing == {"shaped": "told in part: more than 50 fragments; the first are used"}


@pytest.mark.parametrize("where", ["text", "value", "locator"])
async def test_a_reply_has_a_limit_of_characters_wherever_they_stand(
    where: str, home: Settings, clock: HandClock
) -> None:
    """C-09: what is looked through, kept and recorded of a reply is bounded, and the rest is named."""
    told = [
        msgspec.structs.replace(fragment(number, at=clock(), key=f"k{number}"), **{where: "x" * 900})
        for number in range(4)
    ]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(told, characters_max=2_000))
        answer = await memory.defrag(CONCEPT)

    assert [each.key for each in answer.fragments] == ["k0", "k1"]
    assert answer.missing == {"shaped": "told in part: more than 2,000 characters; the first 2 fragments are used"}


async def test_a_live_object_of_megabytes_is_cut_by_what_its_table_says(home: Settings, clock: HandClock) -> None:
    rows = [fragment("x" * 1_000_000, at=clock(), key=f"k{number}", text="long") for number in range(20)]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.register("big", rows)
        memory.register("wide", rows, characters_max=1_500_000)
        answer = await memory.defrag(CONCEPT, deadline_s=10)

    assert answer.missing == {
        "big": "more than 200,000 characters; the first 0 fragments are used",
        "wide": "told in part: more than 1,500,000 characters; the first 1 fragments are used",
    }


async def test_what_a_source_lacks_is_named_beside_what_it_knows(home: Settings, clock: HandClock) -> None:
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(Partial([fragment(1, at=clock())], missing="line 7 cannot be read")))
        answer = await memory.defrag(CONCEPT)

    assert answer.missing == {"shaped": "told in part: line 7 cannot be read"}
    assert len(answer.fragments) == 1


async def test_only_sources_that_know_the_kind_of_thing_are_asked(memory: Memory) -> None:
    """C-32: concepts filter exactly."""
    app, other = Told("app", concepts=("judgment:*",)), Told("other", concepts=("learning:*",))
    memory.sources.add(app)
    memory.sources.add(other)

    answer = await memory.defrag(CONCEPT)

    assert (app.asked, other.asked) == (["abc123"], [])
    assert "other" not in answer.asked


async def test_two_sources_of_one_name_are_refused(memory: Memory) -> None:
    memory.sources.add(Told("app"))

    with pytest.raises(InvalidInput, match="'app' already"):
        memory.sources.add(Told("app"))


# -- A breaker for each source -------------------------------------------------------------------------------------


async def test_a_source_that_keeps_failing_is_left_alone_and_asked_again_later(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        bad = Told("bad")
        bad.error = RuntimeError("down")
        memory.sources.add(bad)
        answers = [await memory.defrag(f"a:b:{number}") for number in range(FAILURES_MAX + 3)]

        assert len(bad.asked) == FAILURES_MAX
        assert answers[-1].missing["bad"] == f"left alone after {FAILURES_MAX} failures: RuntimeError: down"
        bad.error = None
        while "bad" in (answer := await memory.defrag("a:b:c")).missing:
            await asyncio.sleep(0.01)
        assert [each.source for each in answer.fragments] == ["bad"]


# -- Replies are used again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "minutes"), [("judgment", 21), ("learning", 34), ("pattern", 55), ("psychology", 13), ("else", 8)]
)
def test_replies_age_in_fibonacci_minutes_by_the_kind_of_thing(domain: str, minutes: int) -> None:
    """C-11, C-27, K-24: a source may set its own."""
    concept = Concept(domain, "x", "1")

    assert ttl_s(Declared(name="app"), concept) == minutes * 60
    assert minutes in FIBONACCI
    assert ttl_s(Declared(name="app", ttl_s=5), concept) == 5
    assert ttl_s(Declared(name="app", is_live=True, ttl_s=5), concept) == 0


async def test_a_reply_is_used_until_its_age_runs_out(memory: Memory, clock: HandClock) -> None:
    """C-04: a cache that knows its ages."""
    app, live = Told("app", ttl_s=100), Told("live", is_live=True)
    memory.sources.add(app)
    memory.sources.add(live)

    await memory.defrag(CONCEPT)
    clock.move(seconds=50)
    second = await memory.defrag(CONCEPT)
    clock.move(seconds=50)
    third = await memory.defrag(CONCEPT)

    assert ("app" in second.cached, "live" in second.cached, "app" in third.cached) == (True, False, False)
    assert (len(app.asked), len(live.asked)) == (2, 3)


async def test_a_reply_that_ages_is_asked_for_before_anybody_waits(home: Settings, clock: HandClock) -> None:
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        app = Told("app", ttl_s=100)
        memory.sources.add(app)
        await memory.defrag(CONCEPT)
        clock.move(seconds=70)
        app.value = 9090

        answer = await memory.defrag(CONCEPT)
        while (await memory.defrag(CONCEPT)).fragments[0].value != 9090:
            await asyncio.sleep(0)

        assert answer.fragments[0].value == 8080
        assert "app" in answer.cached


async def test_of_several_who_ask_the_same_one_asks_the_source(memory: Memory) -> None:
    app = Told()
    app.gate.clear()
    memory.sources.add(app)
    asking = [asyncio.ensure_future(memory.defrag(CONCEPT)) for _ in range(5)]
    while not app.asked:
        await asyncio.sleep(0)
    app.gate.set()

    answers = await asyncio.gather(*asking)

    assert len(app.asked) == 1
    assert {answer.fragments[0].value for answer in answers} == {8080}


async def test_an_answer_that_came_too_late_is_there_for_the_next_question(memory: Memory) -> None:
    slow = Told("slow")
    slow.gate.clear()
    memory.sources.add(slow)
    first = await memory.defrag(CONCEPT, deadline_s=SOON_S)
    slow.gate.set()

    second = await memory.defrag(CONCEPT)

    assert "slow" in first.missing
    assert [each.source for each in second.fragments] == ["slow"]
    assert len(slow.asked) == 1


async def test_an_old_reply_stands_in_and_says_so(memory: Memory, clock: HandClock) -> None:
    """TC-08, C-17: with the reason and its age."""
    app = Told("app", ttl_s=60)
    memory.sources.add(app)
    await memory.defrag(CONCEPT)
    clock.move(minutes=5)
    app.error = RuntimeError("down")

    answer = await memory.defrag(CONCEPT)

    assert [(each.source, each.reason, each.age_s) for each in answer.degraded] == [("app", "RuntimeError: down", 300)]
    assert "- stale: app is answered for from 5 min ago (RuntimeError: down)" in answer.injection
    assert answer.is_degraded
    assert answer.fragments[0].value == 8080


# -- An event beats an age -----------------------------------------------------------------------------------------


async def test_an_event_that_a_source_names_makes_its_replies_old_at_once(memory: Memory) -> None:
    """K-24: before it is stored; of the concept that it names, or of all."""
    app = Told("app", invalidated_by=("deploy.*",))
    memory.sources.add(app)
    for concept in ("a:b:1", "a:b:2"):
        await memory.defrag(concept)

    memory.emit("deploy.done", {"concept": "a:b:1"})
    for concept in ("a:b:1", "a:b:2"):
        await memory.defrag(concept)
    assert app.asked == ["1", "2", "1"]

    memory.emit("deploy.done", {"concept": "a:*"})
    await memory.defrag("a:b:2")
    memory.emit("deploy.done")
    await memory.defrag("a:b:2")
    memory.emit("something.else")
    await memory.defrag("a:b:2")
    assert app.asked == ["1", "2", "1", "2", "2"]


async def test_an_event_is_heard_once_though_it_is_stored_later(memory: Memory) -> None:
    app = Told("app", invalidated_by=("deploy.done",))
    memory.sources.add(app)
    await memory.defrag(CONCEPT)
    memory.emit("deploy.done")
    await memory.defrag(CONCEPT)

    await memory.position()  # stores it
    await memory.defrag(CONCEPT)

    assert len(app.asked) == 2


async def test_what_happens_while_a_source_is_asked_makes_its_reply_old(memory: Memory) -> None:
    app = Told("app", invalidated_by=("deploy.done",))
    app.gate.clear()
    memory.sources.add(app)
    asking = asyncio.ensure_future(memory.defrag(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)
    memory.emit("deploy.done")
    await memory.position()
    app.gate.set()
    await asking

    await memory.defrag(CONCEPT)

    assert len(app.asked) == 2


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("judgment.made", {"concept": CONCEPT}),
        ("judgment.withdrawn", {}),
        ("learning.updated", {"concept": "judgment:*"}),
        ("session.ended", {}),
        ("quality.degraded", {}),
    ],
)
async def test_every_trigger_makes_replies_old(home: Settings, name: str, about: dict[str, object]) -> None:
    """TC-08, C-15"""
    async with mica.open(":memory:", settings=home) as memory:
        app = Told()
        memory.sources.add(app)
        await memory.defrag(CONCEPT)

        memory.emit(name, about)
        answer = await memory.defrag(CONCEPT)

        assert "app" not in answer.cached
        assert len(app.asked) == 2


# -- Other processes -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A space that several processes share."""
    if request.param == "sqlite":
        return str(tmp_path / "shared.db")
    return str(request.getfixturevalue("server").address())


async def until(memory: Memory, source: Told, count: int) -> None:
    """Ask until a source was asked so often: events of others are heard soon, not at once."""
    while len(source.asked) < count:
        await memory.defrag(CONCEPT)
        await asyncio.sleep(0.01)


async def test_a_reply_is_shared_through_the_store_until_any_process_says_that_it_is_old(
    address: str, home: Settings, clock: HandClock
) -> None:
    """C-24: invalidation across processes."""
    here, there = Told("app", invalidated_by=("deploy.done",)), Told("app", invalidated_by=("deploy.done",))
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(here)
        await first.defrag(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.sources.add(there)
        answer = await second.defrag(CONCEPT)
        assert (answer.fragments[0].value, "app" in answer.cached, there.asked) == (8080, True, [])

        async with mica.open(address, settings=home, clock=clock) as third:
            third.emit("deploy.done")
            await third.position()
        await until(second, there, 1)

    async with mica.open(address, settings=home, clock=clock) as fourth:
        again = Told("app", invalidated_by=("deploy.done",), rank=11)
        fourth.sources.add(again)
        await fourth.defrag(CONCEPT)
        assert len(again.asked) == 1, "a source that is declared otherwise is another"


async def test_a_reply_from_before_an_event_is_old_for_whoever_opens_the_space_after_it(
    address: str, home: Settings, clock: HandClock
) -> None:
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(Told("app", invalidated_by=("deploy.done",)))
        await first.defrag(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.emit("deploy.done")
    async with mica.open(address, settings=home, clock=clock) as third:
        app = Told("app", invalidated_by=("deploy.done",))
        third.sources.add(app)

        await third.defrag(CONCEPT)

        assert len(app.asked) == 1


async def test_a_purge_reaches_what_was_kept_of_sources(address: str, home: Settings, clock: HandClock) -> None:
    """U-08: here, in the store, and in other processes."""
    async with (
        mica.open(address, settings=home, clock=clock) as first,
        mica.open(address, settings=home, clock=clock) as second,
    ):
        sources = Told("app"), Told("app")
        for memory, app in zip((first, second), sources, strict=True):
            memory.sources.add(app)
            await memory.defrag(CONCEPT)
        secret = first.mark("the code word is Ararat")

        await first.purge(ids=[secret.id])

        await first.defrag(CONCEPT)
        assert len(sources[0].asked) == 2
        await until(second, sources[1], len(sources[1].asked) + 1)


async def test_what_is_judged_first_is_told_at_once(memory: Memory) -> None:
    """C-15: also in a space that had no judgment when it was asked before."""
    assert (await memory.defrag(CONCEPT)).fragments == ()

    memory.judge(CONCEPT, "accept", confidence=0.9)

    assert [each.text for each in (await memory.defrag(CONCEPT)).fragments] == ["accept"]


async def test_what_a_space_has_none_of_is_not_asked_for_again_because_of_another_event(memory: Memory) -> None:
    """A judgment that another system changed makes replies old, and makes no judgment, mark or trail of ours."""
    memory.sources.add(Told("app", 1))
    await memory.defrag(CONCEPT)

    memory.emit("judgment.changed", {"concept": CONCEPT})

    assert (await memory.defrag(CONCEPT)).asked == ("app",)


async def test_whoever_asks_after_an_event_gets_no_answer_from_before_it(memory: Memory) -> None:
    """K-24: the event wins, also while somebody who asked earlier still waits."""
    app = Told("app", 1, invalidated_by=("deploy.done",))
    app.gate.clear()
    memory.sources.add(app)
    early = asyncio.ensure_future(memory.defrag(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)

    memory.emit("deploy.done", {})
    late = asyncio.ensure_future(memory.defrag(CONCEPT))
    while len(app.asked) < 2 and not late.done():
        await asyncio.sleep(0)
    app.gate.set()
    await asyncio.gather(early, late)

    assert len(app.asked) == 2
    assert "app" in (await memory.defrag(CONCEPT)).cached


async def test_an_answer_from_before_a_purge_is_not_kept(memory: Memory) -> None:
    """U-08: it may say what was purged."""
    app = Told("app")
    app.gate.clear()
    memory.sources.add(app)
    early = asyncio.ensure_future(memory.defrag(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)
    secret = memory.mark("the code word is Ararat")

    await memory.purge(ids=[secret.id])
    app.gate.set()
    await early

    assert "app" not in (await memory.defrag(CONCEPT)).cached
    assert len(app.asked) == 2


async def test_a_purge_reaches_the_receipts_that_quote_what_it_takes(memory: Memory) -> None:
    """U-08: of gathers and of briefs; those that quote other events stay."""
    kept = memory.judge("judgment:code_review:other", "Sis", confidence=0.9)
    await memory.defrag("judgment:code_review:other", deadline_s=30)
    gone = [memory.mark("abc123 holds Ararat").id, memory.judge(CONCEPT, "Masis", confidence=0.9).id]
    await memory.defrag(CONCEPT)
    await memory.brief("abc123", concept=CONCEPT)

    await memory.purge(ids=gone)

    left = [str(event.data) for event in await memory.events(EventQuery(limit=None))]
    assert not [said for said in left if "Ararat" in said or "Masis" in said]
    assert [said for said in left if kept.id in said and "Sis" in said]


async def test_an_event_counts_however_many_came_after_it(address: str, home: Settings, clock: HandClock) -> None:
    """K-24: who cannot know any more whether a reply of another process is old takes it for old."""
    here, there = (Told("app", invalidated_by=("deploy.*",)) for _ in range(2))
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(here)
        await first.defrag(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.sources.add(there)
        await second.defrag("a:b:other")
        second.emit("deploy.done", {"concept": CONCEPT})
        for number in range(NOTES_MAX):
            second.emit("deploy.done", {"concept": f"a:b:{number}"})
        await second.events(EventQuery(limit=1))

        async with asyncio.timeout(10):
            await until(second, there, 2)

    assert there.asked[-1] == Concept.parse(CONCEPT).id


async def test_a_store_that_is_back_is_asked_again_though_whoever_tried_it_was_cancelled(home: Settings) -> None:
    """C-22: a breaker lets the next one try."""

    class Away(EphemeralStore):
        is_away = False
        gate = asyncio.Event()

        async def last_position(self) -> int:
            await self.gate.wait()
            if self.is_away:
                raise StoreUnavailable("it is away")
            return await super().last_position()

    store = Away()
    store.gate.set()
    async with AsyncExitStack() as held:
        memory = Memory(store, settings=home)
        held.push_async_callback(memory.close)
        memory.sources.add(Told("app"))
        store.is_away = True
        while "left alone" not in (await memory.defrag(CONCEPT)).missing.get("log", ""):
            await asyncio.sleep(0)
        store.is_away = False
        store.gate.clear()
        while True:
            trying = asyncio.ensure_future(memory.defrag(CONCEPT))
            await asyncio.wait([trying], timeout=0.05)
            if trying.cancel():
                await asyncio.wait([trying])
                break
        store.gate.set()

        async with asyncio.timeout(10):
            while "log" in (await memory.defrag(CONCEPT)).missing:
                await asyncio.sleep(0.01)


async def test_a_source_that_is_registered_anew_speaks_for_itself(home: Settings, clock: HandClock) -> None:
    """K-24: what another of its name replied is not used."""
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        for said in ("old", "new"):
            memory.register("app", [{"key": "port", "text": said}], is_live=False, ttl_s=60)

            assert [each.text for each in (await memory.defrag(CONCEPT)).fragments] == [said]


async def test_a_source_that_is_declared_otherwise_is_asked_anew(address: str, tmp_path: Path) -> None:
    """K-24: a path that was corrected is read at once, not when the reply from before is too old."""
    declared = tmp_path / "home/.config/mica/config.toml"
    declared.parent.mkdir(parents=True)
    for said in ("old", "new"):
        (tmp_path / f"{said}.json").write_text(f'[{{"key": "port", "text": "{said}"}}]')
        declared.write_text(f'[sources.app]\ndriver = "json"\npath = "{tmp_path / said}.json"\nttl_s = 600\n')
        settings = mica.load_settings({"HOME": str(tmp_path / "home"), "MICA_BRIEF_DEADLINE_S": "30"})
        async with mica.open(address, settings=settings) as memory:
            answer = await memory.defrag(CONCEPT)

        assert [each.text for each in answer.fragments] == [said]


# -- The end -------------------------------------------------------------------------------------------------------


async def test_closing_leaves_no_task_and_closes_every_source(home: Settings) -> None:
    before = asyncio.all_tasks()
    memory = await mica.open(":memory:", settings=home)
    hung, app = Told("hung"), Told("app")
    hung.gate.clear()
    memory.sources.add(hung)
    memory.sources.add(app)
    await memory.defrag(CONCEPT, deadline_s=SOON_S)

    await memory.close()

    assert asyncio.all_tasks() == before
    assert (hung.is_closed, app.is_closed) == (True, True)


# -- Whatever a source says ----------------------------------------------------------------------------------------


async def test_a_secret_is_in_nothing_that_is_told_or_kept(memory: Memory, clock: HandClock) -> None:
    """Neither as a key or locator, nor in why a source failed or what it lacks."""
    secret = "ghp_" + "a1B2" * 9
    failing = Told("failing")
    failing.error = RuntimeError(f"refused {secret}")
    named = Fragment(key=f"password {secret}", text="is set", at=clock(), source="?", locator=f"row {secret}")
    lacking = Partial([fragment(1, at=clock())], missing=f"line 3 is {secret}")
    for source in (failing, Shaped([named], "named"), Shaped(lacking, "lacking")):
        memory.sources.add(source)

    answer = await memory.defrag(CONCEPT)
    told = await memory.brief("port", concept=CONCEPT)

    assert set(answer.missing) == {"failing", "lacking"}
    assert "password" in answer.injection
    recorded = await memory.events(EventQuery(names=("defrag", "brief")))
    assert secret not in f"{answer} {told} {recorded}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": 10**400, "is_estimate": True},
        {"value": [1]},
        {"text": "half \ud800"},
        {"key": "half \ud800"},
        {"locator": None},
        {"sources": None},
    ],
    ids=["number", "value", "text", "key", "locator", "sources"],
)
async def test_a_fragment_that_is_none_costs_only_its_source(
    home: Settings, clock: HandClock, wrong: dict[str, object]
) -> None:
    """Nothing that a program states is raised into a turn, also where two state the same."""

    def stated(_: Concept) -> list[Fragment]:
        given: dict[str, object] = {"key": "port", "text": "8080", "at": clock(), "source": "?"}
        return [Fragment(**given | wrong)]  # type: ignore[arg-type]  # the fault itself

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Told("sound"))
        memory.register("one", stated)
        memory.register("other", stated)

        answer = await memory.defrag(CONCEPT)
        told = await memory.brief(concept=CONCEPT)

    assert set(answer.missing) == set(told.missing) == {"one", "other"}
    assert [each.source for each in answer.fragments] == ["sound"]
