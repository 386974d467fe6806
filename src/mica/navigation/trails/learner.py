"""Learn trails from walks and from recorded events about trails.

The files that several walks have in common become a trail, and so do all files of one recent walk. Every walk that
touched all files of a trail is a run of this trail. A trail that was named by a person or a rule keeps its name and
files; other sets of files that overlap it are merged into it. The result does not depend on the order of the input.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count, pairwise
from typing import Literal

import msgspec

from mica.model.event import Event, EventId
from mica.model.trail import STEPS_MAX, USED, Figures, Trail, covered_share, exact_key, key_of, matches_step
from mica.model.walk import Step, Walk
from mica.navigation.trails.co_reads import WHOLE_MAX, CoReadSet, merge_sets, mine, normalize_path
from mica.navigation.trails.records import NamedTrail, named_trails, renamed_files
from mica.navigation.trails.task_kinds import HEAD_CHARACTERS, prompt_terms, shape_of, slug_of
from mica.settings import TrailSettings

WALKS_MAX = 10_000  # the latest walks, which are learned from: a year or two of one person's work
TRAILS_MAX = 1_000  # named trails first, then trails with the most walks, then the latest
MERGED_MAX = 64  # further keys of one trail
ORDERS_MAX = 50  # walks of a trail (the first and the latest ones) whose order of files gives a key of the trail
LEARNED_FROM_MAX = 20  # walks that a trail refers to
WORDS_MAX = 10  # words by which a trail matches a prompt
PRIOR_PROMPTS = 5  # pseudo-count of prompts without any of the words, so that a few prompts do not decide

Ending = Literal["success", "failure"]
ENDINGS: dict[str, Ending] = {"success": "success", "failure": "failure"}

BLOCKS_MAX = 3  # line ranges of one file in a trail; the closest ranges are merged
GAP_LINES = 10  # reads with at most this many lines between them count as one range


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A walk, or a recorded use of a trail outside of a walk. It may be a run of one or several trails."""

    id: EventId
    at: datetime
    session: str | None
    agent: str | None
    prompt: str = ""
    task: str | None = None
    paths: tuple[str, ...] = ()  # the touched files, normalized, in order
    steps: tuple[Step, ...] = ()
    ending: Ending | None = None  # None if unknown


def ending_of(walk: Walk) -> Ending | None:
    """Return "success" or "failure" for a walk; None if neither is known.

    A reported outcome decides; if the reported outcome is partial, the result is None. Without a reported outcome, a
    walk with a commit counts as a success. The agent's last message does not count.
    """
    committed: Ending | None = "success" if walk.outcome == "unknown" and walk.committed else None
    return ENDINGS.get(walk.outcome, committed)


def run_of(walk: Walk, renamed: Mapping[str, str] | None = None) -> Run:
    """Convert a walk to a run. Files outside the project are left out. `renamed` maps old paths to current paths."""
    named = ((normalize_path(path), path) for path in walk.touched)
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


def learn_trails(walks: Iterable[Walk], records: Iterable[Event] = (), *, gates: TrailSettings) -> list[Trail]:
    """Learn all trails from walks and from recorded events about trails (`records`).

    Named trails come first, then the others; both are ordered by the number of runs, the most first. The result depends
    neither on the order of the input nor on the current time.
    """
    latest = sorted(walks, key=lambda walk: (walk.at, walk.id))[-WALKS_MAX:]
    events = sorted(records, key=lambda event: event.sort_key)
    naming = named_trails(events)
    renamed = renamed_files(events)
    walked_runs = [run_of(walk, renamed) for walk in latest]
    sets = _sets(walked_runs, naming, gates=gates)
    runs, uses = _add_uses(walked_runs, events)
    named: list[NamedTrail | None] = [*naming, *[None] * (len(sets) - len(naming))]
    known = [_order_and_keys(files, walked_runs, each) for files, each in zip(sets, named, strict=True)]
    owner = {key: place for place, (_, keys) in reversed(list(enumerate(known))) for key in keys}
    # If the main key of a set is also a key of a named trail, the walks of the set are runs of this trail.
    owners = {place: owner[known[place][1][0]] for place in range(len(naming), len(sets))}
    lost = {place: whole for place, whole in owners.items() if whole < len(naming)}
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
        _trail(known[place], [runs[each] for each in sorted(files.walks | by_use[place])], named[place], rarity=rarity)
        for place, files in enumerate(sets)
    ]
    moved = [
        _used(trail, used_at[place]) if place in used_at else trail
        for place, trail in enumerate(built)
        if place not in lost
    ]
    trails = sorted(moved, key=lambda each: (not each.version, -each.runs, -each.successes, each.first_at, each.key))
    return _with_unique_slugs(trails)


