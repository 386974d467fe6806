"""Two sources: the files that a task will probably need, and the trails that match a concept.

A trail is a list of files that were used one after another for a kind of task, and proved useful.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from time import monotonic

from mica.brief.excerpt import Excerpt
from mica.brief.mark_source import SharedSearch
from mica.brief.worth import FILES, USED_FILES
from mica.events.activity import STEP_NAMES, Visit, count_visits
from mica.model.event import Event, EventId, EventQuery
from mica.model.trail import PREFIX, Trail, TrailQuery, trust, with_state
from mica.model.walk import STEPS
from mica.navigation.places import RankedFile, RankFiles
from mica.settings import TrailSettings
from mica.sources.protocol import RANK_FILE, Concept, Fragment, Question, SourceDeclaration
from mica.store.protocol import ChainIndex, EventLog, TrailTable

TURNS_MAX = 15  # similar past prompts whose files are counted; on real sessions, more of them added noise (docs/why.md)
FILES_MAX = 8  # a list of paths pays only while it is short
TRAILS_MAX = 500  # the most used trails, which are considered
TRAILS_SHOWN = 5  # trails about one concept; a brief shows fewer
PATHS_MAX = 8  # of a trail; a list of paths pays only while it is short
TRAIL_CHARACTERS_MAX = 1_000
LEARNED_S = 60.0  # cache lifetime of the trails; learning them emits no event
USED_FOR_PROMPTS, FOR_TASK = KINDS_FOR_TASK = ("files used for such prompts", "files for such a task")
RECENTLY = "used recently"  # a reason of the ranking that says nothing about the task
MOST_USED = "files used most"  # the kind of the line without a task
STEPS_MAX = 5_000  # steps read without a task: a few weeks of one person's work


# A path with a folder and a file name, as people write it in a task.
_NAMED_FILE = re.compile(r"(?<![\w:/.])(?:[\w.-]{1,80}/){1,20}[\w-]{1,80}\.\w{1,8}\b")


class RankedFileSource:
    """A source that lists files: with a task, those that `navigate` ranks first; without a task, the most used.

    For a task that names a file it has nothing to say.
    """

    declared = SourceDeclaration(name="files", concepts=(), is_live=True, answers_tasks=True)

    def __init__(
        self, log: EventLog, chains: ChainIndex, shared: SharedSearch, rank_files: RankFiles | None = None
    ) -> None:
        """`rank_files` ranks files for a task, as `Memory.navigate` does.

        If it is None or does not answer in time, the files that were used for similar prompts are listed.
        """
        self._log = log
        self._chains = chains
        self._shared = shared
        self._rank_files = rank_files

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        if _NAMED_FILE.search(question.task):  # the agent knows where to begin
            return []
        ranked = None
        if question.task and self._rank_files is not None:
            ranked = await self._rank_files(question.task, question.slow_s)
        if ranked is not None:
            return [
                _excerpt(number, _describe_ranked(each), each.last, each.at, worth=FILES, kind=FOR_TASK)
                for number, each in enumerate(_for_task(ranked)[:FILES_MAX])
            ]
        if question.task:
            steps, weights = await self._steps_like(question)
        else:
            steps, weights = await self._log.query(EventQuery(names=STEP_NAMES, limit=STEPS_MAX)), {}
        visited = sorted(count_visits(steps, weights), key=lambda visit: (-visit.votes, visit.path))[:FILES_MAX]
        if not visited:
            return []
        kind, worth = (USED_FOR_PROMPTS, FILES) if question.task else (MOST_USED, USED_FILES)
        return [
            _excerpt(number, _describe_visit(visit), visit.last.id, visit.last.at, worth=worth, kind=kind)
            for number, visit in enumerate(visited)
            if visit.last
        ]

    async def _steps_like(self, question: Question) -> tuple[list[Event], dict[EventId, float]]:
        """Return the file accesses that past prompts similar to the task led to, and the weight of each such prompt."""
        prompts = [hit for hit in await self._shared.hits(question) if "prompt" in hit.mark.tags][:TURNS_MAX]
        steps: list[Event] = []
        weights: dict[EventId, float] = {}
        for hit in prompts:
            turn = [
                event for event in await self._chains.chain(hit.mark.id) if event.name in STEP_NAMES and not event.error
            ]
            paths = {str(event.data.get("path")) for event in turn}
            weights[hit.mark.id] = hit.score / math.sqrt(len(paths) or 1)
            steps += turn
        return steps, weights

    async def close(self) -> None:
        """Do nothing: no resource is held."""


class TrailSource:
    """A source that answers a concept with trails: those whose name, kind of task or file is the concept's id.

    It caches the answer to the question whether the space has any trails. If the space has neither trails nor events
    from which trails are learned, the answer is cached until such an event arrives. Otherwise it is cached for
    `LEARNED_S` seconds, because another process may learn trails.
    """

    declared = SourceDeclaration(name="trails", rank=RANK_FILE, ttl_s=LEARNED_S, invalidated_by=("trail.*",))
    made_by = (*declared.invalidated_by, *STEPS)

    def __init__(
        self, log: EventLog, trails: TrailTable, *, stored: Callable[[], Awaitable[None]], gates: TrailSettings
    ) -> None:
        self._log = log
        self._trails = trails
        self._stored = stored
        self._gates = gates
        self._are_any: bool | None = None
        self._until_s = math.inf
        self._changes = 0

    @property
    def are_any(self) -> bool | None:
        """True if this space has trails, False if it has none, None if that is not cached."""
        return self._are_any if monotonic() < self._until_s else None

    @are_any.setter
    def are_any(self, value: bool | None) -> None:
        """Cache whether this space has trails. None drops the cached answer, as after an event that may make trails."""
        self._are_any = value
        self._changes += 1

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        concept, now = question.subject, question.now
        await self._stored()
        changes = self._changes
        found = [
            with_state(each, now=now, gates=self._gates)
            for each in await self._trails.query(TrailQuery(limit=TRAILS_MAX))
        ]
        is_used = bool(found or await self._log.query(EventQuery(names=self.made_by, limit=1)))
        if changes == self._changes:  # no event arrived meanwhile
            self._are_any = bool(found)
            self._until_s = monotonic() + LEARNED_S if is_used else math.inf
        fitting = [
            each for each in found if each.suspended is None and each.state != "archived" and _names(each, concept)
        ]
        return [
            Fragment(
                key=each.name,
                text=f"{each.name}: {' → '.join(each.paths[:PATHS_MAX])} (walked {each.runs} times)"[
                    :TRAIL_CHARACTERS_MAX
                ],
                confidence=trust(each, self._gates),
                at=min(each.last_at, now),
                source=self.declared.name,
                locator=each.name,
                sources=each.walks,
            )
            for each in fitting[:TRAILS_SHOWN]
            if each.first_at <= now
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _excerpt(number: int, text: str, source: EventId, at: datetime, *, worth: float, kind: str) -> Excerpt:
    """Return one file of a list as an excerpt; `number` is its place in the list."""
    return Excerpt(
        text=text,
        sources=(source,),
        score=worth / (1 + number / FILES_MAX),
        at=at,
        source=RankedFileSource.declared.name,
        kind=kind,
        section="files",
        ordinal=number,
    )


def _for_task(ranked: Sequence[RankedFile]) -> Sequence[RankedFile]:
    """Leave out files whose only reason is that they were used lately."""
    return [each for each in ranked if each.reason != RECENTLY]


def _describe_ranked(ranked: RankedFile) -> str:
    lines = ",".join(f"{start}-{end}" for start, end in ranked.lines[:2])
    return f"{ranked.path}{f':{lines}' if lines else ''} ({ranked.reason})"


def _describe_visit(visit: Visit) -> str:
    start, end = (visit.last.data.get(name) if visit.last else None for name in ("start_line", "end_line"))
    lines = f":{start}-{end}" if isinstance(start, int) and isinstance(end, int) else ""
    times = len(visit.turns)
    return f"{visit.path}{lines} ({times} turn{'s' if times != 1 else ''})"


def _names(trail: Trail, concept: Concept) -> bool:
    """Return True if a concept's id is the trail's name, its kind of task, or the path of one of its files.

    The last parts of a path are enough.
    """
    name = concept.id.removeprefix(PREFIX)
    return name in {trail.slug, trail.shape} or any(path == name or path.endswith(f"/{name}") for path in trail.paths)
