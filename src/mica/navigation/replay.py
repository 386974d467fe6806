"""Replay past tasks in order of time, to measure what offering files would have saved.

A task is a walk: a prompt with the accesses to files that followed from it. An offer is a list of paths that is shown
to the agent with the prompt.

The files of each task are predicted from earlier events only. After a task has ended, the predictor learns from it. A
list of paths can only save searches: reading a file costs the same whether it was offered or found by a search. Two
rules estimate the saving. The *careful* rule counts a search as saved if it led to new files and all of them had been
offered. The *generous* rule counts all searches before the first edit if every file read until then had been offered.
Verdicts use the careful rule.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from statistics import median
from typing import Protocol

import msgspec

from mica.format.lines import plural
from mica.llm.prices import Prices
from mica.model.event import EventId
from mica.model.walk import Step, Walk
from mica.tokens import about

DRAWS = 2_000  # of the bootstrap; more change little
BINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)  # limits of the intervals of probability
TASKS_MIN = 8  # fewer tasks give no useful interval


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """A file predicted for a replayed task, with its probability and reason."""

    path: str
    probability: float
    reason: str = ""


class ReplayPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction for a replayed task: all guesses, best first, and those that would have been offered."""

    guesses: tuple[Guess, ...] = ()
    offered: tuple[Guess, ...] = ()  # empty if no offer would have been made
    text: str = ""  # the text that the agent would have seen; empty without an offer
    named: bool = False  # True if the prompt mentions one of the predicted files


class TaskPredictor(Protocol):
    """Learns from finished tasks, and predicts the files that another task needs."""

    def predict(self, walk: Walk) -> ReplayPrediction:
        """Predict the files of a walk from its prompt, session and time.

        An implementation must not use the steps of the walk, because they contain the files to predict.
        """
        ...

    def learn(self, walk: Walk) -> None: ...


class WalkCall(msgspec.Struct, kw_only=True):
    """One tool call of a walk: the files it read, the tokens of its output, and whether it searched or edited."""

    at: datetime
    tokens: int = 0
    read: list[str] = []
    searched: bool = False
    edited: bool = False


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """The effort of a walk before its first edit, or of the whole walk if it edits nothing."""

    calls: int
    searches: int
    tokens: int
    search_tokens: int
    seconds: float
    files: tuple[str, ...]  # read before the first edit
    edits: bool  # True if the walk has an edit


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True):
    """One replayed task: the files offered, the files needed, and the effect that the offer would have had."""

    task: EventId
    prompt: str
    shape: str
    session: str | None
    at: datetime
    offered: tuple[Guess, ...]
    needed: tuple[str, ...]
    named: bool
    spent: Effort
    cost_tokens: int  # of the text of the offer
    saved_tokens: int  # by the careful rule
    saved_generous: int  # tokens by the generous rule
    saved_calls: int  # searches by the careful rule
    dollars: float | None  # savings minus cost; None if the model has no price
    rank: int | None  # the rank, from 1, of the best guess that was needed; None if none was
    recall_10: float | None = msgspec.field(name="found_10")  # share of the needed files that the best ten guesses have

    @property
    def net_tokens(self) -> int:
        return self.saved_tokens - self.cost_tokens

    @property
    def hit(self) -> bool:
        return any(guess.path in self.needed for guess in self.offered)


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """The guesses whose predicted probability is in one interval: their number, and how many of them were right."""

    low: float
    high: float
    count: int  # of guesses
    mean: float  # of their predicted probabilities
    true: float  # the share of the guessed files that the task needed


class ReplayBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded effort of tasks of one kind before their first edit: the median over the tasks."""

    shape: str
    tasks: int
    median_tokens: int
    median_calls: float
    median_seconds: float


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay: each task, totals, a confidence interval and the calibration of the probabilities.

    The totals cover all tasks, also those that an offer would have made more expensive.
    """

    rows: tuple[ReplayTask, ...]
    offered_tasks: int = msgspec.field(name="spoke")  # tasks with an offer
    hits: int  # tasks with an offer that needed an offered file
    navigation_tokens: int  # tokens that the tasks took before their first edit
    cost_tokens: int
    saved_tokens: int
    saved_generous: int
    saved_calls: int
    net_tokens: int
    net_low: float | None  # limits of the 95 % bootstrap interval; None with too few tasks
    net_high: float | None
    losing: int  # tasks that the offer made more expensive
    winning: int  # tasks that the offer made cheaper
    dollars: float | None
    unpriced: int  # tasks whose model has no price
    prices_at: str
    recall_10: float | None = msgspec.field(name="found_10")  # mean share of needed files in the first ten guesses
    error: float | None  # expected calibration error
    bins: tuple[Bin, ...]
    baselines: tuple[ReplayBaseline, ...]
    missing: dict[str, str] = {}  # each data source that could not be read, with the reason

    @property
    def verdict(self) -> str:
        """The result in one sentence. It claims a gain or loss only if the confidence interval supports it."""
        if not self.rows:
            return "No task with a read, a search or an edit yet: there is nothing to measure."
        if not self.offered_tasks:
            return f"Nothing worth offering: in {plural(len(self.rows), 'task')} no offer was likely to pay."
        offers = f"{self.offered_tasks:,} of {len(self.rows):,} tasks would have had an offer"
        if self.net_low is None or self.net_high is None:
            return f"Too little history for a verdict: {offers}."
        figures = f"{offers}, net {self.net_tokens:+,} tokens [{self.net_low:+,.0f}, {self.net_high:+,.0f}]"
        if self.net_low > 0:
            return f"Worth offering: {figures}."
        if self.net_high < 0:
            return f"Nothing worth offering: {figures}."
        return f"No clear gain: {figures}."


