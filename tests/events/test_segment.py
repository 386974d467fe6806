"""A segment on its way to the disk: who waits until it is there has not waited for nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

import mica
from mica.settings import Settings


async def test_durable_returns_after_a_sync_that_began_after_the_event(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-41: on disk, power loss or not."""
    happened: list[str] = []
    sync = os.fdatasync

    def watched(descriptor: int) -> None:
        happened.append("sync")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", watched)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        for _ in range(3):
            memory.emit("step")
            happened.append("emitted")
            await memory.durable()
            happened.append("durable")

    for place in [place for place, what in enumerate(happened) if what == "durable"]:
        assert happened[place - 1] == "sync"


async def test_a_sync_that_began_before_the_event_does_not_count(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-41: those who wait may share a sync, but only one that their event can be part of."""
    begun, may_go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    syncs = 0
    sync = os.fdatasync

    def slow(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        loop.call_soon_threadsafe(begun.set)
        may_go_on.wait()
        sync(descriptor)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        monkeypatch.setattr(os, "fdatasync", slow)
        memory.emit("first")
        first = asyncio.create_task(memory.durable())
        async with asyncio.timeout(20):  # what would hang for ever fails after that
            await begun.wait()
        memory.emit("second")
        before = syncs
        second = asyncio.create_task(memory.durable())
        await asyncio.sleep(0)
        may_go_on.set()
        await second
        assert syncs > before
        await first
