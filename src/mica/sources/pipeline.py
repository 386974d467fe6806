"""Asks sources, and asks them a second time if an event was purged while they were being asked.

Briefs and gathers both use this pipeline, so an event that is purged while sources read it never reaches an agent.
`SourceFlush` stores buffered events before one of mica's own sources reads the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from mica.errors import MicaError
from mica.events.hot import Hot
from mica.events.log import Log
from mica.model.event import EventQuery
from mica.sources.answer import Collected
from mica.sources.fan_out import FanOut
from mica.sources.protocol import Question, Source
from mica.store.protocol import PurgeLog, TrailTable

PURGED_MEANWHILE = "something was purged while the sources were asked; ask again"
PURGES_UNKNOWN = "the store did not report whether something was purged while the sources were asked; ask again"
PURGES_S = 0.02  # for the purge check when the deadline is over; a working store takes about 1 ms
LOG = "log"  # the name in `missing` for mica's own task sources when their answers are withheld


class Pipeline:
    """Asks sources questions. Answers that may quote an event that was purged meanwhile are not returned."""

    def __init__(self, fan_out: FanOut, *, purges: PurgeLog, trails: TrailTable, purged: Callable[[], None]) -> None:
        """`purged` is called each time something was purged while the sources were asked."""
        self._fan_out = fan_out
        self._purges = purges
        self._trails = trails
        self._purged = purged
        self._generation_seen = -1

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        deadline_s: float,
        sources: Callable[[], Awaitable[Iterable[Source]]] | None = None,
    ) -> list[Collected]:
        """Ask all questions at once and return one answer for each, in order. A failed source raises nothing.

        By default, the sources of the fan-out are asked; with `sources`, those that this function returns. If something
        was purged while they were asked, all questions are asked once more, in the remaining time. `sources` is then
        called a second time, so that it can make new sources over a new copy of the log.

        After a second purge, or if the store does not report its purges, the answers of sources that quote events of
        this log are withheld, and `missing` of each result says why.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        is_retry = False
        while True:
            generation = self._generation()
            others = None if sources is None else list(await sources())
            left_s = max(0.0, until - loop.time())
            found = await asyncio.gather(
                *(self._fan_out.collect(each, deadline_s=left_s, sources=others) for each in questions)
            )
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
        """Return the number of purges that this process knows of; -1 if this process has not asked the store yet."""
        return max(self._purges.generation, self._generation_seen)

    async def _doubt_since(self, generation: int, *, within_s: float) -> str:
        """Return why fragments may quote a purged event; an empty text if nothing was purged meanwhile.

        `generation` is the number of purges that was known before the sources were asked; -1 means that it was not
        known, so that a purge cannot be excluded. The store is asked for the current number, for at least PURGES_S
        seconds, even if `within_s` is less. If it does not answer, a purge cannot be excluded either.
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


COLLECT_S = 0.1  # at least this long between two calls of `collect`, which lists the spool folder
STATED = ("mark", "mark.*", "crystal.*", "judgment.*", "teaching.*", "trail.*")  # events that sources read


class SourceFlush:
    """A function to await before one of mica's own sources reads the log.

    If a buffered event is of a kind that sources read, such as a mark, all buffered events are stored. Events of other
    kinds can wait for the background writer.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._collected_s = float("-inf")

    async def __call__(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._collected_s >= COLLECT_S:
            self._collected_s = now_s
            await self._log.collect()
        if Hot(self._log.unfolded).events(EventQuery(names=STATED, limit=1)):
            await self._log.flush()
