"""Build the navigation prior from a public history: the weights of signals without any local data.

    python bench/_prior.py HISTORY.jsonl --releases FOLDER

HISTORY has a commit a line: {h, t, merge, bot, s, files: [[status, path, (new path)], …]}. FOLDER has the unpacked
releases of the project, each a folder; the words of a file at a commit are those of the last release before it. Every
second commit plays a task, the others play commits; what was committed within the hour before plays the session. Only
numbers are written: scales, weights and their certainty.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy

from mica.navigation.engine.signals import FEATURES, PromptQuestion, collect_candidates, compute_signals
from mica.navigation.engine.task_history import CommitFiles, Task, TaskHistory
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.predictor import score_untrained
from mica.navigation.regression import VERSION, SignalModel, TrainingTask, make_training_task
from mica.navigation.tree_index import index_text

TARGET = Path(__file__).parent.parent / "src/mica/navigation/prior.json"
COMMITS = 1_200  # the latest commits, used for training
FILES_MAX = 20
LEARNED_FILES_MAX = 40
SESSION_S = 3_600
SCALE_MIN = 0.15  # a feature that is rare in commits may be frequent elsewhere
PENALTY = 30.0  # of the fit itself
STRENGTH = 0.07  # share of the certainty that is kept, because prompts differ from commits
FLOOR = 30.0
DIGITS = 4


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of the history."""

    id: str
    at: int
    subject: str
    changed: tuple[str, ...]  # files that existed before
    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    usable: bool  # neither a merge nor made by a robot

    @property
    def files_after(self) -> tuple[str, ...]:
        """The changed and added files that exist after the commit, by their new names."""
        names = dict(self.renamed)
        remaining = (names.get(path, path) for path in self.changed if path not in self.removed)
        return tuple(dict.fromkeys((*remaining, *self.added)))


def history(path: Path) -> list[Change]:
    """Read the commits of a history, oldest first, without merges."""
    with path.open(encoding="utf-8") as lines:
        commits = [json.loads(line) for line in lines]
    changes = []
    for commit in commits:
        if commit["merge"]:
            continue
        files = [(status[0], *names) for status, *names in commit["files"]]
        changes.append(
            Change(
                id=commit["h"],
                at=commit["t"],
                subject=commit["s"],
                changed=tuple(names[0] for status, *names in files if status in "MDTR"),
                added=tuple(names[0] for status, *names in files if status == "A"),
                removed=tuple(names[0] for status, *names in files if status == "D"),
                renamed=tuple((names[0], names[1]) for status, *names in files if status == "R"),
                usable=not commit["bot"],
            )
        )
    return changes


class Releases:
    """The indexed words of files, as of the last release before the current moment, which `move` advances."""

    def __init__(self, folder: Path | None) -> None:
        self._folders = sorted((_newest(each), each) for each in folder.iterdir() if each.is_dir()) if folder else []
        self._place = -1
        self._documents: dict[str, IndexedFile] = {}
        self._by_hash: dict[str, IndexedFile] = {}

    def move(self, at: int) -> bool:
        """Advance to this moment; True if another release is now the latest."""
        place = self._place
        while self._place + 1 < len(self._folders) and self._folders[self._place + 1][0] < at:
            self._place += 1
        if self._place == place:
            return False
        self._documents = dict(self._read(self._folders[self._place][1]))
        return True

    def document(self, path: str) -> IndexedFile:
        return self._documents.get(path, IndexedFile())

    def _read(self, folder: Path) -> Iterator[tuple[str, IndexedFile]]:
        for file in sorted(folder.rglob("*")):
            if file.is_symlink() or not file.is_file() or file.stat().st_size > 200_000:
                continue
            content = file.read_bytes()
            key = hashlib.sha256(content).hexdigest()
            if key not in self._by_hash:
                text = None if b"\0" in content else content.decode("utf-8", "replace")
                self._by_hash[key] = index_text(text, size_bytes=len(content))
            yield file.relative_to(folder).as_posix(), self._by_hash[key]


