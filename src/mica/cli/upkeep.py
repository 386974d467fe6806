"""The group upkeep: verify, compress, copy and rebuild a space."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ParamSpec, cast

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.groups import CommandGroup
from mica.cli.output import (
    Output,
    Span,
    json_option,
    making_command,
    memory_command,
    space_name,
)
from mica.errors import InvalidInput, MicaError
from mica.format.lines import format_bytes, format_time, plural
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.model.event import EventQuery
from mica.settings import Settings, load_settings
from mica.store.space import is_address, recall_directory, without_password
from mica.store.space import spaces as space_files

P = ParamSpec("P")


@click.group(cls=CommandGroup)
def upkeep() -> None:
    """Spaces, hooks, verification, copies, compression, retention."""


@click.command()
@memory_command
async def embed(memory: Memory, output: Output) -> None:
    """Make missing vectors, so that search finds marks by meaning.

    The latest marks come first. Needs the extra `semantic`. A server does this by itself.

    Example: mica upkeep embed
    """
    if await memory.upkeep.without_vector() is None:
        raise click.UsageError("search by meaning is not installed, or is off; pip install 'mica[semantic]'")
    with Console(stderr=True).status("") as status:
        made = await memory.upkeep.embed(on_progress=lambda count: status.update(f"{count:,} marks"))

    def for_people(console: Console) -> None:
        console.print(f"{plural(made, 'vector')} made" if made else "Every mark has its vector.")

    output.show({"vectors": made}, for_people)


@click.command()
@memory_command
async def verify(memory: Memory, output: Output) -> None:
    """Verify the stored data.

    Exits 1 if there is a problem.

    Example: mica upkeep verify --json
    """
    with Console(stderr=True).status("verifying") as status:
        problems = (
            await memory.upkeep.verify(on_progress=lambda done: status.update(f"{done:,} events"))
            + memory.upkeep.damaged
        )
    sizes = await memory.upkeep.sizes()

    def for_people(console: Console) -> None:
        for problem in problems:
            console.print(f"[red]✗[/] {escape(problem)}", soft_wrap=True)
        if not problems:
            console.print(
                f"[green]✓[/] {plural(sizes.events, 'event')} can be read; lineage and indexes are consistent"
            )

    output.show({"events": sizes.events, "problems": problems}, for_people)
    if problems:
        sys.exit(1)


def _from_source(function: Callable[P, None]) -> Callable[P, None]:
    """Let a command take its source space as a first argument, or else from --store or --space."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        *sources, kwargs["destination"] = cast(tuple[str, ...], kwargs.pop("places"))
        if len(sources) > 1:
            raise click.UsageError(f"{len(sources) + 1} stores are given; give one source and one target")
        if sources and (kwargs["store"] is not None or kwargs["space"] is not None):
            raise click.UsageError("give SOURCE, --store or --space, not two of them")
        kwargs["store"] = sources[0] if sources else kwargs["store"]
        function(*args, **kwargs)

    return run


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="[SOURCE] TARGET")
@_from_source
@click.option("--into-other", is_flag=True, help="Allow a target that holds another space; the two are merged.")
@memory_command
async def copy(memory: Memory, output: Output, *, destination: str, into_other: bool) -> None:
    """Copy a space into another store, and verify the copy.

    SOURCE and TARGET are files or addresses such as postgresql://… Without SOURCE, the space that the options name is
    copied, else the directory's own. TARGET is created if needed; it must be empty or a copy of the same space, which
    is recognized by its first event. Run the command again to continue, or to copy new events. What was purged since
    the last copy is then purged in the copy, too.

    Example: mica upkeep copy shop.db backup.db
    """
    _check_destination(destination)
    with Console(stderr=True).status("copying") as status:
        done = await memory.upkeep.copy_to(
            destination, into_other=into_other, on_progress=lambda count: status.update(f"{count:,} events")
        )

    def for_people(console: Console) -> None:
        summary = (
            f"{plural(done.events, 'event')} in {without_password(destination)}, {done.stored:,} of them new; verified"
        )
        console.print(f"[green]✓[/] {escape(summary)}", soft_wrap=True)
        if done.purged:
            purged = (
                f"{plural(done.purged, 'event')} purged there, because this space purged what an earlier copy brought"
            )
            console.print(f"[green]✓[/] {purged}", soft_wrap=True)
        for line in done.unreached:
            console.print(f"[yellow]→[/] not reached: {escape(line)}", soft_wrap=True)

    output.show(done, for_people)


