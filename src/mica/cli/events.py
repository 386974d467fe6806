"""events: the log, read in every way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from mica.cli.output import Moment, Output, event_document, events_document, local, memory_command, one_line
from mica.memory import Memory
from mica.model import Event, EventQuery

LIMIT = click.IntRange(0, 1_000_000)  # what a terminal or a script can still take in


@click.group()
def events() -> None:
    """Read the log: what happened, in which order, and what led to what."""


@events.command()
@click.option(
    "--limit", "-n", default=20, show_default=True, type=click.IntRange(0, 1_000_000), help="How many events."
)
@memory_command
async def tail(memory: Memory, output: Output, *, limit: int) -> None:
    """The latest events, oldest first.

    Example: mica events tail -n 50
    """
    _list(output, await memory.events(EventQuery(limit=limit)))


@events.command()
@click.argument("reference", metavar="ID")
@memory_command
async def show(memory: Memory, output: Output, *, reference: str) -> None:
    """One event, whole. ID is an event's id or its position.

    Example: mica events show 12
    """
    event = await memory.event(reference)

    def for_people(console: Console) -> None:
        for name, value in event_document(event).items():
            if name != "data":
                console.print(f"[dim]{name:>12}[/]  {escape(_plain(value))}", soft_wrap=True)
        console.print_json(event.body.decode())

    output.show(event_document(event), for_people)


@events.command()
@click.option("--session", help="Of this session.")
@click.option("--agent", help="Of this agent.")
@click.option("--user", help="Of this user.")
@click.option("--name", "names", multiple=True, help="With this name; * and ? are wildcards. May be given again.")
@click.option("--since", type=Moment(), help="From this time on, or this long ago (2h, 3d).")
@click.option("--until", type=Moment(), help="Before this time.")
@click.option("--text", help="With all of these words in its text.")
@click.option("--errors", is_flag=True, help="Only failures.")
@click.option(
    "--limit", "-n", default=100, show_default=True, type=click.IntRange(0, 1_000_000), help="The latest so many."
)
@memory_command
async def query(
    memory: Memory,
    output: Output,
    *,
    session: str | None,
    agent: str | None,
    user: str | None,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    text: str | None,
    errors: bool,
    limit: int,
) -> None:
    """Events that fit every given option.

    Example: mica events query --name "file.*" --since 3d
    """
    asked = EventQuery(
        session=session,
        agent=agent,
        user=user,
        names=names,
        since=since,
        until=until,
        text=text,
        errors=True if errors else None,
        limit=limit,
    )
    _list(output, await memory.events(asked))


@events.command()
@click.argument("reference", metavar="ID")
@memory_command
async def chain(memory: Memory, output: Output, *, reference: str) -> None:
    """All events of the chain that an event belongs to, in order of time.

    Example: mica events chain 12
    """
    _list(output, await memory.chain(await memory.event(reference)))


@events.command()
@click.argument("reference", metavar="ID")
@click.option("--depth", type=click.IntRange(min=0), help="At most so many steps below.")
@click.option("--ancestry", is_flag=True, help="What led to the event, in place of what it led to.")
@memory_command
async def tree(memory: Memory, output: Output, *, reference: str, depth: int | None, ancestry: bool) -> None:
    """What an event led to, as a tree.

    Example: mica events tree 12 --depth 2
    """
    event = await memory.event(reference)
    found = await (memory.ancestors(event) if ancestry else memory.descendants(event, depth=depth))
    top, below = (found[-1], [*found[-2::-1], event]) if ancestry and found else (event, [] if ancestry else found)

    def for_people(console: Console) -> None:
        console.print(_drawn(top, below))

    output.show(_nested(top, below), for_people)


def _list(output: Output, found: Sequence[Event]) -> None:
    def for_people(console: Console) -> None:
        if not found:
            console.print("No events fit. `mica events tail` shows the latest, `mica spaces` where else to look.")
        for event in found:
            console.print(_line(event, console.width - 40), overflow="ellipsis", no_wrap=True)

    output.show(events_document(found), for_people)


def _line(event: Event, width: int) -> str:
    who = event.context.agent or event.context.user or event.origin
    colour = "red" if event.error else "cyan"
    data = event.data
    parts = [part for part in (_place(data), data.get("text") or data.get("command")) if isinstance(part, str)]
    shown = ": ".join(parts) or event.body[: 4 * width].decode("utf-8", "replace")
    return (
        f"[green]#{event.position}[/] [dim]{local(event.at)}[/] [{colour}]{escape(event.name)}[/] "
        f"[dim]{escape(one_line(who, 20))}[/] {escape(one_line(shown, max(20, width)))}"
    )


def _place(data: Mapping[str, object]) -> str | None:
    path, start, end = (data.get(name) for name in ("path", "start_line", "end_line"))
    if not isinstance(path, str):
        return None
    return f"{path}:{start}-{end}" if start is not None and end is not None else path


def _by_parent(found: Sequence[Event]) -> dict[str | None, list[Event]]:
    children: dict[str | None, list[Event]] = defaultdict(list)
    for event in found:
        children[event.parent_id].append(event)
    return children


def _drawn(top: Event, below: Sequence[Event]) -> Tree:
    children = _by_parent(below)
    drawn = Tree(_line(top, 100))
    waiting = [(top, drawn)]
    while waiting:
        event, branch = waiting.pop()
        waiting += [(child, branch.add(_line(child, 100))) for child in children[event.id]]
    return drawn


def _nested(top: Event, below: Sequence[Event]) -> dict[str, object]:
    children = _by_parent(below)
    documents = {event.id: event_document(event) for event in (top, *below)}
    for identifier, document in documents.items():
        document["children"] = [documents[child.id] for child in children[identifier]]
    return documents[top.id]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
