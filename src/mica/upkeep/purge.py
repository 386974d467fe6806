"""A purge from beginning to end, and retention, which is a purge by age: the store, segments and files of exports."""

from __future__ import annotations

import asyncio
import platform
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import _lru_cache_wrapper
from pathlib import Path

import msgspec

from mica.brief.receipts import quoting
from mica.crystals.periods import Survivor
from mica.crystals.requests import Taken
from mica.crystals.survivors import SURVIVORS, bystanders, survivors
from mica.crystals.teachings import resting_on
from mica.errors import InvalidInput
from mica.events.fold import Folding
from mica.events.follower import history
from mica.events.journal import Journal
from mica.events.log_export import rewrite, written
from mica.format.documents import event_line
from mica.model.crystal import crystal_of
from mica.model.event import (
    CRYSTAL,
    EMPTY,
    PURGED,
    REASON_CHARACTERS_MAX,
    Appended,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Tombstone,
    check_unicode,
    make_event,
    tombstone,
    tombstone_of,
)
from mica.model.teaching import PROMOTED
from mica.navigation.trails.records import naming
from mica.settings import RetentionSettings
from mica.store.protocol import Store
from mica.store.purges import ALLOWED, BY_HAND, EXPORTED, PURGE, Found, Purged, Selection, find, steps
from mica.upkeep.retention import OFF, RETENTION, Retained, due
from mica.upkeep.traces import purge_traces

QUOTED = "log.quoted"  # records a file of people that quotes marks


class Quoted(msgspec.Struct, frozen=True):
    """A file that was written from crystals, and where."""

    path: str = ""
    host: str = ""
    crystals: tuple[EventId, ...] = ()


LATEST_CRYSTALS = 1_000  # among which those are looked for that were made during a purge


