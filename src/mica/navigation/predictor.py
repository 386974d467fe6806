"""Predict the files of a task, and learn from each finished task how well every signal predicts.

A walk is a prompt with the accesses to files that followed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from mica.model.walk import Walk
from mica.navigation.engine.prediction import Prediction, explain, find_lines, predict
from mica.navigation.engine.prompt import render_offer
from mica.navigation.engine.signals import PromptQuestion, Scores, Signals, weigh
from mica.navigation.engine.task_history import CommitFiles, Task, TaskHistory
from mica.navigation.engine.tree import FileTree
from mica.navigation.places import Lines, Place
from mica.navigation.regression import LearnedModel, load_prior, make_training_task, update_model

CHECKED = 20  # the best predictions of a task that are compared with the files that it needed

UNTRAINED_WEIGHTS = {
    "content": 1.0,
    "prompts": 1.0,
    "session": 0.5,
    "walk": 0.3,
}  # for scores that are divided by the best score of their signal
NAMED_PATH_WEIGHT, NAMED_FILE_WEIGHT = 10.0, 5.0  # more than all others together, so that mentioned files come first


class SessionFiles:
    """Tracks the files that each session has touched, and the files that it has changed but not committed yet."""

    def __init__(self) -> None:
        self._walks: dict[str, list[Walk]] = {}
        self._uncommitted: dict[str | None, list[str]] = {}

    def begin(self, walk: Walk) -> tuple[tuple[str, ...], ...]:
        """Register a new walk. Return the files that its session touched before, one tuple for each earlier prompt.

        Prompts without files are left out.
        """
        if walk.session is None:
            return ()
        earlier = self._walks.setdefault(walk.session, [])
        found = tuple(files for each in earlier if (files := files_touched_before(each, walk.at)))
        earlier.append(walk)
        return found

    def end(self, walk: Walk) -> list[CommitFiles]:
        """Register the end of a walk. Return a list with the walk's latest commit, or an empty list without a commit.

        The files of the commit are all files that the session has changed since its previous commit.
        """
        changed = self._uncommitted.setdefault(walk.session, [])
        changed += walk.changed
        if not walk.subjects or not changed:
            return []
        files = tuple(dict.fromkeys(changed))
        changed.clear()
        return [CommitFiles(subject=walk.subjects[-1], files=files)]


def files_touched_before(walk: Walk, at: datetime) -> tuple[str, ...]:
    """Return the files that a walk had read or changed before the time `at`, each once, in order."""
    steps = (
        step for step in walk.steps if step.operation in ("read", "edit", "create") and not step.failed and step.at < at
    )
    return tuple(dict.fromkeys(step.path for step in steps))


def add_lines(place: Place, text: str | None, task: str, prediction: Prediction) -> Place:
    """Return the place with the lines of the file to read first.

    `text` is the text of the file. If it is None, the place is returned unchanged.
    """
    if text is None:
        return place
    spans, total = find_lines(text, place.path, task, prediction)
    return msgspec.structs.replace(place, lines=tuple(Lines(*span) for span in spans), total_lines=total)


class Predictor:
    """Predicts files from a file tree, a task history and learned weights, and learns from finished tasks."""

    def __init__(
        self, tree: FileTree | None = None, past: TaskHistory | None = None, *, learned: LearnedModel | None = None
    ) -> None:
        self.tree = tree or FileTree()
        self.past = past or TaskHistory()
        self.learned = learned if learned is not None and learned.model.fits() else LearnedModel(model=load_prior())

    def predict(self, question: PromptQuestion) -> Prediction:
        """Rank all candidate files for a prompt. The result is deterministic."""
        return predict(self.tree, self.past, question, self.learned.weights)

    def places(self, prediction: Prediction, *, limit: int = 10) -> list[Place]:
        """Return the `limit` most probable files of a prediction, best first, with reasons."""
        return [
            Place(path=each.path, probability=each.probability, tier=each.tier, reasons=each.reasons)
            for each in explain(prediction, self.past, limit=limit)
        ]

    def rank(self, question: PromptQuestion, *, limit: int = 10) -> list[Place]:
        """Return the `limit` most probable files for a prompt, best first, with reasons."""
        return self.places(self.predict(question), limit=limit)

    def learn(self, task: Task, prediction: Prediction | None = None) -> None:
        """Add a finished task to the history. If its prediction is given, also train the weights on it."""
        if prediction is not None and task.files and prediction.candidates.paths:
            self.learned = self.train(prediction, task.files)
        self.past.learn(task)

    def train(self, prediction: Prediction, needed: Collection[str]) -> LearnedModel:
        """Return a model that has also learned from one task: its weights and calibration are updated.

        `prediction` was made for the task, and `needed` are the files that the task needed. The predictor itself is not
        changed.
        """
        model, tenths = self.learned.model, self.learned.tenths
        rows = make_training_task(
            prediction.candidates, score_untrained(prediction.signals), needed, scales=model.scales
        )
        outcomes = [(predicted, path in needed) for path, predicted in prediction.predicted[:CHECKED]]
        return LearnedModel(
            model=update_model(model, rows),
            tenths=tenths.with_outcomes(outcomes),
            worth=self.learned.worth,
            task_numbers=self.learned.task_numbers,
        )

    def learn_savings(self, kind: str, best: float, saved_tokens: int) -> None:
        """Update the learned savings with the tokens that a list of paths would have saved for one task.

        `kind` is the kind of prompt ("open" or "named"), and `best` the predicted probability of the first listed file.
        """
        worth = self.learned.worth.with_outcome(kind, best, saved_tokens)
        self.learned = msgspec.structs.replace(self.learned, worth=worth)


def render_places(places: Iterable[Place]) -> str:
    """Return the text that offers predicted files to an agent. The result is deterministic."""
    return render_offer((each.path, [(span.start, span.end) for span in each.lines], each.reasons) for each in places)


def score_untrained(signals: Signals) -> Scores:
    """Score files without learned weights, by a fixed weighted sum. Files that the prompt mentions score highest."""
    total = weigh(signals.scores, UNTRAINED_WEIGHTS)
    for signal, weight in (("path_mention", NAMED_PATH_WEIGHT), ("name_mention", NAMED_FILE_WEIGHT)):
        for path, share in signals.scores[signal].items():
            if share > 0.5:
                total[path] = total.get(path, 0.0) + weight * share
    return total
