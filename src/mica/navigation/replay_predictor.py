"""Predict each past task from the files and events that existed at its time, to replay tasks or learn from them.

A task is a walk: a prompt with the accesses to files that followed from it.
"""

from __future__ import annotations

import subprocess
from binascii import crc32
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType

import msgspec

from mica.llm.prices import Prices
from mica.model.event import Event, EventId
from mica.model.walk import Walk, walks_of
from mica.navigation.engine.file_blocks import READ_BYTES_MAX, SIZE_BYTES_MAX, is_secret
from mica.navigation.engine.prediction import Prediction, kind_of, select_offer, shortlist
from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.engine.task_history import Task
from mica.navigation.engine.tree import IndexedFile
from mica.navigation.navigator import IDLE
from mica.navigation.places import Place
from mica.navigation.predictor import Predictor, SessionFiles, add_lines
from mica.navigation.regression import LearnedModel
from mica.navigation.replay import Guess, Replay, ReplayPrediction, count_savings, latest_of, replay
from mica.navigation.repository import FILES_MAX, git
from mica.navigation.trails.task_kinds import verb_class
from mica.navigation.tree_index import index_text
from mica.tokens import about

REGULAR = ("100644", "100755")  # neither links nor submodules
HISTORY_TIMEOUT_S = 120.0  # for git to list the commits

LEARNED_TASKS_MAX = 300  # the latest tasks that the weights are learned from; takes about twenty seconds
NO_WALKS = "this space has no session of a coding agent yet; `mica import` reads past sessions"
ELSEWHERE = "the directory of these sessions is not on this machine; only files that were opened before can be offered"
KNOWN_MAX = 50_000  # number of tasks that are remembered as learned
GUESSES = 80  # number of predicted files of one task whose probability is checked


class FileVersion(msgspec.Struct, frozen=True):
    """One version of a file in a git repository. `text` is None if the file is binary, too large, missing or secret."""

    path: str
    size_bytes: int
    text: str | None


class TreeChange(msgspec.Struct, frozen=True):
    """The files that were added, changed or removed between two times."""

    put: list[FileVersion]
    removed: list[str]


