"""Verify reports every kind of damage in PostgreSQL."""

from __future__ import annotations

import pytest

from mica.model.event import Context
from mica.testing import build
from mica.testing.postgres import LocalPostgres, connected, opened

BREAKAGES = {
    "UPDATE {0}.texts SET length = 9": (
        f"event {build(1).id} is not indexed as it is stored; `mica upkeep rebuild` repairs it"
    ),
    "INSERT INTO {0}.texts SELECT space, 99, session, at, length, is_mark FROM {0}.texts": (
        "the index has position 99, where no event is; `mica upkeep rebuild` repairs it"
    ),
    "UPDATE {0}.postings SET count = 9": "is not indexed as it is stored; `mica upkeep rebuild` repairs it",
    "DELETE FROM {0}.postings WHERE term = (SELECT min(term) FROM {0}.postings)": "is not indexed as it is stored",
    "DELETE FROM {0}.terms WHERE id = (SELECT min(term) FROM {0}.postings)": "is not indexed as it is stored",
    "INSERT INTO {0}.postings SELECT space, term, 2, count FROM {0}.postings": f"event {build(2).id} is not indexed as",
    "INSERT INTO {0}.postings SELECT space, term, 98, count FROM {0}.postings": "the index has position 98",
    "UPDATE {0}.contexts SET agent = 'b'": "does not match its digest",
    "UPDATE {0}.payloads SET body = (SELECT body FROM {0}.payloads ORDER BY body LIMIT 1)": (
        "does not match its digest"
    ),
    "DELETE FROM {0}.names": "PostgreSQL: event at position 1 refers to a missing name",
    "DELETE FROM {0}.writers": "PostgreSQL: event at position 1 refers to a missing writer",
    "DELETE FROM {0}.contexts": "PostgreSQL: event at position 1 refers to a missing context",
    "DELETE FROM {0}.payloads": "PostgreSQL: event at position 2 refers to a missing payload",
    "DELETE FROM {0}.keys WHERE position = 3": "PostgreSQL: event at position 3 has no key",
    "DELETE FROM {0}.events WHERE position = 2": "PostgreSQL: key at position 2 has no event",
    "DELETE FROM {0}.events WHERE position = 2; DELETE FROM {0}.keys WHERE position = 2": (
        "the events at positions 2 to 2 are missing from the log"
    ),
    "UPDATE {0}.spaces SET last_position = 7": "the events at positions 4 to 7 are missing from the log",
}


@pytest.mark.parametrize("statement", BREAKAGES)
async def test_verify_reports_every_kind_of_damage(server: LocalPostgres, schema: str, statement: str) -> None:
    """keeps: U-07, TE-14. Changes by a superuser without triggers are found."""
    async with opened(server.address(schema=schema)) as store:
        await store.log.append(
            [
                build(1, "mark", {"text": "one two"}, context=Context(agent="a")),
                build(2, data={"x": "y" * 6_000}),
                build(3, data={"x": "z" * 6_000}),
            ]
        )
        assert await store.files.verify() == []
        async with connected(server.dsn()) as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement.format(schema))

        async with opened(store.location) as other:
            problems = await other.files.verify()

        assert [problem for problem in problems if BREAKAGES[statement] in problem], problems
        if "rebuild" in BREAKAGES[statement]:
            await store.files.rebuild()
            assert await store.files.verify() == []
