"""The external sources of a space and their health. They are declared in the settings or registered by a program."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from mica.errors import InvalidInput, InvalidSettings, SourceFailed
from mica.model.event import Event
from mica.settings import Secret, Settings
from mica.sources.protocol import (
    IN_PART_PREFIXES,
    Concept,
    Source,
    SourceDeclaration,
    check_name,
)
from mica.sources.threads import Pool
from mica.store.priority import observe_failure

if TYPE_CHECKING:
    from mica.sources.drivers.tables import SourceQueryPreview

PREPARE_S = 1.0  # for connecting to all sources in advance; a source that takes longer is asked nevertheless
LOADED_MAX = 2_000  # concepts remembered as loaded; checking one again takes some microseconds
CLOSE_S = 10.0  # for closing one source; a server that hangs must not keep a process from ending


@runtime_checkable
class DriverSource(Protocol):
    """A source that one of mica's drivers made. It can also connect, be checked, and show the query that it would run.

    A driver is the code for one kind of system, such as PostgreSQL or HTTP.
    """

    @property
    def declared(self) -> SourceDeclaration: ...
    @property
    def driver(self) -> str: ...
    @property
    def modules(self) -> frozenset[str]:
        """The names of the Python modules that the source imports for its queries."""

    async def connect(self) -> None:
        """Open the connections that stay open between questions. Raises SourceFailed if that is not possible."""

    async def check(self) -> str:
        """Test the source, and return one sentence about what was found. Raises SourceFailed if it does not answer."""

    def explain(self, concept: Concept) -> SourceQueryPreview:
        """Return the query that the source would run about a concept. The query is not run."""

    def preview(self, asks: str, parameters: dict[str, str]) -> SourceQueryPreview:
        """Build the result of `explain` from a query text and its parameters."""


@runtime_checkable
class LiveSource(Protocol):
    """A source that reads an object of the running program."""

    def hold(self, thing: object) -> None:
        """Set the object to read."""


class Drivers(Protocol):
    """The functions of `mica.sources.drivers.declarations`. That module is imported only when it is first needed."""

    def open_declared(
        self,
        tables: Mapping[str, Mapping[str, object]],
        *,
        pool: Pool,
        folder: Path,
        variables: Mapping[str, Secret],
        file: Path | None,
    ) -> Sequence[Source]:
        """Create the sources that the settings declare, without connecting to them.

        Raises InvalidSettings for an invalid table.
        """

    def open_live(self, name: str, table: Mapping[str, object], *, pool: Pool, folder: Path) -> Source:
        """Create a source whose object is set later. Raises InvalidSettings or ValueError for an invalid table."""


class SourceRegistry:
    """The external sources of a space by name, in the order in which they were declared or registered."""

    def __init__(self, settings: Settings, drivers: Callable[[], Drivers]) -> None:
        """Create the declared sources, without connecting to them. Raises InvalidSettings for an invalid table."""
        self._drivers = drivers
        self._pool = Pool()
        self._folder = settings.home if settings.file is None else settings.file.parent
        self._sources: dict[str, Source] = {}
        self._driven: dict[str, DriverSource] = {}  # the sources of drivers; testing for the protocol is slow
        self._loaded: set[Concept] = set()  # concepts whose drivers are loaded
        if settings.sources:
            for source in drivers().open_declared(
                settings.sources,
                pool=self._pool,
                folder=self._folder,
                variables=settings.variables,
                file=settings.file,
            ):
                self._put(source)

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._sources.values()))

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __getitem__(self, name: str) -> Source:
        """Return the source of this name. Raises InvalidInput if there is none."""
        if name not in self._sources:
            raise InvalidInput(
                f"there is no source {name!r} (known sources: {', '.join(self._sources) or 'none'}); "
                f"declare it as [sources.{name}], or register it"
            )
        return self._sources[name]

    def add(self, source: Source) -> None:
        """Add a source object that a program created. Raises InvalidInput if its name is taken or reserved."""
        check_name(source.declared.name)
        if source.declared.name in self._sources:
            raise InvalidInput(f"there is a source {source.declared.name!r} already; give another name")
        self._put(source)
        self._loaded.clear()

    def _put(self, source: Source) -> None:
        self._sources[source.declared.name] = source
        if isinstance(source, DriverSource):
            self._driven[source.declared.name] = source

    def register(
        self,
        name: str,
        thing: object,
        *,
        concepts: str | Sequence[str] | None = None,
        fragment: Mapping[str, object] | None = None,
        where: Mapping[str, str] | None = None,
        **declared: object,
    ) -> None:
        """Turn an object or a function of the program into a source. The keywords are those of a table in the settings.

        If a registered object has this name and no keywords are given, only the object is replaced. Raises InvalidInput
        for an invalid keyword, or if the name belongs to another kind of source.
        """
        check_name(name)
        table: dict[str, object] = {**declared}
        if concepts is not None:
            table["concepts"] = [concepts] if isinstance(concepts, str) else list(concepts)
        table |= {key: dict(value) for key, value in (("fragment", fragment), ("where", where)) if value is not None}
        before = self._sources.get(name)
        if before is not None and not isinstance(before, LiveSource):
            raise InvalidInput(f"there is a source {name!r} already, of another kind; give another name")
        if before is not None and not table:
            before.hold(thing)
            return
        try:
            source = self._drivers().open_live(name, table, pool=self._pool, folder=self._folder)
        except InvalidSettings as error:
            raise InvalidInput(str(error)) from error
        except ValueError as error:
            raise InvalidInput(f"source {name!r}: {error}") from error
        assert isinstance(source, LiveSource)
        source.hold(thing)
        self._put(source)

    def unregister(self, name: str) -> None:
        """Remove the registered object of this name. Raises InvalidInput if there is none."""
        if not isinstance(self[name], LiveSource):
            raise InvalidInput(f"source {name!r} is declared in the settings; remove it there")
        del self._sources[name]
        self._driven.pop(name, None)

    def hanging(self, name: str) -> int:
        """Return how many calls to a source are still running although their callers have stopped waiting."""
        return self._pool.hanging(name)

    def explain(self, concept: Concept) -> list[SourceQueryPreview]:
        """Return the queries that the sources of drivers would run about a concept, ordered by rank. No query is run.

        Sources that are not asked about this concept are left out.
        """
        previews = []
        for source in self._covering([concept]):
            try:
                previews.append(source.explain(concept))
            except (SourceFailed, ValueError) as error:  # it refuses a part of the concept
                reason = error.reason if isinstance(error, SourceFailed) else str(error)
                previews.append(source.preview(f"nothing: {reason}", {}))
        return sorted(previews, key=lambda each: (each.declared.rank, each.source))

    async def load(self, concepts: Iterable[Concept]) -> None:
        """Import the modules that the sources for these concepts need, in threads.

        Call this before a deadline begins, because an import slows down the answers of all sources. If a module is not
        installed, nothing is raised here; the failure is reported when the source that needs it is asked.
        """
        for concept in concepts:
            if concept in self._loaded:
                continue
            needed = frozenset[str]().union(*(each.modules for each in self._covering([concept])))
            for module in sorted(needed - sys.modules.keys()):
                with suppress(ImportError):
                    await asyncio.to_thread(import_module, module)
            if len(self._loaded) < LOADED_MAX:
                self._loaded.add(concept)

    async def prepare(self, concepts: Collection[Concept]) -> None:
        """Import the modules of the sources for these concepts, and connect to the sources.

        Call this before a deadline begins. If a source does not connect within PREPARE_S seconds, nothing is raised
        here; the failure is reported when the source is asked.
        """
        await self.load(concepts)
        connecting = [asyncio.ensure_future(each.connect()) for each in self._covering(concepts)]
        if connecting:
            _, late = await asyncio.wait(connecting, timeout=PREPARE_S)
            for task in connecting:
                task.add_done_callback(observe_failure)
            for task in late:
                task.cancel()

    def _covering(self, concepts: Collection[Concept]) -> list[DriverSource]:
        driven = self._driven.values()
        return [each for each in driven if any(each.declared.knows(concept) for concept in concepts)]

    async def health(self, *, timeout_s: float = 3.0) -> list[SourceHealth]:
        """Check all sources at once, each for at most `timeout_s`, and return whether each of them answers."""
        return list(await asyncio.gather(*(self._check(source, timeout_s) for source in self)))

    async def _check(self, source: Source, timeout_s: float) -> SourceHealth:
        begun = time.perf_counter()
        is_there = False
        try:
            async with asyncio.timeout(timeout_s):
                detail = await source.check() if isinstance(source, DriverSource) else "registered by a program"
            is_there = True
        except SourceFailed as error:
            detail = error.reason
        except TimeoutError:
            detail = f"no answer within {timeout_s:g} s; is it running?"
        return SourceHealth(
            source=source.declared.name,
            driver=getattr(source, "driver", "program"),
            is_there=is_there,
            state="answers" if is_there else "missing",
            detail=detail,
            milliseconds=(time.perf_counter() - begun) * 1_000,
        )

    async def close(self) -> None:
        """Close all sources. A source that does not close within CLOSE_S seconds is abandoned."""
        closing = [asyncio.ensure_future(source.close()) for source in self]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()
        self._pool.close()


# -- Health --------------------------------------------------------------------------------------------------------

TESTED = "source.tested"  # records a manual test of a source: {"source", "concept", "error", "milliseconds"}
FAILING_MIN = 3  # failures in a row after which a reachable source counts as failing

State = Literal["answers", "failing", "missing"]


class SourceHistory(msgspec.Struct, kw_only=True):
    """How the latest calls to a source went, counted from recorded gathers and tests."""

    asked: int = 0  # calls; cached replies do not count
    failed: int = 0
    failed_in_a_row: int = 0  # calls that failed since the last success
    tried_at: datetime | None = None  # the time of the last call
    answered_at: datetime | None = None  # the time of the last call that succeeded
    failure: str = ""  # the reason of the last failure

    @property
    def is_failing(self) -> bool:
        return self.failed_in_a_row >= FAILING_MIN

    def note(self, at: datetime, failure: object) -> None:
        """Count one call. `failure` says why the call failed, or is None if it succeeded."""
        self.asked += 1
        self.tried_at = at
        if failure is None:
            self.failed_in_a_row = 0
            self.answered_at = at
        else:
            self.failed += 1
            self.failed_in_a_row += 1
            self.failure = str(failure)


class SourceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a source answers now, and how its latest calls went."""

    source: str
    driver: str
    is_there: bool
    detail: str  # what the check found, or why the source does not answer
    milliseconds: float
    state: State  # `failing`: the source answers the check, but its latest calls all failed
    past: SourceHistory = msgspec.field(default_factory=SourceHistory)
    breaker: str = "closed"  # `open` while this process does not call the source, after several failures in a row

    def after(self, past: SourceHistory, *, breaker: str) -> SourceHealth:
        """Return a copy with the history of the source's calls (`past`) and the state of its circuit breaker."""
        state: State = "failing" if self.is_there and past.is_failing else self.state
        return msgspec.structs.replace(self, past=past, breaker=breaker, state=state)


