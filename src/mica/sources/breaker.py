"""A circuit breaker for each source: after repeated failures it is not called for a while, then tried again."""

from __future__ import annotations

from collections.abc import Callable

FAILURES_MAX = 5  # in a row, late answers included; then the source is not called for a while
OPEN_S = 0.5  # short: a restarted database is used again within seconds, and one trial call is cheap


class SourceBreaker:
    """A circuit breaker that opens after several failures in a row, then lets one trial call through at a time."""

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
        """Return whether the source may be called now.

        After True, the caller must report the outcome: until then, an open breaker lets no other call through.
        """
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
        """Report a call that was cancelled, so that its outcome is unknown; the next caller may try."""
        self._is_probing = False

    def describe(self) -> str:
        """Return why the source is not called."""
        return f"not called for now, after {self.failures} failures in a row: {self.reason}"
