"""Gathering from live sources: one deadline, failures named, replies kept while they are fresh and no longer."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from tests.sources.gated_source import GatedSource, fragment
from tests.sources.scripted_sources import task_fan_out

import mica
from mica import EventQuery, Memory
from mica.errors import SourceFailed, StoreUnavailable
from mica.settings import Settings
from mica.sources import fan_out as collecting
from mica.sources.answer import Collected
from mica.sources.breaker import FAILURES_MAX
from mica.sources.protocol import Concept, Fragment, Partial, Question, Source, SourceDeclaration
from mica.testing import HandClock
from mica.testing.builders import START_AT

CONCEPT = "judgment:code_review:abc123"
SOON_S = 2.5  # a deadline that only a hung source misses, also on a busy machine
BRIEFLY_S = 0.25  # a deadline that is over before the only source answers


class Slow(GatedSource):
    """A source that takes longer than it is given when nobody waits."""

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(5 * collecting.PATIENCE_S, later.set_result, None)
        await later
        return await super().fragments(question)


class Shaped(GatedSource):
    """A source whose answer has another shape."""

    def __init__(self, answer: object, name: str = "shaped", **declared: object) -> None:
        super().__init__(name, **declared)  # type: ignore[arg-type]  # a test's own
        self.answer = answer

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        return self.answer  # type: ignore[return-value]  # the fault itself


# -- Under one deadline --------------------------------------------------------------------------------------------


async def test_all_sources_are_queried_concurrently(memory: Memory) -> None:
    """keeps: C-05. Each of them waits until the other was called."""
    one, other = GatedSource("one"), GatedSource("other")
    one.gate, other.gate = asyncio.Event(), asyncio.Event()

    async def release() -> None:
        while not (one.asked and other.asked):
            await asyncio.sleep(0)
        one.gate.set()
        other.gate.set()

    memory.sources.add(one)
    memory.sources.add(other)
    answer, _ = await asyncio.gather(memory.sources.gather(CONCEPT), release())

    assert [origin.source for origin in answer.fragments[0].origins] == ["one", "other"]
    assert answer.missing == {}


@pytest.mark.parametrize(("deadline_s", "milliseconds"), [(0.03, 20), (0.04, 30), (0.05, 40), (0.2, 160)])
async def test_ten_milliseconds_of_a_short_deadline_remain_for_the_text(deadline_s: float, milliseconds: int) -> None:
    """keeps: K-26"""
    hung = GatedSource("hung")
    hung.gate.clear()
    fan_out = task_fan_out([hung])

    answer = await fan_out.collect(Question(concept=Concept.parse(CONCEPT), now=START_AT), deadline_s=deadline_s)
    await fan_out.close()

    assert answer.missing["hung"] == f"no answer within {milliseconds} ms"


async def test_a_hung_source_costs_only_its_own_answer(memory: Memory) -> None:
    """keeps: TC-03, C-09, K-26. The others are complete, and the timeout is reported within 80 % of the deadline."""
    hung, app = GatedSource("hung"), GatedSource()
    hung.gate.clear()
    memory.sources.add(hung)
    memory.sources.add(app)

    answer = await memory.sources.gather(CONCEPT, deadline_s=SOON_S)

    assert answer.missing["hung"] == "no answer within 2000 ms"
    assert [each.source for each in answer.fragments] == ["app"]
    assert "- missing: hung (no answer within 2000 ms)" in answer.injection


async def test_many_hung_sources_delay_no_other(home: Settings) -> None:
    """keeps: TC-03, C-09. They are neither cancelled early nor blamed for it, however often they are queried."""
    release = threading.Event()

    def hang(concept: object) -> None:
        release.wait()

    async with mica.open(":memory:", settings=home) as memory:
        for number in range(12):
            memory.sources.register(f"hung{number}", hang)
        good = GatedSource("good")
        memory.sources.add(good)
        memory.sources.register("thread", lambda concept: [{"key": "k", "text": "here in time"}])
        first = await memory.sources.gather(CONCEPT, deadline_s=1)
        later = [await memory.sources.gather(f"a:b:{number}", deadline_s=0.02) for number in range(FAILURES_MAX)]
        reasons = {reason for answer in (first, *later) for name, reason in answer.missing.items() if "hung" in name}
        release.set()

    assert {each.source for each in first.fragments} == {"good", "thread"}
    assert {reason for reason in reasons if "no answer within" not in reason} == set()


async def test_each_source_has_its_share_of_the_deadline(memory: Memory) -> None:
    slow = GatedSource("slow", time_share=0.5)
    slow.gate.clear()
    memory.sources.add(slow)

    answer = await memory.sources.gather(CONCEPT, deadline_s=BRIEFLY_S)

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
async def test_any_error_of_a_source_is_reported_in_one_line(home: Settings, error: BaseException, said: str) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        bad = GatedSource("bad")
        bad.error = error
        memory.sources.add(bad)
        memory.sources.add(GatedSource("app"))

        answer = await memory.sources.gather(CONCEPT)

    assert answer.missing == {"bad": said}
    assert [each.source for each in answer.fragments] == ["app"]
    assert sum("bad" in line for line in answer.injection.splitlines()) == 1


async def test_an_answer_with_all_sources_down_is_empty_and_counted(memory: Memory) -> None:
    """keeps: TC-09, C-17. There is no exception and no statement, but one line per source with the reason."""
    bad = GatedSource("bad")
    bad.error = RuntimeError("down")
    memory.sources.add(bad)

    answer = await memory.sources.gather(CONCEPT)

    assert (answer.fragments, answer.coherence) == ((), None)
    assert answer.injection.splitlines()[1:] == ["- missing: bad (RuntimeError: down)", "</memory>"]
    assert answer.missing == {"bad": "RuntimeError: down"}
    (recorded,) = await memory.events.query(EventQuery(names=("sources.gathered",)))
    assert recorded.data["missing"] == {"bad": "RuntimeError: down"}


async def test_an_empty_answer_prints_nothing(memory: Memory) -> None:
    """keeps: C-31"""
    answer = await memory.sources.gather("nobody:knows:this")

    assert (answer.injection, answer.missing, answer.fragments) == ("", {}, ())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "TypeError"),
        ([1], "it gave a int, not a fragment"),
        ({"key": "port"}, "it gave a str, not a fragment"),
    ],
)
async def test_an_answer_of_an_unexpected_type_is_reported(home: Settings, given: object, said: str) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(Shaped(given))

        assert said in (await memory.sources.gather(CONCEPT)).missing["shaped"]


async def test_a_blocking_iterator_delays_no_other_source(home: Settings, clock: HandClock) -> None:
    """keeps: TC-04. It waits in a thread for work of the event loop."""
    release = threading.Event()

    class Blocking:
        def __iter__(self) -> Iterator[Fragment]:
            assert release.wait(20)
            yield fragment(1, at=clock())

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(Blocking()))
        asking = asyncio.ensure_future(memory.sources.gather(CONCEPT))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        release.set()

        assert [each.value for each in (await asking).fragments] == [1]


async def test_reading_a_blocking_answer_ends_even_if_its_source_has_a_limit(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: TC-04, C-09. A declared source's limit ends with its answer; reading that answer has a limit too."""
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
            first = await memory.sources.gather(CONCEPT, deadline_s=0.02)
            while len(read) < 2:  # nobody asks it again before that has ended
                await memory.sources.gather(CONCEPT, deadline_s=0.02)
        release.set()

    assert "no answer within" in first.missing["shaped"]


