"""The group beliefs: list, add, correct, confirm, end and edit what mica holds to be true."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import tempfile
from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.beliefs.edit_file import BeliefEdit
from mica.cli.groups import ListingGroup
from mica.cli.output import (
    Moment,
    Output,
    current_user,
    describe_emptiness,
    has_terminal,
    limit_option,
    making_command,
    memory_command,
    pasteable,
    sentence_of,
)
from mica.errors import InvalidInput
from mica.format.beliefs import HEADINGS, certainty_words, ending_words, speaker
from mica.format.lines import format_time, one_line, plural, to_user_zone
from mica.memory import Memory
from mica.model.belief import KINDS, STATES, Belief, BeliefId, BeliefKind, BeliefState, Ending
from mica.model.event import Event

TEXT_CHARACTERS_MAX = 1_000  # of a belief in a list
FORMING = "Forming (not in briefs until confirmed)"
EDITORS = ("sensible-editor", "vim", "nano", "vi")  # the first that exists, if none is configured
EDITED_FILE, ORIGINAL_FILE = "beliefs.md", "original.md"


@click.group(cls=ListingGroup)
def beliefs() -> None:
    """List, correct and end what mica holds to be true.

    These are rules, preferences, decisions, facts, gotchas, open tasks and open questions. Without a command it lists
    them; `mica beliefs list --help` shows the options.

    Example: mica beliefs --kind rule
    """


def _day(at: datetime) -> str:
    return f"{to_user_zone(at):%Y-%m-%d}"


def _speaker(belief: Belief) -> str:
    return one_line(speaker(belief), 20)


def print_belief(
    console: Console, belief: Belief, *, others: Mapping[BeliefId, Belief] | None = None, width: int = 0
) -> None:
    """Print a belief as one line, and below it how it ended and what it conflicts with.

    `others` has the beliefs of conflicts. The name of the speaker takes at least `width` characters.
    """
    facts = f"{belief.state:<7} {_day(belief.last_at)} {_speaker(belief):<{width}}"
    text = escape(one_line(belief.text, TEXT_CHARACTERS_MAX))
    console.print(f"  [green]{belief.id}[/] [dim]{escape(facts)}[/]  {text}", soft_wrap=True)
    if ended := ending_words(belief):
        console.print(f"    [yellow]{escape(one_line(ended, 300))}[/]", soft_wrap=True)
    for each in belief.conflicts:
        if (other := (others or {}).get(each)) is not None and other.state != "ended" and belief.state != "ended":
            said = f"{_day(other.last_at)} {_speaker(other)}: {one_line(other.text, 200)}"
            console.print(f"    [yellow]conflicts with {each}[/] {escape(said)}", soft_wrap=True)


@click.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option("--state", type=click.Choice(STATES), help="Only this state.  [default: all but ended]")
@click.option("--ended", "is_ended", is_flag=True, help="Those that ended, with the reason.")
@click.option("--at", type=Moment(), help="As of this time: 2026-11-03, 3d, 'last Tuesday'.")
@limit_option("At most this many, the latest.", default=200, most=10_000)
@memory_command
async def list_(
    memory: Memory,
    output: Output,
    *,
    kind: str | None,
    state: str | None,
    is_ended: bool,
    at: datetime | None,
    limit: int,
) -> None:
    """List what holds now, by kind.

    Each line has the id, the state, the date of the latest evidence, and who said it. Those that are forming come last:
    each rests on one uncertain statement, and briefs do not use it until a second one or you confirm it.

    Example: mica beliefs list --ended
    """
    if is_ended and state not in (None, "ended"):
        raise click.UsageError(f"--ended lists what ended; leave out --state {state}")
    wanted = cast(BeliefState | None, "ended" if is_ended else state)
    listed = await memory.beliefs.list(cast(BeliefKind | None, kind), wanted, limit=limit, at=at)
    missing = {each for belief in listed for each in belief.conflicts} - {each.id for each in listed}
    found = {each.id: each for each in [*listed, *await memory.beliefs.select(sorted(missing))]}
    emptiness = None if listed else await describe_emptiness(memory)

    def for_people(console: Console) -> None:
        width = max((len(_speaker(belief)) for belief in listed), default=0)
        forming = [belief for belief in listed if belief.state == "forming"]
        groups = {
            heading: [belief for belief in listed if belief.kind == each and belief.state != "forming"]
            for each, heading in HEADINGS.items()
        }
        for heading, beliefs in (groups | {FORMING: forming}).items():
            if beliefs:
                console.print(f"[bold]{heading}[/]")
            for belief in beliefs:
                print_belief(console, belief, others=found, width=width)
        if not listed:
            nothing = "no belief matches; `mica beliefs add KIND TEXT` adds one, agents state others while they work"
            console.print(escape(sentence_of(emptiness or nothing)), soft_wrap=True)

    output.show(list(map(document, listed)), for_people)


def document(belief: Belief) -> dict[str, object]:
    """Return a belief as a JSON document. The keys by which it is looked up are internal and left out."""
    fields: dict[str, object] = msgspec.to_builtins(belief)
    del fields["keys"]
    return fields


def _text_of(words: Sequence[str]) -> str:
    return " ".join(words)


def _show_changed(output: Output, belief: Belief, words: str) -> None:
    def for_people(console: Console) -> None:
        console.print(escape(words), soft_wrap=True)
        print_belief(console, belief)

    output.show(document(belief), for_people)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("text", nargs=-1, required=True)
@making_command
async def add(memory: Memory, output: Output, *, kind: str, text: tuple[str, ...]) -> None:
    """Add a belief.

    You said it, so it holds at once. If mica knows it already, it gets one more piece of evidence.

    Example: mica beliefs add rule "Always use uv run, never python directly"
    """
    added = await memory.beliefs.add(cast(BeliefKind, kind), _text_of(text))
    _show_changed(output, added, f"This {added.kind} holds now:")


@click.command()
@click.argument("reference", metavar="ID")
@click.argument("text", nargs=-1, required=True)
@making_command
async def correct(memory: Memory, output: Output, *, reference: str, text: tuple[str, ...]) -> None:
    """Replace the text of a belief.

    The old text stays in the history only. ID is the id of a belief, or the number of an event that states one.

    Example: mica beliefs correct bqkxwzyabcdef "Deploys go through staging first"
    """
    corrected = await memory.beliefs.correct(reference, _text_of(text))
    _show_changed(output, corrected, "This holds instead:")


@click.command()
@click.argument("reference", metavar="ID")
@making_command
async def confirm(memory: Memory, output: Output, *, reference: str) -> None:
    """Say that a belief is true.

    One that was forming, or that ended by mistake, holds from then on.

    Example: mica beliefs confirm bqkxwzyabcdef
    """
    confirmed = await memory.beliefs.confirm(reference)
    _show_changed(output, confirmed, f"Confirmed; it is {confirmed.state}:")


@click.command()
@click.argument("reference", metavar="ID")
@click.option("--reason", default="", help="Why it no longer holds.")
@click.option(
    "--as",
    "ending",
    type=click.Choice(["done", "answered", "withdrawn"]),
    default="withdrawn",
    show_default=True,
    help="How it ended: a task is done, a question is answered, anything else is withdrawn.",
)
@making_command
async def end(memory: Memory, output: Output, *, reference: str, reason: str, ending: str) -> None:
    """End a belief.

    Briefs no longer show it; it stays in the history.

    Example: mica beliefs end bqkxwzyabcdef --reason "we moved to PostgreSQL"
    """
    before = await memory.beliefs.get(reference)
    ended = await memory.beliefs.end(before, reason=reason, ending=cast(Ending, ending))
    _show_changed(output, ended, "It had ended before:" if before.state == "ended" else "It has ended:")


@click.command()
@click.argument("reference", metavar="ID")
@memory_command
async def show(memory: Memory, output: Output, *, reference: str) -> None:
    """Show a belief with its history and its evidence.

    The history is what it replaced and what replaced it, oldest first.

    Example: mica beliefs show bqkxwzyabcdef
    """
    belief = await memory.beliefs.get(reference)
    line = await memory.beliefs.history(belief)
    evidence = {each.id: await memory.beliefs.evidence(each) for each in line}

    def for_people(console: Console) -> None:
        for each in line:
            mark = "[bold]this[/] " if each.id == belief.id and len(line) > 1 else ""
            console.print(f"{mark}[cyan]{each.kind}[/] [dim]{certainty_words(each)} ({each.certainty:.2f})[/]")
            print_belief(console, each)
            for event in evidence[each.id]:
                console.print(f"    {_evidence_line(event)}", soft_wrap=True)

    documents = [{**document(each), "evidence": [_evidence(event) for event in evidence[each.id]]} for each in line]
    output.show({"belief": belief.id, "history": documents}, for_people)


def _evidence(event: Event) -> dict[str, object]:
    return {
        "id": event.id,
        "position": event.position,
        "name": event.name,
        "at": event.at,
        "origin": event.origin,
        "session": event.context.session,
        "text": event.data.get("text", ""),
    }


def _evidence_line(event: Event) -> str:
    who = " ".join(filter(None, [event.origin, event.context.agent, event.context.session]))
    text = one_line(str(event.data.get("text") or event.data.get("reason") or ""), 400)
    said = f": {escape(text)}" if text else ""
    return f"[green]{event.number}[/] [dim]{format_time(event.at)}[/] {escape(event.name)} [dim]{escape(who)}[/]{said}"


# -- The file


@click.command()
@click.option("--yes", "-y", is_flag=True, help="Apply an edit that ends most or all beliefs.")
@click.option(
    "--file",
    "kept",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Continue with a file that an earlier edit kept.",
)
@making_command
async def edit(memory: Memory, output: Output, *, yes: bool, kept: Path | None) -> None:
    """Edit all beliefs in force as one Markdown file.

    It opens the editor of $VISUAL or $EDITOR. A changed line corrects its belief, a deleted line ends it, a new line
    adds one. Agents may work meanwhile: what they state while you edit stays. If the file cannot be understood, nothing
    is changed, and the file is kept.

    Example: mica beliefs edit
    """
    editor = _editor()
    file, original = _kept_file(kept) if kept is not None else _new_file(await memory.beliefs.edit_text())
    try:
        changed = await _edit(memory, file, original=original, editor=editor, is_confirmed=yes)
    except BaseException:
        again = pasteable(f"`mica beliefs edit --file {shlex.quote(str(file))}` continues with it")
        click.echo(f"mica: your file is kept: {again}", err=True)
        raise
    shutil.rmtree(file.parent)
    output.show(msgspec.to_builtins(changed), lambda console: _print_edit(console, changed))


def _new_file(text: str) -> tuple[Path, str]:
    """Write a file to edit, and a copy of it, into a new folder that only its owner can read."""
    folder = Path(tempfile.mkdtemp(prefix="mica-beliefs-"))
    for name in (EDITED_FILE, ORIGINAL_FILE):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / EDITED_FILE, text


def _kept_file(file: Path) -> tuple[Path, str]:
    original = file.with_name(ORIGINAL_FILE)
    if file.name != EDITED_FILE or not original.exists():
        raise InvalidInput(f"{file} was not kept by `mica beliefs edit`; without --file it begins a new edit")
    return file, original.read_text(encoding="utf-8")


async def _edit(memory: Memory, file: Path, *, original: str, editor: Sequence[str], is_confirmed: bool) -> BeliefEdit:
    """Open the editor until its file can be applied, or until the user gives up: then the error is raised."""
    while True:
        edited = await _edited(file, editor)
        if edited == original:
            return BeliefEdit()
        try:
            return await memory.beliefs.apply_edit(edited, original=original, is_confirmed=is_confirmed)
        except InvalidInput as error:
            if not (has_terminal() and _edits_again(error)):
                raise


def _edits_again(error: InvalidInput) -> bool:
    click.echo(f"mica: {error}", err=True)
    return click.confirm("Edit the file again?", default=True)


def _editor() -> list[str]:
    environment = current_user().environment
    chosen = environment.get("VISUAL") or environment.get("EDITOR")
    if chosen:
        return shlex.split(chosen)
    found = next((each for each in EDITORS if shutil.which(each)), None)
    if found is None or not has_terminal():
        raise click.UsageError("there is no editor here; set EDITOR, as in: EDITOR=nano mica beliefs edit")
    return [found]


async def _edited(file: Path, editor: Sequence[str]) -> str:
    """Wait until the editor is closed, and return what the file has then."""
    try:
        with _without_interrupts():
            status = await to_thread(subprocess.call, [*editor, str(file)])
    except OSError as error:
        raise InvalidInput(f"the editor {editor[0]!r} cannot be started: {error.strerror}; set EDITOR") from error
    if status:
        raise InvalidInput(f"the editor {editor[0]!r} exited with {status}; nothing was changed")
    try:
        return await to_thread(file.read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the edited file cannot be read: {error}; nothing was changed") from error


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the editor in this block. A function as handler, unlike SIG_IGN, is not inherited by it."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_edit(console: Console, changed: BeliefEdit) -> None:
    counts = [("corrected", len(changed.corrected)), ("ended", len(changed.ended)), ("added", len(changed.added))]
    done = [f"{plural(count, 'belief')} {word}" for word, count in counts if count]
    console.print(f"{', '.join(done)}." if done else "Nothing was changed.")
    for identifier, text in changed.skipped:
        note = f"{identifier} has ended while you edited, so your text was not used: {one_line(text, 400)}"
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)
