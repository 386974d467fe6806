"""What only the SQLite store does when events age: blocks in its file; and when a process ages by itself."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.store.sqlite.test_store import killed

from mica.errors import DuplicateEvent, StoreError, StoreFull
from mica.model.event import Appended, Context, Event, EventQuery, sequence_named, writer_named
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite import block_format as blocks
from mica.store.sqlite.blocks import STEP_BYTES_MAX
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.store import SqliteStore
from mica.testing import HandClock, build
from mica.testing.builders import START_AT
from mica.upkeep import ageing
from mica.upkeep.ageing import Ageing

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


def aged(core: SqliteCore, *, limit: int = 8_192) -> int:
    total = 0
    while count := core.age(LATER, limit=limit):
        total += count
    return total


def whole(core: SqliteCore) -> list[Event]:
    return core.log(0, limit=1_000_000)


def thawed(core: SqliteCore, positions: Iterable[int]) -> int:
    """Make these rows again, as a purge does."""
    with core._writing():
        return core._thaw(positions)


def test_aged_events_leave_their_rows_and_are_found_everywhere(tmp_path: Path) -> None:
    """TE-14, TE-20: one log; `sizes` tells how much of it has aged."""
    core = SqliteCore(tmp_path / "space.db")
    events = talk(3_000)
    core.append(events)
    before = whole(core)

    assert aged(core, limit=1_500) == 3_000

    sizes = core.sizes()
    assert (sizes.events, sizes.aged, sizes.blocks) == (3_000, 3_000, 2)
    assert list(core._connection.execute("SELECT count(*) FROM events")) == [(0,)]
    assert whole(core) == before
    assert [core.event(event.id) for event in events[::97]] == before[::97]
    assert core.append(events) == Appended(repeated=3_000)
    assert core.verify() == []
    core.close()


def test_the_latest_of_one_moment_are_found_in_whichever_block_they_are(tmp_path: Path) -> None:
    """Equal times are told apart by position, also between blocks and rows."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(n, after_s=7, context=Context(session=f"s{n % 3}")) for n in range(1, 31)])
    core.age(LATER, limit=10)
    core.age(LATER, limit=10)
    for limit in (1, 5, 10, 15, 25):
        found = core.events(EventQuery(limit=limit))
        assert [event.position for event in found] == list(range(31 - limit, 31))
    thawed(core, range(1, 11))
    core.age(LATER, limit=10)  # the first events are now in the last block
    for limit in (1, 5, 10, 15, 25):
        found = core.events(EventQuery(limit=limit))
        assert [event.position for event in found] == list(range(31 - limit, 31))
    core.close()


def test_events_younger_than_the_cut_stay_rows(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(20))
    assert core.age(START_AT + timedelta(seconds=11)) == 10
    assert core.age(START_AT + timedelta(seconds=11)) == 0
    assert [row[0] for row in core._connection.execute("SELECT position FROM events")] == list(range(11, 21))
    core.close()


def test_fewer_large_events_are_enough(tmp_path: Path) -> None:
    """TE-20: a step that is full in bytes is done, however few events are in it."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(n, data={"text": "x" * 100_000, "n": n}) for n in range(1, 101)])
    filling = -(-STEP_BYTES_MAX // 100_000)
    assert core.age(LATER, at_least=blocks.BLOCK_EVENTS) == filling
    assert core.age(LATER, at_least=blocks.BLOCK_EVENTS) == 0
    assert core.age(LATER) == 100 - filling
    core.close()


def test_an_event_whose_parent_is_unknown_waits_for_it(tmp_path: Path) -> None:
    """What descends from an unknown id is found; it ages when its parent has come."""
    core = SqliteCore(tmp_path / "space.db")
    root = build(1)
    child, leaf = build(2, parent=root), build(3, parent=build(2, parent=root))
    core.append([child, leaf, build(4)])
    assert aged(core) == 2
    assert [event.id for event in core.descendants(root.id)] == [child.id, leaf.id]

    core.append([root])

    assert aged(core) == 2
    assert [event.id for event in core.descendants(root.id)] == [child.id, leaf.id]
    assert core.verify() == []
    core.close()


def test_ids_that_are_hashes_are_found(tmp_path: Path) -> None:
    """An importer's sequences are hashes of names: no two follow each other."""
    core = SqliteCore(tmp_path / "space.db")
    events = [build(sequence_named(str(n)), data={"n": n}, after_s=n) for n in range(300)]
    core.append(events)
    assert aged(core, limit=100) == 300
    assert [core.event(event.id) for event in events] == whole(core)
    assert core.append([*events, build(7)]) == Appended(stored=1, repeated=300)
    core.close()


def test_large_payloads_go_into_blocks_unless_they_are_shared(tmp_path: Path) -> None:
    """E-27, K-43, TE-05: whole, whatever form they take."""
    core = SqliteCore(tmp_path / "space.db")
    texts = ["shared " * 2_000, "alone " * 2_000, "shared " * 2_000, "huge " * 100_000]
    core.append([build(n, "tool.ran", {"text": text}) for n, text in enumerate(texts)])
    assert core.sizes().payloads == 3

    assert core.age(START_AT + timedelta(seconds=2)) == 2
    assert aged(core) == 2

    assert [event.data["text"] for event in whole(core)] == texts
    assert core.sizes().payloads == 3
    assert list(core._connection.execute("SELECT count(*) FROM payloads")) == [(2,)]
    assert core.verify() == []
    core.close()


