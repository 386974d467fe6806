"""why: where something comes from."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, memory_command
from mica.format.lines import local, one_line
from mica.memory import Memory

WIDTH = 400


class _OfLines(click.Command):
    """A command that is given lines of a brief as they stand there: the dash before them is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [each.removeprefix("- ") for each in args])


@click.command(cls=_OfLines)
@click.argument("reference", nargs=-1, required=True)
@memory_command
async def why(memory: Memory, output: Output, *, reference: tuple[str, ...]) -> None:
    """Where each line of a brief comes from, given its receipt; or what a mark, a crystal or a line rests on.

    REFERENCE is an id, a position such as 12, a whole line that ends in its numbers, as in «… (#12 #14)», or a line
    that other systems stated, or its beginning: then the rows and files are named that it comes from. The lines that
    tell of conflicts, of gaps and of compressing lead to what they speak of, too.

    Example: mica why 12
    """
    found = await memory.why(" ".join(reference))

    def for_people(console: Console) -> None:
        for each in found:
            console.print(f"[bold]{escape(each.name)}[/] [dim]{local(each.at)}[/] {escape(one_line(each.text, WIDTH))}")
            if each.retracted is not None:
                console.print(f"  [yellow]retracted:[/] {escape(each.retracted)}", soft_wrap=True)
            for line in each.because:
                score = "" if line.score is None else f", score {line.score:.2f}, {line.tokens} tokens"
                offered = f" [dim]({line.source}{score})[/]" if line.source else ""
                console.print(f"  {escape(one_line(line.text, WIDTH))}{offered}", soft_wrap=True)
                for source, place in line.origins:
                    console.print(f"    [green]{escape(source)}[/] {escape(place)}", soft_wrap=True)
                for event in line.evidence:
                    who = escape(" ".join(filter(None, [event.origin, event.agent, event.session])))
                    said = f": {escape(one_line(event.text, WIDTH))}" if event.text != line.text else ""
                    number = f"[green]{event.number}[/] [dim]{local(event.at)}[/]"
                    console.print(f"    {number} {escape(event.name)} [dim]{who}[/]{said}", soft_wrap=True)
                    if event.retracted is not None and event.id != each.id:
                        console.print(f"      [yellow]retracted:[/] {escape(event.retracted)}", soft_wrap=True)
            for name, reason in each.missing.items():
                console.print(f"  [yellow]missing: {escape(name)}[/] ({escape(reason)})", soft_wrap=True)
            if not each.because and not each.missing:
                console.print("  It shows nothing: nothing was known.")

    output.show(found, for_people)
