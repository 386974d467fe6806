"""Purged and retracted text is gone everywhere, after any random sequence of operations on a space."""

from __future__ import annotations

import functools
import gc
import itertools
import tempfile
import types
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import mica
from mica.crystals.survivors import Survivors
from mica.errors import InvalidInput, LawBroken
from mica.events.log_export import record_export
from mica.format.documents import event_line
from mica.model.crystal import LEVELS, CrystalQuery
from mica.settings import load_settings
from mica.testing import HandClock
from mica.testing.postgres import LocalPostgres

MONDAY = datetime(2026, 11, 2, 9, tzinfo=UTC)
TEXTS = (
    "The {} cookie is set before the redirect, so the {} session is lost on every login.",
    "Moved {} after the redirect in auth/session.py; all tests of {} pass now.",
    "Never set {} before a redirect: browsers drop {} when the host changes.",
    "The staging deploy failed because {} was missing in the vault of {}.",
    "Added {} to the vault and the deploy went through; {} works on staging.",
    "The old helper {} in utils/http.py is used by nobody but {} and can go.",
    "The invoice total of {} is rounded twice, once in the cart and once in {}.",
    "Rounding happens in {} only; the mailer of {} prints what it is given.",
    "Always keep amounts of {} in cents until {} prints them.",
    "The nightly report counted {} as sales, so the numbers of {} were too high.",
    "Refunds have a type of their own in {} now, and {} leaves them out.",
    "Thirty invoices of {} were sent again with the right total of {}.",
)
CONCEPT = "service:app:login"
SHARED = (type, types.ModuleType, types.FunctionType, types.FrameType)  # shared by the whole process


def texts_held_by(owner: object) -> list[str]:
    """Every text that an object holds in memory at any depth, including its indexes and caches."""
    texts: list[str] = []
    seen = {id(owner)}
    waiting = [owner]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, bytes):
            texts.append(each.decode(errors="replace"))
        elif not isinstance(each, SHARED):
            referents = gc.get_referents(each)
            if isinstance(each, dict):  # the collector skips string keys
                referents += each
            elif isinstance(each, msgspec.Struct):  # the collector may skip its fields
                referents += [getattr(each, name) for name in each.__struct_fields__]
            waiting += [every for every in referents if id(every) not in seen]
            seen |= set(map(id, referents))
    return texts


def process_caches() -> list[object]:
    """The caches of mica's functions, which all memories of the process share."""
    caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [each for each in caches if each.__module__.startswith("mica.")]


class NeedleMark(NamedTuple):
    """A mark with a word that only it contains, and a word that others may repeat."""

    ref: mica.Ref
    session: str
    own: str
    shared: str