def _newest(folder: Path) -> float:
    return max((file.stat().st_mtime for file in folder.rglob("*") if file.is_file()), default=0.0)


def move_tree(tree: FileTree, change: Change, releases: Releases) -> None:
    for path in change.removed:
        tree.remove(path)
    for old, new in change.renamed:
        tree.remove(old)
        tree.put(new, releases.document(new))
    for path in change.added:
        tree.put(path, releases.document(path))


def lessons(changes: list[Change], releases: Releases, *, last: int) -> Iterator[TrainingTask]:
    """Yield a training task for each of the last usable commits, predicted only from earlier ones."""
    tree, past = FileTree(), TaskHistory()
    first = sum(change.usable for change in changes) - last
    count = 0
    recent: list[tuple[int, tuple[str, ...]]] = []
    for change in changes:
        count += change.usable
        needed = tuple(path for path in change.changed if path in tree)
        if change.usable and count > first and 1 <= len(needed) <= FILES_MAX:
            if releases.move(change.at):
                for path in list(tree):
                    tree.put(path, releases.document(path))
            recent = [(at, files) for at, files in recent if change.at - at < SESSION_S]
            question = PromptQuestion(text=change.subject, session=tuple(files for _, files in recent))
            found = compute_signals(tree, past, question)
            listed = collect_candidates(found, tree)
            if listed.paths:
                yield make_training_task(listed, score_untrained(found), needed, scales=[1.0] * len(FEATURES))
        move_tree(tree, change, releases)
        files_after = change.files_after
        if change.usable and 0 < len(files_after) <= LEARNED_FILES_MAX:
            if hashlib.sha256(change.id.encode()).digest()[0] % 2:
                for old, new in change.renamed:
                    past.rename(old, new)
                past.learn(Task(text=change.subject, files=files_after))
            else:
                past.learn_commit(CommitFiles(subject=change.subject, files=files_after, renamed=change.renamed))
            recent.append((change.at, files_after))


def fit(tasks: list[TrainingTask], *, source: str) -> SignalModel:
    """Fit the weights to these tasks; the curvature there, scaled down, becomes the certainty of the prior."""
    rows = numpy.array([row for each in tasks for row in each.rows])
    needed = numpy.array([hit for each in tasks for hit in each.needed], float)
    counts = numpy.array([count for each in tasks for count in each.counts])
    scales = numpy.maximum(rows[:, 1:].std(axis=0), SCALE_MIN).round(DIGITS)
    rows[:, 1:] /= scales
    size = rows.shape[1]
    penalty = numpy.eye(size) * PENALTY
    penalty[0, 0] = 1e-3
    weights = numpy.zeros(size)
    curvature = penalty
    for _ in range(50):
        p = 1 / (1 + numpy.exp(-numpy.clip(rows @ weights, -30, 30)))
        curvature = (rows.T * (counts * p * (1 - p))) @ rows + penalty
        step = numpy.linalg.solve(curvature, rows.T @ (counts * (needed - p)) - penalty @ weights)
        weights = weights + step * min(1.0, 2.0 / float(numpy.abs(step).max()))
        if float(numpy.abs(step).max()) < 1e-6:
            break
    precision = curvature * STRENGTH + numpy.eye(size) * FLOOR
    precision[0, 0] += 0.01 - FLOOR
    return SignalModel(
        version=VERSION,
        names=FEATURES,
        scales=[float(each) for each in scales],
        weights=[round(float(each), DIGITS) for each in weights],
        precision=[[float(f"{precision[i, j]:.4g}") for j in range(i + 1)] for i in range(size)],
        source=source,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path)
    parser.add_argument("--releases", type=Path)
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--source", default="pallets/flask (BSD-3-Clause)", help="the project and its licence")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    changes = history(options.history)
    tasks = list(lessons(changes, Releases(options.releases), last=options.commits))
    model = fit(tasks, source=f"{options.source}, {len(tasks):,} commits up to {changes[-1].id}")
    options.out.write_bytes(msgspec.json.encode(model) + b"\n")
    print(f"{len(tasks):,} lessons, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
