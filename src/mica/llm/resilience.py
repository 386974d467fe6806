"""Retries, rate limits and circuit breakers for models. Clocks and random numbers are parameters."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mica.errors import ModelUnavailable
from mica.model.event import Clock, utc_now

BACKOFF_S = 0.5  # the longest wait before the second attempt; it doubles with each further attempt
BACKOFF_S_MAX = 30.0  # the longest wait, also for Retry-After; a provider that asks for more is skipped
FAILURES_MAX = 3  # failures in a row after which the breaker opens
OPEN_S = 30.0  # how long the breaker stays open at first; it doubles with each failed test call
OPEN_S_MAX = 300.0  # how long the breaker stays open at most


class Timing(NamedTuple):
    """Clocks, sleep and random numbers as functions, so that tests can replace them."""

    now: Clock = utc_now
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


def backoff(failed: int, retry_after_s: float | None, chance: float) -> float | None:
    """Return the seconds to wait before the next attempt; None if there should be no other attempt.

    `failed` is the number of failures in a row. `chance` is a random number from 0 to 1 by which the wait is
    multiplied, so that callers spread out. If the provider asked for a wait (`retry_after_s`), the result is exactly
    that, or None if it is longer than BACKOFF_S_MAX.
    """
    if retry_after_s is None:
        return chance * min(BACKOFF_S_MAX, BACKOFF_S * 2.0 ** (failed - 1))
    return retry_after_s if retry_after_s <= BACKOFF_S_MAX else None


class ModelBreaker:
    """A circuit breaker for one model: after FAILURES_MAX failures in a row, it rejects all calls for a while.

    Then it lets one test call through. If this call succeeds, all calls pass again; if it fails, calls are rejected for
    twice as long.
    """

    def __init__(self, name: str, timing: Timing) -> None:
        self._name = name
        self._timing = timing
        self._failures = 0
        self._open_s = 0.0
        self._open_until = 0.0
        self._is_probing = False

    @property
    def state(self) -> str:
        """`closed` if calls pass, `open` if they are rejected, or `half-open` if one test call may pass."""
        if self._failures < FAILURES_MAX:
            return "closed"
        return "open" if self._timing.monotonic() < self._open_until else "half-open"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Return a context for one call to the model, which counts the result of the call.

        If the call raises ModelUnavailable, it counts as a failure; a call without an error resets the count of
        failures. If the breaker rejects calls, ModelUnavailable is raised before the block runs.
        """
        is_probe = self.state == "half-open"
        if self.state == "open" or (is_probe and self._is_probing):
            left_s = max(0.0, self._open_until - self._timing.monotonic())
            raise ModelUnavailable(
                f"{self._name} failed {self._failures} times in a row and is not called for another {left_s:.0f} s",
                model=self._name,
                was_called=False,
            )
        self._is_probing = is_probe
        try:
            yield
        except ModelUnavailable:
            self._fail()
            raise
        else:
            self._failures, self._open_s = 0, 0.0
        finally:
            if is_probe:
                self._is_probing = False

    def _fail(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._open_s = min(OPEN_S_MAX, self._open_s * 2 or OPEN_S)
            jitter = 0.9 + 0.2 * self._timing.chance()
            self._open_until = self._timing.monotonic() + self._open_s * jitter


class RateLimit:
    """Limits the calls to one provider to a number per minute, evenly spaced."""

    def __init__(self, per_minute: float | None, timing: Timing) -> None:
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._timing = timing
        self._next = float("-inf")

    async def turn(self) -> None:
        """Wait until the caller may call the provider. Each caller gets its own time slot."""
        now = self._timing.monotonic()
        at = max(now, self._next)
        self._next = at + self._interval_s
        if at > now:
            await self._timing.sleep(at - now)

    def pause(self, seconds: float) -> None:
        """Delay all later calls by `seconds`, as a provider requests with Retry-After."""
        self._next = max(self._next, self._timing.monotonic() + seconds)
