"""report: a day or a week of agents' work, and whether offering paths helped."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.output import Moment, Output, memory_command
from mica.memory import Memory
from mica.navigation.report import Report


@click.command()
@click.argument("period", type=click.Choice(["day", "week"]), default="day")
@click.option("--until", type=Moment(), help="The end of the period; now, if not given.")
@memory_command
async def report(memory: Memory, output: Output, period: Literal["day", "week"], until: datetime | None) -> None:
    """What agents' tasks took before their first edit, beside the day or week before, and whether offers helped.

    Whether they helped is measured: some offers are held out at random, and both arms are compared over eight weeks.

    Example: mica report week
    """
    told = await memory.report(period, until=until)
    output.show(told, lambda console: _show(console, told))


def _show(console: Console, told: Report) -> None:
    console.print(f"[bold]{told.since:%Y-%m-%d %H:%M} to {told.until:%Y-%m-%d %H:%M} UTC[/]")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", f"this {told.period}", f"the {told.period} before"):
        table.add_column(column, justify="left" if not column else "right")
    rows: list[tuple[str, object, object]] = [
        ("tasks", told.work.tasks, told.before.tasks),
        ("sessions", told.work.sessions, told.before.sessions),
        ("agents", told.work.agents, told.before.agents),
        ("tokens before the first edit (median)", told.work.median_tokens, told.before.median_tokens),
        ("calls", told.work.median_calls, told.before.median_calls),
        ("seconds", told.work.median_seconds, told.before.median_seconds),
    ]
    for name, *values in rows:
        table.add_row(name, *(_figure(value) for value in values))
    console.print(table)
    console.print(escape(told.arms.verdict), soft_wrap=True)
    spent = told.spending
    if spent.answers:
        dollars = "unknown" if spent.dollars is None else f"${spent.dollars:,.4f} by prices of {spent.prices_at}"
        unpriced = f"; without a price: {', '.join(spent.unpriced)}" if spent.unpriced else ""
        said = f"Models gave {spent.answers:,} answers, {spent.tokens:,} tokens, {dollars}{unpriced}."
        console.print(escape(said), soft_wrap=True)
    for name, number in told.events.items():
        console.print(f"  {escape(name)} {number:,}")


def _figure(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
