"""Marks for a brief: one search for all sources, with a quick result if the search is late."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from tests.sources.scripted_sources import task_fan_out

from mica import Memory
from mica.brief.crystal_source import CrystalSource
from mica.brief.mark_source import MarkSource, SharedSearch
from mica.errors import StoreUnavailable
from mica.model.mark import Text
from mica.sources.answer import Collected
from mica.sources.protocol import Question, Source
from mica.store.reference.chains import ReferenceChains
from mica.store.reference.store import EphemeralStore
from mica.store.reference.texts import ReferenceTexts
from mica.testing.builders import START_AT, build


def shared_search(store: EphemeralStore) -> SharedSearch:
    return SharedSearch(log=store.log, chains=store.chains, texts=store.texts)


async def collect(sources: Sequence[Source], question: Question, *, deadline_s: float) -> Collected:
    fan_out = task_fan_out(sources)
    return await fan_out.collect(question, deadline_s=deadline_s)


async def test_a_search_past_its_deadline_returns_a_quick_result_and_reports_it() -> None:
    """keeps: U-05, TC-03. The marks with most of the words are ready before their neighbours are weighed."""
    store = EphemeralStore()
    await store.log.append([build(number, "mark", {"text": f"the cookie {number}"}) for number in range(1, 9)])
    late = asyncio.Event()

    class SlowTexts(ReferenceTexts):
        """Reads neighbours only after the deadline."""

        async def read(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
            if neighbours:
                await late.wait()
            return await super().read(positions, neighbours=neighbours)

    store.texts = SlowTexts(store.state)
    question = Question(task="cookie", now=START_AT)

    found = await collect([MarkSource(shared_search(store), store.texts, store.beliefs)], question, deadline_s=1.0)

    assert {each.text for each in found.fragments} == {f"the cookie {number}" for number in range(1, 9)}
    assert found.missing == {"marks": "no answer within 800 ms, so only a preliminary answer is used"}


async def test_sources_share_one_search_per_question() -> None:
    searches = 0

    class CountingChains(ReferenceChains):
        async def agents(self) -> list[str]:
            nonlocal searches
            searches += 1
            return await super().agents()

    store = EphemeralStore()
    store.chains = CountingChains(store.state)
    await store.log.append([build(1, "mark", {"text": "the cookie is set early"})])
    shared = shared_search(store)
    question = Question(task="cookie", now=START_AT)

    first, second = await asyncio.gather(shared.hits(question), shared.hits(question))
    again = await shared.hits(question.renew())

    assert [hit.text for hit in first] == ["the cookie is set early"]
    assert first is second
    assert again is not first
    assert searches == 2


async def test_a_failure_after_the_deadline_is_not_reported_again() -> None:
    """keeps: U-05. The brief has named the source as missing; no traceback follows."""
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    searched = asyncio.Event()

    class UnsteadyChains(ReferenceChains):
        """Fails only when it is cancelled."""

        async def agents(self) -> list[str]:
            searched.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise StoreUnavailable("the server does not answer") from None
            raise AssertionError("unreachable")

    store = EphemeralStore()
    store.chains = UnsteadyChains(store.state)
    shared = shared_search(store)
    question = Question(task="q", now=START_AT)
    found = await collect(
        [MarkSource(shared, store.texts, store.beliefs), CrystalSource(store.crystals, store.beliefs)],
        question,
        deadline_s=0.05,
    )
    await searched.wait()
    del question
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()

    assert "marks" in found.missing
    assert reports == []


CONCEPT = "judgment:code_review:abc123"


async def test_marks_that_name_a_concept_are_gathered(memory: Memory) -> None:
    mark = memory.mark("abc123 was reverted after the outage")
    memory.mark("nothing to do with it")

    answer = await memory.sources.gather(CONCEPT)

    (fragment,) = answer.fragments
    assert (fragment.source, fragment.sources) == ("mica", (mark.id,))
    assert "abc123 was reverted after the outage" in answer.injection
