"""Fakes and builders for tests, ours and yours: events, a clock set by hand, scripted models and providers.

These names need no optional package. The contract of a store is in `mica.testing.contract` and needs pytest and
hypothesis; random event histories are in `mica.testing.histories` and need hypothesis:

    from mica.testing.contract import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...

The rest of mica imports nothing from this package.
"""

from __future__ import annotations

from mica.testing.builders import HandClock, build
from mica.testing.models import ScriptedModel, recorded, scripted
from mica.testing.provider import ScriptedProvider, Turn

__all__ = ["HandClock", "ScriptedModel", "ScriptedProvider", "Turn", "build", "recorded", "scripted"]
