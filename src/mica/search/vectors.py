"""Search by meaning: the embedding vectors of a space's marks, cached in memory and kept up to date.

Vectors of new marks are computed later, in batches and outside the event loop, so storing a mark never waits for the
embedding model.
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

VECTORS_MAX = 20_000  # vectors of the latest marks: 31 MB, compared in 3 ms; older marks are found only by their words
LIKE_MAX = 4_000  # the most similar marks, for which a likeness is returned; the others count as unrelated
UNRELATED_MAX = 0.2  # a cosine above this is significant, even in a space about a single topic
NEAREST = 100  # marks that become candidates by meaning alone
BATCH = 32  # vectors that are stored in one transaction
PAUSE_S = 0.05  # between two batches
QUIET_S = 2.0  # how long no mark must be stored before vectors are computed; a short command ends earlier


class MarkVectors:
    """The embedding vectors of the marks in a space, with a background task that computes missing ones.

    Vectors are computed in one thread, which runs until `close` is called.
    """

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
        self._follow_lock = asyncio.Lock()
        self._appended = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_up(), name="mica-vectors")

    @property
    def model(self) -> str:
        """The name of the embedding model."""
        return self._encoder.model

    async def likeness(self, query: ParsedQuery) -> Mapping[int, float] | None:
        """Return for each mark, by position, how much more similar in meaning it is to the query than a typical mark.

        The most similar mark comes first, and at most LIKE_MAX marks are returned. Marks that are not more similar than
        a typical mark are left out. The result is None if no vectors are stored.
        """
        await self._follow()
        if self._matrix is None:
            return None
        return await self._run(lambda: self._compare(remove_speakers(query)))

    def _compare(self, text: str) -> dict[int, float]:
        import numpy

        matrix, positions = self._matrix, self._positions
        assert matrix is not None, "checked by the caller, and changed only on this thread"
        near = matrix @ self._encoder.encode([text])[0]
        above = near - min(float(numpy.median(near)), UNRELATED_MAX)
        order = numpy.argsort(-above, kind="stable")[:LIKE_MAX]
        return {positions[place]: float(above[place]) for place in order if above[place] > 0}

    async def prepare(self) -> None:
        """Load the stored vectors, so that a later search need not wait. If there are any, also load the model."""
        await self._follow()
        if self._matrix is not None:
            await self._run(lambda: self._encoder.encode([]))

    async def _follow(self) -> None:
        """Load the vectors that were stored since the last call. If vectors were deleted meanwhile, load all again."""
        async with self._follow_lock:
            last = self._positions[-1] if self._positions else 0
            stored = await self._index.read(self.model, after=last, limit=VECTORS_MAX)
            is_whole = stored.count == self._count + len(stored.rows)
            if is_whole and not stored.rows:
                return
            if not is_whole and last:
                stored = await self._index.read(self.model, limit=VECTORS_MAX)
            self._count = stored.count
            await self._run(lambda: self._add_rows(list(stored.rows), is_whole=is_whole))

    def _add_rows(self, rows: list[tuple[int, bytes]], *, is_whole: bool) -> None:
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
        """Return the number of marks without a vector, among the latest VECTORS_MAX marks."""
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
        return len(self._positions) - bisect_right(self._positions, position)

    async def catch_up(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Compute and store the missing vectors of the latest marks, newest first; returns the number of new vectors.

        `on_progress` is called with the number so far. A search that starts meanwhile waits only until the text of the
        current mark is encoded.
        """
        total = 0
        before = (await self._index.read(self.model, limit=0)).count
        oldest: int | None = None  # the oldest position among the vectors that searches use
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
                vectors += await self._run(partial(self._encode, [text]))
            await self._index.save(
                self.model, {position: vector for (position, _), vector in zip(batch, vectors, strict=True)}
            )
            total += len(batch)
            on_progress(total)
            await self._sleep(PAUSE_S)
        return total

    def _encode(self, texts: list[str]) -> list[bytes]:
        return pack(self._encoder.encode(texts))

    def wake(self) -> None:
        """Notify the background task that a mark was stored.

        The task computes vectors once no mark has been stored for QUIET_S seconds.
        """
        self._appended.set()

    async def _keep_up(self) -> None:
        await self._sleep(QUIET_S)
        with suppress(MicaError):  # a search will report the error
            await self.prepare()
        while True:
            await self._appended.wait()
            while self._appended.is_set():
                self._appended.clear()
                await self._sleep(QUIET_S)
            with suppress(StoreError):  # nothing is lost: the next append tries again
                await self.catch_up()

    async def close(self) -> None:
        """Stop the background task and its thread. Each batch of vectors is stored completely or not at all."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def remove_speakers(query: ParsedQuery) -> str:
    """Return the text of a query without names of speakers, because a rare name would outweigh all other words."""
    text = query.text
    for name in sorted(query.speakers, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(name)}(?:'s)?\b", " ", text, flags=re.IGNORECASE)
    return " ".join(text.split()) or query.text
