"""For tests, ours and yours: the store contract, a clock set by hand, builders of events, models and encoders.

    from mica.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...

This package needs pytest and hypothesis; nothing in the product imports it.
"""

from mica.testing.builders import HandClock, History, build, histories
from mica.testing.contract import StoreContract
from mica.testing.models import ScriptedModel, recorded, scripted
from mica.testing.provider import ScriptedProvider, Turn

__all__ = [
    "HandClock",
    "History",
    "ScriptedModel",
    "ScriptedProvider",
    "StoreContract",
    "Turn",
    "build",
    "histories",
    "recorded",
    "scripted",
]
