"""crystallize, crystals, expand, tick, retract: from marks to what they meant, and back."""

from __future__ import annotations

import typing
from datetime import datetime

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Moment, Output, check_order, making_command, memory_command
from mica.format.documents import crystal_document
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.model.crystal import LEVELS, Crystal, Level
from mica.model.event import Mark
from mica.settings import DigestKind

LEVEL = click.Choice(LEVELS)


def print_crystal(console: Console, crystal: Crystal) -> None:
    name = escape(one_line(crystal.label or crystal.period, 80))
    note = f"{counted(crystal.marks, 'mark')}, {crystal.tokens} of {crystal.source_tokens} tokens"
    number = f"#{crystal.position or '…'}"
    console.print(f"[green]{number}[/] [cyan]{crystal.level}[/] [bold]{name}[/] [dim]{local(crystal.end_at)} {note}[/]")
    for statement in crystal.insight:
        console.print(f"  {escape(one_line(statement.text, 1_000))}", soft_wrap=True)
    for kind, statements in (("why it matters", crystal.significance), ("principle", crystal.principles)):
        for statement in statements:
            console.print(f"  [yellow]{kind}:[/] {escape(one_line(statement.text, 1_000))}", soft_wrap=True)


@click.command()
@click.option("--level", type=LEVEL, help="Close what is open up to this level.  [default: session]")
@click.option("--session", help="Only this session.")
@click.option("--tree", metavar="ID", help="One crystal over an event and all that followed from it.")
@click.option("--since", type=Moment(), help="Nothing that happened before.")
@click.option("--label", help="The name of an epoch.")
@click.option(
    "--digest",
    type=click.Choice(["extractive", "model"]),
    help="In the marks' own words, or by a model (settings: crystals.digest).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made at the lowest level; record nothing.")
@making_command
async def crystallize(
    memory: Memory,
    output: Output,
    *,
    level: str | None,
    session: str | None,
    tree: str | None,
    since: datetime | None,
    label: str | None,
    digest: str | None,
    dry_run: bool,
) -> None:
    """Make crystals of marks now, whether their session, day or week is over or not.

    Without this command, what is over is closed by whoever is active, and by `mica tick`. Marks that come later make a
    new revision; nothing is crystallized twice.

    Example: mica crystallize --level day
    """
    if tree is not None and (other := next((n for n, v in (("level", level), ("session", session)) if v), None)):
        raise click.UsageError(f"--tree makes one crystal beside the hierarchy of time; leave out --{other}")
    root = None if tree is None else (await memory.event(tree)).id
    made = await memory.crystallize(
        level=typing.cast(Level, level or "session"),
        session=session,
        tree=root,
        since=since,
        label=label,
        digest=typing.cast(DigestKind | None, digest),
        dry_run=dry_run,
    )
    waiting = made.waiting

    def for_people(console: Console) -> None:
        for crystal in made:
            print_crystal(console, crystal)
        if not made:
            told = "." if waiting else ": no marks wait; `mica crystals` shows what was made of those before."
            console.print(f"Nothing was crystallized{told}")
        for each in waiting:
            console.print(f"[dim]{escape(one_line(each.period, 80))}: {escape(each.reason)}[/]")

    output.show({"crystals": list(map(crystal_document, made)), "waiting": waiting, "dry_run": dry_run}, for_people)


@click.command()
@click.argument("query", nargs=-1)
@click.option("--level", type=LEVEL, help="Only this level.")
@click.option("--since", type=Moment(), help="That end at this time or later.")
@click.option("--until", type=Moment(), help="That begin before this time.")
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(0, 10_000), help="The latest.")
@memory_command
async def crystals(
    memory: Memory,
    output: Output,
    *,
    query: tuple[str, ...],
    level: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> None:
    """What marks meant: the crystals that stand, latest last; with QUERY, those that speak of it, best first.

    Example: mica crystals session cookie --level day -n 7
    """
    check_order(since, until)
    asked = " ".join(query)
    found = await memory.crystals(asked, level=typing.cast(Level | None, level), since=since, until=until, limit=limit)
    waiting = await memory.waiting() if not found and not asked else []

    def for_people(console: Console) -> None:
        if not found and asked:
            console.print("No crystal speaks of that; `mica search` looks in the marks.")
        elif not found:
            console.print("No crystals yet. They are made of marks when a session or a day is over;")
            console.print("`mica crystallize` makes them now.")
            for each in waiting:
                console.print(f"[dim]{escape(each.period)}: {counted(each.count, 'mark')}, {each.reason}[/]")
        for crystal in found:
            print_crystal(console, crystal)

    output.show(list(map(crystal_document, found)), for_people)


@click.command()
@click.argument("reference", metavar="ID")
@memory_command
async def expand(memory: Memory, output: Output, *, reference: str) -> None:
    """What a crystal rests on: each of its marks, or its crystals of the level below, and what was left out.

    Example: mica expand 210
    """
    crystal = await memory.crystal(reference)
    sources = await memory.expand(crystal.id)
    cited = {each for statement in crystal.statements for each in statement.sources}
    dropped = {each.id: each.reason for each in crystal.dropped}

    def for_people(console: Console) -> None:
        print_crystal(console, crystal)
        console.print(
            f"[bold]rests on[/] {counted(len(crystal.sources), 'source')}; made by {escape(crystal.method)}, "
            f"revision {crystal.revision}, confidence {crystal.confidence:.2f}"
        )
        for source in sources:
            if isinstance(source, Crystal):
                print_crystal(console, source)
                if source.id in dropped:
                    console.print(f"  [dim]left out: {escape(dropped[source.id])}[/]")
                continue
            note = "[green]cited[/]" if source.id in cited else f"[dim]{escape(dropped.get(source.id, ''))}[/]"
            console.print(f"  [green]#{source.position}[/] {note} {escape(one_line(source.text, 400))}", soft_wrap=True)

    documents = [{**_source_document(source), "left_out": dropped.get(source.id)} for source in sources]
    document = {"crystal": crystal_document(crystal), "sources": documents}
    output.show(document, for_people)


def _source_document(source: Mark | Crystal) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(source)
    return crystal_document(source) if isinstance(source, Crystal) else document


@click.command()
@making_command
async def tick(memory: Memory, output: Output) -> None:
    """Do what is due: close sessions, days and weeks that are over. For cron; safe to run at any time, by several.

    Example: mica tick
    """
    ran = await memory.tick()

    def for_people(console: Console) -> None:
        if not ran:
            console.print("Nothing is due.")
        for each in ran:
            told = f"failed: {escape(each.error)}" if each.error else f"{each.done} done"
            console.print(f"{each.kind}: {told} [dim](again at {local(each.next_at)})[/]")

    output.show(ran, for_people)


@click.command()
@click.argument("reference", metavar="ID")
@click.option("--reason", required=True, help="Why it does not hold any more.")
@making_command
async def retract(memory: Memory, output: Output, *, reference: str, reason: str) -> None:
    """Say that a mark, a crystal or a judgment does not hold any more. It stays in the log; nothing tells it any more.

    Crystals that rest on it are made anew without it, and what was gathered with it is gathered again. To remove its
    content, use `mica purge`.

    Example: mica retract 12 --reason "the cookie was not the cause"
    """
    retracted = await memory.event(reference)
    identifier = await memory.retract(retracted.id, reason=reason)

    def for_people(console: Console) -> None:
        console.print(f"{retracted.number} is retracted [dim]({identifier})[/]")

    output.show({"retracted": retracted.id, "event": identifier}, for_people)
