"""Random histories, purges and crystals get the same answers from every engine."""

from __future__ import annotations

import pkgutil
import tempfile
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mica import store
from mica.errors import InvalidEvent, LawBroken
from mica.model.crystal import LEVELS, CrystalQuery, crystal_of
from mica.model.event import CRYSTAL, MARK, Appended, Event, EventQuery, make_tombstone, writer_named
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite.store import SqliteStore
from mica.testing import contract
from mica.testing.builders import START_AT, TOMBSTONE, build
from mica.testing.contract.crystals import proposals
from mica.testing.contract.store import ClosingContract, StoreContract
from mica.testing.histories import History, histories
from mica.testing.postgres import LocalPostgres
from mica.tokens import estimate
from mica.words import terms


class TestStore(ClosingContract):
    """The suites of the roles run in the test files of the roles."""


def test_the_store_contract_includes_every_suite() -> None:
    suites = {
        name
        for module in pkgutil.iter_modules(contract.__path__)
        for name in vars(import_module(f"{contract.__name__}.{module.name}"))
        if name.endswith("Contract")
    }

    assert suites == {base.__name__ for base in StoreContract.__mro__ if base is not object}


@pytest.mark.parametrize("role", list(get_type_hints(Store)))
def test_every_role_has_a_suite_that_runs_and_a_module_in_each_engine(role: str) -> None:
    """Engines without notifications share `SilentNotices`; the remote store makes its roles from the protocols."""
    suite, runs = Path(contract.__path__[0]) / f"{role}.py", Path(__file__).parent / f"test_{role}.py"
    engines = ("postgres",) if role == "notices" else ("postgres", "reference", "sqlite")
    modules = [Path(store.__path__[0]) / engine / f"{role}.py" for engine in engines]

    assert [path for path in (suite, runs, *modules) if not path.is_file()] == []
    assert f"from mica.testing.contract.{role} import" in runs.read_text(encoding="utf-8")


MISSING = build(99_999).id  # the parent of some events, never stored


async def age_in_part(store: Store) -> None:
    """Age the log in steps, so that there are several blocks."""
    for seconds in (0, 9, 3_600):
        while await store.files.age(START_AT + timedelta(seconds=seconds), limit=4):
            pass


async def answers(store: Store, history: History) -> list[object]:
    """The answers of every read method about a history."""
    queries = [
        EventQuery(limit=None),
        EventQuery(session="s1", limit=3),
        EventQuery(agent="scout", names=("mark", "*.r*")),
        EventQuery(user="ann", since=START_AT),
        EventQuery(until=START_AT, errors=True),
        EventQuery(text="cookie"),
        EventQuery(text="session login", session="s2"),
        EventQuery(session="s1", agent="scout", user="ann", limit=None),
        EventQuery(agent="smith", limit=2),
        EventQuery(since=START_AT, until=START_AT + timedelta(seconds=9), limit=4),
        EventQuery(names=("file.*",), errors=False, limit=None),
        EventQuery(limit=0),
    ]
    found: list[object] = [await store.log.query(query) for query in queries]
    found += [await store.log.at(position) for position in range(len(history) + 2)]
    found += [await store.log.read(after, limit=limit) for after in (-1, 0, 3, 7) for limit in (0, 1, 5, 100)]
    found += [
        await store.chains.descendants(MISSING),
        await store.chains.ancestors(MISSING),
        await store.chains.chain("req-1"),
    ]
    for event in history:
        found += [
            await store.log.get(event.id),
            await store.chains.chain(event.correlation),
            await store.chains.ancestors(event.id),
            await store.chains.descendants(event.id),
            await store.chains.descendants(event.id, depth=1),
        ]
        if event.name in (MARK, CRYSTAL):
            found.append(await store.crystals.citing([event.id]))
    crystals = [
        CrystalQuery(is_live=None, limit=None),
        CrystalQuery(limit=2),
        CrystalQuery(is_live=False),
        CrystalQuery(is_sealed=True),
        CrystalQuery(is_stale=True, is_live=None),
        CrystalQuery(level="session", is_sealed=False, is_stale=False),
        CrystalQuery(period="session:x", since=START_AT + timedelta(seconds=3), until=START_AT + timedelta(seconds=9)),
    ]
    found += [await store.crystals.query(each) for each in crystals]
    found += [await store.crystals.unsealed(limit=limit) for limit in (0, 2, 100)]
    found += [await store.crystals.citing([event.id for event in history[:3]])]
    found += [
        await store.texts.postings(terms("cookie session redirect 数据 42")),
        await store.texts.read(range(len(history) + 2)),
        await store.texts.read([3, 5], neighbours=1),
        await store.chains.agents(),
        await store.files.verify(),
        msgspec.structs.replace(
            await store.files.sizes(), size_bytes=0, payloads=0, aged=0, blocks=0, page_checksums=None
        ),
    ]
    return found


