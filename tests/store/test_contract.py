"""Every engine keeps the contract, and random histories get the same answers from all of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mica.model import Appended, EventQuery, tombstone
from mica.store.ephemeral import EphemeralStore
from mica.store.postgres import PostgresStore
from mica.store.protocol import Store
from mica.store.sqlite import SqliteStore
from mica.testing import History, StoreContract, histories
from mica.testing.builders import START_AT
from mica.testing.contract import TOLD
from mica.testing.postgres import Server
from mica.words import terms


class TestEveryEngine(StoreContract):
    """The `store` fixture of conftest.py has one parameter for each engine.

    The contract itself, in `mica.testing`, keeps E-02, E-05, E-29, E-30, TE-02, TE-03, TE-04, TE-05, TE-06, TE-17,
    TE-18, U-01 and U-07; each test there says which.
    """


async def answers(store: Store, history: History) -> list[object]:
    """What a store says about a history, asked in every way there is."""
    queries = [
        EventQuery(limit=None),
        EventQuery(session="s1", limit=3),
        EventQuery(agent="scout", names=("mark", "*.r*")),
        EventQuery(user="ann", since=START_AT),
        EventQuery(until=START_AT, errors=True),
        EventQuery(text="cookie"),
        EventQuery(text="session login", session="s2"),
    ]
    found: list[object] = [await store.events(query) for query in queries]
    for event in history:
        found += [
            await store.event(event.id),
            await store.chain(event.correlation),
            await store.ancestors(event.id),
            await store.descendants(event.id),
            await store.descendants(event.id, depth=1),
        ]
    found += [
        await store.postings(terms("cookie session redirect 数据 42")),
        await store.texts(range(len(history) + 2)),
        await store.texts([3, 5], neighbours=1),
        await store.agents(),
        await store.verify(),
        msgspec.structs.replace(await store.sizes(), size_bytes=0, payloads=0),
    ]
    return found


async def purge_alike(store: Store, history: History, chosen: set[int]) -> None:
    """Purge some events, and compare every answer with a reference in which they were never more than tombstones."""
    selected = [event for number, event in enumerate(history) if number in chosen]
    reference = EphemeralStore()
    await reference.append([tombstone(event, TOLD) if event in selected else event for event in history])
    right = await answers(reference, history)
    try:
        await store.append(history)
        await answers(store, history)  # what is cached must be forgotten

        assert await store.bury([event.id for event in selected], TOLD) == len(selected)

        assert await answers(store, history) == right
        assert await store.append(history) == Appended(stored=0, repeated=len(history))
        await store.scrub()
        assert await store.rebuild() == len(history)
        assert await answers(store, history) == right
    finally:
        await store.close()


PURGES = {"history": histories(), "chosen": st.sets(st.integers(0, 24))}


@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_memory(history: History, chosen: set[int]) -> None:
    """K-53: everything else is untouched to the letter, and every promise holds."""
    await purge_alike(EphemeralStore(), history, chosen)


@settings(max_examples=50)
@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_sqlite(history: History, chosen: set[int]) -> None:
    """K-53: everything else is untouched to the letter, and every promise holds."""
    with tempfile.TemporaryDirectory() as folder:
        await purge_alike(await SqliteStore.open(Path(folder) / "space.db"), history, chosen)


@settings(max_examples=25)
@given(**PURGES)
async def test_a_random_purge_leaves_tombstones_in_postgresql(
    server: Server, history: History, chosen: set[int]
) -> None:
    """K-53: everything else is untouched to the letter, and every promise holds."""
    await purge_alike(await PostgresStore.open(server.address()), history, chosen)


async def answer_alike(store: Store, history: History) -> None:
    """Append in two steps that overlap, and compare every answer with the reference, before and after a rebuild."""
    reference = EphemeralStore()
    await reference.append(history)
    right = await answers(reference, history)
    try:
        middle = len(history) // 2
        await store.append(history[:middle])
        await store.append(history)

        assert await answers(store, history) == right

        assert await store.rebuild() == len(history)
        assert await answers(store, history) == right
    finally:
        await store.close()


@given(history=histories())
async def test_random_histories_get_the_same_answers_from_sqlite(history: History) -> None:
    """E-13: the reference store defines what is right."""
    with tempfile.TemporaryDirectory() as folder:
        await answer_alike(await SqliteStore.open(Path(folder) / "space.db"), history)


@settings(max_examples=25)  # a question is some round trips to the server; each run draws other histories
@given(history=histories())
async def test_random_histories_get_the_same_answers_from_postgresql(server: Server, history: History) -> None:
    """E-13, K-31: and the same from a server that many spaces share."""
    await answer_alike(await PostgresStore.open(server.address()), history)
