"""Navigation in a space: its log is the past, the working tree is what can be offered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from mica.brief.file_source import Ranked
from mica.brief.question import heed
from mica.errors import InvalidInput
from mica.model.event import Event, EventQuery
from mica.model.walk import Step, Walk, walks_of
from mica.navigation.commits import COMMIT, Change, change_of
from mica.navigation.engine.file_text import text_of
from mica.navigation.engine.gate import CONSIDERED
from mica.navigation.engine.lookup_file import Kept, file_of, packed
from mica.navigation.engine.prediction import LIKELY_MAX
from mica.navigation.engine.signals import Question
from mica.navigation.engine.task_history import Commit, Past, Task
from mica.navigation.learned import Learned
from mica.navigation.places import Place, Places
from mica.navigation.predictor import Navigator, Sessions, with_lines
from mica.navigation.regression import prior
from mica.navigation.tree_index import Index, index_file, write
from mica.store.protocol import Store

R = TypeVar("R")

TOUCHING = ("read", "edit", "create")
SESSIONS_MAX = 200  # whose files hooks know: an older one is seldom gone on with
EVENTS_MAX = 50_000  # the latest of the log that are learned from: months of one person's work
LIMIT_MAX = 1_000
IDLE = timedelta(minutes=30)  # after which a task is over that nothing followed
NAMES = ("mark", "mark.retracted", "turn.started", "command.run", "file.*", "shell.run", COMMIT)


class _Read(NamedTuple):
    """What the log taught, as it was then."""

    position: int
    generation: int
    at: datetime
    past: Past
    walks: list[Walk]

    def is_fresh(self, now: datetime, within: timedelta) -> bool:
        """Whether this was read so shortly before."""
        return timedelta(0) <= now - self.at < within


class Navigating:
    """Answers for one space and one working tree; what it has read is kept for the next question."""

    def __init__(self, store: Store, root: Path, *, home: Path | None) -> None:
        self._store = store
        self._root = root
        self._index = Index(root, None if home is None else index_file(home, space=store.space, root=root))
        self._learned = None if home is None else learned_file(home, space=store.space)
        self._past: _Read | None = None
        self._lock = asyncio.Lock()
        self._working: set[asyncio.Future[Any]] = set()

    async def places(self, task: str, *, limit: int, session: str | None, now: datetime) -> Places:
        """Where a task will lead. Raises InvalidInput for a limit that is not possible."""
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidInput(f"{limit} places are not possible; give 0 to {LIMIT_MAX:,}")
        return await self._alone(partial(self._places, task, limit=limit, session=session, now=now))

    async def _places(self, task: str, *, limit: int, session: str | None, now: datetime) -> Places:
        _, _, _, past, walks = await self._known(now)
        missing = await asyncio.to_thread(self._index.refresh)
        if not past.commit_count:
            missing["history"] = "no commits are known here; `mica learn git` takes them in"
        places = await asyncio.to_thread(self._answer, task, past, session_of(walks, session), limit)
        return Places(places, missing=missing)

    async def ready(self, *, now: datetime) -> None:
        """Read what questions are answered by."""
        await self._alone(partial(self._ready, now))

    async def _ready(self, now: datetime) -> None:
        await self._known(now)
        await asyncio.to_thread(self._index.refresh)

    @property
    def is_busy(self) -> bool:
        """Whether somebody is being answered, or reads."""
        return self._lock.locked()

    async def _alone(self, work: Callable[[], Awaitable[R]]) -> R:
        """Do this while nobody else does anything, to its end: a caller who has gone leaves a thread that works on."""

        async def locked() -> R:
            async with self._lock:
                return await work()

        task = asyncio.ensure_future(locked())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        task.add_done_callback(heed)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what nobody waits for any more."""
        if self._working:
            for task in self._working:
                task.cancel()
            await asyncio.wait(self._working)

    def forget(self) -> None:
        """Know nothing of the past any more: something of it was taken back."""
        self._past = None

    async def is_ready(self, *, now: datetime, fresh_s: float) -> bool:
        """Whether a past was read that will do, though more may have been recorded since; nothing was purged since."""
        read = await self._unpurged()
        return read is not None and read.is_fresh(now, timedelta(seconds=fresh_s))

    async def ranked(self, task: str, *, walked: Sequence[tuple[str, ...]]) -> list[Ranked] | None:
        """The files of a task that somebody has opened before, best first, by the past that was read; None without one.

        `walked` is what the session did until now, prompt by prompt.
        """
        return await self._alone(partial(self._ranked, task, walked))

    async def _ranked(self, task: str, walked: Sequence[tuple[str, ...]]) -> list[Ranked] | None:
        read = await self._unpurged()
        return None if read is None else await asyncio.to_thread(self._opened_before, task, read, walked)

    async def likely(self, task: str, *, walked: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """The files that a task will need, with their probabilities, by the past that was read."""
        return await self._alone(partial(self._likely, task, walked))

    async def _likely(self, task: str, walked: Sequence[tuple[str, ...]]) -> dict[str, float]:
        read = await self._unpurged()
        if read is None:
            return {}
        navigator = Navigator(self._index.tree, read.past, learned=load_learned(self._learned))
        asked = await asyncio.to_thread(navigator.ask, Question(text=task, session=tuple(walked)))
        return dict(asked.ranked[:LIKELY_MAX])

    def _opened_before(self, task: str, read: _Read, walked: Sequence[tuple[str, ...]]) -> list[Ranked]:
        places = self._answer(task, read.past, walked, CONSIDERED)
        last = _last(read.walks)
        return [
            Ranked(
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

    async def _unpurged(self) -> _Read | None:
        """What was read, unless something was purged since, by this process or another: it may quote that."""
        read, generation = self._past, await self._generation()
        return read if read is not None and read.generation == generation else None

    async def _generation(self) -> int:
        """As it is now: the store's own `generation` is as of its last write, and others purge, too."""
        return (await self._store.lesson()).generation

    async def _known(self, now: datetime) -> _Read:
        """What the log teaches until now; kept while nothing changes in it and no task has come to rest."""
        position, generation = await self._store.last_position(), await self._generation()
        read = self._past
        if read is not None and (read.position, read.generation) == (position, generation) and read.is_fresh(now, IDLE):
            return read
        events = await self._store.events(EventQuery(names=NAMES, until=now, limit=EVENTS_MAX))
        past, walks = await asyncio.to_thread(known, events, now)
        self._past = read = _Read(position, generation, now, past, walks)
        return read

    @property
    def index_file(self) -> Path | None:
        """Where the tree is kept; None where nothing is."""
        return self._index.file

    async def keep(self, file: Path, *, now: datetime) -> Path | None:
        """Write for hooks what is known of the past into a file, and of the tree into another, which is returned.

        Costs next to nothing while neither the log nor what was learned has changed. None where nothing is kept here.
        """
        return await self._alone(partial(self._keep, file, now))

    async def _keep(self, file: Path, now: datetime) -> Path | None:
        position, generation = await self._store.last_position(), await self._generation()
        state = (position, _changed_ns(self._learned))
        if not await asyncio.to_thread(_is_kept, file, state, generation, now):
            await self._write(file, await self._known(now), state, now)
        await asyncio.to_thread(self._index.refresh)
        return self._index.file

    async def _write(self, file: Path, read: _Read, state: tuple[int, int], now: datetime) -> None:
        """Keep what was read, and nothing where something was purged since: whoever purges removes the file once."""
        if read.generation != await self._generation():
            return
        learned = load_learned(self._learned) or Learned(model=prior())
        entries = [
            *_entries(read.past, read.walks, learned),
            ("kept", "of", packed((*state, now.timestamp()))),
            ("kept", "generation", packed(read.generation)),
        ]
        await asyncio.to_thread(write, file, file_of(entries))
        if read.generation != await self._generation():
            await asyncio.to_thread(file.unlink, missing_ok=True)

    def _answer(self, task: str, past: Past, walked: Sequence[tuple[str, ...]], limit: int) -> list[Place]:
        navigator = Navigator(self._index.tree, past, learned=load_learned(self._learned))
        asked = navigator.ask(Question(text=task, session=tuple(walked)))
        root = str(self._root)
        return [
            with_lines(each, text_of(root, each.path), task, asked) for each in navigator.places(asked, limit=limit)
        ]


def known(events: Sequence[Event], now: datetime) -> tuple[Past, list[Walk]]:
    """What events teach until now, and the walks among them."""
    walks = [walk for walk in walks_of(events) if walk.at <= now]
    changes = [change for event in events if event.name == COMMIT and (change := change_of(event)) is not None]
    return past_of(walks, changes, now=now), walks


def past_of(walks: Iterable[Walk], changes: Iterable[Change] = (), *, now: datetime) -> Past:
    """Tasks and commits in the order in which they ended, without tasks that still run.

    A task is over when its session has asked for something else since, or after half an hour. What a session committed
    is known from git where git was learned, else from what the session said.
    """
    past, sessions = Past(), Sessions()
    walks = sorted(walks, key=lambda walk: (walk.ended_at, walk.id))
    latest = {walk.session: walk.id for walk in sorted(walks, key=lambda walk: (walk.at, walk.id))}
    over = [
        walk
        for walk in walks
        if walk.ended_at <= now and (latest[walk.session] != walk.id or now - walk.ended_at > IDLE)
    ]
    commits = sorted((change for change in changes if change.at <= now), key=lambda change: change.at)
    in_git = {change.subject for change in commits}
    place = 0
    for walk in over:
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


def _commit(change: Change) -> Commit:
    return Commit(subject=change.subject, files=change.files, renamed=change.renamed)


def session_of(walks: Sequence[Walk], session: str | None) -> tuple[tuple[str, ...], ...]:
    """The files of a session's prompts so far, in order."""
    if session is None:
        return ()
    return tuple(walk.touched for walk in walks if walk.session == session and walk.touched)


def _entries(past: Past, walks: Sequence[Walk], learned: Learned) -> Iterator[tuple[str, str, bytes]]:
    """What a hook looks up of the past (`mica.navigation.engine.prompt`)."""
    weights = learned.weights
    yield "offers", "worth", packed(learned.worth.by_kind)
    yield "offers", "weights", packed((weights.start, weights.slopes, weights.off))
    yield from past.entries()
    for path, step in _last(walks).items():
        yield "last", path, packed((step.event, step.at.timestamp()))
    latest = dict.fromkeys(walk.session for walk in reversed(walks) if walk.session is not None)
    heard: dict[str | None, float] = {}
    for walk in walks:
        heard[walk.session] = max(
            heard.get(walk.session, 0.0), *(each.timestamp() for each in (walk.at, walk.ended_at))
        )
    for session in list(latest)[:SESSIONS_MAX]:
        yield "sessions", session, packed(session_of(walks, session))
        yield "heard", session, packed(heard[session])


def _last(walks: Iterable[Walk]) -> dict[str, Step]:
    """What last read or changed each file."""
    steps = sorted((step for walk in walks for step in walk.steps if not step.failed), key=lambda step: step.at)
    return {step.path: step for step in steps if step.operation in TOUCHING}


def _is_kept(file: Path, state: tuple[int, int], generation: int, now: datetime) -> bool:
    """Whether a file holds what is known in this state; a task that came to rest since changes it too."""
    try:
        with file.open("rb") as opened:
            kept = Kept(opened.fileno())
        position, changed_ns, at = kept.get("kept", "of", (0, 0, 0.0))
        if kept.get("kept", "generation", -1) != generation:
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
    """Where what is known of the past is kept for a space that hooks keep nothing of."""
    return home / "navigation" / f"{space}.past"


def kept_at(file: Path, *, generation: int) -> float | None:
    """When a file was written that holds what is known, in seconds since 1970; None where there is none.

    One from before a purge is none: it may hold what was purged.
    """
    try:
        with file.open("rb") as opened:
            kept = Kept(opened.fileno())
        of_past = float(kept.get("kept", "of", (0, 0, 0.0))[2])
        return of_past if kept.get("kept", "generation", -1) == generation else None
    except (OSError, ValueError, TypeError, EOFError):
        return None


def learned_file(home: Path, *, space: str) -> Path:
    """Where the numbers are kept that the tasks of a space have taught. Contents are not among them."""
    return home / "navigation" / f"{space}.learned.json"


def load_learned(file: Path | None) -> Learned | None:
    """What was learned here; None where nothing was, or it cannot be read: then the prior counts."""
    if file is None:
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Learned)
    except (OSError, msgspec.DecodeError):
        return None


def save_learned(file: Path, learned: Learned) -> None:
    write(file, msgspec.json.encode(learned))