class Space:
    """A space, the operations on it, and the words that it must no longer contain."""

    def __init__(self, memory: mica.Memory, clock: HandClock, folder: Path) -> None:
        self.memory = memory
        self.clock = clock
        self.folder = folder
        self.marks: list[NeedleMark] = []
        self.purged_words: set[str] = set()
        self.retracted: set[str] = set()
        self._numbers = itertools.count(100)

    def choose(self, number: int) -> NeedleMark:
        return self.marks[number % len(self.marks)]

    # -- Growth

    async def work(self, number: int) -> None:
        """Record a session whose marks descend from the first."""
        root, session = None, f"s{len(self.marks)}"
        for text in TEXTS[number % 8 :]:
            self.clock.move(minutes=1)
            ref = self._mark(text, session, parent=root)
            root = root or ref

    async def mark_late(self, number: int) -> None:
        self._mark(TEXTS[number % 12], self.choose(number).session, at=self.clock() - timedelta(days=number % 12))

    def _mark(self, text: str, session: str, *, parent: mica.Ref | None = None, at: datetime | None = None) -> mica.Ref:
        own, shared = f"needle{self._letters()}own", f"needle{self._letters()}said"
        with self.memory.context(session=session, agent="scout"):
            ref = self.memory.mark(text.format(own, shared), parent=parent, at=at)
        self.marks.append(NeedleMark(ref, session, own, shared))
        return ref

    def _letters(self) -> str:
        """A number as letters: with digits an index would split the word, and the search would miss it."""
        return str(next(self._numbers)).translate(str.maketrans("0123456789", "bcdfghjkmp"))

    async def tick(self, number: int) -> None:
        self.clock.move(days=number % 10)
        await self.memory.upkeep.tick()

    async def close_epoch(self, number: int) -> None:
        label = self.choose(number).shared if number % 2 else f"chapter {number}"
        await self.memory.crystals.make(level=LEVELS[-1 - number % 5 // 3], label=label)

    async def make_tree(self, number: int) -> None:
        await self.memory.crystals.make(tree=self.choose(number).ref.id)

    async def commit(self, number: int) -> None:
        mark = self.choose(number)
        with self.memory.context(session=mark.session, agent="scout"):
            await self.memory.crystals.commit([(f"It was {mark.own} or {mark.shared}", [mark.ref.id])])

    async def promote(self, number: int) -> None:
        if crystals := await self.memory.crystals.list(limit=None):
            await self.memory.crystals.promote(crystals[number % len(crystals)].id, by="ann")

    async def gather_and_brief(self, number: int) -> None:
        mark = self.choose(number)
        self.memory.sources.judge(CONCEPT, "doubtful", confidence=0.5, reasons=[f"see {mark.shared}"])
        await self.memory.sources.gather(CONCEPT)
        await self.memory.brief("login cookie vault", concept=CONCEPT, budget_tokens=3_000)
        await self.memory.handoff(session=mark.session)

    async def export(self, number: int) -> None:
        path = self.folder / f"export {next(self._numbers)}.jsonl"
        events = [event async for event in self.memory.events.log()]
        path.write_bytes(b"".join(event_line(event) + b"\n" for event in events))
        record_export(self.memory._log, path, events=len(events))

    async def age(self, number: int) -> None:
        await self.memory.upkeep.age(timedelta(days=number % 3))

    # -- Removal

    async def retract(self, number: int) -> None:
        mark = self.choose(number)
        await self.memory.retract(mark.ref.id, reason="it was another")
        self.retracted.add(mark.ref.id)

    async def retract_crystal(self, number: int) -> None:
        if crystals := await self.memory.crystals.list(limit=None):
            await self.memory.retract(crystals[number % len(crystals)].id, reason="it misses the point")

    async def purge_mark(self, number: int) -> None:
        mark = self.choose(number)
        await self._purge({mark.own}, ids=[mark.ref.id])

    async def purge_word(self, number: int) -> None:
        mark = self.choose(number)
        await self._purge({mark.own, mark.shared}, value=mark.shared)

    async def purge_session(self, number: int) -> None:
        session = self.choose(number).session
        await self._purge({mark.own for mark in self.marks if mark.session == session}, session=session)

    async def _purge(
        self, words: set[str], *, ids: Sequence[str] = (), value: str | None = None, session: str | None = None
    ) -> None:
        epochs = await self.memory.crystals.list(level="epoch", limit=None)
        beneath = [
            {week.period for week in await self.memory.crystals.expand(epoch.id) if isinstance(week, mica.Crystal)}
            for epoch in epochs
        ]
        before = await self.memory.crystals.list(limit=None)
        events = [await self.memory.events.get(each.id) for each in before]
        selected = {event.id for event in events if session is not None and event.context.session == session}
        stale = {each.id for each in await self.memory._store.crystals.query(CrystalQuery(is_stale=True, limit=None))}
        for each in sorted(before, key=lambda each: LEVELS.index(each.level)):  # stale ones may end anyway
            stale |= set() if stale.isdisjoint(each.sources) else {each.id}
        done = await self.memory.purge(ids=ids, value=value, session=session)
        self.purged_words |= words
        held = texts_held_by(process_caches())
        assert [word for word in sorted(words) if any(word in text for text in held)] == []
        after = await self.memory.crystals.list(limit=None)
        assert {each.id for each in done.remade} == {each.id for each in after} - {each.id for each in before}
        lost_periods = {each.period for each in before if each.id not in selected} - {each.period for each in after}
        least = lost_periods - {each.period for each in before if each.id in stale}
        assert least <= {each.period for each in done.ended} <= lost_periods
        self.clock.move(seconds=1)
        await self.check_laws()
        there = {epoch.period for epoch in await self.memory.crystals.list(level="epoch", limit=None)}
        weeks = {week.period for week in await self.memory.crystals.list(level="week", limit=None)}
        retractions = await self.memory.events.query(mica.EventQuery(names=("mark.retracted",), limit=None))
        ended = {event.data["mark"] for event in retractions}
        for epoch, its_weeks in zip(epochs, beneath, strict=True):
            assert epoch.period in there or epoch.id in ended or weeks.isdisjoint(its_weeks)

    # -- Checks

    async def check_laws(self) -> None:
        memory = self.memory
        assert await memory.upkeep.verify() == []
        texts = [str(event) + event.body.decode() async for event in memory.events.log()]
        texts += [path.read_text() for path in self.folder.glob("export*")]
        texts += map(str, await memory.crystals.list(limit=None))
        texts += map(str, await memory.crystals.teachings(with_ended=True))
        texts += map(str, await memory.search("login cookie vault redirect staging helper", limit=200))
        texts += [str(await memory.brief("login cookie vault", concept=CONCEPT, budget_tokens=3_000))]
        texts += [str(await memory.sources.gather(CONCEPT))]
        texts += texts_held_by(memory)
        assert [word for word in sorted(self.purged_words) if any(word in text for text in texts)] == []

    async def settle(self) -> list[tuple[object, ...]]:
        """The crystals after all pending work is done, checked."""
        for _ in range(3):
            self.clock.move(days=8)
            await self.memory.upkeep.tick()
        await self.check_laws()
        assert (await Survivors.of(self.memory._store.log, self.memory._store.crystals)).pending == ()
        crystals = await self.memory.crystals.list(limit=None)
        for crystal in crystals:
            assert self.retracted.isdisjoint(crystal.sources)
            assert all(self.retracted.isdisjoint(statement.sources) for statement in crystal.statements)
        await self.memory.upkeep.rebuild()
        assert await self.memory.crystals.list(limit=None) == crystals
        named = [(each.is_tree or each.period, each) for each in crystals]  # a tree by its root, whose id is random
        return [(name, each.revision, each.label, each.text, len(each.sources)) for name, each in named]


Step = Callable[[Space, int], Awaitable[None]]
GROWTH: tuple[Step, ...] = (
    *(Space.work, Space.mark_late, Space.tick, Space.close_epoch, Space.make_tree, Space.commit, Space.promote),
    *(Space.gather_and_brief, Space.export, Space.age),
)
REMOVALS: tuple[Step, ...] = (
    *(Space.retract, Space.retract_crystal, Space.purge_mark, Space.purge_word, Space.purge_session),
)


def steps_of(steps: Sequence[Step], least: int, most: int) -> st.SearchStrategy[list[tuple[Step, int]]]:
    return st.lists(st.tuples(st.sampled_from(steps), st.integers(0, 60)), min_size=least, max_size=most)


LIVES = st.tuples(
    steps_of(
        (Space.close_epoch, Space.make_tree, Space.commit, Space.promote, Space.gather_and_brief, Space.export), 2, 5
    ),
    steps_of((*REMOVALS, Space.tick), 1, 3),
    steps_of(GROWTH, 0, 5),
    steps_of((*REMOVALS, Space.tick), 1, 3),
    steps_of((Space.purge_mark, Space.purge_word, Space.purge_session), 1, 1),
).map(lambda parts: list(itertools.chain(*parts)))


async def run_life(life: Sequence[tuple[Step, int]], target: str | None = None) -> list[tuple[object, ...]]:
    """Run these operations on a new space, by default in a file; returns the crystals at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), HandClock(MONDAY)
        here = load_settings({"HOME": name, "MICA_BRIEF_DEADLINE_S": "30", "MICA_SEMANTIC": "off"})
        async with mica.open(target or folder / "space.db", settings=here, clock=clock) as memory:
            space = Space(memory, clock, folder)
            for day in (0, 1, 7, 8):
                clock.at = MONDAY + timedelta(days=day)
                await space.work(day % 7)
            for step, number in life:
                with suppress(InvalidInput, LawBroken):  # the operation is no longer possible
                    await step(space, number)
            return await space.settle()


@settings(max_examples=25)
@given(LIVES)
async def test_purged_and_retracted_text_is_gone_everywhere_and_every_law_holds(life: list[tuple[Step, int]]) -> None:
    """keeps: K-53, U-08. Named epochs, trees, teachings, committed crystals, receipts and exports are included."""
    await run_life(life, ":memory:")


@settings(max_examples=4)
@given(LIVES)
async def test_every_engine_purges_alike(server: LocalPostgres, life: list[tuple[Step, int]]) -> None:
    """keeps: K-53, U-08"""
    expected = await run_life(life, ":memory:")

    assert await run_life(life) == expected
    assert await run_life(life, server.address()) == expected


async def test_no_cache_of_the_process_holds_purged_text() -> None:
    """keeps: U-08. Word stems, event names, contexts and patterns are cached; a purge empties every such cache."""
    async with mica.open(":memory:") as memory:
        with memory.context(session="needlesession"):
            memory.mark("The needleword cookie is set before the redirect", tags=["needletag"])
            memory.emit("needle.named", {"path": "needle/path.py"})
        await memory.search("needleword")
        await memory.events.query(mica.EventQuery(names=("needle.*",)))
        needles = [text for text in texts_held_by(process_caches()) if "needle" in text]

        await memory.purge(session="needlesession")

    assert {"needleword", "needle.named", "needle.*"} <= set(needles)
    assert [text for text in texts_held_by(process_caches()) if "needle" in text] == []
