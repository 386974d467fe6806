"""handoff, now: what the next agent, or the next person, needs to start."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console

from mica.cli.crystals import crystal_document
from mica.cli.output import Output, counted, making_command
from mica.memory import Memory


@click.command()
@click.option("--session", help="Hand over this one; without it, the current or the latest.")
@click.option("--budget", type=click.IntRange(min=0), help="Tokens at the most (settings: brief.budget_tokens).")
@making_command
async def handoff(memory: Memory, output: Output, *, session: str | None, budget: int | None) -> None:
    """Crystallize a session, and print what the next agent needs to start, within a budget.

    Other sessions are left alone. Each line names what it comes from. The text goes to standard output, which session
    it is and what it cost to standard error.

    Example: mica handoff --budget 800
    """
    made = await memory.handoff(session=session, budget_tokens=budget)

    def for_people(console: Console) -> None:
        if made.text:
            click.echo(made.text)
        which = f"session {made.session}" if made.session else "no session"
        new = f"{counted(len(made.new_crystals), 'new crystal')}, {counted(len(made.lines), 'line')}"
        left = f", {made.left_out} more did not fit" if made.left_out else ""
        cost = f"{made.tokens_used} of {made.budget_tokens} tokens (estimated)"
        click.echo(f"mica: {which}: {new}, {cost}{left}", err=True)
        for error in made.errors:
            click.echo(f"mica: not crystallized: {error}", err=True)
        if not made.text and not made.left_out:
            click.echo("mica: nothing to hand over yet; `mica mark` records what you observe", err=True)

    document = {
        **msgspec.structs.asdict(made),
        "new_crystals": list(map(crystal_document, made.new_crystals)),
        "recent_crystals": list(map(crystal_document, made.recent_crystals)),
    }
    output.show(document, for_people)
