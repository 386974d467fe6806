"""Every engine keeps the promises of `TrailTable`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.trails import TrailContract


class TestTrails(TrailContract):
    """The suite is in `mica.testing.contract.trails`."""
