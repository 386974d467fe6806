"""Tests of the promises of `Store`: those of all its roles, and of closing it."""

from __future__ import annotations

import pytest

from mica.errors import StoreUnavailable
from mica.model.event import EventQuery
from mica.store.protocol import Store
from mica.testing.builders import START_AT, build
from mica.testing.contract.beliefs import BeliefContract
from mica.testing.contract.chains import ChainContract
from mica.testing.contract.crystals import CrystalContract
from mica.testing.contract.files import FilesContract
from mica.testing.contract.log import LogContract
from mica.testing.contract.notices import NoticesContract
from mica.testing.contract.purges import PurgeContract
from mica.testing.contract.replies import ReplyContract
from mica.testing.contract.texts import TextContract
from mica.testing.contract.trails import TrailContract
from mica.testing.contract.vectors import VectorContract
from mica.testing.contract.work import WorkContract


class ClosingContract:
    """Tests of `Store.close`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_every_call_of_a_closed_store_is_refused(self, store: Store) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.log.query(EventQuery())
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.log.append([build(1)])
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.files.age(START_AT)


class StoreContract(
    ClosingContract,
    LogContract,
    ChainContract,
    NoticesContract,
    TextContract,
    VectorContract,
    CrystalContract,
    TrailContract,
    BeliefContract,
    ReplyContract,
    WorkContract,
    PurgeContract,
    FilesContract,
):
    """All tests that a store must pass. Subclass it, and add a fixture `store` that yields a new, empty store."""