def _sets(runs: Sequence[Run], naming: Sequence[NamedTrail], *, gates: TrailSettings) -> list[CoReadSet]:
    paths = [run.paths for run in runs]
    named = [
        CoReadSet(
            items=frozenset(each.paths),
            walks=frozenset(place for place, run in enumerate(paths) if covered_share(each.paths, run) == 1),
        )
        for each in naming
    ]
    whole = [
        CoReadSet(items=frozenset(run), walks=frozenset({place}))
        for place, run in list(enumerate(paths))[-WHOLE_MAX:]
        if 2 <= len(run) <= STEPS_MAX
    ]
    merged = merge_sets([*named, *mine(paths), *whole], above=gates.overlap, named=len(named))
    others = sorted(merged[len(named) :], key=lambda each: (-len(each.walks), -max(each.walks), sorted(each.items)))
    return [*merged[: len(named)], *others[: max(0, TRAILS_MAX - len(named))]]


def _add_uses(runs: list[Run], events: Iterable[Event]) -> tuple[list[Run], list[tuple[str, int | None, datetime]]]:
    """Combine the runs with the uses of trails that `events` record. Return a pair: all runs, and all uses.

    A use in a walk belongs to the walk's run, and gives the run its outcome if that is not known. A use outside of a
    walk becomes a run of its own if its outcome is known. Each use in the result is a tuple: the key of the trail, the
    index of the run (None if the use has no run), and the time.
    """
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


def _order_and_keys(
    files: CoReadSet, runs: Sequence[Run], naming: NamedTrail | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a pair for a set of files: the files in order, and the keys of their trail, the main key first.

    `naming` is the record of the trail's name; None for a trail without a name. The files of a named trail have the
    recorded order; those of any other trail have the order in which its first walk touched them.
    """
    walks = [runs[place] for place in sorted(files.walks) if naming is not None or _covers(files.items, runs[place])]
    walks = walks if len(walks) <= ORDERS_MAX else [walks[0], *walks[1 - ORDERS_MAX :]]
    orders = [_ordered(files.items, run.paths) for run in walks if naming is None or _covers(files.items, run)]
    absorbed = [_ordered(items, run.paths) for items in files.absorbed for run in walks if _covers(items, run)]
    keys = list(map(key_of, [*orders, *absorbed]))
    if naming is not None:
        keys = [naming.key, *naming.keys, *keys]
    order = naming.paths if naming is not None else orders[0]
    return order, tuple(dict.fromkeys(keys))[: MERGED_MAX + 1]


def _covers(items: Iterable[str], run: Run) -> bool:
    return covered_share(tuple(items), run.paths) == 1


def _ordered(items: Iterable[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Return files and patterns in the order in which a walk first touched them. `paths` are the files of the walk."""
    places = {
        item: next((place for place, path in enumerate(paths) if matches_step(item, path)), len(paths))
        for item in items
    }
    return tuple(sorted(places, key=lambda item: (places[item], item)))


def _trail(
    known: tuple[tuple[str, ...], tuple[str, ...]],
    runs: Sequence[Run],
    naming: NamedTrail | None,
    *,
    rarity: Mapping[str, float],
) -> Trail:
    order, (key, *others) = known
    by_time = sorted(runs, key=lambda run: (run.at, run.id))
    steps = steps_of(order, [run.steps for run in by_time], naming.steps if naming is not None else ())
    prompts = [run.prompt for run in runs if run.prompt]
    shape = naming.shape if naming is not None else ""
    shape = shape or shape_of(prompts, [run.task for run in runs], paths=order, rarity=rarity)
    times = [run.at for run in runs] + ([] if naming is None else [naming.at])
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
        used_at=max((run.at for run in runs), default=None),
    )
    if naming is None:
        return trail
    return msgspec.structs.replace(
        trail,
        slug=naming.slug,
        description=naming.description or trail.description,
        by=naming.by,
        version=naming.version,
        drifted=exact_key(naming.steps) != trail.exact,
        suspended=naming.suspended,
        measured=naming.measured,
    )


