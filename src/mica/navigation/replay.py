"""What an offer would have been worth: tasks of the past, walked again in order of time.

Each task is predicted with what was known when it was asked, and learned from when it ended. What a list of paths can
save is searching: a read costs the same whether it was offered or found. Two rules say how much. The *careful* one
counts a search as saved if it led to new files and every one of them had been offered; the *generous* one counts all
searches before the first edit, if every file read until then had been offered. Verdicts rest on the careful rule.
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

from mica.llm.prices import Prices
from mica.model.event import EventId
from mica.model.walk import Step, Walk
from mica.tokens import about

DRAWS = 2_000  # of the bootstrap; the interval moves by less than it is wide
BINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
TASKS_MIN = 8  # fewer tasks give no interval worth the name


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task may need, how likely, and why."""

    path: str
    probability: float
    reason: str = ""


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """All guesses, best first, and those that would have been said aloud."""

    guesses: tuple[Guess, ...] = ()
    offered: tuple[Guess, ...] = ()
    text: str = ""  # what the agent would have been shown
    named: bool = False  # the prompt names a file itself


class Predictor(Protocol):
    """Guesses by what it has learned so far."""

    def predict(self, walk: Walk) -> Predicted:
        """May look at the walk's prompt, session and time, and at nothing else of it."""
        ...

    def learn(self, walk: Walk) -> None: ...


