"""Costs of model calls by agent, tier and model, and budgets that no call may exceed.

Before a call, its highest possible cost is reserved. After the call, the real cost replaces the reservation. Both
amounts are passed to a function `record`, so that they can be logged. If a process dies during a call, only the
reservation is in the log, and a ledger that is restored from the log counts the call at its highest possible cost.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec

from mica.errors import BudgetExceeded
from mica.llm.protocol import ModelUsage
from mica.model.event import Clock, utc_now
from mica.settings import BudgetSettings, Tier

RESERVED = "model.reserved"
SPENT = "model.spent"
Record: TypeAlias = Callable[[str, Mapping[str, object]], object]


class Payer(NamedTuple):
    """The agent, tier and model of a call. A budget may be limited to one agent or one tier."""

    agent: str | None
    tier: Tier
    model: str


class ModelCost(msgspec.Struct, frozen=True):
    """The tokens, dollars and number of model calls, in total.

    `unpriced` is the number of calls without a known price; their dollars count as 0.
    """

    tokens: int = 0
    dollars: float = 0.0
    calls: int = 0
    unpriced: int = 0

    def plus(self, other: ModelCost) -> ModelCost:
        return ModelCost(
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.calls + other.calls,
            self.unpriced + other.unpriced,
        )


class Reservation:
    """The highest possible cost of one call, reserved in the budgets while the call runs."""

    def __init__(self, payer: Payer, cost: ModelCost, at: datetime) -> None:
        self.id = uuid4().hex
        self.payer = payer
        self.cost = cost
        self.at = at
        self.settled: tuple[ModelUsage, float | None] | None = None

    def settle(self, usage: ModelUsage, dollars: float | None) -> None:
        """Set the real cost of the call. If this method is not called, the call counts as free."""
        self.settled = (usage, dollars)


class Ledger:
    """Adds up what model calls have cost and reserved, and rejects calls that would exceed a budget. Thread-safe."""

    def __init__(
        self, budgets: Sequence[BudgetSettings] = (), *, now: Clock = utc_now, record: Record | None = None
    ) -> None:
        self._budgets = tuple(budgets)
        self._now = now
        self._record = record
        self._spent: defaultdict[tuple[date, Payer], ModelCost] = defaultdict(ModelCost)
        self._open: dict[str, tuple[datetime, Payer, ModelCost]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def reserved(self, payer: Payer, *, tokens: int, dollars: float | None) -> Iterator[Reservation]:
        """Reserve the highest possible cost of a call while a `with` block runs.

        The block must report the real cost by calling `settle` on the yielded reservation. The reservation ends with
        the block, even if the block fails. `tokens` and `dollars` are the highest possible cost; `dollars` is None if
        no price is known. Raises BudgetExceeded before the block if too little of a budget remains, or if a budget is
        in dollars and no price is known.
        """
        worst = ModelCost(tokens, dollars or 0.0, 1, int(dollars is None))
        reservation = Reservation(payer, worst, self._now())
        with self._lock:
            for budget in self._budgets:
                self._check(budget, reservation, is_priced=dollars is not None)
            self._open[reservation.id] = (reservation.at, payer, worst)
        try:
            self._record_event(RESERVED, reservation, tokens=tokens, dollars=dollars)
            yield reservation
        finally:
            self._close(reservation)

    def spent(
        self, *, agent: str | None = None, tier: Tier | None = None, model: str | None = None, since: date | None = None
    ) -> ModelCost:
        """Return the total cost of the calls by this agent, tier and model since the UTC day `since`.

        An argument that is None selects the calls with any value.
        """
        total = ModelCost()
        with self._lock:
            for (day, payer), cost in self._spent.items():
                if since is None or day >= since:
                    wanted = (agent in (None, payer.agent), tier in (None, payer.tier), model in (None, payer.model))
                    total = total.plus(cost) if all(wanted) else total
        return total

    def by_payer(self) -> dict[Payer, ModelCost]:
        """Return the total cost of all calls, by agent, tier and model."""
        totals: defaultdict[Payer, ModelCost] = defaultdict(ModelCost)
        with self._lock:
            for (_, payer), cost in self._spent.items():
                totals[payer] = totals[payer].plus(cost)
        return dict(totals)

    def restore(self, name: str, data: Mapping[str, object], *, at: datetime) -> None:
        """Add a reservation or a cost that another process recorded as an event.

        `name`, `data` and `at` are those of the event. Call this method for each event, the oldest first. Events with
        other names are ignored.
        """
        if name not in (RESERVED, SPENT):
            return
        entry = msgspec.convert(data, SpendData)
        payer = Payer(entry.agent, entry.tier, entry.model)
        cost = ModelCost(entry.tokens, entry.dollars or 0.0, 1, int(entry.dollars is None and entry.tokens > 0))
        with self._lock:
            if name == RESERVED:
                self._open[entry.call] = (at, payer, cost)
                return
            begun_at, *_ = self._open.pop(entry.call, (at,))
            if entry.tokens:
                key = (begun_at.date(), payer)
                self._spent[key] = self._spent[key].plus(cost)

    def _check(self, budget: BudgetSettings, reservation: Reservation, *, is_priced: bool) -> None:
        if not _applies(budget, reservation.payer):
            return
        if budget.dollars is not None and not is_priced:
            raise BudgetExceeded(
                f"no price is known for {reservation.payer.model}, and {_describe(budget)} counts dollars; "
                f'set dollars_in and dollars_out in [models.known."{reservation.payer.model}"]',
                payer=reservation.payer.agent,
            )
        taken = reservation.cost
        for at, payer, cost in [*self._entries(), *self._open.values()]:
            if _applies(budget, payer) and _same_period(budget.per, at, reservation.at):
                taken = taken.plus(cost)
        for what, limit, amount, unit in (
            ("tokens", budget.tokens, taken.tokens, reservation.cost.tokens),
            ("dollars", budget.dollars, taken.dollars, reservation.cost.dollars),
        ):
            if limit is not None and amount > limit:
                raise BudgetExceeded(
                    f"{_describe(budget)} is {limit:,} {what}, {amount - unit:,.6g} are spent or reserved, and this "
                    f"call to {reservation.payer.model} may take {unit:,.6g}; raise it in [[models.budgets]] or wait "
                    f"for the next {budget.per}",
                    payer=reservation.payer.agent,
                )

    def _entries(self) -> Iterator[tuple[date, Payer, ModelCost]]:
        for (day, payer), cost in self._spent.items():
            yield day, payer, cost

    def _close(self, reservation: Reservation) -> None:
        usage, dollars = reservation.settled or (ModelUsage(input_tokens=0, output_tokens=0), 0.0)
        tokens = usage.input_tokens + usage.output_tokens
        with self._lock:
            self._open.pop(reservation.id, None)
            if reservation.settled:
                key = (reservation.at.date(), reservation.payer)
                self._spent[key] = self._spent[key].plus(ModelCost(tokens, dollars or 0.0, 1, int(dollars is None)))
        details: dict[str, object] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        if usage.is_estimated:
            details["is_estimated"] = True
        self._record_event(SPENT, reservation, tokens=tokens, dollars=dollars, **details)

    def _record_event(self, name: str, reservation: Reservation, **more: object) -> None:
        if self._record is not None:
            self._record(name, {"call": reservation.id, **reservation.payer._asdict(), **more})


class SpendData(msgspec.Struct):
    """The data of the events `model.reserved` and `model.spent`."""

    call: str
    agent: str | None
    tier: Tier
    model: str
    tokens: int
    dollars: float | None


def _applies(budget: BudgetSettings, payer: Payer) -> bool:
    return budget.agent in (None, payer.agent) and budget.tier in (None, payer.tier)


def _same_period(per: Literal["day", "month", "ever"], at: date, now: datetime) -> bool:
    if per == "day":
        return (at.year, at.month, at.day) == (now.year, now.month, now.day)
    return per == "ever" or (at.year, at.month) == (now.year, now.month)


def _describe(budget: BudgetSettings) -> str:
    whose = "".join(f" of {what} {name!r}" for what, name in (("agent", budget.agent), ("tier", budget.tier)) if name)
    return f"the budget{whose} per {budget.per}"
