"""Trails: files and line ranges that proved useful together for a kind of task, with their success rate and age.

A trail is computed from the log: from walks (the files that an agent opened for one prompt, in order), and from events
about trails. It refers to files, and never has their contents. `with_state` fills in what depends on the current time.

A trail has a state. A new trail is "observed". It becomes "hot" when it proves useful often enough to be suggested, and
"crystallized" when a rule or a person gives it a permanent name. A trail that is not used becomes "cooling" and later
"archived".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Literal

import msgspec

from mica.errors import InvalidInput
from mica.model.event import RETRACTED, EventId, decay
from mica.model.text_cache import remember_texts
from mica.model.walk import Step
from mica.redact import redact
from mica.settings import TrailSettings

State = Literal["observed", "hot", "crystallized", "cooling", "archived"]
STATES: tuple[State, ...] = ("observed", "hot", "crystallized", "cooling", "archived")
By = Literal["rule", "user"]
Match = Literal["exact", "shape", "words"]  # same name or same files; similar files; words in common
MATCHES: tuple[Match, ...] = ("exact", "shape", "words")  # the most certain first

CREATED = "trail.created"  # by a person: {"slug", "description", "shape", "steps"}
CRYSTALLIZED = "trail.crystallized"  # by a rule or a person: {"key", "slug", "version", "exact", "steps", …}
SUSPENDED = "trail.suspended"  # by a person: {"key", "reason"}
RESUMED = "trail.resumed"  # by a person: {"key"}
RENAMED = "trail.renamed"  # by a person: {"key", "slug"}
OFFERED = "trail.offered"  # a trail was suggested: {"key", "match", "score"}
USED = "trail.used"  # a trail was loaded or followed: {"key", "outcome", "tokens"}
MEASURED = "trail.measured"  # what a trail saved or wasted: {"key", "method", "sample", "baseline_tokens", "tokens"}
LEARNING = "trail.learning"  # a person switched learning on or off: {"on"}
PUBLISHED = (
    "trail.published"  # where files were written, so that a purge finds them: {"root", "host", "commands", "skills", …}
)
EVOLVED = "trail.evolved"  # what the daily work on trails changed
# The events, besides walks, that trails are learned from.
TRAIL_EVENTS = (CREATED, CRYSTALLIZED, SUSPENDED, RESUMED, RENAMED, USED, MEASURED, RETRACTED)

PREFIX = "nav:"
SLUG_CHARACTERS_MAX = 60  # it is the name of a command, a folder and a file
STEPS_MAX = 12  # of a trail; agents do not read longer lists

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The number of runs of a trail by one agent, and how many of them are known to have succeeded or failed."""

    runs: int = 0
    successes: int = 0
    failures: int = 0


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measured tokens of tasks with and without a trail, from a replay or a comparison of tasks."""

    method: str
    sample: int  # number of tasks compared
    baseline_tokens: int  # mean tokens of a task without the trail
    tokens: int  # mean tokens of a task with the trail, including the cost of showing the trail

    @property
    def saving(self) -> int:
        """The mean number of tokens saved per task; negative if the trail costs more than it saves."""
        return self.baseline_tokens - self.tokens


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """Files and line ranges in reading order, with statistics of their use."""

    key: str  # hash of its paths in order, used to match later walks
    exact: str  # hash of paths, ranges and contents; changes whenever one of them changes
    slug: str
    shape: str  # the kind of task, as in fix-login
    description: str
    steps: tuple[Step, ...]
    words: tuple[tuple[str, float], ...] = ()  # terms of its tasks with their shares, which add up to 1
    runs: int = 0
    successes: int = 0
    failures: int = 0
    sessions: int = 0
    walks: tuple[EventId, ...] = ()  # the latest walks that it was learned from
    agents: dict[str, Figures] = {}
    first_at: datetime
    last_at: datetime  # of its last use, or of its naming if that was later; a trail cools from then on
    used_at: datetime | None = None  # of its last use
    by: By | None = None  # who crystallized it
    version: int = 0  # grows when its steps change; 0 until it is crystallized
    drifted: bool = False  # True if later walks used other lines; the next daily work makes a new version
    suspended: str | None = None  # the reason if the trail is suspended, that is, not to be suggested
    merged: tuple[str, ...] = ()  # keys of trails that were merged into this one
    measured: Measurement | None = None
    state: State = "observed"  # filled in by `with_state`
    score: float = 0.0

    @property
    def name(self) -> str:
        return PREFIX + self.slug

    @property
    def entry(self) -> str:
        """The path of the first file to read."""
        return self.steps[0].path

    @property
    def paths(self) -> tuple[str, ...]:
        """The trail's files and patterns, each once, in reading order."""
        return tuple(dict.fromkeys(step.pattern or step.path for step in self.steps))

    @property
    def tokens(self) -> int | None:
        """The total tokens of the steps whose count is known; None if no step has a count."""
        known = [step.tokens for step in self.steps if step.tokens is not None]
        return sum(known) if known else None

    @property
    def success(self) -> float | None:
        """The share of successes among the runs with a known outcome; None if no outcome is known."""
        known = self.successes + self.failures
        return self.successes / known if known else None

    @property
    def is_offered(self) -> bool:
        """True if the trail may be suggested to agents without a request."""
        return self.state in ("hot", "crystallized") and self.suspended is None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A trail that fits a task, with the kind of match, a score and the reason."""

    trail: Trail
    match: Match
    score: float  # 0 to 1, comparable only within one kind of match
    reason: str


class LearnedUpTo(msgspec.Struct, frozen=True, kw_only=True):
    """The log position up to which trails or beliefs were learned, and the number of purges at that time."""

    position: int = 0
    generation: int = 0


class TrailQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for trails: shape and slug must match if they are not None. Raises InvalidInput for a negative limit."""

    shape: str | None = None
    slug: str | None = None
    order: Literal["runs", "last_at"] = "runs"  # sort key, highest or latest first
    limit: int | None = 100  # of the trails in this order; None for all

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidInput(f"a limit of {self.limit} is not possible; use 0 or more, or None for all")


