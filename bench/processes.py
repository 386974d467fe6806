"""Do eight processes that append to one space block each other?

    python bench/processes.py

Eight processes open the same new space and append for 30 s, one event and one `durable()` at a time. The rival does
the same in the same run with the standard library's sqlite3, its default journal and timeout, one
commit for each event. Afterwards every event must be stored once. The last line of the output is
one JSON object.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import mica
from _table import argument_parser, check, finish, machine, percentile, show
from mica.errors import StoreBusy

WRITERS = 8
MARK_EVERY = 10  # every tenth event is a mark, whose text is indexed; that is a busy agent's share
SCHEMA = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY, writer INTEGER, number INTEGER, name TEXT, at TEXT, session TEXT, data TEXT
);
CREATE INDEX events_by_session ON events (session, at);
"""


class Report(NamedTuple):
    """What one process wrote, how long it took, and how often a lock stopped it."""

    wanted: int = 0  # events that must be stored
    lock_errors: int = 0
    seconds: float = 0.0
    waits_s: tuple[float, ...] = ()  # one for each event, until it was on disk


class Slice(NamedTuple):
    """The results of all processes, and the stored events afterwards."""

    reports: list[Report]
    found: Counter[tuple[int, int]]  # writer and number, and how often they are stored

    @property
    def lost(self) -> int:
        return sum(report.wanted for report in self.reports) - len(self.found)

    @property
    def doubled(self) -> int:
        return self.found.total() - len(self.found)

    @property
    def lock_errors(self) -> int:
        return sum(report.lock_errors for report in self.reports)

    @property
    def seconds(self) -> float:
        return max(report.seconds for report in self.reports)

    @property
    def waits_s(self) -> list[float]:
        return [wait for report in self.reports for wait in report.waits_s]


Writer = Callable[[Path, int, Barrier, float], Report]


# -- mica -----------------------------------------------------------------------------------------------------


def write_events(path: Path, writer: int, start: Barrier, seconds: float) -> Report:
    return asyncio.run(_write_events(path, writer, start, seconds))


async def _write_events(path: Path, writer: int, start: Barrier, seconds: float) -> Report:
    lock_errors = number = 0
    waits: list[float] = []
    settings = mica.Settings(home=path.parent, transcripts=path.parent)
    async with mica.open(path, settings=settings) as memory:
        with memory.context(session=f"writer {writer}", agent=str(writer), task="appending"):
            start.wait()  # nothing else runs on this loop yet
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                number += 1
                started = time.perf_counter()
                if number % MARK_EVERY:
                    memory.emit("file.read", {"path": f"src/part{number % 97}.py", "number": number, "writer": writer})
                else:
                    memory.mark(f"Writer {writer} saw that part {number % 97} of the shop is slow", tags=(str(number),))
                try:
                    await memory.durable()
                except StoreBusy:
                    lock_errors += 1  # the event still waits in this process and goes with the next
                waits.append(time.perf_counter() - started)
            seconds = time.perf_counter() - began
    return Report(number, lock_errors, seconds, tuple(waits))


async def stored_events(path: Path) -> Counter[tuple[int, int]]:
    settings = mica.Settings(home=path.parent, transcripts=path.parent)
    async with mica.open(path, settings=settings) as memory:
        events = await memory.events.query(mica.EventQuery(limit=None))
        check((await memory.upkeep.sizes()).events == len(events), "every stored event can be queried")
        problems = await memory.upkeep.verify()
    check(not problems, f"`verify` finds nothing: {problems[:1]}")
    found: Counter[tuple[int, int]] = Counter()
    for event in events:
        tags = event.data.get("tags")
        number = tags[0] if isinstance(tags, list) else event.data["number"]
        found[int(event.context.agent or 0), int(str(number))] += 1
    return found


# -- The rival ------------------------------------------------------------------------------------------------


def write_rows(path: Path, writer: int, start: Barrier, seconds: float) -> Report:
    lock_errors = number = 0
    waits: list[float] = []
    connection = sqlite3.connect(path)
    statement = "INSERT INTO events (writer, number, name, at, session, data) VALUES (?, ?, ?, datetime('now'), ?, ?)"
    start.wait()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        number += 1
        data = f'{{"path": "src/part{number % 97}.py", "number": {number}}}'
        started = time.perf_counter()
        try:
            connection.execute(statement, (writer, number, "file.read", f"writer {writer}", data))
            connection.commit()
        except sqlite3.OperationalError as error:
            check("locked" in str(error), f"the rival fails for locks only: {error}")
            connection.rollback()
            lock_errors += 1
        waits.append(time.perf_counter() - started)
    connection.close()
    return Report(number, lock_errors, time.perf_counter() - began, tuple(waits))


