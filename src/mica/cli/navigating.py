"""navigate: where a task will lead."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, memory_command
from mica.memory import Memory


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
    places = await memory.navigate(asked, limit=limit, session=session)

    def for_people(console: Console) -> None:
        for name, reason in places.missing.items():
            click.echo(f"mica: {name}: {reason}", err=True)
        if not places:
            console.print("No file of this working tree has anything to do with it.")
        for place in places:
            where = ",".join(f"{lines.start}-{lines.end}" for lines in place.lines)
            path = escape(f"{place.path}:{where}" if where else place.path)
            reasons = escape("; ".join(place.reasons))
            console.print(f"[green]{place.probability:4.0%}[/]  {path}  [dim]{reasons}[/]", soft_wrap=True)

    output.show({"task": asked, "places": list(places), "missing": places.missing}, for_people)
