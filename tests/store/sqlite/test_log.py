"""The log in an SQLite file: payloads, triggers, several processes, and kills."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.model.event import EventQuery, writer_named
from mica.testing import build


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
