"""PostgreSQL of an application: bound and read-only, bounded, cancelled on the server, and connected to again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.sources.scripted_sources import ABOUT, NOW, ask, declared

from mica.errors import InvalidInput, SourceFailed
from mica.sources.answer import ask_once
from mica.sources.drivers.first_rows import FirstRows
from mica.sources.drivers.postgres import CONNECTIONS_MAX
from mica.sources.protocol import Concept, Partial
from mica.sources.registry import SourceRegistry
from mica.store.postgres.server import parse_address
from mica.testing.postgres import APP, LOCKED, LocalPostgres, pooled

Declare = Callable[..., SourceRegistry]
Opened = Callable[..., SourceRegistry]
PASSWORD = "wro" + "ng-hunter"
SOON_S = 30  # on a busy machine
QUERY = "SELECT 'verdict' AS key, verdict AS value, confidence, at FROM shop.judgments WHERE kind = $1 AND id = $2"


@pytest.fixture(scope="module")
def shop(server: LocalPostgres) -> Iterator[LocalPostgres]:
    """A server with the tables of an application, which its user may change."""
    server.run(
        f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.judgments
            (id text, kind text, verdict text, confidence numeric, at timestamptz, number bigint);
        INSERT INTO shop.judgments VALUES
            ('abc123', 'code_review', 'GROWL', 0.52, '2026-11-01 10:00+01', 7),
            ('other', 'code_review', 'BARK', 0.1, now(), 8);
        CREATE SEQUENCE shop.numbers;
        CREATE FUNCTION shop.writes() RETURNS text LANGUAGE plpgsql AS
            $$ BEGIN DELETE FROM shop.judgments; RETURN 'done'; END $$;
        CREATE FUNCTION shop.stubborn() RETURNS text LANGUAGE plpgsql AS $$ BEGIN LOOP
            BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$;
        GRANT ALL ON SCHEMA shop TO {APP}; GRANT ALL ON ALL TABLES IN SCHEMA shop TO {APP};
        GRANT ALL ON ALL SEQUENCES IN SCHEMA shop TO {APP};
        """
    )
    yield server
    server.run("DROP SCHEMA shop CASCADE")


def table(query: str, name: str = "shop", **keys: str) -> str:
    keys = {"timeout_s": "60", **keys}  # on a busy machine; a test of time gives another
    said = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[sources.{name}]\ndriver = "postgres"\ndsn_env = "SHOP_DSN"\nquery = """{query}"""\n{said}'


@pytest.fixture
def opened(shop: LocalPostgres, declare: Declare) -> Opened:
    def opening(query: str, **keys: str) -> SourceRegistry:
        return declare(table(query, **keys), SHOP_DSN=shop.dsn(role=APP))

    return opening


async def test_a_query_is_bound_to_the_parts_of_a_concept(opened: Opened) -> None:
    """keeps: C-01, C-12. A table of an application is a source; times, numerics and ranks keep their types."""
    sources = opened(QUERY, parameters='["{type}", "{id}"]')

    [said] = await ask(sources, "shop")
    [asked] = sources.explain(ABOUT)

    assert (said.key, said.text, said.value, said.confidence) == ("verdict", "verdict: GROWL", "GROWL", 0.52)
    assert said.at.isoformat() == "2026-11-01T09:00:00+00:00"
    assert sources["shop"].declared.rank == 10
    assert asked.parameters == {"$1": "code_review", "$2": "abc123"}
    assert list(await ask(sources, "shop", Concept("judgment", "code_review", "nobody"))) == []


