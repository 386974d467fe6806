"""Live objects and functions: read each time, in threads, and never able to hold the loop."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.sources.scripted_sources import ABOUT, NOW, ask

import mica
from mica.errors import InvalidInput, SourceFailed
from mica.settings import Settings
from mica.sources.answer import ask_once
from mica.sources.drivers import declarations
from mica.sources.protocol import PHI_INV, Concept, Fragment, Partial
from mica.sources.registry import SourceRegistry

Declare = Callable[..., SourceRegistry]
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text() | some.binary(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def sources(declare: Declare) -> SourceRegistry:
    return declare()


async def test_a_live_mapping_gives_one_fact_per_entry(sources: SourceRegistry) -> None:
    """keeps: C-01, C-12. An object of the process is a source; its current content is returned."""
    patterns: dict[str, object] = {"code_review": 4, "fatigue": 0.42, "locked": True}
    patterns["deploy"] = {"text": "deploys on Fridays", "value": "no"}
    sources.register("patterns", patterns, concepts="judgment:*", rank=5)

    before = await ask(sources, "patterns")
    patterns["code_review"] = 5
    after = await ask(sources, "patterns")

    assert [(each.key, each.text, each.value) for each in before] == [
        ("code_review", "code_review: 4", 4),
        ("fatigue", "fatigue: 0.42", 0.42),
        ("locked", "locked: true", True),
        ("deploy", "deploys on Fridays", "no"),
    ]
    assert after[0].value == 5
    assert (before[0].source, before[0].locator) == ("patterns", "patterns#code_review")
    assert before[0].confidence == PHI_INV
    assert sources["patterns"].declared.is_live
    assert sources["patterns"].declared.rank == 5
    assert not sources["patterns"].declared.knows(Concept("learning", "x", "1"))


async def test_an_object_is_read_by_its_public_attributes(sources: SourceRegistry) -> None:
    @dataclasses.dataclass
    class State:
        fatigue: float = 0.4
        _hidden: str = "hidden"

        def method(self) -> None: ...

    sources.register("state", State())

    assert [(each.key, each.value) for each in await ask(sources, "state")] == [("fatigue", 0.4)]


async def test_a_blocking_function_is_called_in_a_thread(sources: SourceRegistry) -> None:
    """keeps: K-27. Code that is not async never runs on the loop."""
    asked: list[tuple[Concept, bool]] = []

    def known(concept: Concept) -> list[dict[str, object]]:
        asked.append((concept, threading.current_thread() is threading.main_thread()))
        return [{"key": "verdict", "text": f"GROWL for {concept.id}", "value": "GROWL", "confidence": 0.52}]

    sources.register("judge", known)

    [said] = await ask(sources, "judge")

    assert asked == [(ABOUT, False)]
    assert (said.key, said.text, said.value) == ("verdict", "GROWL for abc123", "GROWL")
    assert (said.confidence, said.at) == (0.52, NOW)


async def test_coroutines_and_async_generators_run_on_the_loop(sources: SourceRegistry) -> None:
    async def known(concept: Concept) -> Fragment:
        return Fragment(key="verdict", text="GROWL", at=NOW, source="whoever")

    async def growing(concept: Concept) -> AsyncIterator[str]:
        while True:
            yield "more"

    sources.register("judge", known)
    sources.register("endless", growing, fragments_max=3)

    [said] = await ask(sources, "judge")
    many = await ask(sources, "endless")

    assert said.source == "judge"
    assert len(many) == 3
    assert isinstance(many, Partial)
    assert "first 3" in many.missing


async def test_an_empty_answer_gives_no_fragment(sources: SourceRegistry) -> None:
    nothing: dict[str, object] = {"none": None, "empty": {}, "list": [], "function": lambda concept: None}
    for name, thing in nothing.items():
        sources.register(name, thing)

        assert list(await ask(sources, name)) == []


async def test_columns_are_mapped_and_conditions_bound(sources: SourceRegistry) -> None:
    rows = [{"who": "abc123", "mood": "calm", "since": "2026-11-01"}, {"who": "other", "mood": "tired", "since": 0}]
    sources.register(
        "moods",
        rows,
        where={"who": "{id}"},
        fragment={"key": "mood of {who}", "text": "{concept.id} is {mood}", "value": "{mood}", "at": "{since}"},
    )

    [said] = await ask(sources, "moods")

    assert (said.key, said.text, said.value) == ("mood of abc123", "abc123 is calm", "calm")
    assert said.at.isoformat() == "2026-11-01T00:00:00+00:00"


async def test_an_object_whose_iteration_blocks_does_not_block_the_loop(sources: SourceRegistry) -> None:
    """keeps: TC-04, K-27.

    A cancelled caller returns at once, the loop runs on, and other sources are queried meanwhile.
    """
    release = threading.Event()

    class Blocking:
        def __iter__(self) -> Iterator[str]:
            release.wait()
            return iter(())

    sources.register("blocking", Blocking())
    sources.register("quick", {"a": 1})
    waiting = asyncio.ensure_future(ask(sources, "blocking"))
    await asyncio.sleep(0)

    [said] = await ask(sources, "quick")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert said.value == 1
    release.set()


async def test_a_function_that_never_returns_is_not_called_forever(sources: SourceRegistry) -> None:
    """keeps: TC-03. A hung source is reported, and after a few calls it is no longer called."""
    release = threading.Event()
    sources.register("hung", lambda concept: release.wait(), timeout_s=0.01)

    for _ in range(4):
        with pytest.raises(SourceFailed, match=r"no answer within 0\.01 s"):
            await ask(sources, "hung")
    with pytest.raises(SourceFailed, match="4 calls have not returned"):
        await ask(sources, "hung")

    release.set()


async def test_an_applications_exception_is_reported_with_its_type(sources: SourceRegistry) -> None:
    def broken(concept: Concept) -> object:
        raise KeyError("verdict")

    async def late(concept: Concept) -> object:
        raise TimeoutError("upstream")

    sources.register("broken", broken)
    sources.register("late", late)

    with pytest.raises(SourceFailed, match=r"source 'broken': a live function raised KeyError: 'verdict'"):
        await ask(sources, "broken")
    with pytest.raises(SourceFailed, match="timed out: upstream"):
        await ask(sources, "late")


async def test_an_object_that_changes_while_it_is_read_is_read_again(sources: SourceRegistry) -> None:
    looks = 0

    class Changing(dict[str, int]):
        def items(self) -> object:  # type: ignore[override]  # as a dictionary does that another thread changes
            nonlocal looks
            looks += 1
            if looks == 1:
                raise RuntimeError("dictionary changed size during iteration")
            return super().items()

    sources.register("changing", Changing(a=1))

    assert [each.value for each in await ask(sources, "changing")] == [1]


async def test_a_generator_that_fails_is_a_failure_and_not_an_empty_answer(sources: SourceRegistry) -> None:
    def broken(concept: Concept) -> Iterator[str]:
        yield "one"
        raise RuntimeError("lost the connection")

    sources.register("broken", broken)

    with pytest.raises(SourceFailed, match="lost the connection"):
        await ask(sources, "broken")


async def test_circular_references_are_contained_and_reported(sources: SourceRegistry) -> None:
    cyclic: dict[str, object] = {"key": "a", "text": "fine"}
    cyclic["self"] = cyclic
    sources.register("cyclic", [cyclic], fragment={"text": "{self}"})
    sources.register("refs", {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, fragment={"key": "x", "text": "{a.b}"})

    with pytest.raises(SourceFailed, match="cannot be shown"):
        await ask(sources, "cyclic")
    with pytest.raises(SourceFailed, match=r"in a circle: #/b → #/a → #/b"):
        await ask(sources, "refs")


async def test_unprintable_rows_are_reported_and_the_others_returned(sources: SourceRegistry) -> None:
    rows: list[dict[str, object]] = [
        {"key": "a", "text": "fine"},
        {"text": "no key"},
        {"key": "b", "text": "sure", "confidence": 52},
        {"key": "c", "text": "when", "at": "yesterday"},
        {"key": "d", "value": float("nan")},
        {"key": "e", "text": b"\xff"},
    ]
    sources.register("mixed", rows)

    said = await ask(sources, "mixed")

    assert [each.key for each in said] == ["a"]
    assert isinstance(said, Partial)
    assert said.missing == (
        'mixed#2: it has no key (it has text); say which column is the key: key = "{column}"; '
        "mixed#3: its confidence is 52; it must be a number from 0 to 1; "
        "mixed#4: at is 'yesterday', which is not a time; use ISO 8601, or seconds since 1970, and 2 more"
    )


@given(said=JSON)
async def test_any_object_gives_fragments_or_a_reason(said: object, home: Settings) -> None:
    sources = SourceRegistry(home, lambda: declarations)
    sources.register("any", said)

    tested = await ask_once(sources["any"], ABOUT, now=NOW)
    await sources.close()

    assert tested.error or all(each.source == "any" for each in tested.fragments)


async def test_a_declared_placeholder_is_filled_at_run_time(declare: Declare) -> None:
    sources = declare('[sources.patterns]\ndriver = "memory"\nrank = 7\nconcepts = ["pattern:*"]\n')

    with pytest.raises(SourceFailed, match=r"nothing is registered; call memory\.sources\.register\('patterns', …\)"):
        await ask(sources, "patterns")
    sources.register("patterns", {"a": 1})

    assert sources["patterns"].declared.rank == 7
    assert [each.key for each in await ask(sources, "patterns")] == ["a"]


@pytest.mark.parametrize(
    ("reason", "name", "options"),
    [
        ("of another kind", "files", {}),
        ("rank = 'high' cannot be used", "a", {"rank": "high"}),
        ("there is no key 'rnk'; did you mean rank", "a", {"rnk": 1}),
        ("cannot be called 'a b'", "a b", {}),
        ("covers no concept", "a", {"concepts": "a:b"}),
        ("there is no {what} in a concept", "a", {"where": {"x": "{what}"}}),
        ("is unpaired", "a", {"fragment": {"key": "{"}}),
    ],
)
async def test_an_unusable_object_cannot_be_registered(
    reason: str, name: str, options: dict[str, object], declare: Declare
) -> None:
    sources = declare('[sources.files]\ndriver = "json"\npath = "a.json"\n')

    with pytest.raises(InvalidInput, match=reason):
        sources.register(name, {}, **options)  # type: ignore[arg-type]  # what a program may get wrong
    with pytest.raises(InvalidInput, match="there is no source 'gone'"):
        sources.unregister("gone")


async def test_a_memory_registers_sources_and_closes_them(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.register("patterns", {"code_review": 4}, concepts="pattern:*")
        assert [each.value for each in await ask(memory.sources, "patterns")] == [4]
        memory.sources.unregister("patterns")
        assert "patterns" not in memory.sources
        memory.sources.register("patterns", {"code_review": 4})

    with pytest.raises(SourceFailed, match="closed"):
        await ask(memory.sources, "patterns")


async def test_an_entry_point_is_called_with_the_concept_and_its_arguments(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: C-01. A function of an installed package is a source without code."""
    module = types.ModuleType("shop_sources")
    module.known = lambda concept, limit: [{"key": concept.id, "value": limit}]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_sources", module)
    sources = declare('[sources.shop]\ndriver = "python"\nentry = "shop_sources:known"\narguments = { limit = 3 }\n')

    [said] = await ask(sources, "shop")

    assert (said.key, said.value) == ("abc123", 3)


