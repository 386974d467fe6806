"""Statements use an index, regardless of the planner's statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from mica.errors import (
    DuplicateEvent,
)
from mica.model.belief import KINDS, STATES, BeliefId, BeliefQuery
from mica.model.event import Context, EventQuery
from mica.model.trail import TrailQuery
from mica.store.codec import digest
from mica.store.postgres import purges as postgres_purge
from mica.store.postgres import server as postgres_server
from mica.store.postgres import space as postgres_space
from mica.store.postgres import statements as postgres_query
from mica.store.postgres.server import Connection
from mica.store.postgres.store import PostgresStore
from mica.store.postgres.words import PostgresWords
from mica.testing import build
from mica.testing.builders import START_AT, TOMBSTONE
from mica.testing.contract.beliefs import build_belief
from mica.testing.contract.trails import build_trail
from mica.testing.postgres import LocalPostgres, connected, opened


@pytest.fixture(scope="module", params=["known", "grown beside many", "grown beside one"])
def full(request: pytest.FixtureRequest, server: LocalPostgres) -> Iterator[str]:
    """The address of a space with some thousand events of a dozen months.

    The planner's statistics know it, or are older: of a time when each of many spaces had one event, all of the same
    time and position, or when another space was all there was.
    """
    schema = server.unused_schema()
    address = server.address(schema=schema)
    analyze = f"ANALYZE {', '.join(f'{schema}.{table}' for table in ANALYZED)}"

    async def fill() -> None:
        await server.make_schema(schema)
        context = Context(session="s1", agent="a", correlation="req-1")
        root = build(1, "mark", {"text": "cookie"}, context=context)
        child = build(2, "file.read", parent=root)
        few = [root, child, build(3, "mark", {"text": "x"}, parent=child)]
        many = [
            msgspec.structs.replace(
                build(n, "mark" if n % 9 == 0 else "shell.run", {"text": f"word{n}"}, context=Context(session=f"s{n}")),
                at=datetime(2026, 1 + n % 12, 1 + n % 28, microsecond=n, tzinfo=UTC),
            )
            for n in range(10, 8_000)
        ]
        trails = [build_trail(f"t{n}", shape=f"fix-{n % 500}", runs=n, after_s=n) for n in range(5_000)]
        beliefs = [
            build_belief(
                f"b{n}",
                *("main", f"key{n % 900}"),
                kind=KINDS[n % 7],
                state=STATES[n % 4],
                session=f"s{n % 900}",
                evidence=(build(n % 900).id,),
                after_s=n,
            )
            for n in range(5_000)
        ]
        async with connected(server.dsn()) as connection:
            for _ in range({"grown beside many": 10, "grown beside one": 1}.get(request.param, 0)):
                async with opened(server.address(schema=schema)) as other:
                    await other.log.append(many[:1] if request.param == "grown beside many" else many[:100])
            if request.param != "known":
                await connection.execute(analyze)
            async with opened(address) as store:
                await store.log.append([*few, *many])
                await store.trails.save(trails, await store.trails.learned_up_to())
                await store.beliefs.save(beliefs, await store.beliefs.learned_up_to(), after=0)
            if request.param == "known":
                await connection.execute(analyze)

    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, fill()).result()
    yield address
    server.run(f"DROP SCHEMA {schema} CASCADE")


ANALYZED = (
    "belief_evidence", "belief_keys", "beliefs", "contexts", "crystal_sources", "crystals", "events", "keys", "names",
    "payloads", "postings", "retractions", "sessions", "terms", "texts", "work", "writers",
)  # fmt: skip


BIG = "events", "keys", "texts", "postings", "trails", "belief"


def rows_touched(plan: dict[str, Any], tables: tuple[str, ...]) -> int:
    """The number of rows of these tables that a plan read."""
    own = 0
    if plan.get("Relation Name", "").startswith(tables):
        own = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    return int(own) + sum(rows_touched(child, tables) for child in plan.get("Plans", ()))


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.log.get(build(1).id),
        lambda store: store.log.at(1),
        lambda store: store.log.read(4_000, limit=10),
        lambda store: store.chains.chain(build(1).id),
        lambda store: store.chains.chain("req-1"),
        lambda store: store.chains.ancestors(build(3).id),
        lambda store: store.chains.descendants(build(1).id),
        lambda store: store.log.query(EventQuery(session="s1", limit=10)),
        lambda store: store.log.query(EventQuery(agent="a", limit=10)),
        lambda store: store.log.query(EventQuery(names=("file.*",), limit=10)),
        lambda store: store.log.query(EventQuery(since=build(1).at, until=build(9).at, limit=10)),
        lambda store: store.log.query(EventQuery(text="cookie", limit=10)),
        lambda store: store.texts.read([1]),
        lambda store: store.trails.query(TrailQuery(slug="t7")),
        lambda store: store.trails.query(TrailQuery(shape="fix-7")),
        lambda store: store.trails.query(TrailQuery(limit=10)),
        lambda store: store.trails.query(TrailQuery(limit=10, order="last_at")),
        lambda store: store.beliefs.query(BeliefQuery(kinds=("rule",), states=("held", "settled"), limit=10)),
        lambda store: store.beliefs.query(BeliefQuery(kinds=("rule",), states=("held",), since=START_AT, limit=10)),
        lambda store: store.beliefs.query(BeliefQuery(session="s7", kinds=("rule",), states=("held", "settled"))),
        lambda store: store.beliefs.query(BeliefQuery(ids=(BeliefId("b7"),), kinds=KINDS, states=("ended",))),
        lambda store: store.beliefs.query(BeliefQuery(evidence=(build(7).id,), kinds=("rule",), states=("held",))),
        lambda store: store.beliefs.related(["main", "key7", "gone"], per_key=10),
        lambda store: store.log.append([build(1), build(3), build(4_000, "other", parent=build(1))]),
    ],
)
async def test_no_read_scans_the_log(full: str, read: Callable[[PostgresStore], Coroutine[Any, Any, object]]) -> None:
    """keeps: TE-10, E-10, E-26, A-06. The cost of a query does not grow with the log, because it uses an index."""
    statements: list[tuple[str, tuple[object, ...]]] = []
    async with opened(full) as store:
        connections = [await store._space.pool().acquire() for _ in range(postgres_server.CONNECTIONS_MAX)]
        for connection in connections:
            connection.add_query_logger(lambda record: statements.append((record.query, record.args)))
            await store._space.pool().release(connection)
        with suppress(DuplicateEvent):
            await read(store)

        touched = around = 0
        async with store._space.transaction(postgres_space.READ) as connection:
            for query, args in statements:
                if query.strip().startswith("SELECT") and "make_month" not in query:
                    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
                    plan = msgspec.json.decode(explained)[0]["Plan"]
                    touched += rows_touched(plan, BIG)
                    around += rows_touched(plan, ("contexts", "sessions"))
    assert 0 < touched < 100
    assert around < 50_000  # there are 8,000 of each, so no nested scan has happened


MANY_BELIEFS = (
    """INSERT INTO beliefs (space, id, kind, state, session, last_at, belief)
    SELECT $1, 'x' || n, 'rule', 'held', sha256((n / 10)::text::bytea), -n, '{}'
    FROM generate_series(1, 100000) AS n""",
    """INSERT INTO belief_keys (space, belief, key, last_at)
    SELECT $1, 'x' || n, key, -n
    FROM generate_series(1, 100000) AS n, unnest(ARRAY['\\x01', '\\x02', $2]::bytea[]) AS key""",
    """INSERT INTO belief_evidence (space, belief, event)
    SELECT $1, 'x' || n, 'e' || n FROM generate_series(1, 100000) AS n""",
)


async def rows_read_again(store: PostgresStore, statements: list[tuple[str, tuple[object, ...]]]) -> int:
    """Run the statements of a call on beliefs again, and return the number of rows that they read."""
    touched = 0
    with suppress(_RolledBack):
        async with store._space.transaction(postgres_space.WRITE) as connection:
            for query, args in statements:
                if query.startswith("SET LOCAL"):
                    await connection.execute(query)
                elif "belief" in query:
                    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
                    touched += rows_touched(msgspec.json.decode(explained)[0]["Plan"], ("belief",))
            raise _RolledBack
    return touched


async def test_beliefs_are_found_by_an_index_before_the_first_statistics(server: LocalPostgres) -> None:
    """Once, the planner expected few beliefs with a key, and read and sorted all of them."""
    schema = server.unused_schema()
    await server.make_schema(schema)
    newest = [build_belief(f"b{n}", "main", evidence=(build(n).id,), after_s=n) for n in range(10)]
    statements: list[tuple[str, tuple[object, ...]]] = []
    async with opened(server.address(schema=schema)) as store:
        async with store._space.transaction(postgres_space.WRITE) as connection:
            for filling in MANY_BELIEFS:
                args = (store._space.number, digest(b"main"))
                await connection.execute(filling, *args[: 1 + filling.count("$2")])
        await store.beliefs.save(newest, await store.beliefs.learned_up_to(), after=0)
        connections = [await store._space.pool().acquire() for _ in range(postgres_server.CONNECTIONS_MAX)]
        for connection in connections:
            connection.add_query_logger(lambda record: statements.append((record.query, record.args)))
            await store._space.pool().release(connection)

        for call in (
            store.beliefs.related(["main", "gone"], per_key=10),
            store.beliefs.query(BeliefQuery(limit=10)),
            store.beliefs.query(BeliefQuery(kinds=("rule",), states=("held", "settled"), limit=10)),
            store.beliefs.query(BeliefQuery(session="s1", states=("held",))),
            store.beliefs.query(BeliefQuery(ids=(newest[0].id, newest[1].id), states=("held",))),
            store.beliefs.query(BeliefQuery(evidence=(build(7).id,), kinds=("rule",))),
            store.beliefs.save(newest[:2], await store.beliefs.learned_up_to(), after=0),
        ):
            statements.clear()
            assert await call
            assert 0 < await rows_read_again(store, list(statements)) < 100, statements

    server.run(f"DROP SCHEMA {schema} CASCADE")


class _CountingConnection:
    """A connection that counts the rows of the big tables that its statements read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.touched = 0

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, object]]:
        async def run(query: str, *args: object, **kwargs: object) -> object:
            await self._connection.execute("SAVEPOINT counting")
            explained = await self._connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
            await self._connection.execute("ROLLBACK TO SAVEPOINT counting")
            self.touched += rows_touched(msgspec.json.decode(explained)[0]["Plan"], BIG)
            return await getattr(self._connection, name)(query, *args, **kwargs)

        return run


