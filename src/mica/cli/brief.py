"""brief, why, handoff, and the group briefs: the text that agents receive, and whether it helped."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.brief.now import HAPPENED, NOW, STATUS
from mica.brief.quality import Quality
from mica.cli.groups import CommandGroup
from mica.cli.output import (
    Moment,
    Output,
    describe_emptiness,
    making_command,
    memory_command,
    pasteable,
    print_late,
    print_unrecorded,
)
from mica.format.documents import crystal_document
from mica.format.lines import format_time, one_line, plural, strip_control
from mica.memory import Memory
from mica.model.brief import PRESETS, RECENCY_WEIGHT, Brief, Preset
from mica.model.event import utc_now
from mica.settings import load_settings

PATIENCE_S = 1.0  # the least deadline in a shell: a person waits longer than an agent for a complete brief
WIDTH = 400


@click.command()
@click.argument("query", nargs=-1)
@click.option("--budget", type=click.IntRange(min=1), help="At most this many tokens (setting: brief.budget_tokens).")
@click.option("--query", "more_words", help="The same as QUERY.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A budget by name: 500, 1,500, 3,000 or 5,000 tokens.")
@click.option(
    "--recency-weight",
    type=click.FloatRange(0, 1),
    default=RECENCY_WEIGHT,
    show_default=True,
    help="How much the age of crystals counts, beside their relevance.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0.001, 3_600),
    help="At most this many seconds. By default the setting brief.deadline_s, but at least 1.",
)
@click.option(
    "--concept",
    "concepts",
    multiple=True,
    metavar="DOMAIN:TYPE:ID",
    help="Include what other systems know about this concept; repeatable.",
)
@click.option("--at", type=Moment(), help="The brief as it would have been at this time.")
@click.option(
    "--compress", is_flag=True, help="Shorten long passages to their main sentences, and say how much was cut."
)
@click.option("--off", is_flag=True, help="Print no brief, and record that; for comparison.")
@memory_command
async def brief(
    memory: Memory,
    output: Output,
    *,
    query: tuple[str, ...],
    more_words: str | None,
    budget: int | None,
    preset: str | None,
    recency_weight: float,
    deadline: float | None,
    concepts: tuple[str, ...],
    at: datetime | None,
    compress: bool,
    off: bool,
) -> None:
    """Print what an agent needs to know now, within a token budget.

    Without QUERY it is about the latest work. The text goes to standard output; its cost, what is missing and the id of
    its record (receipt) go to standard error.

    Example: mica brief "login redirect loses the session" --budget 1500
    """
    if preset is not None and budget is not None:
        raise click.UsageError("give --preset or --budget, not both; a preset is a budget by name")
    if at is not None and at > utc_now():
        raise click.UsageError(f"--at {at.isoformat()} is in the future; give a time in the past")
    await memory.briefs.prepare(concepts)
    made = await memory.brief(
        " ".join([*query, *([more_words] if more_words else [])]),
        budget_tokens=budget,
        preset=cast(Preset | None, preset),
        recency_weight=recency_weight,
        deadline_s=deadline or max(PATIENCE_S, load_settings().brief.deadline_s),
        concept=concepts,
        at=at,
        compress=compress,
        off=off,
        is_preview=memory.location == ":memory:",
    )

    def for_people(console: Console) -> None:
        if made.text:
            click.echo(made.text)
        note = _describe_cost(made)
        off_note = ""
        if made.is_off:
            off_note = "; not shown because of --off" if off else "; briefs are off here (`mica briefs on`)"
        receipt = f"; receipt {made.receipt}" if made.receipt else ""
        click.echo(f"mica: {note}{off_note}{receipt}", err=True)
        print_late(made.missing)
        print_unrecorded(memory)

    output.show(made, for_people)


def _describe_cost(made: Brief) -> str:
    if made.left_out and not made.passages:
        needed = "" if made.needed_tokens is None else f"; the shortest needs {made.needed_tokens:,}"
        return f"no line fits {plural(made.budget_tokens, 'token')}{needed}"
    more = f", {made.left_out} more left out" if made.left_out else ""
    return f"{made.tokens} of {made.budget_tokens} tokens (estimated), {plural(len(made.passages), 'passage')}{more}"


@click.group(cls=CommandGroup)
def briefs() -> None:
    """Switch briefs on or off, see whether they helped, update NOW.md."""


@click.command()
@making_command
async def on(memory: Memory, output: Output) -> None:
    """Switch briefs on for this space.

    Example: mica briefs on
    """
    await memory.briefs.switch(on=True)
    await _show_switch(memory, output)


@click.command()
@making_command
async def off(memory: Memory, output: Output) -> None:
    """Switch briefs off for this space.

    Commands, MCP tools and hooks then give agents no brief. `mica briefs quality` compares results with and without
    briefs; `[brief] holdout` withholds briefs from a share of sessions.

    Example: mica briefs off
    """
    await memory.briefs.switch(on=False)
    await _show_switch(memory, output)


@click.command()
@memory_command
async def status(memory: Memory, output: Output) -> None:
    """Say whether briefs are on in this space.

    Example: mica briefs status
    """
    await _show_switch(memory, output)


async def _show_switch(memory: Memory, output: Output) -> None:
    is_on = await memory.briefs.is_on()
    output.show({"on": is_on}, lambda console: console.print(f"Briefs are {'on' if is_on else 'off'} in this space."))


class _TakesLines(click.Command):
    """A command whose arguments may be lines copied from a brief: a leading "- " is removed, not read as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [each.removeprefix("- ") for each in args])


