"""Do learned trails match later work better than exact sets of files? (TA-01)

    python bench/trails.py SESSIONS.jsonl
    python bench/trails.py SESSIONS.jsonl --git HISTORY.jsonl

Walks are replayed in the order of time. Before each task of the test sessions, or each of the last 500 commits, trails
are learned from the walks that had ended by then. A task *meets* a trail if it touches all of its files, and an exact
set if earlier tasks touched the same files and no others. Both count only if they were walked three times before, as
often as a candidate needs. Only tasks of two files or more can do either. `chosen` uses the prompt alone,
before any file is touched: its precision is the share of a chosen trail's files that the task touched. The last line of
the output is one JSON object. Without a file made-up sessions are replayed, which shows that the script works, and
nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from _table import argument_parser, finish, machine, measure, show
from _walks import Action, Session, Task, commits, sessions, walks
from mica.model.trail import Trail, covered_share
from mica.model.walk import Walk
from mica.navigation.trails.learner import learn_trails, run_of
from mica.navigation.trails.matcher import choose
from mica.settings import TrailSettings

COMMITS_TESTED = 500
COMMITS_APART = 25  # between two times of learning: relearning 5,000 commits for each of 500 gives the same result
SIZES = (2, 3, 4, 5)  # a trail of at least so many files


class Tally(msgspec.Struct):
    """Counts of tasks that met a trail or an exact set of files, and of trails chosen from prompts."""

    tasks: int = 0
    exact_once: int = 0  # the same set was touched before
    exact: int = 0  # often enough to be a candidate
    met: int = 0
    met_by_size: dict[int, int] = {}
    chosen: int = 0  # tasks for which a trail was chosen
    chosen_met: int = 0  # of those, that touched all of its files
    chosen_hit: int = 0  # that touched one at least
    files: int = 0  # of chosen trails
    files_touched: int = 0

    def add(self, walk: Walk, past: Sequence[Walk], trails: Sequence[Trail], gates: TrailSettings) -> None:
        touched = run_of(walk).paths
        if len(touched) < 2:
            return
        self.tasks += 1
        same = sum(set(run_of(each).paths) == set(touched) for each in past)
        self.exact_once += same > 0
        self.exact += same >= gates.runs
        met = [trail for trail in trails if covered_share(trail.paths, touched) == 1]
        self.met += bool(met)
        for size in SIZES:
            longest = max((len(trail.paths) for trail in met), default=0)
            self.met_by_size[size] = self.met_by_size.get(size, 0) + (longest >= size)
        for choice in choose(walk.prompt, trails, gates=gates, limit=1):
            share = covered_share(choice.trail.paths, touched)
            self.chosen += 1
            self.chosen_met += share == 1
            self.chosen_hit += share > 0
            self.files += len(choice.trail.paths)
            self.files_touched += round(share * len(choice.trail.paths))


def recurring(past: Sequence[Walk], gates: TrailSettings) -> list[Trail]:
    """Learn the trails that were walked as often, and in as many sessions, as a candidate needs, with any outcome."""
    return [
        trail
        for trail in learn_trails(past, gates=gates)
        if trail.runs >= gates.runs and trail.sessions >= gates.sessions
    ]


def replay(every: Sequence[Walk], tested: Sequence[Walk], gates: TrailSettings, *, apart: int) -> Tally:
    tally = Tally(met_by_size={})
    trails: list[Trail] = []
    for number, walk in enumerate(tested):
        past = [each for each in every if each.ended_at < walk.at]
        if number % apart == 0:
            trails = recurring(past, gates)
        tally.add(walk, past, trails, gates)
    return tally


def report(name: str, tally: Tally) -> dict[str, float | int]:
    tasks = max(1, tally.tasks)
    rows = [
        ["an exact set of files, touched once before", f"{tally.exact_once}", f"{tally.exact_once / tasks:.1%}"],
        ["an exact set of files, three times", f"{tally.exact}", f"{tally.exact / tasks:.1%}"],
        ["a trail walked three times", f"{tally.met}", f"{tally.met / tasks:.1%}"],
        *[
            [f"  of {size} files or more", f"{count}", f"{count / tasks:.1%}"]
            for size, count in tally.met_by_size.items()
        ],
    ]
    show(f"{name}: {tally.tasks} later tasks meet …", ["", "tasks", "share"], rows)
    precision = tally.files_touched / tally.files if tally.files else 0.0
    print(
        f"  chosen from the prompt alone for {tally.chosen} ({tally.chosen / tasks:.1%}): {precision:.1%} of its files "
        f"were touched, at least one in {tally.chosen_hit}, all in {tally.chosen_met}"
    )
    times = tally.met / tally.exact if tally.exact else float(tally.met)
    print(f"  trails meet {times:.1f} times as many tasks as exact sets" + ("" if tally.exact else " (none met)"))
    return {
        f"{name}_tasks": tally.tasks,
        f"{name}_exact_once": tally.exact_once,
        f"{name}_exact": tally.exact,
        f"{name}_trails": tally.met,
        f"{name}_times": times,
        f"{name}_chosen": tally.chosen,
        f"{name}_precision": precision,
    }


def made_up(count: int = 60) -> list[Session]:
    """Make sessions that work in four parts of a project, with some noise."""
    chance, start = random.Random(7), datetime(2026, 1, 5, 9, tzinfo=UTC)
    found = []
    for number in range(count):
        at, part = start + timedelta(hours=5 * number), chance.choice(("billing", "search", "login", "export"))
        files = [f"{part}/{name}.py" for name in ("model", "view", "store") if chance.random() < 0.9]
        files += [f"{part}/extra{chance.randrange(30)}.py"]
        actions = [
            Action(tool="Read", ts=at + timedelta(minutes=place), repo_file=file, result_tokens=300)
            for place, file in enumerate(files)
        ]
        task = Task(prompt=f"Fix the view of {part}", ts=at, actions=actions)
        split = "test" if number > count // 3 else "warmup"
        found.append(Session(session_id=f"s{number}", agent="made up", start=at.timestamp(), split=split, tasks=[task]))
    return found


def main() -> None:
    parser = argument_parser(__doc__, quick="accepted as in other benchmarks; without a file every run is quick")
    parser.add_argument("sessions", type=Path, nargs="?")
    parser.add_argument("--git", type=Path)
    options = parser.parse_args()
    gates = TrailSettings()
    recorded = made_up() if options.sessions is None else sessions(options.sessions)
    every = [walk for session in recorded for walk in walks(session)]
    tested = [walk for session in recorded if session.split == "test" for walk in walks(session)]
    print(machine())
    numbers = report("sessions", replay(every, tested, gates, apart=1))
    if options.git is not None:
        history = commits(options.git)
        numbers |= report("commits", replay(history, history[-COMMITS_TESTED:], gates, apart=COMMITS_APART))
        _, cost = measure(lambda: recurring(history, gates))
        print(f"\n  learning {len(history):,} commits: {cost.cpu_s:.1f} s CPU")
        numbers["learn_s"] = cost.cpu_s
    finish(numbers)


if __name__ == "__main__":
    main()