class Purging:
    """Takes content out of one space. Its records are events with the next of `ids`."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        folding: Folding,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
    ) -> None:
        self._store = store
        self._journal = journal
        self._folding = folding
        self._append = append
        self._ids = ids
        self._clock = clock

    def exported(self, path: Path, *, events: int) -> None:
        """Record a file that holds events, where a purge finds it again."""
        if path.is_file():  # not a pipe
            told: dict[str, object] = {"path": str(path.absolute()), "events": events, "host": platform.node()}
            self._journal.emit(EXPORTED, told, origin="user")

    async def purge(
        self, selection: Selection, *, reason: str, context: Context, dry_run: bool
    ) -> tuple[Purged, Taken]:
        """Purge what fits of all that is stored; the record comes from this context. Raises InvalidInput.

        Returns also what crystals were about that went and were not asked for themselves.
        """
        _check_reason(reason, selection)
        if dry_run:
            return _purged(await self._found(selection)), Taken()
        exports = await self._store.events(EventQuery(names=(EXPORTED,), limit=None))
        at, told = self._clock(), Tombstone(purge=next(self._ids), reason=reason)
        # Kept before anything is looked for: whatever is stored meanwhile is found below or purged on arrival.
        if (kept := selection.kept(at=at, told=told)) is not None:
            await self._store.keep_purge(kept)
        await self._folding.flush()
        found = await self._found(selection)
        crystals = await self._named(found, CRYSTAL)
        records = await self._named(found, PURGE)
        stood = await bystanders(self._store, crystals.values(), selection)
        left = await survivors(self._store, stood, records.values(), selection)
        others = [crystal_of(event) for event in crystals.values() if event.id not in selection.ids]
        taken = Taken.of(others, stood=stood)
        await self._bury(
            found.ids,
            told,
            conditions=selection.conditions,
            at=at,
            context=context,
            selection=selection,
            left=left,
        )
        await self._bury_late(found.ids, told)
        await self._folding.clear()
        traces = await asyncio.to_thread(purge_traces, self._store.segments, selection.texts)
        rewritten, unreached = await self._purge_exports(exports, found, selection=selection, told=told)
        quoting = await self._quoting(found.ids)
        purged = msgspec.structs.replace(
            _purged(found),
            first=(),
            spellings={},
            record=told.purge,
            stands=kept is not None,
            exports=rewritten,
            removed=traces.removed,
            unreached=(*await self._store.scrub(), *traces.left, *unreached, *quoting),
        )
        return purged, taken

    async def allow(self, value: str, *, context: Context) -> list[EventId]:
        """Let a purged value be said again; returns the purges of it. Raises InvalidInput when there is none."""
        purges = [purge for purge in await self._store.purges() if purge.is_of(value)]
        if not purges:
            raise InvalidInput(
                f"no purge of the value {value!r} stands here, so nothing refuses it; give the text that was purged, "
                "in whichever spelling"
            )
        for purge in purges:
            at, told = self._clock(), Tombstone(purge=next(self._ids), reason="may be said again")
            await self._store.keep_purge(purge.lifting(at=at, told=told))
            data = {"purge": purge.told.purge}
            await self._append([make_event(told.purge, ALLOWED, data, at=at, context=context, origin="user")])
        return [purge.told.purge for purge in purges]

    async def _quoting(self, purged: Collection[EventId]) -> list[str]:
        """The status files that were written from crystals which are gone; they are people's, so people see to them."""
        gone = set(purged)
        records = await self._store.events(EventQuery(names=(QUOTED,), limit=None))
        quoting = [_quoted(record) for record in records]
        files = dict.fromkeys((each.path, each.host) for each in quoting if not gone.isdisjoint(each.crystals))
        return [f"{path} on {host} and its backups may quote purged marks: look at them" for path, host in files]

    async def _found(self, selection: Selection) -> Found:
        """What fits, and before it what rests on it: cut off in the middle, nothing quotes what is gone."""
        found = await find(self._store, selection)
        known = set(found.ids)
        crystals = [each for each in await self._store.citing(found.ids) if each not in known]
        teachings = [each for each in await resting_on(self._store, [*found.ids, *crystals]) if each not in known]
        trails = [each for each in await naming(self._store, found.ids) if each.id not in known]
        names = Counter({**found.names})
        names += Counter({CRYSTAL: len(crystals), PROMOTED: len(teachings)})
        names.update(event.name for event in trails)
        ids = (*(event.id for event in trails), *teachings, *crystals, *found.ids)
        receipts = [each for each in await quoting(self._store, ids) if each.id not in known]
        names.update(event.name for event in receipts)
        ids = (*(event.id for event in receipts), *ids)
        return msgspec.structs.replace(found, ids=ids, names=dict(sorted(names.items())))

    async def _named(self, found: Found, name: str) -> dict[EventId, Event]:
        """The events of this name among what is found."""
        if not found.names.get(name):
            return {}
        events = [event for some in steps(found.ids) for event in await self._store.events_of(some)]
        return {event.id: event for event in events if event.name == name}

    async def _bury(
        self,
        ids: Sequence[EventId],
        told: Tombstone,
        *,
        conditions: Sequence[str],
        at: datetime,
        context: Context,
        selection: Selection | None = None,
        left: Sequence[Survivor] = (),
    ) -> None:
        """Record a purge of these events, and make tombstones of them."""
        data = {"conditions": conditions, "events": len(ids), "reason": told.reason}
        if left:
            data[SURVIVORS] = msgspec.to_builtins(left)
        event = make_event(told.purge, PURGE, data, at=at, context=context, origin="user")
        if selection is not None and selection.fits(event):  # who purges their own events is not named by it
            event = msgspec.structs.replace(event, context=EMPTY)
        await self._append([event])
        for some in steps(ids):
            await self._store.bury(some, told)

    async def _bury_late(self, ids: Sequence[EventId], told: Tombstone) -> None:
        """What was made of these events while they were being looked for: crystals, what rests on those, receipts."""
        gone = set(ids)
        while True:
            latest = await self._store.events(EventQuery(names=(CRYSTAL,), limit=LATEST_CRYSTALS))
            late = [event.id for event in latest if not gone.isdisjoint(crystal_of(event).sources)]
            if not late:
                break
            await self._store.bury(late, told)
            gone.update(late)
        for some in steps([event.id for event in await quoting(self._store, gone)]):
            await self._store.bury(some, told)

    async def _purge_exports(
        self, exports: Iterable[Event], found: Found, *, selection: Selection, told: Tombstone
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Take purged events out of the files that were exported: those rewritten, and what a person must see to."""
        records = {str(event.data.get("path")): event for event in exports}
        stones = await self._store.events(EventQuery(names=(PURGED,), limit=None)) if records else []
        tombstones = {event.id: event for event in stones}

        def stone_of(identifier: EventId, event: Event | None) -> Event | None:
            stone = tombstones.get(identifier)
            if stone is None or not tombstone_of(stone).reason.startswith(RETENTION):
                return stone
            # Retention has put it into an archive, where it stays until a person purges it.
            return tombstone(stone, told) if event is not None and selection.fits(event) else None

        rewritten: list[str] = []
        unreached: list[str] = []
        for path, record in records.items():
            host = record.data.get("host")
            try:
                if host != platform.node():
                    raise FileNotFoundError
                if await asyncio.to_thread(rewrite, Path(path), stone_of):
                    rewritten.append(path)
            except FileNotFoundError:
                if found.first and found.first[0].at <= record.at:
                    unreached.append(f"the export {path} on {host} is not here; it may hold purged events: remove it")
            except (InvalidInput, OSError) as error:
                unreached.append(f"the export {path} was not rewritten: {error}; look at it and remove it")
        return tuple(rewritten), tuple(unreached)

    async def retain(self, settings: RetentionSettings, *, context: Context, dry_run: bool) -> Retained:
        """Purge bulk events whose time is over. Raises InvalidInput while retention is off and this is no dry run."""
        if not settings.enabled and not dry_run:
            raise InvalidInput(OFF)
        await self._folding.flush()
        found = await due(self._store, settings, now=self._clock())
        classes = found.classes
        done = Retained(
            enabled=settings.enabled,
            classes={name: len(ids) for name, ids in classes.items()},
            kept=found.kept,
            cited=found.cited,
        )
        if dry_run or not classes:
            return done
        archive = None
        if settings.archive is not None:
            archive = await self._archived(settings.archive, {each for ids in classes.values() for each in ids})
        for name, ids in classes.items():
            told = Tombstone(purge=next(self._ids), reason=f"{RETENTION}: {name}")
            await self._bury(ids, told, conditions=[RETENTION], at=self._clock(), context=context)
        await self._folding.clear()
        return msgspec.structs.replace(done, archive=archive, unreached=tuple(await self._store.scrub()))

    async def _archived(self, folder: Path, ids: Collection[EventId]) -> str:
        """Write these events into a new file, and record it, before they go."""
        path = folder / f"{self._store.space}-{self._clock():%Y%m%dT%H%M%S%f}.jsonl"
        try:
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"cannot make the archive {path.parent}: {error.strerror}; nothing was purged"
            ) from error
        with written(path) as stream:
            async for event in history(self._store, EventQuery(), after=0):
                if event.id in ids:
                    stream.write(event_line(event) + b"\n")
        self.exported(path, events=len(ids))
        await self._folding.flush()
        return str(path)


def forget_texts() -> None:
    """Empty what functions of this process remember of texts that they were given: stems of words, shapes of prompts.

    All of them at once, so that none that is added has to be named here. A cache without a limit is of a few fixed
    things, and stays.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("mica."):
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper) and value.cache_parameters()["maxsize"] is not None:
                    value.cache_clear()
    re.purge()  # patterns that were made of a text


def _quoted(record: Event) -> Quoted:
    try:
        return msgspec.json.decode(record.body, type=Quoted)
    except msgspec.DecodeError:
        return Quoted()  # nothing of ours


def _check_reason(reason: str, selection: Selection) -> None:
    """Raise InvalidInput when a tombstone cannot carry this reason: it stays after all else is gone."""
    if not isinstance(reason, str):
        raise InvalidInput(f"the reason {reason!r} is no text; give a text")
    check_unicode("the reason", reason)
    if not reason.strip() or len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput(f"the reason {reason[:60]!r} has to have 1 to {REASON_CHARACTERS_MAX} characters")
    if reason.startswith(RETENTION):
        raise InvalidInput(f"the reason {reason!r} is that of retention; give another")
    if reason != BY_HAND and any(text in reason for text in selection.texts):  # that one gives nothing away
        raise InvalidInput("the reason contains what is to be purged, and the reason stays; give another")


def _purged(found: Found) -> Purged:
    return Purged(
        events=len(found.ids),
        ids=found.ids,
        names=found.names,
        sessions=found.sessions,
        first=found.first,
        spellings=found.spellings,
    )
