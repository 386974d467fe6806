"""navigate, learn: where a task will lead, and what that is learned from."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, making_command, memory_command
from mica.format.lines import counted
from mica.memory import COMMITS_MAX, Memory


@click.command()
@click.argument("task", nargs=-1, required=True)
@click.option("--limit", "-n", default=10, show_default=True, type=click.IntRange(0, 1_000), help="How many files.")
@click.option("--session", help="The session that asks; what it did before counts most.")
@memory_command
async def navigate(memory: Memory, output: Output, *, task: tuple[str, ...], limit: int, session: str | None) -> None:
    """Name the files that a task will need, with the lines to begin at and the reason for each; best first.

    The probability is that of the file being read or changed for the task. Nothing is injected anywhere.

    Example: mica navigate "login redirect loses the session"
    """
    asked = " ".join(task)
    if not asked.strip():
        raise click.UsageError('say what the task is, as in: mica navigate "login redirect loses the session"')
    places = await memory.navigate(asked, limit=limit, session=session)

    def for_people(console: Console) -> None:
        for name, reason in places.missing.items():
            click.echo(f"mica: {name}: {reason}", err=True)
        if not places and limit and not places.missing:
            console.print("No file of this working tree has anything to do with it.")
        for place in places:
            where = ",".join(f"{lines.start}-{lines.end}" for lines in place.lines)
            path = escape(f"{place.path}:{where}" if where else place.path)
            reasons = escape("; ".join(place.reasons))
            console.print(f"[green]{place.probability:4.0%}[/]  {path}  [dim]{reasons}[/]", soft_wrap=True)

    output.show({"task": asked, "places": list(places), "missing": places.missing}, for_people)


@click.group()
def learn() -> None:
    """Learn from what is there already: commits, and tasks of the past."""


@learn.command()
@click.option("--limit", "-n", default=COMMITS_MAX, show_default=True, type=click.IntRange(1), help="Of the latest.")
@making_command
async def git(memory: Memory, output: Output, *, limit: int) -> None:
    """Take in the commits of this repository: what changed together, for which subject, and under which names.

    Each commit is an event, stored once; subjects are redacted. Run it again after a pull.

    Example: mica learn git
    """
    done = await memory.learn_git(limit=limit)

    def for_people(console: Console) -> None:
        known = f", {done.repeated:,} known already" if done.repeated else ""
        console.print(f"{counted(done.stored, 'commit')} learned{known}")

    output.show({"commits": done.stored, "repeated": done.repeated}, for_people)


@learn.command()
@making_command
async def navigation(memory: Memory, output: Output) -> None:
    """Learn from new tasks how much each signal of `mica navigate` is worth here. `mica evolve` does it daily.

    Every task is asked again with what was known then. What is kept are numbers, never contents.

    Example: mica learn navigation
    """
    tasks = await memory.learn_navigation()
    output.show({"tasks": tasks}, lambda console: console.print(f"Learned from {counted(tasks, 'task')}"))
