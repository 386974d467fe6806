"""Asking sources safely: a fan-out under one deadline, a check for purges, and one retry after a purge.

Briefs and gathers both use this pipeline, so an event that is purged while it is being read never reaches an agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from mica.errors import MicaError
from mica.sources.fan_out import Collected, FanOut
from mica.sources.protocol import Question
from mica.store.protocol import PurgeLog, TrailTable

PURGED_MEANWHILE = "something was purged while the sources were asked; ask again"
PURGES_UNKNOWN = "the store did not report whether something was purged while the sources were asked; ask again"
PURGES_S = 0.02  # for the purge check when the deadline is over; a working store takes about 1 ms
LOG = "log"  # the name in `missing` for mica's own task sources when their answers are withheld


class Pipeline:
    """Asks questions, and withholds answers if a purge may have removed the events they are based on."""

    def __init__(self, fan_out: FanOut, *, purges: PurgeLog, trails: TrailTable, purged: Callable[[], None]) -> None:
        """`purged` is called when the check finds that something was purged while the sources were asked."""
        self._fan_out = fan_out
        self._purges = purges
        self._trails = trails
        self._purged = purged
        self._generation_seen = -1

    async def ask(self, questions: Sequence[Question], *, deadline_s: float) -> list[Collected]:
        """Ask all questions at once and return one answer per question, in order; no source's failure is raised.

        If something was purged meanwhile, all questions are asked once more in the remaining time. If there is yet
        another purge, or the store does not report its purges, fragments based on events of this log are withheld,
        and `missing` has the reason.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        is_retry = False
        while True:
            generation, left_s = self._generation(), max(0.0, until - loop.time())
            found = await asyncio.gather(*(self._fan_out.collect(each, deadline_s=left_s) for each in questions))
            if not any(each.sources for one in found for each in one.fragments):
                return found
            doubt = await self._doubt_since(generation, within_s=until - loop.time())
            if not doubt:
                return found
            if is_retry or doubt != PURGED_MEANWHILE:
                names = [LOG if each.concept is None else "" for each in questions]
                return [each.withhold_own(doubt, name=name) for each, name in zip(found, names, strict=True)]
            is_retry = True
            questions = [each.renew() for each in questions]

    def _generation(self) -> int:
        """The number of purges that this process has seen; -1 before it has asked."""
        return max(self._purges.generation, self._generation_seen)

    async def _doubt_since(self, generation: int, *, within_s: float) -> str:
        """Return why fragments read since `generation` cannot be trusted; empty when nothing was purged.

        The store is asked even when no time is left. If the number of purges was not known before, for example because
        the store was unavailable, a purge cannot be ruled out.
        """
        is_known = False
        with suppress(TimeoutError, MicaError):
            async with asyncio.timeout(max(PURGES_S, within_s)):
                self._generation_seen = (await self._trails.learned_up_to()).generation
                is_known = True
        if self._generation() > generation:
            self._purged()
            return PURGED_MEANWHILE
        return "" if is_known else PURGES_UNKNOWN
