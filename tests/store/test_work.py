"""Every engine keeps the promises of `WorkQueue`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.work import WorkContract


class TestWork(WorkContract):
    """The suite is in `mica.testing.contract.work`."""
