"""Queries use an index, at every age of the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.model.event import Context, EventQuery, Tombstone
from mica.model.trail import TrailQuery
from mica.store.sqlite import log_query as sqlite_query
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import START_AT


@pytest.mark.parametrize("aged", [0, 2, 9])
@pytest.mark.parametrize(
    "read",
    [
        lambda core: core.log.get(build(1).id),
        lambda core: core.log.at(1),
        lambda core: core.chains.chain(build(1).id),
        lambda core: core.chains.chain("req-1"),
        lambda core: core.chains.ancestors(build(3).id),
        lambda core: core.chains.descendants(build(1).id),
        lambda core: core.log.query(EventQuery(session="s1", limit=10)),
        lambda core: core.log.query(EventQuery(agent="a", limit=10)),
        lambda core: core.log.query(EventQuery(names=("file.*",), limit=10)),
        lambda core: core.log.query(EventQuery(since=START_AT, until=START_AT, limit=10)),
        lambda core: core.log.query(EventQuery(text="cookie", limit=10)),
        lambda core: core.texts.postings(["cooki"]),
        lambda core: core.texts.read([1]),
    ],
)
def test_no_read_scans_the_log(tmp_path: Path, read: Callable[[DirectStore], object], aged: int) -> None:
    """keeps: TE-10, E-10, E-26. The cost of a query does not grow with the log, because it uses an index."""
    core = DirectStore(tmp_path / "space.db")
    root = build(1, "mark", {"text": "cookie"}, context=Context(session="s1", agent="a", correlation="req-1"))
    core.log.append([root, child := build(2, "file.read", parent=root), build(3, "mark", {"text": "x"}, parent=child)])
    core.files.age(START_AT + timedelta(seconds=aged))

    plans = plans_of(core, read)

    assert plans
    for text, plan in plans:
        scans = [step for step in plan if step.startswith("SCAN")]
        assert not [step for step in scans if "contexts" in step or ("events" in step and "INDEX" not in step)], text
    core.close()


def test_no_purge_scans_a_table_that_grows_with_the_log(tmp_path: Path) -> None:
    """keeps: U-08. The cost of purging one event does not grow with the log."""
    core = DirectStore(tmp_path / "space.db")
    events = [build(n, "mark", {"text": f"word{n}"}, context=Context(session=f"s{n}", agent="a")) for n in range(1, 9)]
    core.log.append(events)
    tombstone = Tombstone(purge=build(99).id, reason="leaked")

    plans = plans_of(core, lambda core: core.purges.bury([event.id for event in events[:4]], tombstone))

    assert [text for text, _ in plans if "DELETE FROM terms" in text]
    for text, plan in plans:
        scans = [step for step in plan if step.startswith("SCAN")]
        grown = ("events", "contexts", "sessions", "terms", "texts", "postings")
        assert not [step for step in scans if step.split()[1] in grown], text
    core.close()


def plans_of(core: DirectStore, read: Callable[[DirectStore], object]) -> list[tuple[str, list[str]]]:
    """The statements of a read, each with the steps that SQLite plans for it."""
    statements: list[tuple[str, apsw.Bindings | None]] = []

    def trace(_: object, text: str, bindings: apsw.Bindings | None) -> bool:
        statements.append((text, bindings))
        return True

    core.connection.exec_trace = trace
    read(core)
    core.connection.exec_trace = None
    return [
        (text, [str(row[3]) for row in core.connection.execute(f"EXPLAIN QUERY PLAN {text}", bindings)])
        for text, bindings in statements
    ]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (TrailQuery(slug="auth"), "trails_by_slug"),
        (TrailQuery(shape="fix-login"), "trails_by_shape"),
        (TrailQuery(limit=10), "trails_by_runs"),
        (TrailQuery(limit=10, order="last_at"), "trails_by_last_use"),
    ],
)
def test_trails_are_found_by_an_index(tmp_path: Path, query: TrailQuery, index: str) -> None:
    """keeps: A-06. By name, task shape, number of runs and last use."""
    core = DirectStore(tmp_path / "space.db")

    [plan] = [plan for text, plan in plans_of(core, lambda core: core.trails.query(query)) if "FROM trails" in text]

    assert f"INDEX {index}" in plan[0]
    core.close()


@pytest.mark.parametrize("recent", [0, 3, 40, 1_000])
async def test_a_session_with_many_contexts_gives_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    """keeps: TE-10. For a session without end, the latest rows of the log are scanned first."""
    chance = random.Random(recent)
    events = [
        build(
            number,
            chance.choice(["step", "other"]),
            after_s=chance.randint(0, 30),
            context=Context(session=chance.choice(["lasting", "other"]), task=f"t{chance.randint(0, 20)}"),
        )
        for number in range(1, 120)
    ]
    queries = [
        EventQuery(session="lasting", names=names, limit=limit)
        for names in ((), ("step",))
        for limit in (0, 1, 5, 30, 200, None)
    ]
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append(events)
    plain = [await store.log.query(query) for query in queries]
    monkeypatch.setattr(sqlite_query, "MANY_CONTEXTS", 2)
    monkeypatch.setattr(sqlite_query, "RECENT_ROWS", recent)
    assert [await store.log.query(query) for query in queries] == plain
    await store.close()
