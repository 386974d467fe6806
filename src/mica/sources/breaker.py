"""When a source that failed is left alone, and when it is asked again."""

from __future__ import annotations

from collections.abc import Callable

FAILURES_MAX = 5  # in a row, or answers that came too late; then nobody waits for it
OPEN_S = 0.5  # short: whoever restarted a database wants to see it used within seconds, and one question is cheap


class Breaker:
    """Leaves a source alone that failed several times in a row; then one question at a time tries it again."""

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
        """Whether to ask now. Who is allowed while it is open is the one that tries."""
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

    def left(self) -> None:
        """Whoever asked waits no more, and nothing is known; the next may try."""
        self._is_probing = False

    def told(self) -> str:
        """Why it is left alone."""
        return f"left alone after {self.failures} failures: {self.reason}"