async def test_numbers_are_bound_as_numbers(opened: Opened) -> None:
    sources = opened("SELECT 'n' AS key, verdict AS value FROM shop.judgments WHERE number = $1")

    [said] = await ask(sources, "shop", Concept("judgment", "code_review", "7"))

    assert said.value == "GROWL"
    for identifier in ("seven", "7_0", "٧", "7; DROP", "9" * 30):
        with pytest.raises(SourceFailed, match=r"\$1 is of type int8, and the concept has"):
            await ask(sources, "shop", Concept("judgment", "code_review", identifier))


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO shop.judgments (id) VALUES ('x') RETURNING id AS key",
        "DELETE FROM shop.judgments RETURNING id AS key",
        "WITH gone AS (DELETE FROM shop.judgments RETURNING id) SELECT id AS key FROM gone",
        "SELECT shop.writes() AS key",
        "SELECT nextval('shop.numbers') AS key",
        "TRUNCATE shop.judgments",
        "CREATE TABLE shop.more (a int)",
        "SELECT id AS key INTO shop.copy FROM shop.judgments",
    ],
)
async def test_sql_that_writes_is_refused_by_the_database(query: str, opened: Opened, shop: LocalPostgres) -> None:
    """The transaction is read-only even if its user may write."""
    sources = opened(query, parameters="[]")

    with pytest.raises(SourceFailed, match="does more than read, and PostgreSQL refused it"):
        await ask(sources, "shop")

    counted = opened("SELECT 'n' AS key, count(*) AS value FROM shop.judgments", parameters="[]")
    assert [each.value for each in await ask(counted, "shop")] == [2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 AS key; DELETE FROM shop.judgments",
        "COMMIT; DELETE FROM shop.judgments",
        "SELECT set_config('transaction_read_only', 'off', false) AS key",
    ],
)
async def test_no_query_leaves_its_read_only_transaction(query: str, opened: Opened) -> None:
    sources = opened(query, parameters="[]")

    for _ in range(2):
        with pytest.raises(SourceFailed):
            await ask(sources, "shop")

    counted = opened("SELECT 'n' AS key, count(*) AS value FROM shop.judgments", parameters="[]")
    assert [each.value for each in await ask(counted, "shop")] == [2]


async def test_session_settings_of_a_query_do_not_reach_the_next(shop: LocalPostgres, declare: Declare) -> None:
    """A session set to writable still gets a read-only transaction."""
    sources = declare(
        table("SELECT set_config('default_transaction_read_only', 'off', false) AS key, 'x' AS text", parameters="[]")
        + table("DELETE FROM shop.judgments RETURNING id AS key", name="writes", parameters="[]"),
        SHOP_DSN=shop.dsn(role=APP),
    )

    await ask(sources, "shop")
    with pytest.raises(SourceFailed, match="does more than read"):
        await ask(sources, "writes")


async def test_a_lock_taken_by_a_query_is_released_with_its_answer(opened: Opened, shop: LocalPostgres) -> None:
    """A session lock outlives its transaction, and the session stays open for the next query."""
    sources = opened("SELECT 'lock' AS key, pg_try_advisory_lock(42)::text AS text", parameters="[]")

    said = await ask(sources, "shop")

    assert [each.text for each in said] == ["true"]
    connection = await asyncpg.connect(shop.dsn(), statement_cache_size=0)
    try:
        async with asyncio.timeout(SOON_S):
            while await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"):
                await asyncio.sleep(0)
    finally:
        await connection.close()
    assert await connected(shop) == 1


async def test_a_connection_is_opened_before_a_deadline_begins(opened: Opened, shop: LocalPostgres) -> None:
    sources = opened("SELECT 'x' AS key, 'y' AS text", parameters="[]")

    await sources.prepare([ABOUT])

    assert await connected(shop) == 1


async def test_an_unreachable_server_is_reported_only_when_queried(declare: Declare) -> None:
    away = "postgresql://nobody@127.0.0.1:9/shop"
    sources = declare(table("SELECT 1 AS key", parameters="[]"), SHOP_DSN=away)

    await sources.prepare([ABOUT])

    with pytest.raises(SourceFailed, match="is it running"):
        await ask(sources, "shop")


