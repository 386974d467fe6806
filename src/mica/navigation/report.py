"""Report on a day or a week of agents' work: its effort, the offers of files, and whether these offers helped.

Whether offers help is measured by a controlled comparison: some offers are withheld at random ("held out"), and the
report compares the effort before the first edit of tasks with and without an offer.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Literal

import msgspec

from mica.llm.prices import Prices
from mica.model.event import Event
from mica.model.walk import ANSWER, Walk, walks_of
from mica.navigation.replay import TASKS_MIN, Effort, measure_effort

Period = Literal["day", "week"]
LENGTHS: dict[Period, timedelta] = {"day": timedelta(days=1), "week": timedelta(days=7)}
ARMS_SPAN = timedelta(weeks=8)  # time covered by the comparison, because one period has too few tasks

DRAWS = 1_000  # with a fixed seed: the same tasks give the same interval
SESSIONS_MIN = 8  # in each group; fewer give no useful interval

Arm = Sequence[tuple[str, float]]  # one group of the comparison: session and value of each task


class WorkTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tasks, sessions and agents in a period, and the median effort of a task before its first edit."""

    tasks: int = 0
    sessions: int = 0
    agents: int = 0
    median_tokens: int | None = None
    median_calls: float | None = None
    median_seconds: float | None = None


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of tasks with an offer of files and tasks whose offer was held out.

    A difference is the mean of the held-out tasks minus the mean of the offered ones, so a positive difference means
    that offers save effort. It is None if there are too few tasks.
    """

    offered: int = 0  # number of tasks with an offer
    held_out: int = 0  # number of tasks whose offer was held out
    hits: int = 0  # offers with a file that the task used
    cost_tokens: int = 0  # of all offers together
    tokens: float | None = None  # the difference in tokens; the cost of the offer is included
    tokens_low: float | None = None  # limits of the 95 % interval of this difference
    tokens_high: float | None = None
    calls: float | None = None  # the difference in tool calls

    @property
    def verdict(self) -> str:
        """The result of the comparison in one sentence."""
        if not self.offered + self.held_out:
            return "Nothing was offered."
        if self.tokens is None or self.tokens_low is None or self.tokens_high is None:
            return (
                f"{self.offered:,} offered, {self.held_out:,} held out: too few for a comparison "
                f"({TASKS_MIN} of each are needed, of {SESSIONS_MIN} sessions)."
            )
        figures = f"{self.tokens:+,.0f} tokens a task [{self.tokens_low:+,.0f}, {self.tokens_high:+,.0f}]"
        if self.tokens_low > 0:
            return f"Offering saved {figures}."
        return f"Offering lost {figures}." if self.tokens_high < 0 else f"No difference shown: {figures}."


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """The number, tokens and cost of model answers. `unpriced` lists the models whose price is not known."""

    answers: int = 0
    tokens: int = 0
    dollars: float | None = None
    unpriced: tuple[str, ...] = ()
    prices_at: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The agents' work in one period and in the period before it, and whether offers of files saved effort."""

    period: Period
    since: datetime
    until: datetime
    work: WorkTotals
    before: WorkTotals  # of the period before
    arms: Arms
    spending: Spending
    events: dict[str, int]  # counts of events about trails and crystals, by name


def make_report(events: Sequence[Event], *, period: Period, until: datetime, prices: Prices) -> Report:
    """Make the report of the day or week that ends at `until`.

    `events` must be in order of time, and must cover this period and the equally long period before it. The comparison
    of tasks with and without an offer uses all events before `until`.
    """
    since = until - LENGTHS[period]
    walks = walks_of(events)
    now = [walk for walk in walks if since <= walk.at < until]
    earlier = [walk for walk in walks if since - LENGTHS[period] <= walk.at < since]
    within = [event for event in events if since <= event.at < until]
    return Report(
        period=period,
        since=since,
        until=until,
        work=_work(now),
        before=_work(earlier),
        arms=compare_arms(walk for walk in walks if walk.at < until),
        spending=_spending(within, prices),
        events=dict(sorted(Counter(event.name for event in within if _is_counted(event)).items())),
    )


def _is_counted(event: Event) -> bool:
    return event.name.startswith(("trail.", "crystal", "teaching.", "hook.failed", "job.failed"))


