"""Trails: files and line ranges that proved useful together for a kind of task, with success and age.

A trail is a projection of the log: learned from walks, and from what people and rules said of it in events. It holds
references, never contents. What depends on the time (state and score) is filled in by `seen`, for a moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

import msgspec

from mica.errors import InvalidInput
from mica.model.event import RETRACTED, EventId, left_after
from mica.model.walk import Step
from mica.settings import TrailSettings

State = Literal["observed", "hot", "crystallized", "cooling", "archived"]
STATES: tuple[State, ...] = ("observed", "hot", "crystallized", "cooling", "archived")
By = Literal["rule", "user"]

CREATED = "trail.created"  # by a person: {"slug", "description", "shape", "steps"}
CRYSTALLIZED = "trail.crystallized"  # by a rule or a person: {"key", "slug", "version", "exact", "steps", …}
SUSPENDED = "trail.suspended"  # by a person: {"key", "reason"}
RESUMED = "trail.resumed"  # by a person: {"key"}
RENAMED = "trail.renamed"  # by a person: {"key", "slug"}
OFFERED = "trail.offered"  # somebody was told of it: {"key", "match", "score"}
USED = "trail.used"  # it was loaded or followed: {"key", "outcome", "tokens"}
MEASURED = "trail.measured"  # what it saved or wasted: {"key", "method", "sample", "baseline_tokens", "tokens"}
LEARNING = "trail.learning"  # switched by a person: {"on"}
PUBLISHED = (
    "trail.published"  # where files were written, for a purge to find: {"root", "host", "commands", "skills", …}
)
EVOLVED = "trail.evolved"  # what a day's evolution changed
# What a trail is made of besides walks.
TOLD = (CREATED, CRYSTALLIZED, SUSPENDED, RESUMED, RENAMED, USED, MEASURED, RETRACTED)

PREFIX = "nav:"
SLUG_CHARACTERS_MAX = 60  # it is the name of a command, a folder and a file
STEPS_MAX = 12  # of a trail: longer ones are read by nobody, and an agent's list of files is short

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How often somebody walked a trail, and how it ended where that was said."""

    runs: int = 0
    successes: int = 0
    failures: int = 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a trail saved, or wasted, by a replay or by two logged arms; never by a formula (TA-05, TA-06)."""

    method: str
    sample: int  # tasks of both arms
    baseline_tokens: int
    tokens: int

    @property
    def saving(self) -> int:
        """In tokens; negative where the trail wasted some."""
        return self.baseline_tokens - self.tokens


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Files and ranges in the order in which they are read."""

    key: str  # of its paths in order: what later walks are matched by
    exact: str  # of paths, ranges and hashes: whether it is still what was learned
    slug: str
    shape: str  # the kind of task, as in fix-login
    description: str
    steps: tuple[Step, ...]
    words: tuple[tuple[str, float], ...] = ()  # terms that lead to it, with their shares, which add up to 1
    runs: int = 0
    successes: int = 0
    failures: int = 0
    sessions: int = 0
    walks: tuple[EventId, ...] = ()  # the latest that it was learned from
    agents: dict[str, Figures] = {}
    first_at: datetime
    last_at: datetime  # of its last use
    by: By | None = None  # who crystallized it
    version: int = 0  # grows when its steps change; 0 until it is crystallized
    drifted: bool = False  # walked otherwise since it was crystallized: the next evolution makes a new version
    suspended: str | None = None  # why nobody is told of it
    merged: tuple[str, ...] = ()  # keys of other trails that it stands for
    measured: Measured | None = None
    state: State = "observed"  # at the moment that `seen` was asked for
    score: float = 0.0

    @property
    def name(self) -> str:
        return PREFIX + self.slug

    @property
    def entry(self) -> str:
        """The file to begin with."""
        return self.steps[0].path

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files and patterns, each once, in order."""
        return tuple(dict.fromkeys(step.pattern or step.path for step in self.steps))

    @property
    def tokens(self) -> int | None:
        """What reading those of its steps cost whose cost is known; None where none is."""
        known = [step.tokens for step in self.steps if step.tokens is not None]
        return sum(known) if known else None

    @property
    def success(self) -> float | None:
        """The share of known outcomes that were successes; None while none is known (TA-09)."""
        known = self.successes + self.failures
        return self.successes / known if known else None

    @property
    def is_offered(self) -> bool:
        """Whether anybody may be told of it unasked."""
        return self.state in ("hot", "crystallized") and self.suspended is None


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a log was learned: up to which position, and after how many purges."""

    position: int = 0
    generation: int = 0


class TrailQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which trails to read; every given field must hold."""

    shape: str | None = None
    slug: str | None = None
    order: Literal["runs", "last_at"] = "runs"  # the most first
    limit: int | None = 100

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidInput(f"a limit of {self.limit} is not possible; give 0 or more, or None for all")


# -- Keys -----------------------------------------------------------------------------------------------------


def key_of(paths: Iterable[str]) -> str:
    """What a trail over these paths in this order is matched by."""
    return _hash(dict.fromkeys(paths))


def exact_key(steps: Iterable[Step]) -> str:
    """What changes when a path, a range or the text that was read there changes."""
    return _hash(
        f"{each.pattern or each.path}\t{each.start_line}\t{each.end_line}\t{each.content_hash}" for each in steps
    )


def _hash(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def check_slug(slug: str) -> str:
    """The name of a trail without `nav:`. Raises InvalidInput when no command could be called so."""
    slug = slug.removeprefix("/").removeprefix(PREFIX)
    if len(slug) > SLUG_CHARACTERS_MAX or not _SLUG.fullmatch(slug):
        raise InvalidInput(
            f"a trail cannot be called {slug!r}; use up to {SLUG_CHARACTERS_MAX} of a-z, 0-9 and single hyphens"
        )
    return slug


@lru_cache(maxsize=4_096)
def _fits(pattern: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))


def stands_for(step: str, path: str) -> bool:
    """Whether a file is the one that a path or pattern of a trail names; `*` goes no further than a folder."""
    return step == path or ("*" in step and _fits(step).fullmatch(path) is not None)


def walked(trail: Sequence[str], paths: Iterable[str]) -> float:
    """The share of a trail's paths and patterns that these files cover."""
    files = set(paths)
    met = sum(step in files or ("*" in step and any(stands_for(step, path) for path in files)) for step in trail)
    return met / len(trail) if trail else 0.0


# -- The gate -------------------------------------------------------------------------------------------------


def bound(successes: int, failures: int, gates: TrailSettings) -> float:
    """How far success can be trusted: the observed share, drawn towards the suspension limit while it rests on little.

    A trail starts as if it had been at the limit for as many tasks as a candidate needs, and it is never trusted more
    than was seen. So 3 of 3 is 0.90 and just hot, 9 of 9 is 0.95, and one failure among four is below 0.80. A true 95 %
    bound would ask for 35 successes in a row before anything is hot. 0 while no outcome is known.
    """
    known = successes + failures
    if not known:
        return 0.0
    smoothed = (successes + gates.suspend * gates.runs) / (known + gates.runs)
    return round(min(smoothed, successes / known), 9)  # 5.4 / 6 is 0.9, whatever floats make of it


def trust(trail: Trail, gates: TrailSettings, *, agent: str | None = None) -> float:
    """The bound of a trail; of an agent who has walked it to a known end, by its own figures (K-09)."""
    own = trail.agents.get(agent) if agent is not None else None
    figures = own if own is not None and own.successes + own.failures else trail
    return bound(figures.successes, figures.failures, gates)


def is_candidate(trail: Trail, gates: TrailSettings) -> bool:
    """Whether it was walked often enough, in enough sessions, to enough success, to be hot."""
    return trail.runs >= gates.runs and trail.sessions >= gates.sessions and trust(trail, gates) >= gates.hot


def passes(trail: Trail, gates: TrailSettings) -> bool:
    """Whether a rule would crystallize it."""
    return is_candidate(trail, gates) and trust(trail, gates) >= gates.crystallize and trail.suspended is None


# -- Age ------------------------------------------------------------------------------------------------------


def freshness(last_at: datetime, *, now: datetime, gates: TrailSettings) -> float:
    """What is left of a score since the last use: half of it after each half-life."""
    return left_after(now - last_at, half_life_days=gates.half_life_days)


def heat(trail: Trail, *, now: datetime, gates: TrailSettings) -> float:
    """How much a trail is worth: its runs, weighed by what reading it costs, and halved with each half-life unused."""
    return trail.runs * (trail.tokens or 0) / 1_000 * freshness(trail.last_at, now=now, gates=gates)


def seen(trail: Trail, *, now: datetime, gates: TrailSettings) -> Trail:
    """The trail as it stands at a moment. Without use, time takes it from its state to cooling, then to archived."""
    state: State = "observed"
    suspended = trail.suspended
    left, unused = freshness(trail.last_at, now=now, gates=gates), now - trail.last_at
    known = trail.successes + trail.failures
    if trail.version and suspended is None and known and trust(trail, gates) < gates.suspend:
        suspended = f"{trail.successes} of {known} tasks succeeded, which is too few"
    if left < gates.cold or unused >= timedelta(days=gates.archive_days):
        state = "archived"
    elif unused >= timedelta(days=gates.half_life_days) or (trail.version and suspended is not None):
        state = "cooling"
    elif trail.version:
        state = "crystallized"
    elif suspended is None and is_candidate(trail, gates):
        state = "hot"
    return msgspec.structs.replace(trail, state=state, suspended=suspended, score=heat(trail, now=now, gates=gates))


def ranked(trails: Iterable[Trail]) -> list[Trail]:
    """Those worth most first; of equals, the one that was walked more often, then the one used last."""
    return sorted(trails, key=lambda each: (-each.score, -each.runs, -each.last_at.timestamp(), each.key))


def resolve(reference: str, trails: Iterable[Trail]) -> Trail | None:
    """The trail of this name, slug or key, also of a key that was merged."""
    slug = reference.removeprefix("/").removeprefix(PREFIX)
    held = list(trails)
    by: Mapping[str, Trail] = {key: each for each in held for key in (*each.merged, each.key)}
    return next((each for each in held if each.slug == slug), None) or by.get(reference)
