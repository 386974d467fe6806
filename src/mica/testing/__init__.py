"""For tests, ours and yours: the store contract, a clock set by hand, builders of events, models and encoders.

    from mica.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...

The contract needs pytest and the builders hypothesis; scripted models need neither. Nothing in the product imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mica.testing.builders import HandClock, History, build, histories
    from mica.testing.contract.log import StoreContract
    from mica.testing.models import ScriptedModel, recorded, scripted
    from mica.testing.provider import ScriptedProvider, Turn

_HOMES = {
    "HandClock": "builders",
    "History": "builders",
    "ScriptedModel": "models",
    "ScriptedProvider": "provider",
    "StoreContract": "contract",
    "Turn": "provider",
    "build": "builders",
    "histories": "builders",
    "recorded": "models",
    "scripted": "models",
}
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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
