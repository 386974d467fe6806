"""Guards: required context, timeouts, tags and sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica import Context, EventQuery, Memory
from mica.errors import InvalidContext, InvalidInput
from mica.events import context as context_module
from mica.events.context import Here
from mica.events.guards import is_sampled, requires, sampled, tagged, timeout


async def called(function: Callable[[], object]) -> object:
    """The result of a function or coroutine function."""
    result = function()
    return await result if isinstance(result, Awaitable) else result


def both(decorate: Callable[[Callable[[], object]], Callable[[], object]]) -> list[Callable[[], object]]:
    def plain() -> object:
        return "done"

    async def coroutine() -> object:
        await asyncio.sleep(0)
        return "done"

    return [decorate(plain), decorate(coroutine)]


async def test_a_call_without_the_required_fields_is_refused(memory: Memory) -> None:
    """keeps: E-34. Fields are session, agent and the like, a parent, and labels."""
    for function in both(requires(memory, fields=["session", "branch", "parent"])):
        with pytest.raises(InvalidContext, match=r"needs session, branch, parent .*memory\.context\(session=…\)"):
            await called(function)
        with memory.context(session="s1", branch="main"), pytest.raises(InvalidContext, match="needs parent"):
            await called(function)
        with memory.context(session="s1", branch="main", parent=memory.emit("root")):
            assert await called(function) == "done"


async def test_a_label_that_resembles_a_field_is_questioned(memory: Memory) -> None:
    """keeps: E-34. A typing error would be refused forever, with advice that sets a label."""
    for function in both(requires(memory, fields=["sesion", "branch"])):
        with pytest.raises(InvalidContext, match=r"'sesion' is read as a label; did you mean 'session'\?$"):
            await called(function)


async def test_a_call_above_the_minimum_depth_is_refused(memory: Memory) -> None:
    """keeps: E-34"""
    root = memory.emit("root")
    child = memory.emit("child", parent=root)
    for function in both(requires(memory, min_depth=2)):
        for parent in (None, root):
            with memory.context(parent=parent), pytest.raises(InvalidContext, match="at least 2 is needed"):
                await called(function)
        with memory.context(parent=child):
            assert await called(function) == "done"


async def test_a_call_in_an_old_context_is_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: E-34"""
    now = 1_000.0
    monkeypatch.setattr(context_module, "monotonic", lambda: now)
    for function in both(requires(memory, max_age_s=60)):
        with pytest.raises(InvalidContext, match="outside of every context"):
            await called(function)
        with memory.context(session="s1"):
            now += 60
            assert await called(function) == "done"
            now += 1
            with pytest.raises(InvalidContext, match=r"61\.0 s old; at most 60 s"):
                await called(function)
            with memory.context(session="s2"):
                assert await called(function) == "done"