@settings(max_examples=25)
@given(
    identifier=some.text(min_size=1, max_size=40)
    | some.sampled_from(["' OR '1'='1", "x'; DROP TABLE shop.judgments;--", "$1", "\\'"])
)
async def test_no_id_is_ever_read_as_sql(
    identifier: str, shop: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Injection through a concept id is impossible, for any text."""
    try:
        concept = Concept("judgment", "code_review", identifier)
    except InvalidInput:
        concept = ABOUT
    sources = declared(
        table("SELECT id AS key, id AS text FROM shop.judgments WHERE id = $1"),
        folder=tmp_path_factory.mktemp("injection"),
        SHOP_DSN=shop.dsn(role=APP),
    )

    tested = await ask_once(sources["shop"], concept, now=NOW)
    await sources.close()

    assert tested.error == ""
    assert [each.key for each in tested.fragments] == ([concept.id] if concept.id in {"abc123", "other"} else [])


async def test_a_million_rows_are_cut_and_reported(opened: Opened) -> None:
    """The server is asked only for the rows that are used."""
    sources = opened(
        "SELECT i AS key, i AS value FROM generate_series(1, 1000000) AS i", parameters="[]", fragments_max="60"
    )

    said = await ask(sources, "shop")

    assert [each.value for each in said] == list(range(1, 61))
    assert isinstance(said, Partial)
    assert said.missing == "only the first 60 rows are used; ask for fewer, or raise fragments_max of [sources.shop]"


async def test_many_rows_come_in_batches_and_in_order(opened: Opened) -> None:
    sources = opened(
        "SELECT i AS key, i AS value FROM generate_series(1, 500) AS i WHERE i > $1::int",
        parameters='["{id}"]',
        fragments_max="300",
    )

    for after, number in (("0", 300), ("200", 300), ("201", 299), ("500", 0)):
        said = await ask(sources, "shop", Concept("judgment", "code_review", after))

        assert [each.value for each in said] == list(range(int(after) + 1, int(after) + 1 + number))
        assert isinstance(said, Partial) == (after == "0")


async def test_bytes_are_limited(opened: Opened) -> None:
    sources = opened(
        "SELECT i AS key, repeat('x', 400) AS text FROM generate_series(1, 100) AS i", parameters="[]", bytes_max="1000"
    )

    said = await ask(sources, "shop")

    assert len(said) == 2
    assert isinstance(said, Partial)
    assert "rows after the first 2 go beyond bytes_max = 1,000" in said.missing


async def sleeping(server: LocalPostgres) -> int:
    """How many queries of the application's user sleep on the server."""
    connection = await asyncpg.connect(server.dsn(), statement_cache_size=0)
    try:
        found = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query LIKE '%pg_sleep%'",
            APP,
        )
        return int(found)
    finally:
        await connection.close()


async def until_sleeping(server: LocalPostgres, number: int) -> None:
    async with asyncio.timeout(SOON_S):
        while await sleeping(server) != number:
            await asyncio.sleep(0)


async def connected(server: LocalPostgres) -> int:
    """How many connections the application's user has."""
    connection = await asyncpg.connect(server.dsn(), statement_cache_size=0)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", APP))
    finally:
        await connection.close()


async def test_the_server_cancels_a_query_that_takes_too_long(opened: Opened, shop: LocalPostgres) -> None:
    sources = opened("SELECT pg_sleep(600)::text AS key", parameters="[]", timeout_s="0.2")

    with pytest.raises(SourceFailed, match=r"timeout_s = 0\.2|no answer within 0\.2 s"):
        await ask(sources, "shop")

    await until_sleeping(shop, 0)


async def test_a_cancelled_query_is_cancelled_on_the_server(opened: Opened, shop: LocalPostgres) -> None:
    """keeps: TC-03. The caller returns at once, no query stays behind, and closing leaves no connection and no task."""
    tasks = asyncio.all_tasks()
    sources = opened("SELECT pg_sleep(600)::text AS key", parameters="[]", timeout_s="60")
    asking = [asyncio.ensure_future(ask(sources, "shop")) for _ in range(CONNECTIONS_MAX)]
    await until_sleeping(shop, CONNECTIONS_MAX)

    for each in asking:
        each.cancel()
    done, _ = await asyncio.wait(asking, timeout=SOON_S)

    assert all(each.cancelled() for each in done)
    await until_sleeping(shop, 0)
    await sources.close()
    assert asyncio.all_tasks() == tasks
    async with asyncio.timeout(SOON_S):
        while await connected(shop):
            await asyncio.sleep(0)


async def test_a_query_that_ignores_cancellation_is_ended_on_the_server(opened: Opened, shop: LocalPostgres) -> None:
    """keeps: TC-03. A cancel request may be ignored or come too early; no query of mica runs forever."""
    sources = opened("SELECT shop.stubborn() AS key -- pg_sleep", parameters="[]", timeout_s="60")
    asking = asyncio.ensure_future(ask(sources, "shop"))
    await until_sleeping(shop, 1)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    await until_sleeping(shop, 0)


async def test_an_exhausted_pool_is_reported_and_recovers(shop: LocalPostgres, declare: Declare) -> None:
    query = "SELECT pg_sleep(600)::text AS key"
    sources = declare(
        table(query, timeout_s="60") + table(query, name="hasty", timeout_s="0.05"), SHOP_DSN=shop.dsn(role=APP)
    )
    asking = [asyncio.ensure_future(ask(sources, "shop")) for _ in range(CONNECTIONS_MAX)]
    await until_sleeping(shop, CONNECTIONS_MAX)

    with pytest.raises(SourceFailed, match=rf"all {CONNECTIONS_MAX} connections to it are in use"):
        await ask(sources, "hasty")
    for each in asking:
        each.cancel()
    await asyncio.wait(asking)

    await until_sleeping(shop, 0)
    assert await connected(shop) <= CONNECTIONS_MAX


