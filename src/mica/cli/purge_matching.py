"""mica purge --matching: shows everything about a subject, and removes or retracts what a person confirms."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, interruptible
from mica.errors import InvalidInput
from mica.format.documents import crystal_document, event_documents
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.store.purges import Because, Purged, PurgeItem
from mica.upkeep.purge_listing import retract_items, selected_ids

Answer: TypeAlias = Literal["purge", "retract", "nothing"]

TEXT_CHARACTERS = 100  # longer than a line of a narrow terminal: a person must recognize what is to go

Verb: TypeAlias = tuple[str, str]  # in the singular and in the plural

GROUPS: dict[Because, Verb] = {
    "matches": ("matches", "match"),
    "descends": ("descends from these", "descend from these"),
    "rests": (
        "rests on these and is made again from what remains",
        "rest on these and are made again from what remains",
    ),
}
SIMILAR: Verb = (
    "has only some of these words and stays; to purge it, give its number",
    "have only some of these words and stay; to purge them, give their numbers",
)


async def purge_matching(
    memory: Memory,
    output: Output,
    subject: str,
    *,
    conditions: Mapping[str, object],
    reason: str,
    retract: bool,
    dry_run: bool,
    yes: bool,
) -> Purged | None:
    """Show what matches the subject and the conditions, ask, and purge or retract it. Print the listing, if asked for.

    Returns the result of a purge, which the caller prints; None if nothing was purged.
    """
    found = await memory.purge(matching=subject, reason=reason, dry_run=True, **conditions)  # type: ignore[arg-type]  # one mapping for all conditions
    answer: Answer = "retract" if retract else "purge"
    if dry_run or not found.items:
        answer = "nothing"
    else:
        show_items(Console(stderr=True, highlight=False, emoji=False), found)
    if answer != "nothing" and not yes:
        answer = _ask(retract=retract)
    if answer == "purge":
        return await memory.purge(ids=selected_ids(found.items), reason=reason)
    retracted = await retract_items(memory.retract, found.items, reason=reason) if answer == "retract" else []
    document = listing_document(found) | {"retracted": retracted, "dry_run": dry_run}

    def for_people(console: Console) -> None:
        if answer != "retract":
            show_items(console, found)
            return
        console.print(f"[green]✓[/] {plural(len(retracted), 'event')} retracted; they stay in the history")
        if rest := sum(item.is_selected and not item.can_be_retracted for item in found.items):
            console.print(
                f"[yellow]→[/] {plural(rest, 'other event')} cannot be retracted, only purged", soft_wrap=True
            )

    output.show(document, for_people)
    return None


def listing_document(found: Purged) -> dict[str, object]:
    """Return what a purge by words would remove as a JSON document."""
    return {
        "events": found.events,
        "ids": found.ids,
        "names": found.names,
        "sessions": found.sessions,
        "items": msgspec.to_builtins(found.items),
        "similar": msgspec.to_builtins(found.similar),
        "first": event_documents(found.first),
        "remade": list(map(crystal_document, found.remade)),
    }


def show_items(console: Console, found: Purged) -> None:
    """Print what a purge by words would remove: a line for each event, with its number, date, kind and text."""
    if not found.items:
        console.print("nothing matches these words, so nothing was purged", soft_wrap=True)
    for because, verb in GROUPS.items():
        _show_group(console, [item for item in found.items if item.because == because], verb)
    _show_group(console, found.similar, SIMILAR)


def _show_group(console: Console, items: Sequence[PurgeItem], verb: Verb) -> None:
    if items:
        console.print(f"[bold]{plural(len(items), 'event')}[/] {verb[len(items) > 1]}:", soft_wrap=True)
    for item in items:
        _show(console, item)


def _show(console: Console, item: PurgeItem) -> None:
    kind = item.kind if item.kind != "event" else one_line(item.name, 40)
    of = f" [dim]of {item.of}[/]" if item.of is not None else ""
    text = escape(one_line(item.text, TEXT_CHARACTERS))
    start = f"  [green]{item.number}[/] [dim]{format_time(item.at)}[/] [cyan]{escape(kind)}[/]{of}"
    console.print(f"{start} {text}", soft_wrap=True)


def _ask(*, retract: bool) -> Answer:
    """Ask what to do with what was shown. Raises InvalidInput without a terminal, and Abort for a refusal."""
    if not sys.stdin.isatty():
        raise InvalidInput("nothing was purged: without a terminal it cannot ask for confirmation; give --yes")
    with interruptible():
        if retract:
            click.confirm("Retract them, and keep them in the history?", abort=True, err=True)
            return "retract"
        question = "Purge their content for good (p), only retract them (r), or neither (n)?"
        answer = click.prompt(question, type=click.Choice(["p", "r", "n"]), default="n", show_choices=False, err=True)
    if answer == "n":
        raise click.Abort
    return "purge" if answer == "p" else "retract"
