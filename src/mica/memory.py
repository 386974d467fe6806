"""The entry point of the library: `open` opens a `Memory`, which composes the packages and contains no logic itself.

A package is imported, and its object created, at first use. Work that must happen before or after an append, a purge or
a read is done by listeners of the `Log`, which are added here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mica.errors import InvalidInput, StoreBusy
from mica.events.context import Here, Scope, carrier, narrow, received
from mica.events.emitter import Emit
from mica.events.log import Link, Log
from mica.events.references import Reference
from mica.model.belief import Belief, is_belief_id
from mica.model.brief import RECENCY_WEIGHT, Brief, Preset
from mica.model.event import JUDGED, Appended, Clock, Context, Event, EventId, EventQuery, Origin, Ref, utc_now
from mica.model.mark import Relation
from mica.model.text_cache import forget_texts
from mica.settings import Settings, load_settings
from mica.store.priority import Priority
from mica.store.protocol import Store, StoreFiles, VectorIndex
from mica.store.purges import BY_HAND, Purged
from mica.store.space import WorkingTrees, is_address, space_of
from mica.upkeep.schedule import Ageing, Job, JobRun, Scheduler

if TYPE_CHECKING:  # these packages are loaded when they are first used, so that starting is quick
    from mica.beliefs.api import Beliefs
    from mica.brief.api import Briefs
    from mica.brief.handoff import Handoff
    from mica.brief.why import Why
    from mica.clients.api import Clients
    from mica.clients.spool import Spools
    from mica.crystals.api import Crystals
    from mica.events.api import Events
    from mica.llm.embeddings import Encoder
    from mica.llm.models import Models
    from mica.model.crystal import Crystal
    from mica.navigation.api import Trails
    from mica.navigation.file_ranking import FileRanking
    from mica.navigation.places import Places, RankedFile
    from mica.search.search import Depth, SearchResults
    from mica.search.vectors import MarkVectors
    from mica.sources.api import Sources
    from mica.sources.protocol import Concept, Source
    from mica.sources.registry import SourceRegistry
    from mica.upkeep.api import Upkeep
    from mica.upkeep.purge import Purger

CRYSTALLIZE_EVERY = timedelta(minutes=10)  # between two checks for sessions, days and weeks that are over
LEARN_EVERY = timedelta(minutes=10)  # beliefs are learned before every read, too; this keeps a long import short
WARM_EVERY = timedelta(minutes=89)  # between two refreshes of what sources know of the most used concepts
EVOLVE_AT = time(3)  # time of day in the time zone of the settings; few people work then


class Memory:
    """One space: record events and marks, search them, and get briefs. Open it with `mica.open`."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = utc_now,
        sources: Sequence[Source] = (),
        encoder: Encoder | None = None,
        hooks: Path | None = None,
        is_ours: Callable[[Path], bool] | None = None,
        reads_ahead: bool = True,
    ) -> None:
        """Create the memory of an open store. Every brief queries `sources`, in addition to mica's own sources.

        `hooks` is the folder where hooks write events of this space, if there is one. The other parameters work as in
        `open`, but without an `encoder` there is no search by meaning.
        """
        self._zone = settings.zone()  # raises for an unknown time zone
        _check_names(sources)
        self._task_sources = sources
        self._registry = _open_registry(settings) if settings.sources else None  # raises for invalid settings
        self._store = store
        self._space = store.space
        self._settings = settings
        self._clock = clock
        self._reads_ahead = reads_ahead
        self._home = None if store.segments is None else settings.home  # for caches that can be rebuilt
        self._working_trees = WorkingTrees(settings.home, is_ours=is_ours)
        self._log = Log(store, carrier=settings.carrier, clock=clock)
        self._journal = self._log.journal
        self._ageing = Ageing(store.files, now=clock)
        self._priority = Priority()
        self._vectors = None if encoder is None else _open_vectors(store.vectors, store.files, encoder, self._priority)
        self._spools = None if hooks is None else _open_spools(hooks)
        self._scheduler = Scheduler(
            store.work, self._jobs(), clock=clock, on_failure=self._record_failed_job, give_way=self._priority.give_way
        )
        self._models: Models | None = None
        self._opening_models = asyncio.Lock()
        self._file_ranking: FileRanking | None = None
        self._sources: Sources | None = None
        self._collecting: asyncio.Future[None] | None = None  # the lines of hooks become events
        self._log.before_read.append(self._collect_spools)
        self._log.before_append.append(self._before_append)
        self._log.on_append.append(self._on_append)
        self._log.on_purge += [self._forget_files, self._forget_model_replies, forget_texts]
        self._log.on_withdrawal += [self._forget_files, self._remove_hook_answers]

    # -- Record

    @property
    def space(self) -> str:
        """The id of this space."""
        return self._space

    @property
    def location(self) -> str:
        """The file or address of the store."""
        return self._store.location

    @property
    def here(self) -> Here:
        """The context and the parent that an event would get if it were emitted now."""
        return self._log.here

    def context(
        self,
        /,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        task: str | None = None,
        correlation: str | None = None,
        parent: Event | Ref | None = None,
        **labels: str,
    ) -> Scope:
        """Set the context of the events in a `with` block or, as a decorator, in a function.

        Omitted fields are inherited from the current context. `parent` becomes the parent of these events. Any other
        keyword argument is a label, such as `branch="main"`.
        """
        space, base = self._space, self._log.base
        return Scope(space, narrow, (space, base, parent, labels, session, agent, user, task, correlation))

    def received(self, fields: Mapping[str, str]) -> Scope:
        """Continue the context of a caller, such as another process, in a `with` block.

        `fields` are the caller's HTTP headers, MCP `_meta` fields or environment variables.
        """
        return Scope(self._space, lambda: received(fields, space=self._space))

    def carrier(self) -> dict[str, str]:
        """Return the current context as fields to send in HTTP headers or MCP `_meta`."""
        return carrier(self.here, space=self._space)

    @property
    def emit(self) -> Emit:
        """Record an event; returns its reference. Data is stored unchanged, never redacted.

        When it returns, the event survives `kill -9`; `await durable()` makes it survive a power loss. The default of
        `context` is the current one. Raises InvalidEvent if the event cannot be stored, and Backlogged if too many
        events wait to be stored.

        The keys of data must be strings. Only the first event of each name is checked for this at once. A later event
        with a key of another type is not stored; an event `event.refused` with the reason is stored in its place.
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
        replaces: Link | Sequence[Link] = (),
        ends: Link | Sequence[Link] = (),
    ) -> Ref:
        """Record an observation; returns its reference. Secrets are redacted before it is stored.

        `relation` says how the mark relates to `parent`: it is caused by the parent, continues it, branches off from it
        or fulfills it. `at` is the time of the observation, by default now. `replaces` and `ends` are beliefs, or marks
        whose beliefs, this mark replaces or ends. A user's rule, preference or decision is ended only by a user: a mark
        of an agent leaves it as it is. Raises InvalidInput for a time that is far in the future or before 1970, and for
        an id that is neither that of an event nor of a belief.
        """
        return self._log.mark(
            text,
            tags=tags,
            why=why,
            principles=principles,
            parent=parent,
            relation=relation,
            context=context,
            origin=origin,
            at=at,
            replaces=replaces,
            ends=ends,
        )

    async def durable(self) -> None:
        """Wait until every event emitted so far would survive a power loss."""
        await self._log.durable()

    # -- Query

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
    ) -> SearchResults:
        """Return the marks and crystals that match the query, best first.

        Each hit has `id`, `text`, `at`, `position`, `score` and `parts`. It is a `Hit` with its `mark` or a
        `CrystalHit` with its `crystal`. If a crystal and its sources match, only the best of them is returned; with
        `with_sources`, all are. Superseded and retracted crystals are returned only with `with_superseded`. `level`
        restricts the results to marks ("mark") or to the crystals of one level.

        The other filters restrict the time (from `since` on, before `until`), the agent and the tags: a mark must have
        all of `tags`. Times may be phrases such as "last Tuesday", understood relative to `now`. A time in the query
        itself raises the score of hits around it; `periods` of the result shows how that time was understood. A hit
        that mentions a file which `navigate` finds for this query gets a higher score; `parts` shows by how much.
        Raises InvalidInput for a query that contains no word.
        """
        from mica.search.search import SearchScope, find, parse_filters

        now = now or self._clock()
        filters = parse_filters(
            query, limit=limit, since=since, until=until, agent=agent, tags=tags, level=level, now=now, zone=self._zone
        )
        await self._log.settle()
        likeness = {} if self._vectors is None else {"likeness": self._vectors.likeness}
        with self._priority.query():
            return await find(
                query,
                log=self._store.log,
                chains=self._store.chains,
                texts=self._store.texts,
                crystals=self._store.crystals,
                limit=limit,
                now=now,
                zone=self._zone,
                filters=filters,
                scope=SearchScope(level=level, with_sources=with_sources, with_superseded=with_superseded),
                reorder=await self._files.reorder(query),
                **likeness,
            )

    async def brief(
        self,
        query: str = "",
        *,
        concept: Concept | str | Sequence[Concept | str] = (),
        budget_tokens: int | None = None,
        preset: Preset | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        deadline_s: float | None = None,
        now: datetime | None = None,
        at: datetime | str | None = None,
        compress: bool = False,
        off: bool = False,
        is_preview: bool = False,
    ) -> Brief:
        """Return a brief: a text with what an agent should know now, within the budget and the deadline.

        Statements of other systems about each `concept`, and about the concepts in the setting `[brief] concepts`, take
        at most 1/φ (about 62 %) of the budget. A source that fails or is late is listed in `missing` of the result; no
        error is raised. `preset` is the name of a budget. `recency_weight`, from 0 to 1, says how much recency counts
        when crystals are chosen; the rest is their relevance to the query. With `compress`, passages that do not all
        fit the budget are shortened to their most relevant sentences, and the brief says how many it shows.

        The brief is recorded as an event, its receipt. Pass `is_preview` for a brief that no agent will see: then
        nothing is recorded. The brief is empty with `off`, in a space with briefs switched off, and in a session held
        out for comparison. The receipt then says that the brief was withheld.

        With `at`, the brief is made as of that past time: from events recorded until then, and from the last answers of
        other systems that were recorded before. `deadline_s` is then ignored.
        """
        return await self.briefs.brief(
            query,
            concept=concept,
            budget_tokens=budget_tokens,
            preset=preset,
            recency_weight=recency_weight,
            deadline_s=deadline_s,
            now=now,
            at=at,
            compress=compress,
            off=off,
            is_preview=is_preview,
        )

    async def handoff(self, *, session: str | None = None, budget_tokens: int | None = None) -> Handoff:
        """Return the text for the agent that continues a session: within the budget, each line with its source.

        `session` is by default the session of the current `context` block or, without one, that of the latest event;
        the result has its id. Crystals of the session are made first. If that fails, `errors` of the result has the
        reason. Raises InvalidInput if there is no such session.
        """
        return await self.briefs.handoff(session=session, budget_tokens=budget_tokens)

    async def navigate(
        self, task: str, *, limit: int = 10, session: str | None = None, root: Path | None = None
    ) -> Places:
        """Return the files that a task will probably need, best first, each with lines, a probability and reasons.

        Only files that are now in the working tree at `root` are returned. By default, this is the tree of
        `events.directory`. Files used earlier in `session` count most. By default, this is the session of the current
        `context` block. `missing` of the result lists what could not be read. In a space without earlier tasks, files
        are ranked only by the words that the task shares with their contents and names.
        """
        return await self._files.navigate(task, limit=limit, session=session, root=root)

    async def why(self, reference: Belief | Reference) -> list[Why]:
        """Return the evidence for an event, such as a brief or a crystal, for a belief, or for one line of a brief.

        `reference` is the id or position of the event, the id of the belief, or the line. Most lines of a brief end
        with event numbers, as in `… (#12 #14)`; each of these events is explained. Any other line, or its first words
        (two or more), is searched in the latest recorded briefs. If the line shows marks or crystals, these are
        returned. If it lists files, the last access to each file is returned. If it comes from another system, the rows
        and files of that system are returned. A belief is explained with those that it replaced. Retracted and
        withdrawn events are shown as such, with the reason. Raises UnknownEvent if an event or a belief does not exist,
        and InvalidInput if no line matches.
        """
        if isinstance(reference, Belief) or is_belief_id(reference):
            belief = await self.beliefs.get(reference)
            return await self.briefs.why_belief(belief, await self.beliefs.history(belief))
        return await self.briefs.why(reference)

    # -- Correct, retract and purge

    async def correct(self, reference: Belief | Reference, text: str) -> EventId:
        """Replace the text of a mark or a belief; returns the id of the mark with the new text.

        The old text stays in the history only: the old mark is retracted, and what it supported is replaced. A mark
        that supports other beliefs, too, is not retracted when one of them is corrected. Raises UnknownEvent, and
        InvalidInput for an empty text, for an event that is not a mark, and for a belief that has ended.
        """
        if isinstance(reference, Belief) or is_belief_id(reference):
            return (await self.beliefs.correct(reference, text)).evidence[-1]
        return (await self.beliefs.correct_mark(await self._log.get(reference), text)).id

    async def retract(self, reference: Belief | Reference, *, reason: str) -> EventId:
        """Retract a mark, a crystal or a judgment, or end a belief; returns the id of the retraction.

        The event stays in the log, but is no longer found or used. Cached answers of sources that depend on the event
        are marked as old.
        """
        if isinstance(reference, Belief) or is_belief_id(reference):
            ended = await self.beliefs.end(reference, reason=reason)
            return ended.ended_by or ended.evidence[-1]

        event = await self._log.get(reference)
        owner = self.sources if event.name == JUDGED else self.crystals
        return await owner.retract(event, reason=reason)

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
        """Remove the content of every event that fits all conditions, leaving a tombstone (an event without content).

        An event fits `ids` if it is one of them, and `value` if its data, name or context contains this text as whole
        words, in any spelling; with `anywhere`, also inside of longer words. A value of fewer than 4 characters needs
        `really`.

        `matching` is a subject in words, such as "everything about the staging proxy". It needs `dry_run`: `items` of
        the result lists the events with these words, the events that descend from them (unless `with_descendants` is
        False) and the crystals that rest on them; without those in `keep`. To purge them, pass their ids as `ids`.

        The content is removed from the store with everything derived from it, and also from files of events that wait
        to be stored, from recorded exports and from published commands. Matching events that are older than the purge
        but arrive later are purged on arrival. A crystal that cited a purged event is made again from its other sources
        (`remade` of the result). If that is impossible, `ended` of the result has the reason. The purge is recorded
        without the values of its conditions.

        If the call is interrupted, some events are purged and the others are unchanged; call it again to finish. Raises
        InvalidInput if no condition is given, and UnknownEvent for an id that does not exist.
        """
        return await self._purger.purge(
            ids=ids,
            matching=matching,
            keep=keep,
            with_descendants=with_descendants,
            value=value,
            anywhere=anywhere,
            really=really,
            session=session,
            agent=agent,
            user=user,
            since=since,
            until=until,
            reason=reason,
            dry_run=dry_run,
        )

    async def close(self) -> None:
        """Store all events and release all files, connections and tasks.

        Events that the store cannot take now stay on disk until the space is opened again; the logger `mica` reports
        their number and folder. In a forked child process, and after the event loop that opened this memory was closed,
        only the files of unstored events are closed; the next process that reads the space stores these events. Raises
        StoreUnavailable if it is called from another event loop while the one that opened this memory is still open.
        """
        log = self._log
        if log.is_closed:
            return
        log.start_closing()
        if log.is_detached:  # the rest belongs to the parent, or ended with its loop
            log.journal.close()
            return
        parts = (
            self._scheduler,
            self._sources,
            self._file_ranking,
            self._registry,
            self._models,
            self._ageing,
            self._vectors,
            log,
        )
        try:
            if self._collecting is not None:
                self._collecting.cancel()
                await asyncio.wait([self._collecting])
            for part in parts:
                if part is not None:
                    await part.close()
        finally:
            log.journal.close()
            await self._store.close()

    # -- Packages

    @cached_property
    def events(self) -> Events:
        """Methods for recorded events: `query`, `get`, `chain`, `follow`, `import_log`, `export` …"""
        from mica.events.api import Events

        return Events(
            self._log,
            event_log=self._store.log,
            chains=self._store.chains,
            notices=self._store.notices,
            location=self._store.location,
            clock=self._clock,
            trees=self._working_trees,
        )

    @cached_property
    def crystals(self) -> Crystals:
        """Methods for crystals, which summarize past work: `make`, `list`, `context`, `expand`, `promote` …"""
        from mica.crystals.api import Crystals

        return Crystals(
            self._log,
            self.events,
            event_log=self._store.log,
            chains=self._store.chains,
            texts=self._store.texts,
            crystals=self._store.crystals,
            clock=self._clock,
            settings=self._settings,
            priority=self._priority,
            models=self._open_models,
        )

    @cached_property
    def beliefs(self) -> Beliefs:
        """Methods for beliefs, which are statements that hold now: `list`, `about`, `add`, `confirm`, `end` …"""
        from mica.beliefs.api import Beliefs

        return Beliefs(self._log, event_log=self._store.log, table=self._store.beliefs, clock=self._clock)

    @cached_property
    def trails(self) -> Trails:
        """Methods for trails, which are files that proved useful together: `list`, `show`, `create`, `load` …"""
        from mica.navigation.api import Trails

        return Trails(
            self._store.log,
            self._store.trails,
            self._log,
            trees=self._working_trees,
            clock=self._clock,
            settings=self._settings,
            home=self._home,
            append_named=self._append_named,
        )

    @property
    def sources(self) -> Sources:
        """Methods for sources, which answer questions about a concept: `gather`, `register`, `test`, `judge` …"""
        if self._sources is None:
            from mica.brief.own_sources import concept_sources, task_sources
            from mica.sources.api import Sources
            from mica.sources.pipeline import SourceFlush

            flush = SourceFlush(self._log)
            if self._registry is None:
                self._registry = _open_registry(self._settings)
            self._sources = Sources(
                self._log,
                self._registry,
                event_log=self._store.log,
                trails=self._store.trails,
                replies=self._store.replies,
                purges=self._store.purges,
                own=[
                    *task_sources(
                        self._store,
                        rank_files=self._rank_files,
                        zone=self._zone,
                        vectors=self._vectors,
                    ),
                    *concept_sources(self._store, stored=flush, gates=self._settings.trails),
                    *self._task_sources,
                ],
                flush=flush,
                clock=self._clock,
                settings=self._settings,
            )
        return self._sources

    @cached_property
    def briefs(self) -> Briefs:
        """Methods for briefs, the texts that agents receive: `quality`, `switch`, `is_on`, `now`, `prepare` …"""
        from mica.brief.api import Briefs
        from mica.navigation import file_ranking  # noqa: F401  # loaded before a deadline begins

        self.beliefs  # noqa: B018  # the same

        return Briefs(
            self._log,
            self.sources,
            event_log=self._store.log,
            chains=self._store.chains,
            texts=self._store.texts,
            crystals=self._store.crystals,
            clock=self._clock,
            settings=self._settings,
            priority=self._priority,
            vectors=self._vectors,
            rank_past=self._files.at,
            crystallize=self._crystallize_session,
            after_switch=self._render_switch,
            read_instructions=self._read_instructions,
            learn=self._refresh_beliefs,
        )

    @cached_property
    def clients(self) -> Clients:
        """Methods that read what coding agents (clients) recorded: `import_transcripts`, `unread`, `ingest`."""
        from mica.clients.api import Clients

        return Clients(
            self._store.log,
            self._log,
            location=self._store.location,
            clock=self._clock,
            settings=self._settings,
            spools=self._spools,
            render_answers=self._render_hook_answers,
        )

    @cached_property
    def upkeep(self) -> Upkeep:
        """Methods for maintenance: `tick`, `verify`, `rebuild`, `age`, `copy_to`, `sizes` …"""
        from mica.upkeep.api import Upkeep

        return Upkeep(
            self._store,
            self._log,
            clock=self._clock,
            settings=self._settings,
            scheduler=self._scheduler,
            vectors=self._vectors,
            purger=lambda: self._purger,
            after_tick=self._save_ranking,
            learn_trails=self._learn_trails,
        )

    # -- Parts that packages share

    @cached_property
    def _purger(self) -> Purger:
        from mica.upkeep.purge import Purger

        return Purger(
            self._store,
            self._log,
            clock=self._clock,
            spools=self._spools,
            trails=lambda: self.trails,
            remake=self.crystals.remake,
            zone=self._zone,
        )

    @property
    def _files(self) -> FileRanking:
        """The object that ranks files for a task, created on first use."""
        if self._file_ranking is None:
            from mica.navigation.file_ranking import FileRanking

            self._file_ranking = FileRanking(
                self._log,
                event_log=self._store.log,
                trails=self._store.trails,
                space=self._space,
                location=self._store.location,
                trees=self._working_trees,
                directory=self.events.directory,
                clock=self._clock,
                home=self._home,
                spools=self._spools,
                reads_ahead=self._reads_ahead,
            )
        return self._file_ranking

    async def _open_models(self) -> Models:
        """Return the language models of the setting `[models]`, with the costs recorded in this space."""
        from mica.llm.models import open_models

        async with self._opening_models:
            if self._models is None:
                models = open_models(self._settings, space=self._space, record=self._record_spending)
                for event in await self._log.query(EventQuery(names=("model.reserved", "model.spent"), limit=None)):
                    models.ledger.restore(event.name, event.data, at=event.at)
                self._models = models
            return self._models

    # -- Callbacks for packages, so that other packages are built only when they are called

    async def _crystallize_session(self, session: str) -> list[Crystal]:
        return await self.crystals.make(session=session)

    async def _read_instructions(self) -> list[str]:
        from mica.brief.instruction_files import read_instructions

        root = await self._files.latest_root()
        return [] if root is None else await asyncio.to_thread(read_instructions, root)

    async def _append_named(self, events: Sequence[Event]) -> Appended:
        return await self.clients.append_new(events)

    async def _refresh_beliefs(self, within_s: float | None = None) -> bool:
        return await self.beliefs.refresh(within_s=within_s)

    async def _learn_beliefs(self) -> int:
        return int(await self.beliefs.refresh())

    async def _learn_trails(self) -> int:
        return await self.trails.learn()

    async def _rank_files(self, task: str, within_s: float | None = None) -> list[RankedFile] | None:
        return await self._files.rank(task, within_s)

    async def _save_ranking(self) -> None:
        """Save the history and the index from which files are ranked, for the next process.

        With `reads_ahead`, nothing is saved, because this process stays open and answers the next call itself.
        """
        if not self._reads_ahead:
            await self._files.save()

    async def _render_hook_answers(self, spools: Spools) -> None:
        """Write the answers that hooks will print next: a brief for the start of a session, and files for prompts."""
        from mica.brief import hook_answers

        await hook_answers.write_session_answer(
            spools,
            self._store.log,
            settings=self._settings,
            brief=self.brief,
            receipt=self.briefs.record,
            now=self._clock(),
        )
        await self._log.stored()
        root = await self._files.latest_root()
        navigator = None if root is None else self._files.navigator(root)
        await hook_answers.write_prompt_answer(spools, navigator, root=root, settings=self._settings, now=self._clock())

    async def _render_switch(self) -> None:
        if self._spools is not None and self._spools.folder.is_dir():  # else no hook has run yet
            await self.clients.render()

    def _record_spending(self, name: str, data: Mapping[str, object]) -> None:
        self.emit(name, data, origin="tool")

    def _record_failed_job(self, ran: JobRun) -> None:
        self.emit("job.failed", {"kind": ran.kind, "text": ran.error}, origin="tool", error=True)

    # -- Jobs

    def _jobs(self) -> list[Job]:
        jobs = [
            Job(kind="warm", every=WARM_EVERY, run=self._warm_sources),
            Job(kind="beliefs", every=LEARN_EVERY, run=self._learn_beliefs),
        ]
        if self._settings.crystals.auto:
            jobs.append(Job(kind="crystallize", every=CRYSTALLIZE_EVERY, run=self._crystallize_due))
        if self._settings.trails.learn:
            daily = Job(kind="evolve", every=timedelta(days=1), at=EVOLVE_AT, zone=self._zone, run=self._evolve_trails)
            jobs.append(daily)
        return jobs

    async def _crystallize_due(self) -> int:
        return await self.crystals.close_due()

    async def _evolve_trails(self) -> int:
        return await self.trails.evolve_daily()

    async def _warm_sources(self) -> int:
        return await self.sources.warm_most_used()

    # -- Listeners of the log

    async def _collect_spools(self) -> None:
        """Store the events that hooks have written to files. If there are none, this costs one listing of a folder."""
        if self._collecting is None or self._collecting.done():
            if self._spools is None or not self._spools.has_news():
                return
            self._collecting = asyncio.ensure_future(self.clients.collect())
        with suppress(StoreBusy):  # the lines stay in the spool
            await self._log.wait_unless_stalled(self._collecting)

    def _before_append(self, events: Sequence[Event]) -> None:
        from mica.sources.protocol import REACTIONS

        self._ageing.disturb()
        if self._sources is not None or any(event.name in REACTIONS for event in events):
            self.sources.hear(events)

    async def _on_append(self, events: Sequence[Event]) -> None:
        if self._store.purges.generation:  # something was purged once
            from mica.brief.receipts import bury_late

            await bury_late(self._store.log, self._store.purges, events)
        if self._vectors is not None:
            self._vectors.wake()
        self._scheduler.poll()

    def _forget_files(self) -> None:
        if self._home is not None or self._file_ranking is not None:
            self._files.forget()

    def _forget_model_replies(self) -> None:
        if self._models is not None:
            self._models.cache.clear()

    def _remove_hook_answers(self) -> None:
        if self._spools is not None:
            from mica.brief import hook_answers

            hook_answers.remove_answers(self._spools)


class Opening:
    """The result of `mica.open`. `await` it to get the open `Memory`, or use it in `async with`."""

    def __init__(self, opens: Callable[[], Coroutine[Any, Any, Memory]]) -> None:
        self._opens = opens
        self._memory: Memory | None = None

    def __await__(self) -> Generator[Any, None, Memory]:
        return self._opens().__await__()

    async def __aenter__(self) -> Memory:
        self._memory = await self._opens()
        return self._memory

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._memory is not None:
            await self._memory.close()


def open(
    target: str | Path | None = None,
    *,
    settings: Settings | None = None,
    clock: Clock = utc_now,
    must_exist: bool = False,
    encoder: Encoder | None = None,
    is_ours: Callable[[Path], bool] | None = None,
    reads_ahead: bool = True,
) -> Opening:
    """Open a space: a file, `postgresql://…`, `http://…` or `:memory:`.

    Without `target`, the setting `store` is opened or, if that is not set either, the space of the current directory.
    Use it as `memory = await mica.open(…)` and close it, or as `async with mica.open(…) as memory`. A missing space is
    created; with `must_exist`, UnknownSpace is raised instead. `encoder` replaces the encoder of embeddings that the
    settings select. `is_ours` returns True if mica may read the files of a directory; by default it may read all. Set
    `reads_ahead` to False in a process that ends after one answer: then a brief prepares nothing for the next one.
    """

    async def opens() -> Memory:
        from mica.clients.spool import is_spooled
        from mica.store.target import open_store

        chosen = settings or load_settings()
        place = chosen.store if target is None else target
        return await open_on(
            await open_store(place, settings=chosen, must_exist=must_exist, is_waiting=is_spooled),
            place,
            settings=chosen,
            clock=clock,
            encoder=encoder,
            is_ours=is_ours,
            reads_ahead=reads_ahead,
        )

    return Opening(opens)


async def open_on(
    store: Store,
    target: str | Path | None,
    *,
    settings: Settings,
    clock: Clock = utc_now,
    encoder: Encoder | None = None,
    is_ours: Callable[[Path], bool] | None = None,
    reads_ahead: bool = True,
) -> Memory:
    """Create the memory of a store that was opened for `target`. Closing the memory closes the store."""
    from mica.llm.embeddings import open_encoder

    try:
        memory = Memory(
            store,
            settings=settings,
            clock=clock,
            encoder=encoder or open_encoder(settings.semantic),
            hooks=None if store.segments is None else hooks_of(target, settings),
            is_ours=is_ours,
            reads_ahead=reads_ahead,
        )
    except BaseException:
        await store.close()
        raise
    await memory._log.reload_purges()
    return memory


def hooks_of(target: str | Path | None, settings: Settings) -> Path | None:
    """Return the folder where hooks write the events of the space `target`; None for an address or `:memory:`.

    The folder is beside the file of the space. If `target` is None or equals the setting `store`, the result is the
    folder for the space of the current directory.
    """
    from mica.clients.spool import hooks_folder

    if target is None or str(target) == settings.store:
        return hooks_folder(space_of(Path.cwd(), home=settings.home).file)
    return None if str(target) == ":memory:" or is_address(target) else hooks_folder(Path(target).expanduser())


def _check_names(sources: Sequence[Source]) -> None:
    if not sources:
        return
    from mica.sources.protocol import TASK_NAMES

    names = [*TASK_NAMES, *(source.declared.name for source in sources)]
    if len(set(names)) < len(names):
        raise InvalidInput(f"two sources have the same name: {sorted(names)}; rename one")


def _open_registry(settings: Settings) -> SourceRegistry:
    from mica.sources.registry import Drivers, SourceRegistry

    def drivers() -> Drivers:
        from mica.sources.drivers import declarations

        return declarations

    return SourceRegistry(settings, drivers)


def _open_vectors(vectors: VectorIndex, files: StoreFiles, encoder: Encoder, priority: Priority) -> MarkVectors:
    from mica.search.vectors import MarkVectors

    return MarkVectors(vectors, files, encoder, give_way=priority.give_way)


def _open_spools(folder: Path) -> Spools:
    from mica.clients.spool import Spools

    return Spools(folder)