async def test_many_queries_of_several_sources_share_few_connections(shop: LocalPostgres, declare: Declare) -> None:
    query = "SELECT id AS key, verdict AS value FROM shop.judgments WHERE id = $1"
    sources = declare(table(query) + table(query, name="again"), SHOP_DSN=shop.dsn(role=APP))

    answers = await asyncio.gather(*(ask(sources, name) for name in ["shop", "again"] * 50))

    assert {len(each) for each in answers} == {1}
    assert 1 <= await connected(shop) <= CONNECTIONS_MAX


async def test_a_killed_server_is_reported_and_reconnected(opened: Opened, shop: LocalPostgres) -> None:
    """keeps: C-17. It is killed during a query, away, and back: each is reported, and the next answer is complete."""
    sources = opened(QUERY, parameters='["{type}", "{id}"]')
    slow = opened("SELECT pg_sleep(600)::text AS key", parameters="[]", timeout_s="60")
    assert len(await ask(sources, "shop")) == 1
    asking = asyncio.ensure_future(ask(slow, "shop"))
    await until_sleeping(shop, 1)

    await asyncio.to_thread(shop.kill)
    try:
        with pytest.raises(SourceFailed, match=r"does not answer|ended the connection"):
            await asking
        with pytest.raises(SourceFailed, match=r"PostgreSQL at .* does not answer .*; is it running\?"):
            await ask(sources, "shop")
    finally:
        await asyncio.to_thread(shop.restart)

    assert [each.value for each in await ask(sources, "shop")] == ["GROWL"]


