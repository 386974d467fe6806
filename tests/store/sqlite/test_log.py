"""The log in an SQLite file: payloads, triggers, several processes, and kills."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.model.belief import BeliefId, BeliefQuery
from mica.model.event import Context, EventQuery, Tombstone, writer_named
from mica.model.trail import TrailQuery
from mica.store.sqlite import log as sqlite_log
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import START_AT
from mica.testing.contract.beliefs import build_belief


def test_large_payloads_are_stored_once_and_whole(tmp_path: Path) -> None:
    """keeps: TE-05, E-06, E-27, K-43. Content-addressed, never truncated; 50 MB reads back identical."""
    core = DirectStore(tmp_path / "space.db")
    large: dict[str, object] = {"text": "ab\0ü" * (10 * 2**20)}
    core.log.append(
        [build(1, "tool.ran", large), build(2, "tool.ran", large), build(3, "tool.ran", {"x": "y" * 6_000})]
    )
    assert core.files.sizes().payloads == 2
    event = core.log.get(build(2).id)
    assert event is not None
    assert event.data == large
    assert core.files.verify() == []
    core.close()


def test_an_event_cannot_be_changed_even_by_sql(tmp_path: Path) -> None:
    """keeps: B-12, B-35. Refused by the database as well as by the code."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1)])
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        connection.execute("UPDATE events SET data = '{}'")
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        connection.execute("DELETE FROM events")
    connection.close()


def _append_many(path: Path, writer: str, rounds: int, size: int) -> None:
    core = DirectStore(path)
    for start in range(0, rounds * size, size):
        batch = [build(start + n, "mark", {"text": f"{writer} {n}"}, writer=writer_named(writer)) for n in range(size)]
        core.log.append(batch)
    core.close()


def test_eight_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    """keeps: U-03, TE-08. They also all create the file at once."""
    path = tmp_path / "space.db"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_append_many, args=(path, f"w{n}", 10, 20)) for n in range(8)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    assert [process.exitcode for process in workers] == [0] * 8

    core = DirectStore(path)
    assert core.files.sizes().events == 8 * 10 * 20
    assert core.files.verify() == []
    core.close()


KILLED = """
import sys
from pathlib import Path
from tests.store.sqlite.direct_store import DirectStore
from mica.testing import build
core = DirectStore(Path(sys.argv[1]))
number = 0
while True:
    core.log.append([build(number + n, "mark", {"text": f"mark {number + n}"}) for n in range(10)])
    number += 10
    print(number, flush=True)
"""


def killed(script: str, path: Path, *, after: int) -> int:
    """Run a script that prints how many events it has stored, kill it after `after` lines; returns the last number."""
    process = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    printed += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    return int(printed[-1])


@pytest.mark.parametrize("after", [1, 7, 30])
def test_acknowledged_events_survive_a_kill(tmp_path: Path, after: int) -> None:
    """keeps: TE-07. Acknowledged means stored, log and index agree after the crash."""
    path = tmp_path / "space.db"

    acknowledged = killed(KILLED, path, after=after)

    core = DirectStore(path)
    positions = [event.data["text"] for event in core.log.query(EventQuery(limit=None))]
    assert positions[:acknowledged] == [f"mark {n}" for n in range(acknowledged)]
    assert len(positions) % 10 == 0
    assert core.files.verify() == []
    core.close()


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


@pytest.mark.parametrize(
    ("read", "index"),
    [
        (lambda core: core.beliefs.query(BeliefQuery()), "beliefs_by_state (state=? AND kind=? AND last_at>?)"),
        (
            lambda core: core.beliefs.query(BeliefQuery(kinds=("rule",), states=("held", "settled"), since=START_AT)),
            "beliefs_by_state (state=? AND kind=? AND last_at>?)",
        ),
        (
            lambda core: core.beliefs.query(BeliefQuery(session="s1", kinds=("rule",), states=("held",))),
            "beliefs_by_session (session=?)",
        ),
        (
            lambda core: core.beliefs.query(BeliefQuery(ids=(BeliefId("b"),), kinds=("rule",), states=("held",))),
            "sqlite_autoindex_beliefs_1 (id=?)",
        ),
        (
            lambda core: core.beliefs.query(BeliefQuery(evidence=(build(1).id,), kinds=("rule",), states=("held",))),
            "belief_evidence_by_event (event=?)",
        ),
        (lambda core: core.beliefs.related(["main", "push"]), "belief_keys_by_key (key=?)"),
        (
            lambda core: core.beliefs.save([build_belief("b", "main")], core.beliefs.learned_up_to(), after=0),
            "PRIMARY KEY (belief=?)",
        ),
    ],
)
def test_beliefs_are_found_by_an_index_and_never_sorted_as_a_whole(
    tmp_path: Path, read: Callable[[DirectStore], object], index: str
) -> None:
    """By kind and state, session, id, evidence and key. Only beliefs found by an index are sorted."""
    core = DirectStore(tmp_path / "space.db")

    plans = [plan for text, plan in plans_of(core, read) if "FROM belief" in text and "belief_lessons" not in text]

    assert any(index in step for plan in plans for step in plan)
    assert not [step for plan in plans for step in plan if step.startswith("SCAN belief")]
    by_range = [plan for plan in plans if any("beliefs_by_state" in step or "_by_key" in step for step in plan)]
    assert not [step for plan in by_range for step in plan if "TEMP B-TREE" in step]
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
    monkeypatch.setattr(sqlite_log, "MANY_CONTEXTS", 2)
    monkeypatch.setattr(sqlite_log, "RECENT_ROWS", recent)
    assert [await store.log.query(query) for query in queries] == plain
    await store.close()
