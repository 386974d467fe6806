"""Learns trails: walks, and what was said of trails, become trails. Pure, bounded, and blind to the order of its input.

A set of files that several walks have in common is a trail, and every walk that touched all of them is a run of it.
What a person or a rule named stays as it was named; other sets that overlap it are absorbed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Literal

import msgspec

from mica.model.event import Event, EventId
from mica.model.trail import STEPS_MAX, USED, Figures, Trail, exact_key, key_of, stands_for, walked
from mica.model.walk import Step, Walk
from mica.navigation.trails.co_reads import WHOLE_MAX, Found, merged, mined, normalised
from mica.navigation.trails.records import Said, renamed_in, said_in
from mica.navigation.trails.steps import steps_of
from mica.navigation.trails.task_kinds import HEAD_CHARACTERS, prompt_terms, shape_of, slug_of
from mica.settings import TrailSettings

WALKS_MAX = 10_000  # the latest, that are learned from: a year or two of one person
TRAILS_MAX = 1_000  # that are kept: what was named, then those of the most walks, then the latest
MERGED_MAX = 64  # keys that one trail stands for
ORDERS_MAX = 50  # walks of a trail, its first and its latest, whose order makes a key that finds it
LEARNED_FROM_MAX = 20  # walks that a trail names
WORDS_MAX = 10  # that lead to a trail
PRIOR_PROMPTS = 5  # that are thought of as having none of the words: in few prompts nothing is common yet

Ending = Literal["success", "failure"]
ENDINGS: dict[str, Ending] = {"success": "success", "failure": "failure"}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A walk, or a use outside of one, as far as trails are learned from it."""

    id: EventId
    at: datetime
    session: str | None
    agent: str | None
    prompt: str = ""
    task: str | None = None
    paths: tuple[str, ...] = ()  # touched, normalised, in order
    steps: tuple[Step, ...] = ()
    ending: Ending | None = None  # None: nobody said


def ending_of(walk: Walk) -> Ending | None:
    """How a walk ended, where that is explicit: as somebody said, else by a commit. None when it is unknown or partial.

    An end without either is no success, whatever the agent's last words were (TA-09).
    """
    committed: Ending | None = "success" if walk.outcome == "unknown" and walk.committed else None
    return ENDINGS.get(walk.outcome, committed)


def run_of(walk: Walk, renamed: Mapping[str, str] | None = None) -> Run:
    """What is learned from a walk; files outside of the project are not. `renamed` are files that have another name."""
    named = ((normalised(path), path) for path in walk.touched)
    names = {path: (renamed or {}).get(name, name) for name, path in named if name is not None}
    steps = tuple(
        msgspec.structs.replace(step, path=names[step.path])
        for step in walk.steps
        if step.path in names and not step.failed
    )
    return Run(
        id=walk.id,
        at=walk.ended_at,
        session=walk.session,
        agent=walk.agent,
        prompt=walk.prompt[:HEAD_CHARACTERS],
        task=walk.task,
        paths=tuple(dict.fromkeys(names.values())),
        steps=steps,
        ending=ending_of(walk),
    )