class Call(msgspec.Struct, kw_only=True):
    """One tool call of a walk: what it read or changed, and what it showed."""

    at: datetime
    tokens: int = 0
    read: list[str] = []
    searched: bool = False
    edited: bool = False


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk took before its first edit, or in all if it edits nothing."""

    calls: int
    searches: int
    tokens: int
    search_tokens: int
    seconds: float
    files: tuple[str, ...]  # read until then
    edits: bool


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One task: what was offered, what was needed, and what the offer would have changed."""

    task: EventId
    prompt: str
    shape: str
    session: str | None
    at: datetime
    offered: tuple[Guess, ...]
    needed: tuple[str, ...]
    named: bool
    spent: Spent
    cost_tokens: int
    saved_tokens: int  # by the careful rule
    saved_generous: int
    saved_calls: int
    dollars: float | None  # saved less cost; unknown where the model has no price
    rank: int | None  # of the first needed file among all guesses
    found_10: float | None  # share of the needed files in the first ten guesses

    @property
    def net_tokens(self) -> int:
        return self.saved_tokens - self.cost_tokens

    @property
    def hit(self) -> bool:
        return any(guess.path in self.needed for guess in self.offered)


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses of about one probability, and how many came true."""

    low: float
    high: float
    count: int
    mean: float
    true: float


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks of one shape took before the first edit, without help."""

    shape: str
    tasks: int
    median_tokens: int
    median_calls: float
    median_seconds: float


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The whole account, losses included."""

    rows: tuple[Row, ...]
    spoke: int  # tasks with an offer
    hits: int  # of them, tasks that needed something offered
    navigation_tokens: int
    cost_tokens: int
    saved_tokens: int
    saved_generous: int
    saved_calls: int
    net_tokens: int
    net_low: float | None  # 95 % of the bootstrap; None with too few tasks
    net_high: float | None
    losing: int  # tasks that the offer made dearer
    winning: int
    dollars: float | None
    unpriced: int  # tasks whose model has no price
    prices_at: str
    found_10: float | None  # mean share of needed files in the first ten guesses
    error: float | None  # expected calibration error
    bins: tuple[Bin, ...]
    baselines: tuple[Baseline, ...]
    missing: dict[str, str] = {}  # what could not be looked at, by name with the reason

    @property
    def verdict(self) -> str:
        """In a sentence, and never kinder than the interval."""
        if not self.rows:
            return "No task with a read, a search or an edit yet: nothing can be said."
        if not self.spoke:
            return f"Nothing worth injecting: in {len(self.rows):,} tasks the gate found no reason to speak."
        told = f"{self.spoke:,} of {len(self.rows):,} tasks would have had an offer"
        if self.net_low is None or self.net_high is None:
            return f"Too little history for a verdict: {told}."
        figures = f"{told}, net {self.net_tokens:+,} tokens [{self.net_low:+,.0f}, {self.net_high:+,.0f}]"
        if self.net_low > 0:
            return f"Worth offering: {figures}."
        if self.net_high < 0:
            return f"Nothing worth injecting: {figures}."
        return f"No clear gain: {figures}."


def replay(
    walks: Iterable[Walk],
    predictor: Predictor,
    *,
    prices: Prices,
    shape: Callable[[str], str],
    judged: Collection[EventId] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Replay:
    """Predict every task with the past alone. A task is learned when its last event ended, not when it was asked.

    With `judged`, only those tasks are predicted; the others are learned from all the same.
    """
    rows: list[Row] = []
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
    return account(rows, guesses, prices_at=prices.at)


def latest_of(walks: Iterable[Walk], count: int | None) -> frozenset[EventId] | None:
    """The last so many tasks; None for all."""
    if count is None:
        return None
    ordered = sorted(walks, key=lambda walk: (walk.at, walk.id))
    return frozenset(walk.id for walk in ordered[max(0, len(ordered) - count) :])


def together(told: Sequence[Replay]) -> Replay:
    """Several accounts as one, for projects that do not learn from each other."""
    if len(told) == 1:
        return told[0]
    rows = sorted((row for each in told for row in each.rows), key=lambda row: (row.at, row.task))
    missing = {name: reason for each in told for name, reason in each.missing.items()}
    whole = _account(rows, _joined(each.bins for each in told), prices_at=told[0].prices_at if told else "")
    return msgspec.structs.replace(whole, missing=missing)


def account(rows: Sequence[Row], guesses: Sequence[tuple[float, bool]], *, prices_at: str) -> Replay:
    """The sums over tasks, with the interval of the net and the calibration of the guesses."""
    return _account(rows, bins(guesses), prices_at=prices_at)


def _account(rows: Sequence[Row], made: Sequence[Bin], *, prices_at: str) -> Replay:
    low, high = interval([row.net_tokens for row in rows])
    found = [row.found_10 for row in rows if row.found_10 is not None]
    dollars = [row.dollars for row in rows if row.dollars is not None]
    total = sum(each.count for each in made)
    return Replay(
        rows=tuple(rows),
        spoke=sum(bool(row.offered) for row in rows),
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
        found_10=math.fsum(found) / len(found) if found else None,
        error=sum(each.count * abs(each.mean - each.true) for each in made) / total if total else None,
        bins=tuple(made),
        baselines=tuple(_baselines(rows)),
    )


# -- One task -------------------------------------------------------------------------------------------


def calls(walk: Walk) -> list[Call]:
    """The tool calls of a walk that touched files, in order."""
    found: dict[str, Call] = {}
    for step in walk.steps:
        call = found.setdefault(step.call or step.event, Call(at=step.at, tokens=walk.printed.get(step.call or "", 0)))
        if step.call not in walk.printed:
            call.tokens += step.tokens or 0
        _add(call, step)
    return list(found.values())


def _add(call: Call, step: Step) -> None:
    if step.operation in ("search", "list"):
        call.searched = True
    elif step.failed:
        pass
    elif step.operation == "read":
        call.read.append(step.path)
    else:
        call.edited = True


def spent(walk: Walk) -> Spent:
    """What the walk took until it first changed a file."""
    made = calls(walk)
    end = next((index for index, call in enumerate(made) if call.edited), len(made))
    until = made[:end]
    searches = [call for call in until if call.searched and not call.read]
    last = made[end].at if end < len(made) else max([call.at for call in until], default=walk.at)
    return Spent(
        calls=len(until),
        searches=len(searches),
        tokens=sum(call.tokens for call in until),
        search_tokens=sum(call.tokens for call in searches),
        seconds=max(0.0, (last - walk.at).total_seconds()),
        files=tuple(dict.fromkeys(path for call in until for path in call.read)),
        edits=end < len(made),
    )


def saved(walk: Walk, offered: Iterable[str]) -> tuple[int, int]:
    """The tokens and the number of searches before the first edit that the offer makes superfluous, carefully."""
    names = frozenset(offered)
    seen: set[str] = set()
    tokens = count = 0
    search: Call | None = None
    led: set[str] = set()
    made = calls(walk)
    end = next((index for index, call in enumerate(made) if call.edited), len(made))
    for call in [*made[:end], None]:
        if call is None or (call.searched and not call.read):
            if search is not None and led and led <= names:
                tokens, count = tokens + search.tokens, count + 1
            search, led = call, set()
        else:
            led |= set(call.read) - seen
            seen |= set(call.read)
    return tokens, count


def _row(walk: Walk, predicted: Predicted, *, prices: Prices, shape: str) -> Row:
    offered = [guess.path for guess in predicted.offered]
    took = spent(walk)
    tokens, count = saved(walk, offered)
    generous = took.search_tokens if took.files and set(took.files) <= set(offered) else 0
    cost = about(predicted.text) if predicted.offered else 0
    needed = walk.touched
    ranked = [guess.path for guess in predicted.guesses]
    return Row(
        task=walk.id,
        prompt=walk.prompt,
        shape=shape,
        session=walk.session,
        at=walk.at,
        offered=predicted.offered,
        needed=needed,
        named=predicted.named,
        spent=took,
        cost_tokens=cost,
        saved_tokens=tokens,
        saved_generous=generous,
        saved_calls=count,
        dollars=_dollars(walk, prices, saved_tokens=tokens, cost_tokens=cost),
        rank=next((rank for rank, path in enumerate(ranked, 1) if path in needed), None),
        found_10=len(set(ranked[:10]) & set(needed)) / len(needed) if needed else None,
    )


def _dollars(walk: Walk, prices: Prices, *, saved_tokens: int, cost_tokens: int) -> float | None:
    """Both stay in the window for the rest of the task, so both are paid again by its later requests."""
    model = next((answer.model for answer in reversed(walk.answers) if answer.model), None)
    price = prices.of(model)
    if price is None:
        return None
    return price.of_kept(saved_tokens - cost_tokens, requests=len(walk.answers) - 1)


# -- Over tasks -----------------------------------------------------------------------------------------


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float | None, float | None]:
    """95 % of the sum of so many tasks, by the bootstrap; None twice when there are too few."""
    if len(values) < TASKS_MIN:
        return None, None
    draw = random.Random(seed)  # repeatable, not secret
    sums = sorted(sum(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return float(sums[int(0.025 * DRAWS)]), float(sums[int(0.975 * DRAWS) - 1])


def bins(guesses: Iterable[tuple[float, bool]]) -> list[Bin]:
    """Guesses by probability: what was said, and what came true."""
    held: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for probability, true in guesses:
        held[max(index for index, low in enumerate(BINS[:-1]) if probability >= low)].append((probability, true))
    return [
        Bin(
            low=BINS[index],
            high=BINS[index + 1],
            count=len(held[index]),
            mean=math.fsum(probability for probability, _ in held[index]) / len(held[index]),
            true=sum(true for _, true in held[index]) / len(held[index]),
        )
        for index in sorted(held)
    ]


def _joined(several: Iterable[Sequence[Bin]]) -> list[Bin]:
    held: dict[float, list[Bin]] = defaultdict(list)
    for each in several:
        for one in each:
            held[one.low].append(one)
    return [
        Bin(
            low=low,
            high=parts[0].high,
            count=(count := sum(part.count for part in parts)),
            mean=math.fsum(part.mean * part.count for part in parts) / count,
            true=math.fsum(part.true * part.count for part in parts) / count,
        )
        for low, parts in sorted(held.items())
    ]


def _baselines(rows: Sequence[Row]) -> list[Baseline]:
    shapes: dict[str, list[Spent]] = defaultdict(list)
    for row in rows:
        shapes[row.shape].append(row.spent)
    found = [
        Baseline(
            shape=shape,
            tasks=len(took),
            median_tokens=round(median(each.tokens for each in took)),
            median_calls=median(each.calls for each in took),
            median_seconds=median(each.seconds for each in took),
        )
        for shape, took in shapes.items()
    ]
    return sorted(found, key=lambda baseline: (-baseline.tasks, baseline.shape))
