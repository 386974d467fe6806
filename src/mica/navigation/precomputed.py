"""Predict files for callers that cannot wait, from saved files or from the caches of this process.

A brief must be ready in a tenth of a second, and reading a log and a working tree takes longer. If hooks are installed,
`mica ingest` saves the history and the tree. Otherwise the first request starts reading in the background, for the next
request. A short-lived command does not read in the background; `mica navigate`, `mica upkeep tick` and servers save the
history and the tree for such commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mica.clients.spool import Spools
from mica.model.event import Clock, EventId, EventQuery
from mica.model.walk import walks_of
from mica.navigation.engine import mentions
from mica.navigation.engine.lookup_file import LookupFile
from mica.navigation.engine.mentions import TreeNames
from mica.navigation.engine.prompt import PromptPrediction
from mica.navigation.navigator import NAMES, Navigator, files_of_session, past_file, saved_at
from mica.navigation.places import RankedFile
from mica.store.priority import observe_failure
from mica.store.protocol import EventLog, TrailTable

FRESH_S = 600.0  # age up to which a saved history is good enough; the session's own files are always read
SESSION_EVENTS_MAX = 2_000  # the latest events of a session that are read
CACHED_QUESTIONS_MAX = 32  # requests whose results are cached, for the pages of one list and for repeated requests
CLOSE_S = 10.0  # to finish and save a read in progress


class SavedFiles(NamedTuple):
    """The paths of two files: one with the saved index of a working tree, one with the saved task history."""

    tree: str
    past: str
    is_fresh: bool  # whether the history was saved recently


class PrecomputedRanking:
    """Ranks the files of one or several working trees from saved or cached data, within a time limit."""

    def __init__(
        self,
        log: EventLog,
        trails: TrailTable,
        *,
        navigator: Callable[[Path], Navigator],
        space: str,
        spools: Spools | None,
        home: Path | None,
        clock: Clock,
        reads_ahead: bool = True,
    ) -> None:
        """With `reads_ahead`, a request may start a background read for the next request."""
        self._log = log
        self._trails = trails
        self._navigator = navigator
        self._spools = spools
        self._past = None if home is None else past_file(home, space=space)
        self._clock = clock
        self._reads_ahead = reads_ahead
        self._likely: dict[tuple[object, ...], dict[str, float]] = {}  # by question and saved files
        self._reading: dict[Path, asyncio.Task[None]] = {}

    async def rank(
        self, task: str, *, root: Path, session: str | None, within_s: float | None
    ) -> list[RankedFile] | None:
        """Return the files that the task probably needs and that were opened in the past, best first.

        The result is None if it is not ready within `within_s` seconds. If `within_s` is None, the call waits as long
        as necessary.
        """
        walked = await self._session_files(session)
        saved = await self._find_saved(root)
        if saved is not None:
            found = await asyncio.to_thread(
                rank_from_files, task, session or "", root=str(root), tree=saved.tree, past=saved.past, walked=walked
            )
            if found is not None:
                if not saved.is_fresh and self._reads_ahead:
                    _ = self._read(root)  # for the next question
                return found
        navigator = self._navigator(root)
        if not await navigator.is_ready(now=self._clock(), fresh_s=FRESH_S):
            if not self._reads_ahead:
                return None
            reading = self._read(root)
            await asyncio.wait([reading], timeout=within_s)
            if not reading.done() or reading.cancelled() or reading.exception() is not None:
                return None
        try:
            return await asyncio.wait_for(
                navigator.rank(task, walked=walked), within_s
            )  # it may have to wait for the lock
        except TimeoutError:
            return None

    async def likely(self, task: str, *, root: Path, session: str | None, texts: Sequence[str]) -> dict[str, float]:
        """Return the predicted files with their probabilities, from cached or saved data.

        The result is empty if there is no such data. It may also be empty if none of the texts in `texts` mentions a
        file of the tree, because the caller needs the prediction only for such texts.
        """
        saved = await self._find_saved(root)
        if saved is not None:
            if not await asyncio.to_thread(names_any_file, texts, tree=saved.tree):
                return {}
            walked = await self._session_files(session)
            key = (task, session, walked, root, _written_ns(saved.tree), _written_ns(saved.past))
            found = self._likely.get(key)
            if found is None:
                found = await asyncio.to_thread(
                    likely_from_files,
                    task,
                    session or "",
                    root=str(root),
                    tree=saved.tree,
                    past=saved.past,
                    walked=walked,
                )
            if found is not None:
                self._likely = dict([*self._likely.items(), (key, found)][-CACHED_QUESTIONS_MAX:])
                return found
        navigator = self._navigator(root)
        if navigator.is_busy or not await navigator.is_ready(now=self._clock(), fresh_s=FRESH_S):
            return {}
        return await navigator.likely(task, walked=await self._session_files(session))

    async def save(self, root: Path) -> None:
        """Save the task history, and the index of the working tree at `root`, for later processes.

        Nothing is written if both were saved recently, or if there is no data folder.
        """
        if self._past is not None:
            saved = await self._find_saved(root)
            if saved is None or not saved.is_fresh:
                await self._navigator(root).save(self._past, now=self._clock())

    async def _find_saved(self, root: Path) -> SavedFiles | None:
        """Return the files with the saved tree and history, which `mica ingest` or an earlier request wrote.

        The result is None if one of the files is missing, or if something was purged since they were saved.
        """
        generation = (await self._trails.learned_up_to()).generation  # from the store, since other processes purge too
        prompt_answer = None if self._spools is None else self._spools.prompt_answer()
        if (
            prompt_answer is not None
            and str(root) in prompt_answer.trees
            and saved_at(Path(prompt_answer.past), generation=generation) is not None
        ):
            return SavedFiles(
                tree=prompt_answer.trees[str(root)], past=prompt_answer.past, is_fresh=True
            )  # every ingest writes it again
        index = self._navigator(root).index_file
        if self._past is None or index is None or not index.exists():
            return None
        at = saved_at(self._past, generation=generation)
        if at is None:
            return None
        is_fresh = 0 <= self._clock().timestamp() - at < FRESH_S
        return SavedFiles(tree=str(index), past=str(self._past), is_fresh=is_fresh)

    async def _session_files(self, session: str | None) -> tuple[tuple[str, ...], ...]:
        """Return the files that were touched for each prompt of the session so far. They are read from the log.

        These files influence the ranking most, and the saved history may not include them yet.
        """
        if session is None:
            return ()
        done = await self._log.query(EventQuery(names=NAMES, session=session, limit=SESSION_EVENTS_MAX))
        return files_of_session(walks_of(done), session)

    def _read(self, root: Path) -> asyncio.Task[None]:
        """Return a background task that reads the log and the tree at `root`, and saves both. Start it if necessary."""
        reading = self._reading.get(root)
        if reading is None or reading.done():
            reading = self._reading[root] = asyncio.ensure_future(self._read_and_save(root))
            reading.add_done_callback(observe_failure)
        return reading

    async def _read_and_save(self, root: Path) -> None:
        navigator = self._navigator(root)
        await navigator.prepare(now=self._clock())
        if self._past is not None:
            await navigator.save(self._past, now=self._clock())

    def forget(self) -> None:
        """Delete the saved history and the cached results. Call this after something was purged or withdrawn."""
        self._likely = {}
        if self._past is not None:
            self._past.unlink(missing_ok=True)

    async def close(self) -> None:
        """Wait up to CLOSE_S seconds for background reads whose results will be saved, then cancel the rest."""
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


def rank_from_files(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]] = ()
) -> list[RankedFile] | None:
    """Return the files that the task probably needs and that were opened in the past, best first.

    `tree` and `past` are the paths of the files with the saved tree and the saved history. The result is None if one of
    them cannot be read. `walked` has the files that were touched for each prompt of the session so far.
    """
    prediction = _load_prediction(task, session, root=root, tree=tree, past=past, walked=walked)
    if prediction is None:
        return None
    known = [(place, *prediction.last(place.path)) for place in prediction.places]
    return [
        RankedFile(
            path=place.path,
            lines=prediction.lines(place.path),
            reason=place.reasons[0],
            last=EventId(event),
            at=datetime.fromtimestamp(at, UTC),
            probability=place.probability,
        )
        for place, event, at in known
        if event
    ]


def names_any_file(texts: Iterable[str], *, tree: str) -> bool:
    """Return True if one of the texts mentions a file of the tree that is saved in the file `tree`.

    Return False if that file cannot be read.
    """
    try:
        with Path(tree).open("rb") as files:
            names = TreeNames(saved=LookupFile(files.fileno()))
    except (OSError, ValueError):
        return False
    return any(mentions.is_any_named(text, names) for text in texts)


def likely_from_files(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]] = ()
) -> dict[str, float] | None:
    """Return files with the probabilities that the task needs them.

    The parameters are those of `rank_from_files`. The result is None if the saved tree or history cannot be read.
    """
    prediction = _load_prediction(task, session, root=root, tree=tree, past=past, walked=walked)
    return None if prediction is None else dict(prediction.likely)


def _load_prediction(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]]
) -> PromptPrediction | None:
    try:
        with Path(tree).open("rb") as files, Path(past).open("rb") as before:
            return PromptPrediction(task, session, root=root, tree=files.fileno(), past=before.fileno(), walked=walked)
    except (OSError, ValueError):
        return None
