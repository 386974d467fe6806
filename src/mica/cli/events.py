"""The group events: read, search and draw the log, and record events."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import ParamSpec, cast

import click
import msgspec
from rich.console import Console
from rich.json import JSON
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
    standard_input,
)
from mica.errors import InvalidInput
from mica.format.documents import BUNDLES, FULL, Fields, event_document, event_documents, select_fields
from mica.format.lines import format_time, one_line, strip_control
from mica.memory import Memory
from mica.model.event import MARK, Event, EventQuery, is_tombstone

P = ParamSpec("P")
DRAWN_STEPS = 20  # levels of a tree that are drawn as branches; more leave no room for the text
NESTED_STEPS_MAX = 400  # levels of a tree in JSON; each nests two levels, and Python's parser reads about a thousand


def field_options(function: Callable[P, None]) -> Callable[P, None]:
    """Add --fields and --bundle to a command, which receives the selected fields as `fields`; None means all."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        bundle, listed = cast(str | None, kwargs.pop("bundle")), cast(tuple[str, ...], kwargs.pop("fields"))
        fields = [field.strip() for text in listed for field in text.split(",") if field.strip()]
        if listed and not fields:
            raise click.UsageError("--fields names no field; give some, as in id,context.agent,data.path")
        kwargs["fields"] = select_fields(bundle=bundle, fields=fields) if bundle or fields else None
        function(*args, **kwargs)

    run = click.option(
        "--fields", multiple=True, metavar="FIELD,…", help="Print only these fields, as in id,context.agent,data.path."
    )(run)
    return click.option("--bundle", type=click.Choice(list(BUNDLES)), help="Print only the fields of this bundle.")(run)


errors_option = click.option("--errors", is_flag=True, help="Only failures.")


