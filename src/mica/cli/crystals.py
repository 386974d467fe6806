"""The group crystals: make, list, expand, retract and promote summaries of marks."""

from __future__ import annotations

import typing
from datetime import datetime

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.groups import CommandGroup
from mica.cli.output import (
    Moment,
    Output,
    check_order,
    describe_emptiness,
    limit_option,
    making_command,
    memory_command,
    sentence_of,
)
from mica.format.documents import crystal_document
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.model.crystal import LEVELS, Crystal, Level
from mica.model.mark import Mark
from mica.model.teaching import CONFIDENCE_MIN, MARKS_MIN, SHARE_MIN, Candidate, Teaching
from mica.settings import DigestKind

LEVEL = click.Choice(LEVELS)
PERSON = "user"  # who promotes a crystal from the command line
GATE = (
    f"a crystal needs {MARKS_MIN} marks, a confidence of {CONFIDENCE_MIN:.2f} "
    f"and {SHARE_MIN:.0%} of the highest score of its level"
)


@click.group(cls=CommandGroup)
def crystals() -> None:
    """Summaries of marks: by session, day, week and epoch."""


def print_crystal(console: Console, crystal: Crystal) -> None:
    name = escape(one_line(crystal.label or crystal.period, 80))
    note = f"{plural(crystal.marks, 'mark')}, {crystal.tokens} of {crystal.source_tokens} tokens"
    number = f"#{crystal.position or '…'}"
    console.print(
        f"[green]{number}[/] [cyan]{crystal.level}[/] [bold]{name}[/] [dim]{format_time(crystal.end_at)} {note}[/]"
    )
    for statement in crystal.insight:
        console.print(f"  {escape(one_line(statement.text, 1_000))}", soft_wrap=True)
    for kind, statements in (("why it matters", crystal.significance), ("principle", crystal.principles)):
        for statement in statements:
            console.print(f"  [yellow]{kind}:[/] {escape(one_line(statement.text, 1_000))}", soft_wrap=True)


@click.command()
@click.option("--level", type=LEVEL, help="Make crystals up to this level.  [default: session]")
@click.option("--session", help="Only this session.")
@click.option("--tree", metavar="ID", help="Make one crystal of an event and everything that followed from it.")
@click.option("--since", type=Moment(), help="Leave out marks from before this time.")
@click.option("--label", help="The name of an epoch.")
@click.option(
    "--digest",
    type=click.Choice(["extractive", "model"]),
    help="In the words of the marks, or written by a model (setting: crystals.digest).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made at the lowest level; record nothing.")