def _used(trail: Trail, at: datetime) -> Trail:
    """Return a copy of the trail that records a use at the time `at`."""
    return msgspec.structs.replace(trail, last_at=max(trail.last_at, at), used_at=max(trail.used_at or at, at))


def describe(shape: str, steps: Sequence[Step]) -> str:
    """Describe a trail in one line for lists of commands: kind of task, number of files, and the file to begin with."""
    verb, _, about = shape.partition("-")
    tasks = f"{verb} tasks about {about.replace('-', ' and ')}" if about else f"{verb} tasks"
    count = len({step.path for step in steps})
    return f"{count} file{'' if count == 1 else 's'} that earlier {tasks} used, beginning with {steps[0].path}"


def _agents(runs: Iterable[Run]) -> dict[str, Figures]:
    own: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.agent is not None:
            own[run.agent].append(run)
    return {
        agent: Figures(
            runs=len(agent_runs),
            successes=sum(run.ending == "success" for run in agent_runs),
            failures=sum(run.ending == "failure" for run in agent_runs),
        )
        for agent, agent_runs in sorted(own.items())
    }


def _rarity(runs: Sequence[Run]) -> dict[str, float]:
    """Return the weight of each term in the prompts: high if few prompts contain it (inverse document frequency)."""
    prompts = [run.prompt for run in runs if run.prompt]
    containing = Counter(term for prompt in prompts for term in prompt_terms(prompt))
    return {term: math.log((len(prompts) + PRIOR_PROMPTS) / number) for term, number in containing.items()}


