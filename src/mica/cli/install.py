"""install, uninstall: add mica to the coding agents of this machine, or remove it."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import click

import mica
from mica.cli.output import Output, current_user, json_option, space_name
from mica.cli.transcripts import render_for_hooks
from mica.clients import installer
from mica.clients.installation import Installation, Machine
from mica.clients.installer import InstallPlan, launcher_changes, write_launcher
from mica.clients.registry import CLIENTS
from mica.clients.spool import command_file, is_registered, register_command
from mica.errors import MicaError
from mica.format.lines import alternatives, plural, strip_control
from mica.memory import open as open_memory
from mica.navigation.trails.publication import withdraw
from mica.settings import Settings, load_settings
from mica.store.space import space_of
from mica.store.space import spaces as space_files

NAMES = click.Choice(list(CLIENTS))
RENDER_S = 30.0  # for the briefs of first sessions; most spaces take less than a second


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        click.option("--yes", "-y", is_flag=True, help="Write without asking."),
        click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing."),
        click.argument("clients", nargs=-1, type=NAMES),
    ):
        function = option(function)
    return function


@click.command()
@_options
def install(clients: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Give coding agents mica's hooks, MCP server and skills.

    Without CLIENTS, all coding agents on this machine are set up. Every change is shown first, as a diff, and mica's
    own programs by name. Each file of yours that changes is backed up. A second run changes nothing. Entries that you
    edited by hand are kept and listed. Projects with stored work get a brief from their first session on.

    Example: mica install claude-code --dry-run
    """
    machine = _machine()
    known = {name: client.install(machine) for name, client in CLIENTS.items()}
    chosen = [known[name] for name in clients] or [client for client in known.values() if _is_used(client)]
    if not chosen:
        raise click.ClickException(f"no coding agent was found; name one to set it up anyway: {alternatives(known)}")
    plan = installer.install(chosen, installer.read_record(machine.data), data=machine.data)
    others = launcher_changes(machine.launcher.parent, python=machine.python)
    others += [command_file(machine.data)] if not is_registered(machine.data) else []
    others += [machine.data / installer.RECORD] if plan.changes else []

    def on_applied() -> None:
        write_launcher(machine.launcher.parent, python=machine.python)
        register_command(machine.data)
        asyncio.run(_render_spaces(load_settings()))

    _apply_plan(
        plan, chosen, others, machine, on_applied, dry_run=dry_run, yes=yes, output=Output(as_json=as_json), notes=True
    )


