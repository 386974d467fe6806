"""What models cost, by agent, tier and model; and budgets that no call may pass.

A call reserves its worst case before it is made and settles what it really took afterwards. Both are told to `record`
as they happen, so that a log can keep them: a ledger rebuilt from these records knows what was spent, and counts a
call whose end nobody saw (the process died) as its worst case.
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
from mica.llm.protocol import Usage
from mica.model.event import Clock, utc_now
from mica.settings import BudgetSettings, Tier

RESERVED = "model.reserved"
SPENT = "model.spent"
Record: TypeAlias = Callable[[str, Mapping[str, object]], object]


class Payer(NamedTuple):
    """Who pays: what a budget may be narrowed to."""

    agent: str | None
    tier: Tier
    model: str


class Cost(msgspec.Struct, frozen=True):
    """Tokens and dollars. Of the calls, `unpriced` ones are in the tokens but not in the dollars."""

    tokens: int = 0
    dollars: float = 0.0
    calls: int = 0
    unpriced: int = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.calls + other.calls,
            self.unpriced + other.unpriced,
        )


class Reservation:
    """Room in the budgets for one call, until it is settled."""

    def __init__(self, payer: Payer, cost: Cost, at: datetime) -> None:
        self.id = uuid4().hex
        self.payer = payer
        self.cost = cost
        self.at = at
        self.settled: tuple[Usage, float | None] | None = None

    def settle(self, usage: Usage, dollars: float | None) -> None:
        """Say what the call took. Without it the room is given back and nothing counts as spent."""
        self.settled = (usage, dollars)


class Ledger:
    """What was spent and what is reserved. Safe to use from several threads; calls are counted once."""

    def __init__(
        self, budgets: Sequence[BudgetSettings] = (), *, now: Clock = utc_now, record: Record | None = None
    ) -> None:
        self._budgets = tuple(budgets)
        self._now = now
        self._record = record
        self._spent: defaultdict[tuple[date, Payer], Cost] = defaultdict(Cost)
        self._open: dict[str, tuple[datetime, Payer, Cost]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def reserved(self, payer: Payer, *, tokens: int, dollars: float | None) -> Iterator[Reservation]:
        """Room for a call that takes at most this much. Raises BudgetExceeded, before anything is spent.

        Whatever ends the block, failure and cancellation included, ends the reservation too.
        """
        worst = Cost(tokens, dollars or 0.0, 1, int(dollars is None))
        held = Reservation(payer, worst, self._now())
        with self._lock:
            for budget in self._budgets:
                self._check(budget, held, is_priced=dollars is not None)
            self._open[held.id] = (held.at, payer, worst)
        try:
            self._tell(RESERVED, held, tokens=tokens, dollars=dollars)
            yield held
        finally:
            self._close(held)

    def spent(
        self, *, agent: str | None = None, tier: Tier | None = None, model: str | None = None, since: date | None = None
    ) -> Cost:
        """What was paid by whom, or by all; days are UTC."""
        total = Cost()
        with self._lock:
            for (day, payer), cost in self._spent.items():
                if since is None or day >= since:
                    wanted = (agent in (None, payer.agent), tier in (None, payer.tier), model in (None, payer.model))
                    total = total.plus(cost) if all(wanted) else total
        return total

    def by_payer(self) -> dict[Payer, Cost]:
        """What everybody paid, since the records begin."""
        totals: defaultdict[Payer, Cost] = defaultdict(Cost)
        with self._lock:
            for (_, payer), cost in self._spent.items():
                totals[payer] = totals[payer].plus(cost)
        return dict(totals)

    def restore(self, name: str, told: Mapping[str, object], *, at: datetime) -> None:
        """Take in one record of earlier, oldest first; what is no such record is left alone."""
        if name not in (RESERVED, SPENT):
            return
        entry = msgspec.convert(told, _Told)
        payer = Payer(entry.agent, entry.tier, entry.model)
        cost = Cost(entry.tokens, entry.dollars or 0.0, 1, int(entry.dollars is None and entry.tokens > 0))
        with self._lock:
            if name == RESERVED:
                self._open[entry.call] = (at, payer, cost)
                return
            begun_at, *_ = self._open.pop(entry.call, (at,))
            if entry.tokens:
                key = (begun_at.date(), payer)
                self._spent[key] = self._spent[key].plus(cost)

    def _check(self, budget: BudgetSettings, held: Reservation, *, is_priced: bool) -> None:
        if not _applies(budget, held.payer):
            return
        if budget.dollars is not None and not is_priced:
            raise BudgetExceeded(
                f"no price is known for {held.payer.model}, and {_named(budget)} counts dollars; "
                f'set dollars_in and dollars_out in [models.known."{held.payer.model}"]',
                payer=held.payer.agent,
            )
        taken = held.cost
        for at, payer, cost in [*self._entries(), *self._open.values()]:
            if _applies(budget, payer) and _same_period(budget.per, at, held.at):
                taken = taken.plus(cost)
        for what, limit, amount, unit in (
            ("tokens", budget.tokens, taken.tokens, held.cost.tokens),
            ("dollars", budget.dollars, taken.dollars, held.cost.dollars),
        ):
            if limit is not None and amount > limit:
                raise BudgetExceeded(
                    f"{_named(budget)} is {limit:,} {what}, {amount - unit:,.6g} are spent or reserved, and this call "
                    f"to {held.payer.model} may take {unit:,.6g}; raise it in [[models.budgets]] or wait for the next "
                    f"{budget.per}",
                    payer=held.payer.agent,
                )

    def _entries(self) -> Iterator[tuple[date, Payer, Cost]]:
        for (day, payer), cost in self._spent.items():
            yield day, payer, cost

    def _close(self, held: Reservation) -> None:
        usage, dollars = held.settled or (Usage(input_tokens=0, output_tokens=0), 0.0)
        tokens = usage.input_tokens + usage.output_tokens
        with self._lock:
            self._open.pop(held.id, None)
            if held.settled:
                key = (held.at.date(), held.payer)
                self._spent[key] = self._spent[key].plus(Cost(tokens, dollars or 0.0, 1, int(dollars is None)))
        details: dict[str, object] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        if usage.is_estimated:
            details["is_estimated"] = True
        self._tell(SPENT, held, tokens=tokens, dollars=dollars, **details)

    def _tell(self, name: str, held: Reservation, **more: object) -> None:
        if self._record is not None:
            self._record(name, {"call": held.id, **held.payer._asdict(), **more})


class _Told(msgspec.Struct):
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


def _named(budget: BudgetSettings) -> str:
    whose = "".join(f" of {what} {name!r}" for what, name in (("agent", budget.agent), ("tier", budget.tier)) if name)
    return f"the budget{whose} per {budget.per}"
