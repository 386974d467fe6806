"""The commands of `mica trails`. A trail is a set of files that proved useful together for a kind of task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.groups import CommandGroup
from mica.cli.output import (
    Output,
    describe_emptiness,
    limit_option,
    making_command,
    memory_command,
    sentence_of,
    space_name,
)
from mica.clients.installer import read_record
from mica.errors import InvalidInput
from mica.format.documents import choice_document, trail_document
from mica.format.lines import format_time, one_line, plural
from mica.memory import Memory
from mica.model.event import EventId, utc_now
from mica.model.trail import STATES, State, Trail
from mica.model.walk import OUTCOMES, Outcome, Step
from mica.navigation.repository import COMMITS_MAX
from mica.navigation.trails.commands import Destination, in_folder, in_project, reference
from mica.navigation.trails.loader import LOADED_TOKENS
from mica.settings import load_settings

if TYPE_CHECKING:  # loaded when it is used
    from mica.model.trail import Choice
    from mica.navigation.trails.commands import PublishedFile
    from mica.navigation.trails.evolution import Evolution, TrailStatistics

COLOURS = {"hot": "yellow", "crystallized": "green", "cooling": "dim", "archived": "dim", "observed": ""}
NONE_YET = "No trails yet. They are learned from the files that agents open: run `mica import` or `mica install`."
_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<start>\d+)-(?P<end>\d+))?")


class FileRangeType(click.ParamType[Step]):
    """A file, or lines of it: src/auth.py:10-40."""

    name = "PATH[:FIRST-LAST]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Step:
        if isinstance(value, Step):
            return value
        match = _PLACE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a file or a range; write src/auth.py or src/auth.py:10-40", param, ctx)
        lines = [None if match[name] is None else int(match[name]) for name in ("start", "end")]
        if lines[0] is not None and lines[1] is not None and not 1 <= lines[0] <= lines[1]:
            self.fail(f"{value!r} has no lines from {lines[0]} to {lines[1]}", param, ctx)
        by_hand = EventId("by-hand")  # its event does not exist yet
        return Step(
            path=match["path"], operation="read", start_line=lines[0], end_line=lines[1], at=utc_now(), event=by_hand
        )


@click.group(cls=CommandGroup)
def trails() -> None:
    """Files and lines that proved useful together for a kind of task.

    Trails are learned from walks: the files that agents opened and changed for each prompt. A trail that is successful
    enough is crystallized: it gets a name, nav:NAME, and can become a command.
    """


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only trails in this state.")
@click.option("--shape", help="Only trails for this kind of task.")
@click.option("--all", "with_archived", is_flag=True, help="Include archived trails.")
@limit_option("How many trails.", default=20)
@memory_command
async def list_(
    memory: Memory, output: Output, *, state: State | None, shape: str | None, with_archived: bool, limit: int
) -> None:
    """List trails, the most valuable first.

    Example: mica trails list --state hot
    """
    listed = await memory.trails.list(state=state, shape=shape, with_archived=with_archived, limit=limit)

    emptiness = None if listed else await describe_emptiness(memory)
    nothing = NONE_YET if state is None and shape is None else "No such trail."

    def for_people(console: Console) -> None:
        if listed:
            console.print(_table(listed))
        else:
            console.print(escape(nothing if emptiness is None else sentence_of(emptiness)), soft_wrap=True)

    output.show(list(map(trail_document, listed)), for_people)


@click.command()
@click.argument("name")
@memory_command
async def show(memory: Memory, output: Output, *, name: str) -> None:
    """Show a trail: its files and lines, its figures and its origin.

    Example: mica trails show nav:fix-login
    """
    trail = await memory.trails.show(name)
    output.show(trail_document(trail), lambda console: _print_trail(console, trail))


@click.command()
@click.argument("name")
@click.argument("places", nargs=-1, type=FileRangeType())
@click.option("--from", "learned", metavar="TRAIL", help="Give this learned trail the name.")
@click.option("--description", default="", help="What it is for, on one line.")
@click.option("--publish/--no-publish", "publishes", default=True, help="Write its command file, which is the default.")
@making_command
async def create(
    memory: Memory,
    output: Output,
    *,
    name: str,
    places: tuple[Step, ...],
    learned: str | None,
    description: str,
    publishes: bool,
) -> None:
    """Make a trail by hand, and write its command /nav:NAME.

    With --from, a learned trail gets the name instead. Files and lines must exist. The command
    file goes to the same place in this project as with `mica trails publish --write`. After `mica install`, it is
    written for the installed clients only; before, only if the setting trails.publish is on.

    Example: mica trails create login src/auth.py:10-40 src/session.py --description "Signing in"
    """
    if (learned is None) == (not places):
        raise click.UsageError("give either files or --from TRAIL, not both")
    root = await memory.events.directory()
    if learned is None:
        made = await memory.trails.create(name, places, description=description, root=root)
    else:
        made = await memory.trails.crystallize(learned, slug=name)
    files = await _publish(memory, root) if publishes and root is not None else []
    reason = ""
    if publishes and root is None:
        reason = f"the folder of the project {space_name(memory.location)} is not on this machine"
    elif publishes and not load_settings().trails.publish:
        reason = "the setting trails.publish is off; `mica trails publish` writes it"

    def for_people(console: Console) -> None:
        _print_trail(console, made)
        _print_files(console, files)
        if reason and not files:
            console.print(escape(f"No command was written: {reason}."), soft_wrap=True)

    output.show({**trail_document(made), "published": msgspec.to_builtins(files)}, for_people)


async def _publish(memory: Memory, root: Path) -> Sequence[PublishedFile]:
    settings = load_settings()
    clients = list(read_record(settings.home).clients)
    if clients:
        return await memory.trails.update_published(root, clients, home=settings.home)
    return await memory.trails.publish(in_project(root)) if settings.trails.publish else []


def _print_files(console: Console, files: Sequence[PublishedFile], *, dry_run: bool = False) -> None:
    for each in files:
        reason = f" ({each.reason})" if each.reason else ""
        fate = f"would be {each.fate}" if dry_run else each.fate
        console.print(f"{fate:9} {escape(each.path)}{escape(reason)}", soft_wrap=True)


@click.command()
@memory_command
async def stats(memory: Memory, output: Output) -> None:
    """Count trails, and show what tasks cost without them.

    Example: mica trails stats
    """
    statistics = await memory.trails.stats()
    output.show(msgspec.to_builtins(statistics), lambda console: _print_stats(console, statistics))


@click.command()
@click.argument("about")
@limit_option("How many trails.", default=3, most=20)
@making_command
async def explore(memory: Memory, output: Output, *, about: str, limit: int) -> None:
    """Find the best trails for a path or a task, with reasons.

    It is recorded that these trails were offered.

    Example: mica trails explore src/auth
    """
    choices = await memory.trails.explore(about, limit=limit)

    def for_people(console: Console) -> None:
        for choice in choices:
            _print_choice(console, choice)
        if not choices:
            console.print(
                "No trail leads there yet. Search as usual: trails are learned from the files that are opened."
            )

    output.show([choice_document(choice) for choice in choices], for_people)


@click.command()
@click.argument("action", type=click.Choice(["trails", "commits", "tasks", "on", "off", "status"]), default="trails")
@limit_option(f"With commits: only the latest.  [default: {COMMITS_MAX}]")
@making_command
async def learn(memory: Memory, output: Output, *, action: str, limit: int | None) -> None:
    """Learn from the log, commits or past tasks; or switch that off.

    trails, the default, learns trails from the files that agents opened. commits stores each commit of this repository
    once as an event; run it again after a pull. tasks learns how much each signal of `mica navigate` is worth here, as
    `mica trails evolve` does daily. on, off and status switch learning in this space; learned trails stay.

    Example: mica trails learn commits
    """
    if limit is not None and action != "commits":
        raise click.UsageError("--limit works only with commits")
    match action:
        case "commits":
            done = await memory.trails.learn_commits(limit=limit or COMMITS_MAX)
            known = f", {done.repeated:,} known already" if done.repeated else ""
            document: dict[str, object] = {"commits": done.stored, "repeated": done.repeated}
            learned = f"{plural(done.stored, 'commit')} learned{known}"
        case "tasks":
            tasks = await memory.trails.learn_tasks()
            document, learned = {"tasks": tasks}, f"Learned from {plural(tasks, 'task')}"
        case _:
            if action in ("on", "off"):
                await memory.trails.switch(on=action == "on")
            is_on = await memory.trails.is_learning()
            count = await memory.trails.learn() if action == "trails" and is_on else None
            document = {"learning": is_on, "trails": count}
            learned = f"Learning is {'on' if is_on else 'off'}."
            if count is not None:
                learned = f"{plural(count, 'trail')}; `mica trails list` shows them."
    output.show(document, lambda console: console.print(learned))


@click.command()
@click.argument("name")
@click.option("--budget", type=click.IntRange(1), default=LOADED_TOKENS, show_default=True, help="Token budget.")
@making_command
async def load(memory: Memory, output: Output, *, name: str, budget: int) -> None:
    """Print the current lines of a trail's files.

    Moved lines and missing files are marked.

    Example: mica trails load fix-login --budget 1500
    """
    root = await memory.events.directory()
    if root is None:
        raise InvalidInput(f"the directory of {memory.location} is not on this machine")
    loaded = await memory.trails.load(name, root=root, budget_tokens=budget)
    document = {"text": loaded.text, "tokens": loaded.tokens, "drifted": loaded.drifted, "left_out": loaded.left_out}

    def for_people(console: Console) -> None:
        if loaded.text:
            click.echo(loaded.text)
        else:
            reasons = "; ".join(f"{one.path}: {one.reason}" for one in loaded.left_out)
            console.print(escape(f"Nothing of {name} can be shown within {budget:,} tokens. {reasons}"), soft_wrap=True)

    output.show(document, for_people)


@click.command()
@click.argument("name")
@click.option("--outcome", type=click.Choice(OUTCOMES), default="unknown", show_default=True)
@click.option("--tokens", type=click.IntRange(0), help="The tokens that using it cost.")
@making_command
async def track(memory: Memory, output: Output, *, name: str, outcome: Outcome, tokens: int | None) -> None:
    """Record that a trail was used, and the outcome of the task.

    Example: mica trails track fix-login --outcome success
    """
    event = await memory.trails.track(name, outcome=outcome, tokens=tokens)
    output.show({"event": event}, lambda console: console.print(f"Recorded: {escape(name)}, {outcome}."))


@click.command()
@click.argument("name")
@click.argument("slug")
@making_command
async def rename(memory: Memory, output: Output, *, name: str, slug: str) -> None:
    """Give a crystallized trail another name.

    Example: mica trails rename fix-login sign-in
    """
    renamed = await memory.trails.rename(name, slug)
    output.show(trail_document(renamed), lambda console: _print_trail(console, renamed))


@click.command()
@click.argument("name")
@click.option("--reason", default="", help="Why it is no longer offered.")
@click.option("--resume", is_flag=True, help="Offer it again.")
@making_command
async def suspend(memory: Memory, output: Output, *, name: str, reason: str, resume: bool) -> None:
    """Stop offering a crystallized trail, or offer it again.

    Example: mica trails suspend fix-login --reason "the module moved"
    """
    if resume:
        trail = await memory.trails.resume(name)
    else:
        trail = await memory.trails.suspend(name, reason=reason)
    output.show(trail_document(trail), lambda console: _print_trail(console, trail))


@click.command("publish")
@click.option("--write", "into_project", is_flag=True, help="Into this project: .claude/commands/nav and skills.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Into this folder.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; change nothing.")
@memory_command
async def publish_(memory: Memory, output: Output, *, into_project: bool, folder: Path | None, dry_run: bool) -> None:
    """Write crystallized trails as /nav:NAME commands and skills.

    Files that were written or edited by hand are left alone.

    Example: mica trails publish --write
    """
    if into_project == (folder is not None):
        raise click.UsageError("give either --write (this project) or --to FOLDER, not both")
    destination: Destination = in_project(Path.cwd()) if folder is None else in_folder(folder)
    done = await memory.trails.publish(destination, dry_run=dry_run)
    output.show(msgspec.to_builtins(done), lambda console: _print_files(console, done, dry_run=dry_run))


@click.command()
@making_command
async def evolve(memory: Memory, output: Output) -> None:
    """Do the daily work on trails now, and report it.

    Trails are learned and merged. Those that are successful enough get a name; unused ones become cooling and later
    archived. If the files of a trail moved, the trail follows them. Savings are measured. After `mica install`, named
    trails become commands of the project until they cool; with `[trails] publish = false`, only `mica trails publish`
    writes commands. A server does this every day at three; without a server, the next active process does it.

    Example: mica trails evolve
    """
    report = await memory.trails.evolve()
    output.show(msgspec.to_builtins(report), lambda console: _print_evolution(console, report))


def _table(trails: list[Trail]) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1), show_edge=False)
    table.add_column("trail", no_wrap=True)
    table.add_column("files", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("state", "runs", "success", "tokens", "last used"):
        table.add_column(name, justify="right", no_wrap=True)
    for trail in trails:
        colour = COLOURS[trail.state]
        state = f"[{colour}]{trail.state}[/]" if colour else trail.state
        numbers = [str(trail.runs), _success(trail), _tokens(trail.tokens), _last_use(trail) or "never"]
        table.add_row(escape(trail.name), escape(", ".join(trail.paths)), state, *numbers)
    return table


def _print_trail(console: Console, trail: Trail) -> None:
    version = f", version {trail.version}" if trail.version else ""
    console.print(f"[bold]{escape(trail.name)}[/] [dim]{trail.state}{version}, key {trail.key}[/]")
    console.print(escape(one_line(trail.description, 500)), soft_wrap=True)
    for number, step in enumerate(trail.steps, 1):
        pattern = f" [dim]as one of {escape(step.pattern)}[/]" if step.pattern else ""
        console.print(f"  {number}. {escape(reference(step))}{pattern}", soft_wrap=True)
    used_at = _last_use(trail)
    used = f"last used {used_at}" if used_at else "never used"
    console.print(
        f"{plural(trail.runs, 'run')} in {plural(trail.sessions, 'session')}, success {_success(trail)}, "
        f"{_tokens(trail.tokens)} tokens, {used}"
    )
    for agent, figures in trail.agents.items():
        console.print(f"  [dim]{escape(one_line(agent, 60))}: {plural(figures.runs, 'run')}[/]")
    saving = "not measured"
    if (measured := trail.measured) is not None:
        saving = f"{measured.saving:+,} tokens, {measured.method}, {plural(measured.sample, 'task')}"
    console.print(f"Saving: {escape(saving)}")
    if trail.suspended is not None:
        console.print(f"[red]Suspended: {escape(one_line(trail.suspended, 300))}[/]")
    if trail.drifted:
        console.print(
            "[yellow]Out of date: agents used other files since; `mica trails evolve` makes a new version.[/]"
        )


def _print_choice(console: Console, choice: Choice) -> None:
    trail = choice.trail
    console.print(f"[bold]{escape(trail.name)}[/] [dim]{choice.match} {choice.score:.2f}: {escape(choice.reason)}[/]")
    console.print(
        f"  {plural(trail.runs, 'run')}, success {_success(trail)}: {escape(', '.join(map(reference, trail.steps)))}",
        soft_wrap=True,
    )


def _print_stats(console: Console, statistics: TrailStatistics) -> None:
    states = ", ".join(f"{number} {state}" for state, number in sorted(statistics.states.items()))
    console.print(
        f"{plural(statistics.trails, 'trail')} ({states or 'none'}) for {plural(statistics.shapes, 'kind')} of task, "
        f"learned from {plural(statistics.walks, 'walk')}, of which {statistics.known_outcomes:,} have a known outcome"
    )
    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("kind")
    for name in ("tasks", "tokens read per task", "before the first edit (median)"):
        table.add_column(name, justify="right")
    for each in statistics.baselines:
        table.add_row(
            escape(each.shape), f"{each.tasks:,}", f"{each.tokens_mean:,}", f"{each.tokens_before_edit_median:,}"
        )
    if statistics.baselines:
        console.print(table)


def _print_evolution(console: Console, report: Evolution) -> None:
    states = ", ".join(f"{number} {state}" for state, number in sorted(report.states.items()))
    console.print(f"{plural(report.trails, 'trail')} for {plural(report.shapes, 'kind')} of task: {states or 'none'}")
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


def _last_use(trail: Trail) -> str | None:
    return None if trail.used_at is None else format_time(trail.used_at)


def _success(trail: Trail) -> str:
    return "unknown" if trail.success is None else f"{trail.success:.0%}"


def _tokens(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


@click.command("import")
@click.argument("file", type=click.File("rb"))
@making_command
async def import_(memory: Memory, output: Output, *, file: BinaryIO) -> None:
    """Import walks (the files that tasks opened) from other programs.

    FILE, or - for standard input, has one JSON object on each line: `task`, `steps`, and optionally `outcome`,
    `reason`, `workflow`, `session`, `agent`, `at` and `id`. A walk that is imported twice is stored once.

    Example: mica trails import walks.jsonl
    """
    done = await memory.trails.import_walks(file)
    summary = f"[green]✓[/] {plural(done.stored, 'event')} of walks, {done.repeated:,} known already"
    if not done.stored + done.repeated:
        summary = "The file has no walk; nothing was stored."
    output.show(done, lambda console: console.print(summary))
