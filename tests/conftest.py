"""What all tests share: Hypothesis' profile, a store of each engine, a clock set by hand, a memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import mica
from mica.settings import Settings
from mica.store.ephemeral import EphemeralStore
from mica.store.protocol import Store
from mica.store.sqlite import SqliteStore
from mica.testing import HandClock

settings.register_profile(
    "mica", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
settings.load_profile("mica")


async def open_store(engine: str, folder: Path) -> Store:
    return EphemeralStore() if engine == "ephemeral" else await SqliteStore.open(folder / "space.db")


ENGINES = ["ephemeral", "sqlite"]


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(request.param, tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """Settings of a user whose folders are all empty, and who waits for a brief however busy the machine is."""
    return mica.load_settings({"HOME": str(tmp_path / "home"), "MICA_BRIEF_DEADLINE_S": "30"})


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=[":memory:", "space.db"])
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, clock: HandClock
) -> AsyncIterator[mica.Memory]:
    target = request.param if request.param == ":memory:" else tmp_path / request.param
    async with mica.open(target, settings=home, clock=clock) as opened:
        yield opened
