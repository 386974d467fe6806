"""Every engine keeps the promises of `AppendNotices`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.notices import NoticesContract


class TestNotices(NoticesContract):
    """The suite is in `mica.testing.contract.notices`."""
