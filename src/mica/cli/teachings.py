"""promote, teachings: crystals that every agent should be told, until somebody withdraws them."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.crystals import print_crystal
from mica.cli.output import Output, making_command, memory_command
from mica.format.documents import crystal_document
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.model.teaching import CONFIDENCE_MIN, MARKS_MIN, SHARE_MIN, Candidate, Teaching

PERSON = "user"  # who promotes on a command line
GATE = (
    f"a crystal needs {MARKS_MIN} marks, a confidence of {CONFIDENCE_MIN:.2f} "
    f"and {SHARE_MIN:.0%} of what its level can score"
)


def print_teaching(console: Console, teaching: Teaching) -> None:
    who = one_line(teaching.by, 40)
    note = f"{teaching.level} {one_line(teaching.period, 80)}, promoted {local(teaching.at)} by {who}"
    ended = f" [red]{escape(one_line(teaching.ended, 200))}[/]" if teaching.ended else ""
    revised = " [yellow]its crystal has a later revision[/]" if teaching.superseded_by else ""
    console.print(f"[green]#{teaching.position}[/] [dim]{escape(note)}[/]{ended}{revised}", soft_wrap=True)
    for statement in teaching.content:
        console.print(f"  {escape(one_line(statement.text, 1_000))}", soft_wrap=True)
    for statement in teaching.principles:
        console.print(f"  [yellow]principle:[/] {escape(one_line(statement.text, 1_000))}", soft_wrap=True)


@click.command()
@click.argument("reference", metavar="[ID]", required=False)
@click.option("--auto", is_flag=True, help="Promote what passes the gate, at most three, the best first.")
@click.option("--candidates", is_flag=True, help="Show what --auto would promote; change nothing.")
@click.option("--reason", default="", help="Why it should be taught.")
@making_command
async def promote(
    memory: Memory, output: Output, *, reference: str | None, auto: bool, candidates: bool, reason: str
) -> None:
    """Make a crystal a teaching: it may enter every brief until it is withdrawn.

    A person promotes any crystal that stands, by its ID; --auto takes those that pass the gate.

    Example: mica promote 210 --reason "it cost us a day"
    """
    if (reference is not None) + auto + candidates != 1:
        raise click.UsageError("give the ID of a crystal, --auto or --candidates")
    if candidates:
        found = await memory.candidates()
        output.show(list(map(_candidate_document, found)), lambda console: _print_candidates(console, found))
        return
    if reference is None:
        made = await memory.auto_promote()
    else:
        made = [await memory.promote(reference, by=PERSON, reason=reason)]

    def for_people(console: Console) -> None:
        for teaching in made:
            print_teaching(console, teaching)
        if not made:
            console.print(f"Nothing was promoted: {GATE}.")

    output.show(msgspec.to_builtins(made), for_people)


def _candidate_document(candidate: Candidate) -> dict[str, object]:
    return {"score": candidate.score, "share": candidate.share, "crystal": crystal_document(candidate.crystal)}


def _print_candidates(console: Console, found: list[Candidate]) -> None:
    for candidate in found:
        print_crystal(console, candidate.crystal)
        console.print(f"  [dim]score {candidate.score:.2f}, {candidate.share:.0%} of what its level can have[/]")
    if not found:
        console.print(f"No crystal would be promoted: {GATE}.")
    else:
        console.print(f"{counted(len(found), 'candidate')}; `mica promote --auto` takes the first three.")


@click.command()
@click.option("--withdraw", metavar="ID", help="End this teaching.")
@click.option("--reason", default="", help="Why it is withdrawn.")
@click.option("--all", "with_ended", is_flag=True, help="Also those that have ended, with the reason.")
@memory_command
async def teachings(memory: Memory, output: Output, *, withdraw: str | None, reason: str, with_ended: bool) -> None:
    """What agents are taught: promoted crystals, oldest first.

    A teaching ends when it is withdrawn, or when its crystal or a mark that it cites is retracted. It goes with what it
    rests on when that is purged.

    Example: mica teachings --withdraw 212 --reason "the proxy was replaced"
    """
    if withdraw is not None:
        ended = await memory.withdraw(withdraw, reason=reason)
        output.show(msgspec.to_builtins(ended), lambda console: print_teaching(console, ended))
        return
    found = await memory.teachings(with_ended=with_ended)

    def for_people(console: Console) -> None:
        for teaching in found:
            print_teaching(console, teaching)
        if not found:
            console.print("Nothing is taught yet. `mica promote --candidates` shows what could be.")

    output.show(msgspec.to_builtins(found), for_people)