def _words(prompts: Sequence[str], rarity: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the terms by which a trail matches a prompt, with weights that add up to 1.

    These terms are frequent in `prompts`, the prompts of the trail's runs, and rare in all other prompts.
    """
    prompt_term_lists = list(map(prompt_terms, prompts))
    counts = Counter(term for prompt_term_list in prompt_term_lists for term in prompt_term_list if not term.isdigit())
    weights = {
        term: number
        / len(prompt_term_lists)
        * max(0.0, rarity.get(term, 0.0) + math.log(number / len(prompt_term_lists)))
        for term, number in counts.items()
    }
    best = sorted((term for term in weights if weights[term] > 0), key=lambda term: (-weights[term], term))[:WORDS_MAX]
    total = math.fsum(weights[term] for term in best) or 1.0
    return tuple((term, round(weights[term] / total, 6)) for term in best)


def _with_unique_slugs(trails: Sequence[Trail]) -> list[Trail]:
    used = {trail.slug for trail in trails if trail.version}
    renamed = []
    for trail in trails:
        slug = trail.slug
        if not trail.version:
            slug = next(
                name for number in count(1) if (name := slug if number == 1 else f"{slug}-{number}") not in used
            )
            used.add(slug)
        renamed.append(trail if slug == trail.slug else msgspec.structs.replace(trail, slug=slug))
    return renamed


def steps_of(order: Sequence[str], walks: Sequence[Sequence[Step]], named: Iterable[Step] = ()) -> tuple[Step, ...]:
    """Compute the steps of a trail: for each file in `order`, the lines that were read last.

    `walks` has the steps of each walk of the trail, oldest walk first, and `named` the steps that were recorded when
    the trail was named. The lines that were read last are the most similar to the current file.
    """
    by_hand = list(named)
    steps: list[Step] = []
    for item in order:
        own = [step for step in by_hand if (step.pattern or step.path) == item]
        latest = _latest(item, walks)
        if own and (not latest or max(step.at for step in own) >= max(step.at for step in latest)):
            steps += own
        else:
            steps += [msgspec.structs.replace(step, pattern=item if "*" in item else None) for step in blocks(latest)]
    return tuple(steps)


def _latest(item: str, walks: Sequence[Sequence[Step]]) -> list[Step]:
    """Return the last known accesses to a file that matches `item`, which is a path or a pattern.

    They are the reads in the latest walk that read such a file. If no walk has read one, they are the changes in the
    latest walk that changed one. If the walk accessed several such files, only the last one counts.
    """
    for operations in (("read",), ("edit", "create")):
        for steps in reversed(walks):
            own = [step for step in steps if step.operation in operations and matches_step(item, step.path)]
            if own:
                return [step for step in own if step.path == own[-1].path]
    return []


def blocks(steps: Sequence[Step]) -> list[Step]:
    """Merge the accesses to one file into at most BLOCKS_MAX steps, each with a line range.

    The result is a single step for the whole file if one of the accesses covers the whole file or has no line numbers,
    or if the last access is a change.
    """
    if not steps:
        return []
    last = steps[-1]
    ranged = [step for step in steps if step.start_line is not None and step.end_line is not None]
    whole = [step for step in steps if step not in ranged or _is_whole(step)]
    if whole or last.operation != "read":
        source = max(whole, key=lambda step: step.at) if whole else last
        return [_reference(source, None, None, source.tokens if source.operation == "read" else None)]
    spans = _join_spans(ranged)
    lines = sum(_length(step) for step in ranged)
    tokens = [step.tokens for step in ranged if step.tokens is not None]
    per_line = sum(tokens) / lines if tokens and len(tokens) == len(ranged) and lines else None
    return [_block(start, end, ranged, per_line) for start, end in spans]


def _block(start: int, end: int, ranged: Sequence[Step], per_line: float | None) -> Step:
    same = [step for step in ranged if (step.start_line, step.end_line) == (start, end)]
    source = same[-1] if same else [step for step in ranged if start <= (step.start_line or 0) <= end][-1]
    tokens = source.tokens if same else None if per_line is None else round(per_line * (end - start + 1))
    step = _reference(source, start, end, tokens)
    return step if same else msgspec.structs.replace(step, content_hash=None)  # these lines were never shown together


def _join_spans(steps: Iterable[Step]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, end in sorted((step.start_line or 1, step.end_line or 1) for step in steps):
        if spans and start <= spans[-1][1] + GAP_LINES:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    while len(spans) > BLOCKS_MAX:
        gaps = [after[0] - before[1] for before, after in pairwise(spans)]
        place = gaps.index(min(gaps))
        spans[place : place + 2] = [(spans[place][0], spans[place + 1][1])]
    return spans


def _length(step: Step) -> int:
    return max(0, (step.end_line or 0) - (step.start_line or 0) + 1)


def _is_whole(step: Step) -> bool:
    return step.total_lines is not None and step.start_line in (0, 1) and (step.end_line or 0) >= step.total_lines


def _reference(step: Step, start: int | None, end: int | None, tokens: int | None) -> Step:
    return msgspec.structs.replace(
        step, operation="read", start_line=start, end_line=end, tokens=tokens, failed=False, pattern=None
    )