@making_command
async def make(
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
    """Make crystals of the marks that have none yet.

    Sessions, days and weeks that are over are crystallized by the next active process and by `mica upkeep tick`; this
    command also takes those that are not over. Later marks make a new revision; nothing is crystallized twice.

    Example: mica crystals make --level day
    """
    if tree is not None and (other := next((n for n, v in (("level", level), ("session", session)) if v), None)):
        raise click.UsageError(f"--tree makes one crystal beside the hierarchy of time; leave out --{other}")
    root = None if tree is None else (await memory.events.get(tree)).id
    made = await memory.crystals.make(
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
            reason = "." if waiting else ": no marks are waiting; `mica crystals list` shows the existing ones."
            console.print(f"Nothing was crystallized{reason}")
        for each in waiting:
            console.print(f"[dim]{escape(one_line(each.period, 80))}: {escape(each.reason)}[/]")

    output.show({"crystals": list(map(crystal_document, made)), "waiting": waiting, "dry_run": dry_run}, for_people)


@click.command("list")
@click.argument("query", nargs=-1)
@click.option("--level", type=LEVEL, help="Only this level.")
@click.option("--since", type=Moment(), help="Crystals that end at this time or later.")
@click.option("--until", type=Moment(), help="Crystals that begin before this time.")
@limit_option("At most this many, the latest.", default=20, most=10_000)
@memory_command
async def list_(
    memory: Memory,
    output: Output,
    *,
    query: tuple[str, ...],
    level: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> None:
    """List crystals, the latest last; with QUERY the best first.

    Example: mica crystals list session cookie --level day -n 7
    """
    check_order(since, until)
    words = " ".join(query)
    listed = await memory.crystals.list(
        words, level=typing.cast(Level | None, level), since=since, until=until, limit=limit
    )
    waiting = await memory.crystals.waiting() if not listed and not words else []
    emptiness = None if listed else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        if emptiness is not None:
            console.print(escape(sentence_of(emptiness)), soft_wrap=True)
        elif not listed and words:
            console.print("No crystal matches; `mica search` also searches the marks.")
        elif not listed:
            console.print("No crystals yet. They are made from marks when a session or a day is over;")
            console.print("`mica crystals make` makes them now.")
            for each in waiting:
                console.print(f"[dim]{escape(each.period)}: {plural(each.count, 'mark')}, {each.reason}[/]")
        for crystal in listed:
            print_crystal(console, crystal)

    output.show(list(map(crystal_document, listed)), for_people)


@click.command()
@click.argument("reference", metavar="ID")
@memory_command
async def expand(memory: Memory, output: Output, *, reference: str) -> None:
    """Show the sources of a crystal, and what it left out.

    The sources are marks, or crystals of the level below.

    Example: mica crystals expand 210
    """
    crystal = await memory.crystals.get(reference)
    sources = await memory.crystals.expand(crystal.id)
    cited = {each for statement in crystal.statements for each in statement.sources}
    dropped = {each.id: each.reason for each in crystal.dropped}

    def for_people(console: Console) -> None:
        print_crystal(console, crystal)
        console.print(
            f"[bold]made from[/] {plural(len(crystal.sources), 'source')}; method {escape(crystal.method)}, "
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
@click.argument("reference", metavar="ID")
@click.option("--reason", required=True, help="Why it is wrong or out of date.")
@making_command
async def retract(memory: Memory, output: Output, *, reference: str, reason: str) -> None:
    """Withdraw a mark, a crystal or a judgment.

    It stays in the log, but is no longer used. Crystals that cite it are made again without it, and sources are asked
    again about concepts if their last answer used it. To remove its content, use `mica purge`.

    Example: mica crystals retract 12 --reason "the cookie was not the cause"
    """
    retracted = await memory.events.get(reference)
    identifier = await memory.retract(retracted.id, reason=reason)

    def for_people(console: Console) -> None:
        console.print(f"{retracted.number} is retracted [dim]({identifier})[/]")

    output.show({"retracted": retracted.id, "event": identifier}, for_people)


def print_teaching(console: Console, teaching: Teaching) -> None:
    who = one_line(teaching.by, 40)
    note = f"{teaching.level} {one_line(teaching.period, 80)}, promoted {format_time(teaching.at)} by {who}"
    ended = f" [red]{escape(one_line(teaching.ended, 200))}[/]" if teaching.ended else ""
    revised = " [yellow]its crystal has a newer revision[/]" if teaching.superseded_by else ""
    console.print(f"[green]#{teaching.position}[/] [dim]{escape(note)}[/]{ended}{revised}", soft_wrap=True)
    for statement in teaching.content:
        console.print(f"  {escape(one_line(statement.text, 1_000))}", soft_wrap=True)
    for statement in teaching.principles:
        console.print(f"  [yellow]principle:[/] {escape(one_line(statement.text, 1_000))}", soft_wrap=True)


@click.command()
@click.argument("reference", metavar="[ID]", required=False)
@click.option("--auto", is_flag=True, help="Promote the best crystals that are good enough, at most three.")
@click.option("--candidates", is_flag=True, help="Show what --auto would promote; change nothing.")
@click.option("--reason", default="", help="Why agents should know it.")
@making_command
async def promote(
    memory: Memory, output: Output, *, reference: str | None, auto: bool, candidates: bool, reason: str
) -> None:
    """Make a crystal a teaching, which every brief may include.

    You can promote any crystal in force by its ID. With --auto, the best ones are promoted if they are good enough.

    Example: mica crystals promote 210 --reason "it cost us a day"
    """
    if (reference is not None) + auto + candidates != 1:
        raise click.UsageError("give the ID of a crystal, --auto or --candidates")
    if candidates:
        best = await memory.crystals.candidates()
        output.show(list(map(_candidate_document, best)), lambda console: _print_candidates(console, best))
        return
    if reference is None:
        made = await memory.crystals.promote_best()
    else:
        made = [await memory.crystals.promote(reference, by=PERSON, reason=reason)]

    def for_people(console: Console) -> None:
        for teaching in made:
            print_teaching(console, teaching)
        if not made:
            console.print(f"Nothing was promoted: {GATE}.")

    output.show(msgspec.to_builtins(made), for_people)


def _candidate_document(candidate: Candidate) -> dict[str, object]:
    return {"score": candidate.score, "share": candidate.share, "crystal": crystal_document(candidate.crystal)}


def _print_candidates(console: Console, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        print_crystal(console, candidate.crystal)
        console.print(f"  [dim]score {candidate.score:.2f}, {candidate.share:.0%} of the highest score of its level[/]")
    if not candidates:
        console.print(f"No crystal would be promoted: {GATE}.")
    else:
        count = plural(len(candidates), "candidate")
        console.print(f"{count}; `mica crystals promote --auto` promotes at most the first three.")


@click.command()
@click.option("--withdraw", metavar="ID", help="End this teaching.")
@click.option("--reason", default="", help="Why it is withdrawn.")
@click.option("--all", "with_ended", is_flag=True, help="Include teachings that have ended, with the reason.")
@memory_command
async def teachings(memory: Memory, output: Output, *, withdraw: str | None, reason: str, with_ended: bool) -> None:
    """List teachings, or withdraw one.

    A teaching is a promoted crystal. It ends when it is withdrawn, or when its crystal or a mark that it cites is
    retracted. A purge of its sources removes it.

    Example: mica crystals teachings --withdraw 212 --reason "the proxy was replaced"
    """
    if withdraw is not None:
        ended = await memory.crystals.withdraw(withdraw, reason=reason)
        output.show(msgspec.to_builtins(ended), lambda console: print_teaching(console, ended))
        return
    listed = await memory.crystals.teachings(with_ended=with_ended)

    def for_people(console: Console) -> None:
        for teaching in listed:
            print_teaching(console, teaching)
        if not listed:
            console.print(
                "No teachings yet. `mica crystals promote --candidates` shows crystals that could become one."
            )

    output.show(msgspec.to_builtins(listed), for_people)