async def test_a_call_may_take_as_long_as_its_caller_waits(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: C-09. The caller's deadline is the limit; a source's longer limit serves the next query."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Slow("app"))
        answer = await memory.sources.gather(CONCEPT)

    assert answer.missing == {}
    assert [each.value for each in answer.fragments] == [8080]


@pytest.mark.parametrize("late_max", [0, collecting.LATE_MAX])
async def test_a_caller_that_joins_a_call_waits_for_its_own_deadline(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch, late_max: int
) -> None:
    """keeps: C-09. The first caller's deadline or departure does not affect the others."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)
    monkeypatch.setattr(collecting, "LATE_MAX", late_max)
    app = Slow("app")

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(app)
        _, patient = await asyncio.gather(
            memory.sources.gather(CONCEPT, deadline_s=0.02), memory.sources.gather(CONCEPT, deadline_s=60)
        )

    assert patient.missing == {}
    assert [each.value for each in patient.fragments] == [8080]
    assert len(app.asked) == 1


@pytest.mark.parametrize("limit_s", [math.inf, 300.0])
async def test_a_call_without_a_waiter_ends_soon(
    home: Settings, monkeypatch: pytest.MonkeyPatch, limit_s: float
) -> None:
    """keeps: C-09. Neither the first caller's deadline nor the source's own limit extends it."""
    monkeypatch.setattr(collecting, "PATIENCE_S", 0.01)
    ended = asyncio.Event()

    class Hung(GatedSource):
        async def fragments(self, question: Question) -> Sequence[Fragment]:
            try:
                return await super().fragments(question)
            finally:
                ended.set()

    hung = Hung("hung")
    hung.limit_s = limit_s
    hung.gate.clear()
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(hung)
        asking = asyncio.ensure_future(memory.sources.gather(CONCEPT, deadline_s=600))
        while not hung.asked:
            await asyncio.sleep(0)

        asking.cancel()

        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_source_is_labelled_redacted_and_limited(home: Settings, clock: HandClock) -> None:
    secret = "ghp_" + "a1B2" * 9
    told = [fragment(number, at=clock(), key=f"k{number}", text=f"token {secret}") for number in range(60)]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(told))
        answer = await memory.sources.gather(CONCEPT)

    assert {each.source for each in answer.fragments} == {"shaped"}
    assert secret not in answer.injection
    assert answer.missing == {"shaped": "partial: more than 50 fragments; the first are used"}


@pytest.mark.parametrize("where", ["text", "value", "locator"])
async def test_a_reply_has_a_limit_of_characters_in_all_its_fields(
    where: str, home: Settings, clock: HandClock
) -> None:
    """keeps: C-09. The parts that are scanned, cached and recorded are bounded, and the cut is reported."""
    told = [
        msgspec.structs.replace(fragment(number, at=clock(), key=f"k{number}"), **{where: "x" * 900})
        for number in range(4)
    ]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(told, characters_max=2_000))
        answer = await memory.sources.gather(CONCEPT)

    assert [each.key for each in answer.fragments] == ["k0", "k1"]
    assert answer.missing == {"shaped": "partial: more than 2,000 characters; the first 2 fragments are used"}


async def test_a_live_object_of_megabytes_is_cut_at_its_declared_limit(home: Settings, clock: HandClock) -> None:
    rows = [fragment("x" * 1_000_000, at=clock(), key=f"k{number}", text="long") for number in range(20)]

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.register("big", rows)
        memory.sources.register("wide", rows, characters_max=1_500_000)
        answer = await memory.sources.gather(CONCEPT, deadline_s=10)

    assert answer.missing == {
        "big": "more than 200,000 characters; the first 0 fragments are used",
        "wide": "partial: more than 1,500,000 characters; the first 1 fragments are used",
    }


async def test_a_partial_answer_is_shown_and_its_gap_is_named(home: Settings, clock: HandClock) -> None:
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(Shaped(Partial([fragment(1, at=clock())], missing="line 7 cannot be read")))
        answer = await memory.sources.gather(CONCEPT)

    assert answer.missing == {"shaped": "partial: line 7 cannot be read"}
    assert len(answer.fragments) == 1


async def test_only_sources_that_cover_the_concept_are_queried(memory: Memory) -> None:
    """keeps: C-32"""
    app, other = GatedSource("app", concepts=("judgment:*",)), GatedSource("other", concepts=("learning:*",))
    memory.sources.add(app)
    memory.sources.add(other)

    answer = await memory.sources.gather(CONCEPT)

    assert (app.asked, other.asked) == (["abc123"], [])
    assert "other" not in answer.asked


# -- A breaker for each source -------------------------------------------------------------------------------------


# -- Replies are used again ----------------------------------------------------------------------------------------


async def test_concurrent_queries_share_one_call(memory: Memory) -> None:
    app = GatedSource()
    app.gate.clear()
    memory.sources.add(app)
    asking = [asyncio.ensure_future(memory.sources.gather(CONCEPT)) for _ in range(5)]
    while not app.asked:
        await asyncio.sleep(0)
    app.gate.set()

    answers = await asyncio.gather(*asking)

    assert len(app.asked) == 1
    assert {answer.fragments[0].value for answer in answers} == {8080}


async def test_a_late_answer_is_cached_for_the_next_query(memory: Memory) -> None:
    slow = GatedSource("slow")
    slow.gate.clear()
    memory.sources.add(slow)
    first = await memory.sources.gather(CONCEPT, deadline_s=BRIEFLY_S)
    slow.gate.set()

    second = await memory.sources.gather(CONCEPT)

    assert "slow" in first.missing
    assert [each.source for each in second.fragments] == ["slow"]
    assert len(slow.asked) == 1


# -- An event beats an age -----------------------------------------------------------------------------------------


# -- Other processes -----------------------------------------------------------------------------------------------


async def test_an_empty_source_is_not_queried_after_an_unrelated_event(memory: Memory) -> None:
    """A change of another system outdates its replies, but creates no judgment, mark or trail here."""
    memory.sources.add(GatedSource("app", 1))
    await memory.sources.gather(CONCEPT)

    memory.emit("judgment.changed", {"concept": CONCEPT})

    assert (await memory.sources.gather(CONCEPT)).asked == ("app",)


# -- The end -------------------------------------------------------------------------------------------------------


async def test_closing_leaves_no_task_and_closes_every_source(home: Settings) -> None:
    before = asyncio.all_tasks()
    memory = await mica.open(":memory:", settings=home)
    hung, app = GatedSource("hung"), GatedSource("app")
    hung.gate.clear()
    memory.sources.add(hung)
    memory.sources.add(app)
    await memory.sources.gather(CONCEPT, deadline_s=SOON_S)

    await memory.close()

    assert asyncio.all_tasks() == before
    assert (hung.is_closed, app.is_closed) == (True, True)


# -- Whatever a source says ----------------------------------------------------------------------------------------


async def test_secrets_of_a_source_are_shown_and_stored_nowhere(memory: Memory, clock: HandClock) -> None:
    """This includes keys, locators, and the reasons of failures and gaps."""
    secret = "ghp_" + "a1B2" * 9
    failing = GatedSource("failing")
    failing.error = RuntimeError(f"refused {secret}")
    named = Fragment(key=f"password {secret}", text="is set", at=clock(), source="?", locator=f"row {secret}")
    lacking = Partial([fragment(1, at=clock())], missing=f"line 3 is {secret}")
    for source in (failing, Shaped([named], "named"), Shaped(lacking, "lacking")):
        memory.sources.add(source)

    answer = await memory.sources.gather(CONCEPT)
    told = await memory.brief("port", concept=CONCEPT)

    assert set(answer.missing) == {"failing", "lacking"}
    assert "password" in answer.injection
    recorded = await memory.events.query(EventQuery(names=("sources.gathered", "brief")))
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
async def test_an_invalid_fragment_costs_only_its_source(
    home: Settings, clock: HandClock, wrong: dict[str, object]
) -> None:
    """A source's output never raises into an agent's turn, even if two sources state the same."""

    def stated(_: Concept) -> list[Fragment]:
        given: dict[str, object] = {"key": "port", "text": "8080", "at": clock(), "source": "?"}
        return [Fragment(**given | wrong)]  # type: ignore[arg-type]  # the fault itself

    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(GatedSource("sound"))
        memory.sources.register("one", stated)
        memory.sources.register("other", stated)

        answer = await memory.sources.gather(CONCEPT)
        told = await memory.brief(concept=CONCEPT)

    assert set(answer.missing) == set(told.missing) == {"one", "other"}
    assert [each.source for each in answer.fragments] == ["sound"]


# -- Tasks ---------------------------------------------------------------------------------------------------------


TASK = Question(task="q", now=START_AT)


class TaskSource:
    """A source for tasks that waits, fails or answers with its name."""

    def __init__(self, name: str, *, wait: asyncio.Event | None = None, error: Exception | None = None) -> None:
        self.declared = SourceDeclaration(name=name, concepts=(), is_live=True, answers_tasks=True)
        self.wait = wait
        self.error = error
        self.was_cancelled = False

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if self.wait is not None:
            try:
                await self.wait.wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        if self.error is not None:
            raise self.error
        return [fragment(1, at=question.now, text=self.declared.name)]

    async def close(self) -> None:
        """Nothing is held."""


async def collect_task(sources: Sequence[Source], *, deadline_s: float) -> Collected:
    return await task_fan_out(sources).collect(TASK, deadline_s=deadline_s)


async def test_a_task_is_sent_to_all_sources_at_once() -> None:
    """keeps: TC-03. Each waits for the other, so a sequential run would never end."""
    first, second = asyncio.Event(), asyncio.Event()

    class Rings(TaskSource):
        def __init__(self, name: str, *, ring: asyncio.Event, wait: asyncio.Event) -> None:
            super().__init__(name, wait=wait)
            self.ring = ring

        async def fragments(self, question: Question) -> Sequence[Fragment]:
            self.ring.set()
            return await super().fragments(question)

    found = await collect_task(
        [Rings("b", ring=first, wait=second), Rings("a", ring=second, wait=first)], deadline_s=60
    )

    assert [each.text for each in found.fragments] == ["b", "a"]
    assert found.missing == {}


async def test_a_hung_source_of_a_task_is_cancelled_and_reported() -> None:
    """keeps: TC-03, U-05"""
    hung = TaskSource("hung", wait=asyncio.Event())

    found = await collect_task([hung, TaskSource("fine")], deadline_s=1.0)
    await asyncio.sleep(0)

    assert [each.text for each in found.fragments] == ["fine"]
    assert found.missing == {"hung": "no answer within 800 ms"}
    assert hung.was_cancelled


async def test_a_deadline_in_the_past_leaves_no_time() -> None:
    """keeps: U-05. Storing earlier events may have used all of it."""
    found = await collect_task([TaskSource("hung", wait=asyncio.Event())], deadline_s=-0.001)

    assert found.missing == {"hung": "no answer within 0 ms"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [(StoreUnavailable("no route"), "no route"), (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero")],
)
async def test_a_failing_source_of_a_task_is_reported_and_affects_no_other(error: Exception, reason: str) -> None:
    """A brief never raises into an agent's turn."""
    found = await collect_task([TaskSource("down", error=error), TaskSource("fine")], deadline_s=1)

    assert found.missing == {"down": reason}
    assert len(found.fragments) == 1


async def test_a_source_of_a_task_is_queried_however_often_it_failed() -> None:
    """Late answers to briefs with a short deadline must not remove marks from the next brief."""
    source = TaskSource("down", error=StoreUnavailable("no route"))
    fan_out = task_fan_out([source])
    for _ in range(2 * FAILURES_MAX):
        await fan_out.collect(TASK, deadline_s=1)
    source.error = None

    found = await fan_out.collect(TASK, deadline_s=1)

    assert found.missing == {}


async def test_a_cancelled_task_leaves_no_source_running() -> None:
    hung = TaskSource("hung", wait=asyncio.Event())
    task = asyncio.create_task(collect_task([hung], deadline_s=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert hung.was_cancelled


async def test_a_late_failure_of_a_source_is_not_reported_again() -> None:
    """keeps: U-05"""
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    class Deaf(TaskSource):
        async def fragments(self, question: Question) -> Sequence[Fragment]:
            try:
                return await super().fragments(question)
            except asyncio.CancelledError:
                raise StoreUnavailable("the server does not answer") from None

    found = await collect_task([Deaf("deaf", wait=asyncio.Event())], deadline_s=0.05)
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()

    assert found.missing.keys() == {"deaf"}
    assert reports == []


async def test_a_task_without_sources_has_no_fragments() -> None:
    found = await collect_task([], deadline_s=1)

    assert (found.fragments, found.missing) == ((), {})
