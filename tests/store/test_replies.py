"""Every engine keeps the promises of `ReplyTable`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.replies import ReplyContract


class TestReplies(ReplyContract):
    """The suite is in `mica.testing.contract.replies`."""
