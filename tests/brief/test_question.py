"""Gathering: all at once, one deadline, every failure named."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from mica.brief.gather import gather
from mica.brief.mark_source import Marks
from mica.brief.question import Question
from mica.errors import StoreUnavailable
from mica.model.event import Passage, Text
from mica.store.reference.store import EphemeralStore
from mica.testing.builders import START_AT, build

QUESTION = Question(query="q", now=START_AT)


class Told:
    """A source that answers when told to."""

    def __init__(self, name: str, *, wait: asyncio.Event | None = None, error: Exception | None = None) -> None:
        self.name = name
        self.wait = wait
        self.error = error
        self.was_cancelled = False

    async def passages(self, question: Question) -> Sequence[Passage]:
        if self.wait is not None:
            try:
                await self.wait.wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        if self.error is not None:
            raise self.error
        return [Passage(text=self.name, sources=(build(1).id,), tokens=1, score=1, at=START_AT, source=self.name)]


async def test_sources_are_asked_at_the_same_time() -> None:
    """TC-03: each waits for the other; one after the other would never end."""
    first, second = asyncio.Event(), asyncio.Event()

    class Rings(Told):
        def __init__(self, name: str, *, ring: asyncio.Event, wait: asyncio.Event) -> None:
            super().__init__(name, wait=wait)
            self.ring = ring

        async def passages(self, question: Question) -> Sequence[Passage]:
            self.ring.set()
            return await super().passages(question)

    sources = [Rings("a", ring=first, wait=second), Rings("b", ring=second, wait=first)]
    found = await gather(sources, QUESTION, deadline_s=60)
    assert [passage.text for passage in found.passages] == ["a", "b"]
    assert found.missing == {}


async def test_a_hung_source_is_cancelled_and_named() -> None:
    """TC-03, U-05"""
    hung = Told("hung", wait=asyncio.Event())
    found = await gather([hung, Told("fine")], QUESTION, deadline_s=0.05)
    await asyncio.sleep(0)
    assert [passage.text for passage in found.passages] == ["fine"]
    assert found.missing == {"hung": "no answer within 40 ms"}
    assert hung.was_cancelled


async def test_a_deadline_that_is_over_is_told_as_no_time() -> None:
    """U-05: storing what came before may have taken all of it."""
    found = await gather([Told("hung", wait=asyncio.Event())], QUESTION, deadline_s=-0.001)
    assert found.missing == {"hung": "no answer within 0 ms"}


async def test_a_search_that_is_late_leaves_a_quick_look_and_says_so() -> None:
    """U-05, TC-03: of marks, what says most of the words is there before anything around them is weighed."""
    store = EphemeralStore()
    await store.append([build(number, "mark", {"text": f"cookie {number}"}) for number in range(1, 9)])
    late = asyncio.Event()

    class Slow(EphemeralStore):
        """Reads neighbours only after the deadline."""

        async def texts(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
            if neighbours:
                await late.wait()
            return await store.texts(positions, neighbours=neighbours)

    slow = Slow()
    slow.postings = store.postings  # type: ignore[method-assign]  # all but its texts is that of the other
    question = Question(query="cookie", now=START_AT, store=slow)

    found = await gather([Marks(slow)], question, deadline_s=0.05)

    assert {passage.text for passage in found.passages} == {f"cookie {number}" for number in range(1, 9)}
    assert found.missing == {"marks": "no answer within 40 ms, this is a quick look"}


async def test_a_failed_source_is_named_with_its_reason() -> None:
    found = await gather([Told("down", error=StoreUnavailable("no route")), Told("fine")], QUESTION, deadline_s=1)
    assert found.missing == {"down": "no route"}
    assert len(found.passages) == 1


async def test_a_programming_error_of_a_source_is_named_and_costs_only_itself() -> None:
    """A brief never raises into an agent's turn."""
    found = await gather([Told("bug", error=ZeroDivisionError("by zero")), Told("fine")], QUESTION, deadline_s=1)
    assert found.missing == {"bug": "ZeroDivisionError: by zero"}
    assert len(found.passages) == 1


async def test_a_cancelled_gather_leaves_no_source_running() -> None:
    hung = Told("hung", wait=asyncio.Event())
    task = asyncio.create_task(gather([hung], QUESTION, deadline_s=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert hung.was_cancelled


async def test_no_sources_are_no_passages() -> None:
    found = await gather([], QUESTION, deadline_s=1)
    assert (found.passages, found.missing) == ((), {})


async def test_a_failure_after_the_deadline_is_nobodys_business() -> None:
    """U-05: what the brief has named as missing is not told once more, with a traceback, when it fails at last."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    searched = asyncio.Event()

    class Unsteady(EphemeralStore):
        """Away: it says so only when it is asked no more."""

        async def agents(self) -> list[str]:
            searched.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise StoreUnavailable("the server does not answer") from None
            raise AssertionError("nobody rings")

    class Deaf(Told):
        async def passages(self, question: Question) -> Sequence[Passage]:
            try:
                return await super().passages(question)
            except asyncio.CancelledError:
                raise StoreUnavailable("the server does not answer") from None

    store = Unsteady()
    question = Question(query="q", now=START_AT, store=store)
    found = await gather([Marks(store), Deaf("deaf", wait=asyncio.Event())], question, deadline_s=0.05)
    await searched.wait()
    del question
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()

    assert found.missing.keys() == {"marks", "deaf"}
    assert told == []
