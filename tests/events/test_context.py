"""The current context: set, inherited, always reset, and carried across boundaries."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica import Context, EventQuery, Memory
from mica.errors import InvalidContext
from mica.events.context import BAGGAGE_BYTES_MAX, Here, carrier, environment, received
from mica.model.event import FIELDS, ref_of
from mica.settings import Settings
from mica.testing.builders import build


def agent(memory: Memory) -> str | None:
    return memory.here.context.agent


async def test_inner_blocks_inherit_override_and_restore(memory: Memory) -> None:
    """keeps: E-19, E-33"""
    whole = Context(session="s1", agent="scout", user="ann", task="login", correlation="req-1", labels=(("host", "a"),))
    with memory.context(session="s1", agent="scout", user="ann", task="login", correlation="req-1", host="a") as outer:
        assert outer.context == whole
        for name in ("session", "agent", "user", "task", "correlation"):
            given: dict[str, Any] = {name: "other", "env": "test", "host": "b"}
            with memory.context(**given) as inner:
                labels = (("env", "test"), ("host", "b"))
                assert inner.context == msgspec.structs.replace(whole, labels=labels, **{name: "other"})
                assert memory.here == inner
                assert (await memory.events.get(memory.emit("step").id)).context == inner.context
            assert memory.here == outer
    assert memory.here == Here()


async def test_two_roots_in_one_task_have_different_chains(memory: Memory) -> None:
    """keeps: E-18, TE-01. A root never becomes the parent of what comes after it."""
    with memory.context(session="s1"):
        one, two = memory.emit("first"), memory.emit("second")

    events = [await memory.events.get(ref.id) for ref in (one, two)]
    assert [event.depth for event in events] == [0, 0]
    assert events[0].correlation != events[1].correlation


async def test_siblings_have_equal_depth(memory: Memory) -> None:
    """keeps: TE-01. This holds in concurrent tasks too."""
    root = memory.emit("root")

    async def child() -> int:
        await asyncio.sleep(0)
        return memory.emit("child").depth

    with memory.context(parent=root):
        depths = await asyncio.gather(*(child() for _ in range(5)), child())

    assert depths == [1] * 6
    assert memory.emit("root.again").depth == 0


async def test_lineage_is_exact_across_tasks_threads_and_nested_blocks(memory: Memory) -> None:
    """keeps: E-01, E-13, E-18, TE-01, TE-02"""

    async def worker(number: int) -> None:
        with memory.context(agent=f"a{number}"):
            first = memory.emit("step", {"n": number})
            with memory.context(parent=first):
                await asyncio.sleep(0)
                await asyncio.to_thread(memory.emit, "in.thread", {"n": number})
                async with asyncio.TaskGroup() as group:
                    group.create_task(deeper(number))

    async def deeper(number: int) -> None:
        memory.emit("in.task", {"n": number})

    root = memory.emit("root")
    with memory.context(parent=root, session="s1"):
        await asyncio.gather(*(worker(number) for number in range(8)))

    events: dict[str, mica.Event] = {event.id: event for event in await memory.events.query(EventQuery(limit=None))}
    assert len(events) == 1 + 8 * 3
    assert {event.correlation for event in events.values()} == {events[root.id].correlation}
    for event in events.values():
        if event.name == "root":
            continue
        parent = events[event.parent_id or ""]
        assert (event.root_id, event.depth) == (root.id, parent.depth + 1)
        assert event.context.session == "s1"
        if event.name != "step":
            assert (parent.data["n"], parent.context.agent) == (event.data["n"], event.context.agent)
    assert await memory.upkeep.verify() == []


async def test_a_block_is_reset_after_an_exception_and_after_cancellation(memory: Memory) -> None:
    """keeps: TE-01, E-33"""
    with pytest.raises(ZeroDivisionError), memory.context(agent="scout"):
        1 / 0  # noqa: B018
    assert agent(memory) is None

    async def hang() -> None:
        with memory.context(agent="smith"):
            await asyncio.sleep(3600)

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent(memory) is None


async def test_a_child_task_changes_nothing_for_its_parent(memory: Memory) -> None:
    async def leaky() -> str | None:
        memory.context(agent="leaked").__enter__()
        return agent(memory)

    assert await asyncio.create_task(leaky()) == "leaked"
    assert agent(memory) is None


async def test_interleaved_generators_restore_no_stale_context(memory: Memory) -> None:
    """keeps: TE-01. Blocks that close out of order restore the context from before them."""

    def walk(name: str) -> Iterator[str | None]:
        with memory.context(agent=name):
            yield agent(memory)

    with memory.context(agent="outer"):
        one, two = walk("one"), walk("two")
        assert (next(one), next(two)) == ("one", "two")
        assert list(one) == []
        assert agent(memory) == "two"
        assert list(two) == []
        assert agent(memory) == "outer"
    assert agent(memory) is None


async def test_a_generator_closed_in_another_context_affects_no_other_code(memory: Memory) -> None:
    def walk() -> Iterator[None]:
        with memory.context(agent="walker"):
            yield

    generator = contextvars.copy_context().run(lambda: (g := walk(), next(g))[0])
    with memory.context(agent="outer"):
        generator.close()  # type: ignore[attr-defined]  # an Iterator that is a generator
        gc.collect()
        assert agent(memory) == "outer"


async def test_a_decorated_generator_keeps_its_context_to_itself(memory: Memory) -> None:
    @memory.context(agent="walker")
    def walk() -> Iterator[str | None]:
        yield agent(memory)
        yield agent(memory)

    @memory.context(agent="async walker")
    async def drift() -> AsyncIterator[str | None]:
        yield agent(memory)
        await asyncio.sleep(0)
        yield agent(memory)

    with memory.context(agent="outer"):
        seen = []
        for name in walk():
            seen += [name, agent(memory)]
        async for name in drift():
            seen += [name, agent(memory)]

    assert seen == ["walker", "outer"] * 2 + ["async walker", "outer"] * 2


async def test_a_decorated_generator_still_accepts_send_and_throw(memory: Memory) -> None:
    events: list[object] = []

    @memory.context(agent="walker")
    def walk() -> Iterator[object]:
        try:
            events.append((yield "ready"))
            yield "sent"
        except KeyError:
            events.append(agent(memory))
            yield "caught"
        finally:
            events.append("closed")

    generator = walk()
    assert next(generator) == "ready"
    assert generator.send("hello") == "sent"  # type: ignore[attr-defined]  # an Iterator that is a generator
    assert generator.throw(KeyError()) == "caught"  # type: ignore[attr-defined]  # as above
    generator.close()  # type: ignore[attr-defined]  # as above
    assert events == ["hello", "walker", "closed"]


async def test_an_error_in_a_decorated_generator_propagates(memory: Memory) -> None:
    @memory.context(agent="walker")
    def walk() -> Iterator[int]:
        yield 1
        raise ValueError("own")

    @memory.context(agent="walker")
    async def drift() -> AsyncIterator[object]:
        try:
            yield (yield 1)
        except KeyError:
            yield agent(memory)
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        list(walk())
    generator = drift()
    assert await anext(generator) == 1
    assert await generator.asend("sent") == "sent"  # type: ignore[attr-defined]  # an iterator that is a generator
    assert await generator.athrow(KeyError()) == "walker"  # type: ignore[attr-defined]  # as above
    with pytest.raises(ValueError, match="own"):
        await anext(generator)
    assert agent(memory) is None


async def test_decorated_functions_and_coroutines_run_inside(memory: Memory) -> None:
    @memory.context(agent="scout")
    def plain() -> str | None:
        return agent(memory)

    @memory.context(agent="smith")
    async def waiting() -> str | None:
        await asyncio.sleep(0)
        return agent(memory)

    assert [plain(), plain(), *await asyncio.gather(waiting(), waiting())] == ["scout", "scout", "smith", "smith"]
    assert agent(memory) is None


async def test_one_block_cannot_be_entered_twice_at_once(memory: Memory) -> None:
    block = memory.context(agent="scout")
    with block, pytest.raises(InvalidContext, match="already open"):
        block.__enter__()
    assert agent(memory) is None


async def test_plain_threads_start_without_a_context_unless_one_is_passed(memory: Memory) -> None:
    seen: list[str | None] = []
    with memory.context(agent="scout"):
        thread = threading.Thread(target=lambda: seen.append(agent(memory)))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(contextvars.copy_context().run, agent, memory).result())
    assert seen == [None, "scout"]


async def test_two_spaces_in_one_task_do_not_see_each_other(memory: Memory, home: Settings) -> None:
    """keeps: U-09. A parent in one space is never a parent in another."""
    async with mica.open(":memory:", settings=home) as other:
        ref = memory.emit("here")
        with memory.context(agent="scout", parent=ref), other.context(agent="smith"):
            assert (agent(memory), agent(other)) == ("scout", "smith")
            assert (memory.here.parent, other.here.parent) == (ref, None)
            assert other.emit("there").depth == 0


async def test_an_explicit_context_gives_the_same_event_as_a_block(memory: Memory) -> None:
    """keeps: E-33, K-44. Both ways share one implementation."""
    root = memory.emit("root")
    with memory.context(session="s1", agent="scout", parent=root, branch="main"):
        here = memory.here
        implicit = await memory.events.get(memory.emit("step", {"n": 1}).id)
    explicit = await memory.events.get(memory.emit("step", {"n": 1}, context=here).id)
    by_context = await memory.events.get(memory.emit("step", {"n": 1}, context=here.context, parent=root).id)

    def shape(event: mica.Event) -> object:
        return (event.name, event.data, event.context, event.parent_id, event.root_id, event.depth)

    assert shape(implicit) == shape(explicit) == shape(by_context)
    with memory.context(agent="smith", parent=root):
        assert memory.emit("alone", context=Context(agent="x")).depth == 0


async def test_unusable_context_values_are_named(memory: Memory) -> None:
    """keeps: E-19. A value that could not be stored is refused at once."""
    for bad in ({"agent": 3}, {"task": ""}, {"note": "x" * 5_000}, {"session": "\ud800"}):
        with pytest.raises(InvalidContext, match=f"context {next(iter(bad))}"), memory.context(**bad):
            pass
    mapping: dict[str, Any] = {"labels": {"branch": "main"}}
    with (
        pytest.raises(InvalidContext, match=r"pass labels as keywords: context\(branch='main'\)"),
        memory.context(**mapping),
    ):
        pass
    assert memory.here == Here()


class Word(str):
    """A subclass of `str`."""


VALUES = st.sampled_from([None, "one", "two", "three", "\u00e9", Word("one"), "", "\ud800", "x" * 5_000, 1, {"one": 1}])


@given(st.lists(st.tuples(*[VALUES] * 5, st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)), max_size=8))
def test_the_context_cache_accepts_no_invalid_value(given: list[tuple[Any, ...]]) -> None:
    """keeps: E-19. Invalid values are refused whatever was accepted before, and accepted values are plain text."""

    def plain(value: object) -> object:
        return "one" if value == "one" else value

    for *fields, labels in given:
        values = dict(zip(FIELDS, fields, strict=True))
        texts: dict[str, Any] = {name: plain(value) for name, value in values.items()}
        ordered: Any = tuple((name, plain(labels[name])) for name in sorted(labels))
        expected = Context(**texts, labels=ordered)
        try:
            expected.check()
        except InvalidContext as error:
            with pytest.raises(InvalidContext, match=re.escape(str(error))):
                Context().with_(labels, **values)
        else:
            made = Context().with_(labels, **values)
            assert made == expected
            assert Word not in {type(value) for value in (*msgspec.structs.astuple(made), *dict(made.labels).values())}


# -- Carriers -------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(
    context=st.builds(
        lambda fields, labels: Context().with_(labels=labels, **fields),
        st.dictionaries(st.sampled_from(["session", "agent", "user", "task", "correlation"]), TEXT),
        st.dictionaries(TEXT, TEXT, max_size=3),
    ),
    depth=st.integers(0, 1000),
)
def test_a_carrier_transports_the_whole_context(context: Context, depth: int) -> None:
    """keeps: E-36. Headers, `_meta` and environment variables carry the same value."""
    parent = ref_of(build(7).id, build(3).id, depth)
    for here in (Here(context, parent), Here(context)):
        fields = carrier(here, space="space")
        assert received(fields, space="space") == here
        assert received(environment(here, space="space"), space="space") == here
        assert all(value.isascii() and value.isprintable() for value in fields.values())


@given(fields=st.dictionaries(st.sampled_from(["traceparent", "TRACESTATE", "baggage", "x"]), st.text()))
def test_a_foreign_or_damaged_carrier_never_raises(fields: dict[str, str]) -> None:
    assert received(fields, space="space").parent is None


@pytest.mark.parametrize("depth", ["9" * 30, str(2**63), "-1", "1_0x", ""])
def test_an_impossible_depth_is_not_accepted_as_a_parent(depth: str) -> None:
    fields = carrier(Here(Context(), build(1).ref), space="space")
    spoiled = fields["tracestate"].rsplit(":", 1)[0] + f":{depth}"
    assert received(fields | {"tracestate": spoiled}, space="space").parent is None


def test_a_foreign_trace_becomes_the_correlation() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    fields = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "congo=t61rcWkgMzE", "baggage": "k=v"}
    assert received(fields, space="space") == Here(Context(correlation=trace))


def test_a_foreign_trace_keeps_its_id() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    fields = carrier(Here(Context(correlation=trace), build(1).ref), space="space")
    assert fields["traceparent"].split("-")[1] == trace


def test_a_parent_does_not_cross_a_space_boundary() -> None:
    """keeps: U-09. From another space only the correlation is taken over."""
    fields = carrier(Here(Context(agent="scout"), build(1).ref), space="one")
    here = received(fields, space="two")
    assert here.parent is None
    assert here.context == Context(agent="scout", correlation=fields["traceparent"].split("-")[1])


def test_a_context_too_large_to_carry_is_refused() -> None:
    context = Context().with_(labels={f"l{number}": "x" * 4_000 for number in range(3)})
    with pytest.raises(InvalidContext, match=f"{BAGGAGE_BYTES_MAX:,}"):
        carrier(Here(context), space="space")


CHILD = """
import asyncio, json, sys
import mica