class PastTrees:
    """Reads the files of a git repository as they were at past times, which must be requested in order.

    It runs a git process; call `close` at the end, or use the object in a `with` statement.
    """

    def __init__(self, root: Path) -> None:
        """Read the list of commits. Raises OSError or SubprocessError if there is no git or no history."""
        self._root = root
        listed = git(root, "log", "--first-parent", "--format=%H %ct", timeout_s=HISTORY_TIMEOUT_S)
        line = [row.split() for row in listed.decode().splitlines()][::-1]
        self._commits = [commit for commit, _ in line]
        self._times: list[int] = []
        for _, at in line:  # clocks jump: a commit is never older than its parent
            self._times.append(max(int(at), self._times[-1] if self._times else 0))
        self._here: str | None = None
        self._names: dict[str, str] = {}  # the blob name of each file
        self._objects: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PastTrees:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._objects is not None:
            self._objects.kill()
            self._objects.communicate()
            self._objects = None

    def move(self, at: datetime) -> TreeChange:
        """Move to the time `at`, and return which files have changed since the previous call.

        `at` must not be earlier than in the previous call. The first call returns all files.
        """
        index = bisect_right(self._times, int(at.timestamp()))
        commit = self._commits[index - 1] if index else None
        if commit is None or commit == self._here:
            return TreeChange([], [])
        changed, removed = self._changed(commit)
        self._here = commit
        self._names.update(changed)
        for path in removed:
            self._names.pop(path, None)
        return TreeChange([self._version(path, name) for path, name in changed], removed)

    def text(self, path: str) -> str | None:
        """Return the text of a file at the time of the last `move`.

        The result is None if the file was missing then, or if it is binary, too large or secret.
        """
        name = self._names.get(path)
        return None if name is None else self._version(path, name).text

    def _changed(self, commit: str) -> tuple[list[tuple[str, str]], list[str]]:
        """Return what has changed in `commit` since the commit of the last `move`: a pair of lists.

        The first list has a pair (path, name of the git blob) for each file that was added or changed. The second list
        has the paths of the files that were removed.
        """
        if self._here is None:
            listed = git(self._root, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
            rows = [row.decode("utf-8", "replace").partition("\t") for row in listed if row]
            files = [(path, head.split()[2]) for head, _, path in rows if head.split()[0] in REGULAR]
            return files[:FILES_MAX], []
        changed: list[tuple[str, str]] = []
        removed: list[str] = []
        output = git(self._root, "diff-tree", "-r", "-z", "--raw", "--no-renames", self._here, commit).split(b"\0")
        for head, path in zip(*[iter(part.decode("utf-8", "replace") for part in output[:-1])] * 2, strict=False):
            _, mode, _, name, _ = head.split()
            if mode in REGULAR:
                changed.append((path, name))
            else:
                removed.append(path)
        return changed, removed

    def _version(self, path: str, name: str) -> FileVersion:
        if is_secret(path):
            return FileVersion(path, 0, None)
        content, size_bytes = self._content(name)
        is_text = content is not None and b"\0" not in content[:8_000]
        return FileVersion(
            path, size_bytes, content.decode("utf-8", "replace") if content is not None and is_text else None
        )

    def _content(self, name: str) -> tuple[bytes | None, int]:
        """Read the beginning of the git blob `name`, which has the content of one version of a file.

        Returns a pair: the content, and the full size in bytes. The content is None if the blob is too large or
        missing. All blobs are read through one long-running git process. Raises OSError if this process stops.
        """
        if self._objects is None:
            self._objects = subprocess.Popen(
                ["git", "-C", str(self._root), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        requests, replies = self._objects.stdin, self._objects.stdout
        if requests is None or replies is None:
            raise OSError("git gave no pipes")
        requests.write(name.encode() + b"\n")
        requests.flush()
        head = replies.readline().split()
        if len(head) != 3:
            if not head:
                raise OSError("git stopped answering")
            return None, 0  # a shallow or partial clone lacks some blobs
        size_bytes = int(head[2])
        read = b""
        for part in _parts(size_bytes + 1):
            content = replies.read(part)
            read += content[: max(0, READ_BYTES_MAX - len(read))]
        return (None if size_bytes > SIZE_BYTES_MAX else read[: min(size_bytes, READ_BYTES_MAX)]), size_bytes


def _parts(size_bytes: int, step: int = 2**20) -> Iterator[int]:
    while size_bytes > 0:
        yield min(step, size_bytes)
        size_bytes -= step


class ReplayPredictor:
    """A `TaskPredictor` that uses the engine of `navigate` and learns task by task.

    With `trees`, the names and words of files are those at the time of each task. If `trees` is None, a file can be
    predicted only after it was opened once.
    """

    def __init__(
        self,
        trees: PastTrees | None,
        *,
        render: Callable[[Sequence[Place]], str],
    ) -> None:
        self._trees = trees
        self._render = render
        self.predictor = Predictor()
        self._sessions = SessionFiles()
        self._predictions: dict[EventId, tuple[Prediction, str, list[Place]]] = {}

    def predict(self, walk: Walk) -> ReplayPrediction:
        if self._trees is not None:
            moved = self._trees.move(walk.at)
            for path in moved.removed:
                self.predictor.tree.remove(path)
            for file in moved.put:
                self.predictor.tree.put(file.path, index_text(file.text, size_bytes=file.size_bytes))
        prediction = self.predictor.predict(PromptQuestion(text=walk.prompt, session=self._sessions.begin(walk)))
        places = self.predictor.places(prediction, limit=GUESSES)
        candidates = [add_lines(place, self._text(place.path), walk.prompt, prediction) for place in shortlist(places)]
        text = self._render(candidates)
        self._predictions[walk.id] = prediction, kind_of(places), candidates
        worth = self.predictor.learned.worth.by_kind
        is_offered = bool(select_offer(walk.prompt, places, cost_tokens=about(text), worth=worth))
        return ReplayPrediction(
            guesses=tuple(map(_guess, places)),
            offered=tuple(map(_guess, candidates)) if is_offered else (),
            text=text if is_offered else "",
            named=any(place.tier == "named" for place in places),
        )

    def _text(self, path: str) -> str | None:
        return None if self._trees is None else self._trees.text(path)

    def learn(self, walk: Walk) -> None:
        if self._trees is None:
            for step in walk.steps:
                if step.operation != "list" and not step.failed and step.path not in self.predictor.tree:
                    self.predictor.tree.put(step.path, IndexedFile())
        if walk.id not in self._predictions:
            self._sessions.begin(walk)  # not predicted, but later prompts of its session need its files
        prediction, kind, candidates = self._predictions.pop(walk.id, (None, "open", []))
        if candidates:
            tokens, _ = count_savings(walk, [place.path for place in candidates])
            self.predictor.learn_savings(kind, candidates[0].probability, tokens)
        self.predictor.learn(Task(text=walk.prompt, files=walk.touched), prediction)
        for commit in self._sessions.end(walk):
            self.predictor.past.learn_commit(commit)


def replay_events(
    events: Sequence[Event],
    root: Path | None,
    *,
    render: Callable[[Sequence[Place]], str],
    prices: Prices,
    latest: int | None,
    on_progress: Callable[[int], None],
) -> Replay:
    """Replay all walks in these events, with the files that the repository at `root` had at the time of each walk.

    Only the last `latest` walks are measured; None means all. If there are no walks, no working tree or no git history,
    the field `missing` of the result gives the reason.
    """
    walks = walks_of(events)
    try:
        trees = None if root is None else PastTrees(root)
        missing = {} if walks else {"tasks": NO_WALKS}
        missing |= {"files": ELSEWHERE} if walks and not trees else {}
    except (OSError, subprocess.SubprocessError):
        trees, missing = None, {"git": f"{root} has no git history; only files that were opened before can be offered"}
    try:
        predictor = ReplayPredictor(trees, render=render)
        judged = latest_of(walks, latest)
        result = replay(walks, predictor, prices=prices, shape=verb_class, judged=judged, on_progress=on_progress)
    finally:
        if trees is not None:
            trees.close()
    return msgspec.structs.replace(result, missing=missing)


def learn_from_events(
    events: Sequence[Event],
    root: Path | None,
    *,
    before: LearnedModel | None,
    render: Callable[[Sequence[Place]], str],
    prices: Prices,
    now: datetime,
    limit: int = LEARNED_TASKS_MAX,
) -> tuple[LearnedModel, int]:
    """Train the model `before` on the new tasks in these events. Returns the model and the number of new tasks.

    A task is new if the model `before` has not learned from it. It may be older than tasks that the model knows,
    because a transcript may be imported late. Each task is predicted from the files that existed at its time in the
    repository at `root`.

    If there are more than `limit` new tasks, only the latest are used, and the others are never learned from. A task
    that may still be running is used in a later call.
    """
    ended = [walk for walk in walks_of(events) if walk.ended_at <= now - IDLE]
    walks = [walk for walk in ended if walk.prompt and walk.touched]
    before = before if before is not None and before.model.fits() else None
    known = frozenset(() if before is None else before.task_numbers)
    new = [walk for walk in walks if task_number(walk.id) not in known]
    judged = latest_of(new, limit) or frozenset()
    try:
        trees = None if root is None else PastTrees(root)
    except (OSError, subprocess.SubprocessError):
        trees = None
    try:
        predictor = ReplayPredictor(trees, render=render)
        if before is not None:
            predictor.predictor.learned = before
        if judged:
            replay(walks, predictor, prices=prices, shape=verb_class, judged=judged)
    finally:
        if trees is not None:
            trees.close()
    task_numbers = (*known, *(task_number(walk.id) for walk in new))[-KNOWN_MAX:]
    return msgspec.structs.replace(predictor.predictor.learned, task_numbers=task_numbers), len(judged)


def task_number(task: EventId) -> int:
    """Return a short hash of a task's id.

    If two tasks have the same hash, which is rare, the model learns only from the first of them.
    """
    return crc32(task.encode())


def _guess(place: Place) -> Guess:
    return Guess(path=place.path, probability=place.probability, reason=", ".join(place.reasons))
