"""The registry of sources: those that the settings declare and those that a program registers, and their health."""

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

from mica.errors import InvalidInput, InvalidSettings, MicaError, SourceFailed
from mica.model.event import Event
from mica.settings import Secret, Settings
from mica.sources.protocol import IN_PART, Concept, Fragment, Partial, Question, Source, SourceDeclaration, check_name
from mica.sources.threads import Pool
from mica.store.priority import observe_failure

if TYPE_CHECKING:
    from mica.sources.drivers.tables import SourceQueryPreview

PREPARE_S = 1.0  # for connecting to all sources ahead of a deadline; a slower one is asked all the same
LOADED_MAX = 2_000  # concepts whose drivers are known to be loaded; looking once more takes some microseconds
CLOSE_S = 10.0  # for closing one source; a server that hangs must not keep a process from ending


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one source about one concept, asked by hand."""

    source: str
    concept: str
    fragments: tuple[Fragment, ...]
    missing: str  # the part that the answer lacks; empty when it is whole
    error: str  # why there is no answer; empty when there is one
    milliseconds: float


@runtime_checkable
class DriverSource(Protocol):
    """A source of one of mica's drivers: it connects, checks and explains itself."""

    @property
    def declared(self) -> SourceDeclaration: ...
    @property
    def driver(self) -> str: ...
    @property
    def modules(self) -> frozenset[str]:
        """The modules that its queries need."""

    async def connect(self) -> None:
        """Open connections that are held between questions. Raises SourceFailed."""

    async def check(self) -> str:
        """A sentence that says that it answers. Raises SourceFailed when it does not."""

    def explain(self, concept: Concept) -> SourceQueryPreview:
        """The query it would run."""

    def preview(self, asks: str, parameters: dict[str, str]) -> SourceQueryPreview:
        """A query with its parameters."""


@runtime_checkable
class LiveSource(Protocol):
    """A source that reads a live object of the program."""

    def hold(self, thing: object) -> None:
        """Read this object from now on."""


class Drivers(Protocol):
    """The drivers of sources: the module `mica.sources.drivers.declarations`, loaded when it is first needed."""

    def open_declared(
        self,
        tables: Mapping[str, Mapping[str, object]],
        *,
        pool: Pool,
        folder: Path,
        variables: Mapping[str, Secret],
        file: Path | None,
    ) -> Sequence[Source]:
        """The sources that settings declare. Raises InvalidSettings."""

    def open_live(self, name: str, table: Mapping[str, object], *, pool: Pool, folder: Path) -> Source:
        """A source for a live object, without one yet. Raises InvalidSettings and ValueError."""


