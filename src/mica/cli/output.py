"""Shared parts of commands: common options, opening a space, printing results."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeAlias
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
from rich.console import Console

from mica.clients.installation import UserHome
from mica.errors import InvalidInput, UnknownSpace
from mica.format.lines import CONTROL, ZONE, plural
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.model.event import EventQuery
from mica.search.dates import parse_moment
from mica.settings import Settings, load_settings
from mica.store.space import (
    SUFFIX,
    file_of,
    is_address,
    recall_directory,
    remember_directory,
    space_of,
    spaces,
    without_password,
)

P = ParamSpec("P")
OpenMemory: TypeAlias = Callable[[Path | str], AbstractAsyncContextManager[Memory]]

LIMIT_MAX = 1_000_000  # of what a command lists; an export has no limit
SPACES_NAMED = 5  # in an error; `mica upkeep spaces` lists all
WIDTH_WITHOUT_TERMINAL = 120  # a pipe has no width; lines stay readable in a log


class Output:
    """Prints the result of a command: as one JSON document, or as text for people."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=False, emoji=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL)

    def show(self, document: object, for_people: Callable[[Console], None]) -> None:
        """Print the document if JSON was requested; else call `for_people`, which prints text to a console."""
        if self.as_json:
            click.echo(escape_control(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()))
        else:
            for_people(self.console)


def folder_off_path() -> str | None:
    """Return the folder of the running `mica` if it is missing from PATH; otherwise, and under `python -m`, None."""
    running = Path(sys.argv[0])
    on_path = shutil.which("mica")
    if running.name != "mica" or (on_path is not None and running.exists() and Path(on_path).samefile(running)):
        return None
    return str(running.absolute().parent)


def program() -> str:
    """Return the command that starts mica in this shell: `mica`, or its path if PATH does not contain its folder."""
    if (folder := folder_off_path()) is None:
        return "mica"
    running, here = Path(folder) / "mica", Path.cwd()
    return shlex.quote(str(running.relative_to(here) if running.is_relative_to(here) else running))


def pasteable(text: str) -> str:
    """Return the text with each suggested command, such as `mica up`, in a form that this shell can run."""
    return text.replace("`mica ", f"`{program()} ")


def escape_control(text: str) -> str:
    """Escape control characters in a JSON text, so that it cannot control a terminal. The JSON value stays the same."""
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def has_terminal() -> bool:
    """Return True if a person can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def current_user() -> UserHome:
    """Return the home folder and environment of the user who runs this command."""
    return UserHome(path=Path(os.environ.get("HOME") or Path.home()), environment=os.environ)


def json_option(function: Callable[P, None]) -> Callable[P, None]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def limit_option(
    text: str, *, default: int | None = None, most: int = LIMIT_MAX
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return the option --limit, -n: from 1 to `most`."""
    limits = click.IntRange(1, most)
    return click.option("--limit", "-n", type=limits, default=default, show_default=default is not None, help=text)


def store_options(function: Callable[P, None]) -> Callable[P, None]:
    """Add the options --store and --space, which choose a space, to a command."""
    function = click.option(
        "--space", metavar="NAME|DIR", help="Another space: its name, the beginning of its name, or a directory."
    )(function)
    return click.option("--store", metavar="FILE|ADDRESS", help="A store to use instead of the directory's own space.")(
        function
    )


def memory_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """Make a command that reads one space: add --store, --space and --json, open the memory and close it.

    No space is created. A directory that has no space yet counts as an empty space. A store that was chosen with
    --store or in the settings must exist.
    """
    return _with_memory(function, makes=False)


def making_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """Make a command that writes into one space, which is created if needed."""
    return _with_memory(function, makes=True)


def showing_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """Make a command that shows one space on a screen until the user quits; it has no --json."""
    return _with_memory(function, makes=True, has_document=False)


def following_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """Make a command that waits for events.

    The space of a directory is created if needed. A store that was chosen with --store or in the settings must exist.
    """
    return _with_memory(function, makes=None)


