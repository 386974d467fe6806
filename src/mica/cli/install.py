"""install, uninstall: mica in the coding agents of this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import click

import mica
from mica import hook
from mica.cli.output import Output, json_option
from mica.clients import installer as installing
from mica.clients.installable import CLIENTS
from mica.clients.installation import Client, Machine
from mica.clients.installer import Plan
from mica.clients.launcher import write_launcher
from mica.clients.spool import register_command
from mica.format.lines import counted, harmless
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
    """Give coding agents mica's hooks, MCP server and skills; without CLIENTS, each one that is found here.

    Every file is shown as a diff before it is written, and kept as it was. A second run finds nothing to do. What
    somebody changed by hand stays, and is named.

    Example: mica install claude-code --dry-run
    """
    machine = _machine()
    known = {name: make(machine) for name, make in CLIENTS.items()}
    chosen = [known[name] for name in clients] or [client for client in known.values() if _is_here(client)]
    if not chosen:
        raise click.ClickException(
            f"no coding agent is found here; name one to install it all the same: {', '.join(known)}"
        )
    plan = installing.install(chosen, installing.read_record(machine.data), data=machine.data)

    def done() -> None:
        write_launcher(machine.launcher.parent, python=machine.python)
        register_command(machine.data)

    _carry_out(plan, chosen, machine, done, dry_run=dry_run, yes=yes, output=Output(as_json=as_json), notes=True)


@click.command()
@_options
def uninstall(clients: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take mica out of coding agents again; without CLIENTS, out of all. What was learned stays.

    Files that nobody else has changed since are as they were, to the byte; from others only mica's entries are taken.

    Example: mica uninstall --yes
    """
    machine = _machine()
    record = installing.read_record(machine.data)
    chosen = [make(machine) for name, make in CLIENTS.items() if name in (clients or record.clients)]
    plan = installing.uninstall(chosen, record, data=machine.data)

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
        user_home=Path(os.environ.get("HOME") or Path.home()),
        data=settings.home.absolute(),
        environment=os.environ,
        python=sys.executable,
        hook=Path(mica.__file__).absolute().parent / "hook.py",
        version=version("mica"),
        read_gate=settings.observe.read_gate,
    )


def _is_here(client: Client) -> bool:
    return client.folder.is_dir() or any(map(shutil.which, client.programs))


def _carry_out(
    plan: Plan,
    clients: Sequence[Client],
    machine: Machine,
    done: Callable[[], None],
    *,
    dry_run: bool,
    yes: bool,
    output: Output,
    notes: bool,
) -> None:
    """Show a plan, ask, and do it. Exits 1 when it was not done, or not for every client."""
    if not output.as_json:
        _show(plan, clients, machine)
    may_ask = sys.stdin.isatty() and sys.stdout.isatty() and not output.as_json
    is_wanted = bool(plan.changes) and not dry_run and (yes or (may_ask and click.confirm("Write this?", default=True)))
    if is_wanted:
        installing.apply(plan, data=machine.data)
    if is_wanted or not (plan.changes or dry_run):
        done()  # the hook's program is mica's own, and may be older than mica
    said = [note for client in clients if client.name not in plan.problems for note in client.notes] if notes else []
    if output.as_json:
        output.show(_document(plan, clients, said, is_written=is_wanted), lambda console: None)
    else:
        _conclude(plan, said, machine.data, is_written=is_wanted, dry_run=dry_run)
    if plan.problems or (plan.changes and not is_wanted and not dry_run):
        sys.exit(1)


def _show(plan: Plan, clients: Sequence[Client], machine: Machine) -> None:
    for client in clients:
        unverified = "" if client.is_verified else " (unverified: written from its documentation)"
        click.echo(f"{client.title}: {client.folder}{unverified}", err=True)
    for change in plan.changes:
        if change.is_ours and change.path.is_relative_to(machine.data):
            verb = "remove" if change.after is None else "write"
            click.echo(f"{verb} {change.path}", err=True)
        else:
            click.echo(harmless(change.diff), nl=False)
    for sentence in (*plan.kept, *plan.problems.values()):
        click.echo(f"mica: {sentence}", err=True)


def _conclude(plan: Plan, notes: Sequence[str], data: Path, *, is_written: bool, dry_run: bool) -> None:
    files = counted(len(plan.changes), "file")
    if not plan.changes:
        click.echo("mica: nothing to do", err=True)
    elif is_written:
        click.echo(f"mica: {files} changed; user files as they were stand in {data / installing.BACKUPS}", err=True)
    else:
        click.echo(f"mica: {files} would change; nothing is written{'' if dry_run else ', --yes does it'}", err=True)
    for note in notes if is_written or not plan.changes else ():
        click.echo(f"mica: {note}", err=True)


def _document(plan: Plan, clients: Sequence[Client], notes: Sequence[str], *, is_written: bool) -> dict[str, object]:
    return {
        "clients": [client.name for client in clients],
        "written": is_written,
        "changes": [{"path": str(change.path), "diff": change.diff} for change in plan.changes],
        "kept": list(plan.kept),
        "problems": plan.problems,
        "notes": list(notes),
    }