def learned(walks: Iterable[Walk], told: Iterable[Event] = (), *, gates: TrailSettings) -> list[Trail]:
    """The trails that these walks and events tell of: what was named, then those of the most runs.

    The result depends on nothing else: not on the order in which they are given, and not on the time.
    """
    latest = sorted(walks, key=lambda walk: (walk.at, walk.id))[-WALKS_MAX:]
    events = sorted(told, key=lambda event: event.place)
    said = said_in(events)
    renamed = renamed_in(events)
    walked_runs = [run_of(walk, renamed) for walk in latest]
    sets = _sets(walked_runs, said, gates=gates)
    runs, uses = _used(walked_runs, events)
    named: list[Said | None] = [*said, *[None] * (len(sets) - len(said))]
    known = [_known(found, walked_runs, each) for found, each in zip(sets, named, strict=True)]
    owner = {key: place for place, (_, keys) in reversed(list(enumerate(known))) for key in keys}
    # A set whose own key a named trail has is that trail, with a file that it lost since.
    taken = {place: owner[known[place][1][0]] for place in range(len(said), len(sets))}
    lost = {place: whole for place, whole in taken.items() if whole < len(said)}
    for part, whole in lost.items():
        sets[whole] = msgspec.structs.replace(sets[whole], walks=sets[whole].walks | sets[part].walks)
    by_use: defaultdict[int, set[int]] = defaultdict(set)
    used_at: dict[int, datetime] = {}
    for key, run, at in uses:
        if (place := owner.get(key)) is not None:
            used_at[place] = max(at, used_at.get(place, at))
            by_use[place] |= set() if run is None else {run}
    rarity = _rarity(runs)
    built = [
        _trail(known[place], [runs[each] for each in sorted(found.walks | by_use[place])], named[place], rarity=rarity)
        for place, found in enumerate(sets)
    ]
    moved = [
        msgspec.structs.replace(trail, last_at=max(trail.last_at, used_at.get(place, trail.last_at)))
        for place, trail in enumerate(built)
        if place not in lost
    ]
    trails = sorted(moved, key=lambda each: (not each.version, -each.runs, -each.successes, each.first_at, each.key))
    return _named(trails)


def _sets(runs: Sequence[Run], said: Sequence[Said], *, gates: TrailSettings) -> list[Found]:
    """The sets of files that become trails, what was named first."""
    paths = [run.paths for run in runs]
    named = [
        Found(
            items=frozenset(each.paths),
            walks=frozenset(place for place, run in enumerate(paths) if walked(each.paths, run) == 1),
        )
        for each in said
    ]
    whole = [
        Found(items=frozenset(run), walks=frozenset({place}))
        for place, run in list(enumerate(paths))[-WHOLE_MAX:]
        if 2 <= len(run) <= STEPS_MAX
    ]
    found = merged([*named, *mined(paths), *whole], above=gates.overlap, named=len(named))
    others = sorted(found[len(named) :], key=lambda each: (-len(each.walks), -max(each.walks), sorted(each.items)))
    return [*found[: len(named)], *others[: max(0, TRAILS_MAX - len(named))]]


def _used(runs: list[Run], events: Iterable[Event]) -> tuple[list[Run], list[tuple[str, int | None, datetime]]]:
    """The runs, with uses that had an end outside of every walk; and each use: of which key, by which run, when."""
    places = {run.id: place for place, run in enumerate(runs)}
    all_runs = list(runs)
    uses: list[tuple[str, int | None, datetime]] = []
    for event in events:
        if event.name != USED or not isinstance(key := event.data.get("key"), str):
            continue
        place = places.get(event.root_id)
        ending = ENDINGS.get(str(event.data.get("outcome")))
        if place is None and ending is not None:
            place = len(all_runs)
            context = event.context
            all_runs.append(Run(id=event.id, at=event.at, session=context.session, agent=context.agent, ending=ending))
        elif place is not None and ending is not None and all_runs[place].ending is None:
            all_runs[place] = msgspec.structs.replace(all_runs[place], ending=ending)
        uses.append((key, place, event.at))
    return all_runs, uses