def _with_memory(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
    *,
    makes: bool | None,
    has_document: bool = True,
) -> Callable[P, None]:

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json, store, space = (kwargs.pop(name, None) for name in ("as_json", "store", "space"))
        settings = load_settings()
        ZONE.set(settings.zone())
        place = target(settings, store, space)
        if makes and has_document and str(place) == ":memory:":
            raise click.UsageError("a store in :memory: is lost when this command ends; give a file")
        is_made = not _is_named(place) if makes is None else makes
        opens = open_memory if is_made else open_to_read
        opening = opens(place, settings=settings, reads_ahead=not has_document)  # only a dashboard runs long enough

        async def run_with_memory() -> None:
            async with opening as memory:
                if is_made and space is not None and isinstance(place, Path):
                    remember_directory(place, Path(str(space)))
                await function(memory, Output(as_json=bool(as_json)), *args, **kwargs)

        asyncio.run(run_with_memory())

    chosen = store_options(run)
    return json_option(chosen) if has_document else chosen


def chosen_place() -> Path | str:
    """Return the file or address of the space that the options and settings select, even if it does not exist yet."""
    options = click.get_current_context().params
    return target(load_settings(), options.get("store"), options.get("space"))


async def describe_emptiness(memory: Memory) -> str | None:
    """If a space has no events, return a sentence that says so, and how to begin; else None."""
    if memory.location != ":memory:":
        if await memory.events.query(EventQuery(limit=1)):
            return None
        return "this space is empty; `mica up` imports what agents did, `mica mark` records what you see"
    place, settings = chosen_place(), load_settings()
    if str(place) == ":memory:":
        return "a store in :memory: is empty"
    directory = click.get_current_context().params.get("space")
    about = "this directory" if directory is None else str(directory)
    sentence = f"there is no memory of {about} yet; `mica up` imports what agents did, `mica mark` records what you see"
    others = [] if is_address(place) else sorted(map(space_name, spaces(settings.home)))
    if not others:
        return sentence
    more = f" and {len(others) - SPACES_NAMED:,} more (`mica upkeep spaces`)" if len(others) > SPACES_NAMED else ""
    return f"{sentence}; --space NAME selects another space: {', '.join(others[:SPACES_NAMED])}{more}"


def sentence_of(clause: str) -> str:
    """Return a clause as a sentence, with a capital letter, a full stop, and commands that this shell can run."""
    return pasteable(f"{clause[:1].upper()}{clause[1:]}.")


def print_late(missing: Mapping[str, str]) -> None:
    """If a source did not answer in time, print to standard error how to give it more time."""
    if any(reason.startswith("no answer within") for reason in missing.values()):
        click.echo("mica: --deadline SECONDS gives them more time", err=True)


def print_unrecorded(memory: Memory) -> None:
    """If there is no space yet, print to standard error that nothing was recorded."""
    if memory.location == ":memory:":
        click.echo("mica: not recorded: there is no space here yet; `mica mark` and `mica import` create one", err=True)


@asynccontextmanager
async def open_to_read(place: Path | str, *, settings: Settings, reads_ahead: bool = True) -> AsyncIterator[Memory]:
    """Open a space for reading.

    If a directory has no space yet, an empty one in memory takes its place. Raises UnknownSpace if a store that was
    chosen with --store or in the settings does not exist.
    """
    try:
        memory = await open_memory(place, settings=settings, must_exist=True, reads_ahead=reads_ahead)
    except UnknownSpace:
        if _is_named(place):
            raise
        memory = await open_memory(":memory:", settings=settings, reads_ahead=reads_ahead)
    try:
        yield memory
    finally:
        await memory.close()


def _is_named(place: Path | str) -> bool:
    """Return True if a space was chosen with --store or in the settings; False if it belongs to a directory.

    An address counts as chosen only if it contains the name of a space.
    """
    return "space" in parse_qs(urlsplit(str(place)).query) if is_address(place) else isinstance(place, str)