async def test_a_missing_entry_point_is_named(declare: Declare) -> None:
    sources = declare(
        '[sources.gone]\ndriver = "python"\nentry = "no_such_module:known"\n'
        '[sources.constant]\ndriver = "python"\nentry = "math:pi"\n'
    )

    with pytest.raises(SourceFailed, match=r"entry = 'no_such_module:known' is not there"):
        await ask(sources, "gone")
    with pytest.raises(SourceFailed, match=r"entry = 'math:pi' is not a function but a float"):
        await ask(sources, "constant")


async def test_a_thousand_queries_leave_no_thread(sources: SourceRegistry) -> None:
    before = threading.active_count()
    sources.register("patterns", lambda concept: {"a": 1}, timeout_s=60)

    await asyncio.gather(*(ask(sources, "patterns") for _ in range(1_000)))
    assert threading.active_count() <= before + 4
    await sources.close()

    for thread in threading.enumerate():
        if thread.name == "mica-source":
            thread.join(30)
    assert threading.active_count() <= before


async def test_a_number_too_long_to_print_costs_only_its_row(home: Settings) -> None:
    """Python refuses to print a number of 5,000 digits; other rows are returned."""
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.register("app", [{"key": "one", "value": 10**5_000}, {"key": "other", "value": 2**70}])

        answer = await memory.sources.gather("app:setting:x")

    assert [each.value for each in answer.fragments] == [2**70]
    assert "more than 300 digits" in answer.missing["app"]
