"""Forgetting as a law: whatever was marked, crystallized, named, taught, told and written out, and in whichever order
things were then taken back.
"""

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
SAYS = (
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
SHARED = (type, types.ModuleType, types.FunctionType, types.FrameType)  # what leads to things of the whole process


def held_by(owner: object) -> list[str]:
    """Every text that an object holds in memory, however deep, indexes and caches of its own among it."""
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
            found = gc.get_referents(each)
            if isinstance(each, dict):  # of which the collector leaves out keys that are texts
                found += each
            elif isinstance(each, msgspec.Struct):  # which it need not follow
                found += [getattr(each, name) for name in each.__struct_fields__]
            waiting += [every for every in found if id(every) not in seen]
            seen |= set(map(id, found))
    return texts


def caches_of_the_process() -> list[object]:
    """What functions of ours remember of what they were given, whichever memory asked."""
    found = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [each for each in found if each.__module__.startswith("mica.")]


class Said(NamedTuple):
    """A mark, a word that only it says, and a word that others may repeat."""

    ref: mica.Ref
    session: str
    own: str
    shared: str


class Space:
    """A space in which anything may happen, and what must not be found in it any more."""

    def __init__(self, memory: mica.Memory, clock: HandClock, folder: Path) -> None:
        self.memory = memory
        self.clock = clock
        self.folder = folder
        self.marks: list[Said] = []
        self.gone: set[str] = set()
        self.retracted: set[str] = set()
        self._numbers = itertools.count(100)

    def chosen(self, number: int) -> Said:
        return self.marks[number % len(self.marks)]

    # -- What happens

    async def works(self, number: int) -> None:
        """A session: all of its marks follow from the first."""
        root, session = None, f"s{len(self.marks)}"
        for text in SAYS[number % 8 :]:
            self.clock.move(minutes=1)
            ref = self._mark(text, session, parent=root)
            root = root or ref

    async def comes_late(self, number: int) -> None:
        self._mark(SAYS[number % 12], self.chosen(number).session, at=self.clock() - timedelta(days=number % 12))

    def _mark(self, text: str, session: str, *, parent: mica.Ref | None = None, at: datetime | None = None) -> mica.Ref:
        own, shared = f"needle{self._letters()}own", f"needle{self._letters()}said"
        with self.memory.context(session=session, agent="scout"):
            ref = self.memory.mark(text.format(own, shared), parent=parent, at=at)
        self.marks.append(Said(ref, session, own, shared))
        return ref

    def _letters(self) -> str:
        """A number in letters: with digits an index would hold its parts, and nobody would find the word there."""
        return str(next(self._numbers)).translate(str.maketrans("0123456789", "bcdfghjkmp"))

    async def ticks(self, number: int) -> None:
        self.clock.move(days=number % 10)
        await self.memory.upkeep.tick()

    async def closes(self, number: int) -> None:
        label = self.chosen(number).shared if number % 2 else f"chapter {number}"
        await self.memory.crystals.make(level=LEVELS[-1 - number % 5 // 3], label=label)

    async def climbs(self, number: int) -> None:
        await self.memory.crystals.make(tree=self.chosen(number).ref.id)

    async def commits(self, number: int) -> None:
        said = self.chosen(number)
        with self.memory.context(session=said.session, agent="scout"):
            await self.memory.crystals.commit([(f"It was {said.own} or {said.shared}", [said.ref.id])])

    async def promotes(self, number: int) -> None:
        if crystals := await self.memory.crystals.list(limit=None):
            await self.memory.crystals.promote(crystals[number % len(crystals)].id, by="ann")

    async def tells(self, number: int) -> None:
        said = self.chosen(number)
        self.memory.sources.judge(CONCEPT, "doubtful", confidence=0.5, reasons=[f"see {said.shared}"])
        await self.memory.sources.gather(CONCEPT)
        await self.memory.brief("login cookie vault", concept=CONCEPT, budget_tokens=3_000)
        await self.memory.handoff(session=said.session)

    async def exports(self, number: int) -> None:
        path = self.folder / f"export {next(self._numbers)}.jsonl"
        events = [event async for event in self.memory.events.log()]
        path.write_bytes(b"".join(event_line(event) + b"\n" for event in events))
        record_export(self.memory._log, path, events=len(events))

    async def ages(self, number: int) -> None:
        await self.memory.upkeep.age(timedelta(days=number % 3))

    # -- What is taken back

    async def retracts(self, number: int) -> None:
        said = self.chosen(number)
        await self.memory.retract(said.ref.id, reason="it was another")
        self.retracted.add(said.ref.id)

    async def retracts_a_crystal(self, number: int) -> None:
        if crystals := await self.memory.crystals.list(limit=None):
            await self.memory.retract(crystals[number % len(crystals)].id, reason="it misses the point")

    async def purges(self, number: int) -> None:
        said = self.chosen(number)
        await self._purge({said.own}, ids=[said.ref.id])

    async def purges_a_word(self, number: int) -> None:
        said = self.chosen(number)
        await self._purge({said.own, said.shared}, value=said.shared)

    async def purges_a_session(self, number: int) -> None:
        session = self.chosen(number).session
        await self._purge({said.own for said in self.marks if said.session == session}, session=session)

    async def _purge(
        self, words: set[str], *, ids: Sequence[str] = (), value: str | None = None, session: str | None = None
    ) -> None:
        epochs = await self.memory.crystals.list(level="epoch", limit=None)
        beneath = [
            {week.period for week in await self.memory.crystals.expand(epoch.id) if isinstance(week, mica.Crystal)}
            for epoch in epochs
        ]
        stood = await self.memory.crystals.list(limit=None)
        events = [await self.memory.events.get(each.id) for each in stood]
        asked = {event.id for event in events if session is not None and event.context.session == session}
        stale = {each.id for each in await self.memory._store.crystals.query(CrystalQuery(is_stale=True, limit=None))}
        for each in sorted(stood, key=lambda each: LEVELS.index(each.level)):  # which may end by themselves
            stale |= set() if stale.isdisjoint(each.sources) else {each.id}
        done = await self.memory.purge(ids=ids, value=value, session=session)
        self.gone |= words
        held = held_by(caches_of_the_process())
        assert [word for word in sorted(words) if any(word in text for text in held)] == []
        stand = await self.memory.crystals.list(limit=None)
        assert {each.id for each in done.remade} == {each.id for each in stand} - {each.id for each in stood}
        gone = {each.period for each in stood if each.id not in asked} - {each.period for each in stand}
        least = gone - {each.period for each in stood if each.id in stale}
        assert least <= {each.period for each in done.ended} <= gone
        self.clock.move(seconds=1)
        await self.is_lawful()
        there = {epoch.period for epoch in await self.memory.crystals.list(level="epoch", limit=None)}
        weeks = {week.period for week in await self.memory.crystals.list(level="week", limit=None)}
        told = await self.memory.events.query(mica.EventQuery(names=("mark.retracted",), limit=None))
        ended = {event.data["mark"] for event in told}
        for epoch, its_weeks in zip(epochs, beneath, strict=True):
            assert epoch.period in there or epoch.id in ended or weeks.isdisjoint(its_weeks)

    # -- What holds then

    async def is_lawful(self) -> None:
        memory = self.memory
        assert await memory.upkeep.verify() == []
        told = [str(event) + event.body.decode() async for event in memory.events.log()]
        told += [path.read_text() for path in self.folder.glob("export*")]
        told += map(str, await memory.crystals.list(limit=None))
        told += map(str, await memory.crystals.teachings(with_ended=True))
        told += map(str, await memory.search("login cookie vault redirect staging helper", limit=200))
        told += [str(await memory.brief("login cookie vault", concept=CONCEPT, budget_tokens=3_000))]
        told += [str(await memory.sources.gather(CONCEPT))]
        told += held_by(memory)
        assert [word for word in sorted(self.gone) if any(word in text for text in told)] == []

    async def is_as_told(self) -> list[tuple[object, ...]]:
        """The crystals that stand, when everything has become of them that will."""
        for _ in range(3):
            self.clock.move(days=8)
            await self.memory.upkeep.tick()
        await self.is_lawful()
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
GROWS: tuple[Step, ...] = (
    *(Space.works, Space.comes_late, Space.ticks, Space.closes, Space.climbs, Space.commits, Space.promotes),
    *(Space.tells, Space.exports, Space.ages),
)
TAKES: tuple[Step, ...] = (
    *(Space.retracts, Space.retracts_a_crystal, Space.purges, Space.purges_a_word, Space.purges_a_session),
)


def some(steps: Sequence[Step], least: int, most: int) -> st.SearchStrategy[list[tuple[Step, int]]]:
    return st.lists(st.tuples(st.sampled_from(steps), st.integers(0, 60)), min_size=least, max_size=most)


LIVES = st.tuples(
    some((Space.closes, Space.climbs, Space.commits, Space.promotes, Space.tells, Space.exports), 2, 5),
    some((*TAKES, Space.ticks), 1, 3),
    some(GROWS, 0, 5),
    some((*TAKES, Space.ticks), 1, 3),
    some((Space.purges, Space.purges_a_word, Space.purges_a_session), 1, 1),
).map(lambda parts: list(itertools.chain(*parts)))


async def lived(life: Sequence[tuple[Step, int]], target: str | None = None) -> list[tuple[object, ...]]:
    """What stands at the end of a life, in a file unless another target is given."""
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), HandClock(MONDAY)
        here = load_settings({"HOME": name, "MICA_BRIEF_DEADLINE_S": "30", "MICA_SEMANTIC": "off"})
        async with mica.open(target or folder / "space.db", settings=here, clock=clock) as memory:
            space = Space(memory, clock, folder)
            for day in (0, 1, 7, 8):
                clock.at = MONDAY + timedelta(days=day)
                await space.works(day % 7)
            for step, number in life:
                with suppress(InvalidInput, LawBroken):  # what cannot be done any more
                    await step(space, number)
            return await space.is_as_told()


@settings(max_examples=25)
@given(LIVES)
async def test_purged_and_retracted_text_is_gone_everywhere_and_every_law_holds(life: list[tuple[Step, int]]) -> None:
    """keeps: K-53, U-08. Named epochs, trees, teachings, committed crystals, receipts and exports are included."""
    await lived(life, ":memory:")


@settings(max_examples=4)
@given(LIVES)
async def test_every_engine_purges_alike(server: LocalPostgres, life: list[tuple[Step, int]]) -> None:
    """keeps: K-53, U-08"""
    stands = await lived(life, ":memory:")

    assert await lived(life) == stands
    assert await lived(life, server.address()) == stands


async def test_no_cache_of_the_process_holds_purged_text() -> None:
    """keeps: U-08. Word stems, event names, contexts and patterns are cached; a purge empties every such cache."""
    async with mica.open(":memory:") as memory:
        with memory.context(session="needlesession"):
            memory.mark("The needleword cookie is set before the redirect", tags=["needletag"])
            memory.emit("needle.named", {"path": "needle/path.py"})
        await memory.search("needleword")
        await memory.events.query(mica.EventQuery(names=("needle.*",)))
        needles = [text for text in held_by(caches_of_the_process()) if "needle" in text]

        await memory.purge(session="needlesession")

    assert {"needleword", "needle.named", "needle.*"} <= set(needles)
    assert [text for text in held_by(caches_of_the_process()) if "needle" in text] == []
