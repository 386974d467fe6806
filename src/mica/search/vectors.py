"""Which marks are about the same as a question, in other words: the vectors of a space, kept in memory and followed.

Marks get their vectors later, in batches and off the event loop: whoever emits never waits for a model.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mica.errors import MicaError, StoreError
from mica.llm.embeddings import Encoder, packed, unpacked
from mica.search.ranker import Query
from mica.store.priority import nobody_asks
from mica.store.protocol import Store

if TYPE_CHECKING:
    from mica.llm.embeddings import Matrix

R = TypeVar("R")

VECTORS_MAX = 20_000  # of the latest marks: 31 MB, compared in 3 ms; older marks are found by their words
LIKE_MAX = 4_000  # marks that are told how near they are; the others are as far away as most
UNRELATED_MAX = 0.2  # a cosine above this says something, also in a space where most marks are about one thing
NEAREST = 100  # marks that are candidates for their meaning alone
BATCH = 32  # vectors that are stored at once
BREATH_S = 0.05  # between two batches
QUIET_S = 2.0  # how long nothing is stored before marks are read, or the model is loaded; a command is over by then


class Meanings:
    """The vectors of one space. Close it, for it has a thread."""

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        give_way: Callable[[], Awaitable[None]] = nobody_asks,
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._sleep = sleep
        self._give_way = give_way
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-meanings")
        self._positions: list[int] = []
        self._matrix: Matrix | None = None
        self._count = 0  # of vectors that the store had when it was asked last
        self._following = asyncio.Lock()
        self._stored = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_up(), name="mica-meanings")

    @property
    def model(self) -> str:
        """The model that makes the vectors."""
        return self._encoder.model

    async def likeness(self, query: Query) -> Mapping[int, float] | None:
        """How much nearer marks are to the question than most are, by position, nearest first; None without vectors."""
        await self._follow()
        if self._matrix is None:
            return None
        return await self._run(lambda: self._compared(nameless(query)))

    def _compared(self, text: str) -> dict[int, float]:
        import numpy

        matrix, positions = self._matrix, self._positions
        assert matrix is not None, "checked by the caller, and changed only on this thread"
        near = matrix @ self._encoder.encode([text])[0]
        above = near - min(float(numpy.median(near)), UNRELATED_MAX)
        order = numpy.argsort(-above, kind="stable")[:LIKE_MAX]
        return {positions[place]: float(above[place]) for place in order if above[place] > 0}

    async def prepare(self) -> None:
        """Load the model and the vectors, so that no deadline pays for it. Nothing without vectors to compare with."""
        await self._follow()
        if self._matrix is not None:
            await self._run(lambda: self._encoder.encode([]))

    async def _follow(self) -> None:
        """Read the vectors that were made since the last look; all again when some are gone."""
        async with self._following:
            last = self._positions[-1] if self._positions else 0
            found = await self._store.vectors(self.model, after=last, limit=VECTORS_MAX)
            is_whole = found.count == self._count + len(found.rows)
            if is_whole and not found.rows:
                return
            if not is_whole and last:
                found = await self._store.vectors(self.model, limit=VECTORS_MAX)
            self._count = found.count
            await self._run(lambda: self._take(list(found.rows), is_whole=is_whole))

    def _take(self, rows: list[tuple[int, bytes]], *, is_whole: bool) -> None:
        import numpy

        fresh = unpacked([vector for _, vector in rows]) if rows else None
        if is_whole and self._matrix is not None and fresh is not None:
            fresh = numpy.concatenate([self._matrix, fresh])[-VECTORS_MAX:]
            self._positions = [*self._positions, *(position for position, _ in rows)][-VECTORS_MAX:]
        else:
            self._positions = [position for position, _ in rows]
        self._matrix = fresh

    # -- Vectors of new marks -----------------------------------------------------------------------------------

    async def missing(self) -> int:
        """How many of the latest marks, which are those that are compared, have no vector yet."""
        marks = (await self._store.sizes()).marks
        if marks <= VECTORS_MAX:
            return max(0, marks - (await self._store.vectors(self.model, limit=0)).count)
        await self._follow()
        limit = BATCH
        while True:
            positions = [position for position, _ in await self._store.without_vector(self.model, limit=limit)]
            compared = [
                place for place, position in enumerate(positions) if place + self._after(position) < VECTORS_MAX
            ]
            if len(compared) < limit:
                return len(compared)
            limit *= 2

    def _after(self, position: int) -> int:
        """How many marks after a position have a vector."""
        return len(self._positions) - bisect_right(self._positions, position)

    async def catch_up(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Make the vectors that are missing of the latest marks, last first; returns how many it made.

        A question that comes in between waits for one text, not for a batch.
        """
        total = 0
        before = (await self._store.vectors(self.model, limit=0)).count
        oldest: int | None = None  # whose vector is compared
        while batch := await self._store.without_vector(self.model, limit=BATCH):
            if oldest is None and before + total >= VECTORS_MAX:
                await self._follow()
                oldest = next(iter(self._positions), 0)
            if oldest is not None:
                batch = [(position, text) for position, text in batch if position > oldest]
            if not batch:
                break
            vectors: list[bytes] = []
            for _, text in batch:
                await self._give_way()
                vectors += await self._run(partial(self._encoded, [text]))
            await self._store.save_vectors(
                self.model, {position: vector for (position, _), vector in zip(batch, vectors, strict=True)}
            )
            total += len(batch)
            on_progress(total)
            await self._sleep(BREATH_S)
        return total

    def _encoded(self, texts: list[str]) -> list[bytes]:
        return packed(self._encoder.encode(texts))

    def disturb(self) -> None:
        """Something was stored: there may be marks to read, in a quiet while."""
        self._stored.set()

    async def _keep_up(self) -> None:
        await self._sleep(QUIET_S)
        with suppress(MicaError):  # whoever asks is told
            await self.prepare()
        while True:
            await self._stored.wait()
            while self._stored.is_set():
                self._stored.clear()
                await self._sleep(QUIET_S)
            with suppress(StoreError):  # nothing is lost and nobody waits for it: the next mark tries again
                await self.catch_up()

    async def close(self) -> None:
        """End. A batch that has begun is one transaction: it is whole or was never there."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def nameless(query: Query) -> str:
    """The question without the names of speakers: a rare name would outweigh all that is asked."""
    text = query.text
    for name in sorted(query.speakers, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(name)}(?:'s)?\b", " ", text, flags=re.IGNORECASE)
    return " ".join(text.split()) or query.text
