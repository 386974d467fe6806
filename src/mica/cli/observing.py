"""hook, ingest, observe: what coding agents tell while they work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica import hook as hook_program
from mica.cli.importing import skipped
from mica.cli.output import Output, making_command, memory_command
from mica.inject.lines import counted
from mica.memory import Memory
from mica.observe.spool import Failure, Spools, register_command
from mica.settings import load_settings


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
@making_command
async def ingest(memory: Memory, output: Output) -> None:
    """Store what hooks have spooled for this space, and render what they answer next.

    Every command that reads the space stores it too; hooks start this one in the background.

    Example: mica ingest --json
    """
    register_command(load_settings().home)
    done = await memory.ingest()

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


@observe.command("on")
@click.option("--prompts/--no-prompts", default=None, help="Whether what is typed is kept, redacted.")
@making_command
async def observe_on(memory: Memory, output: Output, *, prompts: bool | None) -> None:
    """Let hooks observe this space.

    Example: mica observe on --no-prompts
    """
    register_command(load_settings().home)
    _spools(memory).switch(on=True, prompts=prompts)
    _show(memory, output)


@observe.command("off")
@making_command
async def observe_off(memory: Memory, output: Output) -> None:
    """Let hooks of this space write nothing and say nothing. What is stored stays.

    Example: mica observe off
    """
    _spools(memory).switch(on=False)
    _show(memory, output)


@observe.command("status")
@memory_command
async def observe_status(memory: Memory, output: Output) -> None:
    """Say whether this space is observed, what waits, and what failed lately.

    Example: mica observe status --json
    """
    _show(memory, output)


def _spools(memory: Memory) -> Spools:
    if memory.spools is None:
        raise click.UsageError(f"no hooks write for {memory.location}; they write beside the file of a space")
    return memory.spools


def _show(memory: Memory, output: Output) -> None:
    settings = load_settings()
    spools = memory.spools
    failures = hook_failures(memory)
    document = {
        "observing": bool(spools and spools.is_on and settings.observe.enabled),
        "prompts": bool(spools and spools.keeps_prompts and settings.observe.prompts),
        "folder": None if spools is None else str(spools.folder),
        "waiting": 0 if spools is None else spools.waiting_bytes(),
        "answers_at_start": bool(spools and spools.session_answer()),
        "failures": [_told(failure) for failure in failures],
    }

    def for_people(console: Console) -> None:
        state = "[green]on[/]" if document["observing"] else "[yellow]off[/]"
        said = "what is typed is kept, redacted" if document["prompts"] else "what is typed is not kept"
        console.print(f"Observing is {state} in this space; {said}.", soft_wrap=True)
        if not settings.observe.enabled:
            console.print("The setting observe.enabled is false, for all spaces.", soft_wrap=True)
        console.print(f"[dim]{escape(str(document['folder']))}[/]", soft_wrap=True)
        if waiting := cast(int, document["waiting"]):
            console.print(f"[yellow]→[/] {waiting:,} bytes wait: run `mica ingest`, or any other command")
        for failure in failures[-5:]:
            told = _told(failure)
            console.print(f"[yellow]→[/] {told['at']} {escape(str(told['reason']))}", soft_wrap=True)

    output.show(document, for_people)


def hook_failures(memory: Memory) -> list[Failure]:
    """Why hooks of this space, or of no known space, did nothing lately."""
    home = Spools(load_settings().home)
    return [*home.failures(), *(memory.spools.failures() if memory.spools is not None else [])]


def _told(failure: Failure) -> dict[str, object]:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=failure.at)
    return {**msgspec.structs.asdict(failure), "at": at.isoformat(timespec="seconds")}
