"""Predict files for `navigate`, briefs, searches and hooks, with one navigator per working tree."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path

from mica.clients.spool import Spools
from mica.errors import InvalidInput, MicaError
from mica.events.activity import STEP_NAMES
from mica.events.log import Log
from mica.model.event import Clock, EventQuery
from mica.model.hit import CrystalHit, Hit
from mica.model.walk import STARTED
from mica.navigation.navigator import Navigator, boost_named_files, describe_absent
from mica.navigation.places import Places, RankedFile, RankFiles
from mica.navigation.precomputed import PrecomputedRanking
from mica.search.search import Reorder
from mica.store.protocol import EventLog, TrailTable
from mica.store.space import WorkingTrees

COUNTED_MAX = 20_000  # latest steps that are read to count the files a space knows; takes about 0.1 s
PATHLIKE = re.compile(r"\w/\w|\w\.[^\W\d]")  # matches every text that mentions a file, and does not match 3.5


class FileRanking:
    """Ranks the files of a space's working trees by how probably a task needs them.

    It owns the caches for this, and a `Navigator` for each working tree.
    """

    def __init__(
        self,
        log: Log,
        *,
        event_log: EventLog,
        trails: TrailTable,
        space: str,
        location: str,
        trees: WorkingTrees,
        directory: Callable[[], Awaitable[Path | None]],
        clock: Clock,
        home: Path | None,
        spools: Spools | None,
        reads_ahead: bool,
    ) -> None:
        """`directory` returns the working tree that the space is about. `home` is the data folder; None without one.

        With `reads_ahead`, a request may start to read the log in the background for the next request. A short-lived
        command should not do that, since it would have to wait for the read before it exits.
        """
        self._log = log
        self._event_log = event_log
        self._trails = trails
        self._space = space
        self._location = location
        self._trees = trees
        self._directory = directory
        self._clock = clock
        self._home = home
        self._navigators: dict[Path, Navigator] = {}
        self._ranking = PrecomputedRanking(
            event_log,
            trails,
            navigator=self.navigator,
            space=space,
            spools=spools,
            home=home,
            clock=clock,
            reads_ahead=reads_ahead,
        )

    async def navigate(self, task: str, *, limit: int, session: str | None, root: Path | None) -> Places:
        """Predict the files that a task will need, best first. See `Memory.navigate` for the parameters."""
        if not isinstance(task, str):
            raise InvalidInput(f"a task is a text, not {task!r}")
        await self._log.settle()
        session = self._log.here.context.session if session is None else session
        folder = await self._directory() if root is None else self._trees.around(root)
        if folder is None:
            steps = await self._event_log.query(EventQuery(names=STEP_NAMES, limit=COUNTED_MAX))
            known = {path for step in steps if isinstance(path := step.data.get("path"), str)}
            absent = f"; {describe_absent(len(known))}" if known else ""
            return Places(missing={"files": f"the directory of {self._location} is not on this machine{absent}"})
        places = await self.navigator(folder).places(task, limit=limit, session=session, now=self._clock())
        with suppress(MicaError, OSError):  # the answer does not depend on it
            await self._ranking.save(folder)
        return places

    def navigator(self, root: Path) -> Navigator:
        """Return the navigator of the working tree at `root`. Each tree has one navigator, which is cached."""
        if root not in self._navigators:
            self._navigators[root] = Navigator(self._event_log, self._trails, root, space=self._space, home=self._home)
        return self._navigators[root]

    async def rank(self, task: str, within_s: float | None = None) -> list[RankedFile] | None:
        """Return the files that the task probably needs and that were opened in the past, best first.

        The working tree is that of the latest session. The result is None if there is no such tree, or if the ranking
        is not ready within `within_s` seconds. If `within_s` is None, the call waits as long as necessary.
        """
        return await self._rank_by(self._ranking, self._event_log, task, within_s)

    async def _rank_by(
        self, ranking: PrecomputedRanking, log: EventLog, task: str, within_s: float | None
    ) -> list[RankedFile] | None:
        root = self._trees.latest(await log.query(EventQuery(names=(STARTED,), limit=1)))
        if root is None:
            return None
        return await ranking.rank(task, root=root, session=self._log.here.context.session, within_s=within_s)

    @asynccontextmanager
    async def at(self, log: EventLog, trails: TrailTable, at: datetime) -> AsyncIterator[RankFiles]:
        """Return a context with a function like `rank` that uses only this log and these trails, as of the time `at`.

        The weights learned from this space's tasks are not used, since they may be newer than `at`. The files are those
        of the current working tree.
        """

        @cache
        def navigator(root: Path) -> Navigator:
            return Navigator(log, trails, root, space=self._space, home=None)

        ranking = PrecomputedRanking(
            log,
            trails,
            navigator=navigator,
            space=self._space,
            spools=None,
            home=None,
            clock=lambda: at,
        )
        try:
            yield partial(self._rank_by, ranking, log)
        finally:
            await ranking.close()

    async def reorder(self, query: str) -> Reorder | None:
        """Return a function that reorders the results of a search for `query`.

        The function moves results up that mention files which are predicted for the query. Return None instead of a
        function if the query is empty or there is no working tree.
        """
        root = self._trees.latest(await self._event_log.query(EventQuery(names=(STARTED,), limit=1)))
        if root is None or not query.strip():
            return None

        async def reorder(hits: list[Hit | CrystalHit]) -> list[Hit | CrystalHit]:
            texts = [hit.text for hit in hits if PATHLIKE.search(hit.text)]
            if not texts:
                return hits
            session = self._log.here.context.session
            likely = await self._ranking.likely(query, root=root, session=session, texts=texts)
            return boost_named_files(hits, likely) if likely else hits

        return reorder

    async def latest_root(self) -> Path | None:
        """Return the working tree of the latest session; None without a session, or if it is not on this machine."""
        return self._trees.latest(await self._log.query(EventQuery(names=(STARTED,), limit=1)))

    async def save(self) -> None:
        """Save the task history, and the index of the latest session's working tree, for other processes.

        Nothing is written if both were saved recently.
        """
        root = await self.latest_root()
        if root is not None:
            await self._ranking.save(root)

    def forget(self) -> None:
        """Drop all cached and saved history. Call this after something in the log was purged or withdrawn."""
        if self._home is not None:
            self._ranking.forget()
        for navigator in self._navigators.values():
            navigator.forget()

    async def close(self) -> None:
        """Wait up to 10 seconds for background reads, then cancel all remaining work."""
        await self._ranking.close()
        for navigator in self._navigators.values():
            await navigator.close()
