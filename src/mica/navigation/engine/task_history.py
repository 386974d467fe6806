"""The history of tasks and commits: their words, the files used together, and how recently each file was used."""

from __future__ import annotations

import heapq
import math

from mica.navigation.engine.frozen_value import FrozenValue
from mica.navigation.engine.inverted_index import InvertedIndex, count_terms
from mica.navigation.engine.lookup_file import LookupFile, pack
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

PROMPT_CHARACTERS_MAX = 2_000  # of an earlier prompt: its beginning shows what the prompt is about
PAIRED_FILES_MAX = 25  # a task that touched more files does not show which files belong together
NEIGHBOURS_MAX = 60  # files remembered as used together with one file
NEIGHBOURS_MORE = 40  # a list may have this many more before it is cut, because sorting after each task is slow
SHORT, LONG = 7.0, 50.0  # half-lives of recency and frequency, in tasks
COMMITS_SHORT, COMMITS_LONG = 10.0, 200.0  # the same, in commits
TASK_VOTES, COMMIT_VOTES = 15, 30  # most similar texts that vote
SEEDS, STEPS, DAMPING = 6, 3, 0.6  # of the random walk over files used together
LATEST_COMMITS = 3


class Task(FrozenValue):
    """A prompt, and the files that were read or changed for it."""

    text: str
    files: tuple[str, ...]


class CommitFiles(FrozenValue):
    """A commit: its subject, and the files that it changed or renamed."""

    subject: str
    files: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # (old path, new path)


class DecayingCounts:
    """Counts how often each file was used or changed. The older a task or commit, the less it counts."""

    def __init__(self, half_life: float) -> None:
        self._factor = 0.5 ** (1 / half_life)
        self._counts: dict[str, tuple[float, int]] = {}

    def add(self, files: Iterable[str], at: int) -> None:
        for path in files:
            count, then = self._counts.get(path, (0.0, at))
            self._counts[path] = (count * self._factor ** (at - then) + 1.0, at)

    def scores(self, at: int) -> dict[str, float]:
        return {path: count * self._factor ** (at - then) for path, (count, then) in self._counts.items()}

    def rename(self, old: str, new: str) -> None:
        if old in self._counts:
            self._counts[new] = self._counts.pop(old)


class Votes(FrozenValue):
    """The scores of files, computed by `TaskTexts.vote` from the earlier texts that are most similar to a query."""

    scores: dict[str, float]
    best: dict[str, str]  # by file, the text with the highest vote for it
    nearest: float  # similarity of the most similar text, from 0 to 1


