"""events: the log, read in every way."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec
from rich.console import Console
from rich.json import JSON
from rich.markup import escape

from mica.cli.event_options import field_options, query_options
from mica.cli.output import Output, memory_command
from mica.errors import InvalidInput
from mica.format.documents import FULL, Fields, event_document, event_documents
from mica.format.lines import harmless, local, one_line
from mica.memory import Memory
from mica.model.event import Event, EventQuery, is_tombstone

LIMIT = click.IntRange(0, 1_000_000)  # what a terminal or a script can still take in
DRAWN_STEPS = 20  # of a tree, as branches: deeper there would be no room for what happened
NESTED_STEPS_MAX = 400  # of a tree in JSON, two levels each: Python reads a thousand


@click.group()
def events() -> None:
    """Read the log: what happened, in which order, and what led to what."""


@events.command()
@click.option("--limit", "-n", default=20, show_default=True, type=LIMIT, help="How many events.")
@field_options
@memory_command
async def tail(memory: Memory, output: Output, *, limit: int, fields: Fields | None) -> None:
    """The latest events, oldest first.

    Example: mica events tail -n 50 --bundle monitoring
    """
    show_events(output, await memory.events(EventQuery(limit=limit)), fields)


@events.command()
@click.argument("references", metavar="ID…", nargs=-1, required=True)
@field_options
@memory_command
async def show(memory: Memory, output: Output, *, references: tuple[str, ...], fields: Fields | None) -> None:
    """One event, whole, or up to 100. An ID is an event's id or its position. Exits 1 when one is not there.

    Example: mica events show 12
    """
    if len(references) == 1:
        event = await memory.event(references[0])
        output.show(event_document(event, fields or FULL), lambda console: _whole(console, event, fields))
        return
    resolved = await memory.resolve(references)

    def for_people(console: Console) -> None:
        for event in resolved.found:
            _whole(console, event, fields)

    output.show({"found": event_documents(resolved.found, fields or FULL), "missing": resolved.missing}, for_people)
    if resolved.missing:
        named = ", ".join(map(repr, resolved.missing))
        click.echo(f"mica: no event {named} in this space; `mica events tail` lists the latest", err=True)
        sys.exit(1)


@events.command()
@query_options
@click.option("--limit", "-n", default=100, show_default=True, type=LIMIT, help="The latest so many.")
@field_options
@memory_command
async def query(memory: Memory, output: Output, *, asked: EventQuery, limit: int, fields: Fields | None) -> None:
    """Events that fit every given option.

    Example: mica events query --name "file.*" --since 3d --fields id,data.path
    """
    show_events(output, await memory.events(msgspec.structs.replace(asked, limit=limit)), fields)


@events.command()
@click.argument("reference", metavar="ID")
@field_options
@memory_command
async def chain(memory: Memory, output: Output, *, reference: str, fields: Fields | None) -> None:
    """All events of the chain that an event belongs to, in order of time.

    Example: mica events chain 12 --bundle debugging
    """
    show_events(output, await memory.chain(await memory.event(reference)), fields)


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
        for line in _drawn(top, below):
            console.print(line, soft_wrap=True)

    output.show(_nested(top, below) if output.as_json else None, for_people)


def show_events(output: Output, found: Sequence[Event], fields: Fields | None = None) -> None:
    """A list of events, one line each, or the chosen fields of each."""

    def for_people(console: Console) -> None:
        if not found:
            console.print("No events fit. `mica events tail` shows the latest, `mica spaces` where else to look.")
        for event in found:
            print_event(console, event, fields)

    output.show(event_documents(found, fields or FULL), for_people)


def print_event(console: Console, event: Event, fields: Fields | None = None) -> None:
    """One line for one event."""
    if fields is None:
        console.print(event_text(event, console.width - 40), overflow="ellipsis", no_wrap=True)
    else:
        shown = (f"{name}={_plain(value)}" for name, value in _flat(event_document(event, fields)))
        console.print(escape(one_line(" ".join(shown), 10_000)), soft_wrap=True)


def _whole(console: Console, event: Event, fields: Fields | None) -> None:
    document = event_document(event, fields or FULL)
    data = document.pop("data", None)
    for name, value in document.items():
        console.print(f"[dim]{name:>12}[/]  {escape(harmless(_plain(value)))}", soft_wrap=True)
    if data is not None:
        drawn = JSON(msgspec.json.encode(data).decode()).text
        drawn.plain = harmless(drawn.plain)
        console.print(drawn, soft_wrap=True)


def _flat(document: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, value


def event_text(event: Event, width: int) -> str:
    """An event on one line, for people."""
    who = event.context.agent or event.context.user or event.origin
    colour = "red" if event.error else "cyan"
    data = event.data
    said = data.get("text") or data.get("command") or (data.get("reason") if is_tombstone(event) else None)
    parts = [part for part in (data.get("relation"), _place(data), said) if isinstance(part, str)]
    shown = ": ".join(parts) or event.body[: 4 * width].decode("utf-8", "replace")
    failed = "✗ " if event.error else ""  # colour alone does not get through a pipe, nor to every eye
    return (
        f"[green]{event.number}[/] [dim]{local(event.at)}[/] [{colour}]{failed}{escape(one_line(event.name, 200))}[/] "
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


def _drawn(top: Event, below: Sequence[Event]) -> Iterator[str]:
    """A tree, line by line. What is too deep to be drawn with all of its branches begins with how deep it is."""
    children = _by_parent(below)
    waiting = [(top, 0, "", "")]
    while waiting:
        event, depth, lead, under = waiting.pop()
        yield ("" if depth <= DRAWN_STEPS else f"[dim]…{depth:,}[/] ") + lead + event_text(event, 100)
        for child in reversed(found := children[event.id]):
            own, further = ("└── ", "    ") if child is found[-1] else ("├── ", "│   ")
            kept = under[-4 * (DRAWN_STEPS - 1) :]
            waiting.append((child, depth + 1, kept + own, kept + further))


def _nested(top: Event, below: Sequence[Event]) -> dict[str, object]:
    deepest = max((event.depth for event in below), default=top.depth) - top.depth
    if deepest > NESTED_STEPS_MAX:
        raise InvalidInput(
            f"the tree is {deepest:,} steps deep, and JSON is read {NESTED_STEPS_MAX} deep by most; give a --depth, or "
            "list it with `mica events chain`"
        )
    children = _by_parent(below)
    documents = {event.id: event_document(event) for event in (top, *below)}
    for identifier, document in documents.items():
        document["children"] = [documents[child.id] for child in children[identifier]]
    return documents[top.id]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
