"""Trails over HTTP: what an orchestrator lists, loads and reports, and what it may make by itself (A-19, A-34)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.format.documents import choice_document, trail_document
from mica.memory import Memory
from mica.model.event import EventId, utc_now
from mica.model.trail import PREFIX, State
from mica.model.walk import Outcome, Step
from mica.navigation.anchors.followed import LeftOut
from mica.navigation.trails.evolution import Stats
from mica.navigation.trails.library import LOADED_TOKENS
from mica.navigation.walk_reports import Reported
from mica.web.api.fields import Limit, Name, Words
from mica.web.operations import API

BY_HAND = EventId("by-hand")  # of a step that no event has recorded
Line: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
TrailName: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^/]+$", description="A trail's name, slug or key.")
]
TrailOut: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(title="Trail", description="A trail with its name, entry, success and saving."),
]


class TrailsAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: State | None = None
    shape: Name | None = None
    with_archived: bool = False
    limit: Limit = 20


class TrailAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TrailName


class PlaceGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, or lines of it."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    start_line: Line | None = None
    end_line: Line | None = None


class NewTrail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trail that somebody makes by hand, in the order in which it is read."""

    slug: Annotated[str, msgspec.Meta(min_length=1, max_length=60)]
    places: Annotated[tuple[PlaceGiven, ...], msgspec.Meta(min_length=1, max_length=100)]
    description: Words = ""
    shape: Annotated[str, msgspec.Meta(max_length=200)] = ""


class NamedTrail(TrailAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slug: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] | None = None


class SearchAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words  # a task, or a path
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 3


class LoadAsked(TrailAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    budget_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = LOADED_TOKENS
    outcome: Outcome = "unknown"


class UseAsked(TrailAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outcome: Outcome = "unknown"
    tokens: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class DetectAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    days: Annotated[int, msgspec.Meta(ge=1, le=3_650)] = 7  # a trail that nobody walked since is left out


class Trails(msgspec.Struct, frozen=True, kw_only=True):
    """Trails, those worth most first."""

    trails: list[TrailOut]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A crystallized trail, the command it becomes, and what it saved where that was measured."""

    trail: TrailOut
    command: str
    saving_tokens: int | None


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Trails that fit, best first, and why."""

    choices: list[dict[str, Any]]


class LoadedTrail(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of a trail say now, and what of them is not shown."""

    name: str
    text: str
    tokens: int
    drifted: bool
    left_out: tuple[LeftOut, ...]


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """The event that records the use."""

    name: str
    event: str


class WalkTold(msgspec.Struct, frozen=True, kw_only=True):
    """How many events were stored; 0 where the walk had been told before."""

    stored: int
    repeated: int


@API.get("/trails", tag="trails")
async def trails(memory: Memory, asked: TrailsAsked) -> Trails:
    """Where agents go: the trails of this space, those worth most first."""
    found = await memory.trails.list(
        state=asked.state, shape=asked.shape, with_archived=asked.with_archived, limit=asked.limit
    )
    return Trails(trails=list(map(trail_document, found)))


@API.get("/trails/metrics", tag="trails")
async def trail_metrics(memory: Memory) -> Stats:
    """How much was learned from what, and what tasks of each kind cost, counted from the log."""
    return await memory.trails.stats()


@API.get("/trails/{name}", tag="trails")
async def trail(memory: Memory, asked: TrailAsked) -> TrailOut:
    """One trail by its name or key."""
    return trail_document(await memory.trails.show(asked.name))


@API.post("/trails", tag="trails")
async def create_trail(memory: Memory, asked: NewTrail) -> Made:
    """Make a trail by hand, crystallized at once. Where the files are on this machine, the lines must be there."""
    steps = [_step(place) for place in asked.places]
    made = await memory.trails.create(
        asked.slug, steps, description=asked.description, shape=asked.shape, root=await memory.directory()
    )
    return _made(trail_document(made))


@API.post("/trails/crystallize", tag="trails")
async def crystallize_trail(memory: Memory, asked: NamedTrail) -> Made:
    """Give a learned trail its name for good, whatever the gate says."""
    return _made(trail_document(await memory.trails.crystallize(asked.name, slug=asked.slug)))


@API.post("/trails/search", tag="trails")
async def search_trails(memory: Memory, asked: SearchAsked) -> Choices:
    """The trails that fit a task or lead to a path, best first; what is found is recorded as offered."""
    found = await memory.trails.explore(asked.query, limit=asked.limit)
    return Choices(choices=list(map(choice_document, found)))


@API.post("/trails/load", tag="trails", timed=True)
async def load_trail(memory: Memory, asked: LoadAsked) -> LoadedTrail:
    """What a trail's files say now, within a budget; records that it was used."""
    shown, root = await memory.trails.show(asked.name), await memory.directory()
    if root is None:
        raise InvalidInput(
            f"the files of {asked.name!r} are not on this machine, or not of this space; load them where they are"
        )
    loaded = await memory.trails.load(shown.key, root=root, budget_tokens=asked.budget_tokens, outcome=asked.outcome)
    return LoadedTrail(
        name=shown.name, text=loaded.text, tokens=loaded.tokens, drifted=loaded.drifted, left_out=loaded.left_out
    )


@API.post("/trails/track", tag="trails")
async def track_trail(memory: Memory, asked: UseAsked) -> Used:
    """Report that a trail was used, how it ended and what it cost. Answered means on disk."""
    used = await memory.trails.show(asked.name)
    event = await memory.trails.track(used, outcome=asked.outcome, tokens=asked.tokens)
    await memory.durable()
    return Used(name=used.name, event=event)


@API.post("/trails/detect", tag="trails")
async def detect_trails(memory: Memory, asked: DetectAsked) -> Trails:
    """Learn from what is new, and tell which trails are hot: walked often of late, and not crystallized yet."""
    await memory.trails.learn()
    since = utc_now() - timedelta(days=asked.days)
    hot = [each for each in await memory.trails.list(state="hot", limit=None) if each.last_at >= since]
    return Trails(trails=list(map(trail_document, hot)))


@API.post("/walks", tag="trails")
async def walk(memory: Memory, asked: Reported) -> WalkTold:
    """Report what was opened and changed for a task, and how it ended; telling it again changes nothing."""
    told = await memory.import_walks([msgspec.json.encode(asked)])
    return WalkTold(stored=told.stored, repeated=told.repeated)


def _step(place: PlaceGiven) -> Step:
    if place.start_line is not None and place.end_line is not None and place.end_line < place.start_line:
        raise InvalidInput(f"{place.path} has no lines from {place.start_line} to {place.end_line}")
    return Step(
        path=place.path,
        operation="read",
        start_line=place.start_line,
        end_line=place.end_line,
        at=utc_now(),
        event=BY_HAND,
    )


def _made(told: dict[str, Any]) -> Made:
    return Made(trail=told, command=f"/{PREFIX}{told['slug']}", saving_tokens=told["saving"])