def stored_rows(path: Path) -> Counter[tuple[int, int]]:
    connection = sqlite3.connect(path)
    found = Counter(
        (int(writer), int(number)) for writer, number in connection.execute("SELECT writer, number FROM events")
    )
    connection.close()
    return found


# -- Both -----------------------------------------------------------------------------------------------------


def together(writer: Writer, path: Path, seconds: float) -> list[Report]:
    """Run the writer in eight new processes that start at the same moment."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(WRITERS)
    queue = spawn.Queue()
    processes = [
        spawn.Process(
            target=_send,
            args=(queue, writer),
            kwargs={"path": path, "number": number, "start": start, "seconds": seconds},
        )
        for number in range(WRITERS)
    ]
    for process in processes:
        process.start()
    reports = [queue.get(timeout=seconds + 120) for _ in processes]
    for process in processes:
        process.join()
    check(all(process.exitcode == 0 for process in processes), "every process ends well")
    return reports


def _send(
    queue: multiprocessing.Queue[Report], writer: Writer, *, path: Path, number: int, start: Barrier, seconds: float
) -> None:
    try:
        queue.put(writer(path, number, start, seconds))
    except BaseException:
        start.abort()  # the others must not wait for this one
        queue.put(Report())
        raise


def run_mica(path: Path, seconds: float) -> Slice:
    reports = together(write_events, path, seconds)
    return Slice(reports, asyncio.run(stored_events(path)))


def run_rival(path: Path, seconds: float) -> Slice:
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.close()
    reports = together(write_rows, path, seconds)
    return Slice(reports, stored_rows(path))


def main() -> None:
    parser = argument_parser(__doc__, quick="10 s in place of 30")
    quick = parser.parse_args().quick

    with tempfile.TemporaryDirectory(prefix="mica-bench-") as folder:
        scratch = Path(folder)
        # The rival before and after, so that a machine that gets busier does not decide. A slice must be longer
        # than the rival's timeout of 5 s, or its errors would not show.
        before = None if quick else run_rival(scratch / "before.db", 15)
        ours = run_mica(scratch / "space.db", 10 if quick else 30)
        after = run_rival(scratch / "after.db", 10 if quick else 15)
        rivals = [part for part in (before, after) if part is not None]
        report(ours, rivals)


def report(ours: Slice, rivals: list[Slice]) -> None:
    rate = len(ours.found) / ours.seconds
    rival_rate = sum(len(rival.found) for rival in rivals) / sum(rival.seconds for rival in rivals)
    rows = [_row("mica", ours), *(_row("sqlite3, a commit each", rival) for rival in rivals)]
    print(f"{machine()}; {WRITERS} processes, one file")
    columns = ("", "s", "events/s", "lock errors", "lost", "doubled", "p50 ms", "p99 ms", "max ms")
    show("one event and one wait for the disk at a time", columns, rows)
    finish(
        {
            "lock_errors": ours.lock_errors,
            "lost": ours.lost,
            "doubled": ours.doubled,
            "events_s": rate,
            "rival_lock_errors": sum(rival.lock_errors for rival in rivals),
            "rival_events_s": rival_rate,
            "ratio": rate / rival_rate,
            "seconds": ours.seconds,
            "durable_p50_ms": percentile(ours.waits_s, 0.5) * 1_000,
            "durable_p99_ms": percentile(ours.waits_s, 0.99) * 1_000,
        }
    )
    check(
        ours.lost == ours.doubled == ours.lock_errors == 0, "no event is lost or doubled, and no lock gets in the way"
    )


def _row(name: str, part: Slice) -> tuple[str, ...]:
    waits = [percentile(part.waits_s, share) * 1_000 for share in (0.5, 0.99, 1)]
    return (
        name,
        f"{part.seconds:.1f}",
        f"{len(part.found) / part.seconds:,.0f}",
        f"{part.lock_errors:,}",
        f"{part.lost:,}",
        f"{part.doubled:,}",
        *(f"{wait:,.1f}" for wait in waits),
    )


if __name__ == "__main__":
    main()
