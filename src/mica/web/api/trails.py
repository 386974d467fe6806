"""`memory.trails` over HTTP: list, load and make trails, and report which files tasks opened.

A trail is a list of files that proved useful for a kind of task.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.format.documents import choice_document, trail_document
from mica.memory import Memory
from mica.model.event import EventId, utc_now
from mica.model.trail import PREFIX, State
from mica.model.walk import Outcome, Step
from mica.navigation.anchors.followed import OmittedRange
from mica.navigation.report import Period, Report
from mica.navigation.trails.evolution import TrailStatistics
from mica.navigation.trails.loader import LOADED_TOKENS
from mica.navigation.walk_reports import WalkReport
from mica.web.api.everyday import RecordedEvent
from mica.web.api.fields import Budget, Limit, Moment, Name, Reference, Words
from mica.web.operations import API

BY_HAND = EventId("by-hand")  # instead of the event of a step that was not recorded
Line: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Slug: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=60)]
TrailName: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^/]+$", description="A trail's name, slug or key.")
]
TrailOut: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(title="Trail", description="A trail with its name, entry, success rate and saving."),
]


class TrailsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: State | None = None
    shape: Name | None = None
    with_archived: bool = False
    limit: Limit = 20


class TrailList(msgspec.Struct, frozen=True, kw_only=True):
    """Trails, most valuable first."""

    trails: list[TrailOut]


@API.get("trails.list", needs="read")
async def list_trails(memory: Memory, request: TrailsRequest) -> TrailList:
    """List the trails of this space, most valuable first."""
    trails = await memory.trails.list(
        state=request.state, shape=request.shape, with_archived=request.with_archived, limit=request.limit
    )
    return TrailList(trails=list(map(trail_document, trails)))


class TrailRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TrailName


@API.get("trails.show", needs="read")
async def show(memory: Memory, request: TrailRequest) -> TrailOut:
    """Get one trail by its name, slug or key."""
    return trail_document(await memory.trails.show(request.name))


@API.get("trails.stats", needs="read")
async def stats(memory: Memory) -> TrailStatistics:
    """Count trails and the tasks they were learned from, and report the cost of tasks by kind."""
    return await memory.trails.stats()


# -- Making trails ------------------------------------------------------------------------------------------------


class NewPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, or lines of it."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    start_line: Line | None = None
    end_line: Line | None = None

    def step(self) -> Step:
        if self.start_line is not None and self.end_line is not None and self.end_line < self.start_line:
            raise InvalidInput(f"{self.path} has no lines from {self.start_line} to {self.end_line}")
        return Step(
            path=self.path,
            operation="read",
            start_line=self.start_line,
            end_line=self.end_line,
            at=utc_now(),
            event=BY_HAND,
        )


class CreateTrailRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trail to make by hand. Its places are files, or lines of files, in the order in which to read them."""

    slug: Slug
    places: Annotated[tuple[NewPlace, ...], msgspec.Meta(min_length=1, max_length=100)]
    description: Words = ""
    shape: Annotated[str, msgspec.Meta(max_length=200)] = ""


class TrailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A trail with a name, the command that loads it, and the tokens that it saves per task, if they were measured."""

    trail: TrailOut
    command: str
    saving_tokens: int | None

    @classmethod
    def of(cls, document: dict[str, Any]) -> TrailAnswer:
        return cls(trail=document, command=f"/{PREFIX}{document['slug']}", saving_tokens=document["saving"])


@API.post("trails.create", needs="write")
async def create(memory: Memory, request: CreateTrailRequest) -> TrailAnswer:
    """Make a trail by hand. It gets a name and a command at once.

    If the files are on this machine, the given lines must exist.
    """
    made = await memory.trails.create(
        request.slug,
        [place.step() for place in request.places],
        description=request.description,
        shape=request.shape,
        root=await memory.events.directory(),
    )
    return TrailAnswer.of(trail_document(made))


class CrystallizeTrailRequest(TrailRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slug: Slug | None = None


@API.post("trails.crystallize", needs="write")
async def crystallize(memory: Memory, request: CrystallizeTrailRequest) -> TrailAnswer:
    """Give a learned trail a name, which makes it a command, even if it does not meet the conditions for one."""
    return TrailAnswer.of(trail_document(await memory.trails.crystallize(request.name, slug=request.slug)))


class LearnRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    days: Annotated[int, msgspec.Meta(ge=1, le=3_650)] = (
        7  # trails that were last walked earlier are left out of the answer
    )


@API.post("trails.learn", needs="write")
async def learn(memory: Memory, request: LearnRequest) -> TrailList:
    """Learn trails from new events, and list the hot ones: used often lately, and not named yet."""
    await memory.trails.learn()
    since = utc_now() - timedelta(days=request.days)
    hot = [each for each in await memory.trails.list(state="hot", limit=None) if each.last_at >= since]
    return TrailList(trails=list(map(trail_document, hot)))


# -- Using trails -------------------------------------------------------------------------------------------------


class ExploreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words  # a task, or a path
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 3


class ExploreAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Trails that match, best first, with reasons."""

    choices: list[dict[str, Any]]


