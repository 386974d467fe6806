"""What a hook may offer at a prompt, where there is no time to rank: counts of words and files, judged beforehand.

A hook has some milliseconds and the prompt. It adds weights of the prompt's words to each file's prior; both are
counted here from the tasks of the space. Whether it speaks is decided by the same history: each task is scored with the
counts of those that had ended, and answered by the gate that had saved most until then (A-18). A history in which that
would not have saved more than it cost gives no hints at all.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from heapq import heappop, heappush

from mica import hook
from mica.model import EventId
from mica.observe.spool import Hints, Place
from mica.select.replaying import saved
from mica.tokens import about
from mica.walks import Walk

PLACES_MAX = 200  # files that are offered at all: those of most tasks
TASKS_MAX = 2_000  # the latest that are counted
TASK_FILES_MAX = 25  # a task with more files says nothing of any of them
TERMS_MAX = 20_000  # words that point somewhere; the file of hints stays below a megabyte
TOGETHER_MIN = 2  # tasks that a word and a file have in common
SHRINK = 0.5  # words of one prompt go together: each counts for half
PSEUDO = 2.0  # tasks with a word, of the file's own rate, that are added to what was seen
SPOKEN_MIN = 8  # offers that the history must have had for a verdict
HEAD = "Files that earlier sessions needed for such a task:"
GATES = tuple(quarter / 4 for quarter in range(-8, 13))  # log-odds: from 12 % to 95 %


class Counts:
    """How often files were needed, by the words of the prompts."""

    def __init__(self) -> None:
        self.tasks = 0
        self.files: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.together: dict[str, Counter[str]] = defaultdict(Counter)

    def learn(self, walk: Walk) -> None:
        touched = walk.touched
        if not touched or len(touched) > TASK_FILES_MAX:
            return
        self.tasks += 1
        self.files.update(touched)
        for word in set(hook.terms(walk.prompt)):
            self.words[word] += 1
            self.together[word].update(touched)

    def prior(self, path: str) -> float:
        share = (self.files[path] + 0.5) / (self.tasks + 1)
        return math.log(share / (1 - min(share, 0.99)))

    def weight(self, word: str, path: str) -> float:
        """What a word adds to the log-odds of a file: how much likelier the file is with it."""
        seen = self.together[word][path]
        if seen < TOGETHER_MIN:
            return 0.0
        share = (self.files[path] + 0.5) / (self.tasks + 1)
        given = (seen + PSEUDO * share) / (self.words[word] + PSEUDO)
        return max(0.0, SHRINK * math.log(given / share))

    def line(self, path: str) -> str:
        """What is printed of a file: its path, and the reason."""
        return f"- {' '.join(path.split())} ({self.files[path]} of {self.tasks} tasks)"

    def best(self, prompt: str) -> list[tuple[float, str]]:
        """The files that a hook would offer, with their scores."""
        scores = {path: self.prior(path) for path, _ in self.files.most_common(PLACES_MAX)}
        for word in set(hook.terms(prompt)):
            for path in self.together.get(word, ()):
                if path in scores:
                    scores[path] += self.weight(word, path)
        ranked = sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
        return [(score, path) for path, score in ranked[: hook.OFFERS_MAX]]


def hints(walks: Sequence[Walk], *, exists: Callable[[str], bool], holdout: float) -> Hints | None:
    """What a hook may say; None where the history does not show that saying it pays."""
    counts = Counts()
    gate = Gate()
    running: list[tuple[datetime, EventId, Walk]] = []
    for walk in sorted(walks[-TASKS_MAX:], key=lambda walk: (walk.at, walk.id)):
        while running and running[0][0] <= walk.at:  # what had not ended was not known
            counts.learn(heappop(running)[2])
        if walk.prompt and walk.steps and not hook.names_path(walk.prompt):
            gate.judge(walk, counts.best(walk.prompt), line=counts.line)
        heappush(running, (walk.ended_at, walk.id, walk))
    for _, _, walk in sorted(running):
        counts.learn(walk)
    best = gate.best
    if best is None or gate.net_tokens <= 0:
        return None
    paths = [path for path, _ in counts.files.most_common() if exists(path)][:PLACES_MAX]
    numbers = {path: number for number, path in enumerate(paths)}
    return Hints(
        places=tuple(_place(path, counts) for path in paths),
        terms=dict(_weights(counts, numbers, counts.words)),
        gate=best,
        head=HEAD,
        holdout=holdout,
    )


class Gate:
    """From which score on a list is offered: what saved most so far, judged by what it did on tasks after that.

    `net_tokens` is what lists would have saved, their cost counted, had each task been answered by the gate of those
    before it.
    """

    def __init__(self) -> None:
        self.net_tokens = 0
        self._nets = dict.fromkeys(GATES, 0)
        self._spoke = dict.fromkeys(GATES, 0)

    @property
    def best(self) -> float | None:
        """None while lists have never saved anything, or too few would have been offered."""
        enough = [gate for gate in GATES if self._spoke[gate] >= SPOKEN_MIN and self._nets[gate] > 0]
        return max(enough, key=lambda gate: (self._nets[gate], gate), default=None)

    def judge(self, walk: Walk, best: Sequence[tuple[float, str]], *, line: Callable[[str], str]) -> None:
        nets = {gate: _net(walk, [path for score, path in best if score >= gate], line=line) for gate in GATES}
        if self.best is not None:
            self.net_tokens += nets[self.best] or 0
        for gate, net in nets.items():
            self._spoke[gate] += net is not None
            self._nets[gate] += net or 0


def _net(walk: Walk, offered: Sequence[str], *, line: Callable[[str], str]) -> int | None:
    """What a list of these paths saves, less what its text costs; None for no list."""
    if not offered:
        return None
    return saved(walk, offered)[0] - about("\n".join([HEAD, *map(line, offered)]))


def _place(path: str, counts: Counts) -> Place:
    return Place(path=path, text=counts.line(path), prior=round(counts.prior(path), 3))


def _weights(
    counts: Counts, numbers: dict[str, int], words: Collection[str]
) -> Iterable[tuple[str, tuple[tuple[int, float], ...]]]:
    made = 0
    for word in sorted(words, key=lambda word: (-counts.words[word], word)):
        added = [
            (numbers[path], round(weight, 3))
            for path in sorted(counts.together[word])
            if path in numbers and (weight := counts.weight(word, path)) > 0
        ]
        if added:
            made += 1
            yield word, tuple(added)
        if made >= TERMS_MAX:
            return
