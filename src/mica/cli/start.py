"""up, and events overview: import transcripts and show a first look."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mica.cli.doctor import summarize_health
from mica.cli.first_look import FirstLook, first_look
from mica.cli.output import (
    OpenMemory,
    Output,
    chosen_place,
    current_user,
    describe_emptiness,
    folder_off_path,
    has_terminal,
    json_option,
    memory_command,
    open_to_read,
    pasteable,
    space_name,
    store_options,
    target,
)
from mica.cli.sample import transcripts as sample_transcripts
from mica.cli.transcripts import STOPPED, Bar, print_clients, print_imported
from mica.clients.discovery import ImportPlan, Plans, TranscriptFolder, plan_imports, usual_places
from mica.clients.importer import Imported
from mica.errors import InvalidInput, UnknownSpace
from mica.format.beliefs import summarize
from mica.format.lines import format_bytes, plural
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.model.event import EventQuery
from mica.model.walk import STARTED
from mica.settings import Settings, load_settings
from mica.store.space import file_of, space_of, without_password
from mica.store.space import spaces as space_files

SAMPLE = "sample"
BRIEF_TOKENS = 600  # of the first look: one screen
LOOK_DEADLINE_S = 2.0  # a person waits longer than an agent
EARLY_S = 1.0  # an import that takes longer shows a first look before it ends
OTHERS_NAMED = 8  # in one line; `mica upkeep spaces` lists all
PROJECTS_SHOWN = 12  # half a screen; `mica upkeep spaces` lists all


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of `mica up`: the space to serve, and the function `look`, which imports and prints the first look."""

    place: Path | str
    look: Callable[[OpenMemory], Awaitable[None]]
    is_import: bool = False  # the look writes; otherwise it only reads