async def purge_alike(store: Store, history: History, chosen: set[int], *, aged: bool) -> None:
    """Purge some events, and compare every answer with a reference that stored only their tombstones."""
    selected = [event for number, event in enumerate(history) if number in chosen]
    reference = EphemeralStore()
    await reference.log.append([make_tombstone(event, TOMBSTONE) if event in selected else event for event in history])
    right = await answers(reference, history)
    try:
        await store.log.append(history)
        if aged:
            await age_in_part(store)
        await answers(store, history)  # fill the caches, which the purge must empty

        assert await store.purges.bury([event.id for event in selected], TOMBSTONE) == len(selected)

        assert await answers(store, history) == right
        assert await store.log.append(history) == Appended(stored=0, repeated=len(history))
        await store.purges.scrub()
        await age_in_part(store)
        assert await answers(store, history) == right
        assert await store.log.append(history) == Appended(stored=0, repeated=len(history))
        assert await store.files.rebuild() == len(history)
        assert await answers(store, history) == right
    finally:
        await store.close()


PURGES = {"history": histories(), "chosen": st.sets(st.integers(0, 24)), "aged": st.booleans()}


@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_memory(history: History, chosen: set[int], aged: bool) -> None:
    """keeps: K-53. Everything else is unchanged, and every promise holds."""
    await purge_alike(EphemeralStore(), history, chosen, aged=aged)


@settings(max_examples=50)
@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_sqlite(history: History, chosen: set[int], aged: bool) -> None:
    """keeps: K-53. Everything else is unchanged, and every promise holds."""
    with tempfile.TemporaryDirectory() as folder:
        await purge_alike(await SqliteStore.open(Path(folder) / "space.db"), history, chosen, aged=aged)


@settings(max_examples=25)
@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_postgresql(
    server: LocalPostgres, history: History, chosen: set[int], aged: bool
) -> None:
    """keeps: K-53. Everything else is unchanged, and every promise holds."""
    await purge_alike(await PostgresStore.open(server.address()), history, chosen, aged=aged)


async def answer_alike(store: Store, history: History) -> None:
    """Append in two steps that overlap, and compare every answer with the reference, also after rebuilds and ageing."""
    orphan = build(0, "file.edit", {"path": "a.py"}, parent=build(99_999), writer=writer_named("orphans"))
    below = build(1, "mark", {"text": "cookie"}, parent=orphan, writer=writer_named("orphans"), after_s=3)
    history = [*history, orphan, below]
    reference = EphemeralStore()
    await reference.log.append(history)
    right = await answers(reference, history)
    try:
        middle = len(history) // 2
        await store.log.append(history[:middle])
        await store.log.append(history)

        assert await answers(store, history) == right

        assert await store.files.rebuild() == len(history)
        assert await answers(store, history) == right

        before = await store.files.sizes()
        await age_in_part(store)
        assert await answers(store, history) == right
        assert await store.log.append(history) == Appended(repeated=len(history))
        assert await store.files.rebuild() == len(history)
        assert await answers(store, history) == right
        after = await store.files.sizes()
        assert (after.events, after.marks, after.contexts, after.payloads) == (
            before.events, before.marks, before.contexts, before.payloads,
        )  # fmt: skip
    finally:
        await store.close()


@given(history=histories())
async def test_random_histories_get_the_same_answers_from_sqlite(history: History) -> None:
    """keeps: E-13. The reference store defines the right answers, also for aged events."""
    with tempfile.TemporaryDirectory() as folder:
        await answer_alike(await SqliteStore.open(Path(folder) / "space.db"), history)


@settings(max_examples=25)  # a query is several round trips; each run draws other histories
@given(history=histories())
async def test_random_histories_get_the_same_answers_from_postgresql(server: LocalPostgres, history: History) -> None:
    """keeps: E-13, K-31. Also on a server that many spaces share."""
    await answer_alike(await PostgresStore.open(server.address()), history)


