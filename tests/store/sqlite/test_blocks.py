"""Blocks of aged events in the file of the SQLite store: nothing is lost, and readers see no difference."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.store.sqlite.direct_store import DirectStore
from tests.store.sqlite.test_log import killed

from mica.errors import DuplicateEvent, StoreError, StoreFull
from mica.model.event import Appended, Context, Event, EventQuery, sequence_named, writer_named
from mica.store.protocol import BLOCK_EVENTS
from mica.store.sqlite.blocks import STEP_BYTES_MAX
from mica.store.sqlite.purges import restore_rows
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import START_AT

LATER = START_AT + timedelta(days=2)


def talk(count: int, *, first: int = 1) -> list[Event]:
    """Events of four sessions in turn, each below the one before it in its session; some have text."""
    events: list[Event] = []
    for number in range(first, first + count):
        context = Context(session=f"s{number % 4}", agent=f"agent-{number % 3}")
        parent = events[-4] if len(events) >= 8 else None
        name = ("mark", "tool.ran", "file.read")[number % 3]
        events.append(build(number, name, {"text": f"word{number % 7} {number}"}, parent=parent, context=context))
    return events


def aged(core: DirectStore, *, limit: int = 8_192) -> int:
    total = 0
    while count := core.files.age(LATER, limit=limit):
        total += count
    return total


def whole(core: DirectStore) -> list[Event]:
    events: list[Event] = core.log.read(0, limit=1_000_000)
    return events


def restored(core: DirectStore, positions: Iterable[int]) -> int:
    """Turn these events into rows again, as a purge does."""
    with core.core.writing():
        return restore_rows(core.core, positions)


def test_aged_events_leave_their_rows_and_are_found_everywhere(tmp_path: Path) -> None:
    """keeps: TE-14, TE-20. `sizes` reports how many events have aged."""
    core = DirectStore(tmp_path / "space.db")
    events = talk(3_000)
    core.log.append(events)
    before = whole(core)

    assert aged(core, limit=1_500) == 3_000

    sizes = core.files.sizes()
    assert (sizes.events, sizes.aged, sizes.blocks) == (3_000, 3_000, 2)
    assert list(core.connection.execute("SELECT count(*) FROM events")) == [(0,)]
    assert whole(core) == before
    assert [core.log.get(event.id) for event in events[::97]] == before[::97]
    assert core.log.append(events) == Appended(repeated=3_000)
    assert core.files.verify() == []
    core.close()


def test_the_latest_events_of_equal_time_are_found_across_blocks(tmp_path: Path) -> None:
    """Events of equal time are ordered by position, also across blocks and rows."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(n, after_s=7, context=Context(session=f"s{n % 3}")) for n in range(1, 31)])
    core.files.age(LATER, limit=10)
    core.files.age(LATER, limit=10)
    for limit in (1, 5, 10, 15, 25):
        found = core.log.query(EventQuery(limit=limit))
        assert [event.position for event in found] == list(range(31 - limit, 31))
    restored(core, range(1, 11))
    core.files.age(LATER, limit=10)  # the first events are now in the last block
    for limit in (1, 5, 10, 15, 25):
        found = core.log.query(EventQuery(limit=limit))
        assert [event.position for event in found] == list(range(31 - limit, 31))
    core.close()


def test_events_younger_than_the_cut_stay_rows(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(20))
    assert core.files.age(START_AT + timedelta(seconds=11)) == 10
    assert core.files.age(START_AT + timedelta(seconds=11)) == 0
    assert [row[0] for row in core.connection.execute("SELECT position FROM events")] == list(range(11, 21))
    core.close()


