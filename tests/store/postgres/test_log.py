"""The log in PostgreSQL: triggers, monthly partitions, and payloads."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest

from mica.model.event import Appended, EventQuery
from mica.store.postgres.store import PostgresStore
from mica.testing import HandClock, build
from mica.testing.postgres import LocalPostgres, connected, opened


async def test_an_event_cannot_be_changed_even_by_sql(server: LocalPostgres, schema: str) -> None:
    """keeps: B-12. Refused by the database as well as by the code, even for a superuser."""
    async with opened(server.address(schema=schema)) as store:
        await store.log.append([build(1)])
    async with connected(server.dsn()) as connection:
        with pytest.raises(asyncpg.RestrictViolationError, match="never changed"):
            await connection.execute(f"UPDATE {schema}.events SET data = ''")
        with pytest.raises(asyncpg.RestrictViolationError, match="never removed"):
            await connection.execute(f"DELETE FROM {schema}.events")


async def test_events_of_any_time_have_a_partition(server: LocalPostgres, schema: str) -> None:
    """Months are created ahead and on demand; times outside all months have partitions, too."""
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2019, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
        datetime(2049, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    events = [msgspec.structs.replace(build(n), at=at) for n, at in enumerate(times, start=1)]
    clock = HandClock(datetime(2030, 11, 30, tzinfo=UTC))
    store = await PostgresStore.open(server.address(schema=schema), clock=clock)
    await store.log.append(events)

    assert [event.at for event in await store.log.query(EventQuery())] == times
    async with connected(server.dsn()) as connection:
        rows = await connection.fetch(
            f"SELECT tableoid::regclass::text FROM {schema}.events WHERE space = {store._space.number} ORDER BY at"
        )
        made = await connection.fetch(
            f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{schema}.events'::regclass"
        )
    assert [row[0].removeprefix(f"{schema}.events_") for row in rows] == [
        "earlier", "earlier", "2020_01", "2026_12", "2027_01", "2049_12", "later",
    ]  # fmt: skip
    assert {f"{schema}.events_{month}" for month in ("2030_11", "2030_12", "2031_01")} <= {row[0] for row in made}
    await store.close()


async def test_a_month_that_was_dropped_is_made_again(server: LocalPostgres, schema: str) -> None:
    async with opened(server.address(schema=schema)) as store:
        await store.log.append([msgspec.structs.replace(build(1), at=datetime(2024, 5, 1, tzinfo=UTC))])
        async with connected(server.dsn()) as connection:
            await connection.execute(f"DROP TABLE {schema}.events_2024_05")

        late = msgspec.structs.replace(build(2), at=datetime(2024, 5, 2, tzinfo=UTC))
        assert await store.log.append([late]) == Appended(stored=1)
        assert [problem for problem in await store.files.verify() if "has no event" in problem]


async def test_large_payloads_are_stored_once_and_whole(server: LocalPostgres) -> None:
    """keeps: TE-05, E-06, E-27, K-43. Content-addressed, never truncated; NUL included, 50 MB read back identical."""
    large: dict[str, object] = {"text": "ab\0ü" * (10 * 2**20)}
    async with opened(server.address()) as store:
        await store.log.append(
            [build(1, "tool.ran", large), build(2, "tool.ran", large), build(3, data={"x": "y" * 6_000})]
        )
        await store.log.append([build(4, "tool.ran", large)])

        assert (await store.files.sizes()).payloads == 2
        event = await store.log.get(build(4).id)
        assert event is not None
        assert event.data == large
        assert await store.files.verify() == []


async def test_sizes_say_whether_the_server_notices_damaged_pages(server: LocalPostgres) -> None:
    """keeps: U-09. `mica doctor` advises to turn `data_checksums` on."""
    async with opened(server.address()) as store, connected(server.dsn()) as connection:
        expected = await connection.fetchval("SHOW data_checksums") == "on"
        assert (await store.files.sizes()).page_checksums is expected
