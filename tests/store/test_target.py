"""A target names a store: in memory, in a file, or at an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from mica.errors import InvalidInput, UnknownSpace
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite.store import SqliteStore
from mica.store.target import neighbours, open_store


async def test_memory_is_the_reference_store(home: Settings) -> None:
    store = await open_store(":memory:", settings=home)
    assert isinstance(store, EphemeralStore)
    assert await neighbours(store) == []


async def test_a_path_is_a_file_that_is_created(home: Settings, tmp_path: Path) -> None:
    store = await open_store(tmp_path / "new.db", settings=home)
    assert isinstance(store, SqliteStore)
    assert store.location == str(tmp_path / "new.db")
    await store.close()


@pytest.mark.parametrize("target", ["", "ftp://host/x", "a\0b"])
async def test_a_target_that_names_no_store_is_refused(home: Settings, target: str) -> None:
    with pytest.raises(InvalidInput):
        await open_store(target, settings=home)


async def test_a_space_that_must_exist_exists_when_events_wait_for_it(home: Settings, tmp_path: Path) -> None:
    file = tmp_path / "space.db"

    with pytest.raises(UnknownSpace):
        await open_store(file, settings=home, must_exist=True)
    store = await open_store(file, settings=home, must_exist=True, is_waiting=lambda path: path == file)

    assert file.exists()
    await store.close()
