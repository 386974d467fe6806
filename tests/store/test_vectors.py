"""Every engine keeps the promises of `VectorIndex`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.vectors import VectorContract


class TestVectors(VectorContract):
    """The suite is in `mica.testing.contract.vectors`."""