def query_options(function: Callable[P, None]) -> Callable[P, None]:
    """Add the options that select events to a command, which receives them in `query`, a query without a limit."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        errors = kwargs.pop("errors", False)
        if "" in cast(tuple[str, ...], kwargs["names"]):
            raise click.UsageError("--name is empty; give a name or a pattern, as in 'file.*'")
        check_order(cast(datetime | None, kwargs["since"]), cast(datetime | None, kwargs["until"]))
        kwargs["query"] = EventQuery(
            session=cast(str | None, kwargs.pop("session")),
            agent=cast(str | None, kwargs.pop("agent")),
            user=cast(str | None, kwargs.pop("user")),
            names=cast(tuple[str, ...], kwargs.pop("names")),
            since=cast(datetime | None, kwargs.pop("since")),
            until=cast(datetime | None, kwargs.pop("until")),
            text=cast(str | None, kwargs.pop("text")),
            errors=True if errors else None,
            limit=None,
        )
        function(*args, **kwargs)

    for option in (
        click.option("--text", help="With all these words in data.text."),
        click.option("--until", type=Moment(), help="Before this time."),
        click.option("--since", type=Moment(), help="From this time on, or this long ago (2h, 3d)."),
        click.option("--name", "names", multiple=True, help="With this name; * and ? are wildcards, repeatable."),
        click.option("--user", help="Of this user."),
        click.option("--agent", help="Of this agent."),
        click.option("--session", help="Of this session."),
    ):
        run = option(run)
    return run


@click.group(cls=CommandGroup)
def events() -> None:
    """The log: what happened, in which order, and what led to what."""


@click.command()
@limit_option("How many events.", default=20)
@field_options
@memory_command
async def tail(memory: Memory, output: Output, *, limit: int, fields: Fields | None) -> None:
    """Print the latest events, oldest first.

    Example: mica events tail -n 50 --bundle monitoring
    """
    latest = await memory.events.query(EventQuery(limit=limit))
    show_events(output, latest, fields, emptiness=None if latest else await describe_emptiness(memory))


@click.command()
@click.argument("references", metavar="ID…", nargs=-1, required=True)
@field_options
@memory_command
async def show(memory: Memory, output: Output, *, references: tuple[str, ...], fields: Fields | None) -> None:
    """Print whole events, up to 100.

    An ID is an event's id or its position. Exits 1 if one does not exist.

    Example: mica events show 12
    """
    if len(references) == 1:
        event = await memory.events.get(references[0])
        output.show(event_document(event, fields or FULL), lambda console: _print_whole(console, event, fields))
        return
    resolved = await memory.events.resolve(references)

    def for_people(console: Console) -> None:
        for event in resolved.events:
            _print_whole(console, event, fields)

    output.show({"found": event_documents(resolved.events, fields or FULL), "missing": resolved.missing}, for_people)
    if resolved.missing:
        named = ", ".join(map(repr, resolved.missing))
        click.echo(f"mica: no event {named} in this space; `mica events tail` lists the latest", err=True)
        sys.exit(1)


@click.command("query")
@query_options
@errors_option
@limit_option("At most this many, the latest.", default=100)
@field_options
@memory_command
async def query_(memory: Memory, output: Output, *, query: EventQuery, limit: int, fields: Fields | None) -> None:
    """Print the events that match every option.

    Example: mica events query --name "file.*" --since 3d --fields id,data.path
    """
    found = await memory.events.query(msgspec.structs.replace(query, limit=limit))
    show_events(output, found, fields, emptiness=None if found else await describe_emptiness(memory))


@click.command()
@click.argument("reference", metavar="ID")
@field_options
@memory_command
async def chain(memory: Memory, output: Output, *, reference: str, fields: Fields | None) -> None:
    """Print all events of an event's chain, in order of time.

    Example: mica events chain 12 --bundle debugging
    """
    show_events(output, await memory.events.chain(await memory.events.get(reference)), fields)


@click.command()
@click.argument("reference", metavar="ID")
@click.option("--depth", type=click.IntRange(min=0), help="At most this many levels below.")
@click.option("--ancestry", is_flag=True, help="Draw the events that led to it instead.")
@memory_command
async def tree(memory: Memory, output: Output, *, reference: str, depth: int | None, ancestry: bool) -> None:
    """Draw the events that an event led to, as a tree.

    Each line ends with its relation to the line above, such as CAUSES.

    Example: mica events tree 12 --depth 2
    """
    event = await memory.events.get(reference)
    others = await (memory.events.ancestors(event) if ancestry else memory.events.descendants(event, depth=depth))
    top, below = (others[-1], [*others[-2::-1], event]) if ancestry and others else (event, [] if ancestry else others)

    def for_people(console: Console) -> None:
        for line in _draw(top, below):
            console.print(line, soft_wrap=True)

    output.show(_nest(top, below) if output.as_json else None, for_people)


@click.command()
@query_options
@errors_option
@memory_command
async def names(memory: Memory, output: Output, *, query: EventQuery) -> None:
    """List the names of events with their counts.

    Example: mica events names --since 7d
    """
    counts = await memory.events.names(query)
    emptiness = None if counts else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        if not counts:
            console.print(escape(sentence_of(emptiness or "no events match")), soft_wrap=True)
        for name, count in counts.items():
            console.print(f"{count:>9,}  {escape(one_line(name, 200))}", soft_wrap=True)

    output.show([{"name": name, "count": count} for name, count in counts.items()], for_people)


@click.command()
@click.argument("name")
@click.option("--data", "text", default="{}", metavar="JSON", help="The data, a JSON object; - reads standard input.")
@click.option("--parent", metavar="ID", help="The event that led to this: an id or a position.")
@click.option("--error", is_flag=True, help="The event is a failure.")
@click.option("--session", help="The session it belongs to.")
@click.option("--agent", help="The agent that did it; without it, you did.")
@click.option("--task", help="The task it belongs to.")
@making_command
async def emit(
    memory: Memory,
    output: Output,
    *,
    name: str,
    text: str,
    parent: str | None,
    error: bool,
    session: str | None,
    agent: str | None,
    task: str | None,
) -> None:
    """Record an event. Use `mica mark` for an observation in words.

    NAME has no spaces and usually two words, as in deploy.finished. The event is only stored; `mica events follow` and
    other readers see it, but nothing is started by it.

    Example: mica events emit deploy.finished --data '{"version": "1.4"}'
    """
    data = _json_object(standard_input() if text == "-" else text)
    cause = None if parent is None else await memory.events.get(parent)
    with memory.context(session=session, agent=agent, task=task):
        ref = memory.emit(name, data, parent=cause, error=error, origin="agent" if agent else "user")
    event = await memory.events.get(ref.id)
    output.show(event_document(event), lambda console: print_event(console, event))


def _json_object(text: str) -> dict[str, object]:
    """Parse a JSON object. Raises UsageError for anything else."""
    if not text.strip():
        raise click.UsageError("--data is empty; give a JSON object, such as '{}', or leave the option out")
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--data is not a JSON object: {error}") from error


def show_events(
    output: Output, events: Sequence[Event], fields: Fields | None = None, *, emptiness: str | None = None
) -> None:
    """Print events, one on each line, with the selected fields.

    Without events, print the clause `emptiness`, which says why there are none; if it is None, print a hint.
    """
    nothing = "no events match; `mica events tail` shows the latest, `mica upkeep spaces` the other spaces"

    def for_people(console: Console) -> None:
        if not events:
            console.print(escape(sentence_of(emptiness or nothing)), soft_wrap=True)
        for event in events:
            print_event(console, event, fields)

    output.show(event_documents(events, fields or FULL), for_people)


def print_event(console: Console, event: Event, fields: Fields | None = None) -> None:
    """Print an event on one line: the fields in `fields` or, if that is None, the text of `event_text`."""
    if fields is None:
        console.print(event_text(event, console.width - 40), overflow="ellipsis", no_wrap=True)
    else:
        shown = (f"{name}={_as_text(value)}" for name, value in _flatten(event_document(event, fields)))
        console.print(escape(one_line(" ".join(shown), 10_000)), soft_wrap=True)


def _print_whole(console: Console, event: Event, fields: Fields | None) -> None:
    document = event_document(event, fields or FULL)
    data = document.pop("data", None)
    for name, value in document.items():
        console.print(f"[dim]{name:>12}[/]  {escape(strip_control(_as_text(value)))}", soft_wrap=True)
    if data is not None:
        drawn = JSON(msgspec.json.encode(data).decode()).text
        drawn.plain = strip_control(drawn.plain)
        console.print(drawn, soft_wrap=True)


def _flatten(document: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{path}{name}.")
        else:
            yield path + name, value


def relation_of(event: Event) -> str:
    """Return how an event relates to its parent: the relation recorded in a mark, else "causes"."""
    relation = event.data.get("relation")
    return relation if event.name == MARK and isinstance(relation, str) else "causes"


def event_text(event: Event, width: int, *, with_relation: bool = True) -> str:
    """Format an event as one line of rich markup: its number, time, name, agent (or user, or origin) and text.

    The text has at most `width` characters, or 20 if `width` is less; the other parts are added to that. With
    `with_relation`, the text of a mark begins with its relation to its parent.
    """
    who = event.context.agent or event.context.user or event.origin
    colour = "red" if event.error else "cyan"
    data = event.data
    text = data.get("text") or data.get("command") or (data.get("reason") if is_tombstone(event) else None)
    relation = data.get("relation") if with_relation else None
    parts = [part for part in (relation, _describe_place(data), text) if isinstance(part, str)]
    shown = ": ".join(parts) or event.body[: 4 * width].decode("utf-8", "replace")
    failed = "✗ " if event.error else ""  # not everyone sees the colour, and a pipe drops it
    return (
        f"[green]{event.number}[/] [dim]{format_time(event.at)}[/] "
        f"[{colour}]{failed}{escape(one_line(event.name, 200))}[/] "
        f"[dim]{escape(one_line(who, 20))}[/] {escape(one_line(shown, max(20, width)))}"
    )


def _describe_place(data: Mapping[str, object]) -> str | None:
    path, start, end = (data.get(name) for name in ("path", "start_line", "end_line"))
    if not isinstance(path, str):
        return None
    return f"{path}:{start}-{end}" if start is not None and end is not None else path


def _group_by_parent(events: Sequence[Event]) -> dict[str | None, list[Event]]:
    children: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        children[event.parent_id].append(event)
    return children


def _draw(top: Event, below: Sequence[Event]) -> Iterator[str]:
    """Yield the lines of a tree of events.

    A line that is more than DRAWN_STEPS levels deep begins with its depth, and only the innermost of the branches that
    lead to it are drawn.
    """
    children = _group_by_parent(below)
    waiting = [(top, 0, "", "")]
    while waiting:
        event, depth, lead, under = waiting.pop()
        label = f" [magenta]({relation_of(event).upper()})[/]" if depth else ""
        deep = "" if depth <= DRAWN_STEPS else f"[dim]…{depth:,}[/] "
        yield deep + lead + event_text(event, 100, with_relation=not depth) + label
        for child in reversed(siblings := children[event.id]):
            own, further = ("└── ", "    ") if child is siblings[-1] else ("├── ", "│   ")
            prefix = under[-4 * (DRAWN_STEPS - 1) :]
            waiting.append((child, depth + 1, prefix + own, prefix + further))


def _nest(top: Event, below: Sequence[Event]) -> dict[str, object]:
    deepest = max((event.depth for event in below), default=top.depth) - top.depth
    if deepest > NESTED_STEPS_MAX:
        raise InvalidInput(
            f"the tree is {deepest:,} levels deep, and JSON output is limited to {NESTED_STEPS_MAX} levels; give a "
            "--depth, or list the events with `mica events chain`"
        )
    children = _group_by_parent(below)
    documents = {event.id: event_document(event) for event in (top, *below)}
    for event in below:
        documents[event.id]["relation"] = relation_of(event)
    for identifier, document in documents.items():
        document["children"] = [documents[child.id] for child in children[identifier]]
    return documents[top.id]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
