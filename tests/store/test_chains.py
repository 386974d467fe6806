"""Every engine keeps the promises of `ChainIndex`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.chains import ChainContract


class TestChains(ChainContract):
    """The suite is in `mica.testing.contract.chains`."""
