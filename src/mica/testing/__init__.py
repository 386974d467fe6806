"""For tests, ours and yours: the store contract, a clock that is set by hand, and builders of events, an encoder.

    from mica.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...

This package needs pytest and hypothesis; nothing in the product imports it.
"""

from mica.testing.builders import HandClock, History, build, histories
from mica.testing.contract import StoreContract

__all__ = ["HandClock", "History", "StoreContract", "build", "histories"]
