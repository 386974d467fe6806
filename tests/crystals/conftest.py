"""A clock that starts on a working day."""

from __future__ import annotations

import pytest
from tests.crystals.working_days import MONDAY

from mica.testing import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(MONDAY)
