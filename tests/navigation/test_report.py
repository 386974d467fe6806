"""Daily and weekly reports: counted from the log, compared with a hold-out, without figures if too little is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import mica
from mica.cli import cli
from mica.errors import InvalidInput
from mica.llm.prices import prices
from mica.model.event import Event, EventQuery
from mica.model.walk import OFFER
from mica.navigation.report import Report, make_report
from mica.testing import HandClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


async def record_tasks(path: Path, tasks: Sequence[tuple[int, bool | None]], *, minutes: int = 1) -> list[Event]:
    """Record tasks, each with its tokens before the first edit and whether its offer was held out (None: no offer)."""
    clock = HandClock(NOON)
    async with mica.open(path, clock=clock) as memory:
        for number, (tokens, held_out) in zip(count(), tasks, strict=False):
            clock.move(minutes=minutes)
            with memory.context(session=f"s{number}", agent="scout"):
                prompt = memory.mark(f"task {number}", tags=("prompt",))
                if held_out is not None:
                    offer = {"paths": ["a.py"], "tokens": 10, "held_out": held_out}
                    memory.emit(OFFER, offer, parent=prompt)
                memory.emit("file.read", {"path": "a.py", "tokens": tokens, "call": f"c{number}"}, parent=prompt)
                memory.emit("file.edit", {"path": "a.py", "tokens": 5, "call": f"e{number}"}, parent=prompt)
                answer = {"model": "claude-sonnet-5", "input_tokens": 1_000, "output_tokens": 100}
                memory.emit("model.answer", answer, parent=prompt)
        return await memory.events.query(EventQuery(limit=None))


def report_of(events: list[Event]) -> Report:
    return make_report(events, period="day", until=NOON + timedelta(hours=20), prices=prices())


async def test_the_comparison_of_arms_includes_the_cost_of_offers(tmp_path: Path) -> None:
    """keeps: TA-06. Both arms are logged, and the cost of an offer is subtracted."""
    events = await record_tasks(tmp_path / "a.db", [(1_000, True), (400, False)] * 12)
    arms = report_of(events).arms
    assert (arms.offered, arms.held_out, arms.hits, arms.cost_tokens) == (12, 12, 12, 120)
    assert arms.tokens == 1_000 - 400 - 10
    assert arms.verdict.startswith("Offering saved")


async def test_offers_that_cost_more_than_they_save_are_reported_as_a_loss(tmp_path: Path) -> None:
    """keeps: TA-06. Losses are reported in the same words."""
    events = await record_tasks(tmp_path / "a.db", [(400, True), (401, False)] * 12)
    assert report_of(events).arms.verdict.startswith("Offering lost")


async def test_too_few_tasks_give_no_figure(tmp_path: Path) -> None:
    """keeps: TA-05. Without a measured baseline the saving is unknown, never a number."""
    events = await record_tasks(tmp_path / "a.db", [(1_000, True), (400, False)] * 7)
    arms = report_of(events).arms
    assert arms.tokens is None
    assert "too few" in arms.verdict
    assert report_of([]).arms.verdict == "Nothing was offered."
    assert report_of([]).work.median_tokens is None


async def test_a_report_compares_a_period_with_the_one_before_it(tmp_path: Path) -> None:
    """keeps: A-29, A-01. A report has the tasks, tokens and dollars of a day, and of the day before."""
    events = await record_tasks(tmp_path / "a.db", [(100, None)] * 20 + [(300, None)] * 20, minutes=60)
    report = make_report(events, period="day", until=NOON + timedelta(hours=41), prices=prices())
    assert (report.before.tasks, report.work.tasks) == (16, 24)
    assert (report.before.median_tokens, report.work.median_tokens) == (100, 300)
    assert report.spending.answers == 24
    assert report.spending.dollars is not None
    assert round(report.spending.dollars, 6) == round(24 * (1_000 * 2 + 100 * 10) / 1e6, 6)


async def test_a_report_covers_a_day_or_a_week(tmp_path: Path) -> None:
    """keeps: A-29. `memory.trails.report` has the same figures as the command."""
    await record_tasks(tmp_path / "a.db", [(1_000, True), (400, False)] * 9)
    async with mica.open(tmp_path / "a.db", clock=HandClock(NOON + timedelta(hours=3))) as memory:
        report = await memory.trails.report("week")
        assert (report.work.tasks, report.arms.held_out) == (18, 9)
        with pytest.raises(InvalidInput, match="fortnight"):
            await memory.trails.report("fortnight")  # type: ignore[arg-type]  # an invalid period


def test_a_report_is_shown_in_the_shell(tmp_path: Path) -> None:
    """keeps: A-29. `--json` prints a document, otherwise sentences are printed."""
    asyncio.run(record_tasks(tmp_path / "a.db", [(1_000, True), (400, False)] * 9))
    until = (NOON + timedelta(hours=3)).isoformat()
    result = CliRunner().invoke(
        cli, ["trails", "report", "week", "--until", until, "--store", str(tmp_path / "a.db"), "--json"]
    )
    assert msgspec.json.decode(result.output)["arms"]["held_out"] == 9
    shown = CliRunner().invoke(cli, ["trails", "report", "week", "--until", until, "--store", str(tmp_path / "a.db")])
    assert "Offering saved +590 tokens a task" in shown.output