async def main():
    async with mica.open(sys.argv[1]) as memory:
        ref = memory.emit("in.child")
        with memory.context(parent=ref):
            memory.emit("deeper")

asyncio.run(main())
"""


async def test_a_subprocess_continues_the_chain(tmp_path: Path, home: Settings) -> None:
    """keeps: E-11, E-36. The exact parent survives a process boundary."""
    path = tmp_path / "space.db"
    async with mica.open(path, settings=home) as memory:
        root = memory.emit("root")
        with memory.context(parent=root, session="s1", agent="scout"):
            variables = {"HOME": str(tmp_path), "PATH": "", **memory.events.environment()}
        await memory.durable()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, path, env=variables, stderr=asyncio.subprocess.PIPE
        )
        _, complaints = await child.communicate()
        assert child.returncode == 0, complaints.decode()

        below = await memory.events.descendants(await memory.events.get(root.id))

        assert [(event.name, event.depth, event.root_id) for event in below] == [
            ("in.child", 1, root.id),
            ("deeper", 2, root.id),
        ]
        assert {event.context for event in below} == {Context(session="s1", agent="scout")}
        assert json.dumps(memory.carrier()) == "{}"


def test_secrets_in_a_context_are_redacted() -> None:
    """keeps: U-09. In every field and label, and also when the values were seen before."""
    secret = "gh" + "p_" + "a1B2" * 9
    for _ in range(2):
        context = Context().with_({"branch": f"fix/{secret}", "token": "hunter2" * 2}, **dict.fromkeys(FIELDS, secret))
        assert {getattr(context, name) for name in FIELDS} == {"[redacted:github]"}
        assert context.labels == (("branch", "fix/[redacted:github]"), ("token", "[redacted:credential]"))


@pytest.mark.parametrize(
    "value",
    ["s1", "req-1", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "4bf92f3577b34da6a3ce929d0e0e4736", "a" * 200, "ä" * 40],
)
def test_ordinary_values_of_a_context_are_unchanged(value: str) -> None:
    context = Context().with_({"branch": value}, **dict.fromkeys(FIELDS, value))

    assert {getattr(context, name) for name in FIELDS} == {value}
    assert context.labels == (("branch", value),)