@click.command()
@_options
def uninstall(clients: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove mica from coding agents.

    Without CLIENTS, mica is removed from all of them. Files that were not changed since are restored byte for byte; in
    others only mica's entries are removed. Everything that was recorded stays.

    Example: mica uninstall --yes
    """
    machine = _machine()
    record = installer.read_record(machine.data)
    chosen = [client.install(machine) for name, client in CLIENTS.items() if name in (clients or record.clients)]
    plan = installer.uninstall(chosen, record, data=machine.data)
    others = list(plan.obsolete)
    if not plan.record.clients:
        programs = sorted(path for path in machine.launcher.parent.rglob("*") if path.is_file())
        own = (command_file(machine.data), machine.data / installer.RECORD)
        others += [*programs, *(path for path in own if path.exists())]

    def on_applied() -> None:
        if not plan.record.clients:
            shutil.rmtree(machine.launcher.parent, ignore_errors=True)
            command_file(machine.data).unlink(missing_ok=True)
            for sentence in withdraw(machine.data):
                click.echo(f"mica: {sentence}", err=True)

    _apply_plan(
        plan, chosen, others, machine, on_applied, dry_run=dry_run, yes=yes, output=Output(as_json=as_json), notes=False
    )


async def _render_spaces(settings: Settings) -> None:
    """Write, for spaces with stored events, what hooks show at the start of the first session.

    The latest spaces come first. If this takes longer than RENDER_S, the others get theirs with their first session.
    """
    here = space_of(Path.cwd(), home=settings.home).file
    files = sorted(space_files(settings.home), key=lambda file: file != here)
    until = time.monotonic() + RENDER_S
    made = 0
    for file in files:
        if time.monotonic() > until:
            break
        try:
            async with open_memory(file, settings=settings, must_exist=True, reads_ahead=False) as memory:
                made += await render_for_hooks(memory, settings.home, is_new=False)
        except MicaError as error:
            click.echo(f"mica: {space_name(file)}: {error}", err=True)
    if made:
        projects = plural(made, "project")
        click.echo(f"mica: prepared the brief that the next session of {projects} starts with", err=True)


def _machine() -> Machine:
    settings = load_settings()
    return Machine(
        user=current_user(),
        data=settings.home.absolute(),
        python=sys.executable,
        hook=Path(mica.__file__).absolute().parent / "hook.py",
        version=version("mica"),
        read_gate=settings.observe.read_gate,
    )


def _is_used(client: Installation) -> bool:
    return client.folder.is_dir() or any(map(shutil.which, client.programs))


def _apply_plan(
    plan: InstallPlan,
    clients: Sequence[Installation],
    others: Sequence[Path],
    machine: Machine,
    on_applied: Callable[[], None],
    *,
    dry_run: bool,
    yes: bool,
    output: Output,
    notes: bool,
) -> None:
    """Show a plan, ask unless `yes` is set, and apply it.

    `others` are files of mica itself, which `on_applied` writes or removes. `on_applied` is called after the plan was
    applied, and also if there was nothing to change and this is no dry run. With `notes`, which an installation sets,
    the hints of the clients are printed. Exits 1 if a client has a problem, or if there were changes that were not
    applied and this is no dry run.
    """
    if not output.as_json:
        _show(plan, clients, others, machine, verb="write" if notes else "remove")
    is_change = bool(plan.changes or others)
    may_ask = sys.stdin.isatty() and sys.stdout.isatty() and not output.as_json
    is_agreed = is_change and not dry_run and (yes or (may_ask and click.confirm("Write this?", default=True)))
    if is_agreed and plan.changes:
        installer.apply(plan, data=machine.data)
    if is_agreed or not (is_change or dry_run):
        on_applied()
    hints = [note for client in clients if client.name not in plan.problems for note in client.notes] if notes else []
    if output.as_json:
        output.show(_document(plan, clients, others, hints, is_written=is_agreed), lambda console: None)
    else:
        _conclude(plan, others, hints, machine.data, is_written=is_agreed, dry_run=dry_run)
    if plan.problems or (is_change and not is_agreed and not dry_run):
        sys.exit(1)


def _show(
    plan: InstallPlan, clients: Sequence[Installation], others: Sequence[Path], machine: Machine, *, verb: str
) -> None:
    for client in clients:
        unverified = "" if client.is_verified else " (unverified: written from its documentation)"
        click.echo(f"{client.title}: {client.folder}{unverified}", err=True)
    for change in plan.changes:
        if change.is_ours and change.after is None:
            click.echo(f"remove {change.path}", err=True)
        else:
            click.echo(strip_control(change.diff), nl=False)
        if change.needs_backup and change.before is not None:
            name = installer.backup_name(change.path, change.before)
            click.echo(f"back up {change.path} as {machine.data / installer.BACKUPS / name}", err=True)
    for path in others:
        click.echo(f"{verb} {path}", err=True)
    for sentence in (*plan.kept, *plan.problems.values()):
        click.echo(f"mica: {sentence}", err=True)


def _conclude(
    plan: InstallPlan, others: Sequence[Path], notes: Sequence[str], data: Path, *, is_written: bool, dry_run: bool
) -> None:
    count = len(plan.changes) + len(others)
    files = plural(count, "file")
    if not count:
        click.echo("mica: nothing to do", err=True)
    elif is_written:
        has_backup = any(change.needs_backup for change in plan.changes)
        backups = f"; backups of your files are in {data / installer.BACKUPS}" if has_backup else ""
        click.echo(f"mica: {files} changed{backups}", err=True)
    else:
        hint = "" if dry_run else "; --yes writes the changes"
        click.echo(f"mica: {files} would change; nothing was written{hint}", err=True)
    for note in notes if is_written or not count else ():
        click.echo(f"mica: {note}", err=True)


def _document(
    plan: InstallPlan,
    clients: Sequence[Installation],
    others: Sequence[Path],
    notes: Sequence[str],
    *,
    is_written: bool,
) -> dict[str, object]:
    return {
        "clients": [client.name for client in clients],
        "written": is_written,
        "changes": [{"path": str(change.path), "diff": change.diff} for change in plan.changes],
        "others": list(map(str, others)),
        "kept": list(plan.kept),
        "problems": plan.problems,
        "notes": list(notes),
    }
