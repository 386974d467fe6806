"""A space with three weeks of work, and an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.sample_work import work

import mica
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock

NOW = datetime(2026, 11, 13, 15, 0, tzinfo=UTC)


@pytest.fixture
async def memory(home: Settings) -> AsyncIterator[mica.Memory]:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    await work(memory, now=NOW, weeks=3)
    yield memory
    await memory.close()


@pytest.fixture
async def empty(home: Settings) -> AsyncIterator[mica.Memory]:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    yield memory
    await memory.close()