def _check_destination(destination: str) -> None:
    """Raise InvalidInput if a copy would go into memory, or into a folder that does not exist."""
    if destination == ":memory:":
        raise InvalidInput("a copy in :memory: would be lost when this command ends; give a file or an address")
    folder = Path(destination).expanduser().absolute().parent
    if not is_address(destination) and not folder.is_dir():
        raise InvalidInput(f"there is no folder {folder} for the copy; create it first")


@click.command()
@memory_command
async def rebuild(memory: Memory, output: Output) -> None:
    """Rebuild everything that is derived from the log.

    Example: mica upkeep rebuild
    """
    with Console(stderr=True).status("rebuilding") as status:
        count = await memory.upkeep.rebuild(on_progress=lambda done: status.update(f"{done:,} events"))

    def for_people(console: Console) -> None:
        console.print(f"[green]✓[/] rebuilt from {plural(count, 'event')}")

    output.show({"events": count}, for_people)


@click.command()
@click.option(
    "--older-than", default="24h", show_default=True, type=Span(), help="Compress events older than this: 2h, 3d, 1w."
)
@memory_command
async def age(memory: Memory, output: Output, *, older_than: timedelta) -> None:
    """Compress old events.

    Nothing is lost, and every query returns the same as before. A server does this by itself, and so does
    `mica import`; a space that only other commands use needs it now and then.

    Example: mica upkeep age --older-than 3d
    """
    before = await memory.upkeep.sizes()
    with Console(stderr=True).status("compressing") as status:
        count = await memory.upkeep.age(older_than, on_progress=lambda done: status.update(f"{done:,} events"))
    after = await memory.upkeep.sizes()

    def for_people(console: Console) -> None:
        sizes = f"{format_bytes(before.size_bytes)} on disk before, {format_bytes(after.size_bytes)} now"
        console.print(f"[green]✓[/] {plural(count, 'event')} compressed; {sizes}")

    sizes = {"size_bytes_before": before.size_bytes, "size_bytes": after.size_bytes}
    output.show({"aged": count, "events": after.events, "aged_in_all": after.aged} | sizes, for_people)


@click.command()
@making_command
async def tick(memory: Memory, output: Output) -> None:
    """Run the jobs that are due, such as summarizing days that are over.

    Meant for cron. It is safe to run at any time, also several times at once.

    Example: mica upkeep tick
    """
    ran = await memory.upkeep.tick()

    def for_people(console: Console) -> None:
        if not ran:
            console.print("Nothing is due.")
        for each in ran:
            result = f"failed: {escape(each.error)}" if each.error else f"{each.done} done"
            console.print(f"{each.kind}: {result} [dim](again at {format_time(each.next_at)})[/]")

    output.show(ran, for_people)


@click.command()
@json_option
def spaces(*, as_json: bool) -> None:
    """List the spaces on this machine, the last used first.

    Example: mica upkeep spaces
    """
    settings = load_settings()
    asyncio.run(_spaces(space_files(settings.home), settings, Output(as_json=as_json)))


async def _spaces(files: Sequence[Path], settings: Settings, output: Output) -> None:
    rows = [await _space(file, settings) for file in files]

    def for_people(console: Console) -> None:
        if not rows:
            console.print("No spaces yet. `mica up` creates the first.")
            return
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("space", "events", "marks", "size", "directory"):
            table.add_column(column, justify="left" if column in ("space", "directory") else "right", overflow="fold")
        for row in rows:
            if "error" in row:
                table.add_row(str(row["name"]), "", "", "", f"[red]{escape(str(row['error']))}[/]")
                continue
            numbers = [f"{row['events']:,}", f"{row['marks']:,}", format_bytes(int(str(row["size_bytes"])))]
            unknown = "[dim]unknown[/]"
            table.add_row(str(row["name"]), *numbers, escape(str(row["directory"])) if row["directory"] else unknown)
        console.print(table)
        console.print(
            "[dim]Events include mica's own records: crystals, receipts of briefs, which transcripts were read.[/]"
        )

    output.show(rows, for_people)


async def _space(file: Path, settings: Settings) -> dict[str, object]:
    try:
        async with open_memory(file, settings=settings) as memory:
            sizes = await memory.upkeep.sizes()
            started = await memory.events.query(EventQuery(names=("session.started",), limit=1))
    except MicaError as error:
        return {"name": space_name(file), "error": str(error)}
    return {
        "name": space_name(file),
        "events": sizes.events,
        "marks": sizes.marks,
        "size_bytes": sizes.size_bytes,
        "directory": recall_directory(file) or (started[0].data.get("cwd") if started else None),
    }
