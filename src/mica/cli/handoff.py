"""handoff, now: what the next agent, or the next person, needs to start."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.console import Console

from mica.brief.now import HAPPENED, NOW, STATUS
from mica.cli.output import Output, making_command, memory_command
from mica.format.documents import crystal_document
from mica.format.lines import counted, harmless
from mica.memory import Memory


@click.command()
@click.option("--session", help="Hand over this one; without it, the current or the latest.")
@click.option("--budget", type=click.IntRange(min=1), help="Tokens at the most (settings: brief.budget_tokens).")
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


@click.command()
@click.option("--file", default=NOW, show_default=True, type=click.Path(path_type=Path), help="The status file.")
@click.option(
    "--section", default=HAPPENED, show_default=True, help=f"The title of the section; «{STATUS}» tells what is open."
)
@click.option("--apply", "is_applied", is_flag=True, help="Write it; the file as it was is kept as a backup.")
@memory_command
async def now(memory: Memory, output: Output, *, file: Path, section: str, is_applied: bool) -> None:
    """Propose a section of NOW.md from the latest crystals, as a diff. Nothing is written without --apply.

    Only this section changes; it is added at the end where it is missing. Crystals are made by `mica handoff`,
    `mica crystallize` and, when a session is over, by themselves.

    Example: mica now --apply
    """
    proposal = await memory.propose_now(file, section=section)
    applied = await memory.apply_now(proposal) if is_applied and proposal.is_change else None

    def for_people(console: Console) -> None:
        click.echo(harmless(proposal.diff) if console.is_terminal else proposal.diff, nl=False)
        if applied is not None:
            kept = f"; as it was: {applied.backup}" if applied.backup else ""
            click.echo(f"mica: {applied.file} is written{kept}", err=True)
        elif proposal.is_change:
            click.echo(f"mica: nothing is written; --apply does it (confidence {proposal.confidence:.2f})", err=True)
        elif proposal.source_crystals:
            click.echo(f"mica: {file} says it already", err=True)
        else:
            click.echo(
                "mica: there are no crystals to tell of; `mica handoff` or `mica crystallize` makes them", err=True
            )

    document = {
        **{name: getattr(proposal, name) for name in proposal.__struct_fields__ if name not in ("before", "after")},
        "diff": proposal.diff,
        "applied": applied is not None,
        "backup": applied and applied.backup,
    }
    output.show(document, for_people)
