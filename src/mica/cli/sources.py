"""The group sources: what other systems know about a concept, and judgments about it."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.groups import CommandGroup
from mica.cli.output import Output, limit_option, making_command, memory_command, print_late, print_unrecorded
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.sources.account import GatheredAccount, age
from mica.sources.drivers.tables import SourceQueryPreview, driver_of, place_of
from mica.sources.protocol import Concept, SourceDeclaration
from mica.sources.registry import SourceHealth, SourceHistory, State

TEXT_CHARACTERS_MAX = 200  # of a fragment in a list; --json has all of it
COLOURS: dict[State, str] = {"answers": "green", "failing": "yellow", "missing": "red"}


@click.group(cls=CommandGroup)
def sources() -> None:
    """What other systems know about a concept, and judgments.

    `mica sources gather` and `mica brief` query them. They are declared as [sources.NAME] in the settings: see
    docs/sources.md.
    """


@click.command("list")
@memory_command
async def list_(memory: Memory, output: Output) -> None:
    """List sources, what they cover, and their last answers.

    No source is contacted.

    Example: mica sources list
    """
    history = await memory.sources.history()
    listed = [
        {
            "driver": driver_of(source),
            "place": place_of(source),
            **_declaration_document(source.declared),
            "past": history.get(name, SourceHistory()),
        }
        for name, source in memory.sources.all.items()
    ]

    def for_people(console: Console) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("source", "driver", "rank", "concepts", "place", "last tried"):
            table.add_column(heading, overflow="fold")
        for each in listed:
            concepts = ", ".join(map(str, each["concepts"])) if isinstance(each["concepts"], tuple) else ""
            cells = (
                each["name"],
                each["driver"],
                each["rank"],
                concepts,
                each["place"],
                _describe_last_try(each["past"]),
            )
            table.add_row(*(escape(str(cell)) for cell in cells))
        console.print(table)
        if not len(memory.sources):
            console.print(
                "Only mica's own sources. Declare others as [sources.NAME] in the settings: docs/sources.md",
                markup=False,
            )

    output.show(listed, for_people)


def _describe_last_try(past: object) -> str:
    if not isinstance(past, SourceHistory) or past.tried_at is None:
        return "–"
    failed = f", failed {past.failed_in_a_row} in a row" if past.failed_in_a_row else ""
    return f"{format_time(past.tried_at)}{failed}"


def _declaration_document(declared: SourceDeclaration) -> dict[str, object]:
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


@click.command()
@click.argument("name")
@click.argument("concept")
@memory_command
async def test(memory: Memory, output: Output, *, name: str, concept: str) -> None:
    """Query one source about a concept, without any cache.

    The result is recorded: a source that was repaired counts as working once it has answered here. Exits 1 if it cannot
    answer.

    Example: mica sources test judgments judgment:code_review:abc123
    """
    tested = await memory.sources.test(name, concept)

    def for_people(console: Console) -> None:
        for each in tested.fragments:
            value = (
                "" if each.value is None or str(each.value) in each.text else f" [dim]= {escape(str(each.value))}[/]"
            )
            sure = f"[dim]{each.confidence:.0%}, {format_time(each.at)}, {escape(each.locator)}[/]"
            console.print(
                f"[green]{escape(each.key)}[/] {escape(one_line(each.text, TEXT_CHARACTERS_MAX))}{value} {sure}"
            )
        if tested.missing:
            click.echo(f"mica: missing: {tested.missing}", err=True)
        if tested.error:
            click.echo(f"mica: {tested.error}", err=True)
        else:
            count = plural(len(tested.fragments), "fragment")
            click.echo(f"mica: {count} from {name} in {tested.milliseconds:.0f} ms", err=True)
        if not memory.sources.all[name].declared.knows(Concept.parse(concept)):
            click.echo(f"mica: `concepts` of {name} does not cover {concept}, so no gather queries it", err=True)
        print_unrecorded(memory)

    output.show(tested, for_people)
    if tested.error:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("concept")
@memory_command
async def explain(memory: Memory, output: Output, *, concept: str) -> None:
    """Show the query that each source would get about a concept.

    No query is sent.

    Example: mica sources explain judgment:code_review:abc123
    """
    previews = memory.sources.explain(Concept.parse(concept))

    def for_people(console: Console) -> None:
        for each in previews:
            _print_preview(console, each)
        if not previews:
            console.print(
                f"No declared source covers {concept}; `mica sources list` shows what each covers.", markup=False
            )

    output.show(previews, for_people)


def _print_preview(console: Console, preview: SourceQueryPreview) -> None:
    console.print(
        f"[green]{escape(preview.source)}[/] [dim]{preview.driver}, rank {preview.declared.rank}[/] "
        f"{escape(preview.place)}"
    )
    console.print(f"  {escape(preview.asks)}", soft_wrap=True)
    for name, value in preview.parameters.items():
        console.print(f"  [dim]{escape(name)} =[/] {escape(value)}", soft_wrap=True)


@click.command()
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.01, 60), default=3.0, show_default=True, help="Seconds for each."
)
@memory_command
async def health(memory: Memory, output: Output, *, timeout_s: float) -> None:
    """Check whether each declared source answers, and how fast.

    A source counts as failing after three unanswered queries in a row, until it answers one; `mica sources test`
    queries it. Exits 1 if a source cannot be reached or is failing.

    Example: mica sources health --json
    """
    checked = await memory.sources.health(timeout_s=timeout_s)

    def for_people(console: Console) -> None:
        for each in checked:
            state = f"[{COLOURS[each.state]}]{each.state}[/]"
            timing = f"[dim]{each.driver}, {each.milliseconds:.0f} ms[/]"
            console.print(f"{state} {escape(each.source)} {timing} {escape(each.detail)}", soft_wrap=True)
            if each.past.asked:
                console.print(f"  [dim]{escape(_describe_history(each))}[/]", soft_wrap=True)
        if not checked:
            console.print("No source is declared; docs/sources.md explains how.", markup=False)

    output.show(checked, for_people)
    if any(each.state != "answers" for each in checked):
        raise click.exceptions.Exit(1)


def _describe_history(health: SourceHealth) -> str:
    past = health.past
    tried = f"last tried {format_time(past.tried_at)}, " if past.tried_at and past.tried_at != past.answered_at else ""
    last = f"{tried}last answer {format_time(past.answered_at)}" if past.answered_at else f"{tried}no answer yet"
    why = f", last failure: {one_line(past.failure, TEXT_CHARACTERS_MAX)}" if past.failure else ""
    paused = "; paused at the moment" if health.breaker == "open" else ""
    return f"queried {plural(past.asked, 'time')}, {past.failed} failed; {last}{why}{paused}"


def _describe_cost(made: GatheredAccount) -> str:
    agreement = "" if made.coherence is None else f", agreement {made.coherence:.0%}"
    more = f", {made.left_out} more left out" if made.left_out else ""
    conflicts = f", {plural(len(made.conflicts), 'conflict')}" if made.conflicts else ""
    receipt = f"; receipt {made.receipt}" if made.receipt else ""
    shown = plural(len(made.fragments), "fragment")
    return f"{shown}{agreement}{conflicts}{more}; {made.tokens} tokens, {made.latency_ms:.0f} ms{receipt}"


def print_gaps(made: GatheredAccount) -> None:
    """Print to standard error which sources did not answer, and which answers come from an old cache entry."""
    for name, reason in sorted(made.missing.items()):
        click.echo(f"mica: missing: {name} ({reason})", err=True)
    for each in made.degraded:
        click.echo(f"mica: stale: {each.source} is from {age(each.age_s)} ago ({each.reason})", err=True)
    print_late(made.missing | {each.source: each.reason for each in made.degraded})


@click.command()
@click.argument("concept")
@click.option("--budget", type=click.IntRange(min=1), help="Token budget of a session (setting: brief.budget_tokens).")
@click.option(
    "--deadline", type=click.FloatRange(0.001, 3_600), help="At most this many seconds (setting: brief.deadline_s)."
)
@memory_command
async def gather(memory: Memory, output: Output, *, concept: str, budget: int | None, deadline: float | None) -> None:
    """Ask every source about a concept, and merge the answers.

    CONCEPT is domain:type:id. All sources are queried at once under one deadline; one that fails or is late is listed,
    and the others are used. The text, with its conflicts, goes to standard output and takes at most 62 % of the budget;
    its cost, gaps and receipt go to standard error. If nothing is known, nothing is printed.

    Example: mica sources gather judgment:code_review:abc123 --json
    """
    await memory.sources.prepare(concept)
    is_preview = memory.location == ":memory:"
    made = await memory.sources.gather(concept, budget_tokens=budget, deadline_s=deadline, is_preview=is_preview)

    def for_people(console: Console) -> None:
        if made.injection:
            click.echo(made.injection)
        print_gaps(made)
        click.echo(f"mica: {_describe_cost(made)}", err=True)
        print_unrecorded(memory)

    output.show(made, for_people)


@click.command()
@click.argument("concept")
@click.argument("verdict")
@click.option("--confidence", type=click.FloatRange(0, 1), required=True, help="From 0 to 1.")
@click.option("--reason", "reasons", multiple=True, help="Why; repeatable.")
@click.option("--agent", help="The agent that judges.")
@click.option("--session", help="The session it belongs to.")
@making_command
async def judge(
    memory: Memory,
    output: Output,
    *,
    concept: str,
    verdict: str,
    confidence: float,
    reasons: tuple[str, ...],
    agent: str | None,
    session: str | None,
) -> None:
    """Record a judgment of a concept: verdict, confidence and reasons.

    The next `mica sources gather` includes it; earlier verdicts stay visible.

    Example: mica sources judge judgment:code_review:abc123 GROWL --confidence 0.52 --reason "tests passed"
    """
    with memory.context(session=session, agent=agent):
        made = memory.sources.judge(concept, verdict, confidence=confidence, reasons=reasons)
    event = await memory.events.get(made.id)

    def for_people(console: Console) -> None:
        console.print(f"[green]{event.number}[/] {escape(concept)}: {escape(verdict)} [dim]({made.id})[/]")

    output.show({"id": made.id, "position": event.position, **event.data}, for_people)


@click.command()
@limit_option("How many judgments.", default=5, most=100)
@memory_command
async def warm(memory: Memory, output: Output, *, limit: int) -> None:
    """Ask sources in advance about what the next session will need.

    These are the concepts that were judged last, and those that every brief includes. A server does this by itself at
    the start of a session, and every 89 minutes for the most used concepts.

    Example: mica sources warm
    """
    done = await memory.sources.warm(limit=limit)

    def for_people(console: Console) -> None:
        if not done:
            console.print("There are no judgments yet, and no concepts in [brief] concepts.", markup=False)
        for made in done:
            console.print(f"[green]{escape(made.concept)}[/] [dim]{escape(_describe_cost(made))}[/]", soft_wrap=True)

    output.show(done, for_people)
