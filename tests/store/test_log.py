"""Every engine keeps the promises of `EventLog`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.log import LogContract


class TestLog(LogContract):
    """The suite is in `mica.testing.contract.log`."""
