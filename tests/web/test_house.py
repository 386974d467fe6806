"""The memories that a server keeps open."""

from __future__ import annotations

import gc

import pytest

from mica.errors import UnknownSpace
from mica.web.house import House


async def test_a_name_that_is_no_space_is_not_remembered(house: House) -> None:
    """Whoever asks for a million spaces that are not there takes no memory for it."""
    for number in range(100):
        with pytest.raises(UnknownSpace):
            await house.memory(f"nowhere-{number}")

    gc.collect()
    assert not [name for name in house._locks if name.startswith("nowhere")]