def _known(found: Found, runs: Sequence[Run], said: Said | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A set in the order of its first walk, and every key by which it is known, its own first."""
    walks = [runs[place] for place in sorted(found.walks) if said is not None or _covers(found.items, runs[place])]
    walks = walks if len(walks) <= ORDERS_MAX else [walks[0], *walks[1 - ORDERS_MAX :]]
    orders = [_ordered(found.items, run.paths) for run in walks if said is None or _covers(found.items, run)]
    absorbed = [_ordered(items, run.paths) for items in found.absorbed for run in walks if _covers(items, run)]
    keys = list(map(key_of, [*orders, *absorbed]))
    if said is not None:
        keys = [said.key, *said.keys, *keys]
    order = said.paths if said is not None else orders[0]
    return order, tuple(dict.fromkeys(keys))[: MERGED_MAX + 1]


def _covers(items: Iterable[str], run: Run) -> bool:
    return walked(tuple(items), run.paths) == 1


def _ordered(items: Iterable[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Files and patterns in the order in which a walk touched them first."""
    places = {
        item: next((place for place, path in enumerate(paths) if stands_for(item, path)), len(paths)) for item in items
    }
    return tuple(sorted(places, key=lambda item: (places[item], item)))


def _trail(
    known: tuple[tuple[str, ...], tuple[str, ...]],
    runs: Sequence[Run],
    said: Said | None,
    *,
    rarity: Mapping[str, float],
) -> Trail:
    order, (key, *others) = known
    by_time = sorted(runs, key=lambda run: (run.at, run.id))
    steps = steps_of(order, [run.steps for run in by_time], said.steps if said is not None else ())
    prompts = [run.prompt for run in runs if run.prompt]
    shape = said.shape if said is not None else ""
    shape = shape or shape_of(prompts, [run.task for run in runs], paths=order, rarity=rarity)
    times = [run.at for run in runs] + ([] if said is None else [said.at])
    trail = Trail(
        key=key,
        merged=tuple(others),
        exact=exact_key(steps),
        slug=slug_of(shape),
        shape=shape,
        description=describe(shape, steps),
        steps=steps,
        words=_words(prompts, rarity),
        runs=len(runs),
        successes=sum(run.ending == "success" for run in runs),
        failures=sum(run.ending == "failure" for run in runs),
        sessions=len({run.session or run.id for run in runs}),
        walks=tuple(run.id for run in by_time[-LEARNED_FROM_MAX:]),
        agents=_agents(runs),
        first_at=min(times),
        last_at=max(times),
    )
    if said is None:
        return trail
    return msgspec.structs.replace(
        trail,
        slug=said.slug,
        description=said.description or trail.description,
        by=said.by,
        version=said.version,
        drifted=exact_key(said.steps) != trail.exact,
        suspended=said.suspended,
        measured=said.measured,
    )


def describe(shape: str, steps: Sequence[Step]) -> str:
    """One line for lists of commands: which tasks, and where to begin."""
    verb, _, about = shape.partition("-")
    tasks = f"{verb} tasks about {about.replace('-', ' and ')}" if about else f"{verb} tasks"
    count = len({step.path for step in steps})
    return f"Where {tasks} went: {count} file{'' if count == 1 else 's'}, beginning with {steps[0].path}"


def _agents(runs: Iterable[Run]) -> dict[str, Figures]:
    own: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.agent is not None:
            own[run.agent].append(run)
    return {
        agent: Figures(
            runs=len(those),
            successes=sum(run.ending == "success" for run in those),
            failures=sum(run.ending == "failure" for run in those),
        )
        for agent, those in sorted(own.items())
    }


def _rarity(runs: Sequence[Run]) -> dict[str, float]:
    """What a term says about a task: much where few prompts have it."""
    prompts = [run.prompt for run in runs if run.prompt]
    containing = Counter(term for prompt in prompts for term in prompt_terms(prompt))
    return {term: math.log((len(prompts) + PRIOR_PROMPTS) / number) for term, number in containing.items()}


def _words(prompts: Sequence[str], rarity: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The terms that lead to a trail, with their shares: frequent in its prompts, and rare in others."""
    told = list(map(prompt_terms, prompts))
    counts = Counter(term for those in told for term in those if not term.isdigit())
    weights = {
        term: number / len(told) * max(0.0, rarity.get(term, 0.0) + math.log(number / len(told)))
        for term, number in counts.items()
    }
    best = sorted((term for term in weights if weights[term] > 0), key=lambda term: (-weights[term], term))[:WORDS_MAX]
    total = math.fsum(weights[term] for term in best) or 1.0
    return tuple((term, round(weights[term] / total, 6)) for term in best)


def _named(trails: Sequence[Trail]) -> list[Trail]:
    """Each trail with a slug of its own; what was named keeps its name."""
    taken = {trail.slug for trail in trails if trail.version}
    found = []
    for trail in trails:
        slug = trail.slug
        if not trail.version:
            slug = next(
                name for number in count(1) if (name := slug if number == 1 else f"{slug}-{number}") not in taken
            )
            taken.add(slug)
        found.append(trail if slug == trail.slug else msgspec.structs.replace(trail, slug=slug))
    return found
