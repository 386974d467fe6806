"""The tests that every store must pass: one suite per role, and `StoreContract` with all of them."""

from mica.testing.contract.store import StoreContract

__all__ = ["StoreContract"]