def test_a_few_large_events_fill_an_ageing_step(tmp_path: Path) -> None:
    """A step that is full in bytes is done, however few events it has."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(n, data={"text": "x" * 100_000, "n": n}) for n in range(1, 101)])
    filling = -(-STEP_BYTES_MAX // 100_000)
    assert core.files.age(LATER, at_least=BLOCK_EVENTS) == filling
    assert core.files.age(LATER, at_least=BLOCK_EVENTS) == 0
    assert core.files.age(LATER) == 100 - filling
    core.close()


def test_an_event_whose_parent_is_unknown_waits_for_it(tmp_path: Path) -> None:
    """Descendants of an unknown id are found; they age after their parent has arrived."""
    core = DirectStore(tmp_path / "space.db")
    root = build(1)
    child, leaf = build(2, parent=root), build(3, parent=build(2, parent=root))
    core.log.append([child, leaf, build(4)])
    assert aged(core) == 2
    assert [event.id for event in core.chains.descendants(root.id)] == [child.id, leaf.id]

    core.log.append([root])

    assert aged(core) == 2
    assert [event.id for event in core.chains.descendants(root.id)] == [child.id, leaf.id]
    assert core.files.verify() == []
    core.close()


def test_ids_that_are_hashes_are_found(tmp_path: Path) -> None:
    """The sequences of an importer are hashes of names, so none are consecutive."""
    core = DirectStore(tmp_path / "space.db")
    events = [build(sequence_named(str(n)), data={"n": n}, after_s=n) for n in range(300)]
    core.log.append(events)
    assert aged(core, limit=100) == 300
    assert [core.log.get(event.id) for event in events] == whole(core)
    assert core.log.append([*events, build(7)]) == Appended(stored=1, repeated=300)
    core.close()


def test_large_payloads_go_into_blocks_unless_they_are_shared(tmp_path: Path) -> None:
    """keeps: E-27, K-43, TE-05. They are read back unchanged."""
    core = DirectStore(tmp_path / "space.db")
    texts = ["shared " * 2_000, "alone " * 2_000, "shared " * 2_000, "huge " * 100_000]
    core.log.append([build(n, "tool.ran", {"text": text}) for n, text in enumerate(texts)])
    assert core.files.sizes().payloads == 3

    assert core.files.age(START_AT + timedelta(seconds=2)) == 2
    assert aged(core) == 2

    assert [event.data["text"] for event in whole(core)] == texts
    assert core.files.sizes().payloads == 3
    assert list(core.connection.execute("SELECT count(*) FROM payloads")) == [(2,)]
    assert core.files.verify() == []
    core.close()


def test_the_file_shrinks(tmp_path: Path) -> None:
    """keeps: TE-06, E-03. Pages that ageing frees are released, and the write-ahead log is emptied."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(6_000))
    before = core.files.sizes().size_bytes
    aged(core)
    core.close()
    after = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert after < before / 2


