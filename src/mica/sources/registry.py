"""The sources of a memory: those that the settings declare and those that a program registers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from mica.brief.question import heed
from mica.errors import InvalidInput, InvalidSettings, MicaError, SourceFailed
from mica.settings import Settings
from mica.sources.health import Health
from mica.sources.protocol import Concept, Fragment, FragmentSource, Partial, check_name
from mica.sources.threads import Pool

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.sources.drivers.tables import DeclaredSource, Explained

PREPARE_S = 1.0  # for all sources to be connected to, ahead of a deadline; who takes longer is asked all the same
LOADED_MAX = 2_000  # concepts that are remembered as loaded for; looking once more takes some microseconds
CLOSE_S = 10.0  # for one source to end what it holds; a server that hangs must not keep a process from ending


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """What one source says of one concept, now."""

    source: str
    concept: str
    fragments: tuple[Fragment, ...]
    missing: str  # what the answer lacks; empty when it is whole
    error: str  # why there is none; empty when there is one
    milliseconds: float


class Sources:
    """What a memory can be told by, apart from its own log. Names are unique; the order is that of declaring."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidSettings when a table cannot be used. Nothing is connected to before it is asked."""
        self._pool = Pool()
        self._folder = settings.home if settings.file is None else settings.file.parent
        self._sources: dict[str, FragmentSource] = {}
        self._loaded: set[Concept] = set()  # for which everything was loaded that is installed
        if settings.sources:
            from mica.sources.drivers.declarations import opened
            from mica.sources.drivers.tables import Around

            around = Around(self._pool, self._folder, settings.variables)
            self._sources = {each.name: each for each in opened(settings.sources, around, file=settings.file)}

    def __iter__(self) -> Iterator[FragmentSource]:
        return iter(list(self._sources.values()))

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __getitem__(self, name: str) -> FragmentSource:
        """Raises InvalidInput when there is no such source."""
        if name not in self._sources:
            raise InvalidInput(
                f"there is no source {name!r}; there {'are' if self._sources else 'is'} "
                f"{', '.join(self._sources) or 'none'}: declare it as [sources.{name}], or register it"
            )
        return self._sources[name]

    def add(self, source: FragmentSource) -> None:
        """Take up a source that a program made itself. Raises InvalidInput when its name is taken."""
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
        """Let a live object or a function answer under a name.

        A function is called with the concept, in a thread unless it is a coroutine; it returns rows, fragments or
        nothing. An object is read each time. What `[sources.NAME]` with driver "memory" may say is said by keywords:
        `rank`, `ttl_s`, `is_live`, `fragments_max`, `characters_max`, `timeout_s`, `time_share`, `invalidated_by`;
        where the settings have such a table, it holds, and only the object is given. Registering again replaces the
        object. Raises InvalidInput for anything else.
        """
        from mica.sources.drivers.declarations import parsed
        from mica.sources.drivers.live import MemorySource, MemoryTable
        from mica.sources.drivers.tables import Around

        check_name(name)
        given: dict[str, object] = {"driver": "memory", **declared}
        if concepts is not None:
            given["concepts"] = [concepts] if isinstance(concepts, str) else list(concepts)
        given |= {key: dict(value) for key, value in (("fragment", fragment), ("where", where)) if value is not None}
        before = self._sources.get(name)
        if before is not None and not isinstance(before, MemorySource):
            raise InvalidInput(f"there is a source {name!r} already, of another kind; give another name")
        if before is not None and len(given) == 1:
            before.hold(thing)
            return
        try:
            table = parsed(name, given)
            assert isinstance(table, MemoryTable)
            source = MemorySource(name, table, Around(self._pool, self._folder))
        except InvalidSettings as error:
            raise InvalidInput(str(error)) from error
        except ValueError as error:
            raise InvalidInput(f"source {name!r}: {error}") from error
        source.hold(thing)
        self._sources[name] = source

    def unregister(self, name: str) -> None:
        """Forget what was registered under a name. Raises InvalidInput when nothing was."""
        from mica.sources.drivers.live import MemorySource

        if not isinstance(self[name], MemorySource):
            raise InvalidInput(f"source {name!r} is declared in the settings; take it out there")
        del self._sources[name]

    def hanging(self, name: str) -> int:
        """How many calls of a source have not come back though nobody waits for them."""
        return self._pool.hanging(name)

    async def test(
        self, name: str, concept: Concept, *, now: datetime, among: Mapping[str, FragmentSource] | None = None
    ) -> Tested:
        """Ask one source about a concept, outside of every cache. Its failure is told, not raised.

        It may be one of others, `among`, as mica's own are.
        """
        source, begun = (among or {}).get(name) or self[name], time.perf_counter()
        found: Sequence[Fragment] = ()
        failure = ""
        try:
            found = await source.fragments(concept, now=now)
        except MicaError as error:
            failure = str(error)
        return Tested(
            source=name,
            concept=str(concept),
            fragments=tuple(found),
            missing=found.missing if isinstance(found, Partial) else "",
            error=failure,
            milliseconds=(time.perf_counter() - begun) * 1_000,
        )

    def explain(self, concept: Concept) -> list[Explained]:
        """What each source that covers a concept would be asked, those that are believed most first."""
        from mica.sources.drivers.tables import DeclaredSource

        asked = []
        for source in self:
            if isinstance(source, DeclaredSource) and source.declared.knows(concept):
                try:
                    asked.append(source.explained(concept))
                except (SourceFailed, ValueError) as error:  # a part of the concept that it would not be asked with
                    reason = error.reason if isinstance(error, SourceFailed) else str(error)
                    asked.append(source.asked(f"nothing: {reason}", {}))
        return sorted(asked, key=lambda each: (each.declared.rank, each.source))

    async def load(self, concepts: Iterable[Concept]) -> None:
        """Load what the sources that cover these are asked with, once; what is not installed is told when it is asked.

        Whoever asks under a deadline does this first: a module that is loaded holds up every other source, too.
        """
        for concept in concepts:
            if concept in self._loaded:
                continue
            tables = self._tables([concept])
            needed = {each.needs for each in tables} | {
                "jsonpath" for each in tables if getattr(each.table, "select", None)
            }
            for module in sorted(needed - {None} - sys.modules.keys(), key=str):
                with suppress(ImportError):
                    await asyncio.to_thread(import_module, str(module))
            if len(self._loaded) < LOADED_MAX:
                self._loaded.add(concept)

    async def prepare(self, concepts: Collection[Concept]) -> None:
        """Load what the sources that cover these are asked with, and connect to them, so that no deadline pays for it.

        What is not installed, or does not answer within a second, is told when it is asked.
        """
        await self.load(concepts)
        connecting = [asyncio.ensure_future(each.connect()) for each in self._tables(concepts)]
        if connecting:
            _, late = await asyncio.wait(connecting, timeout=PREPARE_S)
            for task in connecting:
                task.add_done_callback(heed)
            for task in late:
                task.cancel()

    def _tables(self, concepts: Collection[Concept]) -> list[DeclaredSource]:
        """The sources with a table that cover any of these."""
        from mica.sources.drivers.tables import DeclaredSource

        covering = [each for each in self if any(each.declared.knows(concept) for concept in concepts)]
        return [each for each in covering if isinstance(each, DeclaredSource)]

    async def health(self, *, timeout_s: float = 3.0) -> list[Health]:
        """Whether each source answers, all asked at once. None of them is waited for longer than the time."""
        return list(await asyncio.gather(*(self._checked(source, timeout_s) for source in self)))

    async def _checked(self, source: FragmentSource, timeout_s: float) -> Health:
        from mica.sources.drivers.tables import DeclaredSource

        begun = time.perf_counter()
        is_there = False
        try:
            async with asyncio.timeout(timeout_s):
                told = await source.check() if isinstance(source, DeclaredSource) else "made by a program"
            is_there = True
        except SourceFailed as error:
            told = error.reason
        except TimeoutError:
            told = f"no answer within {timeout_s:g} s; is it running?"
        return Health(
            source=source.declared.name,
            driver=getattr(source, "driver", "program"),
            is_there=is_there,
            state="answers" if is_there else "missing",
            told=told,
            milliseconds=(time.perf_counter() - begun) * 1_000,
        )

    async def close(self) -> None:
        """Release everything; a source that hangs is left behind."""
        closing = [asyncio.ensure_future(source.close()) for source in self]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()
        self._pool.close()
