"""What was learned of earlier tasks and commits: which files belong to which words, to each other, and to lately."""

from __future__ import annotations

import heapq
import math

from mica.navigation.engine.fields import Field, counted
from mica.navigation.engine.lookup_file import Kept, packed
from mica.navigation.engine.plain import Plain
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

PROMPT_CHARACTERS_MAX = 2_000  # of an earlier prompt: what it is about stands at its beginning
PAIRED_FILES_MAX = 25  # a task that touched more says nothing of which belong together
NEIGHBOURS_MAX = 60
NEIGHBOURS_MORE = 40  # that may be there until they are cut: sorting after each task would cost more than learning it
SHORT, LONG = 7.0, 50.0  # half-lives of recency and frequency, in tasks
COMMITS_SHORT, COMMITS_LONG = 10.0, 200.0  # and in commits
TASK_VOTES, COMMIT_VOTES = 15, 30  # the likest that vote
SEEDS, STEPS, DAMPING = 6, 3, 0.6  # of the co-read walk
LATEST_COMMITS = 3


class Task(Plain):
    """A prompt and the files that were touched for it."""

    text: str
    files: tuple[str, ...]


class Commit(Plain):
    """A subject and the files that changed for it."""

    subject: str
    files: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # old name, new name


class Decayed:
    """A count per file that halves with every so many steps; decayed when it is read, never swept."""

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


class Votes(Plain):
    """What the likest earlier texts say, and which of them spoke loudest for each file."""

    scores: dict[str, float]
    best: dict[str, str]
    nearest: float  # how much of the question the likest one says, from 0 to 1


class Texts:
    """Earlier texts with their files: those most like a question vote for theirs."""

    def __init__(self, votes: int, kept: Kept | None = None, name: str = "") -> None:
        """With `kept`, what `entries` wrote there under this name; it is read only."""
        self._field = Field(kept, name)
        self._votes = votes
        self._kept = kept
        self._name = name
        self._files: list[list[str]] = []
        self._said: list[str] = []
        self._where: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def add(self, text: str, files: Sequence[str]) -> None:
        number = len(self._files)
        for path in files:
            self._where.setdefault(path, []).append(number)
        self._files.append(list(files))
        self._said.append(text.strip().partition("\n")[0][:200])
        self._field.put(number, counted(terms(text[:PROMPT_CHARACTERS_MAX])))

    def rename(self, old: str, new: str) -> None:
        for number in self._where.pop(old, ()):
            files = self._files[number]
            files[files.index(old)] = new
            self._where.setdefault(new, []).append(number)

    def ask(self, asked: Mapping[str, int]) -> Votes:
        scores = self._field.scores(asked)
        best = heapq.nsmallest(self._votes, scores.items(), key=lambda each: (-each[1], -each[0]))
        votes: dict[str, float] = {}
        loudest: dict[str, tuple[float, int]] = {}
        said: dict[int, str] = {}
        for number, score in best:
            files, said[number] = self._told(number)
            for path in files:
                vote = score / math.sqrt(len(files))
                votes[path] = votes.get(path, 0.0) + vote
                loudest[path] = max(loudest.get(path, (0.0, 0)), (vote, number))
        spoke = {path: said[number] for path, (_, number) in loudest.items()}
        top = best[0][1] if best else 0.0
        return Votes(scores=votes, best=spoke, nearest=top / (top + 10.0))

    def entries(self, name: str) -> Iterator[tuple[str, str, bytes]]:
        """What a file keeps of it."""
        yield from self._field.entries(name)
        for number in range(len(self._files)):
            yield f"{name}.told", str(number), packed(self._told(number))

    def _told(self, number: int) -> tuple[list[str], str]:
        if self._kept is None:
            return self._files[number], self._said[number]
        return self._kept.get(f"{self._name}.told", str(number), ([], ""))