def test_triggers_protect_blocks(tmp_path: Path) -> None:
    """Triggers allow only authorised work, and the authority ends with the transaction."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(20))
    aged(core, limit=10)
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    assert connection.execute("SELECT count(*) FROM authority").fetchone() == (0,)
    for statement in (
        "DELETE FROM blocks",
        "UPDATE blocks SET events = 1",
        "DELETE FROM chapters",
        "UPDATE chapters SET places = x''",
        "DELETE FROM runs",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


def test_aged_events_become_rows_again_before_they_change(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append([*talk(400), build(900, "tool.ran", {"text": "large " * 2_000})])
    before = whole(core)
    aged(core, limit=100)

    assert restored(core, [5, 6, 401, 999]) == 3

    assert core.files.sizes().aged == 398
    assert whole(core) == before
    assert core.files.verify() == []
    assert restored(core, range(1, 101)) == 98
    assert core.files.sizes().aged == 300
    assert whole(core) == before
    assert aged(core) == 101
    assert whole(core) == before
    assert core.log.append(talk(400)) == Appended(repeated=400)
    assert core.files.verify() == []
    core.close()


# -- Damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE blocks SET bodies = substr(bodies, 1, 60) WHERE id = 1", "block 1 cannot be read"),
        ("UPDATE blocks SET header = zeroblob(50) WHERE id = 2", "block 2 cannot be read"),
        ("UPDATE blocks SET events = 9 WHERE id = 1", "block 1 does not match its row"),
        ("DELETE FROM block_names WHERE block = 2", "do not match block 2"),
        ("DELETE FROM block_sessions WHERE block = 1", "do not match block 1"),
        ("DELETE FROM block_roots", "do not match block"),
        ("DELETE FROM runs", "do not match block 1"),
        ("DELETE FROM chapters", "do not match block 1"),
        ("INSERT INTO block_contexts (context, block) VALUES (1, 99)", "block_contexts refers to missing blocks"),
        ("DELETE FROM blocks WHERE id = 2", "positions 11 to 20 are missing"),
    ],
)
def test_verify_reports_damaged_blocks(tmp_path: Path, damage: str, message: str) -> None:
    """keeps: TE-14. Rebuild repairs derived tables."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(30))
    before = whole(core)
    aged(core, limit=10)
    for trigger in ("blocks_are_immutable", "blocks_are_kept", "chapters_are_kept", "runs_are_kept"):
        core.connection.execute(f"DROP TRIGGER {trigger}")
    core.connection.execute(damage)
    core.core.blocks.forget()

    problems = core.files.verify()

    assert [problem for problem in problems if message in problem], problems
    if any("rebuild" in problem for problem in problems):
        core.files.rebuild()
        assert core.files.verify() == []
        assert whole(core) == before
    core.close()


def test_a_damaged_block_is_an_error_not_an_empty_answer(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(30))
    aged(core)
    core.connection.execute("DROP TRIGGER blocks_are_immutable")
    core.connection.execute("UPDATE blocks SET bodies = substr(bodies, 1, 60)")
    core.core.blocks.forget()
    with pytest.raises(StoreError, match="damaged"):
        core.log.query(EventQuery())
    core.close()


def test_a_full_disk_while_ageing_loses_nothing(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(n, data={"text": os.urandom(1_000).hex()}) for n in range(200)])
    before = whole(core)
    core.connection.pragma("max_page_count", core.connection.pragma("page_count"))

    with pytest.raises(StoreFull, match="no space left"):
        core.files.age(LATER)

    assert whole(core) == before
    assert core.files.sizes().aged == 0
    core.connection.pragma("max_page_count", 2**30)
    assert aged(core) == 200
    assert core.files.verify() == []
    core.close()


KILLED_AT_A_STATEMENT = """
import os, shutil, signal, sys
from datetime import timedelta
from pathlib import Path
from mica.store.sqlite.purges import restore_rows
from tests.store.sqlite.direct_store import DirectStore
from mica.testing.builders import START_AT
path = Path(sys.argv[1])
core = DirectStore(path); before = core.log.read(0, limit=1_000); core.close()
killed = 0
while True:
    copy = path.with_name(f"copy-{killed}.db")
    shutil.copy(path, copy)
    child = os.fork()
    if not child:
        core = DirectStore(copy)
        left = [killed]
        def trace(*_):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        core.connection.exec_trace = trace
        while core.files.age(START_AT + timedelta(days=1), limit=20):
            pass
        os._exit(0)
    _, status = os.waitpid(child, 0)
    core = DirectStore(copy)
    assert core.log.read(0, limit=1_000) == before, f"another log after statement {killed}"
    assert core.files.verify() == [], f"broken after statement {killed}"
    core.close()
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.WEXITSTATUS(status))
"""


