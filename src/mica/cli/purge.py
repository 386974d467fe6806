"""purge, retain, pin, unpin: content that must go, or must not."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.events import event_text
from mica.cli.output import Moment, Output, interruptible, memory_command
from mica.errors import InvalidInput
from mica.format.documents import crystal_document, event_documents
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.model.event import Ref
from mica.store.purges import BY_HAND, Purged
from mica.upkeep.retention import OFF

SESSIONS_SHOWN = 5
SPELLINGS_SHOWN = 10
MASK = "***"  # in place of a value that is not to be shown


@click.command()
@click.argument("references", metavar="[ID]…", nargs=-1)
@click.option(
    "--value",
    metavar="TEXT",
    help="Holding this text in data, name or context; from 4 letters on in any spelling, as User-ID for user_id.",
)
@click.option(
    "--ask-value",
    is_flag=True,
    help="Ask for the value, or read it from standard input; it is not shown.",
)
@click.option("--allow", metavar="TEXT", help="Purge nothing: let this value be said again that was purged.")
@click.option("--session", help="Of this session.")
@click.option("--agent", help="Of this agent.")
@click.option("--user", help="Of this user.")
@click.option("--since", type=Moment(), help="From this time on, or this long ago (2h, 3d).")
@click.option("--until", type=Moment(), help="Before this time.")
@click.option("--reason", default=BY_HAND, show_default=True, help="What the tombstones say.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@memory_command
async def purge(
    memory: Memory,
    output: Output,
    *,
    references: tuple[str, ...],
    value: str | None,
    ask_value: bool,
    allow: str | None,
    session: str | None,
    agent: str | None,
    user: str | None,
    since: datetime | None,
    until: datetime | None,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove the content of events, from everywhere, for good; a tombstone without content stays in each place.

    Events must fit every given option; of several IDs, which are ids or positions, any. It shows what would go and
    asks. Where no event fits, only --yes makes the purge stand for those that arrive later. What it cannot reach is
    named in the result: see docs/purge.md.

    Example: mica purge --value sk-live-4242 --reason "leaked key"
    """
    if allow is not None:
        if references or ask_value or any((value, session, agent, user, since, until)):
            raise click.UsageError("with --allow nothing is purged; leave out what selects events")
        lifted = await memory.allow(allow)
        told = "it may be said again; what was purged stays gone"
        output.show({"allowed": lifted}, lambda console: console.print(told))
        return
    if ask_value:
        if value is not None:
            raise click.UsageError("give --value or --ask-value, not both")
        value = _asked_value()

    async def purged(*, dry_run: bool) -> Purged:
        return await memory.purge(
            ids=references,
            value=value,
            session=session,
            agent=agent,
            user=user,
            since=since,
            until=until,
            reason=reason,
            dry_run=dry_run,
        )

    found = await purged(dry_run=True)
    hidden = _hiding(value or "", found) if ask_value else None
    is_tried = dry_run or not (found.events or yes)  # where nothing fits there is nothing to ask
    if not is_tried and not yes:
        _show_found(Console(stderr=True, highlight=False, emoji=False), found, hidden=hidden)
        if not sys.stdin.isatty():
            raise InvalidInput("nothing was purged: there is nobody to ask; give --yes")
        with interruptible():
            click.confirm("Remove their content for good?", abort=True, err=True)
    done = found if is_tried else await purged(dry_run=False)
    document = {
        "events": done.events,
        "ids": done.ids,
        "names": done.names,
        "sessions": done.sessions,
        "first": event_documents(done.first),
        "spellings": done.spellings if hidden is None else {},
        "record": done.record,
        "stands": done.stands,
        "exports": done.exports,
        "removed": done.removed,
        "remade": list(map(crystal_document, done.remade)),
        "ended": done.ended,
        "unreached": done.unreached,
        "dry_run": dry_run,
    }

    def for_people(console: Console) -> None:
        if is_tried:
            _show_found(console, done, hidden=hidden, may_stand=not references)
        else:
            _show_done(console, done, hidden=hidden)

    plain = document if hidden is None else _masked(msgspec.json.decode(msgspec.json.encode(document)), hidden)
    output.show(plain, for_people)


def _asked_value() -> str:
    """The value from a person, or from whatever stands for one."""
    with interruptible():
        if sys.stdin.isatty():
            return str(click.prompt("value", hide_input=True, err=True))
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not value.strip():
        raise InvalidInput("standard input holds no value to purge; nothing was purged")
    return value


def _hiding(value: str, found: Purged) -> re.Pattern[str]:
    """What finds a value that is not to be shown, however it is spelled."""
    spellings = sorted({value, *found.spellings}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, spellings)))


def _masked(document: object, hidden: re.Pattern[str]) -> object:
    """A document without what is to be hidden."""
    match document:
        case str():
            return hidden.sub(MASK, document)
        case dict():
            return {_masked(key, hidden): _masked(value, hidden) for key, value in document.items()}
        case list():
            return [_masked(each, hidden) for each in document]
        case _:
            return document


