"""trails, evolve: where agents go, learned from what they opened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.output import Output, making_command, memory_command
from mica.errors import InvalidInput
from mica.format.documents import choice_document, trail_document
from mica.format.lines import counted, local, one_line
from mica.memory import Memory
from mica.model.event import EventId, utc_now
from mica.model.trail import STATES, State, Trail
from mica.model.walk import OUTCOMES, Outcome, Step
from mica.navigation.trails.commands import Destination, in_folder, in_project, reference
from mica.navigation.trails.library import LOADED_TOKENS

if TYPE_CHECKING:  # loaded when it is used
    from mica.navigation.trails.evolution import Evolution, Stats
    from mica.navigation.trails.matcher import Choice

COLOURS = {"hot": "yellow", "crystallized": "green", "cooling": "dim", "archived": "dim", "observed": ""}
NONE_YET = "No trail was learned yet. They come from what agents open: `mica import`, or `mica observe`."
_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<start>\d+)-(?P<end>\d+))?")


class Place(click.ParamType[Step]):
    """A file, or lines of it: src/auth.py:10-40."""

    name = "PATH[:FIRST-LAST]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Step:
        if isinstance(value, Step):
            return value
        match = _PLACE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no place; write src/auth.py or src/auth.py:10-40", param, ctx)
        lines = [None if match[name] is None else int(match[name]) for name in ("start", "end")]
        if lines[0] is not None and lines[1] is not None and not 1 <= lines[0] <= lines[1]:
            self.fail(f"{value!r} has no lines from {lines[0]} to {lines[1]}", param, ctx)
        by_hand = EventId("by-hand")  # the event that records it is not there yet
        return Step(
            path=match["path"], operation="read", start_line=lines[0], end_line=lines[1], at=utc_now(), event=by_hand
        )


@click.group()
def trails() -> None:
    """Where agents go: files and lines that proved useful together for a kind of task.

    Trails are learned from walks: what agents opened and changed for each prompt. One that passes the gate is
    crystallized: it gets a name, nav:<slug>, and can become a command.
    """


@trails.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those of this state.")
@click.option("--shape", help="Only those for this kind of task.")
@click.option("--all", "with_archived", is_flag=True, help="Also archived ones.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True)
@memory_command
async def list_(
    memory: Memory, output: Output, *, state: State | None, shape: str | None, with_archived: bool, limit: int
) -> None:
    """The trails of this space, those worth most first.

    Example: mica trails list --state hot
    """
    found = await memory.trails.list(state=state, shape=shape, with_archived=with_archived, limit=limit)

    def for_people(console: Console) -> None:
        console.print(_table(found) if found else NONE_YET if state is None and shape is None else "No such trail.")

    output.show(list(map(trail_document, found)), for_people)


@trails.command()
@click.argument("name")
@memory_command
async def show(memory: Memory, output: Output, *, name: str) -> None:
    """One trail, by its name or key: files and lines in order, figures, and where it was learned.

    Example: mica trails show nav:fix-login
    """
    trail = await memory.trails.show(name)
    output.show(trail_document(trail), lambda console: _print_trail(console, trail))


@trails.command()
@click.argument("name")
@click.argument("places", nargs=-1, type=Place())
@click.option("--from", "learned", metavar="TRAIL", help="Crystallize this learned trail under the name.")
@click.option("--description", default="", help="What it is for, on one line.")
@making_command
async def create(
    memory: Memory, output: Output, *, name: str, places: tuple[Step, ...], learned: str | None, description: str
) -> None:
    """Make a trail by hand, or give a learned one its name, whatever the gate says.

    The files must be there, with the lines that are named.

    Example: mica trails create login src/auth.py:10-40 src/session.py --description "Signing in"
    """
    if (learned is None) == (not places):
        raise click.UsageError("give files, or --from a learned trail")
    if learned is None:
        made = await memory.trails.create(name, places, description=description, root=await memory.directory())
    else:
        made = await memory.trails.crystallize(learned, slug=name)
    output.show(trail_document(made), lambda console: _print_trail(console, made))


@trails.command()
@memory_command
async def stats(memory: Memory, output: Output) -> None:
    """How much was learned, and what tasks of each kind cost before anybody helps, counted from the log.

    Example: mica trails stats
    """
    found = await memory.trails.stats()
    output.show(msgspec.to_builtins(found), lambda console: _print_stats(console, found))


@trails.command()
@click.argument("about")
@click.option("--limit", type=click.IntRange(1, 20), default=3, show_default=True)
@making_command
async def explore(memory: Memory, output: Output, *, about: str, limit: int) -> None:
    """The best trails for a path or a task, with the reason for each. What is shown is recorded as offered.

    Example: mica trails explore src/auth
    """
    found = await memory.trails.explore(about, limit=limit)

    def for_people(console: Console) -> None:
        for choice in found:
            _print_choice(console, choice)
        if not found:
            console.print("No trail leads there. Search as ever: what is opened is observed, and learned.")

    output.show([choice_document(choice) for choice in found], for_people)


@trails.command()
@click.argument("switch", type=click.Choice(["on", "off", "status"]), required=False)
@making_command
async def learn(memory: Memory, output: Output, *, switch: str | None) -> None:
    """Learn from the log now; or switch learning on or off in this space. What was learned is kept.

    Example: mica trails learn off
    """
    if switch in ("on", "off"):
        await memory.trails.switch(on=switch == "on")
    is_on = await memory.trails.is_learning()
    count = await memory.trails.learn() if switch is None and is_on else None
    state = "on" if is_on else "off"

    def for_people(console: Console) -> None:
        if count is None:
            console.print(f"Learning is {state}.")
        else:
            console.print(f"{counted(count, 'trail')}; `mica trails list` shows them.")

    output.show({"learning": is_on, "trails": count}, for_people)


@trails.command()
@click.argument("name")
@click.option("--budget", type=click.IntRange(1), default=LOADED_TOKENS, show_default=True, help="Tokens at the most.")
@making_command
async def load(memory: Memory, output: Output, *, name: str, budget: int) -> None:
    """Print what a trail's files say now, in its order and within a budget; what moved is told, what is gone is named.

    Example: mica trails load fix-login --budget 1500
    """
    root = await memory.directory()
    if root is None:
        raise InvalidInput(f"the directory that {memory.location} speaks of is not on this machine")
    found = await memory.trails.load(name, root=root, budget_tokens=budget)
    told = {"text": found.text, "tokens": found.tokens, "drifted": found.drifted, "left_out": found.left_out}

    def for_people(console: Console) -> None:
        if found.text:
            click.echo(found.text)
        else:
            reasons = "; ".join(f"{one.path}: {one.reason}" for one in found.left_out)
            console.print(escape(f"Nothing of {name} can be shown within {budget:,} tokens. {reasons}"), soft_wrap=True)

    output.show(told, for_people)


@trails.command()
@click.argument("name")
@click.option("--outcome", type=click.Choice(OUTCOMES), default="unknown", show_default=True)
@click.option("--tokens", type=click.IntRange(0), help="What using it cost.")
@making_command
async def track(memory: Memory, output: Output, *, name: str, outcome: Outcome, tokens: int | None) -> None:
    """Record that a trail was used, and how the task ended.

    Example: mica trails track fix-login --outcome success
    """
    event = await memory.trails.track(name, outcome=outcome, tokens=tokens)
    output.show({"event": event}, lambda console: console.print(f"Recorded: {escape(name)}, {outcome}."))


@trails.command()
@click.argument("name")
@click.argument("slug")
@making_command
async def rename(memory: Memory, output: Output, *, name: str, slug: str) -> None:
    """Call a crystallized trail otherwise.

    Example: mica trails rename fix-login sign-in
    """
    renamed = await memory.trails.rename(name, slug)
    output.show(trail_document(renamed), lambda console: _print_trail(console, renamed))


@trails.command()
@click.argument("name")
@click.option("--reason", default="", help="Why nobody should be told of it.")
@click.option("--resume", is_flag=True, help="Tell of it again.")
@making_command
async def suspend(memory: Memory, output: Output, *, name: str, reason: str, resume: bool) -> None:
    """Tell nobody of a crystallized trail any more; --resume takes that back.

    Example: mica trails suspend fix-login --reason "the module moved"
    """
    if resume:
        trail = await memory.trails.resume(name)
    else:
        trail = await memory.trails.suspend(name, reason=reason)
    output.show(trail_document(trail), lambda console: _print_trail(console, trail))


@trails.command("publish")
@click.option("--write", "into_project", is_flag=True, help="Into this project: .claude/commands/nav and skills.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Into this folder.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; change nothing.")
@memory_command
async def publish_(memory: Memory, output: Output, *, into_project: bool, folder: Path | None, dry_run: bool) -> None:
    """Write crystallized trails as /nav:<slug> commands and skills. Hand-written and edited files stay as they are.

    Example: mica trails publish --write
    """
    if into_project == (folder is not None):
        raise click.UsageError("give --write for this project, or --to a folder")
    destination: Destination = in_project(Path.cwd()) if folder is None else in_folder(folder)
    done = await memory.trails.publish(destination, dry_run=dry_run)

    def for_people(console: Console) -> None:
        for each in done:
            reason = f" ({each.reason})" if each.reason else ""
            fate = f"would be {each.fate}" if dry_run else each.fate
            console.print(f"{fate:9} {escape(each.path)}{escape(reason)}", soft_wrap=True)

    output.show(msgspec.to_builtins(done), for_people)


@click.command()
@making_command
async def evolve(memory: Memory, output: Output) -> None:
    """What is done each day at three: learn, merge, crystallize what passes the gate, let the rest cool; a report.

    Named trails follow their files, and what they saved is measured. After `mica install` they become commands of the
    project, are renewed, and withdrawn as they fade; `[trails] publish = false` leaves that to `mica trails publish`.
    Without this command it is done by a server's clock, or by whoever is active next.

    Example: mica evolve
    """
    report = await memory.evolve()
    output.show(msgspec.to_builtins(report), lambda console: _print_evolution(console, report))


# -- For people -----------------------------------------------------------------------------------------------


def _table(found: list[Trail]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1), show_edge=False)
    table.add_column("trail", no_wrap=True)
    table.add_column("files", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("state", "runs", "success", "tokens", "last used"):
        table.add_column(name, justify="right", no_wrap=True)
    for trail in found:
        colour = COLOURS[trail.state]
        state = f"[{colour}]{trail.state}[/]" if colour else trail.state
        numbers = [str(trail.runs), _success(trail), _tokens(trail.tokens), local(trail.last_at)]
        table.add_row(escape(trail.name), escape(", ".join(trail.paths)), state, *numbers)
    return table


def _print_trail(console: Console, trail: Trail) -> None:
    version = f", version {trail.version}" if trail.version else ""
    console.print(f"[bold]{escape(trail.name)}[/] [dim]{trail.state}{version}, key {trail.key}[/]")
    console.print(escape(one_line(trail.description, 500)), soft_wrap=True)
    for number, step in enumerate(trail.steps, 1):
        pattern = f" [dim]as one of {escape(step.pattern)}[/]" if step.pattern else ""
        console.print(f"  {number}. {escape(reference(step))}{pattern}", soft_wrap=True)
    console.print(
        f"{counted(trail.runs, 'run')} in {counted(trail.sessions, 'session')}, success {_success(trail)}, "
        f"{_tokens(trail.tokens)} tokens, last used {local(trail.last_at)}"
    )
    for agent, figures in trail.agents.items():
        console.print(f"  [dim]{escape(one_line(agent, 60))}: {counted(figures.runs, 'run')}[/]")
    told = trail.measured
    saving = "unknown, not measured" if told is None else f"{told.saving:+,} tokens, {told.method}, {told.sample} tasks"
    console.print(f"Saving: {escape(saving)}")
    if trail.suspended is not None:
        console.print(f"[red]Suspended: {escape(one_line(trail.suspended, 300))}[/]")
    if trail.drifted:
        console.print("[yellow]Needs refreshing: it was walked otherwise since; `mica evolve` makes a new version.[/]")


def _print_choice(console: Console, choice: Choice) -> None:
    trail = choice.trail
    console.print(f"[bold]{escape(trail.name)}[/] [dim]{choice.match} {choice.score:.2f}: {escape(choice.reason)}[/]")
    console.print(
        f"  {counted(trail.runs, 'run')}, success {_success(trail)}: {escape(', '.join(map(reference, trail.steps)))}",
        soft_wrap=True,
    )


def _print_stats(console: Console, found: Stats) -> None:
    states = ", ".join(f"{number} {state}" for state, number in sorted(found.states.items()))
    console.print(
        f"{counted(found.trails, 'trail')} ({states or 'none'}) for {counted(found.shapes, 'kind')} of task, learned "
        f"from {counted(found.walks, 'walk')}, of which {found.known_outcomes:,} have a known end"
    )
    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("kind")
    for name in ("tasks", "tokens read per task", "before the first edit (median)"):
        table.add_column(name, justify="right")
    for each in found.baselines:
        table.add_row(
            escape(each.shape), f"{each.tasks:,}", f"{each.tokens_mean:,}", f"{each.tokens_before_edit_median:,}"
        )
    if found.baselines:
        console.print(table)


def _print_evolution(console: Console, report: Evolution) -> None:
    states = ", ".join(f"{number} {state}" for state, number in sorted(report.states.items()))
    console.print(f"{counted(report.trails, 'trail')} for {counted(report.shapes, 'kind')} of task: {states or 'none'}")
    for name in (
        "crystallized",
        "refreshed",
        "measured",
        "hot",
        "cooling",
        "suspended",
        "archived",
        "published",
        "withdrawn",
    ):
        if names := getattr(report, name):
            console.print(f"  {name}: {escape(', '.join(names))}", soft_wrap=True)


def _success(trail: Trail) -> str:
    return "unknown" if trail.success is None else f"{trail.success:.0%}"


def _tokens(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
