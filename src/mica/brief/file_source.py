"""Where agents go: the files that a task will need, and without a task those that were used most."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from mica.brief.question import Question
from mica.model.event import Event, EventId, EventQuery, Passage
from mica.store.protocol import Store

TURNS_MAX = 15  # prompts that vote; measured on real sessions, more add noise (see docs/why.md)
FILES_MAX = 8  # a list of paths pays only while it is short
STEPS_MAX = 5_000  # steps read when nothing is asked: a few weeks of one person's work
STEP_NAMES = ("file.read", "file.edit", "file.create")


class Visit(msgspec.Struct, kw_only=True):
    """How often a file was used, and where in it last."""

    path: str
    votes: float = 0.0
    turns: set[EventId] = msgspec.field(default_factory=set)
    sessions: set[str] = msgspec.field(default_factory=set)
    tokens: int = 0
    reads: int = 0
    edits: int = 0
    last: Event | None = None


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A file that `navigate` ranks for a task: where to begin, why, and what last touched it."""

    path: str
    lines: tuple[tuple[int, int], ...]
    reason: str
    last: EventId
    at: datetime
    probability: float = 0.0  # that the task needs it, calibrated


Rank = Callable[[str, float | None], Awaitable[Sequence[Ranked] | None]]  # for a task, within so many seconds


class Files:
    """The files of a space: for a task as `navigate` ranks them, else as its agents used them."""

    name = "files"

    def __init__(self, store: Store, ranked: Rank | None = None) -> None:
        """`ranked` answers for a task as `navigate` does; None where it cannot in time: then turns like it vote."""
        self._store = store
        self._ranked = ranked

    async def passages(self, question: Question) -> Sequence[Passage]:
        ranked = None
        if question.query and self._ranked is not None:
            ranked = await self._ranked(question.query, question.meaning_s)
        if ranked is not None:
            return self._told(ranked[:FILES_MAX])
        if question.query:
            steps, weights = await self._steps_like(question)
        else:
            steps, weights = await self._store.events(EventQuery(names=STEP_NAMES, limit=STEPS_MAX)), {}
        visited = sorted(visits(steps, weights), key=lambda visit: (-visit.votes, visit.path))[:FILES_MAX]
        if not visited:
            return []
        described = ", ".join(_described(visit) for visit in visited)
        return [
            Passage(
                text=described,
                sources=tuple(visit.last.id for visit in visited if visit.last),
                tokens=0,
                score=1.0,  # as much as the best mark: one short line, which pays first
                at=max(visit.last.at for visit in visited if visit.last),
                source=self.name,
                kind="files used for such prompts" if question.query else "files used most",
            )
        ]

    def _told(self, ranked: Sequence[Ranked]) -> Sequence[Passage]:
        if not ranked:
            return []
        return [
            Passage(
                text=", ".join(_placed(each) for each in ranked),
                sources=tuple(dict.fromkeys(each.last for each in ranked)),
                tokens=0,
                score=1.0,
                at=max(each.at for each in ranked),
                source=self.name,
                kind="files for such a task",
            )
        ]

    async def _steps_like(self, question: Question) -> tuple[list[Event], dict[EventId, float]]:
        """The steps of the turns whose prompts are most like the query, and what each turn's vote weighs."""
        prompts = [hit for hit in await question.hits() if "prompt" in hit.mark.tags][:TURNS_MAX]
        steps: list[Event] = []
        weights: dict[EventId, float] = {}
        for hit in prompts:
            turn = [
                event for event in await self._store.chain(hit.mark.id) if event.name in STEP_NAMES and not event.error
            ]
            paths = {str(event.data.get("path")) for event in turn}
            weights[hit.mark.id] = hit.score / math.sqrt(len(paths) or 1)
            steps += turn
        return steps, weights


def visits(steps: Iterable[Event], weights: dict[EventId, float] | None = None) -> list[Visit]:
    """Steps by file. A turn votes once for a file, with its weight, or 1 without weights. Failures do not count."""
    found: dict[str, Visit] = {}
    votes: dict[str, dict[EventId, float]] = defaultdict(dict)
    for step in steps:
        data = step.data
        path = data.get("path")
        if step.error or not isinstance(path, str):
            continue
        visit = found.setdefault(path, Visit(path=path))
        votes[path][step.root_id] = (weights or {}).get(step.root_id, 0.0 if weights else 1.0)
        visit.turns.add(step.root_id)
        visit.sessions.add(step.context.session or "")
        tokens = data.get("tokens")
        visit.tokens += tokens if isinstance(tokens, int) and step.name == "file.read" else 0
        visit.reads += step.name == "file.read"
        visit.edits += step.name != "file.read"
        visit.last = step if visit.last is None or step.at >= visit.last.at else visit.last
    for path, visit in found.items():
        visit.votes = math.fsum(votes[path].values())
    return list(found.values())


def _placed(ranked: Ranked) -> str:
    lines = ",".join(f"{start}-{end}" for start, end in ranked.lines[:2])
    return f"{ranked.path}{f':{lines}' if lines else ''} ({ranked.reason})"


def _described(visit: Visit) -> str:
    start, end = (visit.last.data.get(name) if visit.last else None for name in ("start_line", "end_line"))
    lines = f":{start}-{end}" if isinstance(start, int) and isinstance(end, int) else ""
    times = len(visit.turns)
    return f"{visit.path}{lines} ({times} turn{'s' if times != 1 else ''})"
