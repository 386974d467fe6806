"""sources: what other systems are asked, what they would be asked, what they say, and whether they answer."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.output import Output, memory_command, print_unrecorded
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.sources.drivers.tables import Explained, driver_of, place_of
from mica.sources.health import Health, Past, State
from mica.sources.protocol import Concept, Declared

TEXT_CHARACTERS_MAX = 200  # of a fragment in a list; --json has all of it

COLOURS: dict[State, str] = {"answers": "green", "failing": "yellow", "missing": "red"}


@click.group()
def sources() -> None:
    """What other systems know: the sources that `mica defrag` and `mica brief` ask.

    They are declared as [sources.NAME] in the settings; docs/sources.md says how.
    """


@sources.command("list")
@memory_command
async def list_(memory: Memory, output: Output) -> None:
    """Which sources are asked, how they are treated, which concepts each covers, and how the last question went.

    Nothing is connected to.

    Example: mica sources list
    """
    went = await memory.asked_sources()
    listed = [
        {
            "driver": driver_of(source),
            "place": place_of(source),
            **_declared(source.declared),
            "past": went.get(name, Past()),
        }
        for name, source in memory.every_source.items()
    ]

    def for_people(console: Console) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("source", "driver", "rank", "concepts", "place", "last tried"):
            table.add_column(heading, overflow="fold")
        for each in listed:
            concepts = ", ".join(map(str, each["concepts"])) if isinstance(each["concepts"], tuple) else ""
            cells = (each["name"], each["driver"], each["rank"], concepts, each["place"], _tried(each["past"]))
            table.add_row(*(escape(str(cell)) for cell in cells))
        console.print(table)
        if not len(memory.sources):
            console.print(
                "Only mica's own. Declare others as [sources.NAME] in the settings: docs/sources.md", markup=False
            )

    output.show(listed, for_people)


def _tried(past: object) -> str:
    """When a source was asked last, and whether it answered then."""
    if not isinstance(past, Past) or past.tried_at is None:
        return "–"
    failed = f", failed {past.failed_in_a_row} in a row" if past.failed_in_a_row else ""
    return f"{local(past.tried_at)}{failed}"


def _declared(declared: Declared) -> dict[str, object]:
    return {
        "name": declared.name,
        "rank": declared.rank,
        "concepts": declared.concepts,
        "ttl_s": declared.ttl_s,
        "is_live": declared.is_live,
        "time_share": declared.time_share,
        "invalidated_by": declared.invalidated_by,
        "fragments_max": declared.fragments_max,
        "characters_max": declared.characters_max,
    }


@sources.command()
@click.argument("name")
@click.argument("concept")
@memory_command
async def test(memory: Memory, output: Output, *, name: str, concept: str) -> None:
    """Ask the source NAME about CONCEPT, a domain:type:id, outside of every cache, and show what it says.

    How it went is recorded: a source that was repaired is failing no more once it has answered here. Exits 1 when it
    cannot say.

    Example: mica sources test judgments judgment:code_review:abc123
    """
    tested = await memory.test_source(name, concept)

    def for_people(console: Console) -> None:
        for each in tested.fragments:
            value = (
                "" if each.value is None or str(each.value) in each.text else f" [dim]= {escape(str(each.value))}[/]"
            )
            sure = f"[dim]{each.confidence:.0%}, {local(each.at)}, {escape(each.locator)}[/]"
            console.print(
                f"[green]{escape(each.key)}[/] {escape(one_line(each.text, TEXT_CHARACTERS_MAX))}{value} {sure}"
            )
        if tested.missing:
            click.echo(f"mica: missing: {tested.missing}", err=True)
        if tested.error:
            click.echo(f"mica: {tested.error}", err=True)
        else:
            told = counted(len(tested.fragments), "fragment")
            click.echo(f"mica: {told} from {name} in {tested.milliseconds:.0f} ms", err=True)
        if not memory.every_source[name].declared.knows(Concept.parse(concept)):
            click.echo(f"mica: `concepts` of {name} does not cover {concept}: no gather asks it that", err=True)
        print_unrecorded(memory)

    output.show(tested, for_people)
    if tested.error:
        raise click.exceptions.Exit(1)


@sources.command()
@click.argument("concept")
@memory_command
async def explain(memory: Memory, output: Output, *, concept: str) -> None:
    """What each source would be asked about CONCEPT, and what is bound to it. Nobody is asked.

    Example: mica sources explain judgment:code_review:abc123
    """
    asked = memory.sources.explain(Concept.parse(concept))

    def for_people(console: Console) -> None:
        for each in asked:
            _print_explained(console, each)
        if not asked:
            console.print(
                f"No declared source covers {concept}; `mica sources list` shows what each covers.", markup=False
            )

    output.show(asked, for_people)


def _print_explained(console: Console, asked: Explained) -> None:
    console.print(
        f"[green]{escape(asked.source)}[/] [dim]{asked.driver}, rank {asked.declared.rank}[/] {escape(asked.place)}"
    )
    console.print(f"  {escape(asked.asks)}", soft_wrap=True)
    for name, value in asked.parameters.items():
        console.print(f"  [dim]{escape(name)} =[/] {escape(value)}", soft_wrap=True)


@sources.command()
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.01, 60), default=3.0, show_default=True, help="Seconds for each."
)
@memory_command
async def health(memory: Memory, output: Output, *, timeout_s: float) -> None:
    """Whether each declared source answers now, how fast, and how its latest questions went.

    One is failing that is there, but could not answer its latest three questions or more: `mica sources test` asks it
    again, and an answer ends that. Exits 1 when one does not
    answer or is failing.

    Example: mica sources health --json
    """
    found = await memory.check_sources(timeout_s=timeout_s)

    def for_people(console: Console) -> None:
        for each in found:
            state = f"[{COLOURS[each.state]}]{each.state}[/]"
            console.print(
                f"{state} {escape(each.source)} [dim]{each.driver}, {each.milliseconds:.0f} ms[/] {escape(each.told)}",
                soft_wrap=True,
            )
            if each.past.asked:
                console.print(f"  [dim]{escape(_past(each))}[/]", soft_wrap=True)
        if not found:
            console.print("No source is declared; docs/sources.md says how.", markup=False)

    output.show(found, for_people)
    if any(each.state != "answers" for each in found):
        raise click.exceptions.Exit(1)


def _past(health: Health) -> str:
    """How the latest questions went, in words."""
    past = health.past
    tried = f"last tried {local(past.tried_at)}, " if past.tried_at and past.tried_at != past.answered_at else ""
    last = f"{tried}last answer {local(past.answered_at)}" if past.answered_at else f"{tried}no answer yet"
    why = f", last failure: {one_line(past.failure, TEXT_CHARACTERS_MAX)}" if past.failure else ""
    left = "; left alone now" if health.breaker == "open" else ""
    return f"asked {counted(past.asked, 'time')}, {past.failed} failed; {last}{why}{left}"