class SourceRegistry:
    """The sources outside mica's own log, by name, in the order of their declaration."""

    def __init__(self, settings: Settings, drivers: Callable[[], Drivers]) -> None:
        """Raises InvalidSettings when a table cannot be used. Nothing is connected to yet."""
        self._drivers = drivers
        self._pool = Pool()
        self._folder = settings.home if settings.file is None else settings.file.parent
        self._sources: dict[str, Source] = {}
        self._loaded: set[Concept] = set()  # concepts whose drivers are loaded
        if settings.sources:
            opened = drivers().open_declared(
                settings.sources,
                pool=self._pool,
                folder=self._folder,
                variables=settings.variables,
                file=settings.file,
            )
            self._sources = {each.declared.name: each for each in opened}

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._sources.values()))

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __getitem__(self, name: str) -> Source:
        """Raises InvalidInput when there is no such source."""
        if name not in self._sources:
            raise InvalidInput(
                f"there is no source {name!r}; there {'are' if self._sources else 'is'} "
                f"{', '.join(self._sources) or 'none'}: declare it as [sources.{name}], or register it"
            )
        return self._sources[name]

    def add(self, source: Source) -> None:
        """Add a source that a program made itself. Raises InvalidInput when its name is taken."""
        check_name(source.declared.name)
        if source.declared.name in self._sources:
            raise InvalidInput(f"there is a source {source.declared.name!r} already; give another name")
        self._sources[source.declared.name] = source
        self._loaded.clear()

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
        """Make a live object or a function a source; the keywords are those of a table with driver "memory".

        Without keywords, the object of a source that is there is replaced. Raises InvalidInput when the name is taken
        by another kind of source, or the keywords cannot be used.
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
        self._sources[name] = source

    def unregister(self, name: str) -> None:
        """Remove a registered object. Raises InvalidInput when there is none of this name."""
        if not isinstance(self[name], LiveSource):
            raise InvalidInput(f"source {name!r} is declared in the settings; take it out there")
        del self._sources[name]

    def hanging(self, name: str) -> int:
        """The number of calls of a source that have not returned after their caller stopped waiting."""
        return self._pool.hanging(name)

    def explain(self, concept: Concept) -> list[SourceQueryPreview]:
        """The query that each source would run about a concept, in the order of their ranks."""
        previews = []
        for source in self._covering([concept]):
            try:
                previews.append(source.explain(concept))
            except (SourceFailed, ValueError) as error:  # a part of the concept that it refuses
                reason = error.reason if isinstance(error, SourceFailed) else str(error)
                previews.append(source.preview(f"nothing: {reason}", {}))
        return sorted(previews, key=lambda each: (each.declared.rank, each.source))

    async def load(self, concepts: Iterable[Concept]) -> None:
        """Load the modules for these concepts once, before a deadline begins: loading one holds up every source.

        A module that is not installed is reported when its source is asked.
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
        """Load the modules for these concepts and connect to their sources, so that no deadline pays for it.

        A source that does not connect within a second is reported when it is asked.
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
        """The sources of drivers that cover any of these."""
        covering = [each for each in self if any(each.declared.knows(concept) for concept in concepts)]
        return [each for each in covering if isinstance(each, DriverSource)]

    async def health(self, *, timeout_s: float = 3.0) -> list[SourceHealth]:
        """Whether each source answers, all asked at once, each for at most this time."""
        return list(await asyncio.gather(*(self._check(source, timeout_s) for source in self)))

    async def _check(self, source: Source, timeout_s: float) -> SourceHealth:
        begun = time.perf_counter()
        is_there = False
        try:
            async with asyncio.timeout(timeout_s):
                detail = await source.check() if isinstance(source, DriverSource) else "made by a program"
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
        """Close all sources; one that hangs is left behind."""
        closing = [asyncio.ensure_future(source.close()) for source in self]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()
        self._pool.close()


async def ask_once(source: Source, concept: Concept, *, now: datetime) -> ProbeResult:
    """The answer of one source, outside of every cache. Its failure is a field of the result."""
    begun = time.perf_counter()
    fragments: Sequence[Fragment] = ()
    failure = ""
    try:
        fragments = await source.fragments(Question(concept=concept, now=now))
    except MicaError as error:
        failure = str(error)
    return ProbeResult(
        source=source.declared.name,
        concept=str(concept),
        fragments=tuple(fragments),
        missing=fragments.missing if isinstance(fragments, Partial) else "",
        error=failure,
        milliseconds=(time.perf_counter() - begun) * 1_000,
    )


# -- Health --------------------------------------------------------------------------------------------------------

TESTED = "source.tested"  # records that a source was asked by hand: {"source", "concept", "error", "milliseconds"}
FAILING_MIN = 3  # failures in a row, after which a source that is there counts as failing

State = Literal["answers", "failing", "missing"]


class SourceHistory(msgspec.Struct, kw_only=True):
    """How the latest questions to a source went, by the records of gathers and tests."""

    asked: int = 0  # calls; cached replies do not count
    failed: int = 0
    failed_in_a_row: int = 0  # the latest
    tried_at: datetime | None = None  # the last call
    answered_at: datetime | None = None  # the last call that succeeded
    failure: str = ""  # the reason of the last failure

    @property
    def is_failing(self) -> bool:
        return self.failed_in_a_row >= FAILING_MIN

    def note(self, at: datetime, failure: object) -> None:
        """Count one call; None means that it succeeded."""
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
    """The state of a source."""

    source: str
    driver: str
    is_there: bool
    detail: str  # its own description, or why it does not answer
    milliseconds: float
    state: State  # `failing`: it is there, and its latest calls all failed
    past: SourceHistory = msgspec.field(default_factory=SourceHistory)
    breaker: str = "closed"  # `open` while it is left alone after several failures, in this process

    def after(self, past: SourceHistory, *, breaker: str) -> SourceHealth:
        """The same with the history of its calls."""
        state: State = "failing" if self.is_there and past.is_failing else self.state
        return msgspec.structs.replace(self, past=past, breaker=breaker, state=state)


def read_history(records: Iterable[Event]) -> dict[str, SourceHistory]:
    """The history of each source, by the records of gathers and tests, oldest first."""
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
            is_part = isinstance(failure, str) and failure.startswith(IN_PART)
            histories.setdefault(name, SourceHistory()).note(event.at, None if is_part else failure)
    return histories


def _names(value: object) -> set[str]:
    return {str(each) for each in value} if isinstance(value, list | tuple) else set()


def _stale(degraded: object) -> dict[str, object]:
    """The sources that failed and were represented by an earlier reply, with the reason."""
    listed = degraded if isinstance(degraded, list | tuple) else ()
    return {str(each.get("source")): each.get("reason") for each in listed if isinstance(each, Mapping)}
