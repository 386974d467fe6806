"""Every engine keeps the promises of `TextIndex`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.texts import TextContract


class TestTexts(TextContract):
    """The suite is in `mica.testing.contract.texts`."""