def test_the_file_shrinks(tmp_path: Path) -> None:
    """TE-06, E-03: pages that ageing frees are given back, the log is brought into the file."""
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(6_000))
    before = core.sizes().size_bytes
    aged(core)
    core.close()
    after = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert after < before / 2


def test_blocks_are_kept_by_the_database(tmp_path: Path) -> None:
    """B-12: nothing but recorded work passes the triggers, and its record ends with it."""
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(20))
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


def test_aged_events_become_rows_again_for_what_must_change_them(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append([*talk(400), build(900, "tool.ran", {"text": "large " * 2_000})])
    before = whole(core)
    aged(core, limit=100)

    assert thawed(core, [5, 6, 401, 999]) == 3

    assert core.sizes().aged == 398
    assert whole(core) == before
    assert core.verify() == []
    assert thawed(core, range(1, 101)) == 98
    assert core.sizes().aged == 300
    assert whole(core) == before
    assert aged(core) == 101
    assert whole(core) == before
    assert core.append(talk(400)) == Appended(repeated=400)
    assert core.verify() == []
    core.close()


# -- Damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE blocks SET bodies = substr(bodies, 1, 60) WHERE id = 1", "block 1 cannot be read"),
        ("UPDATE blocks SET header = zeroblob(50) WHERE id = 2", "block 2 cannot be read"),
        ("UPDATE blocks SET events = 9 WHERE id = 1", "block 1 does not hold what is said of it"),
        ("DELETE FROM block_names WHERE block = 2", "leads to block 2"),
        ("DELETE FROM block_sessions WHERE block = 1", "leads to block 1"),
        ("DELETE FROM block_roots", "leads to block"),
        ("DELETE FROM runs", "leads to block 1"),
        ("DELETE FROM chapters", "leads to block 1"),
        ("INSERT INTO block_contexts (context, block) VALUES (1, 99)", "block_contexts leads to blocks that are not"),
        ("DELETE FROM blocks WHERE id = 2", "positions 11 to 20 are gone"),
    ],
)
def test_verify_names_what_is_wrong_with_blocks(tmp_path: Path, damage: str, said: str) -> None:
    """TE-14: and rebuild mends what can be derived."""
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(30))
    before = whole(core)
    aged(core, limit=10)
    for trigger in ("blocks_are_immutable", "blocks_are_kept", "chapters_are_kept", "runs_are_kept"):
        core._connection.execute(f"DROP TRIGGER {trigger}")
    core._connection.execute(damage)
    core._blocks.forget()

    problems = core.verify()

    assert [problem for problem in problems if said in problem], problems
    if any("rebuild" in problem for problem in problems):
        core.rebuild()
        assert core.verify() == []
        assert whole(core) == before
    core.close()


def test_a_damaged_block_is_an_error_not_an_empty_answer(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(30))
    aged(core)
    core._connection.execute("DROP TRIGGER blocks_are_immutable")
    core._connection.execute("UPDATE blocks SET bodies = substr(bodies, 1, 60)")
    core._blocks.forget()
    with pytest.raises(StoreError, match="damaged"):
        core.events(EventQuery())
    core.close()


def test_a_full_disk_while_ageing_loses_nothing(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(n, data={"text": os.urandom(1_000).hex()}) for n in range(200)])
    before = whole(core)
    core._connection.pragma("max_page_count", core._connection.pragma("page_count"))

    with pytest.raises(StoreFull, match="no space left"):
        core.age(LATER)

    assert whole(core) == before
    assert core.sizes().aged == 0
    core._connection.pragma("max_page_count", 2**30)
    assert aged(core) == 200
    assert core.verify() == []
    core.close()


KILLED_AT_A_STATEMENT = """
import os, shutil, signal, sys
from datetime import timedelta
from pathlib import Path
from mica.store.sqlite.core import SqliteCore
from mica.testing.builders import START_AT
path = Path(sys.argv[1])
core = SqliteCore(path); before = core.log(0, limit=1_000); core.close()
killed = 0
while True:
    copy = path.with_name(f"copy-{killed}.db")
    shutil.copy(path, copy)
    child = os.fork()
    if not child:
        core = SqliteCore(copy)
        left = [killed]
        def trace(*_):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        core._connection.exec_trace = trace
        while core.age(START_AT + timedelta(days=1), limit=20):
            pass
        os._exit(0)
    _, status = os.waitpid(child, 0)
    core = SqliteCore(copy)
    assert core.log(0, limit=1_000) == before, f"another log after statement {killed}"
    assert core.verify() == [], f"broken after statement {killed}"
    core.close()
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.WEXITSTATUS(status))
"""


