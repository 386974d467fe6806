"""Navigation in the past: asked for each task of a log with what was known then."""

from __future__ import annotations

import subprocess
from binascii import crc32
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from mica.llm.prices import Prices
from mica.model.event import Event, EventId
from mica.model.walk import Walk, walks_of
from mica.navigation.engine.gate import kind_of, listed, worth_saying
from mica.navigation.engine.prediction import Asked
from mica.navigation.engine.signals import Question
from mica.navigation.engine.task_history import Task
from mica.navigation.engine.tree import Document
from mica.navigation.learned import Learned
from mica.navigation.navigator import IDLE
from mica.navigation.past_trees import PastTrees
from mica.navigation.places import Place
from mica.navigation.predictor import Navigator, Sessions, with_lines
from mica.navigation.replay import Guess, Predicted, Replay, latest_of, replay, saved
from mica.navigation.trails.task_kinds import verb_class
from mica.navigation.tree_index import document
from mica.tokens import about

TAUGHT_MAX = 300  # tasks, the latest, of which is learned what signals are worth: some twenty seconds of a night
NO_WALKS = "no session of a coding agent is in this space yet; `mica import` reads those that are over"
ELSEWHERE = "the directory of these sessions is not here; only files once opened count"
KNOWN_MAX = 50_000  # tasks that are known to have taught
GUESSES = 80  # files of one task whose probability is checked


class Rewalking:
    """The engine of `navigate` as a predictor that learns task by task.

    With the trees of the past, words and names are those of the files as they were. Without, a file can be named once
    somebody has opened it.
    """

    def __init__(
        self,
        trees: PastTrees | None,
        *,
        render: Callable[[Sequence[Place]], str],
    ) -> None:
        self._trees = trees
        self._render = render
        self.navigator = Navigator()
        self._sessions = Sessions()
        self._asked: dict[EventId, tuple[Asked, str, list[Place]]] = {}

    def predict(self, walk: Walk) -> Predicted:
        if self._trees is not None:
            moved = self._trees.move(walk.at)
            for path in moved.removed:
                self.navigator.tree.remove(path)
            for file in moved.put:
                self.navigator.tree.put(file.path, document(file.text, size_bytes=file.size_bytes))
        asked = self.navigator.ask(Question(text=walk.prompt, session=self._sessions.begin(walk)))
        places = self.navigator.places(asked, limit=GUESSES)
        could = [with_lines(place, self._text(place.path), walk.prompt, asked) for place in listed(places)]
        text = self._render(could)
        self._asked[walk.id] = asked, kind_of(places), could
        worth = self.navigator.learned.worth.by_kind
        is_said = bool(worth_saying(walk.prompt, places, cost_tokens=about(text), worth=worth))
        return Predicted(
            guesses=tuple(map(_guess, places)),
            offered=tuple(map(_guess, could)) if is_said else (),
            text=text if is_said else "",
            named=any(place.tier == "named" for place in places),
        )

    def _text(self, path: str) -> str | None:
        return None if self._trees is None else self._trees.text(path)

    def learn(self, walk: Walk) -> None:
        if self._trees is None:
            for step in walk.steps:
                if step.operation != "list" and not step.failed and step.path not in self.navigator.tree:
                    self.navigator.tree.put(step.path, Document())
        if walk.id not in self._asked:
            self._sessions.begin(walk)  # not predicted; later prompts of its session know of it all the same
        asked, kind, could = self._asked.pop(walk.id, (None, "open", []))
        if could:
            tokens, _ = saved(walk, [place.path for place in could])
            self.navigator.taught_worth(kind, could[0].probability, tokens)
        self.navigator.learn(Task(text=walk.prompt, files=walk.touched), asked)
        for commit in self._sessions.end(walk):
            self.navigator.past.learn_commit(commit)


def rewalked(
    events: Sequence[Event],
    root: Path | None,
    *,
    render: Callable[[Sequence[Place]], str],
    prices: Prices,
    latest: int | None,
    on_progress: Callable[[int], None],
) -> Replay:
    """The account of all walks in these events, over the repository at `root` as it was at each of them."""
    walks = walks_of(events)
    try:
        trees = None if root is None else PastTrees(root)
        missing = {} if walks else {"tasks": NO_WALKS}
        missing |= {"files": ELSEWHERE} if walks and not trees else {}
    except (OSError, subprocess.SubprocessError):
        trees, missing = None, {"git": f"{root} has no git history; only files that were once opened can be offered"}
    try:
        predictor = Rewalking(trees, render=render)
        judged = latest_of(walks, latest)
        told = replay(walks, predictor, prices=prices, shape=verb_class, judged=judged, on_progress=on_progress)
    finally:
        if trees is not None:
            trees.close()
    return msgspec.structs.replace(told, missing=missing)


def relearned(
    events: Sequence[Event],
    root: Path | None,
    *,
    before: Learned | None,
    render: Callable[[Sequence[Place]], str],
    prices: Prices,
    now: datetime,
    limit: int = TAUGHT_MAX,
) -> tuple[Learned, int]:
    """What tasks have taught of signals, probabilities and lists, and how many were new since `before`.

    Each is asked as if for the first time, over the files as they were, also one that is older than others which taught
    before it: a transcript may come late. Of many new ones the latest count. One that may still go on is left for the
    next time.
    """
    over = [walk for walk in walks_of(events) if walk.ended_at <= now - IDLE]
    walks = [walk for walk in over if walk.prompt and walk.touched]
    before = before if before is not None and before.model.fits() else None
    known = frozenset(() if before is None else before.taught)
    new = [walk for walk in walks if number_of(walk.id) not in known]
    judged = latest_of(new, limit) or frozenset()
    try:
        trees = None if root is None else PastTrees(root)
    except (OSError, subprocess.SubprocessError):
        trees = None
    try:
        predictor = Rewalking(trees, render=render)
        if before is not None:
            predictor.navigator.learned = before
        if judged:
            replay(walks, predictor, prices=prices, shape=verb_class, judged=judged)
    finally:
        if trees is not None:
            trees.close()
    taught = (*known, *(number_of(walk.id) for walk in new))[-KNOWN_MAX:]
    return msgspec.structs.replace(predictor.navigator.learned, taught=taught), len(judged)


def number_of(task: EventId) -> int:
    """A short name for a task. Of two that share one, which happens once in a hundred thousand, one teaches nothing."""
    return crc32(task.encode())


def _guess(place: Place) -> Guess:
    return Guess(path=place.path, probability=place.probability, reason=", ".join(place.reasons))
