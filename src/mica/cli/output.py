"""What commands share: the options every command has, and one way to print a result."""

from __future__ import annotations

import asyncio
import functools
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
from rich.console import Console

from mica.errors import InvalidInput, UnknownSpace
from mica.format.lines import ZONE
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.search.dates import moment
from mica.settings import Settings, load_settings
from mica.store.space import SUFFIX, file_of, is_address, shown, space_of

P = ParamSpec("P")

WIDTH_WITHOUT_TERMINAL = 120  # a pipe has no width; lines stay readable in a log


class Output:
    """Where results go: one JSON document, or text for people."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=False, emoji=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL)

    def show(self, document: object, for_people: Callable[[Console], None]) -> None:
        """Print the document as JSON, or let `for_people` draw it."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        else:
            for_people(self.console)


def json_option(function: Callable[P, None]) -> Callable[P, None]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def store_options(function: Callable[P, None]) -> Callable[P, None]:
    """The options that choose a space."""
    function = click.option(
        "--space", metavar="NAME|DIR", help="Another space: a name of `mica spaces`, or a directory."
    )(function)
    return click.option("--store", metavar="FILE|ADDRESS", help="A store in place of the directory's own space.")(
        function
    )


def memory_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """A command that reads one space: adds --store, --space and --json, opens the memory and closes it.

    The directory's own space is empty while it does not exist; reading makes none, and one that was named must exist.
    """
    return _opened(function, makes=False)


def making_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """A command that writes into one space, which is made if need be."""
    return _opened(function, makes=True)


def showing_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """A command that shows one space, which is made if need be, until somebody leaves it; it has no document."""
    return _opened(function, makes=True, has_document=False)


def following_command(
    function: Callable[Concatenate[Memory, Output, P], Awaitable[None]],
) -> Callable[P, None]:
    """A command that waits for what others write: a directory's own space is made, one that is named must exist."""
    return _opened(function, makes=None)


def _opened(
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
            raise click.UsageError("what is written into :memory: is gone when this command ends; give a file")
        is_made = not _is_named(place) if makes is None else makes
        opening = open_memory(place, settings=settings) if is_made else reading(place, settings=settings)

        async def opened() -> None:
            async with opening as memory:
                memory.reads_ahead = False
                await function(memory, Output(as_json=bool(as_json)), *args, **kwargs)

        asyncio.run(opened())

    chosen = store_options(run)
    return json_option(chosen) if has_document else chosen


def print_late(missing: Mapping[str, str]) -> None:
    """Say on standard error how those get more time that did not answer within theirs."""
    if any(reason.startswith("no answer within") for reason in missing.values()):
        click.echo("mica: --deadline SECONDS gives them more time", err=True)


def print_unrecorded(memory: Memory) -> None:
    """Say on standard error that nothing was recorded, where a command that reads found no space."""
    if memory.location == ":memory:":
        click.echo("mica: not recorded: there is no space here yet; `mica mark` and `mica import` make one", err=True)


@asynccontextmanager
async def reading(place: Path | str, *, settings: Settings) -> AsyncIterator[Memory]:
    """What is there; nothing where the space of a directory is not made yet. Raises UnknownSpace for another."""
    try:
        memory = await open_memory(place, settings=settings, must_exist=True)
    except UnknownSpace:
        if _is_named(place):
            raise
        memory = await open_memory(":memory:", settings=settings)
    try:
        yield memory
    finally:
        await memory.close()


def _is_named(place: Path | str) -> bool:
    """Whether somebody gave the name of a space, by which another would be meant than the directory's own."""
    return "space" in parse_qs(urlsplit(str(place)).query) if is_address(place) else isinstance(place, str)


def target(settings: Settings, store: object, space: object, *, directory: Path | None = None) -> Path | str:
    """What the options name, else the space of a directory. Raises InvalidInput when there is no such space."""
    if store is not None and space is not None:
        raise click.UsageError("give --store or --space, not both")
    if store == "":
        raise click.UsageError("--store needs a file or an address, such as space.db or postgresql://…")
    if store is not None:
        return str(store)
    if space is None:
        return settings.store or space_of(directory or Path.cwd(), home=settings.home).file
    if space and file_of(str(space), home=settings.home).exists():
        return file_of(str(space), home=settings.home)
    if space and Path(str(space)).is_dir():
        return space_of(Path(str(space)), home=settings.home).file
    raise InvalidInput(f"no space and no directory is called {str(space)!r}; `mica spaces` lists the spaces")


def space_name(memory_target: Path | str) -> str:
    """What people call the space at a target."""
    if is_address(memory_target):
        named = parse_qs(urlsplit(str(memory_target)).query).get("space")
        return named[0] if named else shown(memory_target)
    return Path(memory_target).name.removesuffix(SUFFIX)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let one Ctrl-C end a prompt. While a loop runs, the first only cancels its task, which waits for the prompt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A time: ISO 8601, how long ago, as in 90s, 15m, 2h, 3d, 1w, or a phrase such as «last Tuesday»."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment(str(value), now=datetime.now(UTC), zone=load_settings().zone())
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


def check_order(since: datetime | None, until: datetime | None) -> None:
    """Raise UsageError when no time is between the two."""
    if since is not None and until is not None and since >= until:
        raise click.UsageError(f"--since {since.isoformat()} is not before --until {until.isoformat()}; exchange them")


class Span(click.ParamType[timedelta]):
    """How long: 90s, 15m, 2h, 3d, 1w."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if match is None:
            self.fail(f"{value!r} is no length of time; write 90s, 15m, 2h, 3d or 1w", param, ctx)
        return timedelta(**{UNITS[match[2]]: int(match[1])})


def given_text() -> str:
    """All of standard input. Raises InvalidInput, naming the line, where it is not UTF-8."""
    given = sys.stdin.buffer.read()
    try:
        return given.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = given.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"standard input is not UTF-8: line {line:,} has the byte 0x{given[error.start]:02x}, so nothing of it was "
            "taken; convert it first, as `iconv -f latin1 -t utf-8` does"
        ) from error
