"""A circuit breaker: after repeated failures, a source is not called for a short time; then one trial is allowed."""

from __future__ import annotations

from collections.abc import Callable

FAILURES_MAX = 5  # in a row, late answers included; then the source is not called for a while
OPEN_S = 0.5  # short: a restarted database is used again within seconds, and one trial call is cheap


class SourceBreaker:
    """Stops calls to a source after FAILURES_MAX failures in a row. While it stops calls, the breaker is called open.

    After OPEN_S seconds, an open breaker allows one trial call. If the trial succeeds, the breaker closes, and all
    calls are allowed again. If the trial fails, the next one is allowed after another OPEN_S seconds.
    """

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
        """Return True if the source may be called now.

        After True, the caller must report the outcome of the call with `succeeded`, `failed` or `abandoned`. While the
        outcome of a trial call is not reported, further calls are refused.
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
        """Report that the call was cancelled. It counts neither as a success nor as a failure."""
        self._is_probing = False

    def describe(self) -> str:
        """Return, for messages, why the source is not called: the number of failures and the reason of the last one."""
        return f"not called for now, after {self.failures} failures in a row: {self.reason}"