def test_a_kill_at_any_statement_of_ageing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """keeps: TE-07, TE-20. By fault injection at each step."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append(talk(40))
    core.close()
    command = [sys.executable, "-c", KILLED_AT_A_STATEMENT, str(tmp_path / "space.db")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    killed, status = map(int, result.stdout.split())
    assert (killed > 30, status) == (True, 0)


KILLED_SOMEWHERE = """
import sys
from datetime import timedelta
from pathlib import Path
from mica.store.sqlite.purges import restore_rows
from tests.store.sqlite.direct_store import DirectStore
from mica.testing import build
from mica.testing.builders import START_AT
core = DirectStore(Path(sys.argv[1]))
number = core.files.sizes().events
while True:
    core.log.append([build(number + n, "mark", {"text": f"mark {number + n}"}) for n in range(50)])
    number += 50
    print(number, flush=True)
    core.files.age(START_AT + timedelta(days=9), limit=70)
"""


def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    """keeps: TE-07. Acknowledged events are stored exactly once, aged or not."""
    path = tmp_path / "space.db"
    for _ in range(6):
        acknowledged = killed(KILLED_SOMEWHERE, path, after=random.randint(1, 12))

        core = DirectStore(path)
        found = [event.data["text"] for event in whole(core)]
        assert len(found) >= acknowledged
        assert found == [f"mark {n}" for n in range(len(found))]
        assert core.files.verify() == []
        core.close()


# -- Concurrency --------------------------------------------------------------------------------------------


def _age_all(path: Path) -> None:
    core = DirectStore(path)
    aged(core, limit=50)
    core.close()


def test_several_processes_age_at_once(tmp_path: Path) -> None:
    """Transactions prevent conflicts, and a reader sees every event exactly once."""
    path = tmp_path / "space.db"
    core = DirectStore(path)
    core.log.append(talk(1_000))
    before = whole(core)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_age_all, args=(path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        assert whole(core) == before
        assert len(core.log.query(EventQuery(session="s1", limit=None))) == 250
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 3
    assert core.files.sizes().aged == 1_000
    assert core.files.verify() == []
    core.close()


def test_caches_are_right_after_another_process_has_aged_events(tmp_path: Path) -> None:
    one, two = DirectStore(tmp_path / "space.db"), DirectStore(tmp_path / "space.db")
    events = talk(60)
    one.log.append(events)
    two.files.age(LATER, limit=30)
    first = whole(one)
    two.files.age(LATER, limit=30)
    restored(two, [3])
    assert whole(one) == first
    assert one.log.append([*events, build(500, parent=events[-1])]) == Appended(stored=1, repeated=60)
    assert one.files.verify() == []
    one.close()
    two.close()


async def test_reads_and_the_event_loop_run_while_events_age(tmp_path: Path) -> None:
    """keeps: TE-11. Ageing uses another thread and connection, and both are closed."""
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append(talk(4_000))
    working = asyncio.create_task(store.files.age(LATER))
    reads = 0
    while not working.done():
        assert (await store.log.at(7)) is not None
        reads += 1
    assert reads > 3
    assert await working == 4_000
    await store.close()


async def test_closing_waits_for_a_running_ageing_step(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append(talk(2_000))
    working = asyncio.create_task(store.files.age(LATER))
    await asyncio.sleep(0)
    working.cancel()
    await store.close()
    with pytest.raises(asyncio.CancelledError):
        await working
    core = DirectStore(tmp_path / "space.db")
    assert core.files.sizes().aged in {0, 2_000}
    assert core.files.verify() == []
    core.close()


# -- Repeated events ------------------------------------------------------------------------------------------------


def test_aged_and_new_events_of_one_writer_are_recognised_as_repeated(tmp_path: Path) -> None:
    """Some of the events are in blocks, others are rows."""
    core = DirectStore(tmp_path / "space.db")
    other = writer_named("other")
    events = [build(n, writer=other, after_s=n if n % 2 else 100_000 * n) for n in range(1, 50)]
    core.log.append(events)
    core.files.age(START_AT + timedelta(seconds=60))
    assert core.log.append(events) == Appended(repeated=49)
    changed = msgspec.structs.replace(events[6], body=b'{"n":1}')
    with pytest.raises(DuplicateEvent):
        core.log.append([changed])
    core.close()