async def test_a_call_that_takes_too_long_is_cancelled_and_recorded(memory: Memory) -> None:
    """keeps: E-34, E-20. The failure is recorded as a child of the current event."""
    ended: list[str] = []

    @timeout(memory, 0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    root = memory.emit("root")
    with memory.context(parent=root, agent="scout"), pytest.raises(TimeoutError):
        await hang()

    [failure] = await memory.events.failures()
    assert ended == ["cancelled"]
    assert failure.event.name == "call.timed_out"
    assert failure.event.parent_id == root.id
    assert failure.event.data["error_type"] == "TimeoutError"
    assert failure.event.data["timeout_s"] == 0.01
    assert failure.agents == ("scout",)


async def test_a_timely_call_and_its_own_timeouts_are_unaffected(memory: Memory) -> None:
    @timeout(memory, 30)
    async def double(number: int) -> int:
        if number < 0:
            raise TimeoutError("mine")
        return 2 * number

    assert await double(4) == 8
    with pytest.raises(TimeoutError, match="mine"):
        await double(-1)
    assert await memory.events.query() == []


async def test_nested_tags_accumulate(memory: Memory) -> None:
    """keeps: E-34, E-20"""
    for function in both(tagged(memory, "slow", "db")):
        assert await called(function) == "done"
    with tagged(memory, "b"), tagged(memory, "a", "b"):
        memory.emit("inside")
    memory.emit("outside")

    inside, outside = await memory.events.query()

    assert inside.context.labels == (("tags", "a,b"),)
    assert outside.context.labels == ()


async def test_tagged_functions_emit_with_their_tags(memory: Memory) -> None:
    """keeps: E-34"""

    @tagged(memory, "nightly")
    async def work() -> None:
        await asyncio.sleep(0)
        memory.emit("worked")

    await work()
    assert (await memory.events.get(1)).context.labels == (("tags", "nightly"),)


async def test_a_chain_is_sampled_as_a_whole(memory: Memory) -> None:
    """keeps: E-34, E-20.

    About the given share of chains is recorded, always the same ones, each labelled with its rate.
    """

    @sampled(memory, 0.25)
    def observe() -> str:
        memory.emit("seen")
        return "ran"

    ran: dict[str, set[str | None]] = {}
    for number in range(400):
        with memory.context(session=f"s{number}"):
            ran[f"s{number}"] = {observe(), observe(), observe()}

    assert all(len(results) == 1 for results in ran.values())
    share = sum(results == {"ran"} for results in ran.values()) / len(ran)
    assert 0.18 < share < 0.32
    events = await memory.events.query(EventQuery(limit=None))
    assert {event.context.session for event in events} == {s for s, results in ran.items() if results == {"ran"}}
    assert {event.context.labels for event in events} == {(("sample_rate", "0.25"),)}


async def test_coroutines_are_sampled_too(memory: Memory) -> None:
    async def observe() -> str:
        return "ran"

    with memory.context(session="s1"):
        assert await called(sampled(memory, 1)(observe)) == "ran"
        assert await called(sampled(memory, 0)(observe)) is None
    assert await called(sampled(memory, 0.001)(observe)) == "ran"


@given(st.text(min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_a_chain_in_a_smaller_sample_is_in_every_larger_one(key: str, one: float, other: float) -> None:
    key = key.encode("utf-8", "replace").decode()
    here = Here(Context(correlation=key, session="ignored"))
    low, high = sorted((one, other))
    assert is_sampled(here, low) <= is_sampled(here, high)
    assert is_sampled(here, 1)
    assert not is_sampled(here, 0)


async def test_invalid_decorator_arguments_are_refused_at_definition(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="pass a list"):
        requires(memory, fields="session")
    with pytest.raises(InvalidInput, match="above 0"):
        timeout(memory, 0)
    with pytest.raises(InvalidInput, match="not a coroutine function"):
        timeout(memory, 1)(len)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidInput, match="without commas"):
        tagged(memory, "a,b")
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        sampled(memory, 1.5)
    with pytest.raises(InvalidInput, match=r"max_age_s is -3; use a number of 0 or more"):
        requires(memory, max_age_s=-3)
    with pytest.raises(InvalidInput, match="min_depth is -1"):
        requires(memory, min_depth=-1)
    for strange in ("1", None, True):
        with pytest.raises(InvalidInput, match=f"a timeout cannot be {strange!r} seconds"):
            timeout(memory, strange)  # type: ignore[arg-type]  # the point
        with pytest.raises(InvalidInput, match=f"{strange!r} is not a share"):
            sampled(memory, strange)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidInput, match="max_age_s is '1'"):
        requires(memory, max_age_s="1")  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidInput, match="fields has 5, which is not a name"):
        requires(memory, fields=[5])  # type: ignore[list-item]  # the point


async def test_decorated_functions_keep_their_name_and_kind(memory: Memory) -> None:
    @requires(memory)
    @tagged(memory, "x")
    async def named() -> None:
        """Said."""

    assert (named.__name__, named.__doc__, asyncio.iscoroutinefunction(named)) == ("named", "Said.", True)