def _show_found(console: Console, found: Purged, *, hidden: re.Pattern[str] | None, may_stand: bool = False) -> None:
    """What would go, without the text that is to be hidden."""

    def shown(text: str) -> str:
        return text if hidden is None else hidden.sub(MASK, text)

    if not found.events:
        console.print(f"no event fits{'; with --yes the purge stands for what arrives later' if may_stand else ''}")
        return
    names = ", ".join(f"{shown(name)} ×{number:,}" for name, number in found.names.items())
    console.print(escape(f"{counted(found.events, 'event')}: {one_line(names, 500)}"))
    if hidden is None and len(found.spellings) > 1:
        written = [f"{one_line(each, 60)!r} ×{number:,}" for each, number in found.spellings.items()]
        more = len(written) - SPELLINGS_SHOWN
        said = f"  written {', '.join(written[:SPELLINGS_SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
        console.print(escape(said), soft_wrap=True)
    for event in found.first:
        # What an event says may be cut in the middle of the text, so that only all of it hides the text.
        line = event_text(event, console.width - 40) if hidden is None else f"{event.number} {local(event.at)}"
        console.print(f"  {line}", overflow="ellipsis", no_wrap=True)
    if found.events > len(found.first):
        console.print(f"  and {found.events - len(found.first):,} more")
    if found.sessions:
        some = ", ".join(one_line(shown(session), 60) for session in found.sessions[:SESSIONS_SHOWN])
        more = len(found.sessions) - SESSIONS_SHOWN
        console.print(escape(f"  of {some}{f' and {more:,} more' if more > 0 else ''}"), soft_wrap=True)


def _show_done(console: Console, done: Purged, *, hidden: re.Pattern[str] | None) -> None:
    def shown(text: str) -> str:
        return escape(one_line(text if hidden is None else hidden.sub(MASK, text), 200))

    if done.events:
        console.print(f"[green]✓[/] {counted(done.events, 'event')} purged")
    else:
        stands = "the purge stands: what fits it, happened before now and arrives later is purged on arrival"
        console.print(f"no event fits; {stands if done.stands else 'nothing was purged'}", soft_wrap=True)
    if done.remade:
        kinds = Counter("tree" if each.is_tree else each.level for each in done.remade)
        counts = ", ".join(f"{kind} ×{number:,}" for kind, number in kinds.items())
        console.print(f"[green]✓[/] {counted(len(done.remade), 'crystal')} made anew of what is left: {counts}")
    for crystal in done.remade:
        if crystal.label is not None:
            console.print(f"  {shown(crystal.label)}, now revision {crystal.revision}", soft_wrap=True)
    for ended in done.ended:
        console.print(f"[yellow]→[/] no crystal any more: {shown(ended.period)}: {shown(ended.reason)}", soft_wrap=True)
    for said, paths in (("rewritten", done.exports), ("removed", done.removed)):
        for path in paths:
            console.print(f"[green]✓[/] {said}: {escape(path)}", soft_wrap=True)
    for line in done.unreached:
        console.print(f"[yellow]→[/] not reached: {escape(line)}", soft_wrap=True)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@memory_command
async def retain(memory: Memory, output: Output, *, dry_run: bool) -> None:
    """Purge bulk events whose time is over, as [retention] is set; off unless enabled there.

    Marks, steps, prompts, outcomes, judgments, crystals, receipts and what they cite are kept, by their names: it says
    how many stay for which pattern. An application whose own names fit one (tool.*, task.*) sets `keep`. See
    docs/purge.md.

    Example: mica retain --dry-run
    """
    done = await memory.retain(dry_run=dry_run)

    def for_people(console: Console) -> None:
        total = counted(sum(done.classes.values()), "event")
        classes = ", ".join(f"{name} {number:,}" for name, number in done.classes.items())
        console.print(f"{total} {'would go' if dry_run else 'purged'}{f': {classes}' if classes else ''}")
        if done.kept:
            kept = ", ".join(f"{pattern} {number:,}" for pattern, number in done.kept.items())
            console.print(escape(f"as old, and kept for their names: {kept}"), soft_wrap=True)
        if done.cited:
            console.print(f"as old, and kept since they are pinned or something refers to them: {done.cited:,}")
        if not done.enabled:
            console.print(f"[yellow]→[/] {escape(OFF)}", soft_wrap=True)
        if done.archive is not None:
            console.print(f"[green]✓[/] archived: {escape(done.archive)}", soft_wrap=True)
        for line in done.unreached:
            console.print(f"[yellow]→[/] not reached: {escape(line)}", soft_wrap=True)

    output.show(done, for_people)


@click.command()
@click.argument("references", metavar="ID…", nargs=-1, required=True)
@memory_command
async def pin(memory: Memory, output: Output, *, references: tuple[str, ...]) -> None:
    """Keep events for good, whatever retention is set to.

    Example: mica pin 12
    """
    await _record(memory, output, references, memory.pin, "pinned")


@click.command()
@click.argument("references", metavar="ID…", nargs=-1, required=True)
@memory_command
async def unpin(memory: Memory, output: Output, *, references: tuple[str, ...]) -> None:
    """Let retention take events again.

    Example: mica unpin 12
    """
    await _record(memory, output, references, memory.unpin, "unpinned")


async def _record(
    memory: Memory, output: Output, references: Sequence[str], record: Callable[..., Ref], done: str
) -> None:
    """Pin or unpin events, and say so."""
    events = [await memory.event(reference) for reference in references]
    record(*events)
    ids = [event.id for event in events]
    output.show({done: ids}, lambda console: console.print(f"{done} {counted(len(ids), 'event')}"))
