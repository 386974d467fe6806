"""Live objects and functions of this process as sources."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Annotated, TypeVar

import msgspec

from mica.errors import SourceFailed
from mica.redact import redact
from mica.sources.drivers.rows import MappedRows, SourceRecord
from mica.sources.drivers.tables import About, Around, DeclaredSource, SourceQueryPreview, SourceTable, Where
from mica.sources.protocol import RANK_LIVE, Concept, Fragment

R = TypeVar("R")

LOOKS_MAX = 3  # attempts to read an object that changes meanwhile
ROWS_MAX = 100_000  # read for one question, about 100 ms; more belong in a database
ROW = ("key", "text")  # a mapping with one of these is a row by itself

Conditions = Annotated[dict[str, str], About(description='columns and what they must equal, as in { id = "{id}" }')]


class MemoryTable(SourceTable, frozen=True, kw_only=True, tag="memory"):
    """A slot for an object that a program registers: `memory.sources.register(NAME, …)`."""

    where: Conditions = msgspec.field(default_factory=dict)


class PythonTable(SourceTable, frozen=True, kw_only=True, tag="python"):
    """A function of an installed module, called with the concept."""

    entry: Annotated[str, About(pattern=r"^[\w.]+:[\w.]+$", description='"module:function"')]
    arguments: Annotated[dict[str, object], About(description="a table of what else the function is given")] = (
        msgspec.field(default_factory=dict)
    )
    where: Conditions = msgspec.field(default_factory=dict)


class LiveSource(DeclaredSource):
    """A live source. Calling, iterating and reading attributes may block, so they run in threads."""

    def __init__(self, name: str, table: MemoryTable | PythonTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._where = Where(table.where)

    @abstractmethod
    async def asking(self, concept: Concept) -> Callable[[], object]:
        """The function that gives the object or the answer. Its errors are the application's own."""

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        try:
            ask = await self.asking(concept)
            if _is_async(getattr(ask, "func", ask)):  # calling it only makes a coroutine
                said = ask()
            else:
                said = await self.blocking(lambda: self._looked(ask(), concept, now))
                if isinstance(said, MappedRows):
                    return said
            if inspect.isawaitable(said):
                said = await said
            if isinstance(said, AsyncIterator):
                said = await _first(said, self.declared.fragments_max + 1)
            read = await self.blocking(lambda: self._looked(said, concept, now))
            if isinstance(read, MappedRows):
                return read
            raise SourceFailed(self.name, f"{self.place} gave a {type(read).__name__} that gives another; give rows")
        except (SourceFailed, TimeoutError):
            raise
        except Exception as error:  # code of the application may raise anything
            raise SourceFailed(self.name, f"{self.place} raised {type(error).__name__}: {error}") from error

    def _looked(self, said: object, concept: Concept, now: datetime) -> object:
        """The rows of an object or an answer; an awaitable is returned as it is, for the loop."""
        if inspect.isawaitable(said) or isinstance(said, AsyncIterator):
            return said
        looks = 1 if isinstance(said, Iterator) else LOOKS_MAX  # an iterator can be read only once
        return _again(lambda: self._read(said, concept, now), looks=looks)

    def _read(self, said: object, concept: Concept, now: datetime) -> MappedRows:
        most = self.declared.fragments_max
        wanted = self._where.of(concept)
        rows = islice(_rows(said, concept, name=self.name, is_row=bool(self.mapping.given)), ROWS_MAX)
        fitting = (row for row in rows if isinstance(row, Fragment) or self._where.fits(row, wanted))
        taken = list(islice(fitting, most + 1))
        whole = [msgspec.structs.replace(row, source=self.name) for row in taken[:most] if isinstance(row, Fragment)]
        told = self.mapping.fragments(
            (row for row in taken[:most] if isinstance(row, SourceRecord)), now=now, where=f"{self.name}#"
        )
        more = (self.cut("rows"),) if len(taken) > most else ()
        return MappedRows((*whole, *told.fragments), told.missing + more)

    async def close(self) -> None:
        """Nothing is held but the application's object."""


