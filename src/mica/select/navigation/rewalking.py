"""Navigation in the past: asked for each task of a log with what was known then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from mica.observe.past_trees import PastTrees
from mica.select.navigation.navigating import document
from mica.select.navigation.navigator import Navigator
from mica.select.navigation.past import Task
from mica.select.navigation.places import Place
from mica.select.navigation.signals import Question
from mica.select.navigation.tree import Document
from mica.select.replaying import Guess, Predicted
from mica.walks import Walk

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
        gate: Callable[[Navigator, Question, Sequence[Place]], Sequence[Place]],
        render: Callable[[Sequence[Place]], str],
    ) -> None:
        self._trees = trees
        self._gate = gate
        self._render = render
        self._navigator = Navigator()
        self._sessions: dict[str, list[Walk]] = defaultdict(list)

    def predict(self, walk: Walk) -> Predicted:
        if self._trees is not None:
            moved = self._trees.move(walk.at)
            for path in moved.removed:
                self._navigator.tree.remove(path)
            for file in moved.put:
                self._navigator.tree.put(file.path, document(file.text, size_bytes=file.size_bytes))
        question = Question(text=walk.prompt, session=self._session(walk))
        places = self._navigator.rank(question, limit=GUESSES)
        offered = self._gate(self._navigator, question, places)
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
        self._navigator.past.learn(Task(text=walk.prompt, files=walk.touched))

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


def _guess(place: Place) -> Guess:
    return Guess(path=place.path, probability=place.probability, reason=", ".join(place.reasons))
