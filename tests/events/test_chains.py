"""Analysis of chains: impact, failures, replay, comparison."""

from __future__ import annotations

import pytest
from hypothesis import given

import mica
from mica import Context, EventQuery, Memory
from mica.errors import InvalidEvent, InvalidInput, UnknownEvent
from mica.events.chains import Difference, compare
from mica.model.event import Event
from mica.testing import HandClock, build
from mica.testing.histories import History, histories


def names(events: list[Event] | tuple[Event, ...]) -> list[str]:
    return [event.name for event in events]


# -- Impact and failures --------------------------------------------------------------------------------------


async def test_impact_separates_effects_from_later_events(memory: Memory, clock: HandClock) -> None:
    """keeps: TE-17, E-30. A shared correlation is not a cause."""
    root = memory.emit("root")
    clock.move(seconds=1)
    cause = memory.emit("cause", parent=root)
    clock.move(seconds=1)
    effect = memory.emit("effect", parent=cause)
    memory.emit("sibling", parent=root)
    memory.emit("elsewhere")
    clock.move(seconds=1)
    memory.emit("deeper", parent=effect)

    found = await memory.events.impact(await memory.events.get(cause))

    assert names(found.descendants) == ["effect", "deeper"]
    assert names(found.correlated) == ["sibling"]
    last = await memory.events.impact(await memory.events.get(6))
    assert (last.descendants, last.correlated) == ((), ())


async def test_a_failure_comes_with_its_causes_and_agents(memory: Memory) -> None:
    """keeps: E-30, TE-18. An error is a field, not a word in the event's name."""
    with memory.context(session="s1", agent="planner"):
        plan = memory.emit("plan")
    with memory.context(session="s1", agent="scout", parent=plan):
        read = memory.emit("file.read")
        failed = memory.emit("tool.ran", parent=read, error=True)
        memory.emit("error_free", parent=read)
    with memory.context(session="s2", agent="smith", parent=failed):
        memory.emit("retried")
    memory.emit("other", error=True)

    [failure] = await memory.events.failures(EventQuery(session="s1"))
    every = await memory.events.failures()

    assert failure.event.id == failed.id
    assert names(failure.ancestors) == ["plan", "file.read"]
    assert failure.agents == ("planner", "scout", "smith")
    assert names([each.event for each in every]) == ["tool.ran", "other"]
    assert every[1].agents == ()


# -- References -----------------------------------------------------------------------------------------------


async def test_references_resolve_in_order_and_missing_ones_are_named(memory: Memory) -> None:
    """keeps: E-28"""
    first, second = memory.emit("first"), memory.emit("second")

    found = await memory.events.resolve([second, "#1", first.id, 99, build(7).id])

    assert names(found.events) == ["second", "first", "first"]
    assert found.missing == ("99", build(7).id)
    assert names((await memory.events.resolve("#2")).events) == ["second"]
    assert (await memory.events.resolve([])).events == ()


async def test_at_most_a_hundred_references_are_resolved_at_once(memory: Memory) -> None:
    """keeps: E-28"""
    memory.emit("x")
    assert len((await memory.events.resolve([1] * 100)).events) == 100
    with pytest.raises(InvalidInput, match="101 references"):
        await memory.events.resolve([1] * 101)
    with pytest.raises(InvalidEvent, match="'nonsense' is not an event id"):
        await memory.events.resolve(["nonsense"])


async def test_chain_queries_accept_any_kind_of_reference(memory: Memory) -> None:
    """keeps: E-28, E-30. The result of `emit`, an id and a position all work."""
    root = memory.emit("root")
    child = memory.emit("child", parent=root)
    event = await memory.events.get(root)
    for asked in (event, root, root.id, 1, "#1"):
        assert names(await memory.events.chain(asked)) == ["root", "child"]
        assert names(await memory.events.descendants(asked)) == ["child"]
        assert names((await memory.events.impact(asked)).descendants) == ["child"]
        assert [each.name async for each in memory.events.replay(asked)] == ["root", "child"]
    assert names(await memory.events.ancestors(child)) == ["root"]
    for ask in (memory.events.chain, memory.events.ancestors, memory.events.descendants, memory.events.impact):
        with pytest.raises(UnknownEvent, match="'99'"):
            await ask(99)
    for depth in (-1, "x", 1.5):
        with pytest.raises(InvalidInput, match="depth is"):
            await memory.events.descendants(root, depth=depth)  # type: ignore[arg-type]  # it is what must be refused