@click.command(cls=_TakesLines)
@click.argument("reference", nargs=-1, required=True)
@memory_command
async def why(memory: Memory, output: Output, *, reference: tuple[str, ...]) -> None:
    """Show where a line of a brief comes from.

    REFERENCE is the receipt of a brief, the id of an event, a position such as 12, or a line of a brief. Of a line, the
    first two words or more are enough. For a list of files, the last access to each file is shown. For a line from
    another system, its rows and files are shown. For a line about conflicts, gaps or compression, the fragments
    concerned are shown.

    Example: mica why "gotcha: The retry hides"
    """
    explained = await memory.why(" ".join(reference))

    def for_people(console: Console) -> None:
        for each in explained:
            console.print(
                f"[bold]{escape(each.name)}[/] [dim]{format_time(each.at)}[/] {escape(one_line(each.text, WIDTH))}",
                soft_wrap=not console.is_terminal,
            )
            if each.retracted is not None:
                console.print(f"  [yellow]retracted:[/] {escape(each.retracted)}", soft_wrap=True)
            for line in each.because:
                score = "" if line.score is None else f", score {line.score:.2f}, {line.tokens} tokens"
                offered = f"[dim]({line.source}{score})[/]" if line.source else ""
                text = "" if line.text == each.text else escape(one_line(line.text, WIDTH))
                if text or offered:
                    console.print(f"  {' '.join(filter(None, [text, offered]))}", soft_wrap=True)
                for source, place in line.origins:
                    console.print(f"    [green]{escape(source)}[/] {escape(place)}", soft_wrap=True)
                for event in line.evidence:
                    who = escape(" ".join(filter(None, [event.origin, event.agent, event.session])))
                    text = f": {escape(one_line(event.text, WIDTH))}" if event.text != line.text else ""
                    number = f"[green]{event.number}[/] [dim]{format_time(event.at)}[/]"
                    console.print(f"    {number} {escape(event.name)} [dim]{who}[/]{text}", soft_wrap=True)
                    if event.retracted is not None and event.id != each.id:
                        console.print(f"      [yellow]retracted:[/] {escape(event.retracted)}", soft_wrap=True)
            for name, reason in each.missing.items():
                console.print(f"  [yellow]missing: {escape(name)}[/] ({escape(reason)})", soft_wrap=True)
            if not each.because and not each.missing:
                console.print("  It is empty: nothing was known at that time.")

    output.show(explained, for_people)


@click.command()
@click.option("--session", help="The session.  [default: the current or the latest one]")
@click.option("--budget", type=click.IntRange(min=1), help="At most this many tokens (setting: brief.budget_tokens).")
@making_command
async def handoff(memory: Memory, output: Output, *, session: str | None, budget: int | None) -> None:
    """Summarize a session for the next agent, within a token budget.

    Crystals are made of this session only. Each line ends with the numbers of its sources. The text goes to standard
    output; the session and the cost go to standard error.

    Example: mica handoff --budget 800
    """
    made = await memory.handoff(session=session, budget_tokens=budget)
    is_empty = not made.text and not made.left_out
    is_unused = is_empty and await describe_emptiness(memory) is not None

    def for_people(console: Console) -> None:
        if made.text:
            click.echo(made.text)
        new = f"{plural(len(made.new_crystals), 'new crystal')}, {plural(len(made.lines), 'line')}"
        more = f", {made.left_out} more did not fit" if made.left_out else ""
        cost = f"{made.tokens_used} of {made.budget_tokens} tokens (estimated)"
        if made.session or not is_empty:
            click.echo(
                f"mica: {f'session {made.session}' if made.session else 'no session'}: {new}, {cost}{more}", err=True
            )
        for error in made.errors:
            click.echo(f"mica: not crystallized: {error}", err=True)
        if is_empty:
            reason = "nothing was recorded yet" if is_unused else "this space has nothing of a session yet"
            hint = pasteable("`mica mark` records what you observe")
            click.echo(f"mica: nothing to hand over: {reason}; {hint}", err=True)

    document = {
        **msgspec.structs.asdict(made),
        "new_crystals": list(map(crystal_document, made.new_crystals)),
        "recent_crystals": list(map(crystal_document, made.recent_crystals)),
    }
    output.show(document, for_people)