# -- Keys -----------------------------------------------------------------------------------------------------


def key_of(paths: Iterable[str]) -> str:
    """Return the key of the trail with these paths: a hash of the distinct paths in order."""
    return _hash(dict.fromkeys(paths))


def exact_key(steps: Iterable[Step]) -> str:
    """Return one hash of the paths, line ranges and content hashes of all steps. It changes if any of them does."""
    return _hash(
        f"{each.pattern or each.path}\t{each.start_line}\t{each.end_line}\t{each.content_hash}" for each in steps
    )


def _hash(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def check_slug(slug: str) -> str:
    """Return a trail's name without a leading `/` and `nav:`. Raises InvalidInput if it cannot be a command's name."""
    slug = slug.removeprefix("/").removeprefix(PREFIX)
    if len(slug) > SLUG_CHARACTERS_MAX or not _SLUG.fullmatch(slug):
        raise InvalidInput(
            f"a trail cannot be called {slug!r}; use up to {SLUG_CHARACTERS_MAX} of a-z, 0-9 and single hyphens"
        )
    if redact(slug) != slug:
        raise InvalidInput("a trail cannot be called like this, because the name looks like a secret")
    return slug


@remember_texts(4_096)
def _step_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))


def matches_step(step: str, path: str) -> bool:
    """True if a file matches a path or pattern of a trail. `*` matches any characters except `/`."""
    return step == path or ("*" in step and _step_pattern(step).fullmatch(path) is not None)


def covered_share(trail: Sequence[str], paths: Iterable[str]) -> float:
    """Return the share of a trail's paths and patterns that match at least one of the files in `paths`."""
    files = set(paths)
    covered = sum(step in files or ("*" in step and any(matches_step(step, path) for path in files)) for step in trail)
    return covered / len(trail) if trail else 0.0


# -- Success --------------------------------------------------------------------------------------------------