class Line:
    """A line to the server that can be cut: the next question on it ends the connection."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.is_cut = False
        self.cuts = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_unix_connection(self._server)
        back = asyncio.ensure_future(self._pour(answers, writer))
        try:
            while said := await reader.read(65_536):
                if self.is_cut and b"BEGIN" in said:
                    self.is_cut = False
                    self.cuts += 1
                    return
                questions.write(said)
        finally:
            back.cancel()
            questions.close()
            writer.close()

    @staticmethod
    async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(65_536):
            writer.write(said)


async def test_a_connection_lost_on_use_is_replaced(shop: LocalPostgres, declare: Declare) -> None:
    """A pooler, a firewall or a restart ends connections that look open; the query is sent once more."""
    host = parse_address(shop.address(), space="x").host
    with tempfile.TemporaryDirectory() as folder:
        line = Line(f"{host}/.s.PGSQL.5432")
        carrying = await asyncio.start_unix_server(line.carry, f"{folder}/.s.PGSQL.5432")
        dsn = shop.dsn(role=APP).replace(quote(host, safe=""), quote(folder, safe=""))
        sources = declare(table(QUERY, parameters='["{type}", "{id}"]'), SHOP_DSN=dsn)
        await ask(sources, "shop")

        line.is_cut = True
        said = await ask(sources, "shop")

        await sources.close()
        carrying.close()
    assert line.cuts == 1
    assert [each.value for each in said] == ["GROWL"]


async def test_a_hung_server_blocks_no_caller(shop: LocalPostgres, declare: Declare) -> None:
    """keeps: TC-03.

    The server accepts the connection and never answers; the caller returns at its deadline, and closing ends.
    """
    query = "SELECT 'a' AS key, pg_sleep(0.1)::text || 'x' AS text"
    sources = declare(
        table(query, timeout_s="60") + table(query, name="hasty", timeout_s="0.2"), SHOP_DSN=shop.dsn(role=APP)
    )
    await asyncio.gather(*(ask(sources, "shop") for _ in range(CONNECTIONS_MAX)))  # all of them are open
    assert await connected(shop) == CONNECTIONS_MAX

    with shop.hung(role=APP):
        with pytest.raises(SourceFailed, match=r"no answer within 0\.2 s"):
            await ask(sources, "hasty")
        async with asyncio.timeout(SOON_S):
            await sources.close()


async def test_a_slow_connection_is_finished_for_the_next_query(opened: Opened, shop: LocalPostgres) -> None:
    """Otherwise a deadline shorter than connecting would keep the source unconnected forever."""
    sources = opened(QUERY, parameters='["{type}", "{id}"]')
    first = asyncio.ensure_future(ask(sources, "shop"))
    for _ in range(3):  # it has begun to connect
        await asyncio.sleep(0)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    await _once_connected(shop)
    assert len(await ask(sources, "shop")) == 1
    await _once_connected(shop)


async def _once_connected(shop: LocalPostgres) -> None:
    """Wait until there is one connection; what a test before has closed may take a moment to end."""
    async with asyncio.timeout(SOON_S):
        while await connected(shop) != 1:
            await asyncio.sleep(0)


async def test_a_pooler_in_transaction_mode_is_supported(shop: LocalPostgres, declare: Declare) -> None:
    async with pooled(shop.address(role=APP)) as (pooler, address):
        sources = declare(table(QUERY, parameters='["{type}", "{id}"]'), SHOP_DSN=address.partition("&schema")[0])

        for _ in range(6):
            assert len(await ask(sources, "shop")) == 1
        await sources.close()

    assert len(pooler.used) > 1


PREPARED = "SELECT 'n' AS key, count(*) AS value FROM pg_prepared_statements WHERE statement LIKE $1"


async def test_a_query_is_prepared_once_and_never_behind_a_pooler(shop: LocalPostgres, declare: Declare) -> None:
    """A prepared statement belongs to one server process, which a pooler may exchange after each transaction."""
    asked = table(PREPARED, parameters='["%{id}%"]')
    about = Concept("judgment", "code_review", "pg_prepared_statements")
    sources = declare(asked, SHOP_DSN=shop.dsn(role=APP))

    direct = [(await ask(sources, "shop", about))[0].value for _ in range(4)]
    await sources.close()
    async with pooled(shop.address(role=APP)) as (pooler, address):
        sources = declare(asked, SHOP_DSN=address.partition("&schema")[0])
        between = [(await ask(sources, "shop", about))[0].value for _ in range(4)]
        await sources.close()

    assert direct == [1] * 4
    assert between == [0] * 4
    assert len(pooler.used) > 1


@pytest.mark.parametrize(
    ("change", "identifier"),
    [
        ("ALTER TABLE shop.changing ADD COLUMN more text DEFAULT 'new'", "7"),
        ("ALTER TABLE shop.changing ALTER COLUMN id TYPE int USING id::int", "7"),
        ("ALTER TABLE shop.changing ALTER COLUMN verdict TYPE shop.mood USING verdict::shop.mood", "7"),
    ],
)
async def test_a_changed_table_is_queried_in_its_new_form(
    change: str, identifier: str, shop: LocalPostgres, declare: Declare
) -> None:
    """A statement prepared for other columns or types is prepared again without an error."""
    shop.run(
        f"""CREATE TYPE shop.mood AS ENUM ('WAG', 'HOWL'); CREATE TABLE shop.changing (id text, verdict text);
        INSERT INTO shop.changing VALUES ('7', 'WAG'); GRANT ALL ON shop.changing TO {APP}"""
    )
    query = "SELECT *, 'verdict' AS key, verdict AS value FROM shop.changing WHERE id = $1"
    sources = declare(table(query), SHOP_DSN=shop.dsn(role=APP))
    about = Concept("judgment", "code_review", identifier)
    try:
        before = await asyncio.gather(*(ask(sources, "shop", about) for _ in range(CONNECTIONS_MAX)))

        await asyncio.to_thread(shop.run, change)  # which waits for questions that are being ended
        after = [await ask(sources, "shop", about) for _ in range(CONNECTIONS_MAX)]
    finally:
        await asyncio.to_thread(shop.run, "DROP TABLE shop.changing; DROP TYPE shop.mood")

    assert {each.value for said in [*before, *after] for each in said} == {"WAG"}
    assert {len(said) for said in after} == {1}


async def test_a_number_column_that_became_text_is_queried_as_text(shop: LocalPostgres, declare: Declare) -> None:
    """Parameter types are looked up again when a concept does not fit the known ones."""
    shop.run(
        f"""CREATE TABLE shop.changing (id int, verdict text); INSERT INTO shop.changing VALUES (7, 'WAG');
        GRANT ALL ON shop.changing TO {APP}"""
    )
    query = "SELECT 'verdict' AS key, verdict AS value FROM shop.changing WHERE id = $1"
    sources = declare(table(query), SHOP_DSN=shop.dsn(role=APP))
    try:
        number, word = (Concept("judgment", "code_review", each) for each in ("7", "ab12"))
        before = await asyncio.gather(*(ask(sources, "shop", number) for _ in range(CONNECTIONS_MAX)))
        with pytest.raises(SourceFailed, match=r"\$1 is of type int4, and the concept has 'ab12'"):
            await ask(sources, "shop", word)

        change = (
            "ALTER TABLE shop.changing ALTER COLUMN id TYPE text; INSERT INTO shop.changing VALUES ('ab12', 'HOWL')"
        )
        await asyncio.to_thread(shop.run, change)  # which waits for questions that are being ended
        after = [await ask(sources, "shop", each) for each in (word, number) * CONNECTIONS_MAX]
    finally:
        await asyncio.to_thread(shop.run, "DROP TABLE shop.changing")

    assert [each.value for said in before for each in said] == ["WAG"] * CONNECTIONS_MAX
    assert [each.value for said in after for each in said] == ["HOWL", "WAG"] * CONNECTIONS_MAX


async def test_a_concept_that_does_not_fit_affects_no_other_query(
    shop: LocalPostgres, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared statements stay valid on all connections, because the tables did not change."""
    sources = declare(table("SELECT 'n' AS key, 10 / $1::int AS value"), SHOP_DSN=shop.dsn(role=APP))
    five, zero = (Concept("judgment", "code_review", each) for each in ("5", "0"))
    assert [each.value for each in await ask(sources, "shop", five)] == [2]
    asked: list[str] = []
    real = FirstRows.first

    async def first(self: FirstRows, query: str, values: Sequence[object], limit: int) -> list[asyncpg.Record]:
        asked.append("query")
        return await real(self, query, values, limit)

    async def reload(self: FirstRows) -> None:
        asked.append("reload")

    monkeypatch.setattr(FirstRows, "first", first)
    monkeypatch.setattr(FirstRows, "reload_schema_state", reload)

    with pytest.raises(SourceFailed, match="division by zero"):
        await ask(sources, "shop", zero)

    assert asked == ["query"]
    assert [each.value for each in await ask(sources, "shop", five)] == [2]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT * FROM shop.gone", 'PostgreSQL refuses the query: relation "shop.gone" does not exist'),
        ("SELEC 1", "PostgreSQL refuses the query: syntax error"),
        ("SELECT $1::text AS key, $2::text AS text", "the query has 2 parameters, and `parameters` names 1"),
        ("SELECT 1 AS key, at FROM shop.judgments WHERE at > $1", "a parameter does not fit the query"),
        ("SELECT verdict AS value FROM shop.judgments", r"it has no key \(it has value\)"),
    ],
)
async def test_an_unusable_query_is_reported(query: str, reason: str, opened: Opened) -> None:
    sources = opened(query)

    with pytest.raises(SourceFailed, match=reason):
        await ask(sources, "shop")