def test_a_kill_at_any_statement_of_ageing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """TE-07, TE-20: by fault injection at each step."""
    core = SqliteCore(tmp_path / "space.db")
    core.append(talk(40))
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
from mica.store.sqlite.core import SqliteCore
from mica.testing import build
from mica.testing.builders import START_AT
core = SqliteCore(Path(sys.argv[1]))
number = core.sizes().events
while True:
    core.append([build(number + n, "mark", {"text": f"mark {number + n}"}) for n in range(50)])
    number += 50
    print(number, flush=True)
    core.age(START_AT + timedelta(days=9), limit=70)
"""


def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    """TE-07: what was acknowledged is there once, aged or not."""
    path = tmp_path / "space.db"
    for _ in range(6):
        acknowledged = killed(KILLED_SOMEWHERE, path, after=random.randint(1, 12))

        core = SqliteCore(path)
        found = [event.data["text"] for event in whole(core)]
        assert len(found) >= acknowledged
        assert found == [f"mark {n}" for n in range(len(found))]
        assert core.verify() == []
        core.close()


# -- Several at once ------------------------------------------------------------------------------------------


def _age_all(path: Path) -> None:
    core = SqliteCore(path)
    aged(core, limit=50)
    core.close()


def test_several_processes_age_at_once(tmp_path: Path) -> None:
    """The transaction decides who ages what; a reader meanwhile sees every event once."""
    path = tmp_path / "space.db"
    core = SqliteCore(path)
    core.append(talk(1_000))
    before = whole(core)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_age_all, args=(path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        assert whole(core) == before
        assert len(core.events(EventQuery(session="s1", limit=None))) == 250
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 3
    assert core.sizes().aged == 1_000
    assert core.verify() == []
    core.close()


def test_what_one_process_remembers_is_right_after_another_has_aged(tmp_path: Path) -> None:
    one, two = SqliteCore(tmp_path / "space.db"), SqliteCore(tmp_path / "space.db")
    events = talk(60)
    one.append(events)
    two.age(LATER, limit=30)
    first = whole(one)
    two.age(LATER, limit=30)
    thawed(two, [3])
    assert whole(one) == first
    assert one.append([*events, build(500, parent=events[-1])]) == Appended(stored=1, repeated=60)
    assert one.verify() == []
    one.close()
    two.close()


async def test_reads_and_the_event_loop_go_on_while_events_age(tmp_path: Path) -> None:
    """TE-11: ageing has a thread and a connection of its own, and none is left behind."""
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.append(talk(4_000))
    working = asyncio.create_task(store.age(LATER))
    reads = 0
    while not working.done():
        assert (await store.event_at(7)) is not None
        reads += 1
    assert reads > 3
    assert await working == 4_000
    await store.close()


async def test_closing_waits_for_a_step_that_has_begun(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.append(talk(2_000))
    working = asyncio.create_task(store.age(LATER))
    await asyncio.sleep(0)
    working.cancel()
    await store.close()
    with pytest.raises(asyncio.CancelledError):
        await working
    core = SqliteCore(tmp_path / "space.db")
    assert core.sizes().aged in {0, 2_000}
    assert core.verify() == []
    core.close()


# -- By itself ------------------------------------------------------------------------------------------------


class Counting(EphemeralStore):
    """A store that counts how often it is asked to age."""

    def __init__(self, due: int) -> None:
        super().__init__()
        self.due = due
        self.asked = 0
        self.before: datetime | None = None

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        self.asked += 1
        self.before = before
        done, self.due = min(self.due, limit), max(0, self.due - limit)
        return done if done >= at_least else 0


async def test_a_process_ages_by_itself_when_it_is_quiet() -> None:
    """E-03: hot for a day; once an hour, never while something is being stored."""
    store, clock = Counting(due=20_000), HandClock()
    slept: list[float] = []
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        asleep.set()
        await awake.wait()
        awake.clear()

    async def turn() -> None:
        asleep.clear()
        awake.set()
        await asleep.wait()

    background = Ageing(store, now=clock, sleep=sleep)
    await asleep.wait()
    background.disturb()
    await turn()
    assert store.asked == 0
    await turn()
    assert (store.asked, store.due) == (4, 0)
    assert store.before == clock() - timedelta(hours=24)
    assert slept == [ageing.QUIET_S, ageing.QUIET_S, ageing.EVERY_S]
    await background.close()


def test_the_hot_part_is_a_day() -> None:
    """E-03"""
    assert timedelta(hours=24) == ageing.HOT
    assert blocks.BLOCK_EVENTS <= 8_192


def test_a_writer_that_begins_again_after_ageing_meets_its_events(tmp_path: Path) -> None:
    """Known by id in blocks and in rows at once."""
    core = SqliteCore(tmp_path / "space.db")
    other = writer_named("other")
    events = [build(n, writer=other, after_s=n if n % 2 else 100_000 * n) for n in range(1, 50)]
    core.append(events)
    core.age(START_AT + timedelta(seconds=60))
    assert core.append(events) == Appended(repeated=49)
    changed = msgspec.structs.replace(events[6], body=b'{"n":1}')
    with pytest.raises(DuplicateEvent):
        core.append([changed])
    core.close()