class MemorySource(LiveSource):
    """An object of this process, or a function, registered at run time."""

    driver = "memory"
    rank = RANK_LIVE
    is_live = True

    def __init__(self, name: str, table: MemoryTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._things: tuple[object, ...] = ()  # empty, or the registered object, which may be None

    def hold(self, thing: object) -> None:
        """Read this object from now on."""
        self._things = (thing,)

    @property
    def place(self) -> str:
        return " ".join(f"a live {type(thing).__qualname__}" for thing in self._things) or "nothing registered yet"

    async def asking(self, concept: Concept) -> Callable[[], object]:
        if not self._things:
            raise SourceFailed(self.name, f"nothing is registered; call memory.sources.register({self.name!r}, …)")
        thing = self._things[0]
        return partial(thing, concept) if callable(thing) else lambda: thing

    def explain(self, concept: Concept) -> SourceQueryPreview:
        return self.preview(self.place, self._where.of(concept))

    async def check(self) -> str:
        if not self._things:
            raise SourceFailed(self.name, f"nothing is registered; call memory.sources.register({self.name!r}, …)")
        return self.place


class PythonSource(LiveSource):
    """A function that the settings name."""

    driver = "python"
    table: PythonTable

    def __init__(self, name: str, table: PythonTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._function: Callable[..., object] | None = None

    @property
    def place(self) -> str:
        return self.table.entry

    async def asking(self, concept: Concept) -> Callable[[], object]:
        return partial(await self._loaded(), concept, **self.table.arguments)

    async def _loaded(self) -> Callable[..., object]:
        if self._function is None:
            self._function = await self.blocking(self._load)
        return self._function

    def _load(self) -> Callable[..., object]:
        module, _, path = self.table.entry.partition(":")
        try:
            found: object = import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise SourceFailed(
                self.name,
                f"entry = {self.table.entry!r} is not there ({error}); install its package, or correct the name",
            ) from error
        if not callable(found):
            raise SourceFailed(self.name, f"entry = {self.table.entry!r} is no function but {type(found).__name__}")
        return found

    def explain(self, concept: Concept) -> SourceQueryPreview:
        told = {name: f"{name}={value}" for name, value in self.table.arguments.items()}
        given = {name: redact(text).partition("=")[2] for name, text in told.items()}  # redacted by name
        asks = f"{self.table.entry}({', '.join(['concept', *given])})"
        return self.preview(asks, {"concept": str(concept), **given, **self._where.of(concept)})

    async def check(self) -> str:
        await self._loaded()
        return f"{self.table.entry} is there"


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _rows(said: object, concept: Concept, *, name: str, is_row: bool) -> Iterator[SourceRecord | Fragment]:
    """The rows of an object or an answer.

    A mapping or object is one row when it has a key or a text, or where the columns are mapped; else each entry of it
    is a fact, under its name.
    """
    if said is None:
        return
    if isinstance(said, Fragment):
        yield said
    elif isinstance(said, str | int | float):
        yield SourceRecord({"key": name, "text" if isinstance(said, str) else "value": said}, concept)
    elif isinstance(said, Iterable) and not isinstance(said, Mapping):
        for number, each in enumerate(said, start=1):
            for row in _rows(each, concept, name=name, is_row=True):
                yield row._replace(name=str(number)) if isinstance(row, SourceRecord) else row
    else:
        columns = said if isinstance(said, Mapping) else _attributes(said)
        if is_row or any(column in columns for column in ROW):
            yield SourceRecord(said if is_row else columns, concept, root=columns)
            return
        for key, value in list(columns.items()):
            facts = {"key": key, **value} if isinstance(value, Mapping) else {"key": key, "value": value}
            yield SourceRecord(facts, concept, name=str(key), root=columns)


def _attributes(thing: object) -> Mapping[str, object]:
    """The public attributes of an object."""
    names = getattr(thing, "__struct_fields__", None) or getattr(thing, "__dict__", None) or dir(thing)
    public = (str(each) for each in list(names) if not str(each).startswith("_"))
    found = ((each, getattr(thing, each)) for each in public)
    return {each: value for each, value in found if not callable(value)}


def _again(look: Callable[[], R], *, looks: int) -> R:
    """Read an object again if it changed while it was read."""
    for _ in range(looks - 1):
        try:
            return look()
        except RuntimeError:
            continue
    return look()


async def _first(answers: AsyncIterator[object], most: int) -> list[object]:
    found: list[object] = []
    try:
        async for each in answers:
            found.append(each)
            if len(found) == most:
                break
    finally:
        if isinstance(answers, AsyncGenerator):
            await answers.aclose()
    return found