def success_bound(successes: int, failures: int, gates: TrailSettings) -> float:
    """Return a cautious success rate, or 0 if no outcome is known.

    While few outcomes are known, the rate is pulled towards the suspension limit `gates.suspend`: it is computed as if
    `gates.runs` more tasks had succeeded at that rate. It never exceeds the observed rate. By default, 3 successes of 3
    give 0.90, which is just enough for the state hot; 9 of 9 give 0.95, and 3 of 4 less than 0.80. A true 95 % bound
    would need 35 successes in a row before any trail is hot.
    """
    known = successes + failures
    if not known:
        return 0.0
    smoothed = (successes + gates.suspend * gates.runs) / (known + gates.runs)
    return round(min(smoothed, successes / known), 9)  # 5.4 / 6 must be exactly 0.9


def trust(trail: Trail, gates: TrailSettings, *, agent: str | None = None) -> float:
    """Return the cautious success rate (see `success_bound`) of a trail.

    If outcomes of runs by `agent` are known, only the runs by this agent count; otherwise the runs by all agents do.
    """
    own = trail.agents.get(agent) if agent is not None else None
    figures = own if own is not None and own.successes + own.failures else trail
    return success_bound(figures.successes, figures.failures, gates)


def is_candidate(trail: Trail, gates: TrailSettings) -> bool:
    """True if a trail has enough runs, sessions and successes to be hot."""
    return trail.runs >= gates.runs and trail.sessions >= gates.sessions and trust(trail, gates) >= gates.hot


def passes(trail: Trail, gates: TrailSettings) -> bool:
    """True if a trail is good enough to be crystallized automatically."""
    return is_candidate(trail, gates) and trust(trail, gates) >= gates.crystallize and trail.suspended is None


# -- Age ------------------------------------------------------------------------------------------------------


def freshness(last_at: datetime, *, now: datetime, gates: TrailSettings) -> float:
    """Return the decay factor for the time since the last use (`last_at`). It is halved with each half-life."""
    return decay(now - last_at, half_life_days=gates.half_life_days)


def heat(trail: Trail, *, now: datetime, gates: TrailSettings) -> float:
    """Return the score of a trail: its runs times its tokens in thousands, halved with each half-life without use."""
    return trail.runs * (trail.tokens or 0) / 1_000 * freshness(trail.last_at, now=now, gates=gates)


def with_state(trail: Trail, *, now: datetime, gates: TrailSettings) -> Trail:
    """Return a copy of the trail with its state and score at the time `now`.

    A trail that is not used becomes "cooling", then "archived". A crystallized trail is suspended if too few of its
    tasks succeeded; `suspended` is then the reason. A suspended crystallized trail is "cooling", too.
    """
    state: State = "observed"
    suspended = trail.suspended
    remaining, unused = freshness(trail.last_at, now=now, gates=gates), now - trail.last_at
    known = trail.successes + trail.failures
    if trail.version and suspended is None and known and trust(trail, gates) < gates.suspend:
        suspended = f"{trail.successes} of {known} tasks succeeded, which is too few"
    if remaining < gates.cold or unused >= timedelta(days=gates.archive_days):
        state = "archived"
    elif unused >= timedelta(days=gates.half_life_days) or (trail.version and suspended is not None):
        state = "cooling"
    elif trail.version:
        state = "crystallized"
    elif suspended is None and is_candidate(trail, gates):
        state = "hot"
    return msgspec.structs.replace(trail, state=state, suspended=suspended, score=heat(trail, now=now, gates=gates))


def rank_trails(trails: Iterable[Trail]) -> list[Trail]:
    """Return the trails by score, highest first. Those with equal scores are sorted by runs, then by last use."""
    return sorted(trails, key=lambda each: (-each.score, -each.runs, -each.last_at.timestamp(), each.key))


def resolve(reference: str, trails: Iterable[Trail]) -> Trail | None:
    """Return the trail with this name, slug or key; None if there is none.

    The key of a trail that was merged into another one stands for that other trail.
    """
    slug = reference.removeprefix("/").removeprefix(PREFIX)
    candidates = list(trails)
    by: Mapping[str, Trail] = {key: each for each in candidates for key in (*each.merged, each.key)}
    return next((each for each in candidates if each.slug == slug), None) or by.get(reference)