def target(settings: Settings, store: object, space: object, *, directory: Path | None = None) -> Path | str:
    """Return the store that --store or --space selects; else the `store` setting; else the space of `directory`.

    `store` and `space` are the values of these options, and `directory` is the current directory by default. `space` is
    the name of a space, its unique beginning, or a directory. Raises InvalidInput if no name or several names match, or
    if the folder of a file does not exist, and UsageError if both options are given.
    """
    if store is not None and space is not None:
        raise click.UsageError("give --store or --space, not both")
    if store == "":
        raise click.UsageError("--store needs a file or an address, such as space.db or postgresql://…")
    if store is not None:
        return _checked_store(str(store), home=settings.home)
    if space is None and settings.store is not None:
        return _checked_store(settings.store, home=settings.home)
    if space is None:
        return space_of(directory or Path.cwd(), home=settings.home).file
    if space and file_of(str(space), home=settings.home).exists():
        return file_of(str(space), home=settings.home)
    if space and Path(str(space)).is_dir():
        return space_of(Path(str(space)), home=settings.home).file
    return _file_beginning_with(str(space), home=settings.home)


def _checked_store(store: str, *, home: Path) -> str:
    """Return `store` unchanged. Raises InvalidInput if it is a file in a folder that does not exist.

    A missing folder inside mica's data folder `home` is allowed, because mica creates it when it opens the store.
    """
    if is_address(store) or "\0" in store:  # the code that opens it reports a bad name
        return store
    file = Path(store).expanduser().absolute()
    try:
        is_missing = not file.parent.exists()
    except OSError:  # reported by the code that opens it
        is_missing = False
    if is_missing and not file.is_relative_to(home.absolute()):
        raise InvalidInput(f"the folder {file.parent} does not exist; create it first, or give another file")
    return store


def _file_beginning_with(prefix: str, *, home: Path) -> Path:
    """Return the file of the space whose name begins with `prefix`. Raises InvalidInput if not exactly one does."""
    files = [file for file in spaces(home) if prefix and space_name(file).startswith(prefix)]
    if len(files) == 1:
        return files[0]
    if files:
        more = f" and {len(files) - SPACES_NAMED:,} more" if len(files) > SPACES_NAMED else ""
        listed = ", ".join(map(_name_and_directory, sorted(files)[:SPACES_NAMED])) + more
        raise InvalidInput(f"{plural(len(files), 'space')} begin with {prefix!r}: {listed}; give more of the name")
    raise InvalidInput(
        f"no space or directory is called {prefix!r}; `mica upkeep spaces` lists the spaces. A directory gets a space "
        "with the first `mica mark` in it; --store FILE makes one in a file of your choice"
    )


def _name_and_directory(file: Path) -> str:
    directory = recall_directory(file)
    return space_name(file) + (f" ({directory})" if directory else "")


def space_name(memory_target: Path | str) -> str:
    """Return the name of the space in a file or at an address; an address without a name is returned as it is."""
    if is_address(memory_target):
        named = parse_qs(urlsplit(str(memory_target)).query).get("space")
        return named[0] if named else without_password(memory_target)
    return Path(memory_target).name.removesuffix(SUFFIX)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt inside this block, so that a prompt ends at once."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A time: ISO 8601, a duration before now (90s, 15m, 2h, 3d, 1w), or a phrase such as "last Tuesday"."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_moment(str(value), now=datetime.now(UTC), zone=load_settings().zone())
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


def check_order(since: datetime | None, until: datetime | None) -> None:
    """Raise UsageError if the first time is not before the second."""
    if since is not None and until is not None and since >= until:
        raise click.UsageError(f"--since {since.isoformat()} is not before --until {until.isoformat()}; swap them")


class Span(click.ParamType[timedelta]):
    """A duration: 90s, 15m, 2h, 3d, 1w."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration; write 90s, 15m, 2h, 3d or 1w", param, ctx)
        return timedelta(**{UNITS[match[2]]: int(match[1])})


def standard_input() -> str:
    """Read all of standard input as text. Raises InvalidInput, with the number of the line, if it is not UTF-8."""
    content = sys.stdin.buffer.read()
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"standard input is not UTF-8: line {line:,} has the byte 0x{content[error.start]:02x}, so nothing was "
            "read; convert it first, for example with `iconv -f latin1 -t utf-8`"
        ) from error
