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

LOOKS_MAX = 3  # attempts to read an object that another thread changes at the same time
ROWS_MAX = 100_000  # read for one question, which takes about 100 ms; more rows belong in a database
ROW = ("key", "text")  # a mapping with one of these keys is a single row

Conditions = Annotated[dict[str, str], About(description='columns and what they must equal, as in { id = "{id}" }')]


class MemoryTable(SourceTable, frozen=True, kw_only=True, tag="memory"):
    """The settings of an object that a program registers with `memory.sources.register(NAME, …)`."""

    where: Conditions = msgspec.field(default_factory=dict)


class PythonTable(SourceTable, frozen=True, kw_only=True, tag="python"):
    """The settings of a source that calls a function of an installed module with the concept as argument."""

    entry: Annotated[str, About(pattern=r"^[\w.]+:[\w.]+$", description='"module:function"')]
    arguments: Annotated[dict[str, object], About(description="a table of further arguments of the function")] = (
        msgspec.field(default_factory=dict)
    )
    where: Conditions = msgspec.field(default_factory=dict)


class LiveSource(DeclaredSource):
    """A source that reads an object or calls a function of this process.

    Functions are called, and objects are read, in threads, because the application's code may block.
    """

    def __init__(self, name: str, table: MemoryTable | PythonTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._where = Where(table.where)

    @abstractmethod
    async def asking(self, concept: Concept) -> Callable[[], object]:
        """Return a function without parameters. Its result is the object to read for a question about `concept`.

        The function may run code of the application, so it may raise anything.
        """

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        try:
            ask = await self.asking(concept)
            if _is_async(getattr(ask, "func", ask)):  # calling it only creates a coroutine
                answer = ask()
            else:
                answer = await self.blocking(lambda: self._read_unless_async(ask(), concept, now))
                if isinstance(answer, MappedRows):
                    return answer
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, AsyncIterator):
                answer = await _first_answers(answer, self.declared.fragments_max + 1)
            read = await self.blocking(lambda: self._read_unless_async(answer, concept, now))
            if isinstance(read, MappedRows):
                return read
            raise SourceFailed(self.name, f"{self.place} returned a nested {type(read).__name__}; return rows")
        except (SourceFailed, TimeoutError):
            raise
        except Exception as error:  # code of the application may raise anything
            raise SourceFailed(self.name, f"{self.place} raised {type(error).__name__}: {error}") from error

    def _read_unless_async(self, answer: object, concept: Concept, now: datetime) -> object:
        """Return the fragments made from `answer`. If it is an awaitable or an async iterator, return it unchanged."""
        if inspect.isawaitable(answer) or isinstance(answer, AsyncIterator):
            return answer
        looks = 1 if isinstance(answer, Iterator) else LOOKS_MAX  # an iterator can be read only once
        return _retry_changed(lambda: self._read(answer, concept, now), looks=looks)

    def _read(self, answer: object, concept: Concept, now: datetime) -> MappedRows:
        most = self.declared.fragments_max
        wanted = self._where.of(concept)
        rows = islice(_rows(answer, concept, name=self.name, is_row=bool(self.mapping.given)), ROWS_MAX)
        fitting = (row for row in rows if isinstance(row, Fragment) or self._where.fits(row, wanted))
        taken = list(islice(fitting, most + 1))
        ready = [msgspec.structs.replace(row, source=self.name) for row in taken[:most] if isinstance(row, Fragment)]
        mapped = self.mapping.fragments(
            (row for row in taken[:most] if isinstance(row, SourceRecord)), now=now, where=f"{self.name}#"
        )
        more = (self.cut("rows"),) if len(taken) > most else ()
        return MappedRows((*ready, *mapped.fragments), mapped.missing + more)

    async def close(self) -> None:
        """Do nothing: this source holds only the application's object."""


class MemorySource(LiveSource):
    """A source that reads an object, or calls a function, that a program has registered."""

    driver = "memory"
    rank = RANK_LIVE
    is_live = True

    def __init__(self, name: str, table: MemoryTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._things: tuple[object, ...] = ()  # empty, or the registered object, which may be None

    def hold(self, thing: object) -> None:
        """Set the object to read, or the function to call."""
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
    """A source that calls a function named in the settings."""

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
            raise SourceFailed(
                self.name, f"entry = {self.table.entry!r} is not a function but a {type(found).__name__}"
            )
        return found

    def explain(self, concept: Concept) -> SourceQueryPreview:
        labelled = {name: f"{name}={value}" for name, value in self.table.arguments.items()}
        arguments = {name: redact(text).partition("=")[2] for name, text in labelled.items()}  # redacted by name
        asks = f"{self.table.entry}({', '.join(['concept', *arguments])})"
        return self.preview(asks, {"concept": str(concept), **arguments, **self._where.of(concept)})

    async def check(self) -> str:
        await self._loaded()
        return f"{self.table.entry} is there"


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _rows(answer: object, concept: Concept, *, name: str, is_row: bool) -> Iterator[SourceRecord | Fragment]:
    """Yield the rows of `answer`, an object that a program registered or that a function returned.

    None has no rows. A text or number is one row, whose key is `name`, the name of the source. Each entry of an
    iterable is a row. A mapping or any other object is one row if it has a `key` or `text`, or if `is_row` is set.
    Otherwise each entry of the mapping, or each attribute of the object, is a row, and its name is the key of the row.
    """
    if answer is None:
        return
    if isinstance(answer, Fragment):
        yield answer
    elif isinstance(answer, str | int | float):
        yield SourceRecord({"key": name, "text" if isinstance(answer, str) else "value": answer}, concept)
    elif isinstance(answer, Iterable) and not isinstance(answer, Mapping):
        for number, each in enumerate(answer, start=1):
            for row in _rows(each, concept, name=name, is_row=True):
                yield row._replace(name=str(number)) if isinstance(row, SourceRecord) else row
    else:
        columns = answer if isinstance(answer, Mapping) else _attributes(answer)
        if is_row or any(column in columns for column in ROW):
            yield SourceRecord(answer if is_row else columns, concept, root=columns)
            return
        for key, value in list(columns.items()):
            facts = {"key": key, **value} if isinstance(value, Mapping) else {"key": key, "value": value}
            yield SourceRecord(facts, concept, name=str(key), root=columns)


def _attributes(thing: object) -> Mapping[str, object]:
    """Return the public attributes of an object by name, without methods."""
    names = getattr(thing, "__struct_fields__", None) or getattr(thing, "__dict__", None) or dir(thing)
    public = (str(each) for each in list(names) if not str(each).startswith("_"))
    found = ((each, getattr(thing, each)) for each in public)
    return {each: value for each, value in found if not callable(value)}


def _retry_changed(look: Callable[[], R], *, looks: int) -> R:
    """Call `look` and return its result. `look` reads an object; it is called at most `looks` times.

    A RuntimeError means that the object was changed while it was read, so `look` is called again. The error of the last
    call is raised.
    """
    for _ in range(looks - 1):
        try:
            return look()
        except RuntimeError:
            continue
    return look()


async def _first_answers(answers: AsyncIterator[object], most: int) -> list[object]:
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
