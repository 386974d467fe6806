"""Navigate: where agents went, where the next one should go, and whether that pays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from datetime import time as clock_time
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.llm.prices import prices
from mica.memory.crystallizing import Crystallizing
from mica.model.event import Appended, Event, EventQuery
from mica.model.walk import STARTED, STEPS, WALKED, latest_directory
from mica.search.ranker import Hit
from mica.search.search import CrystalHit, Reorder
from mica.store.space import space_of
from mica.upkeep.schedule import Job, Ran

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.brief.file_source import Rank, Ranked
    from mica.navigation.navigator import Navigating
    from mica.navigation.places import Places
    from mica.navigation.precomputed import Ranking
    from mica.navigation.replay import Replay
    from mica.navigation.report import Period, Report
    from mica.navigation.trails.evolution import Evolution
    from mica.navigation.trails.library import Trails
    from mica.store.protocol import Store


PATHLIKE = re.compile(r"\w/\w|\w\.[^\W\d]")  # a text without it names no file; 3.5 is none
EVOLVING = clock_time(3)  # of the day, by the settings' time zone: when nobody works
IMPORTED_AT_ONCE = 1_000  # events of one append
COMMITS_MAX = 5_000  # the latest of a repository; older ones say little of the files that are there now
WALKED_EVENTS = 500_000  # the latest that walks are read from: years of one person's work
TAUGHT_DAILY = 60  # tasks that a day's evolution learns from: some seconds, also where nobody planned for them


class Guiding(Crystallizing):
    """A memory that knows the way."""

    # Whether files of a directory may be read, where those who write here may be others than those whose files they
    # are: a server decides it. Without a judge, whoever writes has these files anyway.
    is_ours: Callable[[Path], bool] | None = None

    # Whether a brief may begin to read the past for the next one. A command ends when it has answered, and would wait.
    reads_ahead = True

    def _jobs(self) -> list[Job]:
        jobs = super()._jobs()
        if self._settings.trails.learn:
            zone = self._settings.zone()
            jobs.append(Job(kind="evolve", every=timedelta(days=1), at=EVOLVING, zone=zone, run=self._evolve))
        return jobs

    @cached_property
    def _trees(self) -> dict[Path, Navigating]:
        """One engine for each working tree that was asked about."""
        return {}

    async def navigate(
        self, task: str, *, limit: int = 10, session: str | None = None, root: Path | None = None
    ) -> Places:
        """The files that a task will probably need, with the lines to begin at, how sure that is and why; best first.

        Only files of the working tree at `root` as it is now; without `root`, of the tree that `directory` names. What
        was done earlier in `session` counts most; without it, the session of the current block. `missing` of the answer
        names what could not be looked at. Without any history, names and words alone decide.
        """
        if not isinstance(task, str):
            raise InvalidInput(f"a task is a text, not {task!r}")
        from mica.navigation.places import Places

        await self._stored()
        folder = await self.directory() if root is None else self._folder(root)
        if folder is None:
            return Places(missing={"files": f"the directory that {self.location} speaks of is not on this machine"})
        session = self.here.context.session if session is None else session
        found = await self._navigating(folder).places(task, limit=limit, session=session, now=self._clock())
        with suppress(MicaError, OSError):  # the answer is there
            await self._ranking.keep(folder)
        return found

    async def tick(self, kinds: Collection[str] | None = None) -> list[Ran]:
        """Do what is due in this space and nobody else does; returns what was done.

        Where commands answer and no hooks, it also keeps what they rank files by.
        """
        ran = await super().tick(kinds)
        if kinds is None and not self.reads_ahead:
            root = await self._worked_in()
            if root is not None:
                await self._ranking.keep(root)
        return ran

    def _navigating(self, root: Path) -> Navigating:
        from mica.navigation.navigator import Navigating

        if root not in self._trees:
            self._trees[root] = Navigating(self._store, root, home=self._kept)
        return self._trees[root]

    async def _ranked(self, task: str, within_s: float | None = None) -> list[Ranked] | None:
        """The files that `navigate` ranks for a task and somebody has opened before; None where that takes longer."""
        return await self._ranked_by(self._ranking, self._store, task, within_s)

    async def _ranked_by(
        self, ranking: Ranking, store: Store, task: str, within_s: float | None
    ) -> list[Ranked] | None:
        latest = self._latest_tree(await store.events(EventQuery(names=(STARTED,), limit=1)))
        if latest is None:
            return None
        root = self._folder(latest)
        return await ranking.ranked(task, root=root, session=self.here.context.session, within_s=within_s)

    @asynccontextmanager
    async def _ranking_at(self, past: Store, at: datetime) -> AsyncIterator[Rank]:
        """As `_ranked`, by what was known at a time: nothing learned since counts. The working tree is as it is now."""
        from mica.navigation.navigator import Navigating
        from mica.navigation.precomputed import Ranking

        @cache
        def navigating(root: Path) -> Navigating:
            return Navigating(past, root, home=None)

        ranking = Ranking(past, navigating=navigating, spools=None, home=None, clock=lambda: at)
        try:
            yield partial(self._ranked_by, ranking, past)
        finally:
            await ranking.close()

    async def _by_files(self, query: str) -> Reorder | None:
        latest = self._latest_tree(await self._store.events(EventQuery(names=(STARTED,), limit=1)))
        if latest is None or not query.strip():
            return None

        async def reorder(found: list[Hit | CrystalHit]) -> list[Hit | CrystalHit]:
            from mica.navigation.file_boost import by_files

            texts = [hit.text for hit in found if PATHLIKE.search(hit.text)]
            if not texts:
                return found
            session = self.here.context.session
            likely = await self._ranking.likely(query, root=self._folder(latest), session=session, texts=texts)
            return by_files(found, likely) if likely else found

        return reorder

    @cached_property
    def _ranking(self) -> Ranking:
        from mica.navigation.precomputed import Ranking

        return Ranking(
            self._store,
            navigating=self._navigating,
            spools=self.spools,
            home=self._kept,
            clock=self._clock,
            reads_ahead=self.reads_ahead,
        )

    def _forget_past(self) -> None:
        if self._kept is not None:
            self._ranking.forget()
        for navigating in self._trees.values():
            navigating.forget()

    async def _end_guiding(self) -> None:
        if "_ranking" in self.__dict__:
            await self._ranking.close()
        for navigating in self._trees.values():
            await navigating.close()

    async def _worked_in(self) -> Path | None:
        """The working tree of the latest session; None where there was none, or it is not here."""
        latest = self._latest_tree(await self.events(EventQuery(names=(STARTED,), limit=1)))
        return None if latest is None else self._folder(latest)

    def _latest_tree(self, events: Iterable[Event]) -> Path | None:
        """Where the latest session of these worked, if that may be looked at."""
        found = latest_directory(events)
        return found if found is None or self.is_ours is None or self.is_ours(found) else None

    async def directory(self) -> Path | None:
        """The working tree that this space speaks of: where its latest session worked; without any, the current one.

        The current directory also where it is of this very space. None when the session's directory is not here.
        """
        here = space_of(Path.cwd(), home=self._settings.home)
        started = await self.events(EventQuery(names=(STARTED,), limit=1))
        if str(here.file) == self.location:
            return here.root
        if not started:
            return here.root if self.is_ours is None or self.is_ours(here.root) else None
        return await self._worked_in()

    async def learn_git(self, *, root: Path | None = None, limit: int = COMMITS_MAX) -> Appended:
        """Take in the latest commits of the repository around `root`: subjects, changed files and renames, each once.

        Without `root`, of the current directory. Merges are left out; subjects are redacted. Raises InvalidInput where
        there is no git or no history.
        """
        from mica.navigation.commits import changes_of, events_of

        changes = await asyncio.to_thread(changes_of, self._folder(root), limit=limit)
        await self._stored()
        total = Appended()
        events = list(events_of(changes))
        for start in range(0, len(events), IMPORTED_AT_ONCE):
            done = await self._append(events[start : start + IMPORTED_AT_ONCE])
            total = Appended(stored=total.stored + done.stored, repeated=total.repeated + done.repeated)
        return total

    async def learn_navigation(self, *, root: Path | None = None, limit: int | None = None) -> int:
        """Learn from tasks that are new what signals and probabilities of `navigate` are worth here; returns how many.

        Each is asked again with what was known then, over the files as they were in the history at `root`, which is the
        directory of the latest session unless given. What is learned are numbers, kept in the data folder.
        """
        from mica.navigation.engine.offers import offer
        from mica.navigation.navigator import learned_file, load_learned, save_learned
        from mica.navigation.replay_predictor import TAUGHT_MAX, relearned

        if self._kept is None or not await self.events(EventQuery(names=tuple(STEPS), limit=1)):
            return 0
        events = await self.events(EventQuery(names=WALKED, limit=WALKED_EVENTS))
        where = self._latest_tree(events) if root is None else self._folder(root)
        file = learned_file(self._kept, space=self._store.space)
        learned, taught = await asyncio.to_thread(
            relearned,
            events,
            where,
            before=load_learned(file),
            render=offer,
            prices=prices(),
            now=self._clock(),
            limit=TAUGHT_MAX if limit is None else limit,
        )
        if taught:
            await asyncio.to_thread(save_learned, file, learned)
        return taught

    @cached_property
    def trails(self) -> Trails:
        """The trails of this space: `await memory.trails.list()`, `.show`, `.choose`, `.log`, `.track` …"""
        from mica.navigation.trails.library import Trails

        return Trails(
            self._store,
            emit=lambda: self.emit,
            stored=self._stored,
            here=lambda: self.here,
            walk=self.walk,
            clock=self._clock,
            gates=self._settings.trails,
        )

    async def evolve(self) -> Evolution:
        """What is done each day: trails are learned, named, followed and measured (`Trails.evolve`), and published.

        After `mica install`, trails that pass the gate become commands in the working tree, are renewed as they change
        and withdrawn as they fade; the same holds wherever somebody published them by hand.
        """
        from mica.clients.installer import read_record

        root = await self._worked_in()
        report = await self.trails.evolve(root=root)
        if self._kept is None:
            return report
        clients = await asyncio.to_thread(read_record, self._kept)
        done = await self.trails.keep_published(root, list(clients.clients), home=self._kept)
        return msgspec.structs.replace(
            report,
            published=tuple(each.path for each in done if each.fate == "written"),
            withdrawn=tuple(each.path for each in done if each.fate == "removed"),
        )

    async def _evolve(self) -> int:
        report = await self.evolve()
        if await self.trails.is_learning():
            await self.learn_navigation(limit=TAUGHT_DAILY)
        return len(report.crystallized) + len(report.refreshed)

    async def replay_walks(
        self,
        *,
        root: Path | None = None,
        latest: int | None = None,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> Replay:
        """What offering paths would have been worth over this space's own history, learning only from the past.

        With `latest`, only so many of the last tasks are judged.

        Files are seen as they were in the git history at `root`, which is the directory of the latest session unless
        given. Without one, a file can be offered once somebody has opened it; `missing` of the answer says so.
        """
        from mica.navigation.engine.offers import offer
        from mica.navigation.replay_predictor import rewalked

        events = await self.events(EventQuery(names=WALKED, limit=WALKED_EVENTS))
        where = self._latest_tree(events) if root is None else root
        return await asyncio.to_thread(
            rewalked, events, where, render=offer, prices=prices(), latest=latest, on_progress=on_progress
        )

    async def report(self, period: Period = "day", *, until: datetime | str | None = None) -> Report:
        """A day's or a week's work before `until`, beside the period before it, with the arms of all that was offered.

        The arms are compared over the last eight weeks, since a day has too few tasks to tell anything.
        """
        from mica.navigation.report import ARMS_SPAN, LENGTHS, report

        if period not in LENGTHS:
            raise InvalidInput(f"no period is called {period!r}; there are {', '.join(LENGTHS)}")
        now = self._clock()
        end = self._moment(until, now) or now
        events = await self.events(EventQuery(since=end - ARMS_SPAN, until=end, limit=None))
        return await asyncio.to_thread(report, events, period=period, until=end, prices=prices())
