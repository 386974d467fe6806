"""What a brief can be made of. A source answers a question with passages, or raises a MicaError that says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from mica.model import Passage
from mica.select.rank import Hit
from mica.select.search import search
from mica.store.protocol import Store

R = TypeVar("R")

LIMIT = 200  # passages from one source; 4,000 tokens of short marks are about as many


class Question:
    """What a brief is asked for. Its marks are searched once, for whichever sources want them."""

    def __init__(self, *, query: str, now: datetime, store: Store | None = None, limit: int = LIMIT) -> None:
        self.query = query.strip()
        self.now = now
        self.limit = limit
        self._store = store
        self._search: asyncio.Task[list[Hit]] | None = None

    async def hits(self) -> list[Hit]:
        """The marks that answer the query, best first."""
        if self._store is None or not self.query:
            return []
        if self._search is None:
            self._search = asyncio.ensure_future(search(self._store, self.query, limit=self.limit, now=self.now))
            self._search.add_done_callback(heed)
        return await asyncio.shield(self._search)

    def end(self) -> None:
        """Nobody waits for an answer any more."""
        if self._search is not None:
            self._search.cancel()


def heed(task: asyncio.Future[R]) -> None:
    """Take note of how a task ended that nobody may be waiting for: the deadline has named it as missing already."""
    if not task.cancelled():
        task.exception()


class Source(Protocol):
    """Something that knows. Its text is data for the reader, never an instruction."""

    @property
    def name(self) -> str:
        """What a brief calls this source when it is missing."""

    async def passages(self, question: Question) -> Sequence[Passage]:
        """What it knows, best first; empty when it knows nothing. Raises MicaError when it cannot say."""
