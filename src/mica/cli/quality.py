"""quality: whether briefs helped, and what gathering cost."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.brief.quality import Quality
from mica.cli.output import Output, memory_command
from mica.memory import Memory


@click.command()
@click.option("--weeks", type=click.IntRange(1, 520), default=8, show_default=True, help="That are looked at.")
@memory_command
async def quality(memory: Memory, output: Output, *, weeks: int) -> None:
    """Did it help? Tasks with briefs beside tasks without, by their outcomes, with the share that was made worse.

    And how long it takes from an observation to its use, which sources contribute, what passed its gate each week, and
    what gathering cost. `mica briefs off` and `[brief] holdout` make tasks without briefs.

    Example: mica quality --weeks 4
    """
    found = await memory.quality(weeks=weeks)
    output.show({**_document(found)}, lambda console: _show(console, found))


def _document(found: Quality) -> dict[str, object]:
    return {**{name: getattr(found, name) for name in found.__struct_fields__}, "verdict": found.helped.verdict}


def _show(console: Console, found: Quality) -> None:
    console.print(escape(found.helped.verdict), soft_wrap=True)
    closing, yielded, cost = found.closing, found.yielded, found.cost
    if closing.crystals_used:
        console.print(
            f"{closing.crystals_used:,} crystals were used: {_hours(closing.to_crystal_h)} from observation to "
            f"crystal, {_hours(closing.to_use_h)} from there to the first use (medians).",
            soft_wrap=True,
        )
    if yielded.share is not None:
        never = f"; never: {', '.join(yielded.never)}" if yielded.never else ""
        said = f"{yielded.contributed} of {yielded.asked} sources contributed to something that was shown{never}."
        console.print(escape(said), soft_wrap=True)
    if cost.gathers:
        took = f"{cost.p50_ms or 0:.0f} ms (p50), {cost.p99_ms or 0:.0f} ms (p99)"
        console.print(
            f"{cost.gathers:,} gathers: {cost.tokens:,} tokens, {took}, ${cost.dollars:.4f}; "
            f"agreement {_share(cost.coherence)}, answered {_share(cost.answered)}, "
            f"from kept replies {_share(cost.cached)}; {cost.conflicts:,} conflicts.",
            soft_wrap=True,
        )
        counts = ", ".join(f"{name} {number:,}" for name, number in cost.counts.items() if number)
        console.print(f"Not shown: {escape(counts or 'nothing')}.", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("week from", "crystals", "teachings", "trails", "briefs", "gathers"):
        table.add_column(column, justify="left" if column == "week from" else "right")
    for week in found.weeks:
        numbers = (week.crystals, week.teachings, week.trails, week.briefs, week.gathers)
        table.add_row(f"{week.begins:%Y-%m-%d}", *(f"{number:,}" for number in numbers))
    console.print(table)


def _hours(hours: float | None) -> str:
    return "unknown" if hours is None else f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"
