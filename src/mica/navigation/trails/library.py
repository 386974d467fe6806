"""Read the trails of one space from the store, learn them from the log, and record changes to them."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mica.errors import InvalidInput, UnknownTrail
from mica.events.log import Log
from mica.model.event import EMPTY, MARK, RETRACTED, Clock, EventQuery
from mica.model.trail import (
    CRYSTALLIZED,
    EVOLVED,
    LEARNING,
    MEASURED,
    PUBLISHED,
    SUSPENDED,
    TRAIL_EVENTS,
    By,
    Trail,
    TrailQuery,
    exact_key,
    key_of,
    rank_trails,
    resolve,
    with_state,
)
from mica.model.walk import COMMAND, OUTCOME, STEPS, TURN, Walk, walks_of
from mica.navigation.trails.commands import Destination, PublishedFile, command_text, publish
from mica.navigation.trails.evolution import Drift, Evolution, TrailChanges, find_drift, to_crystallize, to_refresh
from mica.navigation.trails.learner import learn_trails
from mica.navigation.trails.matcher import measure_savings
from mica.navigation.trails.publication import Publication, publications_in
from mica.settings import TrailSettings
from mica.store.protocol import EventLog, TrailTable

EVENTS_MAX = 500_000  # the latest events that walks are read from; 10,000 walks have fewer
MEASURED_MAX = 20  # the best trails, which one evolution measures: for each of them, trails are learned again
FRESH_EVENTS_MAX = 50_000  # from a log up to this length, trails are learned on every read; from a longer one daily
LEARNED_FROM = (MARK, RETRACTED, COMMAND, TURN, OUTCOME, "file.read", "file.edit", "file.create")
COUNTED_FROM = (*LEARNED_FROM, "file.search", "file.list")


class TrailLibrary:
    """Reads and learns the trails of one space, and records their changes."""

    def __init__(self, events: EventLog, table: TrailTable, log: Log, *, clock: Clock, gates: TrailSettings) -> None:
        self._events = events
        self._table = table
        self._log = log
        self._clock = clock
        self._gates = gates

    async def refresh(self, *, even_if_slow: bool = True) -> None:
        """Learn the trails again if there are new events and the log has at most FRESH_EVENTS_MAX events.

        From a longer log, only the daily evolution learns. There is one exception: with `even_if_slow`, this method
        also learns from a longer log if no trails were learned from it yet.
        """
        if not await self._log.settle():  # learning would wait for the store, too
            return
        learned, last = await self._table.learned_up_to(), await self._events.last_position()
        is_due = last <= FRESH_EVENTS_MAX or (even_if_slow and not learned.position)
        if learned.position < last and is_due and await self.is_learning():
            await self.learn()

    async def trails(self, *, shape: str | None = None) -> Sequence[Trail]:
        """Return all trails with their current state and score, in no particular order.

        `shape` selects the trails for one kind of task.
        """
        now = self._clock()
        trails = await self._table.query(TrailQuery(shape=shape, limit=None))
        return [with_state(trail, now=now, gates=self._gates) for trail in trails]

    async def get(self, reference: str) -> Trail:
        """Return the trail with this name or key. Raises UnknownTrail if there is none."""
        trail = resolve(reference, await self.trails())
        if trail is None:
            raise UnknownTrail(reference)
        return trail

    async def check_free(self, slug: str) -> None:
        """Raise InvalidInput if a crystallized trail has this name."""
        await self.refresh()
        existing = resolve(slug, await self._table.query(TrailQuery(slug=slug)))
        if existing is not None and existing.version:
            raise InvalidInput(
                f"nav:{slug} is taken; choose another name, or see the trail with `mica trails show {slug}`"
            )

    async def walks(self, names: tuple[str, ...]) -> Sequence[Walk]:
        """Return the walks in the log. `names` are the names of the events that are read for them."""
        events = await self._events.query(EventQuery(names=names, limit=EVENTS_MAX))
        return await asyncio.to_thread(walks_of, events)

    async def learn(self) -> int:
        """Learn trails from the whole log, and return the number of trails. A second call changes nothing."""
        await self._log.stored()
        trails: Sequence[Trail] = ()
        for _ in range(2):  # again if something was purged in the meantime
            learned = await self._table.learned_up_to()
            position = await self._events.last_position()
            # Without any step there is no trail, so half a million marks need not be read.
            has_steps = bool(await self._events.query(EventQuery(names=tuple(STEPS), limit=1)))
            walks = await self.walks(LEARNED_FROM) if has_steps else ()
            records = await self._events.query(EventQuery(names=TRAIL_EVENTS, limit=None))
            trails = await asyncio.to_thread(learn_trails, walks, records, gates=self._gates)
            if await self._table.save(trails, msgspec.structs.replace(learned, position=position)):
                break
        return len(trails)

    async def is_learning(self) -> bool:
        """Return True if learning is on in this space.

        The latest recorded event LEARNING decides; if there is none, the setting `learn` decides.
        """
        await self._log.settle()
        switches = await self._events.query(EventQuery(names=(LEARNING,), limit=1))
        return bool(switches[-1].data.get("on")) if switches else self._gates.learn

    def crystallize(
        self, trail: Trail, *, slug: str, by: By, drift: Drift | None = None, is_chosen: bool = False
    ) -> None:
        """Record the next version of a trail, under the name `slug`.

        Its steps are those of `drift` if given, otherwise those of `trail`. `by` says whether a rule or a person asked
        for it, and `is_chosen` is True if a person chose the name.
        """
        steps = trail.steps if drift is None else drift.steps
        own = key_of(step.pattern or step.path for step in steps)
        data = {
            "key": trail.key,
            "keys": (*trail.merged, own) if own not in (trail.key, *trail.merged) else trail.merged,
            "slug": slug,
            "shape": trail.shape,
            "description": trail.description,
            "by": by,
            "version": trail.version + 1,
            "exact": exact_key(steps),
            "walks": trail.walks,
            "steps": msgspec.to_builtins(steps),
            "renamed": () if drift is None else drift.renamed,
            "given": is_chosen,
        }
        self._log.emit(CRYSTALLIZED, data, origin="user" if by == "user" else "tool")

    async def evolve(self, root: Path | None) -> TrailChanges:
        """Do the daily work on trails, and return the changes.

        Trails are learned, the best ones are crystallized, and the savings of crystallized trails are measured. Lines
        and files that have moved in the working tree `root` give a trail a new version; None skips this.
        """
        await self.learn()
        trails = await self.trails()
        crystallized = to_crystallize(trails, self._gates) if self._gates.auto else []
        for trail in crystallized:
            self.crystallize(trail, slug=trail.slug, by="rule")
        refreshed = to_refresh(trails)
        for trail in refreshed:
            self.crystallize(trail, slug=trail.slug, by=trail.by or "rule")
        if crystallized or refreshed:
            await self.learn()
        drifted = {} if root is None else await self._follow(root)
        measured_now = await self._measure()
        if drifted or measured_now:
            await self.learn()
        names = [trail.name for trail in refreshed]
        return TrailChanges(
            crystallized=tuple(trail.name for trail in crystallized),
            refreshed=(*names, *(name for name in drifted if name not in names)),
            drifted=drifted,
            measured=measured_now,
        )

    def record_evolution(self, evolution: Evolution) -> None:
        """Record the report of an evolution in the log."""
        self._log.emit(EVOLVED, msgspec.to_builtins(evolution), origin="tool")

    async def _follow(self, root: Path) -> dict[str, tuple[str, ...]]:
        """Make new versions of the crystallized trails whose lines or files have moved in the working tree `root`.

        A trail is suspended if none of its lines exist any more. Returns descriptions of what has moved, by the name of
        the trail.
        """
        reasons: dict[str, tuple[str, ...]] = {}
        for trail in rank_trails(await self.trails()):
            if trail.state != "crystallized":
                continue
            drift = await asyncio.to_thread(find_drift, trail, root=root, now=self._clock())
            if drift is None:
                continue
            reasons[trail.name] = drift.reasons
            if drift.steps:
                self.crystallize(trail, slug=trail.slug, by=trail.by or "rule", drift=drift)
            else:
                data = {"key": trail.key, "reason": f"nothing of it is left: {drift.reasons[0]}"}
                self._log.emit(SUSPENDED, data, origin="tool")
        return reasons

    async def _measure(self) -> tuple[str, ...]:
        """Measure the savings of crystallized trails, and record each result that differs from the last one.

        Return the names of the trails for which a result was recorded.
        """
        trails = [each for each in rank_trails(await self.trails()) if each.state == "crystallized"]
        if not trails:
            return ()
        walks = await self.walks(COUNTED_FROM)
        records = await self._events.query(EventQuery(names=TRAIL_EVENTS, limit=None))
        names: list[str] = []
        for trail in trails[:MEASURED_MAX]:
            now = await asyncio.to_thread(
                measure_savings, trail, walks, records, gates=self._gates, render=command_text
            )
            if now is not None and now != trail.measured:
                self._log.emit(MEASURED, {"key": trail.key, **msgspec.structs.asdict(now)}, origin="tool")
                names.append(trail.name)
        return tuple(names)

    async def publications(self) -> Sequence[Publication]:
        """Return the destinations to which commands and skills of this space were published."""
        await self._log.settle()
        return publications_in(await self._events.query(EventQuery(names=(PUBLISHED,), limit=None)))

    async def publish(self, trails: Sequence[Trail], destination: Destination, *, dry_run: bool) -> list[PublishedFile]:
        """Write trails as commands and skills, and record the destination. Return each file with the action taken.

        With `dry_run`, nothing is written or recorded. Raises InvalidInput if the destination cannot be written.
        """
        destination = msgspec.structs.replace(destination, root=destination.root.absolute())
        if not dry_run:
            publication = Publication(host=platform.node(), destination=destination)
            if publication not in await self.publications():
                data = msgspec.to_builtins(publication, enc_hook=str)
                self._log.emit(PUBLISHED, data, context=EMPTY, origin="user")
                await self._log.stored()
        try:
            return await asyncio.to_thread(publish, trails, destination, dry_run=dry_run)
        except OSError as error:
            raise InvalidInput(f"{destination.root} cannot be written: {error.strerror or error}") from error