class Past:
    """Everything that ended before now."""

    def __init__(self, kept: Kept | None = None) -> None:
        """With `kept`, what `entries` wrote there; it is read only."""
        self._kept = kept
        self.tasks = Texts(TASK_VOTES, kept, "tasks")
        self.commits = Texts(COMMIT_VOTES, kept, "commits")
        self.touched = {"short": Decayed(SHORT), "long": Decayed(LONG)}
        self.changed = {"short": Decayed(COMMITS_SHORT), "long": Decayed(COMMITS_LONG)}
        self.latest: list[tuple[str, ...]] = []  # files of the last commits, the last one first
        self._together: dict[str, dict[str, float]] = {}
        self._frequency: dict[str, float] = {}
        self._task_count, self._commit_count = 0, 0
        if kept is not None:
            self._task_count, self._commit_count = kept.get("past", "counts", (0, 0))
            self._frequency = kept.get("past", "frequency", {})
            self.latest = kept.get("past", "latest", [])

    @property
    def task_count(self) -> int:
        return self._task_count

    @property
    def commit_count(self) -> int:
        return self._commit_count

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """What a file keeps of it."""
        yield "past", "counts", packed((self._task_count, self._commit_count))
        yield "past", "frequency", packed(self._frequency)
        yield "past", "latest", packed(self.latest)
        for kind in ("short", "long"):
            yield "past.recent", kind, packed(self.recent(kind))
            yield "past.changed", kind, packed(self.recently_changed(kind))
        for path, neighbours in self._together.items():
            yield "past.together", path, packed(neighbours)
        yield from self.tasks.entries("tasks")
        yield from self.commits.entries("commits")

    def learn(self, task: Task) -> None:
        """Take in a task that ended. One that touched nothing teaches nothing."""
        if not task.files:
            return
        self._task_count += 1
        if task.text.strip():
            self.tasks.add(task.text, task.files)
        for decayed in self.touched.values():
            decayed.add(task.files, self._task_count)
        self._pair(task.files)

    def learn_commit(self, commit: Commit) -> None:
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
        """What is known of a file is known of it by its new name."""
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
        if self._kept is not None:
            return self._kept.get("past.recent", kind, {})
        return self.touched[kind].scores(self._task_count)

    def recently_changed(self, kind: str) -> dict[str, float]:
        if self._kept is not None:
            return self._kept.get("past.changed", kind, {})
        return self.changed[kind].scores(self._commit_count)

    def last_commits(self) -> dict[str, float]:
        scores: dict[str, float] = {}
        for back, files in enumerate(self.latest):
            for path in files:
                scores[path] = scores.get(path, 0.0) + 0.6**back / math.sqrt(len(files))
        return scores

    def walk(self, seeds: Mapping[str, float]) -> dict[str, float]:
        """Files read together with the seeds, and with those; a file that everything is read with counts for less."""
        best = heapq.nsmallest(SEEDS, seeds.items(), key=lambda each: (-each[1], each[0]))
        total = math.fsum(weight for _, weight in best) or 1.0
        here = {path: weight / total for path, weight in best}
        found: dict[str, float] = {}
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
                found[path] = found.get(path, 0.0) + weight * DAMPING**step
        return found

    def companion(self, path: str, among: Collection[str]) -> str | None:
        """Which of these files was read together with this one most often."""
        neighbours = self._neighbours(path)
        known = [(count, other) for other, count in neighbours.items() if other in among and other != path]
        return max(known)[1] if known else None

    def _neighbours(self, path: str) -> dict[str, float]:
        if self._kept is not None and path not in self._together:
            self._together[path] = self._kept.get("past.together", path, {})
        return self._together.get(path, {})

    def _pair(self, files: Sequence[str]) -> None:
        """Note that these were read or changed together."""
        if not 1 < len(files) <= PAIRED_FILES_MAX:
            return
        for path in files:
            self._frequency[path] = self._frequency.get(path, 0.0) + 1
            neighbours = self._together.setdefault(path, {})
            for other in files:
                if other != path:
                    neighbours[other] = neighbours.get(other, 0.0) + 1
            if len(neighbours) > NEIGHBOURS_MAX + NEIGHBOURS_MORE:
                kept = sorted(neighbours.items(), key=lambda each: (-each[1], each[0]))[:NEIGHBOURS_MAX]
                self._together[path] = dict(kept)