async def test_a_purge_reads_only_the_rows_it_changes(full: str) -> None:
    """keeps: K-53. Once, each step read the whole log and index, which took a minute in a large space."""
    of_one_day = [build(n).id for n in range(90, 8_000, 252)]  # marks among 95 events
    async with opened(full) as store:
        doomed = await store.log.get_many(of_one_day)
        with suppress(_RolledBack):
            async with store._space.transaction(postgres_space.WRITE) as connection:
                await connection.fetch("SELECT FROM spaces WHERE number = $1 FOR UPDATE", store._space.number)
                counting = _CountingConnection(connection)
                await postgres_purge.bury_events(
                    cast(Connection, counting),
                    store._space.number,
                    PostgresWords(store._space.number),
                    doomed,
                    TOMBSTONE,
                )
                raise _RolledBack

    assert len(doomed) == 32
    derived = 5_000 + 5_000 * 2 + 3_750 * 2  # trails, beliefs with their evidence, keys: all are deleted
    assert 0 < counting.touched - derived < 1_000


class _RolledBack(Exception):
    """Raised to roll back the changes of a test."""


async def test_few_and_many_contexts_and_names_give_the_same_results(
    server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are looked up one by one; for many the log is scanned from its end."""
    events = [
        build(n, f"name.{n % 5}", {"text": f"cookie {n % 3}"}, context=Context(session=f"s{n % 4}", agent=f"a{n % 2}"))
        for n in range(60)
    ]
    queries = [
        EventQuery(agent="a1", limit=7),
        EventQuery(agent="a1", session="s1", names=("*.2", "*.3"), limit=5),
        EventQuery(names=("name.1", "name.4"), limit=11, since=events[9].at),
        EventQuery(names=("name.1",), text="cookie", agent="a0", limit=3),
        EventQuery(agent="nobody"),
        EventQuery(agent="a0", limit=0),
    ]
    async with opened(server.address()) as store:
        await store.log.append(events)
        one_by_one = [await store.log.query(query) for query in queries]
        monkeypatch.setattr(postgres_query, "FEW", -1)
        walked = [await store.log.query(query) for query in queries]

    assert one_by_one == walked
    assert [len(found) for found in walked] == [7, 5, 11, 3, 0, 0]
