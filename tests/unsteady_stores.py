"""Reference stores that fail, hang or cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import mica
from mica import EventQuery
from mica.errors import (
    StoreUnavailable,
)
from mica.model.crystal import CrystalQuery
from mica.model.event import Appended, Event
from mica.store.reference.chains import ReferenceChains
from mica.store.reference.crystals import ReferenceCrystals
from mica.store.reference.log import ReferenceLog
from mica.store.reference.state import ReferenceState
from mica.store.reference.store import EphemeralStore


class UnsteadyLog(ReferenceLog):
    """A log that raises the given errors, one per append."""

    def __init__(self, state: ReferenceState, errors: list[Exception]) -> None:
        super().__init__(state)
        self.errors = errors

    async def append(self, events: Sequence[Event]) -> Appended:
        if self.errors:
            raise self.errors.pop(0)
        return await super().append(events)


class UnsteadyStore(EphemeralStore):
    """A reference store whose first appends fail."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.log = UnsteadyLog(self.state, self.errors)


class HungLog(ReferenceLog):
    """A log behind a lock that another process holds."""

    def __init__(self, state: ReferenceState, released: asyncio.Event) -> None:
        super().__init__(state)
        self.released = released

    async def append(self, events: Sequence[Event]) -> Appended:
        await self.released.wait()
        return await super().append(events)


class HungStore(EphemeralStore):
    """A reference store that appends nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.log = HungLog(self.state, self.released)


class UnreadableLog(ReferenceLog):
    """A log that can be written but not queried."""

    async def query(self, query: EventQuery) -> list[Event]:
        raise StoreUnavailable("the disk is gone")


class UnreadableChains(ReferenceChains):
    """Chains that cannot be read."""

    async def agents(self) -> list[str]:
        raise StoreUnavailable("the disk is gone")


class UnreadableCrystals(ReferenceCrystals):
    """Crystals that cannot be read."""

    async def unsealed(
        self, *, limit: int, session: str | None = None, latest: bool = False, after: int | None = None
    ) -> list[Event]:
        raise StoreUnavailable("the disk is gone")

    async def query(self, query: CrystalQuery) -> list[mica.Crystal]:
        raise StoreUnavailable("the disk is gone")


class UnreadableStore(EphemeralStore):
    """A reference store that appends and follows, and fails every other read."""

    def __init__(self) -> None:
        super().__init__()
        self.log = UnreadableLog(self.state)
        self.chains = UnreadableChains(self.state)
        self.crystals = UnreadableCrystals(self.state)
