"""hook, ingest, observe: what coding agents tell while they work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, ParamSpec

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica import hook as hook_program
from mica.cli.output import Output, json_option, making_command, store_options, target
from mica.cli.transcripts import skipped
from mica.clients.spool import Failure, Spools, register_command
from mica.errors import InvalidInput
from mica.format.lines import counted, size
from mica.memory import Memory, hooks_of
from mica.settings import Settings, load_settings
from mica.store.space import shown

P = ParamSpec("P")


@click.command("hook", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[CLIENT] EVENT", nargs=-1, type=click.UNPROCESSED)
def hook(words: tuple[str, ...]) -> None:
    """Take one event of a coding agent from standard input, and answer in its shape: what `mica-hook` does, slower.

    CLIENT is claude, codex, gemini, copilot, opencode or cursor; without it, it is told by the environment. Exits 0
    whatever happens; `mica observe status` shows what failed.

    Example: mica hook claude SessionStart < payload.json
    """
    hook_program.main(list(words))


@click.command()
@click.argument("file", required=False, type=click.File("rb"))
@making_command
async def ingest(memory: Memory, output: Output, *, file: BinaryIO | None) -> None:
    """Store what hooks have spooled for this space, and render what they answer next.

    Every command that reads the space stores it too; hooks start this one in the background. FILE, or - for standard
    input, holds walks of another orchestrator or build workflow, one JSON object on each line: `task`, `steps`, and
    where known `outcome`, `reason`, `workflow`, `session`, `agent`, `at` and `id`. They are stored once, however often
    they are told.

    Example: mica ingest walks.jsonl
    """
    register_command(load_settings().home)
    if file is not None:
        taken = await memory.import_walks(file)
        told = f"[green]✓[/] {counted(taken.stored, 'event')} of walks, {taken.repeated:,} known already"
        if not taken.stored + taken.repeated:
            told = "no walk was given; nothing was stored"
        output.show(taken, lambda console: console.print(told))
        return
    done = await memory.ingest()
    await memory.tick()  # nobody waits for this command: hooks start it in the background

    def for_people(console: Console) -> None:
        if done.is_busy:
            console.print("Another process ingests this space just now.")
            return
        known = f", {done.repeated:,} known already" if done.repeated else ""
        told = f"{counted(done.events, 'event')} from {counted(done.lines, 'line')} of hooks{known}"
        console.print(f"[green]✓[/] {told}")
        for line in skipped(done.tally):
            console.print(f"  [yellow]→[/] {escape(line)}", soft_wrap=True)

    output.show(done, for_people)


@click.group()
def observe() -> None:
    """Switch observing of a space on or off, and see how it goes. What is stored stays.

    Example: mica observe status
    """


def _switch(function: Callable[P, None]) -> Callable[P, None]:
    return json_option(store_options(function))


@observe.command("on")
@click.option("--prompts/--no-prompts", default=None, help="Whether what is typed is kept, redacted.")
@_switch
def observe_on(*, prompts: bool | None, store: str | None, space: str | None, as_json: bool) -> None:
    """Let hooks observe this space.

    Example: mica observe on --no-prompts
    """
    settings = load_settings()
    register_command(settings.home)
    spools = _spools(settings, store, space)
    spools.switch(on=True, prompts=prompts)
    _show(spools, settings, Output(as_json=as_json))


@observe.command("off")
@_switch
def observe_off(*, store: str | None, space: str | None, as_json: bool) -> None:
    """Let hooks of this space write nothing and say nothing. What is stored stays.

    Example: mica observe off
    """
    settings = load_settings()
    spools = _spools(settings, store, space)
    spools.switch(on=False)
    _show(spools, settings, Output(as_json=as_json))


@observe.command("status")
@_switch
def observe_status(*, store: str | None, space: str | None, as_json: bool) -> None:
    """Say whether this space is observed, what waits, and what failed lately.

    Example: mica observe status --json
    """
    settings = load_settings()
    _show(_spools(settings, store, space), settings, Output(as_json=as_json))


def _spools(settings: Settings, store: str | None, space: str | None) -> Spools:
    place = target(settings, store, space)
    folder = hooks_of(place, settings)
    if folder is None:
        raise InvalidInput(f"no hooks write for {shown(place)}; they write beside the file of a space")
    return Spools(folder)


def _show(spools: Spools, settings: Settings, output: Output) -> None:
    failures = hook_failures(spools, settings)
    document = {
        "observing": spools.is_on and settings.observe.enabled,
        "prompts": spools.keeps_prompts and settings.observe.prompts,
        "folder": str(spools.folder),
        "waiting_bytes": spools.waiting_bytes(),
        "answers_at_start": spools.session_answer() is not None,
        "failures": [_told(failure) for failure in failures],
    }

    def for_people(console: Console) -> None:
        state = "[green]on[/]" if document["observing"] else "[yellow]off[/]"
        said = "what is typed is kept, redacted" if document["prompts"] else "what is typed is not kept"
        said = said if document["observing"] else "nothing new is kept"
        console.print(f"Observing is {state} in this space; {said}.", soft_wrap=True)
        if not settings.observe.enabled:
            console.print("The setting observe.enabled is false, for all spaces.", soft_wrap=True)
        console.print(f"[dim]{escape(str(spools.folder))}[/]", soft_wrap=True)
        if waiting := spools.waiting_bytes():
            console.print(f"[yellow]→[/] {size(waiting)} wait: the next command that reads this space stores them")
        for failure in failures[-5:]:
            told = _told(failure)
            console.print(f"[yellow]→[/] {told['at']} {escape(failure.reason)}", soft_wrap=True)

    output.show(document, for_people)


def hook_failures(spools: Spools | None, settings: Settings) -> list[Failure]:
    """Why hooks of this space, or of no known space, did nothing lately."""
    return [*Spools(settings.home).failures(), *(spools.failures() if spools is not None else [])]


def _told(failure: Failure) -> dict[str, object]:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=failure.at)
    return {**msgspec.structs.asdict(failure), "at": at.isoformat(timespec="seconds")}
