"""Circuit breakers of sources and of the store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tests.sources.gated_source import GatedSource

import mica
from mica import Memory
from mica.errors import StoreUnavailable
from mica.settings import Settings
from mica.sources.breaker import FAILURES_MAX
from mica.store.reference.log import ReferenceLog
from mica.store.reference.store import EphemeralStore

CONCEPT = "judgment:code_review:abc123"


async def test_a_failing_source_is_skipped_and_retried_later(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        bad = GatedSource("bad")
        bad.error = RuntimeError("down")
        memory.sources.add(bad)
        answers = [await memory.sources.gather(f"a:b:{number}") for number in range(FAILURES_MAX + 3)]

        assert len(bad.asked) == FAILURES_MAX
        assert (
            answers[-1].missing["bad"]
            == f"not called for now, after {FAILURES_MAX} failures in a row: RuntimeError: down"
        )
        bad.error = None
        while "bad" in (answer := await memory.sources.gather("a:b:c")).missing:
            await asyncio.sleep(0.01)
        assert [each.source for each in answer.fragments] == ["bad"]


async def test_a_store_is_retried_after_a_cancelled_trial(home: Settings) -> None:
    """keeps: C-22. The breaker lets the next call try."""

    class AwayLog(ReferenceLog):
        is_away = False
        gate = asyncio.Event()

        async def last_position(self) -> int:
            await self.gate.wait()
            if self.is_away:
                raise StoreUnavailable("it is away")
            return await super().last_position()

    store = EphemeralStore()
    store.log = log = AwayLog(store.state)
    log.gate.set()
    async with AsyncExitStack() as held:
        memory = Memory(store, settings=home)
        held.push_async_callback(memory.close)
        memory.sources.add(GatedSource("app"))
        log.is_away = True
        while "not called for now" not in (await memory.sources.gather(CONCEPT)).missing.get("log", ""):
            await asyncio.sleep(0)
        log.is_away = False
        log.gate.clear()
        while True:
            trying = asyncio.ensure_future(memory.sources.gather(CONCEPT))
            await asyncio.wait([trying], timeout=0.05)
            if trying.cancel():
                await asyncio.wait([trying])
                break
        log.gate.set()

        async with asyncio.timeout(10):
            while "log" in (await memory.sources.gather(CONCEPT)).missing:
                await asyncio.sleep(0.01)