class TaskTexts:
    """Earlier prompts or subjects of commits, each with its files.

    `vote` scores the files of the texts that are most similar to a query.
    """

    def __init__(self, votes: int, saved: LookupFile | None = None, name: str = "") -> None:
        """`votes` is the number of most similar texts that `vote` uses.

        With `saved`, the texts are read from this lookup file, in which they are stored under `name`. To create such a
        file, write the entries that `entries` yields.
        """
        self._index = InvertedIndex(saved, name)
        self._votes = votes
        self._saved = saved
        self._name = name
        self._files: list[list[str]] = []
        self._summaries: list[str] = []
        self._where: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def add(self, text: str, files: Sequence[str]) -> None:
        number = len(self._files)
        for path in files:
            self._where.setdefault(path, []).append(number)
        self._files.append(list(files))
        self._summaries.append(text.strip().partition("\n")[0][:200])
        self._index.put(number, count_terms(terms(text[:PROMPT_CHARACTERS_MAX])))

    def rename(self, old: str, new: str) -> None:
        for number in self._where.pop(old, ()):
            files = self._files[number]
            files[files.index(old)] = new
            self._where.setdefault(new, []).append(number)

    def vote(self, query: Mapping[str, int]) -> Votes:
        """Score files by the texts that are most similar to the query. Each of these texts votes for its files.

        `query` maps terms to counts. A text with many files gives each of them a smaller vote.
        """
        scores = self._index.scores(query)
        best = heapq.nsmallest(self._votes, scores.items(), key=lambda each: (-each[1], -each[0]))
        votes: dict[str, float] = {}
        strongest: dict[str, tuple[float, int]] = {}  # by file, the highest vote and the number of its text
        summaries: dict[int, str] = {}
        for number, score in best:
            files, summaries[number] = self._text(number)
            for path in files:
                vote = score / math.sqrt(len(files))
                votes[path] = votes.get(path, 0.0) + vote
                strongest[path] = max(strongest.get(path, (0.0, 0)), (vote, number))
        best_texts = {path: summaries[number] for path, (_, number) in strongest.items()}
        top = best[0][1] if best else 0.0
        return Votes(scores=votes, best=best_texts, nearest=top / (top + 10.0))

    def entries(self, name: str) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to save in a lookup file, as (table, key, value encoded by `pack`).

        `name` is the name under which the file will have these texts.
        """
        yield from self._index.entries(name)
        for number in range(len(self._files)):
            yield f"{name}.told", str(number), pack(self._text(number))

    def _text(self, number: int) -> tuple[list[str], str]:
        if self._saved is None:
            return self._files[number], self._summaries[number]
        return self._saved.get(f"{self._name}.told", str(number), ([], ""))


class TaskHistory:
    """Statistics about files from the finished tasks and commits of a space. Predictions are based on them."""

    def __init__(self, saved: LookupFile | None = None) -> None:
        """Make an empty history; or, with `saved`, use the history in this lookup file, which is then read-only.

        To create such a file, write the entries that `entries` yields.
        """
        self._saved = saved
        self.tasks = TaskTexts(TASK_VOTES, saved, "tasks")
        self.commits = TaskTexts(COMMIT_VOTES, saved, "commits")
        self.touched = {"short": DecayingCounts(SHORT), "long": DecayingCounts(LONG)}
        self.changed = {"short": DecayingCounts(COMMITS_SHORT), "long": DecayingCounts(COMMITS_LONG)}
        self.latest: list[tuple[str, ...]] = []  # files of the last commits, newest commit first
        self._together: dict[str, dict[str, float]] = {}
        self._frequency: dict[str, float] = {}
        self._task_count, self._commit_count = 0, 0
        if saved is not None:
            self._task_count, self._commit_count = saved.get("past", "counts", (0, 0))
            self._frequency = saved.get("past", "frequency", {})
            self.latest = saved.get("past", "latest", [])

    @property
    def task_count(self) -> int:
        return self._task_count

    @property
    def commit_count(self) -> int:
        return self._commit_count

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to save in a lookup file, as (table, key, value encoded by `pack`)."""
        yield "past", "counts", pack((self._task_count, self._commit_count))
        yield "past", "frequency", pack(self._frequency)
        yield "past", "latest", pack(self.latest)
        for kind in ("short", "long"):
            yield "past.recent", kind, pack(self.recent(kind))
            yield "past.changed", kind, pack(self.recently_changed(kind))
        for path, neighbours in self._together.items():
            yield "past.together", path, pack(neighbours)
        yield from self.tasks.entries("tasks")
        yield from self.commits.entries("commits")

    def learn(self, task: Task) -> None:
        """Add a finished task. A task without files is ignored."""
        if not task.files:
            return
        self._task_count += 1
        if task.text.strip():
            self.tasks.add(task.text, task.files)
        for decayed in self.touched.values():
            decayed.add(task.files, self._task_count)
        self._pair(task.files)

    def learn_commit(self, commit: CommitFiles) -> None:
        """Add a commit, and apply its renames to the earlier history."""
        for old, new in commit.renamed:
            self.rename(old, new)
        if not commit.files:
            return
        self._commit_count += 1
        if commit.subject.strip():
            self.commits.add(commit.subject, commit.files)
        for decayed in self.changed.values():
            decayed.add(commit.files, self._commit_count)
        self._pair(commit.files)
        self.latest = [commit.files, *self.latest][:LATEST_COMMITS]

    def rename(self, old: str, new: str) -> None:
        """Replace a file's old path by its new path in all texts, counts and neighbours."""
        self.tasks.rename(old, new)
        self.commits.rename(old, new)
        for decayed in (*self.touched.values(), *self.changed.values()):
            decayed.rename(old, new)
        if old in self._frequency:
            self._frequency[new] = self._frequency.pop(old)
        if neighbours := self._together.pop(old, None):
            self._together[new] = neighbours
        for others in self._together.values():
            if old in others:
                others[new] = others.pop(old)

    def recent(self, kind: str) -> dict[str, float]:
        if self._saved is not None:
            return self._saved.get("past.recent", kind, {})
        return self.touched[kind].scores(self._task_count)

    def recently_changed(self, kind: str) -> dict[str, float]:
        if self._saved is not None:
            return self._saved.get("past.changed", kind, {})
        return self.changed[kind].scores(self._commit_count)

    def last_commits(self) -> dict[str, float]:
        scores: dict[str, float] = {}
        for back, files in enumerate(self.latest):
            for path in files:
                scores[path] = scores.get(path, 0.0) + 0.6**back / math.sqrt(len(files))
        return scores

    def walk(self, seeds: Mapping[str, float]) -> dict[str, float]:
        """Score files by how often they were used together with the files in `seeds`, which maps files to weights.

        A short random walk computes the scores. Files that were used together with a seed get most, then the files that
        were used together with those. A file that was used in many tasks gets less.
        """
        best = heapq.nsmallest(SEEDS, seeds.items(), key=lambda each: (-each[1], each[0]))
        total = math.fsum(weight for _, weight in best) or 1.0
        here = {path: weight / total for path, weight in best}
        scores: dict[str, float] = {}
        for step in range(1, STEPS + 1):
            there: dict[str, float] = {}
            for path, weight in here.items():
                neighbours = self._neighbours(path)
                if not neighbours:
                    continue
                pulls = {
                    other: count / math.sqrt(self._frequency.get(other, 1.0)) for other, count in neighbours.items()
                }
                pulled = math.fsum(pulls.values())
                for other, pull in pulls.items():
                    there[other] = there.get(other, 0.0) + weight * pull / pulled
            here = dict(sorted(there.items(), key=lambda each: (-each[1], each[0]))[:NEIGHBOURS_MAX])
            for path, weight in here.items():
                scores[path] = scores.get(path, 0.0) + weight * DAMPING**step
        return scores

    def companion(self, path: str, among: Collection[str]) -> str | None:
        """Return the file in `among` that was used together with `path` most often; None if none was."""
        neighbours = self._neighbours(path)
        known = [(count, other) for other, count in neighbours.items() if other in among and other != path]
        return max(known)[1] if known else None

    def _neighbours(self, path: str) -> dict[str, float]:
        if self._saved is not None and path not in self._together:
            self._together[path] = self._saved.get("past.together", path, {})
        return self._together.get(path, {})

    def _pair(self, files: Sequence[str]) -> None:
        """Count every two of `files` as used together once more.

        If there are more than PAIRED_FILES_MAX files, nothing is counted.
        """
        if not 1 < len(files) <= PAIRED_FILES_MAX:
            return
        for path in files:
            self._frequency[path] = self._frequency.get(path, 0.0) + 1
            neighbours = self._together.setdefault(path, {})
            for other in files:
                if other != path:
                    neighbours[other] = neighbours.get(other, 0.0) + 1
            if len(neighbours) > NEIGHBOURS_MAX + NEIGHBOURS_MORE:
                best = sorted(neighbours.items(), key=lambda each: (-each[1], each[0]))[:NEIGHBOURS_MAX]
                self._together[path] = dict(best)
