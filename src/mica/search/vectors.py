"""Search by meaning: the vectors of a space's marks, cached in memory and kept up to date.

Vectors are computed later, in batches and off the event loop; emitting never waits for a model.
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
from mica.llm.embeddings import Encoder, pack, unpack
from mica.search.ranker import ParsedQuery
from mica.store.priority import never_give_way
from mica.store.protocol import StoreFiles, VectorIndex

if TYPE_CHECKING:
    from mica.llm.embeddings import Matrix

R = TypeVar("R")

VECTORS_MAX = 20_000  # of the latest marks: 31 MB, compared in 3 ms; older marks are found by their words
LIKE_MAX = 4_000  # marks that get a likeness; the others count as unrelated
UNRELATED_MAX = 0.2  # a cosine above this means something, even in a space about a single topic
NEAREST = 100  # marks that become candidates by meaning alone
BATCH = 32  # vectors per write
BREATH_S = 0.05  # between two batches
QUIET_S = 2.0  # without an append before vectors are computed or the model is loaded; a command has ended by then


class MarkVectors:
    """The vectors of one space's marks, and a background task that computes missing ones. Has a thread: close it."""

    def __init__(
        self,
        index: VectorIndex,
        files: StoreFiles,
        encoder: Encoder,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        give_way: Callable[[], Awaitable[None]] = never_give_way,
    ) -> None:
        self._index = index
        self._files = files
        self._encoder = encoder
        self._sleep = sleep
        self._give_way = give_way
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-vectors")
        self._positions: list[int] = []
        self._matrix: Matrix | None = None
        self._count = 0  # vectors in the store at the last read
        self._following = asyncio.Lock()
        self._stored = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_up(), name="mica-vectors")

    @property
    def model(self) -> str:
        """The name of the embedding model."""
        return self._encoder.model

    async def likeness(self, query: ParsedQuery) -> Mapping[int, float] | None:
        """How much nearer marks are to the query than most marks, by position, nearest first; None without vectors."""
        await self._follow()
        if self._matrix is None:
            return None
        return await self._run(lambda: self._compared(remove_speakers(query)))

    def _compared(self, text: str) -> dict[int, float]:
        import numpy

        matrix, positions = self._matrix, self._positions
        assert matrix is not None, "checked by the caller, and changed only on this thread"
        near = matrix @ self._encoder.encode([text])[0]
        above = near - min(float(numpy.median(near)), UNRELATED_MAX)
        order = numpy.argsort(-above, kind="stable")[:LIKE_MAX]
        return {positions[place]: float(above[place]) for place in order if above[place] > 0}

    async def prepare(self) -> None:
        """Load the vectors, and the model if there are any, so that a later search does not wait for it."""
        await self._follow()
        if self._matrix is not None:
            await self._run(lambda: self._encoder.encode([]))

    async def _follow(self) -> None:
        """Read the vectors that are new in the store; all of them if some were deleted."""
        async with self._following:
            last = self._positions[-1] if self._positions else 0
            found = await self._index.read(self.model, after=last, limit=VECTORS_MAX)
            is_whole = found.count == self._count + len(found.rows)
            if is_whole and not found.rows:
                return
            if not is_whole and last:
                found = await self._index.read(self.model, limit=VECTORS_MAX)
            self._count = found.count
            await self._run(lambda: self._take(list(found.rows), is_whole=is_whole))

    def _take(self, rows: list[tuple[int, bytes]], *, is_whole: bool) -> None:
        import numpy

        fresh = unpack([vector for _, vector in rows]) if rows else None
        if is_whole and self._matrix is not None and fresh is not None:
            fresh = numpy.concatenate([self._matrix, fresh])[-VECTORS_MAX:]
            self._positions = [*self._positions, *(position for position, _ in rows)][-VECTORS_MAX:]
        else:
            self._positions = [position for position, _ in rows]
        self._matrix = fresh

    # -- Vectors of new marks -----------------------------------------------------------------------------------

    async def missing(self) -> int:
        """The number of marks without a vector among the latest VECTORS_MAX."""
        marks = (await self._files.sizes()).marks
        if marks <= VECTORS_MAX:
            return max(0, marks - (await self._index.read(self.model, limit=0)).count)
        await self._follow()
        limit = BATCH
        while True:
            positions = [position for position, _ in await self._index.missing(self.model, limit=limit)]
            compared = [
                place for place, position in enumerate(positions) if place + self._after(position) < VECTORS_MAX
            ]
            if len(compared) < limit:
                return len(compared)
            limit *= 2

    def _after(self, position: int) -> int:
        """The number of vectors after a position."""
        return len(self._positions) - bisect_right(self._positions, position)

    async def catch_up(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Compute the missing vectors of the latest marks, last first; returns their number.

        A search that starts meanwhile waits for one text at most, not for a batch.
        """
        total = 0
        before = (await self._index.read(self.model, limit=0)).count
        oldest: int | None = None  # position whose vector is still compared
        while batch := await self._index.missing(self.model, limit=BATCH):
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
            await self._index.save(
                self.model, {position: vector for (position, _), vector in zip(batch, vectors, strict=True)}
            )
            total += len(batch)
            on_progress(total)
            await self._sleep(BREATH_S)
        return total

    def _encoded(self, texts: list[str]) -> list[bytes]:
        return pack(self._encoder.encode(texts))

    def wake(self) -> None:
        """Note an append: missing vectors are computed once QUIET_S have passed without another."""
        self._stored.set()

    async def _keep_up(self) -> None:
        await self._sleep(QUIET_S)
        with suppress(MicaError):  # a search reports it
            await self.prepare()
        while True:
            await self._stored.wait()
            while self._stored.is_set():
                self._stored.clear()
                await self._sleep(QUIET_S)
            with suppress(StoreError):  # nothing is lost: the next append tries again
                await self.catch_up()

    async def close(self) -> None:
        """Stop the background task. A batch is one transaction, so none is stored in part."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def remove_speakers(query: ParsedQuery) -> str:
    """The text of a query without the names of speakers; a rare name would outweigh everything else."""
    text = query.text
    for name in sorted(query.speakers, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(name)}(?:'s)?\b", " ", text, flags=re.IGNORECASE)
    return " ".join(text.split()) or query.text
