"""purge, retain, pin, unpin: remove content, or protect it from removal."""

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
from mica.cli.purge_matching import purge_matching
from mica.errors import InvalidInput
from mica.format.documents import crystal_document, event_documents
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.model.event import Ref
from mica.store.purges import BY_HAND, Purged, ValueMatch
from mica.upkeep.retention import OFF

SESSIONS_SHOWN = 5
AROUND_CHARACTERS = 200
MASK = "***"  # in place of a value that is not to be shown


@click.command()
@click.argument("references", metavar="[ID]…", nargs=-1)
@click.option(
    "--value",
    metavar="TEXT",
    help="Events with this text in data, name or context, as whole words in any spelling (User-ID, user_id).",
)
@click.option("--anywhere", is_flag=True, help="Find the value inside of longer words, too.")
@click.option("--really", is_flag=True, help="Accept a value with fewer than 4 characters.")
@click.option(
    "--ask-value",
    is_flag=True,
    help="Prompt for the value, or read it from standard input; it is not shown.",
)
@click.option("--allow", metavar="TEXT", help="Purge nothing; allow a purged value again.")
@click.option(
    "--matching", metavar="WORDS", help="Everything about a subject: marks, crystals and what descends from them."
)
@click.option("--keep", metavar="ID", multiple=True, help="Leave out this event of what matches; may be repeated.")
@click.option("--without-descendants", is_flag=True, help="Leave out events that only descend from what matches.")
@click.option("--retract", is_flag=True, help="Retract what matches, which keeps it in the history.")
@click.option("--session", help="Events of this session.")
@click.option("--agent", help="Events of this agent.")
@click.option("--user", help="Events of this user.")
@click.option("--since", type=Moment(), help="From this time on, or this long ago (2h, 3d).")
@click.option("--until", type=Moment(), help="Before this time.")
@click.option("--reason", default=BY_HAND, show_default=True, help="The reason in the tombstones.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@memory_command
async def purge(
    memory: Memory,
    output: Output,
    *,
    references: tuple[str, ...],
    value: str | None,
    anywhere: bool,
    really: bool,
    ask_value: bool,
    allow: str | None,
    matching: str | None,
    keep: tuple[str, ...],
    without_descendants: bool,
    retract: bool,
    session: str | None,
    agent: str | None,
    user: str | None,
    since: datetime | None,
    until: datetime | None,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove the content of events for good, everywhere.

    A tombstone without content replaces each event. Events must match every option, and one of the IDs, which are ids
    or positions. The command shows what would be removed and asks. If no event matches, only --yes records the purge,
    which then applies to events that arrive later. The result lists places it cannot reach: see docs/purge.md.

    Example: mica purge --value sk-live-4242 --reason "leaked key"

    Example: mica purge --matching "everything about the staging proxy" --keep '#12'
    """
    if allow is not None:
        if references or ask_value or any((value, matching, session, agent, user, since, until)):
            raise click.UsageError("--allow purges nothing; leave out the options that select events")
        lifted = await memory.upkeep.allow(allow)
        note = "it is allowed again; purged content is not restored"
        output.show({"allowed": lifted}, lambda console: console.print(note))
        return
    if ask_value:
        if value is not None:
            raise click.UsageError("give --value or --ask-value, not both")
        value = _prompt_for_value()
    conditions = {
        "value": value,
        "anywhere": anywhere,
        "really": really,
        "session": session,
        "agent": agent,
        "user": user,
        "since": since,
        "until": until,
    }
    if matching is not None:
        if references or ask_value:
            raise click.UsageError("--matching finds the events; leave out IDs and --ask-value")
        about = conditions | {"keep": keep, "with_descendants": not without_descendants}
        agreed = await purge_matching(
            memory, output, matching, conditions=about, reason=reason, retract=retract, dry_run=dry_run, yes=yes
        )
        if agreed is not None:
            output.show(_document(agreed, dry_run=False), lambda console: _show_done(console, agreed, hidden=None))
        return
    if keep or without_descendants or retract:
        raise click.UsageError("--keep, --without-descendants and --retract belong to --matching; give it, too")

    async def purged(*, dry_run: bool) -> Purged:
        return await memory.purge(ids=references, reason=reason, dry_run=dry_run, **conditions)  # type: ignore[arg-type]  # one mapping for all conditions

    matches = await purged(dry_run=True)
    hidden = _hidden_pattern(value or "", matches) if ask_value else None
    is_preview = dry_run or not (matches.events or yes)  # if nothing matches there is nothing to ask
    if not is_preview and not yes:
        _show_matches(Console(stderr=True, highlight=False, emoji=False), matches, hidden=hidden)
        if not sys.stdin.isatty():
            raise InvalidInput("nothing was purged: without a terminal it cannot ask for confirmation; give --yes")
        with interruptible():
            click.confirm("Remove their content for good?", abort=True, err=True)
    done = matches if is_preview else await purged(dry_run=False)
    document = _document(done, dry_run=dry_run)
    if hidden is not None:
        document |= {"spellings": {}, "matches": [], "inside": []}

    def for_people(console: Console) -> None:
        if is_preview:
            _show_matches(console, done, hidden=hidden, may_wait=not references)
        else:
            _show_done(console, done, hidden=hidden)

    plain = document if hidden is None else _mask(msgspec.json.decode(msgspec.json.encode(document)), hidden)
    output.show(plain, for_people)


def _document(done: Purged, *, dry_run: bool) -> dict[str, object]:
    return {
        "events": done.events,
        "ids": done.ids,
        "names": done.names,
        "sessions": done.sessions,
        "first": event_documents(done.first),
        "spellings": done.spellings,
        "matches": msgspec.to_builtins(done.matches),
        "inside": msgspec.to_builtins(done.inside),
        "record": done.record,
        "applies_later": done.applies_later,
        "exports": done.exports,
        "removed": done.removed,
        "remade": list(map(crystal_document, done.remade)),
        "ended": done.ended,
        "unreached": done.unreached,
        "dry_run": dry_run,
    }


def _prompt_for_value() -> str:
    """Ask for the value in the terminal, without showing it; without a terminal, read it from standard input.

    Raises InvalidInput if standard input is blank.
    """
    with interruptible():
        if sys.stdin.isatty():
            return str(click.prompt("value", hide_input=True, err=True))
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    if not value.strip():
        raise InvalidInput("standard input holds no value to purge; nothing was purged")
    return value


def _hidden_pattern(value: str, matches: Purged) -> re.Pattern[str]:
    """Return a pattern that matches the purged value in all spellings that occur in the events."""
    spellings = sorted({value, *matches.spellings}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, spellings)), re.IGNORECASE)


def _mask(document: object, hidden: re.Pattern[str]) -> object:
    """Return a copy of a document in which every match of `hidden` is masked, in keys too."""
    match document:
        case str():
            return hidden.sub(MASK, document)
        case dict():
            return {_mask(key, hidden): _mask(value, hidden) for key, value in document.items()}
        case list():
            return [_mask(each, hidden) for each in document]
        case _:
            return document


def _show_matches(console: Console, matches: Purged, *, hidden: re.Pattern[str] | None, may_wait: bool = False) -> None:
    def shown(text: str) -> str:
        return text if hidden is None else hidden.sub(MASK, text)

    if not matches.events:
        console.print(
            f"no event matches{'; with --yes the purge applies to events that arrive later' if may_wait else ''}"
        )
        _show_inside(console, matches, hidden=hidden)
        return
    names = ", ".join(f"{shown(name)} ×{number:,}" for name, number in matches.names.items())
    console.print(escape(f"{plural(matches.events, 'event')}: {one_line(names, 500)}"))
    if hidden is None:
        for match in matches.matches:
            console.print(escape(f"  written {match.text!r} in {plural(match.events, 'event')}:"), soft_wrap=True)
            _show_around(console, match)
    for event in matches.first:
        # A shortened line may cut a hidden value in two, which the pattern would not match. So its text is not shown.
        line = event_text(event, console.width - 40) if hidden is None else f"{event.number} {format_time(event.at)}"
        console.print(f"  {line}", overflow="ellipsis", no_wrap=True)
    if matches.events > len(matches.first):
        console.print(f"  and {matches.events - len(matches.first):,} more")
    if matches.sessions:
        some = ", ".join(one_line(shown(session), 60) for session in matches.sessions[:SESSIONS_SHOWN])
        more = len(matches.sessions) - SESSIONS_SHOWN
        console.print(escape(f"  of {some}{f' and {more:,} more' if more > 0 else ''}"), soft_wrap=True)
    _show_inside(console, matches, hidden=hidden)


def _show_around(console: Console, match: ValueMatch) -> None:
    for around in match.around:
        console.print(f"    {escape(one_line(around, AROUND_CHARACTERS))}", soft_wrap=True)


def _show_inside(console: Console, matches: Purged, *, hidden: re.Pattern[str] | None) -> None:
    """Print the longer words that contain the value and stay."""
    if not matches.inside:
        return
    count = len(matches.inside)
    line = (
        "1 longer word has the value inside and would stay; --anywhere takes it, too"
        if count == 1
        else f"{count:,} longer words have the value inside and would stay; --anywhere takes them, too"
    )
    console.print(f"[yellow]→[/] {line}", soft_wrap=True)
    for match in matches.inside if hidden is None else ():
        console.print(escape(f"  {match.text!r} in {plural(match.events, 'event')}:"), soft_wrap=True)
        _show_around(console, match)


def _show_done(console: Console, done: Purged, *, hidden: re.Pattern[str] | None) -> None:
    def shown(text: str) -> str:
        return escape(one_line(text if hidden is None else hidden.sub(MASK, text), 200))

    if done.events:
        console.print(f"[green]✓[/] {plural(done.events, 'event')} purged")
    else:
        recorded = "the purge is recorded: matching events from before now are purged when they arrive"
        console.print(f"no event matches; {recorded if done.applies_later else 'nothing was purged'}", soft_wrap=True)
    if done.remade:
        kinds = Counter("tree" if each.is_tree else each.level for each in done.remade)
        counts = ", ".join(f"{kind} ×{number:,}" for kind, number in kinds.items())
        console.print(f"[green]✓[/] {plural(len(done.remade), 'crystal')} made again from what remains: {counts}")
    for crystal in done.remade:
        if crystal.label is not None:
            console.print(f"  {shown(crystal.label)}, now revision {crystal.revision}", soft_wrap=True)
    for ended in done.ended:
        console.print(f"[yellow]→[/] no longer a crystal: {shown(ended.period)}: {shown(ended.reason)}", soft_wrap=True)
    for verb, paths in (("rewritten", done.exports), ("removed", done.removed)):
        for path in paths:
            console.print(f"[green]✓[/] {verb}: {escape(path)}", soft_wrap=True)
    for line in done.unreached:
        console.print(f"[yellow]→[/] not reached: {escape(line)}", soft_wrap=True)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@memory_command
async def retain(memory: Memory, output: Output, *, dry_run: bool) -> None:
    """Purge events whose retention period is over.

    Retention is off until [retention] enables it. Events with certain names are kept, with everything they cite: marks,
    steps, prompts, outcomes, judgments, crystals and receipts. The result shows how many are kept for which pattern. If
    a pattern such as tool.* or task.* also matches events of your own, set `keep`. See docs/purge.md.

    Example: mica upkeep retain --dry-run
    """
    done = await memory.upkeep.retain(dry_run=dry_run)

    def for_people(console: Console) -> None:
        total = plural(sum(done.classes.values()), "event")
        classes = ", ".join(f"{name} {number:,}" for name, number in done.classes.items())
        console.print(f"{total} {'would be removed' if dry_run else 'purged'}{f': {classes}' if classes else ''}")
        if done.kept:
            patterns = ", ".join(f"{pattern} {number:,}" for pattern, number in done.kept.items())
            console.print(escape(f"old enough, but kept for their names: {patterns}"), soft_wrap=True)
        if done.cited:
            console.print(f"old enough, but kept because they are pinned or referred to: {done.cited:,}")
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
    """Keep events for good, regardless of retention.

    Example: mica upkeep pin 12
    """
    await _record(memory, output, references, memory.upkeep.pin, "pinned")


@click.command()
@click.argument("references", metavar="ID…", nargs=-1, required=True)
@memory_command
async def unpin(memory: Memory, output: Output, *, references: tuple[str, ...]) -> None:
    """Undo `mica upkeep pin`: retention may remove these events.

    Example: mica upkeep unpin 12
    """
    await _record(memory, output, references, memory.upkeep.unpin, "unpinned")


async def _record(
    memory: Memory, output: Output, references: Sequence[str], record: Callable[..., Ref], done: str
) -> None:
    events = [await memory.events.get(reference) for reference in references]
    record(*events)
    ids = [event.id for event in events]
    output.show({done: ids}, lambda console: console.print(f"{done} {plural(len(ids), 'event')}"))
