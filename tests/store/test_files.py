"""Every engine keeps the promises of `StoreFiles`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

from mica.testing.contract.files import FilesContract


class TestFiles(FilesContract):
    """The suite is in `mica.testing.contract.files`."""
