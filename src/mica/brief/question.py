"""What a brief can be made of. A source answers a question with passages, or raises a MicaError that says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Protocol, TypeVar, runtime_checkable

from mica.model.event import Passage
from mica.search.mark_search import Hits, search
from mica.search.ranker import Hit, Query
from mica.search.vectors import Meanings
from mica.store.protocol import Store

R = TypeVar("R")

RECENCY_WEIGHT = 0.7
LIMIT = 200  # passages from one source; 4,000 tokens of short marks are about as many


class Question:
    """What a brief is asked for. Its marks are searched once, for whichever sources want them."""

    def __init__(
        self,
        *,
        query: str,
        now: datetime,
        zone: tzinfo | None = None,
        store: Store | None = None,
        meanings: Meanings | None = None,
        meaning_s: float | None = None,
        limit: int = LIMIT,
        recency_weight: float = RECENCY_WEIGHT,
        budget_tokens: int = 0,
    ) -> None:
        self.budget_tokens = budget_tokens  # of the whole brief
        self.query = query.strip()
        self.recency_weight = recency_weight  # of a crystal's score; the rest is what it says of the query
        self.now = now
        self.zone = zone
        self.limit = limit
        self.missing: dict[str, str] = {}  # of the answer, by name, with the reason
        self._store = store
        self._meanings = meanings
        self.meaning_s = meaning_s  # how long a model may take, or whoever else must read much first
        self._search: asyncio.Task[Hits] | None = None
        self.looked: list[Hit] = []  # the marks of a quick look, before the search is done

    async def hits(self) -> list[Hit]:
        """The marks that answer the query, best first."""
        if self._store is None or not self.query:
            return []
        if self._search is None:
            asked = search(
                self._store,
                self.query,
                limit=self.limit,
                now=self.now,
                zone=self.zone,
                likeness=self._likeness,
                tell=self._look,
            )
            self._search = asyncio.ensure_future(asked)
            self._search.add_done_callback(heed)
        return await asyncio.shield(self._search)

    def _look(self, hits: list[Hit]) -> None:
        self.looked = hits

    async def _likeness(self, query: Query) -> Mapping[int, float] | None:
        """What a model says in time; words alone must do when it is late, or fails."""
        if self._meanings is None:
            return None
        asking = asyncio.ensure_future(self._meanings.likeness(query))
        asking.add_done_callback(heed)
        await asyncio.wait([asking], timeout=self.meaning_s)
        if not asking.done():
            self.missing["meaning"] = "the model is not loaded yet; words alone were compared"
            return None
        if (error := asking.exception()) is not None:
            self.missing["meaning"] = str(error)
            return None
        return asking.result()

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


@runtime_checkable
class QuickSource(Protocol):
    """A source that can say something before its answer is ready."""

    def quick(self, question: Question) -> Sequence[Passage]:
        """What it knows so far, without waiting."""
