"""The front door: wires the stages together and decides nothing."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from datetime import time as clock_time
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from mica.crystallize.promoting import Promoting
from mica.crystallize.requests import Crystallized, Made, Request, Written
from mica.crystals import LEVELS, Crystal, CrystalQuery, Level, Waiting, crystal_of
from mica.errors import InvalidEvent, InvalidInput, MicaError, StoreError, UnknownEvent
from mica.inject.receipts import receipt
from mica.inject.render import DAY_TOKENS, render, room, with_cost
from mica.llm.embeddings import Encoder, chosen
from mica.llm.prices import prices
from mica.model import (
    CRYSTAL,
    EMPTY,
    EPOCH_OPENED,
    MARK,
    MILESTONE,
    RELATIONS,
    RETRACTED,
    Appended,
    Brief,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Mark,
    Origin,
    Ref,
    Relation,
    event_id,
    mark_of,
    new_writer,
    utc_now,
)
from mica.observe.context import Here, Scope, age_s, carrier, current, environment, narrowed, received
from mica.observe.emitter import Emit
from mica.observe.folding import Folding
from mica.observe.journal import Journal
from mica.observe.leftovers import backlog, closed_in, damaged_in
from mica.observe.redact import redact
from mica.observe.spool import Spools, hooks_folder
from mica.select import chains
from mica.select.budget import fit
from mica.select.finding import DEPTHS, Depth, Found, Wanted, find
from mica.select.follow import Bell, Following, history, history_with_ancestors
from mica.select.gather import gather
from mica.select.meaning import Meanings
from mica.select.overview import Overview, overview
from mica.select.references import Reference, Resolved, listed, referred, resolved
from mica.select.search import Filters
from mica.select.sessions import IDLE, OpenSession, open_sessions
from mica.select.sources import RECENCY_WEIGHT, Question, Source
from mica.select.sources.crystals import Crystals, saying, speaking
from mica.select.sources.files import Files
from mica.select.sources.marks import Marks
from mica.select.sources.teachings import Teachings
from mica.select.when import moment
from mica.settings import DigestKind, Settings, load_settings
from mica.store.ageing import HOT, Ageing, age
from mica.store.copying import Copied, copy
from mica.store.encoding import remember
from mica.store.hot import Hot, Reads, readable
from mica.store.opening import open_store
from mica.store.protocol import Sizes, Store
from mica.store.purging import BY_HAND, Outstanding, Purged, Selection
from mica.store.retention import PINNED, UNPINNED, Retained
from mica.store.scheduling import Job, Ran, Scheduler
from mica.store.space import is_address, space_of
from mica.teachings import AUTO_MAX, Candidate, Teaching
from mica.walks import OUTCOME, OUTCOMES, STARTED, WALKED, Outcome, Step, fields_of, latest_directory
from mica.words import terms

EVOLVING = clock_time(3)  # of the day, by the settings' time zone: when nobody works
CLOSING = timedelta(minutes=10)  # between two looks for sessions, days and weeks that are over
if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.crystallize.crystallizer import Crystallizer, Digester
    from mica.inject.handoff import Handoff
    from mica.inject.now import Applied, Proposal
    from mica.inject.purge import Purging
    from mica.inject.trails import Trails
    from mica.inject.why import Why
    from mica.llm.models import Models
    from mica.observe import logs
    from mica.select.navigation.navigating import Navigating
    from mica.select.navigation.places import Places
    from mica.select.replaying import Replay
    from mica.select.reporting import Period, Report
    from mica.store.importing import Imported, Importing, LogImported, Progress
    from mica.store.ingesting import Ingested, Ingesting

IMPORTED_AT_ONCE = 1_000  # events of one append
COMMITS_MAX = 5_000  # the latest of a repository; older ones say little of the files that are there now
WALKED_EVENTS = 500_000  # the latest that walks are read from: years of one person's work
TAUGHT_DAILY = 60  # tasks that a day's evolution learns from: some seconds, also where nobody planned for them
OVERVIEW_EVENTS = 20_000  # the latest; a few weeks of one person, read in a fraction of a second
Preset = Literal["quick", "standard", "research", "coordinator"]
PRESETS: dict[Preset, int] = {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}  # tokens
MEANING_SHARE = 0.4  # of what is left of it, for a model to read the question
LATEST_SHARE = 0.2  # of a brief's deadline, for storing what was emitted just before


class Memory:
    """One space: observe into it, search it, and be briefed from it. Open it with `mica.open`."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = utc_now,
        sources: Sequence[Source] = (),
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
        self._meanings = None if encoder is None else Meanings(store, encoder)
        self._folding.begin(self._journal)
        ids = map(partial(event_id, new_writer()), count(1))  # of what is appended without the journal
        self.spools = None if hooks is None else Spools(hooks)
        self._promoting = Promoting(store, append=self._append, ids=ids, clock=clock)
        settings.zone()  # raises when there is none of this name
        self._ids = ids
        self._models: Models | None = None  # opened when it is first asked for
        self._opening_models = asyncio.Lock()
        jobs = [Job(kind="crystallize", every=CLOSING, run=self._close_due)] if settings.crystals.auto else []
        if settings.trails.learn:
            daily = Job(kind="evolve", every=timedelta(days=1), at=EVOLVING, zone=settings.zone(), run=self._evolve)
            jobs.append(daily)
        self._scheduler = Scheduler(store, jobs, clock=clock, tell=self._job_failed)
        self._generation = store.generation
        self._marked_at: dict[EventId, datetime] = {}  # of marks made here: a reference to one has no time
        self._outstanding = Outstanding()  # purges, as far as this process knows of them
        self._sources: list[Source] = [Marks(store), Crystals(store), Files(store), Teachings(store), *sources]
        if len({source.name for source in self._sources}) < len(self._sources):
            raise InvalidInput(f"two sources have one name: {sorted(source.name for source in self._sources)}")
        self._is_closed = False
        self._navigating: dict[Path, Navigating] = {}  # one for each working tree that was asked about

    # -- Observe ----------------------------------------------------------------------------------------------

    @property
    def here(self) -> Here:
        """The context that an event emitted now would be given, and the parent it would descend from."""
        return current(self._space) or self._base

    @property
    def age_s(self) -> float | None:
        """How many seconds ago the current block was opened; None outside of every block."""
        return age_s(self._store.space)

    def context(
        self,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        task: str | None = None,
        correlation: str | None = None,
        parent: Event | Ref | None = None,
        **labels: str,
    ) -> Scope:
        """A `with` block, or a decorator, in which events come from here. What is not given is inherited."""
        space = self._space
        return Scope(space, narrowed, (space, self._base, parent, labels, session, agent, user, task, correlation))

    async def resumed(self, session: str) -> Scope:
        """A `with` block that goes on where a session stopped, here or in a process that is gone.

        Events in it have the context of the session's last event and descend from it. Raises InvalidInput when there
        is no such session.
        """
        last = await self.events(EventQuery(session=session, limit=1))
        if not last:
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica sessions` shows those that are open"
            )
        here = Here(last[0].context, last[0].ref)
        return Scope(self._space, lambda: here)

    def received(self, fields: Mapping[str, str]) -> Scope:
        """A `with` block that goes on where the sender of these headers, `_meta` fields or variables was."""
        return Scope(self._space, lambda: received(fields, space=self._space))

    def carrier(self) -> dict[str, str]:
        """Where we are, for HTTP headers and MCP `_meta`."""
        return carrier(self.here, space=self._store.space)

    def environment(self) -> dict[str, str]:
        """Where we are, for the environment of a child process: `env=os.environ | memory.environment()`."""
        return environment(self.here, space=self._store.space)

    @property
    def emit(self) -> Emit:
        """Record that something happened; returns where it stands in its chain. Stored as given, never redacted.

        When it returns, the event survives `kill -9`; `await durable()` says when it survives power loss. Without
        `context` it comes from the current block. Raises InvalidEvent when it cannot be stored as it is, and Backlogged
        when the store has not kept up for very long. Keys of data that are no texts come to light only when it is
        stored: then `event.refused` stands in its place, with the reason.
        """
        return self._journal.emit

    def mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
        parent: Event | Ref | None = None,
        relation: Relation = "causes",
        context: Context | Here | None = None,
        origin: Origin = "agent",
        at: datetime | None = None,
    ) -> Ref:
        """Record an observation; returns where it stands. Secrets are redacted on the way in.

        `relation` says what the parent is to it: it causes it, or the mark continues it, branches off or fulfills it.
        """
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"a mark needs a text, not {text!r}")
        if relation not in RELATIONS:
            raise InvalidInput(f"there is no relation {relation!r}; use one of {', '.join(RELATIONS)}")
        given = [tags] if isinstance(tags, str) else tags
        principles = [principles] if isinstance(principles, str) else principles
        self._check_asserted(text, why or "", *principles, *given)
        stands_at = at or self._clock()
        led_at = parent.at if isinstance(parent, Event) else None if parent is None else self._marked_at.get(parent.id)
        if parent is not None and led_at is not None and stands_at < led_at:
            raise InvalidInput(f"a mark cannot come before what led to it: {parent.id} is of {led_at.isoformat()}")
        data: dict[str, object] = {"text": redact(text), "tags": [tag.lstrip("#") for tag in given]}
        if why is not None:
            data["why"] = redact(why)
        if principles:
            data["principles"] = [redact(principle) for principle in principles]
        if relation != "causes":
            if parent is None and self.here.parent is None:
                raise InvalidInput(f"a mark that {relation} something needs a parent; give what it {relation}")
            data["relation"] = relation
        ref = self.emit(MARK, data, parent=parent, context=context, origin=origin, at=at)
        remember(self._marked_at, ref.id, stands_at)
        if MILESTONE in cast(list[str], data["tags"]):
            self.emit(EPOCH_OPENED, {"mark": ref.id}, parent=ref, context=context, origin=origin, at=at)
        return ref

    def _check_asserted(self, *texts: str) -> None:
        """Raise InvalidInput when one of these says again what was purged."""
        for text in texts:
            if (purge := self._outstanding.asserted(text)) is not None:
                raise InvalidInput(f"this was purged ({purge.told.reason}), and must not be brought back")

    async def durable(self) -> None:
        """Return when every event emitted before is on disk, power loss or not."""
        await asyncio.to_thread(self._journal.sync)

    async def _stored(self) -> None:
        """Return when every event emitted or spooled before has its position. Raises what the store raised."""
        await self._ingest_spools()
        await self._folding.flush()

    async def _ingest_spools(self) -> None:
        """Store what hooks have spooled since; looking costs a listing of a folder."""
        if self.spools is not None and self.spools.has_news() and self._ingesting is not None:
            await self._ingesting.ingest()

    @cached_property
    def _ingesting(self) -> Ingesting | None:
        if self.spools is None:
            return None
        from mica.store.ingesting import Ingesting

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
        if self._meanings is not None:
            self._meanings.disturb()
        self._bell.ring()
        self._scheduler.stir()
        if self._store.generation != self._generation:  # another process has purged: leave no copy in our segments
            self._generation = self._store.generation
            self._journal.leave()
            await self.learn_purges()
            if self._models is not None:
                self._models.cache.clear()
        return appended

    async def learn_purges(self) -> None:
        """Know what was purged, so that no mark brings it back. While the store is away: what was known before."""
        with suppress(StoreError):
            self._outstanding = Outstanding(await self._store.purges())

    async def ingest(self) -> Ingested:
        """Store what hooks of coding agents spooled, and render what they answer next. Every reading stores it too."""
        if self._ingesting is None or self.spools is None:
            raise InvalidInput(f"no hooks write for {self.location}; they write beside the file of a space")
        done = await self._ingesting.ingest()
        if not done.is_busy:
            from mica.inject import answers

            await answers.render(
                self.spools, self._store, settings=self._settings, brief=self.brief, receipt=self._receipt
            )
        return done

    def _take_back_answers(self) -> None:
        if self.spools is not None:
            from mica.inject import answers

            answers.take_back(self.spools)

    def walk(
        self,
        task: str,
        steps: Iterable[Step | Mapping[str, object]],
        *,
        outcome: Outcome = "unknown",
        reason: str = "",
        workflow: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        at: datetime | None = None,
    ) -> Ref:
        """Record what was opened and changed for a task, in order, as hooks of coding agents do; returns the walk.

        For orchestrators and build workflows that see the work of an agent themselves. A step is a mapping with the
        fields of `mica.walks.Step`: `path`, `operation`, and where known `start_line`, `end_line`, `total_lines`,
        `tokens`, `content_hash`, `failed`. `workflow` is the kind of task (`adw_build`). Raises InvalidInput for
        anything else, before anything is recorded.
        """
        if outcome not in OUTCOMES:
            raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
        told = [fields_of(step) for step in steps]
        here = self.here.context.with_(session=session, agent=agent, task=workflow)
        with Scope(self._space, lambda: Here(here, None)):  # a walk is a chain of its own
            walk = self.mark(task, tags=("prompt",), origin="user", at=at)
            for name, fields, failed in told:
                self.emit(name, fields, parent=walk, origin="tool", error=failed, at=at)
            if outcome != "unknown":
                self.outcome(walk, outcome, reason=reason)
        return walk

    def outcome(self, walk: Event | Ref, outcome: Outcome, *, reason: str = "") -> Ref:
        """Say how a task ended. The last word counts; without one it is unknown."""
        if outcome not in OUTCOMES:
            raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
        data: dict[str, object] = {"outcome": outcome}
        if reason:
            data["reason"] = redact(reason)
        return self.emit(OUTCOME, data, parent=walk, origin="user")

    async def import_transcripts(
        self,
        paths: Iterable[Path],
        *,
        root: Path | Mapping[Path, Path | None] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Imported:
        """Read coding agents' transcripts into this space, in the order given. What was read before is not read twice.

        `root` is the folder that paths of files are relative to, one for all or one for each transcript; where it is
        None, the folder the session worked in first. A file that cannot be read is named in the result; the others go
        on. The last turn of a session that may still run is not taken as ended; an import half an hour later does.
        """
        await self._stored()
        return await self._importing.transcripts(paths, root=root, on_progress=on_progress)

    async def import_log(
        self, path: Path, *, format: logs.Format | None = None, source: str = "", allow_orphans: bool = False
    ) -> LogImported:
        """Store the events of a JSONL file: our own export, KSI's or flat embedded contexts, or CloudEvents.

        All or nothing; importing again changes nothing. `source` tells logs apart that use the same ids. Raises
        InvalidInput naming the lines that cannot be read or whose parent is neither in the file nor in this space.
        """
        await self._stored()
        return await self._importing.log(path, format=format, source=source, allow_orphans=allow_orphans)

    async def unread(self, paths: Iterable[Path]) -> list[Path]:
        """Which of these transcripts have something that is not in this space yet. One that is gone has nothing."""
        return await self._importing.unread(paths)

    # -- Read -------------------------------------------------------------------------------------------------

    async def event(self, reference: Reference) -> Event:
        """The event of this id or position. Raises UnknownEvent when there is none."""
        found = await self._referred(reference, await self._reads())
        if found is None:
            raise UnknownEvent(str(reference))
        return found

    async def resolve(self, references: Iterable[Reference]) -> Resolved:
        """The events of up to 100 ids or positions, in the order given, and those that are not there by name."""
        asked = listed(references)
        reads = await self._reads()
        return resolved(asked, [await self._referred(reference, reads) for reference in asked])

    async def _referred(self, reference: Reference, reads: Reads) -> Event | None:
        return await referred(reference, reads=reads, store=self._store, flush=self._stored)

    async def events(self, query: EventQuery | None = None) -> list[Event]:
        """The latest events that fit, oldest first."""
        return await (await self._reads()).events(query or EventQuery())

    async def open_sessions(self) -> list[OpenSession]:
        """The sessions that have not ended and in which somebody has written in the last 30 minutes, latest last."""
        return open_sessions(await self.events(EventQuery(since=self._clock() - IDLE, limit=None)))

    async def position(self) -> int:
        """The position of the last event of the log, 0 when there is none: where a follower of later ones begins."""
        await self._stored()
        return await self._store.last_position()

    async def log(
        self, query: EventQuery | None = None, *, after: int = 0, with_ancestors: bool = False
    ) -> AsyncIterator[Event]:
        """Every stored event that fits, in commit order, from after a position to the end of the log.

        With ancestors, also all that led to these, so that no parent is missing. Read in small steps, so a log of any
        size can be walked; the query's limit does not count.
        """
        await self._stored()
        walk = history_with_ancestors if with_ancestors else history
        async for event in walk(self._store, query or EventQuery(), after=after):
            yield event

    def follow(self, query: EventQuery | None = None, *, after: int | None = None) -> Following:
        """Every event that fits, in commit order, as it is stored; none is missed and none comes twice.

        Use it as `async for event in memory.follow(…)`. It begins after a position, or with what is stored after the
        loop has begun; `after=await memory.position()` makes that moment exact. Events of other processes and machines
        come too. While the store is unavailable it waits, then goes on from the last position; when this memory is
        closed it raises StoreUnavailable. Whoever breaks out of the loop or is cancelled leaves nothing behind. The
        query's limit does not count.
        """

        async def begin() -> int:
            return await self.position() if after is None else after

        return Following(
            self._store, query or EventQuery(), begin=begin, bell=self._bell, is_closed=lambda: self._is_closed
        )

    async def chain(self, event: Event) -> list[Event]:
        """All events of the chain that this one belongs to, oldest first."""
        return await (await self._reads()).chain(event.correlation)

    async def ancestors(self, event: Event) -> list[Event]:
        """What led to this event, nearest first."""
        return await (await self._reads()).ancestors(event.id)

    async def descendants(self, event: Event, *, depth: int | None = None) -> list[Event]:
        """What this event led to, oldest first."""
        return await (await self._reads()).descendants(event.id, depth=depth)

    async def impact(self, event: Event) -> chains.Impact:
        """What came after this event in its chain: caused by it, and apart from that merely correlated."""
        reads = await self._reads()
        chain = await reads.chain(event.correlation)
        return chains.impact(event, chain=chain, descendants=await reads.descendants(event.id))

    async def failures(self, query: EventQuery | None = None) -> list[chains.Failure]:
        """The latest failures that fit, oldest first, each with what led to it and the agents that were part of it."""
        reads = await self._reads()
        failed = await reads.events(msgspec.structs.replace(query or EventQuery(), errors=True))
        return [
            chains.failure(
                event,
                ancestors=await reads.ancestors(event.id),
                descendants=await reads.descendants(event.id),
            )
            for event in failed
        ]

    async def replay(
        self,
        event: Event,
        *,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncIterator[Event]:
        """The chain of this event from it on, in order: at once, or at a multiple of the recorded speed.

        With a speed each event comes when it is due by `clock`, which counts seconds; nothing is executed again.
        """
        chains.check_speed(speed)
        part = chains.since(event, await self.chain(event))
        async for other in chains.replay(part, speed=speed, clock=clock, sleep=sleep):
            yield other

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        agent: str | None = None,
        tags: str | Sequence[str] = (),
        level: Depth | None = None,
        with_sources: bool = False,
        with_superseded: bool = False,
        now: datetime | None = None,
    ) -> Found:
        """The marks and crystals that answer the query, best first; empty when none does.

        Each hit has `id`, `text`, `at`, `position`, `score` and `parts`, and is a `Hit` with its `mark` or a
        `CrystalHit` with its `crystal`. Of a crystal and the marks and crystals beneath it only the better one is
        shown, unless `with_sources`; crystals that were superseded or retracted only `with_superseded`. `level` asks
        for marks alone ("mark"), or for the crystals of one level.

        Only those from `since` on and before `until`, of this agent, and with all of these tags. Times may be phrases
        such as "last Tuesday". A time that the query itself names raises what is around it; `periods` of the answer
        says how it was understood.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"a query is a text, not {query!r}")
        if limit < 0:
            raise InvalidInput(f"a limit of {limit} is not possible; give 0 or more")
        if level is not None and level not in DEPTHS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(DEPTHS)}")
        now = now or self._clock()
        given = [tags] if isinstance(tags, str) else tags
        filters = Filters(
            since=self._moment(since, now),
            until=self._moment(until, now),
            agent=agent,
            tags=tuple(tag.lstrip("#") for tag in given),
        )
        await self._stored()
        likeness = {} if self._meanings is None else {"likeness": self._meanings.likeness}
        return await find(
            self._store,
            query,
            limit=limit,
            now=now,
            zone=self._settings.zone(),
            filters=filters,
            wanted=Wanted(level=level, with_sources=with_sources, with_superseded=with_superseded),
            **likeness,
        )

    async def navigate(
        self, task: str, *, limit: int = 10, session: str | None = None, root: Path | None = None
    ) -> Places:
        """The files that a task will probably need, with the lines to begin at, how sure that is and why; best first.

        Only files of the working tree at `root` as it is now; without `root`, of the tree that `directory` names. What
        was done earlier in `session` counts most; without it, the session of the current block. `missing` of the answer
        names what could not be looked at. Without any history, names and words alone decide.
        """
        if not isinstance(task, str):
            raise InvalidInput(f"a task is a text, not {task!r}")
        from mica.select.navigation.navigating import Navigating
        from mica.select.navigation.places import Places

        await self._stored()
        folder = await self.directory() if root is None else self._folder(root)
        if folder is None:
            return Places(missing={"files": f"the directory that {self.location} speaks of is not on this machine"})
        if folder not in self._navigating:
            self._navigating[folder] = Navigating(self._store, folder, home=self._kept)
        session = self.here.context.session if session is None else session
        return await self._navigating[folder].places(task, limit=limit, session=session, now=self._clock())

    async def directory(self) -> Path | None:
        """The working tree that this space speaks of: where its latest session worked; without any, the current one.

        The current directory also where it is of this very space. None when the session's directory is not here.
        """
        here = space_of(Path.cwd(), home=self._settings.home)
        started = await self.events(EventQuery(names=(STARTED,), limit=1))
        if not started or str(here.file) == self.location:
            return here.root
        latest = latest_directory(started)
        return None if latest is None else self._folder(latest)

    def _folder(self, root: Path | None) -> Path:
        """The working tree around a directory."""
        return space_of(Path.cwd() if root is None else root, home=self._settings.home).root

    @property
    def _kept(self) -> Path | None:
        """Where copies are kept that can be made again; nowhere for a store that ends with the process."""
        return None if self._store.segments is None else self._settings.home

    async def learn_git(self, *, root: Path | None = None, limit: int = COMMITS_MAX) -> Appended:
        """Take in the latest commits of the repository around `root`: subjects, changed files and renames, each once.

        Without `root`, of the current directory. Merges are left out; subjects are redacted. Raises InvalidInput where
        there is no git or no history.
        """
        from mica.observe.git import changes_of, events_of

        changes = await asyncio.to_thread(changes_of, self._folder(root), limit=limit)
        await self._stored()
        total = Appended()
        events = list(events_of(changes))
        for start in range(0, len(events), IMPORTED_AT_ONCE):
            done = await self._append(events[start : start + IMPORTED_AT_ONCE])
            total = Appended(stored=total.stored + done.stored, repeated=total.repeated + done.repeated)
        return total

    async def learn_navigation(self, *, root: Path | None = None, limit: int | None = None) -> int:
        """Learn from tasks that are new what signals and probabilities of `navigate` are worth here; returns how many.

        Each is asked again with what was known then, over the files as they were in the history at `root`, which is the
        directory of the latest session unless given. What is learned are numbers, kept in the data folder.
        """
        from mica.inject.offers import offer
        from mica.select.navigation.navigating import learned_file, load_learned, save_learned
        from mica.select.navigation.rewalking import TAUGHT_MAX, relearned

        if self._kept is None:
            return 0
        events = await self.events(EventQuery(names=WALKED, limit=WALKED_EVENTS))
        where = latest_directory(events) if root is None else self._folder(root)
        file = learned_file(self._kept, space=self._store.space)
        learned, taught = await asyncio.to_thread(
            relearned,
            events,
            where,
            before=load_learned(file),
            render=offer,
            prices=prices(),
            now=self._clock(),
            limit=TAUGHT_MAX if limit is None else limit,
        )
        if taught:
            await asyncio.to_thread(save_learned, file, learned)
        return taught

    def _moment(self, given: datetime | str | None, now: datetime) -> datetime | None:
        if isinstance(given, str):
            return moment(given, now=now, zone=self._settings.zone())
        if given is not None and given.tzinfo is None:
            raise InvalidInput(f"{given!r} has no time zone; give an aware time, or a text such as 'last Tuesday'")
        return given

    async def brief(
        self,
        query: str = "",
        *,
        budget_tokens: int | None = None,
        preset: Preset | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        deadline_s: float | None = None,
        now: datetime | None = None,
        is_preview: bool = False,
    ) -> Brief:
        """What an agent should know now: never over the budget, never later than the deadline, its gaps named.

        Sources that fail or hang are named in `missing`; nothing of theirs is raised. The receipt is an event;
        a preview, which no agent is shown, has none. A `preset` is a budget by name. `recency_weight`, from 0 to 1, is
        how much being fresh counts among crystals, beside what they say of the query.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"a query is a text, not {query!r}; without one, leave it out")
        if preset is not None and preset not in PRESETS:
            raise InvalidInput(f"there is no preset {preset!r}; use one of {', '.join(PRESETS)}")
        if preset is not None and budget_tokens is not None:
            raise InvalidInput(f"a preset is a budget by name; give {preset!r} or {budget_tokens!r}, not both")
        if budget_tokens is None:
            budget_tokens = self._settings.brief.budget_tokens if preset is None else PRESETS[preset]
        check_budget("brief", budget_tokens)
        if not 0 <= recency_weight <= 1:
            raise InvalidInput(f"a recency weight of {recency_weight} is not possible; give 0 to 1")
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"a brief cannot be made within {deadline_s} seconds; give more than 0")
        deadline_s = self._settings.brief.deadline_s if deadline_s is None else deadline_s
        started = asyncio.get_running_loop().time()
        missing = await self._flushed_within(deadline_s * LATEST_SHARE)
        left_s = deadline_s - (asyncio.get_running_loop().time() - started)
        question = Question(
            query=query,
            now=now or self._clock(),
            zone=self._settings.zone(),
            store=self._store,
            meanings=self._meanings,
            meaning_s=left_s * MEANING_SHARE,
            recency_weight=recency_weight,
            budget_tokens=budget_tokens,
        )
        gathered = await gather(self._sources, question, deadline_s=left_s)
        missing |= gathered.missing | question.missing
        offered = [with_cost(passage, budget_tokens=budget_tokens) for passage in gathered.passages]
        left_tokens = room(budget_tokens, missing=missing)
        chosen, left_out = fit(offered, budget_tokens=left_tokens, day_tokens=DAY_TOKENS)
        brief = render(query, chosen, budget_tokens=budget_tokens, left_out=left_out, missing=missing)
        return brief if is_preview else msgspec.structs.replace(brief, receipt=self._receipt(brief))

    async def why(self, reference: Reference) -> list[Why]:
        """What a brief, a crystal or another event rests on: given its id, its position, or a line that ends in them.

        A line of a brief names one event or several, as in `… (#12 #14)`. Raises UnknownEvent when one is not there.
        """
        from mica.inject.why import handles, why

        asked: list[Reference] = [*handles(reference)] if isinstance(reference, str) else [reference]
        return [await why(self._store, await self.event(each)) for each in asked]

    async def _flushed_within(self, timeout_s: float) -> dict[str, str]:
        """Store what was emitted before; what a brief is told when that cannot be done in time."""
        try:
            await asyncio.wait_for(self._stored(), timeout_s)
        except TimeoutError:
            waiting = sum(last - first for _, first, last in self._folding.unfolded)
            late = f"the store did not answer within {timeout_s * 1000:.0f} ms"
            return {"latest": f"{waiting:,} events wait for the store" if waiting else late}
        except MicaError as error:
            return {"latest": str(error)}
        return {}

    def _receipt(self, brief: Brief) -> EventId | None:
        """Record what was shown, as recalled text: a brief is never evidence."""
        try:
            return self.emit("brief", receipt(brief), origin="recalled").id
        except MicaError:
            return None  # nothing can be written; the agent's turn goes on

    # -- Crystallize ------------------------------------------------------------------------------------------

    async def crystallize(
        self,
        *,
        level: Level = "session",
        session: str | None = None,
        tree: EventId | None = None,
        since: datetime | None = None,
        label: str | None = None,
        digest: DigestKind | None = None,
        dry_run: bool = False,
    ) -> Made:
        """Close now what is open, up to this level, whether it is over or not; returns the crystals made, lowest first.

        What could not be made is in `waiting` of the list. A dry run shows the lowest level only: what would be above
        it rests on what is not recorded.

        With `session`, only that one; with `tree`, one crystal over an event and all that followed from it. `label`
        names an epoch. Marks that come later make a new revision. What is crystallized already is not made again. A
        model that cannot answer raises a ModelError: nothing else is made in its place.
        """
        if level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        if tree is not None and (session is not None or level != "session"):
            raise InvalidInput(
                "a tree gets one crystal beside the hierarchy of time; leave out the level and the session"
            )
        if since is not None and since.tzinfo is None:
            raise InvalidInput(f"{since.isoformat()} has no time zone; use an aware datetime")
        request = Request(
            level=level,
            session=session,
            tree=tree,
            since=since,
            label=label,
            is_forced=True,
            is_dry=dry_run,
            digest=await self._digest(digest),
        )
        made = Made.of(await self._crystallized(request))
        if session is not None and not made and not await self.events(EventQuery(session=session, limit=1)):
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica sessions` shows those that are open"
            )
        return made

    async def auto_crystallize(self, *, since: datetime | None = None) -> list[Crystal]:
        """Close what is over: sessions, days, weeks, epochs; returns the crystals made. A second call makes none."""
        request = Request(since=since, digest=await self._digest())
        return list((await self._crystallized(request)).crystals)

    async def waiting(self) -> list[Waiting]:
        """What no crystal covers yet, and why."""
        return list((await self._crystallized(Request(is_dry=True))).waiting)

    async def commit_crystal(
        self,
        insight: Sequence[tuple[str, Sequence[EventId]]],
        *,
        sources: Sequence[EventId] = (),
        period: str | None = None,
        level: Level = "session",
        significance: Sequence[tuple[str, Sequence[EventId]]] = (),
        principles: Sequence[tuple[str, Sequence[EventId]]] = (),
        topics: Sequence[str] = (),
        dropped: Mapping[EventId, str] | None = None,
        confidence: float = 0.8,
        label: str | None = None,
    ) -> Crystal:
        """Record a crystal that an agent wrote itself: statements, each with the marks it rests on.

        It keeps the same laws as every other: LawBroken says which one it does not. A live crystal of the same period
        is superseded. Without a period it is of the session of the current block, and of all marks of that session
        that no other crystal covers.
        """
        await self._stored()
        if period is None:
            if level != "session" or (session := self.here.context.session) is None:
                raise InvalidInput("say which period this crystal is of: no session is known here")
            period, own = await self._crystallizer.of_session(session)
            sources = list(dict.fromkeys([*own, *sources]))
        self._check_asserted(*(text for part in (insight, significance, principles) for text, _ in part), *topics)
        written = Written(
            insight=insight, significance=significance, principles=principles, topics=topics, dropped=dropped or {}
        )
        return await self._crystallizer.commit(
            written,
            level=level,
            period=period,
            sources=sources,
            confidence=confidence,
            label=label,
            context=self.here.context,
        )

    async def crystals(
        self,
        query: str = "",
        *,
        level: Level | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> list[Crystal]:
        """The crystals that stand: those that end last, oldest first; with a query, what speaks of it, best first."""
        await self._stored()
        asked = CrystalQuery(level=level, since=since, until=until, limit=None if query else limit)
        if not query:
            return await self._store.crystals(asked)
        return speaking(await saying(self._store, terms(query), asked), query)[:limit]

    async def crystal_stream(self, level: Level | None = None, *, after: int | None = None) -> AsyncIterator[Crystal]:
        """Crystals as they are made, also by other processes, in commit order; begins and ends as `follow` does."""
        if level is not None and level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        async for event in self.follow(EventQuery(names=(CRYSTAL,)), after=after):
            crystal = crystal_of(event)
            if level is None or crystal.level == level:
                yield crystal

    async def crystal(self, reference: Reference) -> Crystal:
        """The crystal of this id or position. Raises UnknownEvent, or InvalidEvent when it is something else."""
        event = await self.event(reference)
        if event.name != CRYSTAL:
            raise InvalidEvent(f"event {event.id} is not a crystal, it is a {event.name}; `mica crystals` lists them")
        return crystal_of(event)

    async def expand(self, reference: Reference) -> list[Mark] | list[Crystal]:
        """What a crystal rests on: its marks, or its crystals of the level below."""
        crystal = await self.crystal(reference)
        events = await self._store.events_of(crystal.sources)
        if crystal.level == "session":
            return [mark_of(event) for event in events if event.name == MARK]
        return [crystal_of(event) for event in events if event.name == CRYSTAL]

    async def retract(self, reference: Reference, *, reason: str) -> EventId:
        """Say that a mark or a crystal does not hold any more. It stays in the log; nothing finds it or rests on it."""
        event = await self.event(reference)
        if event.name not in (MARK, CRYSTAL):
            raise InvalidInput(f"event {event.id} is a {event.name}; only marks and crystals are retracted")
        if not reason.strip():
            raise InvalidInput("say why it does not hold any more; the reason is empty")
        if event.name == MARK and not await self._store.texts([event.position or 0], neighbours=0):
            raise InvalidInput(f"mark {event.number} is retracted already, or was only recalled")
        self._take_back_answers()
        ref = self.emit(RETRACTED, {"mark": event.id, "reason": redact(reason)}, parent=event, origin="user")
        await self._stored()
        await self._remake()
        return ref.id

    async def _remake(self) -> None:
        """Make anew what rested on something that is gone, unless that is switched off."""
        if self._settings.crystals.auto:
            with suppress(MicaError):  # now, or at its next time
                await self._crystallizer.make(Request(), context=EMPTY)

    async def handoff(self, *, session: str | None = None, budget_tokens: int | None = None) -> Handoff:
        """Crystallize a session, and tell what the next agent needs to start: never over the budget, each line sourced.

        Without `session` it is that of the current block, else the one in which something happened last; the result
        names it. A failure to crystallize stands in `errors`. Raises InvalidInput when there is no such session.
        """
        from mica.inject.handoff import collect, compose, latest_session

        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("handoff", budget_tokens)
        await self._stored()
        if session is not None and not await self._store.events(EventQuery(session=session, limit=1)):
            raise InvalidInput(f"there is no session {session!r} in this space; `mica overview` shows the latest")
        chosen = session or self.here.context.session or await latest_session(self._store)
        made: list[Crystal] = []
        errors: list[str] = []
        if chosen is not None:
            try:
                made = await self.crystallize(session=chosen)
            except MicaError as error:
                errors.append(str(error))
        told = await collect(self._store, chosen)
        return compose(told, budget_tokens=budget_tokens, new_crystals=made, errors=errors)

    async def propose_now(self, file: Path | str = "NOW.md", *, section: str = "What Just Happened") -> Proposal:
        """What a section of a status file could say of the latest crystals. Nothing is written; `apply_now` does that.

        Raises InvalidInput when the file cannot be read as text.
        """
        from mica.inject.now import collect, propose, read

        await self._stored()
        lately = await collect(self._store, section=section)
        before = await asyncio.to_thread(read, Path(file))
        return propose(lately, file=Path(file), section=section, before=before)

    async def apply_now(self, proposal: Proposal) -> Applied:
        """Write a proposal and keep a copy of the file as it was; every byte outside of the section stays.

        Raises InvalidInput when the file has changed since it was proposed, or cannot be written.
        """
        from mica.inject.now import apply

        applied = await asyncio.to_thread(apply, proposal, at=self._clock())
        from mica.inject.purge import QUOTED, Quoted

        told = Quoted(path=applied.file, host=os.uname().nodename, crystals=proposal.source_crystals)
        self.emit(QUOTED, msgspec.to_builtins(told), origin="user")
        return applied

    async def teachings(self, *, with_ended: bool = False) -> list[Teaching]:
        """The crystals that were promoted and stand, oldest first; on request also those that ended, with the reason.

        A teaching ends when it is withdrawn, or when its crystal or a mark that it cites is retracted; purged with what
        it cites, it is gone. One whose crystal was superseded stands, and names the successor.
        """
        await self._stored()
        return await self._promoting.teachings(with_ended=with_ended)

    async def promote(self, reference: Reference, *, by: str | None = None, reason: str = "") -> Teaching:
        """Make a crystal a teaching, until it is withdrawn. One that is a teaching already stays as it is.

        `by` is who promotes it; without it, the agent or user of the current block. Raises InvalidInput when it is no
        crystal, or one that does not stand.
        """
        here = self.here.context
        identifier = (await self.event(reference)).id
        who = by or here.agent or here.user or "unknown"
        return await self._promoting.promote(identifier, by=who, reason=reason, context=here)

    async def candidates(self) -> list[Candidate]:
        """The crystals that a rule would promote, best first."""
        await self._stored()
        return await self._promoting.candidates()

    async def auto_promote(self, *, limit: int = AUTO_MAX) -> list[Teaching]:
        """Promote the best candidates, a few at a time; returns the new teachings."""
        await self._stored()
        return await self._promoting.promote_best(context=self.here.context, limit=limit)

    async def withdraw(self, reference: Reference, *, reason: str) -> Teaching:
        """End a teaching; it stays in the log. Raises UnknownEvent when it is none."""
        identifier = (await self.event(reference)).id
        ended = await self._promoting.withdraw(identifier, reason=reason, context=self.here.context)
        self._take_back_answers()
        return ended

    async def tick(self, kinds: Collection[str] | None = None) -> list[Ran]:
        """Do what is due in this space and nobody else does; returns what was done."""
        await self._stored()
        return await self._scheduler.tick(kinds)

    @cached_property
    def trails(self) -> Trails:
        """The trails of this space: `await memory.trails.list()`, `.show`, `.choose`, `.log`, `.track` …"""
        from mica.inject.trails import Trails

        return Trails(
            self._store,
            emit=lambda: self.emit,
            stored=self._stored,
            here=lambda: self.here,
            walk=self.walk,
            clock=self._clock,
            gates=self._settings.trails,
        )

    async def _evolve(self) -> int:
        report = await self.trails.evolve()
        if await self.trails.is_learning():
            await self.learn_navigation(limit=TAUGHT_DAILY)
        return len(report.crystallized) + len(report.refreshed)

    @cached_property
    def _importing(self) -> Importing:
        from mica.store.importing import Importing

        return Importing(self._store, append=self._append, ids=self._ids, clock=self._clock, idle=IDLE)

    @cached_property
    def _purging(self) -> Purging:
        from mica.inject.purge import Purging

        return Purging(self._store, self._journal, self._folding, append=self._append, ids=self._ids, clock=self._clock)

    @cached_property
    def _crystallizer(self) -> Crystallizer:
        from mica.crystallize.closing import Calendar
        from mica.crystallize.crystallizer import Crystallizer

        return Crystallizer(
            self._store,
            append=self._append,
            ids=self._ids,
            clock=self._clock,
            calendar=Calendar(self._settings.zone()),
            idle=timedelta(minutes=self._settings.crystals.idle_minutes),
        )

    async def _crystallized(self, request: Request) -> Crystallized:
        await self._stored()
        return await self._crystallizer.make(request, context=self.here.context)

    async def _close_due(self) -> int:
        request = Request(digest=await self._digest())
        return len((await self._crystallizer.make(request, context=EMPTY)).crystals)

    async def _digest(self, kind: DigestKind | None = None) -> Digester | None:
        """The way to say what marks meant, None for their own words."""
        if (kind or self._settings.crystals.digest) == "extractive":
            return None
        from mica.crystallize.crystallizer import by_model

        return by_model(await self.models(), tier=self._settings.crystals.tier, agent=self.here.context.agent)

    async def models(self) -> Models:
        """The language models of `[models]`, with what they have cost in this space so far."""
        from mica.llm.tiers import open_models

        async with self._opening_models:
            if self._models is None:
                models = open_models(self._settings, space=self._space, record=self._record_spending)
                for event in await self.events(EventQuery(names=("model.reserved", "model.spent"), limit=None)):
                    models.ledger.restore(event.name, event.data, at=event.at)
                self._models = models
            return self._models

    def _job_failed(self, ran: Ran) -> None:
        self.emit("job.failed", {"kind": ran.kind, "text": ran.error}, origin="tool", error=True)

    def _record_spending(self, name: str, told: Mapping[str, object]) -> None:
        self.emit(name, told, origin="tool")

    async def overview(self) -> Overview:
        """What agents did lately in this space."""
        latest = await self.events(EventQuery(limit=OVERVIEW_EVENTS))
        return overview(latest, is_partial=len(latest) == OVERVIEW_EVENTS)

    # -- Keep -------------------------------------------------------------------------------------------------

    async def replay_walks(
        self,
        *,
        root: Path | None = None,
        latest: int | None = None,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> Replay:
        """What offering paths would have been worth over this space's own history, learning only from the past.

        With `latest`, only so many of the last tasks are judged.

        Files are seen as they were in the git history at `root`, which is the directory of the latest session unless
        given. Without one, a file can be offered once somebody has opened it; `missing` of the answer says so.
        """
        from mica.inject.offers import offer
        from mica.select.navigation.rewalking import rewalked

        events = await self.events(EventQuery(names=WALKED, limit=WALKED_EVENTS))
        where = latest_directory(events) if root is None else root
        return await asyncio.to_thread(
            rewalked, events, where, render=offer, prices=prices(), latest=latest, on_progress=on_progress
        )

    async def report(self, period: Period = "day", *, until: datetime | str | None = None) -> Report:
        """A day's or a week's work before `until`, beside the period before it, with the arms of all that was offered.

        The arms are compared over the last eight weeks, since a day has too few tasks to tell anything.
        """
        from mica.select.reporting import ARMS_SPAN, LENGTHS, report

        if period not in LENGTHS:
            raise InvalidInput(f"no period is called {period!r}; there are {', '.join(LENGTHS)}")
        now = self._clock()
        end = self._moment(until, now) or now
        events = await self.events(EventQuery(since=end - ARMS_SPAN, until=end, limit=None))
        return await asyncio.to_thread(report, events, period=period, until=end, prices=prices())

    @property
    def space(self) -> str:
        """The id of this space."""
        return self._store.space

    @property
    def location(self) -> str:
        """Where this space is kept."""
        return self._store.location

    async def backlog(self) -> tuple[int, int]:
        """How many events of any process wait to be stored in this space, and the bytes that their segments take."""
        return await asyncio.to_thread(backlog, self._store.segments)

    @property
    def damaged(self) -> list[str]:
        """What could not be read of the segments that other processes left, now or earlier."""
        return [*self._folding.damaged, *damaged_in(self._store.segments), *closed_in(self._store.segments)]

    async def copy_to(
        self,
        target: str | Path,
        *,
        into_other: bool = False,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> Copied:
        """Bring every event of this space into another store, and prove that it is there. Resumable.

        Raises InvalidInput when the target is this space itself or, unless `into_other` is given, holds another one.
        """
        await self._stored()
        store = await open_store(target, settings=self._settings)
        try:
            return await copy(self._store, store, into_other=into_other, on_progress=on_progress)
        finally:
            await store.close()

    def exported(self, path: Path, *, events: int) -> None:
        """Record that events were written to a file, so that a purge can take them out of it."""
        self._purging.exported(path, events=events)

    async def purge(
        self,
        *,
        ids: Iterable[Reference] = (),
        value: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str = BY_HAND,
        dry_run: bool = False,
    ) -> Purged:
        """Remove the content of every event that fits all that is given; a tombstone stays in the place of each.

        It goes from the store with all that derives from it, from segments, recorded exports and published commands;
        what happened before now and arrives later is purged on arrival. The purge is recorded, without what it was
        asked by. Cut off in the middle, some events are purged and the others are as they were; calling it again goes
        on. Raises InvalidInput when nothing is selected and UnknownEvent for an id that is not here.
        """
        await self._ingest_spools()
        published = () if dry_run else await self.trails.publications()
        await (self._stored() if dry_run else self._folding.clear())
        known = frozenset([(await self.event(reference)).id for reference in ids])
        selection = Selection(ids=known, value=value, session=session, agent=agent, user=user, since=since, until=until)
        purged = await self._purging.purge(selection, reason=reason, context=self.here.context, dry_run=dry_run)
        if not dry_run:
            self._take_back_answers()
            if self.spools is not None:
                await asyncio.to_thread(self.spools.sweep)
            if self._models is not None:
                self._models.cache.clear()
            await self.learn_purges()
            await self._remake()
        if published:
            from mica.inject.publishing import with_files

            purged = with_files(purged, await self.trails.republish(published))
        return purged

    async def retain(self, *, dry_run: bool = False) -> Retained:
        """Purge bulk events whose time is over, as `[retention]` is set; archived first where a folder is set.

        Raises InvalidInput while retention is off; a dry run tells what would go all the same.
        """
        return await self._purging.retain(self._settings.retention, context=self.here.context, dry_run=dry_run)

    def pin(self, *events: Event | Ref) -> Ref:
        """Keep these events for good, whatever retention is set to."""
        return self.emit(PINNED, {"ids": [event.id for event in events]}, origin="user")

    def unpin(self, *events: Event | Ref) -> Ref:
        """Let retention take these events again."""
        return self.emit(UNPINNED, {"ids": [event.id for event in events]}, origin="user")

    async def sizes(self) -> Sizes:
        """How much this space holds; of what waits for the store in large number, only the events are counted."""
        await self._reads()
        async with self._folding.paused() as waiting:
            sizes = await self._store.sizes()
            return msgspec.structs.replace(sizes, events=sizes.events + Hot(waiting).count)

    async def verify(self) -> list[str]:
        """Every broken promise in the stored data, one sentence each."""
        await self._stored()
        return await self._store.verify()

    async def rebuild(self) -> int:
        """Derive again what is derived from the log; returns the number of events read."""
        await self._stored()
        had_trails = bool((await self._store.lesson()).position)
        count = await self._store.rebuild()
        if had_trails:
            await self.trails.learn()
        await self.embed()
        return count

    async def embed(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Make the vectors that marks are missing, the latest first; returns how many. Nothing without a model.

        A process that stays does this by itself, when nothing was stored for a while.
        """
        if self._meanings is None:
            return 0
        await self._stored()
        return await self._meanings.catch_up(on_progress=on_progress)

    async def without_vector(self) -> int | None:
        """How many marks have no vector yet; None when meaning does not count here."""
        if self._meanings is None:
            return None
        await self._stored()
        return await self._meanings.missing()

    async def age(
        self,
        older_than: timedelta = HOT,
        *,
        at_least: int = 1,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Turn events older than this into what takes less room; returns how many. No reader sees a difference.

        Nothing is done when fewer are due than `at_least`. A process that stays does this by itself once an hour, when
        nothing was stored for a while and there is enough to fill a block.
        """
        if older_than < timedelta(0):
            raise InvalidInput(f"events of the future cannot be aged; give an age of 0 or more, not {older_than}")
        await self._stored()
        return await age(
            self._store, now=self._clock, older_than=older_than, at_least=at_least, on_progress=on_progress
        )

    async def close(self) -> None:
        """Release everything. What the store cannot take now stays on disk for the next who opens the space."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._scheduler.close()
            if self._models is not None:
                await self._models.close()
            await self._ageing.close()
            if self._meanings is not None:
                await self._meanings.close()
            await self._folding.close()
        finally:
            self._journal.close()
            await self._store.close()


def check_budget(what: str, budget_tokens: object) -> None:
    """Raise InvalidInput when this is no number of tokens."""
    if not isinstance(budget_tokens, int) or isinstance(budget_tokens, bool) or budget_tokens < 0:
        raise InvalidInput(f"a {what} cannot have {budget_tokens!r} tokens; give a whole number, 0 or more")


class Opening:
    """A memory about to be opened: `await` it, or use it as `async with`."""

    def __init__(
        self,
        target: str | Path | None,
        settings: Settings | None,
        clock: Clock,
        *,
        must_exist: bool,
        encoder: Encoder | None,
    ) -> None:
        self._target = target
        self._encoder = encoder
        self._must_exist = must_exist
        self._settings = settings
        self._clock = clock
        self._memory: Memory | None = None

    def __await__(self) -> Generator[Any, None, Memory]:
        return self._open().__await__()

    async def __aenter__(self) -> Memory:
        self._memory = await self._open()
        return self._memory

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._memory is not None:
            await self._memory.close()

    async def _open(self) -> Memory:
        settings = self._settings or load_settings()
        encoder = self._encoder or chosen(settings.semantic)
        target = self._target if self._target is not None else settings.store
        store = await open_store(target, settings=settings, must_exist=self._must_exist)
        hooks = hooks_of(target, settings)
        memory = Memory(store, settings=settings, clock=self._clock, encoder=encoder, hooks=hooks)
        await memory.learn_purges()
        return memory


def hooks_of(target: str | Path | None, settings: Settings) -> Path | None:
    """Where hooks write for a target: beside its file, or beside that of the directory whose place a setting takes."""
    if target is None or str(target) == settings.store:
        return hooks_folder(space_of(Path.cwd(), home=settings.home).file)
    return None if str(target) == ":memory:" or is_address(target) else hooks_folder(Path(target).expanduser())


def open(
    target: str | Path | None = None,
    *,
    settings: Settings | None = None,
    clock: Clock = utc_now,
    must_exist: bool = False,
    encoder: Encoder | None = None,
) -> Opening:
    """Open a space: a file, `postgresql://…`, `:memory:`, or nothing for the space of the current directory.

    Use it as `memory = await mica.open(…)` and close it, or as `async with mica.open(…) as memory`. One that is not
    there is made, or raises UnknownSpace where it must exist. `encoder` makes vectors in place of the one that the
    settings ask for.
    """
    return Opening(target, settings, clock, must_exist=must_exist, encoder=encoder)