class Watch:
    """A clock that advances only when sleeping or set by the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


# -- Replay ---------------------------------------------------------------------------------------------------


async def test_a_chain_is_replayed_from_a_point_in_order(memory: Memory, clock: HandClock) -> None:
    """keeps: E-37"""
    refs = []
    with memory.context(correlation="run-1"):
        for name in ("a", "b", "c", "d"):
            refs.append(memory.emit(name))
            clock.move(seconds=2)
    memory.emit("elsewhere")

    replayed = [event.name async for event in memory.events.replay(await memory.events.get(refs[1]))]

    assert replayed == ["b", "c", "d"]


async def test_replay_keeps_the_recorded_pace(memory: Memory, clock: HandClock) -> None:
    """keeps: E-37. It follows the clock that is passed in; a slow reader is not delayed further."""
    with memory.context(correlation="run-1"):
        first = memory.emit("a")
        clock.move(seconds=4)
        memory.emit("b")
        clock.move(seconds=2)
        memory.emit("c")
    watch = Watch()
    came: list[tuple[str, float]] = []
    async for event in memory.events.replay(await memory.events.get(first), speed=2, clock=watch, sleep=watch.sleep):
        came.append((event.name, watch.now))
        watch.now += 1.5  # the reader's work

    assert came == [("a", 100.0), ("b", 102.0), ("c", 103.5)]
    assert watch.slept == [0.5]


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan"), "x"])
async def test_an_invalid_speed_is_refused(memory: Memory, speed: float) -> None:
    event = await memory.events.get(memory.emit("x"))
    with pytest.raises(InvalidInput, match="replayed at"):
        _ = [e async for e in memory.events.replay(event, speed=speed)]


# -- Comparison -----------------------------------------------------------------------------------------------


def run(start: int, *steps: dict[str, object], context: Context | None = None) -> list[Event]:
    """A chain in which each step is the child of the one before it."""
    events: list[Event] = []
    for number, data in enumerate(steps):
        parent = events[-1] if events else None
        events.append(build(start + number, "step", data, parent=parent, context=context or Context()))
    return events


def test_runs_are_compared_without_ids_times_and_sessions() -> None:
    """keeps: E-37"""
    left = run(1, {"n": 1}, {"n": 2}, context=Context(session="s1", agent="scout"))
    right = run(100, {"n": 1}, {"n": 2}, context=Context(session="s2", agent="scout"))

    found = compare(left, right)

    assert found.is_equal
    assert found.same == 2


def test_the_first_divergence_is_reported_with_the_difference() -> None:
    """keeps: E-37"""
    left = run(1, {"n": 1}, {"n": 2, "only": True, "same": {"a": 1, "b": 2}}, {"n": 3})
    right = run(100, {"n": 1}, {"n": 5, "same": {"b": 2, "a": 1}}, {"n": 4})

    found = compare(left, right)

    assert (found.same, found.left, found.right) == (1, left[1], right[1])
    assert found.differences == (
        Difference(field="data.n", left=2, right=5),
        Difference(field="data.only", left=True, right=None),
    )
    assert compare(left, right, ignore=["data.n", "data.only"]).is_equal


def test_a_run_that_ends_earlier_diverges_at_its_end() -> None:
    left, right = run(1, {}, {}), run(100, {})
    assert (compare(left, right).left, compare(left, right).right) == (left[1], None)
    assert (compare(right, left).left, compare(right, left).right) == (None, left[1])
    assert not compare(left, right).is_equal


def test_a_different_parent_error_or_agent_is_a_divergence() -> None:
    root = build(1)
    steps = [root, build(2, parent=root)]
    flat = [root, build(2)]
    failed = [root, build(2, parent=root, error=True)]
    other = [root, build(2, parent=root, context=Context(agent="x"))]

    assert [d.field for d in compare(steps, flat).differences] == ["depth", "parent"]
    assert [d.field for d in compare(steps, failed).differences] == ["error"]
    assert [d.field for d in compare(steps, other).differences] == ["context.agent"]


def test_true_is_not_equal_to_one() -> None:
    assert not compare(run(1, {"x": True}), run(9, {"x": 1})).is_equal


@given(histories(), histories())
def test_comparison_is_symmetric(left: History, right: History) -> None:
    one, other = compare(left, right), compare(right, left)
    assert (one.same, one.left, one.right) == (other.same, other.right, other.left)
    assert {d.field for d in one.differences} == {d.field for d in other.differences}
    assert compare(left, left).is_equal


def test_compare_is_public() -> None:
    assert mica.compare is compare