@click.command()
@click.option("--transcripts", type=click.Path(exists=True, path_type=Path), help="Where to look for transcripts.")
@click.option("--sample", "is_sample", is_flag=True, help="Show the bundled sample, an invented web shop.")
@click.option("--yes", "-y", is_flag=True, help="Import without asking.")
@click.option("--import/--no-import", "imports", default=True, help="Import transcripts first, which is the default.")
@click.option("--once", "--no-serve", "once", is_flag=True, help="Show the first look and exit, without a server.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port of the server; 0 takes any free one.  [default: 6422]"
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The address of the server; 127.0.0.1, the default, is only reachable from this machine.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, the default if there is a display.")
@click.option("--admin", "is_admin", is_flag=True, help="Let the browser also purge, and ask sources.")
@store_options
@json_option
def up(
    transcripts: Path | None,
    store: str | None,
    space: str | None,
    *,
    is_sample: bool,
    yes: bool,
    imports: bool,
    once: bool,
    port: int | None,
    host: str | None,
    browser: bool,
    is_admin: bool,
    as_json: bool,
) -> None:
    """Import transcripts, show what agents did, serve the dashboard.

    Each transcript goes into the space of its project, and the current directory's project is shown first. With
    --space, only the transcripts of that space's project are imported. With --store, or the setting `store`, all
    projects are merged into that one store.

    In a terminal, the command asks before it imports. Without a terminal it imports, but merging into a store then
    needs --yes. Run the command again to import what is new. Without transcripts it shows the named space, or this
    directory's if it has a session. Otherwise it shows the bundled sample, which has a space of its own; --sample shows
    it at any time.

    The dashboard, the HTTP API, live events and MCP are served on one port until Ctrl-C. The printed link works once,
    and the browser that opens it may read and write; `mica server open` makes another. With --once or --json nothing is
    served.

    Example: mica up --sample
    """
    settings = load_settings()
    output = Output(as_json=as_json)
    if is_sample:
        given = {"--transcripts": transcripts, "--no-import": not imports or None, "--store": store, "--space": space}
        _check_sample([option for option, value in given.items() if value is not None])
    place = target(settings, store, space)
    if is_sample:
        start: Start | None = _start_sample(settings, output)
    elif not imports:
        start = Start(place=place, look=partial(_show_stored, place, output=output))
    else:
        places = [TranscriptFolder(transcripts)] if transcripts else usual_places(settings, current_user())
        into = place if store is not None or (space is None and settings.store is not None) else None
        only = place if space is not None else None
        try:
            start = _start_import(places, settings=settings, output=output, into=into, only=only, yes=yes)
        except click.Abort:  # Ctrl-C at the question is an answer, not an error that `make run` must report
            click.echo("\nmica: nothing was imported", err=True)
            return
    if start is None:
        return
    opened: OpenMemory = partial(open_memory if start.is_import else open_to_read, settings=settings)
    try:
        if not (once or as_json):
            _serve_or_look(start, opened, settings=settings, port=port, host=host, browser=browser, is_admin=is_admin)
        else:
            asyncio.run(_run(start.look, opened))
    except KeyboardInterrupt:
        click.echo(STOPPED, err=True)
        sys.exit(130)


def _check_sample(options: Sequence[str]) -> None:
    """Raise UsageError if `--sample` is combined with options that choose another space."""
    if options:
        raise click.UsageError(
            f"--sample shows the bundled transcripts in their own space; leave out {' and '.join(options)}"
        )


async def _run(look: Callable[[OpenMemory], Awaitable[None]], opened: OpenMemory) -> None:
    await look(opened)


def _serve_or_look(
    start: Start,
    opened: OpenMemory,
    *,
    settings: Settings,
    port: int | None,
    host: str | None,
    browser: bool,
    is_admin: bool,
) -> None:
    """Serve until Ctrl-C. If that is impossible, print the first look anyway, and raise the reason."""
    try:
        from mica.cli.server_process import serve_up  # an extra

        serve_up(start.place, start.look, settings=settings, port=port, host=host, browser=browser, is_admin=is_admin)
    except InvalidInput:
        asyncio.run(_run(start.look, opened))
        raise


def _start_sample(settings: Settings, output: Output, *, reason: str = "") -> Start:
    """Prepare to show the sample in a space of its own, never in a store that the user named."""
    _print_note(output, f"{reason}This is the bundled sample, an invented web shop.")
    place = file_of(SAMPLE, home=settings.home)
    plans = plan_imports([TranscriptFolder(sample_transcripts())], settings=settings, into=place)
    return Start(place=place, look=partial(_import_and_show, plans, output=output, is_sample=True), is_import=True)


def _start_import(
    places: Sequence[TranscriptFolder],
    *,
    settings: Settings,
    output: Output,
    into: Path | str | None,
    only: Path | str | None,
    yes: bool,
) -> Start | None:
    """Plan the imports, ask whether to import, and return which space to show.

    If nothing is imported, the chosen space is shown, or else a space with sessions. If there is no such space, the
    sample is shown, unless the user declined an import: then this directory's space is shown, or nothing (None) if it
    is empty.
    """
    plans = _plan_projects(places, settings=settings, into=into, only=only, output=output)
    here = target(settings, None, None)
    held = Holdings() if into or only else asyncio.run(_holdings(here, settings))
    is_agreed = _ask_to_import(plans, settings=settings, into=into, output=output, yes=yes) if plans.plans else None
    if held.events and not held.has_sessions and here not in [plan.target for plan in plans.plans]:
        _print_note(output, _describe_holdings(space_name(here), held))
    if is_agreed:
        if held.has_sessions and here not in [plan.target for plan in plans.plans]:
            own = ImportPlan(target=here, roots={}, size_bytes=0)  # it has no transcripts, but is shown first
            plans = msgspec.structs.replace(plans, plans=[own, *plans.plans])
        look = partial(_import_and_show, plans, output=output)
        return Start(place=plans.plans[0].target, look=look, is_import=True)
    stored = into or only or (here if held.has_sessions else None)
    imported = [plan.target for plan in plans.plans if asyncio.run(_has_events(plan.target, settings))]
    if stored is None and imported:
        stored = imported[0]
    if stored is None and is_agreed is False and held.events:
        stored = here
    reason = "" if plans.plans else _describe_absence(places, only)
    if stored is None and is_agreed is False:
        if (folder := folder_off_path()) is not None:
            output.console.print(
                f"[dim]So that this shell finds `mica`:[/] {escape(_path_command(folder))}", soft_wrap=True
            )
        return None
    if stored is None:
        return _start_sample(settings, output, reason=reason)
    hint = "" if into or only else "; `mica up --sample` shows an invented web shop"
    _print_note(output, f"{reason}This is what {space_name(stored)} holds{hint}.")
    others = [place for place in imported if place != stored]
    return Start(place=stored, look=partial(_show_stored, stored, output=output, others=others))


def _describe_absence(places: Sequence[TranscriptFolder], only: Path | str | None) -> str:
    whose = "" if only is None else f" of {space_name(only)}"
    return f"No transcripts{whose} in {', '.join(str(place.path) for place in places)}. "


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """How many events and marks a space has, and whether any of its events belongs to a session."""

    events: int = 0
    marks: int = 0
    has_sessions: bool = False


def _describe_holdings(name: str, held: Holdings) -> str:
    count = plural(held.marks, "mark") if held.marks else plural(held.events, "event")
    return f"{name}, the space of this directory, has only {count} and no session; `mica up --space .` shows it."


def _print_note(output: Output, sentence: str) -> None:
    if output.as_json:
        click.echo(f"mica: {pasteable(sentence)}", err=True)
    else:
        output.console.print(f"[yellow]{escape(pasteable(sentence))}[/]", soft_wrap=True)


def _plan_projects(
    places: Sequence[TranscriptFolder],
    *,
    settings: Settings,
    into: Path | str | None,
    only: Path | str | None,
    output: Output,
) -> Plans:
    """Plan the imports: the project of the current directory first, then the others, the latest first.

    With `only`, imports into other spaces are left out; a note says how many.
    """
    plans = plan_imports(places, settings=settings, into=into)
    if plans.unreadable:
        file, reason = next(iter(plans.unreadable.items()))
        count = plural(len(plans.unreadable), "transcript")
        _print_note(output, f"{count} could not be read, the first: {file}: {reason}.")
    others = [plan for plan in plans.plans if only is not None and plan.target != only]
    if others and only is not None:
        count = plural(sum(len(plan.files) for plan in others), "transcript")
        projects = plural(len(others), "other project")
        _print_note(output, f"Only {space_name(only)} is imported; {count} of {projects} left to their own spaces.")
        plans = msgspec.structs.replace(plans, plans=[plan for plan in plans.plans if plan.target == only], clients={})
    here = space_of(Path.cwd(), home=settings.home).file
    return msgspec.structs.replace(plans, plans=sorted(plans.plans, key=lambda plan: plan.target != here))


def _ask_to_import(
    plans: Plans, *, settings: Settings, into: Path | str | None, output: Output, yes: bool
) -> bool | None:
    """Print what can be imported, and ask. Returns True to import, and False if the user declines.

    Nothing is asked if `yes` is set or if nothing is new. Without a terminal, each project is imported into its own
    space without asking; imports into one shared store would need an answer, so None is returned instead.
    """
    waiting = asyncio.run(_count_unread(plans.plans, settings))
    projects = len(plans.plans) if into is None else _count_projects(plans, settings)
    if not output.as_json:
        sentence = _announcement(plans, into=into, waiting=waiting, projects=projects)
        output.console.print(escape(sentence), soft_wrap=True)
        print_clients(output.console, plans)
        if len(plans.plans) > 1:
            output.console.print(_project_table(plans.plans, settings))
    if yes or not waiting:
        return True
    if output.as_json or not has_terminal():
        if into is None:
            return True
        count = plural(waiting, "transcript")
        _print_note(output, f"Nothing was imported: there is no terminal to ask in. --yes imports {count}.")
        return None
    if into is None:
        question = "Import them?"
    else:  # it may be shared, and what is merged cannot be separated again
        where = without_password(into)
        question = f"Merge {projects:,} projects into {where}?" if projects > 1 else f"Import them into {where}?"
    is_agreed = click.confirm(question, default=into is None)
    if not is_agreed:
        declined = pasteable("Nothing was imported. `mica up --sample` shows an invented web shop.")
        output.console.print(escape(declined), soft_wrap=True)
    return is_agreed


def _count_projects(plans: Plans, settings: Settings) -> int:
    """Count the spaces that the transcripts would go into if each went into the space of its project."""
    roots = {root for plan in plans.plans for root in plan.roots.values()}
    return len({root and space_of(root, home=settings.home).file for root in roots})


def _announcement(plans: Plans, *, into: Path | str | None, waiting: int, projects: int) -> str:
    transcripts = f"{plural(plans.files, 'transcript')} ({format_bytes(plans.size_bytes)})"
    if not waiting:
        return f"Nothing new in {transcripts}."
    new = "" if waiting == plans.files else f", {waiting:,} with something new"
    where = "each goes into its project's own space"
    if into is not None:
        merged = "all are merged into" if projects > 1 else "all go into"
        where = f"{merged} {without_password(into)}"
    return f"Found {transcripts}{new} in {plural(projects, 'project')}; {where}."


def _project_table(plans: Sequence[ImportPlan], settings: Settings) -> Table:
    here = space_of(Path.cwd(), home=settings.home).file
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("project", "transcripts", "size", "directory"):
        table.add_column(column, justify="right" if column in ("transcripts", "size") else "left", overflow="fold")
    for plan in plans[:PROJECTS_SHOWN]:
        directory = next((str(root) for root in plan.roots.values() if root is not None), "")
        note = " [green](here)[/]" if plan.target == here else ""
        numbers = f"{len(plan.files):,}", format_bytes(plan.size_bytes)
        table.add_row(escape(space_name(plan.target)) + note, *numbers, escape(directory))
    if len(plans) > PROJECTS_SHOWN:
        table.add_row(f"[dim]and {len(plans) - PROJECTS_SHOWN:,} more[/]", "", "", "")
    return table


async def _show_stored(
    place: Path | str, opened: OpenMemory, *, output: Output, others: Sequence[Path | str] = ()
) -> None:
    sessions = {}
    for other in others:
        async with opened(other) as memory:
            sessions[space_name(other)] = await _count_sessions(memory)
    async with opened(place) as memory:
        await _show_first_look(memory, place, output, others=sessions, with_steps=True)


async def _has_events(place: Path | str, settings: Settings) -> bool:
    try:
        async with open_memory(place, settings=settings, must_exist=True) as memory:
            return (await memory.upkeep.sizes()).events > 0
    except UnknownSpace:
        return False


async def _holdings(place: Path | str, settings: Settings) -> Holdings:
    try:
        async with open_memory(place, settings=settings, must_exist=True) as memory:
            sizes, summary = await memory.upkeep.sizes(), await memory.events.overview()
    except UnknownSpace:
        return Holdings()
    return Holdings(events=sizes.events, marks=sizes.marks, has_sessions=bool(summary.sessions))


async def _count_sessions(memory: Memory) -> int:
    started = await memory.events.query(EventQuery(names=(STARTED,), limit=None))
    return len({event.context.session for event in started})


async def _count_unread(plans: Sequence[ImportPlan], settings: Settings) -> int:
    """Count the transcripts that have records not yet imported."""
    count = 0
    for plan in plans:
        try:
            async with open_memory(plan.target, settings=settings, must_exist=True) as memory:
                count += len(await memory.clients.unread(plan.files))
        except UnknownSpace:
            count += len(plan.files)
    return count


async def _import_and_show(plans: Plans, opened: OpenMemory, *, output: Output, is_sample: bool = False) -> None:
    """Import all plans and print the first look at the first space: at the end, and early if the import is long."""
    first = plans.plans[0]
    results: dict[str, Imported] = {}
    others: dict[str, int] = {}
    with Bar(plans, load_settings().home) as bar:
        async with opened(first.target) as memory:
            importing = asyncio.create_task(bar.run(memory, first))
            try:
                await asyncio.wait([importing], timeout=EARLY_S)
                if not importing.done() and not output.as_json:
                    with bar.aside():
                        await _show_first_look(
                            memory, first.target, output, note=", a first look while the import continues"
                        )
                done = await importing
                if first.files:
                    results[space_name(first.target)] = done
            finally:  # the space is closed only after the import has stopped using it
                importing.cancel()
                await asyncio.gather(importing, return_exceptions=True)
            for plan in plans.plans[1:]:
                async with opened(plan.target) as other:
                    name = space_name(plan.target)
                    results[name], others[name] = await bar.run(other, plan), await _count_sessions(other)
            with bar.aside():
                await _show_first_look(
                    memory,
                    first.target,
                    output,
                    results=results,
                    others=others,
                    is_sample=is_sample,
                    with_steps=True,
                )


@click.command()
@memory_command
async def overview(memory: Memory, output: Output) -> None:
    """Show what mica found, the next brief, and recent work.

    Example: mica events overview
    """
    await _show_first_look(memory, chosen_place(), output, has_files=True)


async def _show_first_look(
    memory: Memory,
    place: Path | str,
    output: Output,
    *,
    note: str = "",
    results: Mapping[str, Imported] | None = None,
    others: Mapping[str, int] | None = None,
    is_sample: bool = False,
    with_steps: bool = False,
    has_files: bool = False,
) -> None:
    summary = await memory.events.overview()
    brief = await memory.brief(budget_tokens=BRIEF_TOKENS, deadline_s=LOOK_DEADLINE_S, is_preview=True)
    has_tree = await memory.events.directory() is not None
    look = FirstLook(
        title=space_name(place) + note,
        overview=summary,
        brief=brief,
        found=summarize(await memory.beliefs.in_force()),
        advice=await summarize_health(memory, place),
        has_files=has_files,
        emptiness=await describe_emptiness(memory),
    )

    def for_people(console: Console) -> None:
        console.print(first_look(look))
        if results is not None:
            print_imported(console, results)
        if others:
            console.print(escape(_describe_others(others)), soft_wrap=True)
        if with_steps:
            location = without_password(place) if memory.location == ":memory:" else memory.location
            console.print(_next_steps(location, has_tree=has_tree), soft_wrap=True)

    document: dict[str, object] = {
        "space": space_name(place),
        "is_sample": is_sample,
        "found": look.found.counts,
        "brief": brief,
        "overview": summary,
        "advice": look.advice,
    }
    if results is not None:
        document["imported"] = results
    if others:
        document["other_projects"] = [{"space": name, "sessions": count} for name, count in others.items()]
    output.show(document, for_people)


def _next_steps(location: str, *, has_tree: bool) -> str:
    """List commands to try next, with the option that selects the space; with `has_tree`, include `navigate`."""
    option = _space_option(location, home=load_settings().home)
    commands = [
        (f'mica search "words"{option}', "find what was said, decided and committed"),
        (f'mica brief "your task"{option}', "what an agent would receive for it"),
    ]
    if has_tree:
        commands.append((f'mica navigate "your task"{option}', "the files it needs, with lines and reasons"))
    commands += [
        (f"mica beliefs{option}", "what mica holds to be true; add, correct or end it"),
        (f"mica events tail{option}", "the log itself; `mica events tree ID` shows what led to what"),
        (f'mica mark "what you saw"{option}', "add an observation; `mica` alone lists all commands"),
        ("mica install", "let coding agents use it: hooks, MCP server, commands"),
    ]
    if (folder := folder_off_path()) is not None:
        commands.insert(0, (_path_command(folder), "so that this shell finds `mica`"))
    width = max(len(command) for command, _ in commands)
    lines = [f"  {escape(command.ljust(width))}   [dim]{escape(purpose)}[/]" for command, purpose in commands]
    return "\n".join(["[bold]What to type next[/]", *lines])


def _path_command(folder: str) -> str:
    return f'export PATH="{folder}:$PATH"'


def _describe_others(sessions: Mapping[str, int]) -> str:
    """Name the projects that are not shown, with their numbers of sessions."""
    named = [f"{name} ({plural(count, 'session')})" for name, count in list(sessions.items())[:OTHERS_NAMED]]
    more = f" and {len(sessions) - OTHERS_NAMED:,} more (`mica upkeep spaces`)" if len(sessions) > OTHERS_NAMED else ""
    return pasteable(
        f"{plural(len(sessions), 'other project')}: {', '.join(named)}{more}; `mica up --space NAME` shows one"
    )


def _space_option(location: str, *, home: Path) -> str:
    """Return the shortest option that selects a space. It is empty for the space of the current directory."""
    if space_of(Path.cwd(), home=home).file == Path(location):
        return ""
    name = space_name(location)
    if file_of(name, home=home) != Path(location):
        return f" --store {shlex.quote(location)}"
    short = name.rpartition("-")[0]
    alike = [file for file in space_files(home) if space_name(file).startswith(short)]
    return f" --space {short if short and len(alike) == 1 and not Path(short).is_dir() else name}"
