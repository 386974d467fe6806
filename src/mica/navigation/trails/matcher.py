"""Match trails to a task, and measure what each trail has saved.

A trail matches by its name, by the files already touched, or by the words of the prompt.

Savings are measured on the matching tasks since the trail was named, never computed from its length. If enough of these
tasks loaded the trail and enough did not, the two groups are compared by their tokens before the first edit. Otherwise
the tasks that did not load the trail are replayed: this estimates the searches that its list of files would have saved,
minus the cost of showing the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from statistics import fmean
from typing import NamedTuple

from mica.model.event import Event, EventId
from mica.model.trail import (
    CREATED,
    CRYSTALLIZED,
    MATCHES,
    PREFIX,
    USED,
    Choice,
    Measurement,
    Trail,
    covered_share,
    key_of,
    trust,
)
from mica.model.walk import Walk
from mica.navigation.replay import count_savings, measure_effort
from mica.navigation.trails.co_reads import normalize_path, similarity
from mica.navigation.trails.learner import learn_trails
from mica.navigation.trails.task_kinds import HEAD_CHARACTERS
from mica.settings import TrailSettings
from mica.tokens import about
from mica.words import terms

TASK_CHARACTERS = 2_000  # the beginning of a prompt that is searched for file names; the rest is usually a log
CHOICES = 3  # trails that are shown to an agent

_NAMED = re.compile(rf"(?<![\w-]){PREFIX}([a-z0-9-]+)")

SAMPLE_MIN = 8  # tasks in each group; fewer are not enough
ARMS, REPLAY = "two arms", "replay"


class TaskTerms(NamedTuple):
    """The text of a task, all of its terms, and the terms of its beginning."""

    text: str
    terms: set[str]
    head: set[str]


def choose(
    task: str,
    trails: Iterable[Trail],
    *,
    gates: TrailSettings,
    paths: Sequence[str] = (),
    agent: str | None = None,
    limit: int = CHOICES,
) -> list[Choice]:
    """Return the trails that match a task, at most `limit`, the most certain kind of match first; empty if none does.

    `paths` are the files that the task names or has touched, in order. Trails with the same kind of match are sorted by
    score, then by success rate. With `agent`, the success rate is that of this agent, if it is known.
    """
    text = task[:TASK_CHARACTERS]
    task_terms = TaskTerms(text, set(terms(text)), set(terms(text[:HEAD_CHARACTERS])))
    named = set(_NAMED.findall(text))
    touched = [path for path in map(normalize_path, paths) if path is not None]
    keys = {key_of(touched)} if touched else set()
    fits = (
        _fit(trail, named=named, keys=keys, touched=touched, task_terms=task_terms, gates=gates) for trail in trails
    )
    choices = [choice for choice in fits if choice is not None]
    choices.sort(
        key=lambda choice: (
            MATCHES.index(choice.match),
            -choice.score,
            -trust(choice.trail, gates, agent=agent),
            -choice.trail.runs,
            choice.trail.key,
        )
    )
    return choices[:limit]


def _fit(
    trail: Trail,
    *,
    named: set[str],
    keys: set[str],
    touched: Sequence[str],
    task_terms: TaskTerms,
    gates: TrailSettings,
) -> Choice | None:
    if trail.slug in named:
        return Choice(trail=trail, match="exact", score=1.0, reason=f"the task names {trail.name}")
    if keys.intersection((trail.key, *trail.merged)):
        return Choice(trail=trail, match="exact", score=1.0, reason="the task touched exactly its files, in its order")
    if (
        touched
        and (alike := max(similarity(trail.paths, touched), covered_share(trail.paths, touched))) >= gates.similar
    ):
        return Choice(
            trail=trail, match="shape", score=round(alike, 6), reason=f"{alike:.0%} of its files were touched"
        )
    return _by_words(trail, task_terms, gates=gates)


def _by_words(trail: Trail, task_terms: TaskTerms, *, gates: TrailSettings) -> Choice | None:
    """Match a trail by the words of the task; None if too few of them match.

    Either the task must contain enough names of the trail's files, or enough of the trail's words and of the words in
    its file names. In measurements, the trail's words alone were wrong five times out of six, and the words of file
    names alone two times out of three.
    """
    files = [path.rpartition("/")[2] for path in trail.paths]
    named = [file for file in files if file in task_terms.text]
    matching = [(term, share) for term, share in trail.words if term in task_terms.head]
    names = {term for file in files for term in terms(file.partition(".")[0])}
    score_of_words = (sum(share for _, share in matching) + len(names & task_terms.terms) / (len(names) or 1)) / 2
    score = round(max(len(named) / len(files), score_of_words), 6)
    if score < gates.words:
        return None
    words = named or [*dict.fromkeys([*(term for term, _ in matching), *sorted(names & task_terms.terms)])]
    verb = "names" if named else "mentions"
    return Choice(trail=trail, match="words", score=score, reason=f"the task {verb} {', '.join(words)}")


def measure_savings(
    trail: Trail,
    walks: Sequence[Walk],
    records: Sequence[Event],
    *,
    gates: TrailSettings,
    render: Callable[[Trail], str],
) -> Measurement | None:
    """Measure the average tokens of matching tasks with and without a trail; None if there are too few tasks.

    Tasks are matched against the trail as it was when it was first named, and only tasks after that time count.
    `records` are the recorded events about trails. `render` returns the text of a trail; the tokens of this text are
    the cost of showing the trail.
    """
    keys = {trail.key, *trail.merged}
    named_at = min((event.at for event in records if _names(event, keys)), default=None)
    if named_at is None:
        return None
    later = [walk for walk in walks if walk.at > named_at and walk.prompt and walk.steps]
    if len(later) < SAMPLE_MIN:
        return None
    then = _trail_at(trail, walks, records, keys=keys, at=named_at, gates=gates)
    if then is None:
        return None
    loads = _loads(records, keys)
    fitting = [walk for walk in later if choose(walk.prompt, [then], gates=gates)]
    without = [walk for walk in fitting if walk.id not in loads]
    within = [walk for walk in later if walk.id in loads]
    if min(len(without), len(within)) >= SAMPLE_MIN:
        return Measurement(
            method=ARMS,
            sample=len(without) + len(within),
            baseline_tokens=round(fmean(measure_effort(walk).tokens for walk in without)),
            tokens=round(fmean(measure_effort(walk).tokens + loads[walk.id] for walk in within)),
        )
    if len(without) < SAMPLE_MIN:
        return None
    cost_tokens = about(render(then))
    return Measurement(
        method=REPLAY,
        sample=len(without),
        baseline_tokens=round(fmean(measure_effort(walk).tokens for walk in without)),
        tokens=round(
            fmean(measure_effort(walk).tokens - count_savings(walk, then.paths)[0] + cost_tokens for walk in without)
        ),
    )


def _names(event: Event, keys: set[str]) -> bool:
    return event.name in (CREATED, CRYSTALLIZED) and event.data.get("key") in keys


def _trail_at(
    trail: Trail,
    walks: Sequence[Walk],
    records: Sequence[Event],
    *,
    keys: set[str],
    at: datetime,
    gates: TrailSettings,
) -> Trail | None:
    """Return the trail as it would have been learned at the time `at`, from earlier walks and events only.

    `keys` are the keys of the trail. The result is None if the earlier walks and events give no trail with such a key.
    """
    known = learn_trails(
        [walk for walk in walks if walk.ended_at <= at], [event for event in records if event.at <= at], gates=gates
    )
    return next((each for each in known if keys.intersection((each.key, *each.merged))), None)


def _loads(records: Sequence[Event], keys: set[str]) -> dict[EventId, int]:
    """Return how many tokens each walk loaded from a trail, by the id of the walk. Other walks are left out.

    `keys` are the keys of the trail. If a walk used the trail several times, the tokens are added up.
    """
    loads: dict[EventId, int] = {}
    for event in records:
        if event.name == USED and event.data.get("key") in keys and event.root_id != event.id:
            tokens = event.data.get("tokens")
            loads[event.root_id] = loads.get(event.root_id, 0) + (tokens if isinstance(tokens, int) else 0)
    return loads


def match_path(trail: Trail, path: str) -> Choice | None:
    """Match a trail to the file or folder `path`; None if the trail has no file there."""
    steps = [step for step in trail.paths if step == path or step.startswith(path.rstrip("/") + "/")]
    if not steps:
        return None
    share = round(len(steps) / len(trail.paths), 6)
    return Choice(trail=trail, match="shape", score=share, reason=f"{len(steps)} of its files are there")
