"""The parts of a memory, wired together, and what all of its verbs share."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from mica.brief.receipts import bury_late
from mica.clients.spool import Spools
from mica.errors import InvalidInput, StoreError, StoreUnavailable
from mica.events.context import Here, current, received
from mica.events.emitter import Emit
from mica.events.fold import Folding
from mica.events.follower import Bell
from mica.events.hot import Reads, readable
from mica.events.journal import Journal
from mica.llm.embeddings import Encoder
from mica.model.event import Appended, Clock, Event, WriterId, check_several, event_id, new_writer, utc_now
from mica.search.dates import moment
from mica.search.vectors import Meanings
from mica.settings import Settings
from mica.store.priority import Turns
from mica.store.protocol import Store
from mica.store.purges import Outstanding
from mica.store.space import space_of
from mica.upkeep.ageing import Ageing
from mica.upkeep.schedule import Job, Ran, Scheduler

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.clients.ingest import Ingesting
    from mica.llm.models import Models


class Wired:
    """The parts that every verb of a memory uses: store, journal, fold, clock, scheduler."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = utc_now,
        encoder: Encoder | None = None,
        hooks: Path | None = None,
    ) -> None:
        self._store = store
        self._space = store.space
        self._settings = settings
        self._clock = clock
        self._base = received(settings.carrier, space=store.space)
        self._bell = Bell()  # rings when this process has stored something
        self._folding = Folding(self._append, store.segments)
        self._journal = Journal(
            store.segments,
            space=store.space,
            base=self._base,
            clock=None if clock is utc_now else clock,
            wake=self._folding.wake,
        )
        self._ageing = Ageing(store, now=clock)
        self._turns = Turns()
        self._meanings = None if encoder is None else Meanings(store, encoder, give_way=self._turns.give_way)
        self._folding.begin(self._journal)
        ids = map(partial(event_id, new_writer()), count(1))  # of what is appended without the journal
        self.spools = None if hooks is None else Spools(hooks)
        settings.zone()  # raises when there is none of this name
        self._ids = ids
        self._models: Models | None = None  # opened when it is first asked for
        self._opening_models = asyncio.Lock()
        self._scheduler = Scheduler(
            store, self._jobs(), clock=clock, tell=self._job_failed, give_way=self._turns.give_way
        )
        self._generation = store.generation
        self._marked_at: dict[tuple[WriterId, int], datetime] = {}  # of marks made here: a reference has no time
        self._outstanding = Outstanding()  # purges, as far as this process knows of them
        self._is_closed = False

    @property
    def space(self) -> str:
        """The id of this space."""
        return self._store.space

    @property
    def location(self) -> str:
        """Where this space is kept."""
        return self._store.location

    @property
    def store(self) -> Store:
        """The store beneath, for a server that lends it to other processes. `take` is its append."""
        return self._store

    async def take(self, events: Sequence[Event]) -> Appended:
        """Store whole events that another process has made, as `Store.append` does; who follows here hears of them."""
        return await self._append(events)

    @property
    def here(self) -> Here:
        """The context that an event emitted now would be given, and the parent it would descend from."""
        return current(self._space) or self._base

    @property
    def emit(self) -> Emit:
        """Record that something happened; returns where it stands in its chain. Stored as given, never redacted.

        When it returns, the event survives `kill -9`; `await durable()` says when it survives power loss. Without
        `context` it comes from the current block. Raises InvalidEvent when it cannot be stored as it is, and Backlogged
        when the store has not kept up for very long. Keys of data that are no texts are refused at once in events of a
        name that was not emitted before; in others they come to light when the event is stored: then `event.refused`
        stands in its place, with the reason.
        """
        return self._journal.emit

    async def _stored(self) -> None:
        """Return when every event emitted or spooled before has its position. Raises what the store raised."""
        await self._ingest_spools()
        await self._folding.flush()

    async def _ingest_spools(self) -> None:
        """Store what hooks have spooled since; looking costs a listing of a folder."""
        if self._journal.is_forked:
            raise StoreUnavailable(
                "this memory was opened by another process, of which this one is a fork: what it emits is kept, but to "
                "read it must open the space again"
            )
        if not self._folding.is_here:
            raise StoreUnavailable(
                "this memory was opened in another event loop: every thread may emit, but only that loop can read or "
                "close it; open the space again in this one"
            )
        if self.spools is not None and self.spools.has_news() and self._ingesting is not None:
            await self._ingesting.ingest()

    @cached_property
    def _ingesting(self) -> Ingesting | None:
        if self.spools is None:
            return None
        from mica.clients.ingest import Ingesting

        observe = self._settings.observe
        return Ingesting(
            self._store,
            self.spools,
            append=self._append,
            keeps_prompts=observe.prompts and self.spools.keeps_prompts,
            excluded=observe.excluded_tools,
        )

    async def _reads(self) -> Reads:
        """Where every event emitted before can be read: in the store, or beside it when much waits for it."""
        await self._ingest_spools()
        return await readable(self._store, self._folding)

    async def _append(self, events: Sequence[Event]) -> Appended:
        self._ageing.disturb()
        appended = await self._store.append(events)
        if self._store.generation:  # something was purged once
            await bury_late(self._store, events)
        if self._meanings is not None:
            self._meanings.disturb()
        self._bell.ring()
        self._scheduler.stir()
        if self._store.generation != self._generation:  # another process has purged: leave no copy in our segments
            self._generation = self._store.generation
            self._journal.leave()
            self._forget_past()
            await self.learn_purges()
            if self._models is not None:
                self._models.cache.clear()
        return appended

    async def learn_purges(self) -> None:
        """Know what was purged, so that no mark brings it back. While the store is away: what was known before."""
        with suppress(StoreError):
            self._outstanding = Outstanding(await self._store.purges())

    def _forget_past(self) -> None:
        """Know nothing any more of what was read from the log: something of it was taken back."""

    def _take_back_answers(self) -> None:
        self._forget_past()
        if self.spools is not None:
            from mica.brief import hook_answers as answers

            answers.take_back(self.spools)

    def _check_asserted(self, *texts: str) -> None:
        """Raise InvalidInput when one of these says again what was purged."""
        for text in texts:
            if (purge := self._outstanding.asserted(text)) is not None:
                said = purge.written_in(text) or text
                raise InvalidInput(
                    f"{said!r} was purged on {purge.at:%Y-%m-%d} ({purge.told.reason}; record {purge.told.purge}), and "
                    f"must not be brought back; say it in other words, or let it be said again: "
                    f"`mica purge --allow {shlex.quote(said)}`"
                )

    def _moment(self, given: datetime | str | None, now: datetime) -> datetime | None:
        if isinstance(given, str):
            return moment(given, now=now, zone=self._settings.zone())
        if given is not None and given.tzinfo is None:
            raise InvalidInput(f"{given!r} has no time zone; give an aware time, or a text such as 'last Tuesday'")
        return given

    def _folder(self, root: Path | None) -> Path:
        """The working tree around a directory."""
        return space_of(Path.cwd() if root is None else root, home=self._settings.home).root

    @property
    def _kept(self) -> Path | None:
        """Where copies are kept that can be made again; nowhere for a store that ends with the process."""
        return None if self._store.segments is None else self._settings.home

    def _jobs(self) -> list[Job]:
        """What is due at times; each stage adds its own."""
        return []

    def _job_failed(self, ran: Ran) -> None:
        self.emit("job.failed", {"kind": ran.kind, "text": ran.error}, origin="tool", error=True)

    async def tick(self, kinds: Collection[str] | None = None) -> list[Ran]:
        """Do what is due in this space and nobody else does; returns what was done."""
        check_several("kinds", kinds)
        await self._stored()
        return await self._scheduler.tick(kinds)


def check_reason(reason: str) -> None:
    """Raise InvalidInput when this is no reason to retract something."""
    if not reason.strip():
        raise InvalidInput("say why it does not hold any more; the reason is empty")
