"""Fakes and builders for the tests of mica and of programs that use it: events, a clock, scripted models and providers.

The names here need no optional package. `mica.testing.histories` generates random event histories, and needs
hypothesis. `mica.testing.contract` has the tests that every store must pass, and needs pytest and hypothesis. To run
these tests on a store:

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
