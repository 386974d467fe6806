"""Removes content for good: from the store, from segments (files of events that wait to be stored) and from exports.

Retention, which removes events that are too old, is a kind of purge.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime, tzinfo
from pathlib import Path

import msgspec

from mica.brief.now import QUOTED, Quoted
from mica.brief.receipts import receipts_quoting
from mica.clients.spool import Spools
from mica.crystals.periods import Survivor
from mica.crystals.requests import Crystallized, RemovedCrystals
from mica.crystals.survivors import SURVIVORS, crystals_to_remake, survivors
from mica.errors import InvalidInput
from mica.events.follower import history
from mica.events.leftovers import purge_traces
from mica.events.log import Log
from mica.events.log_export import atomic_writer, record_export, rewrite
from mica.events.references import Reference
from mica.format.documents import exported_line
from mica.model.crystal import crystal_of
from mica.model.event import (
    CRYSTAL,
    EMPTY,
    PURGED,
    REASON_CHARACTERS_MAX,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Ref,
    Tombstone,
    check_several,
    check_unicode,
    make_event,
    make_tombstone,
    tombstone_of,
)
from mica.navigation.api import Trails
from mica.navigation.trails.publication import add_published_files
from mica.private_files import make_folder
from mica.settings import RetentionSettings
from mica.store.protocol import Store
from mica.store.purges import ALLOWED, BY_HAND, EXPORTED, PURGE, Purged, PurgeMatch, Selection, find, steps
from mica.upkeep.purge_listing import ListBeliefs, list_matching, list_no_beliefs, selected_ids
from mica.upkeep.quotations import find_quotations
from mica.upkeep.retention import OFF, RETENTION, RetentionResult, due

VALUE_CHARACTERS_MIN = 4  # a shorter value is part of many texts
NOTHING = PurgeMatch(ids=(), names={}, sessions=(), first=())
LATEST_CRYSTALS = 1_000  # the latest crystals, which are searched for those that were made during a purge


class Purger:
    """Removes content from the store of a space, from events that wait to be stored, and from files that mica wrote.

    `trails` returns the trails of the space: they may be published as files, which a purge must rewrite. `remake` makes
    new crystals (summaries) in place of those that summarized a removed event. `list_beliefs` returns the beliefs that
    rest on the events with certain ids.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        *,
        clock: Clock,
        spools: Spools | None,
        trails: Callable[[], Trails],
        remake: Callable[[RemovedCrystals], Awaitable[Crystallized]],
        zone: tzinfo | None = None,
        list_beliefs: ListBeliefs = list_no_beliefs,
    ) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._spools = spools
        self._trails = trails
        self._remake = remake
        self._zone = zone
        self._list_beliefs = list_beliefs

    async def purge(
        self,
        *,
        ids: Event | Ref | Iterable[Reference] = (),
        matching: str | None = None,
        keep: Event | Ref | Iterable[Reference] = (),
        with_descendants: bool = True,
        value: str | None = None,
        anywhere: bool = False,
        really: bool = False,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str = BY_HAND,
        dry_run: bool = False,
    ) -> Purged:
        """Remove the content of every event that matches all conditions. See `Memory.purge` for details."""
        check_several("ids", ids)
        check_several("keep", keep)
        await self._log.collect()
        published = () if dry_run else await self._trails().publications()
        await (self._log.stored() if dry_run else self._log.clear())
        named = await self._resolve(ids)
        if records := [event.number for event in named if event.name in (PURGE, ALLOWED)]:
            raise InvalidInput(
                f"{', '.join(records)} records a purge and cannot be purged: tombstones refer to it, and it holds no "
                "purged content; leave it out"
            )
        known = frozenset([event.id for event in named])
        selection = Selection(
            ids=known,
            matching=matching,
            value=value,
            anywhere=anywhere,
            session=session,
            agent=agent,
            user=user,
            since=since,
            until=until,
        )
        _check_reason(reason, selection)
        _check_value(value, anywhere=anywhere, really=really)
        kept = await self._resolve(keep)
        if matching is not None:
            if not dry_run:
                raise InvalidInput(
                    "what matches words must be seen before it is purged: call purge(matching=…, dry_run=True), look "
                    "at `items`, and pass the ids of those to purge as `ids`"
                )
            return await self._list(matching, selection, keep=kept, with_descendants=with_descendants)
        if kept:
            raise InvalidInput("`keep` leaves out some of what matches words; give `matching`, or leave `keep` out")
        if dry_run:
            return _purged(await self._match(selection))
        names = await self._trails().chosen_names()
        purged, removed = await self._remove(selection, reason=reason)
        await self._empty_caches()
        done = await self._remake(removed)
        purged = msgspec.structs.replace(purged, remade=done.crystals, ended=removed.ended(done))
        if names:
            await self._trails().restore_names(names, without=value)
        if published:
            purged = add_published_files(purged, await self._trails().republish(published))
        await self._log.notify_purged()  # again: caches were filled while crystals were made again
        return purged

    async def _resolve(self, references: Event | Ref | Iterable[Reference]) -> list[Event]:
        return [
            await self._log.get(each) for each in ([references] if isinstance(references, Event | Ref) else references)
        ]

    async def _list(
        self, matching: str, selection: Selection, *, keep: Sequence[Event], with_descendants: bool
    ) -> Purged:
        """Return what a purge of everything about `matching` would remove."""
        listing = await list_matching(
            self._store,
            matching,
            now=self._clock(),
            zone=self._zone,
            keep=keep,
            with_descendants=with_descendants,
            fits=selection.fits,
            list_beliefs=self._list_beliefs,
        )
        ids = frozenset(selected_ids(listing.items))
        match = await self._match(Selection(ids=ids)) if ids else NOTHING
        return msgspec.structs.replace(_purged(match), items=listing.items, similar=listing.similar)

    async def _empty_caches(self) -> None:
        """Remove the purged text from the files that hooks read, from spools, and from the caches of this process."""
        self._log.notify_withdrawn()
        if self._spools is not None:
            await asyncio.to_thread(self._spools.sweep)
        await self._log.notify_purged()

    async def _remove(self, selection: Selection, *, reason: str) -> tuple[Purged, RemovedCrystals]:
        """Purge the stored events that `selection` matches, and record the purge.

        Return a pair: the result of the purge, and the periods and sources of the removed crystals, from which new
        crystals can be made.
        """
        exports = await self._store.log.query(EventQuery(names=(EXPORTED,), limit=None))
        at, tombstone = self._clock(), Tombstone(purge=next(self._log.ids), reason=reason)
        # Added first: an event stored meanwhile is either matched below or purged on arrival.
        if (purge := selection.to_purge(at=at, tombstone=tombstone)) is not None:
            await self._store.purges.add(purge)
        await self._log.flush()
        match = await self._match(selection)
        crystals = await self._matching(match, CRYSTAL)
        records = await self._matching(match, PURGE)
        to_remake = await crystals_to_remake(self._store.crystals, crystals.values(), selection)
        surviving = await survivors(self._store.log, to_remake, records.values(), selection)
        others = [crystal_of(event) for event in crystals.values() if event.id not in selection.ids]
        removed = RemovedCrystals.of(others, to_remake=to_remake)
        await self._bury(
            match.ids,
            tombstone,
            conditions=selection.conditions,
            at=at,
            context=self._log.here.context,
            selection=selection,
            surviving=surviving,
        )
        await self._bury_late(match.ids, tombstone)
        await self._log.clear()
        holds_value = None if selection.value is None else selection.is_in_bytes
        traces = await asyncio.to_thread(purge_traces, self._store.segments, selection.names, holds_value=holds_value)
        rewritten, unreached = await self._purge_exports(exports, match, selection=selection, tombstone=tombstone)
        quoting = await self._describe_quoting_files(match.ids)
        purged = msgspec.structs.replace(
            _purged(match),
            first=(),
            spellings={},
            matches=(),
            inside=(),
            record=tombstone.purge,
            applies_later=purge is not None,
            exports=rewritten,
            removed=traces.removed,
            unreached=(*await self._store.purges.scrub(), *traces.unresolved, *unreached, *quoting),
        )
        return purged, removed

    async def allow(self, value: str) -> list[EventId]:
        """Allow a purged value to be recorded again. See `Upkeep.allow` for details."""
        await self._log.stored()
        context = self._log.here.context
        purges = [purge for purge in await self._store.purges.all() if purge.is_of(value)]
        if not purges:
            raise InvalidInput(
                f"no purge of the value {value!r} is in force here, so it may be recorded; pass the text that was "
                "purged, in any spelling"
            )
        for purge in purges:
            at, tombstone = self._clock(), Tombstone(purge=next(self._log.ids), reason="allowed again")
            await self._store.purges.add(purge.lift(at=at, tombstone=tombstone))
            data = {"purge": purge.tombstone.purge}
            await self._log.append([make_event(tombstone.purge, ALLOWED, data, at=at, context=context, origin="user")])
        await self._log.reload_purges()
        return [purge.tombstone.purge for purge in purges]

    async def _describe_quoting_files(self, purged: Collection[EventId]) -> list[str]:
        """Return one sentence for each status file that quotes purged crystals. mica does not change these files."""
        ids = set(purged)
        records = await self._store.log.query(EventQuery(names=(QUOTED,), limit=None))
        quoting = [_quoted(record) for record in records]
        files = dict.fromkeys((each.path, each.host) for each in quoting if not ids.isdisjoint(each.crystals))
        return [f"{path} on {host} and its backups may quote purged marks: check them" for path, host in files]

    async def _match(self, selection: Selection) -> PurgeMatch:
        """Find the events that match, and all crystals, teachings, trail names and recorded briefs that quote them.

        In `ids` of the result, the quoting events come first, so an interrupted purge never leaves a quotation of a
        purged event.
        """
        match = await find(self._store.log, selection)
        quotations = await find_quotations(self._store, match.ids)
        names = Counter(match.names) + Counter(quotations.names)
        return msgspec.structs.replace(match, ids=(*quotations.ids, *match.ids), names=dict(sorted(names.items())))

    async def _matching(self, match: PurgeMatch, name: str) -> dict[EventId, Event]:
        if not match.names.get(name):
            return {}
        events = [event for some in steps(match.ids) for event in await self._store.log.get_many(some)]
        return {event.id: event for event in events if event.name == name}

    async def _bury(
        self,
        ids: Sequence[EventId],
        tombstone: Tombstone,
        *,
        conditions: Sequence[str],
        at: datetime,
        context: Context,
        selection: Selection | None = None,
        surviving: Sequence[Survivor] = (),
    ) -> None:
        """Record a purge, then replace the events with these ids by tombstones, which have no content.

        `conditions` are the names of the conditions by which the events were selected. `surviving` has records from
        which removed crystals of epochs and trees can be made again.
        """
        data = {"conditions": conditions, "events": len(ids), "reason": tombstone.reason}
        if surviving:
            data[SURVIVORS] = msgspec.to_builtins(surviving)
        event = make_event(tombstone.purge, PURGE, data, at=at, context=context, origin="user")
        if selection is not None and selection.fits(event):  # the record must not contain the purged name
            event = msgspec.structs.replace(event, context=EMPTY)
        await self._log.append([event])
        for some in steps(ids):
            await self._store.purges.bury(some, tombstone)

    async def _bury_late(self, ids: Sequence[EventId], tombstone: Tombstone) -> None:
        """Purge crystals and recorded briefs that were made during the purge and quote one of the purged events.

        `ids` are the ids of the purged events.
        """
        purged = set(ids)
        while True:
            latest = await self._store.log.query(EventQuery(names=(CRYSTAL,), limit=LATEST_CRYSTALS))
            late = [event.id for event in latest if not purged.isdisjoint(crystal_of(event).sources)]
            if not late:
                break
            await self._store.purges.bury(late, tombstone)
            purged.update(late)
        for some in steps([event.id for event in await receipts_quoting(self._store.log, purged)]):
            await self._store.purges.bury(some, tombstone)

    async def _purge_exports(
        self, exports: Iterable[Event], match: PurgeMatch, *, selection: Selection, tombstone: Tombstone
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Remove purged events from exported files.

        `exports` are the events that record exports. Returns a pair: the paths of the files that were rewritten, and
        one sentence for each file that a person must check.
        """
        records = {str(event.data.get("path")): event for event in exports}
        stones = await self._store.log.query(EventQuery(names=(PURGED,), limit=None)) if records else []
        tombstones = {event.id: event for event in stones}

        def stone_of(identifier: EventId, event: Event | None) -> Event | None:
            stone = tombstones.get(identifier)
            if stone is None or not tombstone_of(stone).reason.startswith(RETENTION):
                return stone
            # Retention moved the event into an archive file, where it stays until a person purges it.
            return make_tombstone(stone, tombstone) if event is not None and selection.fits(event) else None

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
                if match.first and match.first[0].at <= record.at:
                    unreached.append(f"the export {path} on {host} is not here; it may hold purged events: remove it")
            except (InvalidInput, OSError) as error:
                unreached.append(f"the export {path} was not rewritten: {error}; check it and remove it")
        return tuple(rewritten), tuple(unreached)

    async def retain(self, settings: RetentionSettings, *, dry_run: bool) -> RetentionResult:
        """Purge events that are too old, except those in use. See `Upkeep.retain` for details."""
        if not settings.enabled and not dry_run:
            raise InvalidInput(OFF)
        await self._log.flush()
        due_events = await due(self._store.log, settings, now=self._clock())
        classes = due_events.classes
        done = RetentionResult(
            enabled=settings.enabled,
            classes={name: len(ids) for name, ids in classes.items()},
            kept=due_events.kept,
            cited=due_events.cited,
        )
        if dry_run or not classes:
            return done
        archive = None
        if settings.archive is not None:
            archive = await self._archive(settings.archive, {each for ids in classes.values() for each in ids})
        for name, ids in classes.items():
            tombstone = Tombstone(purge=next(self._log.ids), reason=f"{RETENTION}: {name}")
            await self._bury(ids, tombstone, conditions=[RETENTION], at=self._clock(), context=self._log.here.context)
        await self._log.clear()
        await self._empty_caches()
        return msgspec.structs.replace(done, archive=archive, unreached=tuple(await self._store.purges.scrub()))

    async def _archive(self, folder: Path, ids: Collection[EventId]) -> str:
        """Write the events with these ids into a new file in `folder`, and return its path.

        An event records the file. Raises InvalidInput if the folder cannot be created.
        """
        path = folder / f"{self._store.space}-{self._clock():%Y%m%dT%H%M%S%f}.jsonl"
        try:
            await asyncio.to_thread(make_folder, path.parent)
        except OSError as error:
            raise InvalidInput(
                f"cannot create the archive {path.parent}: {error.strerror}; nothing was purged"
            ) from error
        with atomic_writer(path) as stream:
            async for event in history(self._store.log, EventQuery(), after=0):
                if event.id in ids:
                    stream.write(exported_line(event) + b"\n")
        record_export(self._log, path, events=len(ids))
        await self._log.flush()
        return str(path)


def _quoted(record: Event) -> Quoted:
    try:
        return msgspec.json.decode(record.body, type=Quoted)
    except msgspec.DecodeError:
        return Quoted()  # another program's event


def _check_value(value: str | None, *, anywhere: bool, really: bool) -> None:
    """Raise InvalidInput for a value that is too short to be meant, and for `anywhere` without a value."""
    if anywhere and value is None:
        raise InvalidInput("`anywhere` says how a value is searched; give the value, too")
    if value is not None and len(value.strip()) < VALUE_CHARACTERS_MIN and not really:
        raise InvalidInput(
            f"the value to purge has fewer than {VALUE_CHARACTERS_MIN} characters, so it may match much that is not "
            "meant; give a longer one, or confirm it with --really (`really` in Python and over HTTP)"
        )


def _check_reason(reason: str, selection: Selection) -> None:
    """Raise InvalidInput if `reason` cannot be stored in a tombstone, for example because it has the purged text."""
    if not isinstance(reason, str):
        raise InvalidInput(f"the reason {reason!r} is not a string; pass a string")
    check_unicode("the reason", reason)
    if not reason.strip() or len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput(f"the reason {reason[:60]!r} must have 1 to {REASON_CHARACTERS_MAX} characters")
    if reason.startswith(RETENTION):
        raise InvalidInput(f"a reason that begins with {RETENTION!r} is reserved for retention; use another")
    if reason != BY_HAND and any(text in reason for text in selection.texts):  # the default reason reveals nothing
        raise InvalidInput("the reason contains the content to purge, and the reason is stored; use another")


def _purged(match: PurgeMatch) -> Purged:
    return Purged(
        events=len(match.ids),
        ids=match.ids,
        names=match.names,
        sessions=match.sessions,
        first=match.first,
        spellings={each.text: each.events for each in match.matches},
        matches=match.matches,
        inside=match.inside,
    )
