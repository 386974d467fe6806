"""Predict files for a task in one space, from the history in its log and the files of a working tree.

The history is read as walks. A walk is a prompt with the accesses to files that followed from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Event, EventQuery
from mica.model.hit import CrystalHit, Hit
from mica.model.walk import Step, Walk, walks_of
from mica.navigation.engine.file_blocks import read_text
from mica.navigation.engine.lookup_file import LookupFile, build_file, pack
from mica.navigation.engine.mentions import TreeNames, find_mentions
from mica.navigation.engine.prediction import CONSIDERED, LIKELY_MAX
from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.engine.task_history import CommitFiles, Task, TaskHistory
from mica.navigation.places import Place, Places, RankedFile
from mica.navigation.predictor import Predictor, SessionFiles, add_lines
from mica.navigation.regression import LearnedModel, load_prior
from mica.navigation.repository import COMMIT, GitCommit, commit_of
from mica.navigation.tree_index import TreeIndex, index_file, replace_file
from mica.store.priority import observe_failure
from mica.store.protocol import EventLog, TrailTable

R = TypeVar("R")

TOUCHING = ("read", "edit", "create")
SESSIONS_MAX = 200  # the latest sessions whose files are saved for hooks
EVENTS_MAX = 50_000  # the latest events that are read: months of one person's work
LIMIT_MAX = 1_000  # the most files that one request may ask for
IDLE = timedelta(minutes=30)  # a task without events for this long has ended
NAMES = ("mark", "mark.retracted", "turn.started", "command.run", "file.*", "shell.run", COMMIT)

FILES_WEIGHT = 0.5  # how much the probability of a mentioned file raises a result's score; see docs/ranking.md
TEXT_CHARACTERS_MAX = 20_000  # the beginning of a search result that is searched for file names


class LogKnowledge(NamedTuple):
    """The task history and the walks that were read from the log at the time `at`.

    At that time, `position` was the last position of the log, and `generation` the number of purges so far. If either
    number has changed since, the history is out of date.
    """

    position: int
    generation: int
    at: datetime
    past: TaskHistory
    walks: list[Walk]

    def is_fresh(self, now: datetime, within: timedelta) -> bool:
        """True if the history was read less than `within` before `now`."""
        return timedelta(0) <= now - self.at < within


class Navigator:
    """Predicts files for one space and one working tree. It caches the task history and the index of the tree."""

    def __init__(self, log: EventLog, trails: TrailTable, root: Path, *, space: str, home: Path | None) -> None:
        self._log = log
        self._trails = trails
        self._root = root
        self._index = TreeIndex(root, None if home is None else index_file(home, space=space, root=root))
        self._learned = None if home is None else learned_file(home, space=space)
        self._past: LogKnowledge | None = None
        self._lock = asyncio.Lock()
        self._working: set[asyncio.Future[Any]] = set()

    async def places(self, task: str, *, limit: int, session: str | None, now: datetime) -> Places:
        """Predict at most `limit` files for a task, each with the lines to read first.

        The files that `session` has touched so far are taken into account. Raises InvalidInput for an invalid limit.
        """
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidInput(f"{limit} places are not possible; give 0 to {LIMIT_MAX:,}")
        return await self._exclusively(partial(self._places, task, limit=limit, session=session, now=now))

    async def _places(self, task: str, *, limit: int, session: str | None, now: datetime) -> Places:
        _, _, _, past, walks = await self._history(now)
        missing = await asyncio.to_thread(self._index.refresh)
        if not past.commit_count:
            missing["history"] = "no commits are known here; `mica trails learn commits` imports them"
        places = await asyncio.to_thread(self._answer, task, past, files_of_session(walks, session), limit)
        known = {path for walk in walks for path in walk.touched}
        if known and not any(path in self._index.tree for path in known):
            missing.setdefault("files", describe_absent(len(known)))
        return Places(places, missing=missing)

    async def prepare(self, *, now: datetime) -> None:
        """Read the log and the working tree into the caches, so that the next request is fast."""
        await self._exclusively(partial(self._prepare, now))

    async def _prepare(self, now: datetime) -> None:
        await self._history(now)
        await asyncio.to_thread(self._index.refresh)

    @property
    def is_busy(self) -> bool:
        """True while a request is being answered or the log is being read."""
        return self._lock.locked()

    async def _exclusively(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run `work` while no other work runs, and return its result.

        If the caller is cancelled, `work` still runs to its end.
        """

        async def locked() -> R:
            async with self._lock:
                return await work()

        task = asyncio.ensure_future(locked())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        task.add_done_callback(observe_failure)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all running work and wait until it has stopped."""
        if self._working:
            for task in self._working:
                task.cancel()
            await asyncio.wait(self._working)

    def forget(self) -> None:
        """Drop the cached history. Call this after something in the log was purged or withdrawn."""
        self._past = None

    async def is_ready(self, *, now: datetime, fresh_s: float) -> bool:
        """True if a history is cached that was read less than `fresh_s` seconds ago, and nothing was purged since."""
        knowledge = await self._current_knowledge()
        return knowledge is not None and knowledge.is_fresh(now, timedelta(seconds=fresh_s))

    async def rank(self, task: str, *, walked: Sequence[tuple[str, ...]]) -> list[RankedFile] | None:
        """Return the files that the task probably needs and that were opened in the past, best first.

        `walked` has the files that were touched for each prompt of the session so far. The log is not read: if no
        history is cached, the result is None.
        """
        return await self._exclusively(partial(self._rank, task, walked))

    async def _rank(self, task: str, walked: Sequence[tuple[str, ...]]) -> list[RankedFile] | None:
        knowledge = await self._current_knowledge()
        return None if knowledge is None else await asyncio.to_thread(self._rank_opened_files, task, knowledge, walked)

    async def likely(self, task: str, *, walked: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """Return the predicted files with their probabilities; empty if no history is cached.

        `walked` has the files that were touched for each prompt of the session so far. The log is not read.
        """
        return await self._exclusively(partial(self._likely, task, walked))

    async def _likely(self, task: str, walked: Sequence[tuple[str, ...]]) -> dict[str, float]:
        knowledge = await self._current_knowledge()
        if knowledge is None:
            return {}
        predictor = Predictor(self._index.tree, knowledge.past, learned=load_learned(self._learned))
        prediction = await asyncio.to_thread(predictor.predict, PromptQuestion(text=task, session=tuple(walked)))
        return dict(prediction.ranked[:LIKELY_MAX])

    def _rank_opened_files(
        self, task: str, knowledge: LogKnowledge, walked: Sequence[tuple[str, ...]]
    ) -> list[RankedFile]:
        places = self._answer(task, knowledge.past, walked, CONSIDERED)
        last = _last_steps(knowledge.walks)
        return [
            RankedFile(
                path=place.path,
                lines=tuple((each.start, each.end) for each in place.lines),
                reason=place.reasons[0],
                last=last[place.path].event,
                at=last[place.path].at,
                probability=place.probability,
            )
            for place in places
            if place.path in last
        ]

    async def _current_knowledge(self) -> LogKnowledge | None:
        """Return the cached history; None without one, or if any process purged something since it was read."""
        knowledge, generation = self._past, await self._generation()
        return knowledge if knowledge is not None and knowledge.generation == generation else None

    async def _generation(self) -> int:
        """Return the number of purges so far. It is read from the store, because other processes purge too."""
        return (await self._trails.learned_up_to()).generation

    async def _history(self, now: datetime) -> LogKnowledge:
        """Return the history up to `now`.

        A cached history is returned if it is younger than IDLE and the log has not changed since it was read.
        """
        position, generation = await self._log.last_position(), await self._generation()
        knowledge = self._past
        if (
            knowledge is not None
            and (knowledge.position, knowledge.generation) == (position, generation)
            and knowledge.is_fresh(now, IDLE)
        ):
            return knowledge
        events = await self._log.query(EventQuery(names=NAMES, until=now, limit=EVENTS_MAX))
        past, walks = await asyncio.to_thread(read_history, events, now)
        self._past = knowledge = LogKnowledge(position, generation, now, past, walks)
        return knowledge

    @property
    def index_file(self) -> Path | None:
        """The file in which the index of the working tree is saved; None if there is no data folder."""
        return self._index.file

    async def save(self, file: Path, *, now: datetime) -> Path | None:
        """Save the history into `file` and the index of the working tree into its own file.

        Hooks and other processes read both files. Saving is cheap if neither the log nor the learned weights have
        changed since the last call. Returns the path of the index file; None if there is no data folder.
        """
        return await self._exclusively(partial(self._save, file, now))

    async def _save(self, file: Path, now: datetime) -> Path | None:
        position, generation = await self._log.last_position(), await self._generation()
        state = (position, _changed_ns(self._learned))
        if not await asyncio.to_thread(_is_current, file, state, generation, now):
            await self._write(file, await self._history(now), state, now)
        await asyncio.to_thread(self._index.refresh)
        return self._index.file

    async def _write(self, file: Path, knowledge: LogKnowledge, state: tuple[int, int], now: datetime) -> None:
        """Save the history, unless something was purged after it was read.

        If something is purged while the file is written, the file is removed again.
        """
        if knowledge.generation != await self._generation():
            return
        learned = load_learned(self._learned) or LearnedModel(model=load_prior())
        entries = [
            *_entries(knowledge.past, knowledge.walks, learned),
            ("kept", "of", pack((*state, now.timestamp()))),
            ("kept", "generation", pack(knowledge.generation)),
        ]
        await asyncio.to_thread(replace_file, file, build_file(entries))
        if knowledge.generation != await self._generation():
            await asyncio.to_thread(file.unlink, missing_ok=True)

    def _answer(self, task: str, past: TaskHistory, walked: Sequence[tuple[str, ...]], limit: int) -> list[Place]:
        predictor = Predictor(self._index.tree, past, learned=load_learned(self._learned))
        prediction = predictor.predict(PromptQuestion(text=task, session=tuple(walked)))
        root = str(self._root)
        return [
            add_lines(each, read_text(root, each.path), task, prediction)
            for each in predictor.places(prediction, limit=limit)
        ]


def describe_absent(count: int) -> str:
    """Say that files which agents opened are not in the working tree now."""
    return f"known files are not on this disk: {count:,}"


def read_history(events: Sequence[Event], now: datetime) -> tuple[TaskHistory, list[Walk]]:
    """Return a pair: the task history up to `now` that the events show, and the walks in these events."""
    walks = [walk for walk in walks_of(events) if walk.at <= now]
    changes = [change for event in events if event.name == COMMIT and (change := commit_of(event)) is not None]
    return build_history(walks, changes, now=now), walks


def build_history(walks: Iterable[Walk], changes: Iterable[GitCommit] = (), *, now: datetime) -> TaskHistory:
    """Build a task history from the walks that have ended and the commits that were made until `now`, in order of time.

    A walk has ended if its session has had another prompt since, or no event for half an hour. `changes` are commits
    read from git. A commit that is only known from a walk is added with the files that the session changed for it.
    """
    past, sessions = TaskHistory(), SessionFiles()
    walks = sorted(walks, key=lambda walk: (walk.ended_at, walk.id))
    latest = {walk.session: walk.id for walk in sorted(walks, key=lambda walk: (walk.at, walk.id))}
    ended = [
        walk
        for walk in walks
        if walk.ended_at <= now and (latest[walk.session] != walk.id or now - walk.ended_at > IDLE)
    ]
    commits = sorted((change for change in changes if change.at <= now), key=lambda change: change.at)
    in_git = {change.subject for change in commits}
    place = 0
    for walk in ended:
        while place < len(commits) and commits[place].at <= walk.ended_at:
            past.learn_commit(_commit(commits[place]))
            place += 1
        past.learn(Task(text=walk.prompt, files=walk.touched))
        for commit in sessions.end(walk):
            if commit.subject not in in_git:
                past.learn_commit(commit)
    for change in commits[place:]:
        past.learn_commit(_commit(change))
    return past


def _commit(change: GitCommit) -> CommitFiles:
    return CommitFiles(subject=change.subject, files=change.files, renamed=change.renamed)


def files_of_session(walks: Sequence[Walk], session: str | None) -> tuple[tuple[str, ...], ...]:
    """Return the files that were touched for each prompt of a session, in order. Prompts without files are left out."""
    if session is None:
        return ()
    return tuple(walk.touched for walk in walks if walk.session == session and walk.touched)


def _entries(past: TaskHistory, walks: Sequence[Walk], learned: LearnedModel) -> Iterator[tuple[str, str, bytes]]:
    weights = learned.weights
    yield "offers", "worth", pack(learned.worth.by_kind)
    yield "offers", "weights", pack((weights.start, weights.slopes, weights.corrections))
    yield from past.entries()
    for path, step in _last_steps(walks).items():
        yield "last", path, pack((step.event, step.at.timestamp()))
    latest = dict.fromkeys(walk.session for walk in reversed(walks) if walk.session is not None)
    last_at: dict[str | None, float] = {}
    for walk in walks:
        last_at[walk.session] = max(
            last_at.get(walk.session, 0.0), *(each.timestamp() for each in (walk.at, walk.ended_at))
        )
    for session in list(latest)[:SESSIONS_MAX]:
        yield "sessions", session, pack(files_of_session(walks, session))
        yield "heard", session, pack(last_at[session])


def _last_steps(walks: Iterable[Walk]) -> dict[str, Step]:
    steps = sorted((step for walk in walks for step in walk.steps if not step.failed), key=lambda step: step.at)
    return {step.path: step for step in steps if step.operation in TOUCHING}


def _is_current(file: Path, state: tuple[int, int], generation: int, now: datetime) -> bool:
    """True if the history saved in `file` is younger than IDLE, and the log and the weights have not changed since.

    `state` is a pair of the log's last position and the time at which the learned weights were last changed, and
    `generation` is the number of purges; all of them are the current values.
    """
    try:
        with file.open("rb") as opened:
            saved = LookupFile(opened.fileno())
        position, changed_ns, at = saved.get("kept", "of", (0, 0, 0.0))
        if saved.get("kept", "generation", -1) != generation:
            return False
    except (OSError, ValueError, TypeError, EOFError):
        return False
    return (position, changed_ns) == state and 0 <= now.timestamp() - at < IDLE.total_seconds()


def _changed_ns(file: Path | None) -> int:
    try:
        return 0 if file is None else file.stat().st_mtime_ns
    except OSError:
        return 0


def past_file(home: Path, *, space: str) -> Path:
    """Return the path of the file in which a space's history is saved. Histories saved for hooks have other paths."""
    return home / "navigation" / f"{space}.past"


