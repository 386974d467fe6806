"""Open a space: which store, which hooks, and the memory around them."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

from mica.clients.spool import hooks_folder
from mica.errors import StoreUnavailable
from mica.format.lines import counted
from mica.llm.embeddings import Encoder, chosen
from mica.memory.keeping import Keeping
from mica.model.event import Clock, utc_now
from mica.settings import Settings, load_settings
from mica.store.space import is_address, space_of
from mica.store.target import open_store

LOG = logging.getLogger("mica")


class Memory(Keeping):
    """One space: observe into it, search it, and be briefed from it. Open it with `mica.open`."""

    async def close(self) -> None:
        """Release everything. What the store cannot take now stays on disk for the next who opens the space.

        The log `mica` then says how much waits, where, and for whom. In a forked child, and when the loop that it was
        opened in is closed, it releases what was emitted, which the next who reads the space stores. Raises
        StoreUnavailable in another loop while that one lives.
        """
        if self._is_closed:
            return
        is_alone = self._journal.is_forked or self._folding.has_ended
        if not is_alone and not self._folding.is_here:
            raise StoreUnavailable("this memory was opened in another event loop, which alone can close it")
        self._is_closed = True
        if is_alone:  # the rest is the parent's, or ended with its loop
            self._journal.close()
            return
        try:
            await self._scheduler.close()
            await self._end_gathering()
            await self._end_guiding()
            await self.sources.close()
            if self._models is not None:
                await self._models.close()
            await self._ageing.close()
            if self._meanings is not None:
                await self._meanings.close()
            await self._folding.close()
            if waiting := self._journal.waiting_events:
                LOG.warning(
                    "%s could not be stored in %s now: kept in %s until somebody opens this space again from here",
                    counted(waiting, "event"),
                    self._store.location,
                    self._store.segments,
                )
        finally:
            self._journal.close()
            await self._store.close()


class Opening:
    """A memory about to be opened: `await` it, or use it as `async with`."""

    def __init__(
        self,
        target: str | Path | None,
        settings: Settings | None,
        clock: Clock,
        *,
        must_exist: bool,
        encoder: Encoder | None,
    ) -> None:
        self._target = target
        self._encoder = encoder
        self._must_exist = must_exist
        self._settings = settings
        self._clock = clock
        self._memory: Memory | None = None

    def __await__(self) -> Generator[Any, None, Memory]:
        return self._open().__await__()

    async def __aenter__(self) -> Memory:
        self._memory = await self._open()
        return self._memory

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._memory is not None:
            await self._memory.close()

    async def _open(self) -> Memory:
        settings = self._settings or load_settings()
        encoder = self._encoder or chosen(settings.semantic)
        target = self._target if self._target is not None else settings.store
        store = await open_store(target, settings=settings, must_exist=self._must_exist)
        hooks = hooks_of(target, settings)
        try:
            memory = Memory(store, settings=settings, clock=self._clock, encoder=encoder, hooks=hooks)
        except BaseException:
            await store.close()
            raise
        await memory.learn_purges()
        return memory


def hooks_of(target: str | Path | None, settings: Settings) -> Path | None:
    """Where hooks write for a target: beside its file, or beside that of the directory whose place a setting takes."""
    if target is None or str(target) == settings.store:
        return hooks_folder(space_of(Path.cwd(), home=settings.home).file)
    return None if str(target) == ":memory:" or is_address(target) else hooks_folder(Path(target).expanduser())


def open(
    target: str | Path | None = None,
    *,
    settings: Settings | None = None,
    clock: Clock = utc_now,
    must_exist: bool = False,
    encoder: Encoder | None = None,
) -> Opening:
    """Open a space: a file, `postgresql://…`, a server at `http://…`, `:memory:`, or nothing for this directory's own.

    Use it as `memory = await mica.open(…)` and close it, or as `async with mica.open(…) as memory`. One that is not
    there is made, or raises UnknownSpace where it must exist. `encoder` makes vectors in place of the one that the
    settings ask for.
    """
    return Opening(target, settings, clock, must_exist=must_exist, encoder=encoder)