async def test_no_error_shows_the_secrets_of_an_address(shop: LocalPostgres, declare: Declare) -> None:
    query = table("SELECT 1 AS key")
    refused = shop.dsn(role=LOCKED).replace(LOCKED, f"{LOCKED}:{PASSWORD}")
    for dsn, reason in (
        (refused, "refuses the user"),
        (f"postgresql://me:{PASSWORD}@127.0.0.1:1/shop?password={PASSWORD}", r"127\.0\.0\.1:1/shop does not answer"),
        (f"postgresql://me:{PASSWORD}@/shop?host=/nowhere", "does not answer"),
    ):
        sources = declare(query, SHOP_DSN=dsn)

        with pytest.raises(SourceFailed, match=reason) as caught:
            await ask(sources, "shop")

        assert PASSWORD not in str(caught.value)
        assert PASSWORD not in repr(await sources.health())
        await sources.close()


async def test_an_unset_variable_is_named_when_it_is_needed(declare: Declare) -> None:
    sources = declare(table("SELECT 1 AS key"))

    with pytest.raises(SourceFailed, match="the variable 'SHOP_DSN' that dsn_env names is not set; export it"):
        await ask(sources, "shop")


async def test_health_names_reachable_and_unreachable_sources(shop: LocalPostgres, declare: Declare) -> None:
    sources = declare(
        table("SELECT 1 AS key") + '[sources.gone]\ndriver = "json"\npath = "gone.json"\n', SHOP_DSN=shop.dsn(role=APP)
    )

    there, gone = await sources.health()

    assert there.is_there
    assert there.detail.startswith("PostgreSQL ")
    assert there.milliseconds > 0
    assert not gone.is_there
    assert "there is no file" in gone.detail