# -- Crystals -------------------------------------------------------------------------------------------------


async def verdict(store: Store, event: Event) -> str:
    """The verdict of a store on a proposed event: the law that it breaks, or another reason."""
    try:
        await store.log.append([event])
    except LawBroken as error:
        return error.law
    except InvalidEvent:
        return "no event"
    return "stored"


async def check_laws(store: Store) -> None:
    """Check each stored crystal against the laws, without the code that judged it."""
    stored = {event.id: event for event in await store.log.read(0, limit=1_000)}
    for crystal in await store.crystals.query(CrystalQuery(is_live=None, limit=None)):
        sources = [stored[each] for each in crystal.sources]
        below = [crystal_of(each) if each.name == CRYSTAL else None for each in sources]
        level_below = None if crystal.level == "session" else LEVELS[LEVELS.index(crystal.level) - 1]
        assert sources
        assert {each.level if each else None for each in below} == {level_below}
        assert {event.name for event in sources} == {"mark" if level_below is None else CRYSTAL}
        for event, each in zip(sources, below, strict=True):
            assert crystal.start_at <= (each.start_at if each else event.at)
            assert (each.end_at if each else event.at) <= crystal.end_at
        of_sources = [
            each.tokens if each else estimate(str(event.data["text"]))
            for event, each in zip(sources, below, strict=True)
        ]
        assert 0 < crystal.tokens < sum(of_sources)


async def judge_alike(store: Store, proposed: History, purged: set[int], *, with_crystals: bool) -> None:
    """Propose events one by one, then purge some, and compare every verdict and answer with the reference."""
    reference = EphemeralStore()
    stored: History = []
    try:
        for event in proposed:
            right = await verdict(reference, event)
            assert await verdict(store, event) == right, event
            stored += [event] * (right == "stored")
        right_answers = await answers(reference, stored)
        assert await reference.files.verify() == []
        await check_laws(reference)

        assert await answers(store, stored) == right_answers
        assert [event.body for event in await store.log.read(0, limit=1_000)] == [event.body for event in stored]
        for upkeep in (store.files.rebuild, lambda: age_in_part(store), store.files.rebuild):
            await upkeep()
            assert await answers(store, stored) == right_answers

        chosen = [event.id for number, event in enumerate(stored) if number in purged]
        citing = await reference.crystals.citing(chosen)
        assert await store.crystals.citing(chosen) == citing
        for each in (reference, store):
            await each.purges.bury([*chosen, *citing] if with_crystals else chosen, TOMBSTONE)
        right_answers = await answers(reference, stored)
        assert await answers(store, stored) == right_answers
        assert not with_crystals or await store.files.verify() == []
        for each in (store, reference):
            await each.files.rebuild()
            assert await answers(each, stored) == right_answers
    finally:
        await store.close()


PROPOSALS = {"proposed": proposals(), "purged": st.sets(st.integers(0, 15), max_size=4), "with_crystals": st.booleans()}


@given(**PROPOSALS)
async def test_random_crystals_keep_every_law_in_memory(
    proposed: History, purged: set[int], with_crystals: bool
) -> None:
    """keeps: B-12, B-13, B-14, B-15, B-16, TB-02, TB-05. Stored crystals are the same when they are derived again."""
    await judge_alike(EphemeralStore(), proposed, purged, with_crystals=with_crystals)


@settings(max_examples=50)
@given(**PROPOSALS)
async def test_random_crystals_are_judged_alike_by_sqlite(
    proposed: History, purged: set[int], with_crystals: bool
) -> None:
    """keeps: B-12, B-13, B-14, B-15, B-16, TB-02, TB-05. Stored or refused by the same law, also when aged."""
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "space.db")
        await judge_alike(store, proposed, purged, with_crystals=with_crystals)


@settings(max_examples=15)
@given(**PROPOSALS)
async def test_random_crystals_are_judged_alike_by_postgresql(
    server: LocalPostgres, proposed: History, purged: set[int], with_crystals: bool
) -> None:
    """keeps: B-12, B-13, B-14, B-15, B-16, TB-02, TB-05. Stored or refused by the same law, also after rebuilds."""
    store = await PostgresStore.open(server.address())
    await judge_alike(store, proposed, purged, with_crystals=with_crystals)
