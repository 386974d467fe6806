"""The circuit breaker of a source: when one that failed is left alone, and when it is tried again."""

from __future__ import annotations

from collections.abc import Callable

FAILURES_MAX = 5  # in a row, late answers included; then the source is left alone
OPEN_S = 0.5  # short: a restarted database is used again within seconds, and one trial call is cheap


class SourceBreaker:
    """Opens after several failures in a row; then one call at a time tries the source again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._open_until = 0.0
        self._is_probing = False
        self.failures = 0
        self.reason = ""  # of the last failure

    @property
    def is_open(self) -> bool:
        return self.failures >= FAILURES_MAX

    def allows(self) -> bool:
        """Whether to call now. A caller that is let through while it is open must report how the call went."""
        if not self.is_open:
            return True
        if self._is_probing or self._monotonic() < self._open_until:
            return False
        self._is_probing = True
        return True

    def succeeded(self) -> None:
        self.failures, self.reason, self._is_probing = 0, "", False

    def failed(self, reason: str) -> None:
        self.failures += 1
        self.reason, self._is_probing = reason, False
        if self.is_open:
            self._open_until = self._monotonic() + OPEN_S

    def abandoned(self) -> None:
        """The caller stopped waiting, so nothing is known; the next caller may try."""
        self._is_probing = False

    def describe(self) -> str:
        """Why the source is left alone."""
        return f"left alone after {self.failures} failures: {self.reason}"
