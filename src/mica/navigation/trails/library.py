"""The trails of one space: listed, shown, made, chosen, learned, and what became of them recorded."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from mica.errors import InvalidInput, UnknownTrail
from mica.events.context import Here
from mica.events.emitter import Emit
from mica.model.event import EMPTY, MARK, RETRACTED, Clock, EventId, EventQuery, Ref, check_budget
from mica.model.trail import (
    CREATED,
    CRYSTALLIZED,
    EVOLVED,
    LEARNING,
    MEASURED,
    OFFERED,
    PUBLISHED,
    RENAMED,
    RESUMED,
    STEPS_MAX,
    SUSPENDED,
    TOLD,
    USED,
    By,
    State,
    Trail,
    TrailQuery,
    check_slug,
    exact_key,
    key_of,
    ranked,
    resolve,
    seen,
)
from mica.model.walk import COMMAND, OUTCOME, OUTCOMES, STEPS, TURN, Outcome, Step, Walk, walks_of, workflow_task
from mica.navigation.trails.co_reads import normalised
from mica.navigation.trails.commands import Destination, command_text, publish
from mica.navigation.trails.commands import Outcome as Published
from mica.navigation.trails.drift import Drift, drift_of, proven
from mica.navigation.trails.evolution import Evolution, Stats, evolution, stats_of, to_crystallize, to_refresh
from mica.navigation.trails.learner import ending_of, learned, run_of
from mica.navigation.trails.loader import Loaded, loaded_trail
from mica.navigation.trails.matcher import CHOICES, Choice, choose
from mica.navigation.trails.publication import (
    Publication,
    Republished,
    destination_of,
    publications_in,
    remember,
    republished,
)
from mica.navigation.trails.records import said_in
from mica.navigation.trails.savings import measured
from mica.navigation.trails.task_kinds import slug_of
from mica.redact import redact
from mica.settings import TrailSettings
from mica.store.protocol import Store

RESERVED = ("help", "explore", "handoff")  # commands and skills that are there without any trail
LOADED_TOKENS = 2_000  # of files, unless somebody says how much
EVENTS_MAX = 500_000  # the latest, that walks are read from; 10,000 walks have fewer
MEASURED_MAX = 20  # trails whose saving an evolution looks at, the best first: each is learned again
FRESH_EVENTS_MAX = 50_000  # a log of so many is learned whenever somebody asks; of a longer one, once a day
LEARNED_FROM = (MARK, RETRACTED, COMMAND, TURN, OUTCOME, "file.read", "file.edit", "file.create")
COUNTED_FROM = (*LEARNED_FROM, "file.search", "file.list")


Names = list[str]
Found = list[Trail]  # within the class, `list` is a verb
Choices = list[Choice]
Outcomes = list[Published]


class Walks(Protocol):
    """Records a walk, redacted: what `Memory.walk` does."""

    def __call__(
        self,
        task: str,
        steps: Iterable[Step],
        *,
        outcome: Outcome,
        reason: str,
        workflow: str | None,
        session: str | None,
        agent: str | None,
    ) -> Ref: ...


class Trails:
    """What `memory.trails` is. Every verb sees what was emitted before."""

    def __init__(
        self,
        store: Store,
        *,
        emit: Callable[[], Emit],
        stored: Callable[[], Awaitable[None]],
        here: Callable[[], Here],
        walk: Walks,
        clock: Clock,
        gates: TrailSettings,
    ) -> None:
        self._store = store
        self._emit = emit
        self._stored = stored
        self._here = here
        self._walk = walk
        self._clock = clock
        self._gates = gates

    # -- Read -------------------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        state: State | None = None,
        shape: str | None = None,
        with_archived: bool = False,
        limit: int | None = 20,
    ) -> Found:
        """The trails, those worth most first; archived ones only on request."""
        await self._fresh()
        found = [
            trail
            for trail in await self._all(TrailQuery(shape=shape, limit=None))
            if (trail.state == state if state is not None else with_archived or trail.state != "archived")
        ]
        return ranked(found)[:limit]

    async def known(self) -> Found:
        """Every trail, those worth most first, also archived ones, for who must not wait.

        What is new is learned first only where that is quick. A long log of which nothing was learned yet has none: the
        day's evolution, or any other verb, learns it.
        """
        await self._fresh(however_long=False)
        return ranked(await self._all(TrailQuery(limit=None)))

    async def show(self, reference: str) -> Trail:
        """The trail of this name or key, also of a key that was merged. Raises UnknownTrail."""
        await self._fresh()
        return await self._known(reference)

    async def stats(self) -> Stats:
        """How much was learned from what, and what tasks of each kind cost, counted from the log."""
        await self._fresh()
        walks = await self._walks(COUNTED_FROM)
        known = sum(ending_of(walk) is not None for walk in walks)
        return stats_of(walks, await self._all(TrailQuery(limit=None)), known_outcomes=known)

    async def choose(
        self, task: str, *, paths: Sequence[str] = (), agent: str | None = None, limit: int = CHOICES
    ) -> Choices:
        """The trails that fit a task, surest first; an empty list is an answer. Only hot and crystallized ones."""
        await self._fresh()
        offered = [trail for trail in await self._all(TrailQuery(limit=None)) if trail.is_offered]
        who = agent or self._here().context.agent
        return choose(task, offered, gates=self._gates, paths=paths, agent=who, limit=limit)

    async def explore(self, about: str, *, limit: int = CHOICES) -> Choices:
        """The trails that lead to a path, or fit a task, best first; also those that are only observed.

        What is found is recorded as offered. An empty list means: search as ever, and what is opened is observed.
        """
        await self._fresh()
        held = [trail for trail in await self._all(TrailQuery(limit=None)) if trail.suspended is None]
        path = normalised(about.strip()) if " " not in about.strip() else None
        leading = [_leads(trail, path) for trail in held if path is not None]
        found = sorted(filter(None, leading), key=lambda each: (-each.score, -each.trail.score, each.trail.key))
        asked = msgspec.structs.replace(self._gates, words=self._gates.words / 2)  # who asks is shown more
        found = found or choose(about, held, gates=asked, limit=limit)
        self.offer(found[:limit])
        return found[:limit]

    # -- Say --------------------------------------------------------------------------------------------------

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
        """Make a trail by hand, crystallized at once. Steps are steps, never bare paths (K-03).

        With a working tree its files must be there with the lines that are named, which are then found again as the
        files change. Raises InvalidInput where they are not, when the name is taken or unusable, when its files have a
        name already, or when there are no steps or too many.
        """
        slug = check_slug(slug)
        if slug in RESERVED:
            raise InvalidInput(f"{slug!r} is a command of mica's own; give the trail another name")
        listed = tuple(map(_checked, steps))
        if not 1 <= len({step.path for step in listed}) <= STEPS_MAX:
            raise InvalidInput(f"a trail has 1 to {STEPS_MAX} files, not {len({step.path for step in listed})}")
        if root is not None:
            listed = tuple([await asyncio.to_thread(proven, step, root=root) for step in listed])
        await self._free(slug)
        key = key_of(step.pattern or step.path for step in listed)
        for other in await self._all(TrailQuery(limit=None)):
            if other.version and key in (other.key, *other.merged):
                raise InvalidInput(f"these files are {other.name} already; `mica trails rename` gives it another name")
        data = {
            "key": key,
            "slug": slug,
            "shape": shape or slug,
            "description": redact(description),
            "by": by,
            "version": 1,
            "exact": exact_key(listed),
            "steps": msgspec.to_builtins(listed),
        }
        self._emit()(CREATED, data, origin="user")
        await self.learn()
        return await self._known(slug)

    async def crystallize(self, reference: str, *, slug: str | None = None, by: By = "user") -> Trail:
        """Give a trail its name for good, or its next version. A person may do so whatever the gate says."""
        trail = await self.show(reference)
        if slug is not None and check_slug(slug) != trail.slug:
            await self._free(check_slug(slug))
        is_given = slug is not None and by == "user"
        self._crystallize(trail, slug=check_slug(slug) if slug is not None else trail.slug, by=by, given=is_given)
        await self.learn()
        return await self._known(trail.key)

    async def given(self) -> dict[str, str]:
        """The names that people gave, by the keys of their trails."""
        await self._fresh()
        told = await self._store.events(EventQuery(names=TOLD, limit=None))
        return {said.key: said.slug for said in said_in(told) if said.given}

    async def give_again(self, names: Mapping[str, str], *, without: str | None) -> None:
        """Name trails as people did that lost their names with a purge, unless a name says what was purged."""
        await self.learn()
        held = {trail.key: trail for trail in await self._all(TrailQuery(limit=None))}
        taken = {trail.slug for trail in held.values() if trail.version}
        lost = {key: slug for key, slug in names.items() if key in held and not held[key].version and slug not in taken}
        for key, slug in lost.items():
            if without is None or slug_of(without) not in slug:
                self._crystallize(held[key], slug=slug, by="user", given=True)
        if lost:
            await self.learn()

    async def rename(self, reference: str, slug: str) -> Trail:
        """Call a crystallized trail otherwise. Raises InvalidInput when the name is taken."""
        trail = await self._crystallized(reference)
        await self._free(check_slug(slug))
        return await self._said(trail, RENAMED, {"slug": check_slug(slug)})

    async def suspend(self, reference: str, *, reason: str) -> Trail:
        """Tell nobody of a crystallized trail any more, until it is resumed."""
        return await self._said(await self._crystallized(reference), SUSPENDED, {"reason": redact(reason)})

    async def resume(self, reference: str) -> Trail:
        """Tell of a trail again that a person suspended."""
        return await self._said(await self._crystallized(reference), RESUMED, {})

    def offer(self, choices: Iterable[Choice]) -> None:
        """Record that these were shown to somebody (A-07)."""
        for choice in choices:
            trail = choice.trail
            told = {"key": trail.key, "match": choice.match, "score": choice.score}
            self._emit()(OFFERED, told, origin="tool")

    async def load(
        self, reference: str, *, root: Path, budget_tokens: int = LOADED_TOKENS, outcome: Outcome = "unknown"
    ) -> Loaded:
        """What a trail's files say now, within a budget, in its order; records that it was used (A-16, TA-11, TA-13).

        Ranges are found again in the working tree at `root`; what moved is told, what is gone is left out and named.
        """
        check_budget("loaded trail", budget_tokens)
        trail = await self.show(reference)
        loaded = await asyncio.to_thread(loaded_trail, trail, root=root, budget_tokens=budget_tokens)
        await self.track(trail, outcome=outcome, tokens=loaded.tokens)
        return loaded

    async def track(
        self, reference: str | Trail | Choice, *, outcome: Outcome = "unknown", tokens: int | None = None
    ) -> EventId:
        """Record that a trail was used, and how it ended where that is known; within the current block (A-07)."""
        if outcome not in OUTCOMES:
            raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
        trail = reference.trail if isinstance(reference, Choice) else reference
        trail = await self.show(trail) if isinstance(trail, str) else trail
        told = {"key": trail.key, "outcome": outcome, "tokens": tokens}
        return self._emit()(USED, told, origin="tool").id

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
        """Record a whole navigation for an orchestrator or build workflow; returns the key of its trail.

        A known trail gets its figures updated, a new one is made (A-11). A workflow's task shape is `adw_<workflow>`
        (A-20). None where fewer than two files of the project were touched: that is no trail.
        """
        listed = tuple(map(_checked, steps))
        kind = None if workflow is None else workflow_task(workflow)
        asked = self._walk(
            task if task.strip() else kind or "work",
            listed,
            outcome=outcome,
            reason=reason,
            workflow=kind,
            session=session,
            agent=agent,
        )
        at = self._clock()
        paths = run_of(Walk(id=asked.id, prompt=task, at=at, ended_at=at, steps=listed)).paths
        return key_of(paths) if len(paths) > 1 else None

    # -- Publish ----------------------------------------------------------------------------------------------

    async def publish(self, destination: Destination, *, dry_run: bool = False) -> Outcomes:
        """Write crystallized trails as commands and skills, and record where, so that a purge reaches them.

        Raises InvalidInput where that cannot be written.
        """
        held = await self.list(with_archived=True, limit=None)
        destination = msgspec.structs.replace(destination, root=destination.root.absolute())
        if not dry_run:
            told = Publication(host=platform.node(), destination=destination)
            if told not in await self.publications():
                self._emit()(PUBLISHED, msgspec.to_builtins(told, enc_hook=str), context=EMPTY, origin="user")
                await self._stored()
        try:
            return await asyncio.to_thread(publish, held, destination, dry_run=dry_run)
        except OSError as error:
            raise InvalidInput(f"{destination.root} cannot be written: {error.strerror or error}") from error

    async def keep_published(self, root: Path | None, clients: Collection[str], *, home: Path) -> Outcomes:
        """Write, renew and withdraw commands where trails are published on this machine; returns what was changed.

        After an install of these clients that is also the working tree, as soon as there is a trail to tell of.
        """
        held = await self.list(with_archived=True, limit=None)
        places = [each.destination for each in await self.publications() if each.host == platform.node()]
        own = None if root is None or not self._gates.publish else destination_of(root, clients)
        if own is not None and own not in places and any(trail.version and trail.is_offered for trail in held):
            await asyncio.to_thread(remember, own, home=home)
            places.append(own)
        done: Outcomes = []
        for place in places:
            with suppress(InvalidInput):  # a folder that cannot be written, or is not here any more
                found = await self.publish(place) if place.root.is_dir() else []
                done += [
                    msgspec.structs.replace(each, path=str(place.root / each.path))
                    for each in found
                    if each.fate in ("written", "removed")
                ]
        return done

    async def publications(self) -> Sequence[Publication]:
        """Where commands and skills of this space were written."""
        await self._stored()
        return publications_in(await self._store.events(EventQuery(names=(PUBLISHED,), limit=None)))

    async def republish(self, publications: Iterable[Publication]) -> Republished:
        """Bring published files up to date with the trails that are left, as after a purge."""
        held = await self.list(with_archived=True, limit=None)
        return await asyncio.to_thread(republished, held, tuple(publications))

    # -- Learn ------------------------------------------------------------------------------------------------

    async def learn(self) -> int:
        """Learn from the whole log; returns how many trails there are. Repeating it changes nothing."""
        await self._stored()
        trails: Sequence[Trail] = ()
        for _ in range(2):  # once more when something was purged meanwhile
            lesson = await self._store.lesson()
            position = await self._store.last_position()
            # Where nobody opened a file, half a million marks need not be read to see it.
            has_steps = bool(await self._store.events(EventQuery(names=tuple(STEPS), limit=1)))
            walks = await self._walks(LEARNED_FROM) if has_steps else ()
            told = await self._store.events(EventQuery(names=TOLD, limit=None))
            trails = await asyncio.to_thread(learned, walks, told, gates=self._gates)
            if await self._store.save_trails(trails, msgspec.structs.replace(lesson, position=position)):
                break
        return len(trails)

    async def is_learning(self) -> bool:
        """Whether trails are learned here: as somebody said last, else as `[trails]` is set."""
        await self._stored()
        said = await self._store.events(EventQuery(names=(LEARNING,), limit=1))
        return bool(said[-1].data.get("on")) if said else self._gates.learn

    async def switch(self, *, on: bool) -> None:
        """Learn from now on, or learn no more; what was learned is kept (A-47)."""
        self._emit()(LEARNING, {"on": on}, origin="user")
        await self._stored()

    async def evolve(self, *, root: Path | None = None) -> Evolution:
        """What is done each day: learn, merge, crystallize what passes the gate, refresh, let the rest cool; a report.

        With a working tree, a crystallized trail whose lines moved, or whose files were renamed or are gone, gets a new
        version; one of which nothing is left is suspended. What trails saved is measured. Nothing is changed while
        learning is switched off. Repeating it changes nothing.
        """
        crystallized: list[str] = []
        refreshed: list[str] = []
        drifted: dict[str, tuple[str, ...]] = {}
        measured_now: list[str] = []
        if await self.is_learning():
            await self.learn()
            trails = await self._all(TrailQuery(limit=None))
            if self._gates.auto:
                for trail in to_crystallize(trails, self._gates):
                    self._crystallize(trail, slug=trail.slug, by="rule")
                    crystallized.append(trail.name)
            for trail in to_refresh(trails):
                self._crystallize(trail, slug=trail.slug, by=trail.by or "rule")
                refreshed.append(trail.name)
            if crystallized or refreshed:
                await self.learn()
            drifted = {} if root is None else await self._follow(root)
            measured_now = await self._measure()
            if drifted or measured_now:
                await self.learn()
        trails = await self._all(TrailQuery(limit=None))
        report = evolution(
            trails,
            at=self._clock(),
            crystallized=crystallized,
            refreshed=[*refreshed, *(name for name in drifted if name not in refreshed)],
            drifted=drifted,
            measured=measured_now,
        )
        if crystallized or refreshed or drifted:
            self._emit()(EVOLVED, msgspec.to_builtins(report), origin="tool")
        return report

    async def _follow(self, root: Path) -> dict[str, tuple[str, ...]]:
        """Make new versions of the trails whose files are not where they were; returns what led to each, by name."""
        found: dict[str, tuple[str, ...]] = {}
        for trail in ranked(await self._all(TrailQuery(limit=None))):
            if trail.state != "crystallized":
                continue
            drift = await asyncio.to_thread(drift_of, trail, root=root, now=self._clock())
            if drift is None:
                continue
            found[trail.name] = drift.reasons
            if drift.steps:
                self._crystallize(trail, slug=trail.slug, by=trail.by or "rule", drift=drift)
            else:
                told = {"key": trail.key, "reason": f"nothing of it is left: {drift.reasons[0]}"}
                self._emit()(SUSPENDED, told, origin="tool")
        return found

    async def _measure(self) -> Names:
        """Record what crystallized trails saved, where that is known and was not told yet; returns their names."""
        trails = [each for each in ranked(await self._all(TrailQuery(limit=None))) if each.state == "crystallized"]
        if not trails:
            return []
        walks = await self._walks(COUNTED_FROM)
        told = await self._store.events(EventQuery(names=TOLD, limit=None))
        found: Names = []
        for trail in trails[:MEASURED_MAX]:
            now = await asyncio.to_thread(measured, trail, walks, told, gates=self._gates, render=command_text)
            if now is not None and now != trail.measured:
                self._emit()(MEASURED, {"key": trail.key, **msgspec.structs.asdict(now)}, origin="tool")
                found.append(trail.name)
        return found

    # -- Within -----------------------------------------------------------------------------------------------

    async def _fresh(self, *, however_long: bool = True) -> None:
        """Learn what is new, where that is quick or was never done."""
        await self._stored()
        lesson, last = await self._store.lesson(), await self._store.last_position()
        is_due = last <= FRESH_EVENTS_MAX or (however_long and not lesson.position)
        if lesson.position < last and is_due and await self.is_learning():
            await self.learn()

    async def _walks(self, names: tuple[str, ...]) -> Sequence[Walk]:
        events = await self._store.events(EventQuery(names=names, limit=EVENTS_MAX))
        return await asyncio.to_thread(walks_of, events)

    async def _all(self, query: TrailQuery) -> Sequence[Trail]:
        now = self._clock()
        return [seen(trail, now=now, gates=self._gates) for trail in await self._store.trails(query)]

    async def _known(self, reference: str) -> Trail:
        found = resolve(reference, await self._all(TrailQuery(limit=None)))
        if found is None:
            raise UnknownTrail(reference)
        return found

    async def _crystallized(self, reference: str) -> Trail:
        trail = await self.show(reference)
        if not trail.version:
            raise InvalidInput(
                f"{trail.name} is only {trail.state}; `mica trails create NAME --from {trail.slug}` does it"
            )
        return trail

    async def _free(self, slug: str) -> None:
        await self._fresh()
        taken = resolve(slug, await self._store.trails(TrailQuery(slug=slug)))
        if taken is not None and taken.version:
            raise InvalidInput(f"nav:{slug} is taken; choose another name, or `mica trails show {slug}`")

    async def _said(self, trail: Trail, name: str, told: dict[str, object]) -> Trail:
        self._emit()(name, {"key": trail.key, **told}, origin="user")
        await self.learn()
        return await self._known(trail.key)

    def _crystallize(self, trail: Trail, *, slug: str, by: By, drift: Drift | None = None, given: bool = False) -> None:
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
            "given": given,
        }
        self._emit()(CRYSTALLIZED, data, origin="user" if by == "user" else "tool")


def _checked(step: object) -> Step:
    """A step whose path is one of the project. Raises InvalidInput for a bare path, or one that lies outside."""
    if not isinstance(step, Step):
        raise InvalidInput(f"{step!r} is no step; give mica.model.walk.Step with a path and lines")
    path = normalised(step.path)
    if path is None:
        raise InvalidInput(f"{step.path!r} is not a path within the project; give it relative to its root")
    return msgspec.structs.replace(step, path=path)


def _leads(trail: Trail, path: str) -> Choice | None:
    """How a trail leads to a file or folder."""
    steps = [step for step in trail.paths if step == path or step.startswith(path.rstrip("/") + "/")]
    if not steps:
        return None
    share = round(len(steps) / len(trail.paths), 6)
    return Choice(trail=trail, match="shape", score=share, reason=f"{len(steps)} of its files are there")