def replay(
    walks: Iterable[Walk],
    predictor: TaskPredictor,
    *,
    prices: Prices,
    shape: Callable[[str], str],
    judged: Collection[EventId] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Replay:
    """Predict every task from earlier events only, and measure what offering the predicted files would have changed.

    `predictor` learns from each task at the time at which the task ended. With `judged`, only the tasks with these ids
    are predicted; the others are only learned from. `shape` returns the kind of task for a prompt. `on_progress` is
    called with the number of walks processed so far.
    """
    rows: list[ReplayTask] = []
    guesses: list[tuple[float, bool]] = []
    running: list[tuple[datetime, int, Walk]] = []
    ordered = sorted(walks, key=lambda walk: (walk.at, walk.id))
    for number, walk in enumerate(ordered):
        while running and running[0][0] <= walk.at:
            predictor.learn(heapq.heappop(running)[2])
        if walk.prompt and walk.steps and (judged is None or walk.id in judged):
            predicted = predictor.predict(walk)
            needed = frozenset(walk.touched)
            if needed:
                guesses += [(guess.probability, guess.path in needed) for guess in predicted.guesses]
            rows.append(_row(walk, predicted, prices=prices, shape=shape(walk.prompt)))
        heapq.heappush(running, (walk.ended_at, number, walk))
        on_progress(number + 1)
    for _, _, walk in sorted(running):
        predictor.learn(walk)
    return summarize(rows, guesses, prices_at=prices.at)


def latest_of(walks: Iterable[Walk], count: int | None) -> frozenset[EventId] | None:
    """Return the ids of the `count` latest walks. If `count` is None, return None, which means all walks."""
    if count is None:
        return None
    ordered = sorted(walks, key=lambda walk: (walk.at, walk.id))
    return frozenset(walk.id for walk in ordered[max(0, len(ordered) - count) :])


def combine(replays: Sequence[Replay]) -> Replay:
    """Combine the replays of several projects into one result, with all of their tasks in order of time."""
    if len(replays) == 1:
        return replays[0]
    rows = sorted((row for each in replays for row in each.rows), key=lambda row: (row.at, row.task))
    missing = {name: reason for each in replays for name, reason in each.missing.items()}
    whole = _summarize(
        rows, _join_bins(each.bins for each in replays), prices_at=replays[0].prices_at if replays else ""
    )
    return msgspec.structs.replace(whole, missing=missing)


def summarize(rows: Sequence[ReplayTask], guesses: Sequence[tuple[float, bool]], *, prices_at: str) -> Replay:
    """Sum up tasks: totals, the confidence interval of the net tokens, and the calibration of the guesses.

    `guesses` has a pair for each guessed file: its probability, and whether the task needed it.
    """
    return _summarize(rows, bin_guesses(guesses), prices_at=prices_at)


def _summarize(rows: Sequence[ReplayTask], bins: Sequence[Bin], *, prices_at: str) -> Replay:
    low, high = bootstrap_interval([row.net_tokens for row in rows])
    recalls = [row.recall_10 for row in rows if row.recall_10 is not None]
    dollars = [row.dollars for row in rows if row.dollars is not None]
    total = sum(each.count for each in bins)
    return Replay(
        rows=tuple(rows),
        offered_tasks=sum(bool(row.offered) for row in rows),
        hits=sum(row.hit for row in rows),
        navigation_tokens=sum(row.spent.tokens for row in rows),
        cost_tokens=sum(row.cost_tokens for row in rows),
        saved_tokens=sum(row.saved_tokens for row in rows),
        saved_generous=sum(row.saved_generous for row in rows),
        saved_calls=sum(row.saved_calls for row in rows),
        net_tokens=sum(row.net_tokens for row in rows),
        net_low=low,
        net_high=high,
        losing=sum(row.net_tokens < 0 for row in rows),
        winning=sum(row.net_tokens > 0 for row in rows),
        dollars=math.fsum(dollars) if dollars else None,
        unpriced=len(rows) - len(dollars),
        prices_at=prices_at,
        recall_10=math.fsum(recalls) / len(recalls) if recalls else None,
        error=sum(each.count * abs(each.mean - each.true) for each in bins) / total if total else None,
        bins=tuple(bins),
        baselines=tuple(_baselines(rows)),
    )


# -- One task -------------------------------------------------------------------------------------------


def calls_of(walk: Walk) -> list[WalkCall]:
    """Return the tool calls of a walk in order, each combined from all steps with its id."""
    calls: dict[str, WalkCall] = {}
    for step in walk.steps:
        call = calls.setdefault(
            step.call or step.event, WalkCall(at=step.at, tokens=walk.printed.get(step.call or "", 0))
        )
        if step.call not in walk.printed:
            call.tokens += step.tokens or 0
        _add(call, step)
    return list(calls.values())


def _add(call: WalkCall, step: Step) -> None:
    if step.operation in ("search", "list"):
        call.searched = True
    elif step.failed:
        pass
    elif step.operation == "read":
        call.read.append(step.path)
    else:
        call.edited = True


def measure_effort(walk: Walk) -> Effort:
    """Measure the effort of a walk before its first edit. Without an edit, measure the whole walk."""
    tool_calls = calls_of(walk)
    end = next((index for index, call in enumerate(tool_calls) if call.edited), len(tool_calls))
    until = tool_calls[:end]
    searches = [call for call in until if call.searched and not call.read]
    last = tool_calls[end].at if end < len(tool_calls) else max([call.at for call in until], default=walk.at)
    return Effort(
        calls=len(until),
        searches=len(searches),
        tokens=sum(call.tokens for call in until),
        search_tokens=sum(call.tokens for call in searches),
        seconds=max(0.0, (last - walk.at).total_seconds()),
        files=tuple(dict.fromkeys(path for call in until for path in call.read)),
        edits=end < len(tool_calls),
    )


def count_savings(walk: Walk, offered: Iterable[str]) -> tuple[int, int]:
    """Return a pair: the tokens and the number of searches that offering the paths in `offered` would have saved.

    Only searches before the first edit of the walk count. A search would have been saved if it led to new files and all
    of them are offered (the careful rule).
    """
    names = frozenset(offered)
    seen: set[str] = set()
    tokens = count = 0
    search: WalkCall | None = None
    led: set[str] = set()
    tool_calls = calls_of(walk)
    end = next((index for index, call in enumerate(tool_calls) if call.edited), len(tool_calls))
    for call in [*tool_calls[:end], None]:
        if call is None or (call.searched and not call.read):
            if search is not None and led and led <= names:
                tokens, count = tokens + search.tokens, count + 1
            search, led = call, set()
        else:
            led |= set(call.read) - seen
            seen |= set(call.read)
    return tokens, count


def _row(walk: Walk, predicted: ReplayPrediction, *, prices: Prices, shape: str) -> ReplayTask:
    offered = [guess.path for guess in predicted.offered]
    effort = measure_effort(walk)
    tokens, count = count_savings(walk, offered)
    generous = effort.search_tokens if effort.files and set(effort.files) <= set(offered) else 0
    cost = about(predicted.text) if predicted.offered else 0
    needed = walk.touched
    ranked = [guess.path for guess in predicted.guesses]
    return ReplayTask(
        task=walk.id,
        prompt=walk.prompt,
        shape=shape,
        session=walk.session,
        at=walk.at,
        offered=predicted.offered,
        needed=needed,
        named=predicted.named,
        spent=effort,
        cost_tokens=cost,
        saved_tokens=tokens,
        saved_generous=generous,
        saved_calls=count,
        dollars=_dollars(walk, prices, saved_tokens=tokens, cost_tokens=cost),
        rank=next((rank for rank, path in enumerate(ranked, 1) if path in needed), None),
        recall_10=len(set(ranked[:10]) & set(needed)) / len(needed) if needed else None,
    )


def _dollars(walk: Walk, prices: Prices, *, saved_tokens: int, cost_tokens: int) -> float | None:
    """Return what an offer saves minus what it costs, in dollars; None if the price of the walk's model is not known.

    Tokens stay in the context window for the rest of the task, so each later request pays for them again.
    """
    model = next((answer.model for answer in reversed(walk.answers) if answer.model), None)
    price = prices.of(model)
    if price is None:
        return None
    return price.of_cached_tokens(saved_tokens - cost_tokens, requests=len(walk.answers) - 1)


# -- Over tasks -----------------------------------------------------------------------------------------


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float | None, float | None]:
    """Return the limits of the 95 % bootstrap interval of the sum of `values`, which has one value for each task.

    The result is (None, None) if there are fewer than TASKS_MIN tasks.
    """
    if len(values) < TASKS_MIN:
        return None, None
    draw = random.Random(seed)  # repeatable, not secret
    sums = sorted(sum(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return float(sums[int(0.025 * DRAWS)]), float(sums[int(0.975 * DRAWS) - 1])


def bin_guesses(guesses: Iterable[tuple[float, bool]]) -> list[Bin]:
    """Group guesses by intervals of probability; intervals without a guess are left out.

    `guesses` has a pair for each guessed file: its probability, and whether the task needed it.
    """
    by_bin: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for probability, true in guesses:
        by_bin[max(index for index, low in enumerate(BINS[:-1]) if probability >= low)].append((probability, true))
    return [
        Bin(
            low=BINS[index],
            high=BINS[index + 1],
            count=len(by_bin[index]),
            mean=math.fsum(probability for probability, _ in by_bin[index]) / len(by_bin[index]),
            true=sum(true for _, true in by_bin[index]) / len(by_bin[index]),
        )
        for index in sorted(by_bin)
    ]


def _join_bins(several: Iterable[Sequence[Bin]]) -> list[Bin]:
    by_low: dict[float, list[Bin]] = defaultdict(list)
    for each in several:
        for one in each:
            by_low[one.low].append(one)
    return [
        Bin(
            low=low,
            high=parts[0].high,
            count=(count := sum(part.count for part in parts)),
            mean=math.fsum(part.mean * part.count for part in parts) / count,
            true=math.fsum(part.true * part.count for part in parts) / count,
        )
        for low, parts in sorted(by_low.items())
    ]


def _baselines(rows: Sequence[ReplayTask]) -> list[ReplayBaseline]:
    shapes: dict[str, list[Effort]] = defaultdict(list)
    for row in rows:
        shapes[row.shape].append(row.spent)
    baselines = [
        ReplayBaseline(
            shape=shape,
            tasks=len(effort),
            median_tokens=round(median(each.tokens for each in effort)),
            median_calls=median(each.calls for each in effort),
            median_seconds=median(each.seconds for each in effort),
        )
        for shape, effort in shapes.items()
    ]
    return sorted(baselines, key=lambda baseline: (-baseline.tasks, baseline.shape))
