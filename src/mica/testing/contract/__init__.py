"""The tests that every store must pass: one suite per role, and `StoreContract` with all of them.

After `keeps:`, the docstring of a test lists the requirements that the test proves. In mica's repository,
`tests/requirements.md` explains them.
"""

from mica.testing.contract.store import StoreContract

__all__ = ["StoreContract"]
