"""defrag, judge, warm: what other systems know of a concept, and what was decided about it."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, making_command, memory_command, print_late, print_unrecorded
from mica.format.lines import counted
from mica.memory import Memory
from mica.sources.account import Defragged, age


def _told(made: Defragged) -> str:
    """What an answer cost, for standard error."""
    agreement = "" if made.coherence is None else f", agreement {made.coherence:.0%}"
    left = f", {made.left_out} more left out" if made.left_out else ""
    conflicts = f", {counted(len(made.conflicts), 'conflict')}" if made.conflicts else ""
    receipt = f"; receipt {made.receipt}" if made.receipt else ""
    shown = counted(len(made.fragments), "fragment")
    return f"{shown}{agreement}{conflicts}{left}; {made.tokens} tokens, {made.latency_ms:.0f} ms{receipt}"


def print_gaps(made: Defragged) -> None:
    """Say on standard error what could not be asked, and what is old."""
    for name, reason in sorted(made.missing.items()):
        click.echo(f"mica: missing: {name} ({reason})", err=True)
    for each in made.degraded:
        click.echo(f"mica: stale: {each.source} is from {age(each.age_s)} ago ({each.reason})", err=True)
    print_late(made.missing | {each.source: each.reason for each in made.degraded})


@click.command()
@click.argument("concept")
@click.option("--budget", type=click.IntRange(min=1), help="Tokens of a session (settings: brief.budget_tokens).")
@click.option(
    "--deadline", type=click.FloatRange(0.001, 3_600), help="Seconds at the most (settings: brief.deadline_s)."
)
@memory_command
async def defrag(memory: Memory, output: Output, *, concept: str, budget: int | None, deadline: float | None) -> None:
    """Gather what every source knows of CONCEPT, a domain:type:id, as one account with its conflicts.

    All sources are asked at once under one deadline; one that fails or hangs is named, and the others speak. The text
    goes to standard output, and takes at most 62 % of the budget; its cost, gaps and receipt go to standard error.
    Nothing known prints nothing.

    Example: mica defrag judgment:code_review:abc123 --json
    """
    await memory.prepare(concept)
    is_kept = memory.location != ":memory:"
    made = await memory.defrag(concept, budget_tokens=budget, deadline_s=deadline, is_preview=not is_kept)

    def for_people(console: Console) -> None:
        if made.injection:
            click.echo(made.injection)
        print_gaps(made)
        click.echo(f"mica: {_told(made)}", err=True)
        print_unrecorded(memory)

    output.show(made, for_people)


@click.command()
@click.argument("concept")
@click.argument("verdict")
@click.option("--confidence", type=click.FloatRange(0, 1), required=True, help="How sure, from 0 to 1.")
@click.option("--reason", "reasons", multiple=True, help="Why; may be given several times.")
@click.option("--agent", help="Who judges.")
@click.option("--session", help="In which session.")
@making_command
async def judge(
    memory: Memory,
    output: Output,
    *,
    concept: str,
    verdict: str,
    confidence: float,
    reasons: tuple[str, ...],
    agent: str | None,
    session: str | None,
) -> None:
    """Record what was decided about CONCEPT: a verdict in your own words, how sure, and why.

    The next `mica defrag` of it tells; the verdict before it stays visible.

    Example: mica judge judgment:code_review:abc123 GROWL --confidence 0.52 --reason "tests passed"
    """
    with memory.context(session=session, agent=agent):
        made = memory.judge(concept, verdict, confidence=confidence, reasons=reasons)
    event = await memory.event(made.id)

    def for_people(console: Console) -> None:
        console.print(f"[green]{event.number}[/] {escape(concept)}: {escape(verdict)} [dim]({made.id})[/]")

    output.show({"id": made.id, "position": event.position, **event.data}, for_people)


@click.command()
@click.option("-n", "--limit", type=click.IntRange(0, 100), default=5, show_default=True, help="Of the judgments.")
@memory_command
async def warm(memory: Memory, output: Output, *, limit: int) -> None:
    """Gather ahead what the next session will ask about: the concepts judged last, and those every brief speaks of.

    A process that stays does this by itself at the start of a session, and every 89 minutes for what is asked most.

    Example: mica warm
    """
    done = await memory.warm(limit=limit)

    def for_people(console: Console) -> None:
        if not done:
            console.print("Nothing was judged yet, and no concept is set in [brief] concepts.", markup=False)
        for made in done:
            console.print(f"[green]{escape(made.concept)}[/] [dim]{escape(_told(made))}[/]", soft_wrap=True)

    output.show(done, for_people)