@API.post("trails.explore", needs="read")
async def explore(memory: Memory, request: ExploreRequest) -> ExploreAnswer:
    """Find the trails that fit a task or contain a path, best first. It is recorded that they were offered."""
    choices = await memory.trails.explore(request.query, limit=request.limit)
    return ExploreAnswer(choices=list(map(choice_document, choices)))


class LoadTrailRequest(TrailRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    budget_tokens: Budget = LOADED_TOKENS
    outcome: Outcome = "unknown"


class LoadTrailAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The current text of a trail's files, and the parts that did not fit or were not found."""

    name: str
    text: str
    tokens: int
    drifted: bool
    left_out: tuple[OmittedRange, ...]


@API.post("trails.load", needs="read", is_timed=True)
async def load(memory: Memory, request: LoadTrailRequest) -> LoadTrailAnswer:
    """Get the current text of a trail's files within a budget. This is recorded as a use."""
    trail, root = await memory.trails.show(request.name), await memory.events.directory()
    if root is None:
        raise InvalidInput(
            f"the files of {request.name!r} are not on this machine, or not of this space; load them where they are"
        )
    loaded = await memory.trails.load(
        trail.key, root=root, budget_tokens=request.budget_tokens, outcome=request.outcome
    )
    return LoadTrailAnswer(
        name=trail.name, text=loaded.text, tokens=loaded.tokens, drifted=loaded.drifted, left_out=loaded.left_out
    )


class TrackRequest(TrailRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outcome: Outcome = "unknown"
    tokens: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class TrackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The event that records the use."""

    name: str
    event: str


@API.post("trails.track", needs="write")
async def track(memory: Memory, request: TrackRequest) -> TrackAnswer:
    """Record that a trail was used, with the outcome and the cost."""
    trail = await memory.trails.show(request.name)
    event = await memory.trails.track(trail, outcome=request.outcome, tokens=request.tokens)
    await memory.durable()
    return TrackAnswer(name=trail.name, event=event)


# -- Walks --------------------------------------------------------------------------------------------------------


class WalksRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Walks that another program observed. A walk is the list of files that a task opened and changed."""

    walks: Annotated[tuple[WalkReport, ...], msgspec.Meta(min_length=1, max_length=1_000)]


class WalksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The number of new events, which were stored, and the number of events that had been stored before."""

    stored: int
    repeated: int


@API.post("trails.import_walks", needs="write")
async def import_walks(memory: Memory, request: WalksRequest) -> WalksAnswer:
    """Report the files that tasks opened and changed, and how the tasks ended. Reporting again changes nothing."""
    imported = await memory.trails.import_walks([msgspec.json.encode(each) for each in request.walks])
    return WalksAnswer(stored=imported.stored, repeated=imported.repeated)


class OutcomeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a task."""

    reference: Reference  # the id or position of the prompt of the task
    outcome: Outcome
    reason: str = ""


@API.post("trails.outcome", needs="write")
async def outcome(memory: Memory, request: OutcomeRequest) -> RecordedEvent:
    """Record the outcome of a task. If several outcomes are recorded, the last one counts."""
    task = await memory.events.get(request.reference)
    ref = await asyncio.to_thread(memory.trails.outcome, task, request.outcome, reason=request.reason)
    await memory.durable()
    return RecordedEvent.of(ref)


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    period: Period = "day"
    until: Moment | None = None


@API.get("trails.report", needs="read")
async def report(memory: Memory, request: ReportRequest) -> Report:
    """Compare the work of a day or a week to the period before it, and tasks with suggested files to tasks without."""
    return await memory.trails.report(request.period, until=request.until)


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    latest: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that suggestions would have saved and wasted in the past tasks of this space."""

    verdict: str
    replay: dict[str, Any]


@API.get("trails.replay", needs="read")
async def replay(memory: Memory, request: ReplayRequest) -> ReplayAnswer:
    """Measure what suggestions would have saved in the latest tasks, each predicted only from earlier ones."""
    replayed = await memory.trails.replay(latest=request.latest)
    return ReplayAnswer(verdict=replayed.verdict, replay=msgspec.to_builtins(replayed))