def read_history(records: Iterable[Event]) -> dict[str, SourceHistory]:
    """Return the history of the calls to each source, by its name.

    `records` are the events that record gathers and manual tests, oldest first.
    """
    histories: dict[str, SourceHistory] = {}
    for event in records:
        if event.name == TESTED:
            name, error = event.data.get("source"), event.data.get("error")
            histories.setdefault(str(name), SourceHistory()).note(event.at, error or None)
            continue
        asked, cached = (_names(event.data.get(key)) for key in ("asked", "cached"))
        missing = event.data.get("missing")
        failures = {**_stale(event.data.get("degraded")), **(missing if isinstance(missing, Mapping) else {})}
        for name in asked - cached:
            failure = failures.get(name)
            is_part = isinstance(failure, str) and failure.startswith(IN_PART_PREFIXES)
            histories.setdefault(name, SourceHistory()).note(event.at, None if is_part else failure)
    return histories


def _names(value: object) -> set[str]:
    return {str(each) for each in value} if isinstance(value, list | tuple) else set()


def _stale(degraded: object) -> dict[str, object]:
    """Return the sources that failed and whose earlier reply was used, by name, each with the reason of the failure.

    `degraded` lists these sources, as recorded in an event. If it is not a list, the result is empty.
    """
    listed = degraded if isinstance(degraded, list | tuple) else ()
    return {str(each.get("source")): each.get("reason") for each in listed if isinstance(each, Mapping)}
