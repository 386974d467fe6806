"""Which files a task will need, for who cannot wait: by what is kept in files, else by what this process has read.

A brief has a tenth of a second, and reading a log and a working tree takes longer. Where hooks answer, an ingest keeps
both for them. Elsewhere whoever asks first has them read in the background, for the next who asks; a command, which
ends when it has answered, leaves that to `mica navigate`, `mica tick` and servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mica.brief.file_source import Ranked
from mica.brief.question import heed
from mica.clients.spool import Spools
from mica.model.event import Clock, EventQuery
from mica.model.walk import walks_of
from mica.navigation.navigator import NAMES, Navigating, kept_at, past_file, session_of
from mica.navigation.precomputed_places import is_any_named, likely, ranked
from mica.store.protocol import Store

FRESH_S = 600.0  # for which a past that was kept will do; what the session itself did is always looked up
SESSION_EVENTS_MAX = 2_000  # the latest of a session that count
ASKED_MAX = 32  # questions whose files are remembered: pages of one list, and what an agent asks again
CLOSE_S = 10.0  # for what is being read to be kept, so that it was not for nothing


class _Kept(NamedTuple):
    """Files that answer, and whether they are of lately."""

    tree: str
    past: str
    is_fresh: bool


class Ranking:
    """The files of a space by task, one working tree or several."""

    def __init__(
        self,
        store: Store,
        *,
        navigating: Callable[[Path], Navigating],
        spools: Spools | None,
        home: Path | None,
        clock: Clock,
        reads_ahead: bool = True,
    ) -> None:
        """Without `reads_ahead` a question begins no reading: a process that ends with its answer would wait for it."""
        self._store = store
        self._navigating = navigating
        self._spools = spools
        self._past = None if home is None else past_file(home, space=store.space)
        self._clock = clock
        self._reads_ahead = reads_ahead
        self._likely: dict[tuple[object, ...], dict[str, float]] = {}  # by what was asked, of which files
        self._reading: dict[Path, asyncio.Task[None]] = {}

    async def ranked(
        self, task: str, *, root: Path, session: str | None, within_s: float | None
    ) -> list[Ranked] | None:
        """The files of a task that somebody has opened before, best first; None where they are not known in time."""
        walked = await self._walked(session)
        kept = await self._kept(root)
        if kept is not None:
            found = await asyncio.to_thread(
                ranked, task, session or "", root=str(root), tree=kept.tree, past=kept.past, walked=walked
            )
            if found is not None:
                if not kept.is_fresh and self._reads_ahead:
                    _ = self._read(root)  # for the next who asks
                return found
        navigating = self._navigating(root)
        if not await navigating.is_ready(now=self._clock(), fresh_s=FRESH_S):
            if not self._reads_ahead:
                return None
            reading = self._read(root)
            await asyncio.wait([reading], timeout=within_s)
            if not reading.done() or reading.cancelled() or reading.exception() is not None:
                return None
        try:
            return await asyncio.wait_for(navigating.ranked(task, walked=walked), within_s)  # somebody may read still
        except TimeoutError:
            return None

    async def likely(self, task: str, *, root: Path, session: str | None, texts: Sequence[str]) -> dict[str, float]:
        """The files that a task will need, with their probabilities, by what is at hand: nothing is read for it.

        Nothing, at little cost, where none of the texts names a file of the tree.
        """
        kept = await self._kept(root)
        if kept is not None:
            if not await asyncio.to_thread(is_any_named, texts, tree=kept.tree):
                return {}
            walked = await self._walked(session)
            asked = (task, session, walked, root, _written_ns(kept.tree), _written_ns(kept.past))
            found = self._likely.get(asked)
            if found is None:
                found = await asyncio.to_thread(
                    likely, task, session or "", root=str(root), tree=kept.tree, past=kept.past, walked=walked
                )
            if found is not None:
                self._likely = dict([*self._likely.items(), (asked, found)][-ASKED_MAX:])
                return found
        navigating = self._navigating(root)
        if navigating.is_busy or not await navigating.is_ready(now=self._clock(), fresh_s=FRESH_S):
            return {}
        return await navigating.likely(task, walked=await self._walked(session))

    async def keep(self, root: Path) -> None:
        """Keep what is known now, for who asks next, unless that was done lately; little is done after `navigate`."""
        if self._past is not None:
            kept = await self._kept(root)
            if kept is None or not kept.is_fresh:
                await self._navigating(root).keep(self._past, now=self._clock())

    async def _kept(self, root: Path) -> _Kept | None:
        """The files of a tree and of a past, where they were kept: for hooks, or by who asked before."""
        generation = (await self._store.lesson()).generation  # as it is now: others purge, too
        made = None if self._spools is None else self._spools.prompt_answer()
        if made is not None and str(root) in made.trees and kept_at(Path(made.past), generation=generation) is not None:
            return _Kept(tree=made.trees[str(root)], past=made.past, is_fresh=True)  # every ingest makes it anew
        index = self._navigating(root).index_file
        if self._past is None or index is None or not index.exists():
            return None
        at = kept_at(self._past, generation=generation)
        if at is None:
            return None
        is_fresh = 0 <= self._clock().timestamp() - at < FRESH_S
        return _Kept(tree=str(index), past=str(self._past), is_fresh=is_fresh)

    async def _walked(self, session: str | None) -> tuple[tuple[str, ...], ...]:
        """What a session did until now: it counts most, and what is kept may not know of it yet."""
        if session is None:
            return ()
        done = await self._store.events(EventQuery(names=NAMES, session=session, limit=SESSION_EVENTS_MAX))
        return session_of(walks_of(done), session)

    def _read(self, root: Path) -> asyncio.Task[None]:
        """Read the log and the tree, once at a time, and keep them where anything is kept."""
        reading = self._reading.get(root)
        if reading is None or reading.done():
            reading = self._reading[root] = asyncio.ensure_future(self._taken_in(root))
            reading.add_done_callback(heed)
        return reading

    async def _taken_in(self, root: Path) -> None:
        navigating = self._navigating(root)
        await navigating.ready(now=self._clock())
        if self._past is not None:
            await navigating.keep(self._past, now=self._clock())

    def forget(self) -> None:
        """Keep nothing of the past, which something was taken back of."""
        self._likely = {}
        if self._past is not None:
            self._past.unlink(missing_ok=True)

    async def close(self) -> None:
        """Wait for what is being read, not for long."""
        reading = [task for task in self._reading.values() if not task.done()]
        if reading:
            _, late = await asyncio.wait(reading, timeout=0 if self._past is None else CLOSE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


def _written_ns(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0