def _work(walks: Sequence[Walk]) -> WorkTotals:
    effort = [measure_effort(walk) for walk in walks if walk.steps]
    sessions = len({walk.session for walk in walks if walk.session})
    agents = len({walk.agent for walk in walks if walk.agent})
    if not effort:
        return WorkTotals(tasks=len(walks), sessions=sessions, agents=agents)
    return WorkTotals(
        tasks=len(walks),
        sessions=sessions,
        agents=agents,
        median_tokens=round(median(each.tokens for each in effort)),
        median_calls=median(each.calls for each in effort),
        median_seconds=median(each.seconds for each in effort),
    )


def compare_arms(walks: Iterable[Walk]) -> Arms:
    """Compare tasks with an offer and tasks whose offer was held out. Tasks without any step are ignored."""
    offered: list[tuple[Walk, Effort]] = []
    held_out_tasks: list[tuple[Walk, Effort]] = []
    for walk in walks:
        if walk.offer is not None and walk.steps:
            (held_out_tasks if walk.offer.held_out else offered).append((walk, measure_effort(walk)))
    offers = [(walk, walk.offer) for walk, _ in offered if walk.offer is not None]
    cost = [offer.tokens for _, offer in offers]
    tokens = (
        [(walk.session or walk.id, float(effort.tokens)) for walk, effort in held_out_tasks],
        [
            (walk.session or walk.id, float(effort.tokens + own))
            for (walk, effort), own in zip(offered, cost, strict=True)
        ],
    )
    calls = ([float(effort.calls) for _, effort in held_out_tasks], [float(effort.calls) for _, effort in offered])
    interval = bootstrap_difference(*tokens) if min(len(held_out_tasks), len(offered)) >= TASKS_MIN else None
    means = [_mean([value for _, value in each]) for each in tokens] if interval else []
    return Arms(
        offered=len(offered),
        held_out=len(held_out_tasks),
        hits=sum(bool(set(offer.paths) & set(walk.touched)) for walk, offer in offers),
        cost_tokens=sum(cost),
        tokens=means[0] - means[1] if interval else None,
        tokens_low=interval[0] if interval else None,
        tokens_high=interval[1] if interval else None,
        calls=_mean(calls[0]) - _mean(calls[1]) if interval else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


FIELDS = {
    "input_tokens": "read",
    "output_tokens": "written",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
}


def _spending(events: Iterable[Event], prices: Prices) -> Spending:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    answers = 0
    for event in events:
        if event.name != ANSWER:
            continue
        answers += 1
        data = event.data
        counts = {name: data.get(field) for field, name in FIELDS.items()}
        used[str(data.get("model"))].update({name: count for name, count in counts.items() if isinstance(count, int)})
    priced = {model: price for model in used if (price := prices.of(model)) is not None}
    costs = [price.of_usage(**{name: used[model][name] for name in FIELDS.values()}) for model, price in priced.items()]
    return Spending(
        answers=answers,
        tokens=sum(count for counts in used.values() for count in counts.values()),
        dollars=math.fsum(costs) if costs else None,
        unpriced=tuple(sorted(set(used) - set(priced))),
        prices_at=prices.at,
    )


def bootstrap_difference(ours: Arm, theirs: Arm) -> tuple[float, float] | None:
    """Return the limits of the 95 % bootstrap interval of a difference: the mean of `ours` minus that of `theirs`.

    The result is None if one of them has fewer than SESSIONS_MIN sessions. Sessions are resampled instead of tasks:
    tasks of one session are alike, so resampling tasks would make the interval too narrow.
    """
    groups = [_sessions(each) for each in (ours, theirs)]
    if min(map(len, groups)) < SESSIONS_MIN:
        return None
    draw = random.Random(len(ours) * 1_000_003 + len(theirs))  # repeatable, not secret
    differences = sorted(
        _pooled_mean(draw.choices(groups[0], k=len(groups[0])))
        - _pooled_mean(draw.choices(groups[1], k=len(groups[1])))
        for _ in range(DRAWS)
    )
    return differences[DRAWS // 40], differences[-DRAWS // 40 - 1]


def _sessions(arm: Iterable[tuple[str, float]]) -> list[tuple[float, int]]:
    """Return, for each session, the sum of its tasks' values and the number of its tasks."""
    sums: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for session, value in arm:
        total, count = sums[session]
        sums[session] = total + value, count + 1
    return list(sums.values())


def _pooled_mean(drawn: Iterable[tuple[float, int]]) -> float:
    totals, counts = zip(*drawn, strict=True)
    return float(sum(totals) / sum(counts))