@click.command()
@click.option("--file", default=NOW, show_default=True, type=click.Path(path_type=Path), help="The status file.")
@click.option(
    "--section", default=HAPPENED, show_default=True, help=f"The title of the section; {STATUS!r} lists what is open."
)
@click.option("--apply", "is_applied", is_flag=True, help="Write it, and keep a backup of the file.")
@memory_command
async def now(memory: Memory, output: Output, *, file: Path, section: str, is_applied: bool) -> None:
    """Propose a section of NOW.md from the latest crystals, as a diff.

    Nothing is written without --apply. Only this section changes; it is added at the end if it is missing. Crystals are
    made by `mica handoff`, by `mica crystals make` and when a session ends.

    Example: mica briefs now --apply
    """
    proposal = await memory.briefs.now(file, section=section)
    applied = await memory.briefs.apply_now(proposal) if is_applied and proposal.is_change else None

    def for_people(console: Console) -> None:
        click.echo(strip_control(proposal.diff) if console.is_terminal else proposal.diff, nl=False)
        if applied is not None:
            backup = f"; backup: {applied.backup}" if applied.backup else ""
            click.echo(f"mica: {applied.file} is written{backup}", err=True)
        elif proposal.is_change:
            click.echo(f"mica: nothing was written; --apply writes it (confidence {proposal.confidence:.2f})", err=True)
        elif proposal.source_crystals:
            click.echo(f"mica: {file} is up to date", err=True)
        else:
            click.echo("mica: there are no crystals yet; `mica handoff` or `mica crystals make` makes them", err=True)

    document = {
        **{name: getattr(proposal, name) for name in proposal.__struct_fields__ if name not in ("before", "after")},
        "diff": proposal.diff,
        "applied": applied is not None,
        "backup": applied and applied.backup,
    }
    output.show(document, for_people)


@click.command()
@click.option("--weeks", type=click.IntRange(1, 520), default=8, show_default=True, help="How many weeks.")
@memory_command
async def quality(memory: Memory, output: Output, *, weeks: int) -> None:
    """Compare tasks with briefs to tasks without.

    It shows outcomes, with the share that briefs made worse; the time from an observation to its use; the sources that
    contribute; the crystals, teachings and trails of each week; and what asking sources cost. `mica briefs off` and
    `[brief] holdout` provide tasks without briefs.

    Example: mica briefs quality --weeks 4
    """
    report = await memory.briefs.quality(weeks=weeks)
    output.show({**_document(report)}, lambda console: _show(console, report))


def _document(report: Quality) -> dict[str, object]:
    return {**{name: getattr(report, name) for name in report.__struct_fields__}, "verdict": report.helped.verdict}


def _show(console: Console, report: Quality) -> None:
    console.print(escape(report.helped.verdict), soft_wrap=True)
    closing, yielded, cost = report.closing, report.yielded, report.cost
    if closing.crystals_used:
        console.print(
            f"{plural(closing.crystals_used, 'crystal')} used: {_hours(closing.to_crystal_h)} from observation to "
            f"crystal, {_hours(closing.to_use_h)} from there to the first use (medians).",
            soft_wrap=True,
        )
    if yielded.share is not None:
        never = f"; never: {', '.join(yielded.never)}" if yielded.never else ""
        shares = f"{yielded.contributed} of {yielded.asked} sources contributed to something that was shown{never}."
        console.print(escape(shares), soft_wrap=True)
    if cost.gathers:
        took = f"{cost.p50_ms or 0:.0f} ms (p50), {cost.p99_ms or 0:.0f} ms (p99)"
        console.print(
            f"{plural(cost.gathers, 'gather')}: {cost.tokens:,} tokens, {took}, ${cost.dollars:.4f}; "
            f"agreement {_share(cost.coherence)}, answered {_share(cost.answered)}, "
            f"from the cache {_share(cost.cached)}; {plural(cost.conflicts, 'conflict')}.",
            soft_wrap=True,
        )
        counts = ", ".join(f"{name} {number:,}" for name, number in cost.counts.items() if number)
        console.print(f"Not shown: {escape(counts or 'nothing')}.", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("week from", "crystals", "teachings", "trails", "briefs", "gathers"):
        table.add_column(column, justify="left" if column == "week from" else "right")
    for week in report.weeks:
        numbers = (week.crystals, week.teachings, week.trails, week.briefs, week.gathers)
        table.add_row(f"{week.begins:%Y-%m-%d}", *(f"{number:,}" for number in numbers))
    console.print(table)


def _hours(hours: float | None) -> str:
    return "unknown" if hours is None else f"{hours * 60:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"
