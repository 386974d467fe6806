"""The one pipeline that asks sources: a fan-out under one deadline, one check for purges, one retry after a purge.

Briefs and gathers both come through here, so nothing that was purged while it was read reaches an agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from mica.errors import MicaError
from mica.sources.fan_out import Collected, FanOut
from mica.sources.protocol import Question
from mica.store.protocol import PurgeLog, TrailTable

PURGED_MEANWHILE = "something was purged while it was asked; ask again"
PURGES_UNKNOWN = "the store does not say whether something was purged while it was asked; ask again"
PURGES_S = 0.02  # for the purge check after the deadline; a store that is there takes a thousandth of a second
LOG = "log"  # the name by which a brief calls its own sources when all of them are withheld


class Pipeline:
    """Asks questions and withholds answers that a purge overtook."""

    def __init__(self, fan_out: FanOut, *, purges: PurgeLog, trails: TrailTable, purged: Callable[[], None]) -> None:
        """`purged` is called when the check finds a purge that this process has not heard of."""
        self._fan_out = fan_out
        self._purges = purges
        self._trails = trails
        self._purged = purged
        self._generation_seen = -1

    async def ask(self, questions: Sequence[Question], *, deadline_s: float) -> list[Collected]:
        """The answers to these questions, all asked at once, in their order; never raises for a source.

        After a purge the questions are asked once more in the time that is left. If that does not help, or the store
        does not say, fragments that rest on events of this log are withheld, and `missing` says why.
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
        """The number of purges, as far as this process knows; -1 while it knows nothing."""
        return max(self._purges.generation, self._generation_seen)

    async def _doubt_since(self, generation: int, *, within_s: float) -> str:
        """Why fragments read since may be purged by now; empty when nothing was purged.

        The store is asked even when no time is left. A process that did not know the number of purges before, as when
        the store was away, cannot rule one out.
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