def saved_at(file: Path, *, generation: int) -> float | None:
    """Return the Unix time at which a history was saved.

    The result is None if the file cannot be read, or if something was purged since: `generation` is the current number
    of purges.
    """
    try:
        with file.open("rb") as opened:
            saved = LookupFile(opened.fileno())
        at = float(saved.get("kept", "of", (0, 0, 0.0))[2])
        return at if saved.get("kept", "generation", -1) == generation else None
    except (OSError, ValueError, TypeError, EOFError):
        return None


def learned_file(home: Path, *, space: str) -> Path:
    """Return the path of the file with the model learned from a space's tasks. The file contains numbers, no text."""
    return home / "navigation" / f"{space}.learned.json"


def load_learned(file: Path | None) -> LearnedModel | None:
    """Load the model learned from a space's tasks; None if the file is missing or cannot be read.

    Without a learned model, the predictor uses the model that is shipped with mica.
    """
    if file is None:
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=LearnedModel)
    except (OSError, msgspec.DecodeError):
        return None


def save_learned(file: Path, learned: LearnedModel) -> None:
    replace_file(file, msgspec.json.encode(learned))


def boost_named_files(hits: Sequence[Hit | CrystalHit], likely: Mapping[str, float]) -> list[Hit | CrystalHit]:
    """Return the search results in a new order: results that mention a likely file move up.

    `likely` maps files to probabilities. The score of a result that was corrected by another mark is not raised, so
    that it stays behind the correction.
    """
    names = TreeNames(likely)
    boosted = [_boost(hit, names, likely) for hit in hits]
    return sorted(boosted, key=lambda hit: -hit.score)  # a stable sort keeps the order of equal results


def _boost(hit: Hit | CrystalHit, names: TreeNames, likely: Mapping[str, float]) -> Hit | CrystalHit:
    if isinstance(hit, Hit) and hit.corrected_by is not None:
        return hit
    named = find_mentions(hit.text[:TEXT_CHARACTERS_MAX], names).paths
    best = max((share * likely[path] for path, share in named.items()), default=0.0)
    if best <= 0:
        return hit
    factor = 1 + FILES_WEIGHT * best
    return msgspec.structs.replace(hit, score=hit.score * factor, parts=hit.parts | {"files": factor})
