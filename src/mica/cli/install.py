"""install, uninstall: add mica to the coding agents of this machine, or remove it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import click

import mica
from mica import hook
from mica.cli.output import Output, current_user, json_option
from mica.clients import installer
from mica.clients.installation import Installation, Machine
from mica.clients.installer import InstallPlan, write_launcher
from mica.clients.registry import CLIENTS
from mica.clients.spool import register_command
from mica.format.lines import plural, strip_control
from mica.navigation.trails.publication import withdraw
from mica.settings import load_settings

NAMES = click.Choice(list(CLIENTS))


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

    Without CLIENTS, all coding agents on this machine are set up. Every change is shown as a diff first, and each
    changed file is backed up. A second run changes nothing. Entries that you edited by hand are kept and listed.

    Example: mica install claude-code --dry-run
    """
    machine = _machine()
    known = {name: client.install(machine) for name, client in CLIENTS.items()}
    chosen = [known[name] for name in clients] or [client for client in known.values() if _is_used(client)]
    if not chosen:
        raise click.ClickException(f"no coding agent was found; name one to set it up anyway: {', '.join(known)}")
    plan = installer.install(chosen, installer.read_record(machine.data), data=machine.data)

    def done() -> None:
        write_launcher(machine.launcher.parent, python=machine.python)
        register_command(machine.data)

    _carry_out(plan, chosen, machine, done, dry_run=dry_run, yes=yes, output=Output(as_json=as_json), notes=True)


@click.command()
@_options
def uninstall(clients: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove mica from coding agents.

    Without CLIENTS, from all of them. Files that were not changed since are restored byte for byte; in others only
    mica's entries are removed. Everything that was recorded stays.

    Example: mica uninstall --yes
    """
    machine = _machine()
    record = installer.read_record(machine.data)
    chosen = [client.install(machine) for name, client in CLIENTS.items() if name in (clients or record.clients)]
    plan = installer.uninstall(chosen, record, data=machine.data)

    def done() -> None:
        if not plan.record.clients:
            shutil.rmtree(machine.launcher.parent, ignore_errors=True)
            (machine.data / hook.COMMAND.decode()).unlink(missing_ok=True)
            for sentence in withdraw(machine.data):
                click.echo(f"mica: {sentence}", err=True)

    _carry_out(plan, chosen, machine, done, dry_run=dry_run, yes=yes, output=Output(as_json=as_json), notes=False)


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


def _carry_out(
    plan: InstallPlan,
    clients: Sequence[Installation],
    machine: Machine,
    done: Callable[[], None],
    *,
    dry_run: bool,
    yes: bool,
    output: Output,
    notes: bool,
) -> None:
    """Show a plan, ask, and carry it out. Exits 1 unless it was carried out for every client."""
    if not output.as_json:
        _show(plan, clients, machine)
    may_ask = sys.stdin.isatty() and sys.stdout.isatty() and not output.as_json
    is_agreed = bool(plan.changes) and not dry_run and (yes or (may_ask and click.confirm("Write this?", default=True)))
    if is_agreed:
        installer.apply(plan, data=machine.data)
    if is_agreed or not (plan.changes or dry_run):
        done()  # the hook program may be older than mica
    hints = [note for client in clients if client.name not in plan.problems for note in client.notes] if notes else []
    if output.as_json:
        output.show(_document(plan, clients, hints, is_written=is_agreed), lambda console: None)
    else:
        _conclude(plan, hints, machine.data, is_written=is_agreed, dry_run=dry_run)
    if plan.problems or (plan.changes and not is_agreed and not dry_run):
        sys.exit(1)


def _show(plan: InstallPlan, clients: Sequence[Installation], machine: Machine) -> None:
    for client in clients:
        unverified = "" if client.is_verified else " (unverified: written from its documentation)"
        click.echo(f"{client.title}: {client.folder}{unverified}", err=True)
    for change in plan.changes:
        if change.is_ours and change.path.is_relative_to(machine.data):
            verb = "remove" if change.after is None else "write"
            click.echo(f"{verb} {change.path}", err=True)
        else:
            click.echo(strip_control(change.diff), nl=False)
    for sentence in (*plan.kept, *plan.problems.values()):
        click.echo(f"mica: {sentence}", err=True)


def _conclude(plan: InstallPlan, notes: Sequence[str], data: Path, *, is_written: bool, dry_run: bool) -> None:
    files = plural(len(plan.changes), "file")
    if not plan.changes:
        click.echo("mica: nothing to do", err=True)
    elif is_written:
        click.echo(f"mica: {files} changed; backups of your files are in {data / installer.BACKUPS}", err=True)
    else:
        hint = "" if dry_run else "; --yes writes the changes"
        click.echo(f"mica: {files} would change; nothing was written{hint}", err=True)
    for note in notes if is_written or not plan.changes else ():
        click.echo(f"mica: {note}", err=True)


def _document(
    plan: InstallPlan, clients: Sequence[Installation], notes: Sequence[str], *, is_written: bool
) -> dict[str, object]:
    return {
        "clients": [client.name for client in clients],
        "written": is_written,
        "changes": [{"path": str(change.path), "diff": change.diff} for change in plan.changes],
        "kept": list(plan.kept),
        "problems": plan.problems,
        "notes": list(notes),
    }
