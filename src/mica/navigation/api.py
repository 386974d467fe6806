"""The public class behind `memory.trails`: learned trails, the walks they are learned from, and reports.

A walk is a prompt with the files that an agent opened, searched or changed for it, in order. A trail is a list of files
that is learned from one walk or from several similar walks. A crystallized trail has a permanent name and a version.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from mica.clients.installer import read_record
from mica.errors import InvalidInput
from mica.events.context import Here, Scope
from mica.events.log import Log
from mica.llm.prices import prices
from mica.model.event import Appended, Clock, Event, EventId, EventQuery, Ref, check_budget
from mica.model.trail import (
    CREATED,
    LEARNING,
    OFFERED,
    RENAMED,
    RESUMED,
    STEPS_MAX,
    SUSPENDED,
    TRAIL_EVENTS,
    USED,
    By,
    Choice,
    State,
    Trail,
    check_slug,
    exact_key,
    key_of,
    rank_trails,
)
from mica.model.walk import (
    OUTCOME,
    OUTCOMES,
    STARTED,
    STEPS,
    WALK_EVENTS,
    Outcome,
    Step,
    Walk,
    step_fields,
    workflow_task,
)
from mica.navigation.navigator import learned_file, load_learned, save_learned
from mica.navigation.predictor import render_places
from mica.navigation.replay import Replay
from mica.navigation.replay_predictor import LEARNED_TASKS_MAX, learn_from_events, replay_events
from mica.navigation.report import ARMS_SPAN, LENGTHS, Period, Report, make_report
from mica.navigation.repository import COMMITS_MAX, commit_events, read_commits
from mica.navigation.trails.co_reads import normalize_path
from mica.navigation.trails.commands import Destination, PublishedFile
from mica.navigation.trails.evolution import (
    NO_CHANGES,
    Evolution,
    TrailStatistics,
    count_trails,
    prove_step,
    summarize_trails,
)
from mica.navigation.trails.learner import ending_of, run_of
from mica.navigation.trails.library import COUNTED_FROM, TrailLibrary
from mica.navigation.trails.loader import LOADED_TOKENS, LoadedTrail, load_trail
from mica.navigation.trails.matcher import CHOICES, choose, match_path
from mica.navigation.trails.publication import Publication, RepublishResult, destination_of, remember, republish
from mica.navigation.trails.records import named_trails
from mica.navigation.trails.task_kinds import slug_of
from mica.navigation.walk_reports import parse_walks
from mica.redact import redact
from mica.search.dates import resolve_time
from mica.settings import Settings
from mica.store.protocol import EventLog, TrailTable
from mica.store.space import WorkingTrees

RESERVED = ("help", "explore", "handoff")  # commands and skills that exist without any trail
APPENDED_AT_ONCE = 1_000  # events
WALK_EVENTS_MAX = 500_000  # the latest events that walks are read from: years of one person's work
DAILY_TASKS_MAX = 60  # tasks that a daily evolution learns from; takes a few seconds

# Within the class, `list` is a method.
ListOfTrails = list[Trail]
Choices = list[Choice]
PublishedFiles = list[PublishedFile]


class Trails:
    """The trails of one space: `await memory.trails.list()`, `.load`, `.record`, `.replay` …

    Every method includes all events that were emitted before the call.
    """

    def __init__(
        self,
        events: EventLog,
        table: TrailTable,
        log: Log,
        *,
        trees: WorkingTrees,
        clock: Clock,
        settings: Settings,
        home: Path | None,
        append_named: Callable[[Sequence[Event]], Awaitable[Appended]],
    ) -> None:
        """`home` is the data folder; None if the store exists only in this process.

        `append_named` stores events that already have ids, and skips those that are already stored.
        """
        self._events = events
        self._log = log
        self._trees = trees
        self._clock = clock
        self._settings = settings
        self._gates = settings.trails
        self._home = home
        self._append_named = append_named
        self._library = TrailLibrary(events, table, log, clock=clock, gates=settings.trails)

    # -- Reading

    async def list(
        self,
        *,
        state: State | None = None,
        shape: str | None = None,
        with_archived: bool = False,
        limit: int | None = 20,
    ) -> ListOfTrails:
        """Return at most `limit` trails with this state and this shape (kind of task), highest score first.

        None as state or shape means any. Archived trails are included only with `with_archived`, or if `state` is
        "archived".
        """
        await self._library.refresh()
        trails = [
            trail
            for trail in await self._library.trails(shape=shape)
            if (trail.state == state if state is not None else with_archived or trail.state != "archived")
        ]
        return rank_trails(trails)[:limit]

    async def known(self) -> ListOfTrails:
        """Return all trails, also archived ones, highest score first. This is fast even if the log is long.

        If the log is short, trails are first learned from new events. This method never learns from a long log; if no
        other method and no daily evolution has learned trails yet, the result is empty.
        """
        await self._library.refresh(even_if_slow=False)
        return rank_trails(await self._library.trails())

    async def show(self, reference: str) -> Trail:
        """Return the trail with this name or key. Raises UnknownTrail if there is none.

        If the key is that of a trail which was merged into another one, that other trail is returned.
        """
        await self._library.refresh()
        return await self._library.get(reference)

    async def stats(self) -> TrailStatistics:
        """Return statistics of trails and walks, and the tokens that tasks of each kind take, counted from the log."""
        await self._library.refresh()
        walks = await self._library.walks(COUNTED_FROM)
        known = sum(ending_of(walk) is not None for walk in walks)
        return count_trails(walks, await self._library.trails(), known_outcomes=known)

    async def choose(
        self, task: str, *, paths: Sequence[str] = (), agent: str | None = None, limit: int = CHOICES
    ) -> Choices:
        """Return at most `limit` trails that match a task, the most certain match first; empty if none matches.

        Only trails that may be offered without a request are considered: those in the state "crystallized" or "hot"
        that are not suspended. `paths` are the files that the task mentions or has touched, in order. `agent` is the
        agent whose success with each trail counts, by default the one in the current context.
        """
        await self._library.refresh()
        offered = [trail for trail in await self._library.trails() if trail.is_offered]
        who = agent or self._log.here.context.agent
        return choose(task, offered, gates=self._gates, paths=paths, agent=who, limit=limit)

    async def explore(self, about: str, *, limit: int = CHOICES) -> Choices:
        """Return at most `limit` trails that lead to the path `about` or match the task `about`, best first.

        Unlike `choose`, this method includes trails in every state, except suspended trails. The log records that the
        returned trails were offered. After an empty result, search as usual: new trails are learned from the files that
        are opened.
        """
        await self._library.refresh()
        trails = [trail for trail in await self._library.trails() if trail.suspended is None]
        path = normalize_path(about.strip()) if " " not in about.strip() else None
        leading = [match_path(trail, path) for trail in trails if path is not None]
        choices = sorted(filter(None, leading), key=lambda each: (-each.score, -each.trail.score, each.trail.key))
        gates = msgspec.structs.replace(self._gates, words=self._gates.words / 2)  # an explicit request shows more
        choices = choices or choose(about, trails, gates=gates, limit=limit)
        self.offer(choices[:limit])
        return choices[:limit]

    # -- Making and changing

    async def create(
        self,
        slug: str,
        steps: Iterable[Step],
        *,
        description: str = "",
        shape: str = "",
        by: By = "user",
        root: Path | None = None,
    ) -> Trail:
        """Make a trail by hand. The trail is crystallized at once: it gets the permanent name `slug` and version 1.

        With a working tree at `root`, the files must exist there with the lines of `steps`, so that the lines can be
        found again after later changes. Raises InvalidInput if a file or its lines do not exist, if the name is taken,
        reserved or invalid, if the same files are already a crystallized trail, or if there are no files or too many.
        """
        slug = check_slug(slug)
        if slug in RESERVED:
            raise InvalidInput(f"{slug!r} is a command of mica; choose another name for the trail")
        listed = tuple(map(_check_step, steps))
        if not 1 <= len({step.path for step in listed}) <= STEPS_MAX:
            raise InvalidInput(f"a trail has 1 to {STEPS_MAX} files, not {len({step.path for step in listed})}")
        if root is not None:
            listed = tuple([await asyncio.to_thread(prove_step, step, root=root) for step in listed])
        await self._library.check_free(slug)
        key = key_of(step.pattern or step.path for step in listed)
        for other in await self._library.trails():
            if other.version and key in (other.key, *other.merged):
                raise InvalidInput(
                    f"these files are already the trail {other.name}; `mica trails rename` changes its name"
                )
        data = {
            "key": key,
            "slug": slug,
            "shape": redact(shape) or slug,
            "description": redact(description),
            "by": by,
            "version": 1,
            "exact": exact_key(listed),
            "steps": msgspec.to_builtins(listed),
        }
        self._log.emit(CREATED, data, origin="user")
        await self.learn()
        return await self._library.get(slug)

    async def crystallize(self, reference: str, *, slug: str | None = None, by: By = "user") -> Trail:
        """Give a trail a permanent name, or make its next version. Return the changed trail.

        A trail gets a name automatically only if it was used often and with success. This method requires neither.

        Raises UnknownTrail if there is no such trail, and InvalidInput if the name is invalid or taken.
        """
        trail = await self.show(reference)
        if slug is not None and check_slug(slug) != trail.slug:
            await self._library.check_free(check_slug(slug))
        is_chosen = slug is not None and by == "user"
        name = check_slug(slug) if slug is not None else trail.slug
        self._library.crystallize(trail, slug=name, by=by, is_chosen=is_chosen)
        await self.learn()
        return await self._library.get(trail.key)

    async def rename(self, reference: str, slug: str) -> Trail:
        """Rename a crystallized trail.

        Raises UnknownTrail if there is no such trail, and InvalidInput if the trail is not crystallized or the name is
        invalid or taken.
        """
        trail = await self._crystallized(reference)
        await self._library.check_free(check_slug(slug))
        return await self._change(trail, RENAMED, {"slug": check_slug(slug)})

    async def suspend(self, reference: str, *, reason: str) -> Trail:
        """Stop offering a trail until `resume` is called.

        Raises UnknownTrail if there is no such trail, and InvalidInput if the trail is not crystallized.
        """
        return await self._change(await self._crystallized(reference), SUSPENDED, {"reason": redact(reason)})

    async def resume(self, reference: str) -> Trail:
        """Offer a suspended trail again.

        Raises UnknownTrail if there is no such trail, and InvalidInput if the trail is not crystallized.
        """
        return await self._change(await self._crystallized(reference), RESUMED, {})

    async def chosen_names(self) -> dict[str, str]:
        """Return the names of trails that people chose, by the key of the trail."""
        await self._library.refresh()
        records = await self._events.query(EventQuery(names=TRAIL_EVENTS, limit=None))
        return {named.key: named.slug for named in named_trails(records) if named.is_chosen}

    async def restore_names(self, names: Mapping[str, str], *, without: str | None) -> None:
        """Restore the trail names that people chose and that a purge removed. `names` maps trail keys to names.

        Names that contain `without`, the purged text, are not restored.
        """
        await self.learn()
        trails = {trail.key: trail for trail in await self._library.trails()}
        used = {trail.slug for trail in trails.values() if trail.version}
        lost = {
            key: slug for key, slug in names.items() if key in trails and not trails[key].version and slug not in used
        }
        for key, slug in lost.items():
            if without is None or slug_of(without) not in slug:
                self._library.crystallize(trails[key], slug=slug, by="user", is_chosen=True)
        if lost:
            await self.learn()

    # -- Using

    def offer(self, choices: Iterable[Choice]) -> None:
        """Record that these trails were shown to an agent."""
        for choice in choices:
            data = {"key": choice.trail.key, "match": choice.match, "score": choice.score}
            self._log.emit(OFFERED, data, origin="tool")

    async def load(
        self, reference: str, *, root: Path, budget_tokens: int = LOADED_TOKENS, outcome: Outcome = "unknown"
    ) -> LoadedTrail:
        """Load the current text of a trail's line ranges, in order. The whole text has at most `budget_tokens` tokens.

        The ranges are found again in the working tree at `root`. The result lists the ranges that have moved, and those
        that are omitted because they no longer exist or do not fit. The use of the trail is recorded, with the outcome
        of the task if it is known already.
        """
        check_budget("loaded trail", budget_tokens)
        trail = await self.show(reference)
        loaded = await asyncio.to_thread(load_trail, trail, root=root, budget_tokens=budget_tokens)
        await self.track(trail, outcome=outcome, tokens=loaded.tokens)
        return loaded

    async def track(
        self, reference: str | Trail | Choice, *, outcome: Outcome = "unknown", tokens: int | None = None
    ) -> EventId:
        """Record in the current context that a trail was used, and return the id of the recorded event.

        `outcome` is the outcome of the task for which it was used, and `tokens` the tokens that were loaded.
        """
        _check_outcome(outcome)
        trail = reference.trail if isinstance(reference, Choice) else reference
        trail = await self.show(trail) if isinstance(trail, str) else trail
        data = {"key": trail.key, "outcome": outcome, "tokens": tokens}
        return self._log.emit(USED, data, origin="tool").id

    # -- Walks

    def record(
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
        """Record a walk: the files that were opened and changed for a task, in order. Returns a reference to the walk.

        This is for orchestrators and build workflows that observe an agent's work themselves. A step is a `Step` or a
        mapping with its fields: `path`, `operation`, and if known `start_line`, `end_line`, `total_lines`, `tokens`,
        `content_hash`, `failed`. `workflow` is the kind of task (`adw_build`). Raises InvalidInput for an invalid step
        or outcome, before anything is recorded.
        """
        _check_outcome(outcome)
        fields = [step_fields(step) for step in steps]
        kind = None if workflow is None else workflow_task(workflow)
        here = self._log.here.context.with_(session=session, agent=agent, task=kind)
        with Scope(self._log.space, lambda: Here(here, None)):  # a walk is a separate chain
            walk = self._log.mark(task, tags=("prompt",), origin="user", at=at)
            for name, data, failed in fields:
                self._log.emit(name, data, parent=walk, origin="tool", error=failed, at=at)
            if outcome != "unknown":
                self.outcome(walk, outcome, reason=reason)
        return walk

    def outcome(self, walk: Event | Ref, outcome: Outcome, *, reason: str = "") -> Ref:
        """Record the outcome of the task that `walk` belongs to. Of several recorded outcomes, the last one counts."""
        _check_outcome(outcome)
        data: dict[str, object] = {"outcome": outcome}
        if reason:
            data["reason"] = redact(reason)
        return self._log.emit(OUTCOME, data, parent=walk, origin="user")

    async def log(
        self,
        task: str,
        steps: Iterable[Step],
        *,
        outcome: Outcome = "unknown",
        reason: str = "",
        workflow: str | None = None,
        session: str | None = None,
        agent: str | None = None,
    ) -> str | None:
        """Record a walk, as `record` does, and return the key of the trail with exactly the files of this walk.

        The result is None for fewer than two project files, because they make no trail. The trail may not exist yet.
        When trails are next learned, the walk counts as a use of a trail that it fits, or becomes a new trail. With
        `workflow`, the shape (kind of task) of that trail is `adw_<workflow>`.
        """
        listed = tuple(map(_check_step, steps))
        kind = None if workflow is None else workflow_task(workflow)
        walk = self.record(
            task if task.strip() else kind or "work",
            listed,
            outcome=outcome,
            reason=reason,
            workflow=kind,
            session=session,
            agent=agent,
        )
        at = self._clock()
        paths = run_of(Walk(id=walk.id, prompt=task, at=at, ended_at=at, steps=listed)).paths
        return key_of(paths) if len(paths) > 1 else None

    async def import_walks(self, lines: Iterable[bytes]) -> Appended:
        """Import walks from JSON lines that an orchestrator or build workflow wrote. All walks are stored, or none.

        Each line is an object with `task`, `steps`, an optional `id`, and the other arguments of `record`. A line that
        was imported before changes nothing. If lines are invalid, InvalidInput is raised with their numbers.
        """
        events = await asyncio.to_thread(parse_walks, list(lines), now=self._clock())
        await self._log.stored()
        return await self._append_named(events)

    # -- Publishing

    async def publish(self, destination: Destination, *, dry_run: bool = False) -> PublishedFiles:
        """Write crystallized trails as command and skill files for coding agents; `dry_run` only lists the changes.

        The destination is recorded, so that a later purge also updates these files. Raises InvalidInput if the
        destination cannot be written.
        """
        trails = await self.list(with_archived=True, limit=None)
        return await self._library.publish(trails, destination, dry_run=dry_run)

    async def publications(self) -> Sequence[Publication]:
        """Return the destinations to which commands and skills of this space were published."""
        return await self._library.publications()

    async def republish(self, publications: Iterable[Publication]) -> RepublishResult:
        """Rewrite the files of these publications from the current trails, for example after a purge."""
        trails = await self.list(with_archived=True, limit=None)
        return await asyncio.to_thread(republish, trails, tuple(publications))

    async def update_published(self, root: Path | None, clients: Collection[str], *, home: Path) -> PublishedFiles:
        """Update all files published on this machine, and return the files that were written or removed.

        The working tree at `root` is added as a destination for the coding agents in `clients`, if there is a trail to
        offer and the setting `publish` is on. A folder that cannot be written is skipped.
        """
        trails = await self.list(with_archived=True, limit=None)
        places = [each.destination for each in await self.publications() if each.host == platform.node()]
        own = None if root is None or not self._gates.publish else destination_of(root, clients)
        if own is not None and own not in places and any(trail.version and trail.is_offered for trail in trails):
            await asyncio.to_thread(remember, own, home=home)
            places.append(own)
        changed: PublishedFiles = []
        for place in places:
            with suppress(InvalidInput):  # a folder that cannot be written or no longer exists
                files = await self.publish(place) if place.root.is_dir() else []
                changed += [
                    msgspec.structs.replace(each, path=str(place.root / each.path))
                    for each in files
                    if each.fate in ("written", "removed")
                ]
        return changed

    # -- Learning

    async def learn(self) -> int:
        """Learn trails from the whole log, and return the number of trails. A second call changes nothing."""
        return await self._library.learn()

    async def is_learning(self) -> bool:
        """Return True if learning is on in this space.

        The latest call of `switch` decides. If there was none, the setting `[trails] learn` decides.
        """
        return await self._library.is_learning()

    async def switch(self, *, on: bool) -> None:
        """Start or stop learning. Existing trails are kept."""
        self._log.emit(LEARNING, {"on": on}, origin="user")
        await self._log.stored()

    async def learn_commits(self, *, root: Path | None = None, limit: int = COMMITS_MAX) -> Appended:
        """Store the latest commits of the repository around `root`: subjects, changed files and renames.

        `root` is by default the current directory. A commit that was stored before changes nothing. Merges are skipped,
        and secrets in subjects are redacted. Raises InvalidInput if git is missing or there is no history.
        """
        changes = await asyncio.to_thread(read_commits, self._trees.around(root), limit=limit)
        await self._log.stored()
        total = Appended()
        events = [*commit_events(changes)]
        for start in range(0, len(events), APPENDED_AT_ONCE):
            done = await self._log.append(events[start : start + APPENDED_AT_ONCE])
            total = Appended(stored=total.stored + done.stored, repeated=total.repeated + done.repeated)
        return total

    async def learn_tasks(self, *, root: Path | None = None, limit: int | None = None) -> int:
        """Train the weights of `navigate` on new tasks, at most `limit`; returns the number of these tasks.

        Each task is predicted from earlier events, and the prediction is compared with the files that the task needed.
        The candidate files come from the git history at `root`, by default the directory of the latest session. Only
        numbers are learned; they are saved in the data folder. Without a data folder, nothing is learned.
        """
        if self._home is None or not await self._log.query(EventQuery(names=tuple(STEPS), limit=1)):
            return 0
        events = await self._log.query(EventQuery(names=WALK_EVENTS, limit=WALK_EVENTS_MAX))
        where = self._trees.latest_directory(events) if root is None else self._trees.around(root)
        file = learned_file(self._home, space=self._log.space)
        learned, count = await asyncio.to_thread(
            learn_from_events,
            events,
            where,
            before=load_learned(file),
            render=render_places,
            prices=prices(),
            now=self._clock(),
            limit=LEARNED_TASKS_MAX if limit is None else limit,
        )
        if count:
            await asyncio.to_thread(save_learned, file, learned)
        return count

    async def evolve(self, *, root: Path | None = None) -> Evolution:
        """Do the daily work on trails, and return a report of the changes.

        Trails are learned and merged, the best trails are crystallized, and the tokens that trails save are measured.
        A crystallized trail gets a new version if its lines moved in the working tree `root`, or if its files were
        renamed or deleted there. If none of its lines exist any more, it is suspended. `root` is by default the working
        tree of the latest session. While learning is switched off, no trail is changed.

        After `mica install`, the commands of trails are written into `root`, and commands published elsewhere are
        updated. Calling this method again changes nothing.
        """
        root = await self._latest_root() if root is None else root
        changes = await self._library.evolve(root) if await self.is_learning() else NO_CHANGES
        result = summarize_trails(await self._library.trails(), at=self._clock(), changes=changes)
        if result.crystallized or result.refreshed:
            self._library.record_evolution(result)
        if self._home is None:
            return result
        clients = await asyncio.to_thread(read_record, self._home)
        changed = await self.update_published(root, [*clients.clients], home=self._home)
        return msgspec.structs.replace(
            result,
            published=tuple(each.path for each in changed if each.fate == "written"),
            withdrawn=tuple(each.path for each in changed if each.fate == "removed"),
        )

    async def evolve_daily(self) -> int:
        """Do the daily job: call `evolve`, then `learn_tasks` with at most DAILY_TASKS_MAX new tasks.

        Returns the number of trails that were crystallized or got a new version.
        """
        result = await self.evolve()
        if await self.is_learning():
            await self.learn_tasks(limit=DAILY_TASKS_MAX)
        return len(result.crystallized) + len(result.refreshed)

    # -- Measuring

    async def replay(
        self,
        *,
        root: Path | None = None,
        latest: int | None = None,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> Replay:
        """Measure what offering the paths of predicted files would have saved or cost in this space's past tasks.

        Each task is predicted only from what happened before it. `latest` is the number of the last tasks that are
        measured; None means all. Files are taken from the git history at `root`, by default the directory of the latest
        session. Without a git history, only files that were opened before can be offered; `missing` of the result
        reports that. `on_progress` is called with the number of tasks processed so far.
        """
        events = await self._log.query(EventQuery(names=WALK_EVENTS, limit=WALK_EVENTS_MAX))
        where = self._trees.latest_directory(events) if root is None else root
        return await asyncio.to_thread(
            replay_events, events, where, render=render_places, prices=prices(), latest=latest, on_progress=on_progress
        )

    async def report(self, period: Period = "day", *, until: datetime | str | None = None) -> Report:
        """Report on the agents' work in the day or week before `until`, and in the equally long period before that.

        `until` is by default now. The report also compares tasks with an offer of files and tasks whose offer was
        withheld at random. That comparison covers the last eight weeks, since a day has too few tasks. Raises
        InvalidInput for an unknown period.
        """
        if period not in LENGTHS:
            raise InvalidInput(f"there is no period {period!r}; use one of {', '.join(LENGTHS)}")
        now = self._clock()
        end = resolve_time(until, now=now, zone=self._settings.zone()) or now
        events = await self._log.query(EventQuery(since=end - ARMS_SPAN, until=end, limit=None))
        return await asyncio.to_thread(make_report, events, period=period, until=end, prices=prices())

    # -- Internals

    async def _latest_root(self) -> Path | None:
        return self._trees.latest(await self._log.query(EventQuery(names=(STARTED,), limit=1)))

    async def _crystallized(self, reference: str) -> Trail:
        trail = await self.show(reference)
        if not trail.version:
            raise InvalidInput(
                f"{trail.name} is only {trail.state}; `mica trails create NAME --from {trail.slug}` crystallizes it"
            )
        return trail

    async def _change(self, trail: Trail, name: str, data: dict[str, object]) -> Trail:
        self._log.emit(name, {"key": trail.key, **data}, origin="user")
        await self.learn()
        return await self._library.get(trail.key)


def _check_outcome(outcome: str) -> None:
    if outcome not in OUTCOMES:
        raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")


def _check_step(step: object) -> Step:
    """Return a copy of a step with a normalized path.

    Raises InvalidInput if the argument is not a `Step`, or if the path of the step is outside the project.
    """
    if not isinstance(step, Step):
        raise InvalidInput(f"{step!r} is not a step; use mica.model.walk.Step with a path and lines")
    path = normalize_path(step.path)
    if path is None:
        raise InvalidInput(f"{step.path!r} is not a path within the project; give it relative to its root")
    return msgspec.structs.replace(step, path=redact(path))
