"""Navigation in the past: asked for each task of a log with what was known then."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mica.crystallize.shapes import verb_class
from mica.llm.prices import Prices
from mica.model import Event, EventId
from mica.observe.past_trees import PastTrees
from mica.select.navigation.gate import Worth, kind_of, listed, worth_saying
from mica.select.navigation.navigating import document
from mica.select.navigation.navigator import Asked, Navigator
from mica.select.navigation.past import Task
from mica.select.navigation.places import Place
from mica.select.navigation.signals import Question
from mica.select.navigation.tree import Document
from mica.select.replaying import Guess, Predicted, Replay, replay, saved
from mica.tokens import about
from mica.walks import Walk, walks_of

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
        self._navigator = Navigator()
        self._sessions: dict[str, list[Walk]] = defaultdict(list)
        self._asked: dict[EventId, tuple[Asked, list[Place]]] = {}  # of tasks that have not ended yet
        self._worth = Worth()

    def predict(self, walk: Walk) -> Predicted:
        if self._trees is not None:
            moved = self._trees.move(walk.at)
            for path in moved.removed:
                self._navigator.tree.remove(path)
            for file in moved.put:
                self._navigator.tree.put(file.path, document(file.text, size_bytes=file.size_bytes))
        question = Question(text=walk.prompt, session=self._session(walk))
        asked = self._navigator.ask(question)
        places = self._navigator.places(asked, limit=GUESSES)
        cost_tokens = about(self._render(listed(places)))
        offered = worth_saying(walk.prompt, places, cost_tokens=cost_tokens, worth=self._worth)
        self._asked[walk.id] = (asked, places)
        if walk.session is not None:
            self._sessions[walk.session].append(walk)
        return Predicted(
            guesses=tuple(map(_guess, places)),
            offered=tuple(map(_guess, offered)),
            text=self._render(offered) if offered else "",
            named=any(place.tier == "named" for place in places),
        )

    def learn(self, walk: Walk) -> None:
        if self._trees is None:
            for step in walk.steps:
                if step.operation != "list" and not step.failed and step.path not in self._navigator.tree:
                    self._navigator.tree.put(step.path, Document())
        asked, places = self._asked.pop(walk.id, (None, []))
        self._navigator.learn(Task(text=walk.prompt, files=walk.touched), asked)
        could = [place.path for place in listed(places)]
        if could:
            self._worth = self._worth.with_outcome(kind_of(places), places[0].probability, saved(walk, could)[0])

    def _session(self, walk: Walk) -> tuple[tuple[str, ...], ...]:
        """What earlier prompts of this session had touched by now, also where they still go on."""
        earlier = self._sessions.get(walk.session or "", ())
        before = [
            tuple(
                dict.fromkeys(
                    step.path
                    for step in each.steps
                    if step.operation in ("read", "edit", "create") and not step.failed and step.at < walk.at
                )
            )
            for each in earlier
        ]
        return tuple(files for files in before if files)


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
        missing = (
            {} if trees else {"files": "the directory of these sessions is not here; only files once opened count"}
        )
    except (OSError, subprocess.SubprocessError):
        trees, missing = None, {"git": f"{root} has no git history; only files that were once opened can be offered"}
    try:
        predictor = Rewalking(trees, render=render)
        told = replay(walks, predictor, prices=prices, shape=verb_class, latest=latest, on_progress=on_progress)
    finally:
        if trees is not None:
            trees.close()
    return msgspec.structs.replace(told, missing=missing)


def _guess(place: Place) -> Guess:
    return Guess(path=place.path, probability=place.probability, reason=", ".join(place.reasons))
