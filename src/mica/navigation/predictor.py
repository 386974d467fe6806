"""One question to the tree and the past: which files, in which order, how sure, and why."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from mica.model.walk import Walk
from mica.navigation.combine import by_hand
from mica.navigation.engine.prediction import Asked, ask, explained, lines_in
from mica.navigation.engine.signals import Question
from mica.navigation.engine.task_history import Commit, Past, Task
from mica.navigation.engine.tree import Tree
from mica.navigation.learned import Learned
from mica.navigation.places import Lines, Place
from mica.navigation.regression import learned, lesson, prior

CHECKED = 20  # predictions of a task, from the best, that are compared with what was needed


class Sessions:
    """What each session has touched and not yet committed, walk by walk."""

    def __init__(self) -> None:
        self._walks: dict[str, list[Walk]] = {}
        self._uncommitted: dict[str | None, list[str]] = {}

    def begin(self, walk: Walk) -> tuple[tuple[str, ...], ...]:
        """What earlier prompts of this session had touched when this one was asked, also where they still go on."""
        if walk.session is None:
            return ()
        earlier = self._walks.setdefault(walk.session, [])
        found = tuple(files for each in earlier if (files := touched_by(each, walk.at)))
        earlier.append(walk)
        return found

    def end(self, walk: Walk) -> list[Commit]:
        """The commits that a task made, with the files that its session changed since the one before."""
        changed = self._uncommitted.setdefault(walk.session, [])
        changed += walk.changed
        if not walk.subjects or not changed:
            return []
        files = tuple(dict.fromkeys(changed))
        changed.clear()
        return [Commit(subject=walk.subjects[-1], files=files)]


def touched_by(walk: Walk, at: datetime) -> tuple[str, ...]:
    """The files that a walk had read or changed before a moment."""
    steps = (
        step for step in walk.steps if step.operation in ("read", "edit", "create") and not step.failed and step.at < at
    )
    return tuple(dict.fromkeys(step.path for step in steps))


def with_lines(place: Place, text: str | None, task: str, asked: Asked) -> Place:
    """A place with the lines to begin at, where its text is known: they are told, and cost tokens too."""
    if text is None:
        return place
    spans, total = lines_in(text, place.path, task, asked)
    return msgspec.structs.replace(place, lines=tuple(Lines(*span) for span in spans), total_lines=total)


class Navigator:
    """What is known of the files and of what was done with them."""

    def __init__(self, tree: Tree | None = None, past: Past | None = None, *, learned: Learned | None = None) -> None:
        self.tree = tree or Tree()
        self.past = past or Past()
        self.learned = learned if learned is not None and learned.model.fits() else Learned(model=prior())

    def ask(self, question: Question) -> Asked:
        """Score every candidate. The same state gives the same answer."""
        return ask(self.tree, self.past, question, self.learned.weights)

    def places(self, asked: Asked, *, limit: int = 10) -> list[Place]:
        """The files that the task will need, best first, with reasons."""
        return [
            Place(path=each.path, probability=each.probability, tier=each.tier, reasons=each.reasons)
            for each in explained(asked, self.past, limit=limit)
        ]

    def rank(self, question: Question, *, limit: int = 10) -> list[Place]:
        """Ask and answer in one."""
        return self.places(self.ask(question), limit=limit)

    def learn(self, task: Task, asked: Asked | None = None) -> None:
        """Take in a task that ended, and, with what was found when it was asked, which signals were right."""
        if asked is not None and task.files and asked.candidates.paths:
            self.learned = self.taught(asked, task.files)
        self.past.learn(task)

    def taught(self, asked: Asked, needed: Collection[str]) -> Learned:
        """What would be known after one more task: signals weighed anew, predictions checked."""
        model, tenths = self.learned.model, self.learned.tenths
        rows = lesson(asked.candidates, by_hand(asked.signals), needed, scales=model.scales)
        outcomes = [(predicted, path in needed) for path, predicted in asked.predicted[:CHECKED]]
        return Learned(
            model=learned(model, rows),
            tenths=tenths.with_outcomes(outcomes),
            worth=self.learned.worth,
            taught=self.learned.taught,
        )

    def taught_worth(self, kind: str, best: float, saved_tokens: int) -> None:
        """Count what a list of paths would have saved for a task."""
        worth = self.learned.worth.with_outcome(kind, best, saved_tokens)
        self.learned = msgspec.structs.replace(self.learned, worth=worth)
