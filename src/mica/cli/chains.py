"""events impact, failures, mermaid, compare and sessions: questions about chains of events."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.events import event_text, print_event, query_options
from mica.cli.output import Output, describe_emptiness, limit_option, memory_command, sentence_of
from mica.errors import InvalidInput
from mica.events.chains import compare as compared
from mica.events.chains import compared_fields
from mica.format.documents import event_document, event_documents
from mica.format.lines import one_line, plural
from mica.format.tree import flowchart
from mica.memory import Memory
from mica.model.event import EventQuery


@click.command()
@click.argument("reference", metavar="ID")
@memory_command
async def impact(memory: Memory, output: Output, *, reference: str) -> None:
    """Print the events that followed from an event.

    The events that it caused come first, then the other later events of its chain.

    Example: mica events impact 12
    """
    event = await memory.events.get(reference)
    followers = await memory.events.impact(event)

    def for_people(console: Console) -> None:
        console.print(event_text(event, console.width - 40), overflow="ellipsis", no_wrap=True)
        for title, part in (("led to", followers.descendants), ("came later in its chain", followers.correlated)):
            console.print(f"[bold]{title}[/]: {plural(len(part), 'event')}")
            for other in part:
                print_event(console, other)

    document = {
        "event": event_document(event),
        "descendants": event_documents(followers.descendants),
        "correlated": event_documents(followers.correlated),
    }
    output.show(document, for_people)


@click.command()
@query_options
@limit_option("At most this many, the latest.", default=20)
@memory_command
async def failures(memory: Memory, output: Output, *, query: EventQuery, limit: int) -> None:
    """Print failures, each with the chain that led to it.

    The agents in the chain are listed.

    Example: mica events failures --session s1 --since 1d
    """
    found = await memory.events.failures(msgspec.structs.replace(query, limit=limit))
    emptiness = None if found else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        if not found:
            console.print(escape(sentence_of(emptiness or "no failures match")), soft_wrap=True)
        for failure in found:
            print_event(console, failure.event)
            for above in failure.ancestors:
                console.print(f"  [dim]after[/] {event_text(above, console.width - 50)}", no_wrap=True)
            if failure.agents:
                console.print(f"  [dim]agents[/] {escape(one_line(', '.join(failure.agents), 200))}")

    document = [
        {"event": event_document(each.event), "led": event_documents(each.ancestors), "agents": each.agents}
        for each in found
    ]
    output.show(document, for_people)


@click.command()
@click.argument("reference", metavar="ID")
@memory_command
async def mermaid(memory: Memory, output: Output, *, reference: str) -> None:
    """Print an event's chain as a Mermaid flowchart.

    Example: mica events mermaid 12
    """
    drawn = flowchart(await memory.events.chain(await memory.events.get(reference)))
    output.show({"mermaid": drawn}, lambda _: click.echo(drawn, nl=False))


@click.command()
@click.argument("left", metavar="ID")
@click.argument("right", metavar="ID")
@click.option(
    "--ignore", multiple=True, metavar="FIELD", help="A field that may differ, as data.duration_s; repeatable."
)
@memory_command
async def compare(memory: Memory, output: Output, *, left: str, right: str, ignore: tuple[str, ...]) -> None:
    """Compare the chains of two events step by step.

    It shows the first step where they differ, and in which fields. Ids, times and sessions differ in every run and are
    not compared.

    Example: mica events compare 12 40 --ignore data.duration_s
    """
    runs = [await memory.events.chain(await memory.events.get(reference)) for reference in (left, right)]
    if runs[0] == runs[1]:
        raise InvalidInput(
            f"{left} and {right} belong to the same chain, which begins with {runs[0][0].number}; "
            "give events of two runs"
        )
    comparison = compared(*runs, ignore=ignore)
    fields = compared_fields(*runs)
    for field in ignore:
        if field not in fields:
            known = one_line(", ".join(sorted(fields)), 500)
            click.echo(f"mica: no step of either run has a field {field!r} to ignore; the fields are {known}", err=True)

    def for_people(console: Console) -> None:
        if comparison.is_equal:
            console.print(f"The runs are the same: {plural(comparison.same, 'step')}.")
            return
        console.print(f"{plural(comparison.same, 'step')} the same, then:")
        for run, event in (("left", comparison.left), ("right", comparison.right)):
            text = event_text(event, console.width - 50) if event else "[dim]ended[/]"
            console.print(f"  [bold]{run:>5}[/] {text}", no_wrap=True, overflow="ellipsis")
        for difference in comparison.differences:
            values = (
                one_line(msgspec.json.encode(value).decode(), 200) for value in (difference.left, difference.right)
            )
            console.print(f"  {escape(one_line(difference.field, 200))}: {escape(' ≠ '.join(values))}", soft_wrap=True)

    document = {
        "same": comparison.same,
        "equal": comparison.is_equal,
        "left": event_document(comparison.left) if comparison.left else None,
        "right": event_document(comparison.right) if comparison.right else None,
        "differences": comparison.differences,
    }
    output.show(document, for_people)


@click.command()
@memory_command
async def sessions(memory: Memory, output: Output) -> None:
    """List active sessions, each with its title and its last event.

    A session is active until it ends, or until 30 minutes have passed since its last event. A crash does not end it; in
    Python, `await memory.events.resume(SESSION)` continues it.

    Example: mica events sessions
    """
    found = await memory.events.open_sessions()
    emptiness = None if found else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        if not found:
            console.print(escape(sentence_of(emptiness or "no active session")), soft_wrap=True)
        for session in found:
            who = ", ".join(session.agents)
            title = f"  {escape(session.title)}" if session.title else ""
            console.print(f"[bold]{escape(session.session)}[/]{title}  [dim]{escape(who)}[/]", soft_wrap=True)
            print_event(console, session.last)

    document = [
        {
            "session": each.session,
            "title": each.title,
            "agents": each.agents,
            "last_at": each.last_at,
            "last": event_document(each.last),
        }
        for each in found
    ]
    output.show(document, for_people)
