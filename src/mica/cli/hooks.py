"""hook, ingest and upkeep hooks: record what coding agents do while they work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import ParamSpec

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica import hook as hook_program
from mica.cli.groups import CommandGroup
from mica.cli.output import Output, json_option, making_command, store_options, target
from mica.cli.transcripts import describe_skipped
from mica.clients.spool import HookFailure, Spools, register_command
from mica.errors import InvalidInput
from mica.format.lines import format_bytes, plural
from mica.memory import Memory, hooks_of
from mica.settings import Settings, load_settings
from mica.store.space import without_password

P = ParamSpec("P")


@click.command("hook", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar=f"[{'|'.join(hook_program.CLIENTS)}] EVENT", nargs=-1, type=click.UNPROCESSED)
def hook(words: tuple[str, ...]) -> None:
    """Record one event of a coding agent, and answer in its format.

    `mica-hook` does the same and starts faster. `mica install` writes CLIENT; without it, the environment decides.
    It always exits 0; `mica upkeep hooks status` shows what failed.

    Example: mica hook claude SessionStart < payload.json
    """
    hook_program.main(list(words))


@click.command(hidden=True)
@making_command
async def ingest(memory: Memory, output: Output) -> None:
    """Store the events that hooks spooled (wrote to files), and prepare their next answers.

    Hooks start this command in the background. Every command that reads the space stores spooled events too.

    Example: mica ingest
    """
    register_command(load_settings().home)
    done = await memory.clients.ingest()
    await memory.upkeep.tick()  # nothing waits for this command: hooks start it in the background

    def for_people(console: Console) -> None:
        if done.is_busy:
            console.print("Another process is ingesting this space.")
            return
        known = f", {done.repeated:,} known already" if done.repeated else ""
        counts = f"{plural(done.events, 'event')} from {plural(done.lines, 'line')} of hooks{known}"
        console.print(f"[green]✓[/] {counts}")
        for line in describe_skipped(done.tally):
            console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(done, for_people)


@click.group(cls=CommandGroup)
def hooks() -> None:
    """Switch recording by hooks on or off for a space.

    Example: mica upkeep hooks status
    """


def _switch(function: Callable[P, None]) -> Callable[P, None]:
    return json_option(store_options(function))


@hooks.command()
@click.option("--prompts/--no-prompts", default=None, help="Store prompts (always without secrets), or store none.")
@_switch
def on(*, prompts: bool | None, store: str | None, space: str | None, as_json: bool) -> None:
    """Let hooks record what agents do in this space.

    Example: mica upkeep hooks on --no-prompts
    """
    settings = load_settings()
    register_command(settings.home)
    spools = _spools(settings, store, space)
    spools.switch(on=True, prompts=prompts)
    _show(spools, settings, Output(as_json=as_json))


@hooks.command()
@_switch
def off(*, store: str | None, space: str | None, as_json: bool) -> None:
    """Stop hooks of this space from recording and answering.

    Stored events stay.

    Example: mica upkeep hooks off
    """
    settings = load_settings()
    spools = _spools(settings, store, space)
    spools.switch(on=False)
    _show(spools, settings, Output(as_json=as_json))


@hooks.command()
@_switch
def status(*, store: str | None, space: str | None, as_json: bool) -> None:
    """Show whether hooks record here, what waits, and recent failures.

    Example: mica upkeep hooks status --json
    """
    settings = load_settings()
    _show(_spools(settings, store, space), settings, Output(as_json=as_json))


def _spools(settings: Settings, store: str | None, space: str | None) -> Spools:
    place = target(settings, store, space)
    folder = hooks_of(place, settings)
    if folder is None:
        raise InvalidInput(f"no hooks write for {without_password(place)}; they write beside the file of a space")
    return Spools(folder)


def _show(spools: Spools, settings: Settings, output: Output) -> None:
    failures = hook_failures(spools, settings)
    document = {
        "observing": spools.is_on and settings.observe.enabled,
        "prompts": spools.keeps_prompts and settings.observe.prompts,
        "folder": str(spools.folder),
        "waiting_bytes": spools.waiting_bytes(),
        "answers_at_start": (answer := spools.session_answer()) is not None and bool(answer.text),
        "failures": [_failure_document(failure) for failure in failures],
    }

    def for_people(console: Console) -> None:
        state = "[green]on[/]" if document["observing"] else "[yellow]off[/]"
        effect = "prompts are stored, redacted" if document["prompts"] else "prompts are not stored"
        effect = effect if document["observing"] else "nothing new is stored"
        console.print(f"Recording by hooks is {state} in this space; {effect}.", soft_wrap=True)
        if not settings.observe.enabled:
            console.print("The setting observe.enabled is false, for all spaces.", soft_wrap=True)
        console.print(f"[dim]{escape(str(spools.folder))}[/]", soft_wrap=True)
        if waiting := spools.waiting_bytes():
            console.print(
                f"[yellow]→[/] {format_bytes(waiting)} are waiting: the next command that reads this space stores them"
            )
        for failure in failures[-5:]:
            at = _failure_document(failure)["at"]
            console.print(f"[yellow]→[/] {at} {escape(failure.reason)}", soft_wrap=True)

    output.show(document, for_people)


def hook_failures(spools: Spools | None, settings: Settings) -> list[HookFailure]:
    """Return recent failures of the hooks of this space, and of hooks whose space is unknown."""
    return [*Spools(settings.home).failures(), *(spools.failures() if spools is not None else [])]


def _failure_document(failure: HookFailure) -> dict[str, object]:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=failure.at)
    return {**msgspec.structs.asdict(failure), "at": at.isoformat(timespec="seconds")}
