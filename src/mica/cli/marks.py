"""mark, search, brief."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.brief.question import RECENCY_WEIGHT
from mica.cli.output import (
    Moment,
    Output,
    check_order,
    given_text,
    making_command,
    memory_command,
    print_late,
    print_unrecorded,
)
from mica.errors import InvalidInput, StoreError
from mica.format.documents import crystal_document
from mica.format.lines import ZONE, counted, local, one_line
from mica.memory import PRESETS, Memory, Preset
from mica.model.event import RELATIONS, Origin, Relation, utc_now
from mica.redact import redact
from mica.search.ranker import Hit
from mica.search.search import DEPTHS, CrystalHit, Depth, collapsed
from mica.settings import load_settings

PATIENCE_S = 1.0  # a person in a shell would rather wait than be told a part; agents are briefed by other ways


@click.command()
@click.argument("text", nargs=-1)
@click.option("--tag", "tags", multiple=True, help="A tag, such as gotcha or decision; may be given again.")
@click.option("--why", help="Why it matters.")
@click.option("--principle", "principles", multiple=True, help="A rule that follows from it; may be given again.")
@click.option("--parent", metavar="ID", help="The event that led to this: an id or a position.")
@click.option(
    "--relation",
    type=click.Choice(RELATIONS),
    default="causes",
    show_default=True,
    help="What the parent is to it: its cause, or what it continues, branches off or fulfills.",
)
@click.option("--at", type=Moment(), help="When it was observed, where not now: 2026-11-03T09:30, 2h, 'last Tuesday'.")
@click.option("--lines", is_flag=True, help="Every line of standard input is a mark of its own: all of them, or none.")
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
    at: datetime | None,
    lines: bool,
    session: str | None,
    agent: str | None,
) -> None:
    """Record an observation. Without TEXT, or with a dash, it is read from standard input; secrets are redacted.

    While the store is away or cannot be written it is kept beside it, without a position yet, and stored later: do not
    mark it again.

    Example: mica mark "The cookie is set before the redirect" --tag gotcha
    """
    given = () if text == ("-",) else text
    if not text and sys.stdin.isatty():
        raise click.UsageError("give a TEXT, or pipe one in")
    if at is not None and at > utc_now():
        raise click.UsageError(f"--at {at.isoformat()} is still to come; give when it was observed")
    if lines and given:
        raise click.UsageError("with --lines the marks come from standard input; leave out TEXT")
    words = " ".join(given) or given_text()
    numbered = {number: line for number, line in enumerate(words.splitlines(), 1) if line.strip()}
    said = list(numbered.values()) if lines else [words]
    if not said:
        raise InvalidInput("standard input has no line with a text; give one mark on each line")
    for number, line in numbered.items() if lines else ():
        try:
            memory.check_mark(line, tags=tags, why=why, principles=principles)
        except InvalidInput as error:
            raise InvalidInput(f"line {number:,} cannot be marked, so no line was: {error}") from error
    led = None if parent is None else await memory.event(parent)
    origin: Origin = "agent" if agent else "user"
    with memory.context(session=session, agent=agent):
        refs = [
            memory.mark(
                each,
                tags=tags,
                why=why,
                principles=principles,
                parent=led,
                relation=cast(Relation, relation),
                origin=origin,
                at=at,
            )
            for each in said
        ]
    try:
        stored = [await memory.event(ref.id) for ref in refs]
    except StoreError as error:  # the store is away; what was emitted is not
        await memory.durable()
        click.echo(f"mica: {error}", err=True)
        stored = []
    kept = "kept here, stored when the store can be written again"
    numbers = [event.number for event in stored] or [kept] * len(refs)
    positions = [event.position for event in stored] or [None] * len(refs)

    def for_people(console: Console) -> None:
        for number, ref in zip(numbers, refs, strict=True):
            console.print(f"[green]{number}[/]  {ref.id}", soft_wrap=True)

    documents = [
        {"id": ref.id, "position": position, "text": redact(each)}
        for ref, position, each in zip(refs, positions, said, strict=True)
    ]
    output.show(documents if lines else documents[0], for_people)
    if stored:  # a store that does not answer is not waited for again: whoever is active next does what is due
        with suppress(StoreError):
            await memory.tick(kinds=("crystallize",))  # what takes longer waits for `mica tick` or the next ingest


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", default=10, show_default=True, type=click.IntRange(0, 10_000), help="How many hits.")
@click.option("--since", type=Moment(), help="From this time on: 2026-11-03, 3d, 'last Tuesday', 'in March', 2026-W45.")
@click.option("--until", type=Moment(), help="Before this time; of a phrase, before its stretch begins.")
@click.option("--agent", help="Of this agent.")
@click.option("--tag", "tags", multiple=True, help="With this tag; may be given again.")
@click.option("--level", type=click.Choice(DEPTHS), help="Only marks, or only the crystals of this level.")
@click.option("--with-sources", is_flag=True, help="A crystal also beside the marks that it rests on.")
@click.option("--with-superseded", is_flag=True, help="Also crystals that do not stand any more.")
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
    """Find marks and crystals by their words, marks also by their meaning where that is installed; best first.

    Of a crystal and the marks beneath it the better one is shown. A time in the query, such as «last Tuesday», raises
    what is around it; what was understood is said on standard error.

    Example: mica search session cookie --since "two weeks ago" --tag gotcha -n 5
    """
    check_order(since, until)
    asked = " ".join(query)
    if not asked.strip():
        raise click.UsageError('say what to search for, as in: mica search "session cookie"')
    found = await memory.search(
        asked,
        limit=max(limit, 200),
        since=since,
        until=until,
        agent=agent,
        tags=tags,
        level=cast(Depth | None, level),
        with_sources=with_sources,
        with_superseded=with_superseded,
    )
    # A person asked for words or their meaning, not for what stands beside them.
    fitting = [hit for hit in found if hit.parts["own"] or hit.parts.get("meaning", 0.0) > hit.parts["neighbours"]]
    hits = collapsed(fitting)[:limit]
    periods = [
        {"words": period.words, "start_at": period.start_at, "end_at": period.end_at} for period in found.periods
    ]

    def for_people(console: Console) -> None:
        for period in found.periods:
            click.echo(f"mica: understood {period.told(ZONE.get())}", err=True)
        if not hits:
            console.print("Nothing found. Other words may help; `mica events tail` shows what is there.")
        for hit, times in hits:
            kind = " ".join(hit.mark.tags) if isinstance(hit, Hit) else _named(hit)
            kind = f"[cyan]{escape(kind)}[/] " if kind else ""
            text = escape(one_line(hit.text, 400))
            again = f" [dim](said {times} times)[/]" if times > 1 else ""
            console.print(f"[green]#{hit.position}[/] [dim]{local(hit.at)}[/] {kind}{text}{again}")

    documents = [{**_hit_document(hit), "times": times} for hit, times in hits]
    output.show({"query": asked, "periods": periods, "hits": documents}, for_people)


def _named(hit: CrystalHit) -> str:
    """What a crystal is of, and how many of the marks beneath it would have been found in its place."""
    beneath = f", in place of {counted(len(hit.in_place_of), 'hit')}" if hit.in_place_of else ""
    name = hit.crystal.label or hit.crystal.period.partition(":")[2]
    return f"{hit.crystal.level} ({one_line(name, 80)}{beneath})"


def _hit_document(hit: Hit | CrystalHit) -> dict[str, object]:
    """A hit as JSON: its level, and the mark or the crystal that it is."""
    document: dict[str, object] = msgspec.to_builtins(hit)
    if isinstance(hit, CrystalHit):
        document["crystal"] = crystal_document(hit.crystal)
    return {"level": hit.crystal.level if isinstance(hit, CrystalHit) else "mark", **document}


@click.command()
@click.argument("query", nargs=-1)
@click.option("--budget", type=click.IntRange(min=1), help="Tokens at the most (settings: brief.budget_tokens).")
@click.option("--query", "asked", help="What it is about; the same as QUERY.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A budget by name: 500, 1,500, 3,000 or 5,000 tokens.")
@click.option(
    "--recency-weight",
    type=click.FloatRange(0, 1),
    default=RECENCY_WEIGHT,
    show_default=True,
    help="How much being fresh counts among crystals, beside what they say of the query.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0.001, 3_600),
    help="Seconds at the most (settings: brief.deadline_s; 1 in a shell, or more).",
)
@click.option(
    "--concept", "concepts", multiple=True, metavar="DOMAIN:TYPE:ID", help="What other systems know of this, too."
)
@click.option("--at", type=Moment(), help="What would have been said then.")
@click.option(
    "--compress", is_flag=True, help="Of what is too long, the most telling sentences; says how much is left."
)
@click.option("--off", is_flag=True, help="Tell nothing, and record that: to compare.")
@memory_command
async def brief(
    memory: Memory,
    output: Output,
    *,
    query: tuple[str, ...],
    asked: str | None,
    budget: int | None,
    preset: str | None,
    recency_weight: float,
    deadline: float | None,
    concepts: tuple[str, ...],
    at: datetime | None,
    compress: bool,
    off: bool,
) -> None:
    """Print what an agent should be told now, within a budget, with what is missing from it.

    The text goes to standard output, its cost and receipt to standard error. Without QUERY: the latest.

    Example: mica brief "login redirect loses the session" --budget 1500
    """
    if preset is not None and budget is not None:
        raise click.UsageError("--preset is a budget by name; give it or --budget, not both")
    if at is not None and at > utc_now():
        raise click.UsageError(f"--at {at.isoformat()} is still to come; give a time that is over")
    await memory.prepare_brief(concepts)
    made = await memory.brief(
        " ".join([*query, *([asked] if asked else [])]),
        budget_tokens=budget,
        preset=cast(Preset | None, preset),
        recency_weight=recency_weight,
        deadline_s=deadline or max(PATIENCE_S, load_settings().brief.deadline_s),
        concept=concepts,
        at=at,
        compress=compress,
        off=off,
        is_preview=memory.location == ":memory:",
    )

    def for_people(console: Console) -> None:
        if made.text:
            click.echo(made.text)
        passages = counted(len(made.passages), "passage")
        note = f"{made.tokens} of {made.budget_tokens} tokens (estimated), {passages}"
        left = f", {made.left_out} more left out" if made.left_out else ""
        off_note = ""
        if made.is_off:
            off_note = "; not told, as --off asked" if off else "; briefs are off here (`mica briefs on`)"
        receipt = f"; receipt {made.receipt}" if made.receipt else ""
        click.echo(f"mica: {note}{left}{off_note}{receipt}", err=True)
        print_late(made.missing)
        print_unrecorded(memory)

    output.show(made, for_people)


@click.command()
@click.argument("state", type=click.Choice(["on", "off", "status"]), default="status")
@making_command
async def briefs(memory: Memory, output: Output, *, state: str) -> None:
    """Switch briefs on or off for this space, or say which it is. Off, agents are told nothing, by hooks neither.

    `mica quality` compares what was reached with and without them; `[brief] holdout` holds out a share of sessions.

    Example: mica briefs off
    """
    if state != "status":
        await memory.switch_briefs(on=state == "on")
    is_on = await memory.briefs_are_on()
    output.show({"on": is_on}, lambda console: console.print(f"Briefs are {'on' if is_on else 'off'} in this space."))
