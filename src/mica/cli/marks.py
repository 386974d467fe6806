"""mark, search: record observations and find them."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.output import (
    Moment,
    Output,
    check_order,
    describe_emptiness,
    limit_option,
    making_command,
    memory_command,
    sentence_of,
    standard_input,
)
from mica.errors import InvalidInput, StoreError
from mica.format.documents import crystal_document
from mica.format.lines import ZONE, format_time, one_line, plural
from mica.memory import Memory
from mica.model.event import Origin, utc_now
from mica.model.hit import CrystalHit, Hit
from mica.model.mark import RELATIONS, Relation
from mica.redact import redact
from mica.search.search import DEPTHS, Depth, collapse_repeats


@click.command()
@click.argument("text", nargs=-1)
@click.option("--tag", "tags", multiple=True, help="A tag, such as gotcha or decision; repeatable.")
@click.option("--why", help="Why it matters.")
@click.option("--principle", "principles", multiple=True, help="A rule that follows from it; repeatable.")
@click.option("--parent", metavar="ID", help="The event that led to this: an id or a position.")
@click.option(
    "--relation",
    type=click.Choice(RELATIONS),
    default="causes",
    show_default=True,
    help="How the mark relates to its parent: caused by it, or continuing, branching off or fulfilling it.",
)
@click.option(
    "--replaces",
    metavar="ID",
    multiple=True,
    help="A belief that no longer holds, because this holds instead; repeatable.",
)
@click.option("--ends", metavar="ID", multiple=True, help="A belief that this ends, such as a task done; repeatable.")
@click.option("--at", type=Moment(), help="When it was observed: 2026-11-03T09:30, 2h, 'last Tuesday'.  [default: now]")
@click.option("--lines", is_flag=True, help="Record each line of standard input as a mark: all lines, or none.")
@click.option("--session", help="The session it belongs to.")
@click.option("--agent", help="The agent that observed it; without it, you did.")
@making_command
async def mark(
    memory: Memory,
    output: Output,
    *,
    text: tuple[str, ...],
    tags: tuple[str, ...],
    why: str | None,
    principles: tuple[str, ...],
    parent: str | None,
    relation: str,
    replaces: tuple[str, ...],
    ends: tuple[str, ...],
    at: datetime | None,
    lines: bool,
    session: str | None,
    agent: str | None,
) -> None:
    """Record an observation.

    Without TEXT, or with a dash, it is read from standard input. Secrets are redacted. `#milestone` in the text becomes
    a tag.

    An ID of --replaces and --ends is that of a belief (see `mica beliefs`), or the number of the event that states it.
    What a user stated as a rule, a preference or a decision is ended only by a user, so not with --agent.

    While the store is unavailable, the mark is saved beside it without a position and stored later: do not record it
    again.

    Example: mica mark "The cookie is set before the redirect" --tag gotcha
    """
    words = () if text == ("-",) else text
    if not text and sys.stdin.isatty():
        raise click.UsageError("give a TEXT, or pipe one in")
    if at is not None and at > utc_now():
        raise click.UsageError(f"--at {at.isoformat()} is in the future; give the time when it was observed")
    if lines and words:
        raise click.UsageError("with --lines the marks come from standard input; leave out TEXT")
    content = " ".join(words) or standard_input()
    numbered = {number: line for number, line in enumerate(content.splitlines(), 1) if line.strip()}
    texts = list(numbered.values()) if lines else [content]
    if not texts:
        raise InvalidInput("standard input has no text; give one mark on each line")
    for number, line in numbered.items() if lines else ():
        try:
            memory.events.check_mark(line, tags=tags, why=why, principles=principles)
        except InvalidInput as error:
            raise InvalidInput(f"line {number:,} cannot be recorded, so no line was: {error}") from error
    cause = None if parent is None else await memory.events.get(parent)
    origin: Origin = "agent" if agent else "user"
    replaced = [await memory.beliefs.endable(each, origin=origin) for each in replaces]
    ended = [await memory.beliefs.endable(each, origin=origin) for each in ends]
    with memory.context(session=session, agent=agent):
        refs = [
            memory.mark(
                each,
                tags=tags,
                why=why,
                principles=principles,
                parent=cause,
                relation=cast(Relation, relation),
                origin=origin,
                at=at,
                replaces=replaced,
                ends=ended,
            )
            for each in texts
        ]
    try:
        stored = [await memory.events.get(ref.id) for ref in refs]
    except StoreError as error:  # the store is unavailable; the marks are in the journal
        await memory.durable()
        click.echo(f"mica: {error}", err=True)
        stored = []
    waiting = "saved here, stored when the store can be written again"
    numbers = [event.number for event in stored] or [waiting] * len(refs)
    positions = [event.position for event in stored] or [None] * len(refs)

    def for_people(console: Console) -> None:
        for number, ref in zip(numbers, refs, strict=True):
            console.print(f"[green]{number}[/]  {ref.id}", soft_wrap=True)
        for word, beliefs in (("replaces", replaced), ("ends", ended)):
            for belief in beliefs:
                console.print(f"  {word} {belief.id} [dim]{escape(one_line(belief.text, 200))}[/]", soft_wrap=True)

    documents = [
        {"id": ref.id, "position": position, "text": redact(each)}
        for ref, position, each in zip(refs, positions, texts, strict=True)
    ]
    output.show(documents if lines else documents[0], for_people)
    if stored:  # an unavailable store is not tried again; the next active process does the work
        with suppress(StoreError):
            await memory.upkeep.tick(kinds=("crystallize",))  # longer jobs wait for `mica upkeep tick` or an ingest


@click.command()
@click.argument("query", nargs=-1, required=True)
@limit_option("How many hits.", default=10, most=10_000)
@click.option("--since", type=Moment(), help="From this time on: 2026-11-03, 3d, 'last Tuesday', 'in March', 2026-W45.")
@click.option("--until", type=Moment(), help="Before this time; with a phrase, before its period begins.")
@click.option("--agent", help="By this agent.")
@click.option("--tag", "tags", multiple=True, help="With this tag; repeatable.")
@click.option("--level", type=click.Choice(DEPTHS), help="Only marks, or only the crystals of this level.")
@click.option("--with-sources", is_flag=True, help="Show a crystal and its own marks, if both match.")
@click.option("--with-superseded", is_flag=True, help="Include crystals that were replaced.")
@memory_command
async def search(
    memory: Memory,
    output: Output,
    *,
    query: tuple[str, ...],
    limit: int,
    since: datetime | None,
    until: datetime | None,
    agent: str | None,
    tags: tuple[str, ...],
    level: str | None,
    with_sources: bool,
    with_superseded: bool,
) -> None:
    """Find marks and crystals by their words and their meaning.

    The best match comes first. Search by meaning needs the extra `semantic`. If both a crystal and its sources match,
    only the better one is shown. A time in the query, such as "last Tuesday", raises the score of hits around it; the
    period as mica understood it is printed to standard error.

    Example: mica search session cookie --since "two weeks ago" --tag gotcha -n 5
    """
    check_order(since, until)
    words = " ".join(query)
    if not words.strip():
        raise click.UsageError('say what to search for, as in: mica search "session cookie"')
    results = await memory.search(
        words,
        limit=max(limit, 200),
        since=since,
        until=until,
        agent=agent,
        tags=tags,
        level=cast(Depth | None, level),
        with_sources=with_sources,
        with_superseded=with_superseded,
    )
    # Hits that only neighbours of a match raised are useful to agents, not to a person.
    fitting = [hit for hit in results if hit.parts["own"] or hit.parts.get("meaning", 0.0) > hit.parts["neighbours"]]
    hits = collapse_repeats(fitting)[:limit]
    emptiness = None if hits else await describe_emptiness(memory)
    periods = [
        {"words": period.words, "start_at": period.start_at, "end_at": period.end_at} for period in results.periods
    ]

    def for_people(console: Console) -> None:
        for period in results.periods:
            click.echo(f"mica: understood {period.describe(ZONE.get())}", err=True)
        if not hits:
            nothing = "nothing found; try other words, or see the latest events with `mica events tail`"
            console.print(escape(sentence_of(emptiness or nothing)), soft_wrap=True)
        for hit, times in hits:
            kind = " ".join(hit.mark.tags) if isinstance(hit, Hit) else _describe_crystal(hit)
            kind = f"[cyan]{escape(kind)}[/] " if kind else ""
            text = escape(one_line(hit.text, 400))
            again = f" [dim]({times} times)[/]" if times > 1 else ""
            console.print(
                f"[green]#{hit.position}[/] [dim]{format_time(hit.at)}[/] {kind}{text}{again}",
                soft_wrap=not console.is_terminal,
            )

    documents = [{**_hit_document(hit), "times": times} for hit, times in hits]
    output.show({"query": words, "periods": periods, "hits": documents}, for_people)


def _describe_crystal(hit: CrystalHit) -> str:
    beneath = f", in place of {plural(len(hit.in_place_of), 'hit')}" if hit.in_place_of else ""
    name = hit.crystal.label or hit.crystal.period.partition(":")[2]
    return f"{hit.crystal.level} ({one_line(name, 80)}{beneath})"


def _hit_document(hit: Hit | CrystalHit) -> dict[str, object]:
    """Return a hit as a JSON document, with its level and its mark or crystal."""
    document: dict[str, object] = msgspec.to_builtins(hit)
    if isinstance(hit, CrystalHit):
        document["crystal"] = crystal_document(hit.crystal)
    return {"level": hit.crystal.level if isinstance(hit, CrystalHit) else "mark", **document}
