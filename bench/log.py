"""What does the log cost in time and bytes, and does it survive kills without loss?

    python bench/log.py
    python bench/log.py --quick                         # smaller, says what was scaled down
    python bench/log.py --large                         # also queries ten million events
    python bench/log.py --large --only growth           # nothing else: some ten minutes, and 4 GB of disk

Seven questions about one seeded stream (`_events.py`), each beside its rivals in the same run: what `emit` costs, what
sustained emitting costs with repeated `durable()` calls, how many bytes all files take, how long
one call takes in bursts, whether `kill -9` loses or doubles anything, how soon the next process reads the events of a
killed one, and whether queries slow down as the log grows. The input must be durable and returned by a query, or the
run ends with an error. A number below its bar is still printed. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import compileall
import gc
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from operator import ge, le
from pathlib import Path
from typing import NamedTuple, TypeVar

import mica
from _events import LASTING, SCOPE_EVENTS, SEED, Embedded, Fresh, Scope, embedded, library, record, scopes, stream
from _rivals import NAIVE, RIVALS, by_json, contexts_of, count_of, lines_bytes
from _table import Cost, argument_parser, check, finish, machine, measure, median, percentile, show, spread, uncounted

T = TypeVar("T")

BELOW = "below the bar"


class Bar(NamedTuple):
    """The required and the desired value of a number."""

    least: float
    goal: float
    holds: Callable[[float, float], bool] = ge


BARS = {
    "emit_vs_jsonl": Bar(10, 16),
    "sustained_vs_jsonl": Bar(5, 7),
    "bytes_vs_embedded": Bar(0.15, 0.09, le),
    "transcript_vs_raw": Bar(0.30, 0.15, le),
    "emit_p999_us": Bar(100, 20, le),
    "lost_acked": Bar(0, 0, le),
    "doubled": Bar(0, 0, le),
    "reopen_1m_cpu_s": Bar(1, 0.35, le),
    "growth": Bar(1.5, 1.25, le),
}


class Plan(NamedTuple):
    """How large a run is: counts of rounds, events and queries."""

    rounds: int
    emit_events: int  # in a round
    sustained_rounds: int
    sustained_s: float  # in a round
    bytes_events: int
    text_events: int
    transcript_mb: float
    burst_s: float  # in a round
    kill_rounds: int  # three kills each
    reopen_events: int
    small_events: int  # of the smaller space whose queries are compared
    grown_events: int  # of the larger
    queries: int  # of each kind


FULL = Plan(
    rounds=5,
    emit_events=30_000,
    sustained_rounds=5,
    sustained_s=10,
    bytes_events=131_072,
    text_events=131_072,
    transcript_mb=40,
    burst_s=4,
    kill_rounds=67,
    reopen_events=1_000_000,
    small_events=100_000,
    grown_events=1_000_000,
    queries=200,
)
# What limits a quick run is storing: some 350,000 events in all, each counted in a query.
QUICK = Plan(
    rounds=5,  # of a few ms each: with three, one neighbour decides the median
    emit_events=4_000,
    sustained_rounds=3,  # all that they emit is stored, too: fewer, so that each is long enough to be even
    sustained_s=0.25,
    bytes_events=12_288,
    text_events=4_096,
    transcript_mb=20,
    burst_s=0.2,
    kill_rounds=4,
    reopen_events=400_000,
    small_events=10_000,
    grown_events=100_000,
    queries=60,
)
LARGE_EVENTS = 10_000_000

Numbers = dict[str, float | int]


# -- Spaces ---------------------------------------------------------------------------------------------------


def opened(path: Path) -> mica.memory.Opening:
    """Open a space, independent of the settings of this machine, as a context."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return mica.open(path, settings=mica.Settings(home=path.parent, transcripts=path.parent))


async def count_stored(memory: mica.Memory) -> int:
    """Count the events, by the store's count and by querying all of them; both must agree."""
    found = await memory.events.query(mica.EventQuery(limit=None))
    counted = (await memory.upkeep.sizes()).events
    check(len({event.id for event in found}) == len(found) == counted, f"{counted} stored, {len(found)} queryable")
    return counted


async def timed(awaitable: Awaitable[T]) -> tuple[T, Cost]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = await awaitable
    return result, Cost(time.perf_counter() - wall, time.process_time() - cpu)


def files_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def empty_bytes(folder: Path) -> int:
    """Create an empty space, and return its size in bytes."""
    async with opened(folder / "space.db") as memory:
        check((await memory.upkeep.sizes()).events == 0, "a new space is empty")
    return files_bytes(folder)


# -- Emit, beside its rivals ----------------------------------------------------------------------------------


EMIT = "mica: emit"  # in the context of a block, each event below its parent, as in the naive log
NO_PARENT = "mica: emit, no parent"
PREPARED = "mica: emit, a prepared context every 8"
BLOCKS = "mica: emit, a context block every 8"
STORED = "mica: emit until stored"


def emit_plainly(memory: mica.Memory, stretch: Iterable[Scope], *, has_parents: bool) -> None:
    """Emit the stream in the current context."""
    emit = memory.emit
    last: dict[int, mica.Ref] = {}
    for scope in stretch:
        parent = last.get(scope.chain) if has_parents else None
        ref: mica.Ref | None = None
        for name, data in scope.steps:
            ref = emit(name, data, parent=parent)
        if ref is not None:
            last[scope.chain] = ref


def emit_prepared(memory: mica.Memory, stretch: Iterable[Scope]) -> None:
    """Emit the stream with a new, prepared context for every scope."""
    emit = memory.emit
    last: dict[int, mica.Ref] = {}
    for scope in stretch:
        with uncounted():
            context = scope.context
        parent = last.get(scope.chain)
        ref: mica.Ref | None = None
        for name, data in scope.steps:
            ref = emit(name, data, context=context, parent=parent)
        if ref is not None:
            last[scope.chain] = ref


def emit_blocks(memory: mica.Memory, stretch: Iterable[Scope], last: dict[int, mica.Ref], *, lap: int = 0) -> None:
    """Emit the stream with a new context block for every scope. Each lap has chains of its own."""
    emit = memory.emit
    for scope in stretch:
        ref: mica.Ref | None = None
        with memory.context(
            session=scope.session,
            agent=scope.agent,
            user=scope.user,
            correlation=f"{scope.correlation}{lap:x}",
            parent=last.get(scope.chain),
            client=scope.client,
            orchestration=scope.orchestration,
            environment="production",
        ):
            for name, data in scope.steps:
                ref = emit(name, data)
        if ref is not None:
            last[scope.chain] = ref


async def run_mica(stretch: Sequence[Scope], folder: Path, first: int) -> dict[str, Cost]:
    """Measure one round of mica: each way of emitting, then storing. The first way also pays for small segments."""
    async with opened(folder / "space.db") as memory:
        ways: list[tuple[str, Callable[[], None]]] = [
            (EMIT, partial(emit_plainly, memory, stretch, has_parents=True)),
            (NO_PARENT, partial(emit_plainly, memory, stretch, has_parents=False)),
            (PREPARED, partial(emit_prepared, memory, stretch)),
            (BLOCKS, partial(emit_blocks, memory, stretch, {})),
        ]
        costs: dict[str, Cost] = {}
        with memory.context(session="bench", agent="bench", task="emitting"):
            for name, way in ways[first:] + ways[:first]:
                gc.collect()
                _, costs[name] = measure(way)  # the loop does not run meanwhile: nothing is folded
        await memory.durable()
        _, fold = await timed(memory.events.position())
        share = Cost(fold.wall_s / len(ways), fold.cpu_s / len(ways))
        costs[STORED] = Cost(costs[EMIT].wall_s + share.wall_s, costs[EMIT].cpu_s + share.cpu_s)
        found, expected = await count_stored(memory), len(ways) * count_of(stretch)
        check(found == expected, f"{expected} events were emitted, {found} are stored")
    return costs


def compare_emit(plan: Plan, scratch: Path) -> Numbers:
    stretch = Fresh(stream(plan.emit_events))
    events = count_of(stretch)
    gc.collect()
    gc.freeze()  # the stream itself is no rival's cost
    costs: dict[str, list[Cost]] = {}
    sizes: dict[str, int] = {}
    for number in range(plan.rounds):
        for rival in RIVALS:
            if rival.is_installed:
                gc.collect()
                cost, sizes[rival.name] = rival.run(stretch, scratch / f"rival-{number}")
                costs.setdefault(rival.name, []).append(cost)
                for path in scratch.glob("rival-*"):
                    path.unlink()
        folder = scratch / f"emit-{number}"
        for name, cost in asyncio.run(run_mica(stretch, folder, number % 4)).items():
            costs.setdefault(name, []).append(cost)
        shutil.rmtree(folder)
    gc.unfreeze()

    def times(name: str) -> list[float]:
        return [naive.cpu_s / cost.cpu_s for naive, cost in zip(costs[NAIVE], costs[name], strict=True)]

    rows = []
    for name in (*(rival.name for rival in RIVALS), EMIT, NO_PARENT, PREPARED, BLOCKS, STORED):
        if name not in costs:
            rival = next(rival for rival in RIVALS if rival.name == name)
            rows.append((name, "not installed (pip install --group bench)", "", "", "", ""))
            continue
        cpu = [cost.cpu_s / events * 1e6 for cost in costs[name]]
        wall = [cost.wall_s / events * 1e6 for cost in costs[name]]
        share = median([cost.cpu_s / cost.wall_s for cost in costs[name]])
        size = f"{sizes[name] / events:,.0f}" if sizes.get(name) else ""
        rows.append((name, spread(cpu), spread(wall), f"{share:.2f}", size, f"{median(times(name)):.2f}"))
    columns = ("", "CPU µs/event (min – median)", "wall µs/event", "cores", "B/event", "× naive, CPU")
    show(f"emit: {plan.rounds} rounds in turn, {events:,} events each", columns, rows)
    return {
        "emit_vs_jsonl": median(times(EMIT)),
        "emit_us": median([cost.cpu_s for cost in costs[EMIT]]) / events * 1e6,
        "emit_blocks_vs_jsonl": median(times(BLOCKS)),
        "stored_vs_jsonl": median(times(STORED)),
    }


# -- Sustained ------------------------------------------------------------------------------------------------

YIELD_SCOPES = 32  # 256 events; then the loop may do something else


class Sustained(NamedTuple):
    events: int
    cost: Cost
    syncs: int = 0
    stored: Cost = Cost(0, 0)  # until all events could be queried


async def sustain_jsonl(stretch: Sequence[Scope], path: Path, seconds: float) -> Sustained:
    wall, cpu = time.perf_counter(), time.process_time()
    events = lap = 0
    last: dict[int, Embedded] = {}
    with path.open("wb") as file:
        while time.perf_counter() - wall < seconds:
            for scope in _part(stretch, events):
                context: Embedded = {}
                above = last.get(scope.chain)
                fresh = scope if above else scope._replace(correlation=f"{scope.correlation}{lap:x}")
                for step in scope.steps:
                    context = embedded(fresh, above)
                    file.write(by_json(record(step, context)) + b"\n")
                    file.flush()
                last[scope.chain] = context
            events += YIELD_SCOPES * SCOPE_EVENTS
            lap = _lap(stretch, events, last, lap)
            await asyncio.sleep(0)
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    return Sustained(events, cost)


async def sustain_mica(stretch: Sequence[Scope], path: Path, seconds: float) -> Sustained:
    events = lap = syncs = 0
    last: dict[int, mica.Ref] = {}

    async def keep_syncing() -> None:
        nonlocal syncs
        while True:
            await memory.durable()
            syncs += 1

    async with opened(path) as memory:
        wall, cpu = time.perf_counter(), time.process_time()
        syncing = asyncio.create_task(keep_syncing())
        while time.perf_counter() - wall < seconds:
            emit_blocks(memory, _part(stretch, events), last, lap=lap)
            events += YIELD_SCOPES * SCOPE_EVENTS
            lap = _lap(stretch, events, last, lap)
            await asyncio.sleep(0)
        syncing.cancel()
        await asyncio.wait([syncing])
        await memory.durable()
        cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        await memory.events.position()
        whole = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        found = (await memory.upkeep.sizes()).events
        check(found == events, f"{events} events were emitted and durable, {found} are stored")
    return Sustained(events, cost, syncs, whole)


def _part(stretch: Sequence[Scope], events: int) -> Sequence[Scope]:
    start = events // SCOPE_EVENTS % len(stretch)
    return stretch[start : start + YIELD_SCOPES]


def _lap(stretch: Sequence[Scope], events: int, last: dict[int, T], lap: int) -> int:
    if events % count_of(stretch):
        return lap
    last.clear()  # another lap has other chains
    return lap + 1


def compare_sustained(plan: Plan, scratch: Path) -> Numbers:
    stretch = stream(YIELD_SCOPES * SCOPE_EVENTS * 8, live=20)  # small: an application's events are in the cache, too
    gc.collect()
    gc.freeze()
    naive: list[Sustained] = []
    ours: list[Sustained] = []
    for number in range(plan.sustained_rounds):
        folder = scratch / f"sustained-{number}"
        folder.mkdir()
        gc.collect()
        naive.append(asyncio.run(sustain_jsonl(stretch, folder / "naive.jsonl", plan.sustained_s)))
        lines_bytes(folder / "naive.jsonl", naive[-1].events)
        gc.collect()
        ours.append(asyncio.run(sustain_mica(stretch, folder / "space.db", plan.sustained_s)))
        shutil.rmtree(folder)
    gc.unfreeze()
    pairs = list(zip(naive, ours, strict=True))
    cpu_ratios = [(n.cost.cpu_s / n.events) / (o.cost.cpu_s / o.events) for n, o in pairs]
    wall_ratios = [(n.cost.wall_s / n.events) / (o.cost.wall_s / o.events) for n, o in pairs]
    stored_ratios = [(n.cost.cpu_s / n.events) / (o.stored.cpu_s / o.events) for n, o in pairs]

    def row(name: str, costs: Sequence[tuple[Cost, int]], syncs: str, ratios: tuple[str, str]) -> tuple[str, ...]:
        cpu = [cost.cpu_s / events * 1e6 for cost, events in costs]
        rate = [events / cost.wall_s for cost, events in costs]
        share = median([cost.cpu_s / cost.wall_s for cost, _ in costs])
        return (name, spread(cpu), spread(rate, digits=0), f"{share:.2f}", syncs, *ratios)

    rows = [
        row("naive JSONL, flush only", [(each.cost, each.events) for each in naive], "", ("1", "1")),
        row(
            "mica: emit, durable() without end",
            [(each.cost, each.events) for each in ours],
            f"{median([each.syncs / each.cost.wall_s for each in ours]):,.0f}",
            (f"{median(cpu_ratios):.2f}", f"{median(wall_ratios):.2f}"),
        ),
        row(
            "mica: … until all is stored",
            [(each.stored, each.events) for each in ours],
            "",
            (f"{median(stored_ratios):.2f}", ""),
        ),
    ]
    columns = ("", "CPU µs/event (min – median)", "events/s", "cores", "syncs/s", "× CPU", "× wall")
    rounds = f"{plan.sustained_rounds} rounds of {plan.sustained_s:g} s in turn"
    title = f"sustained: {rounds}, a new context every {SCOPE_EVENTS} events"
    show(title, columns, rows)
    print("  CPU of all threads, with what the background folds meanwhile; the naive log has no fdatasync")
    return {
        "sustained_vs_jsonl": median(cpu_ratios),
        "sustained_wall_vs_jsonl": median(wall_ratios),
        "sustained_stored_vs_jsonl": median(stored_ratios),
        "sustained_events_s": median([each.events / each.cost.wall_s for each in ours]),
    }


# -- Bytes ----------------------------------------------------------------------------------------------------

COLD = timedelta(days=3)  # old enough to be aged before it is measured


async def fill(path: Path, stretch: Sequence[Scope]) -> int:
    """Fill a space with the stream, three days old and 40 ms apart. Returns the size of the same as a naive log."""
    last: dict[int, mica.Ref] = {}
    at = datetime.now(UTC) - COLD
    async with opened(path) as memory:
        for scope in stretch:
            context, parent = scope.context, last.get(scope.chain)
            for name, data in scope.steps:
                at += timedelta(milliseconds=40)
                last[scope.chain] = memory.emit(name, data, context=context, parent=parent, at=at)
        await memory.durable()
        found = await count_stored(memory)
        check(found == count_of(stretch), f"{count_of(stretch)} events were emitted, {found} are stored")
        aged = await memory.upkeep.age()
        check(aged == found == await count_stored(memory), f"{found} events are stored, {aged} aged")
        check(not await memory.upkeep.verify(), "`verify` finds nothing")
    return sum(
        len(by_json(record(scope.steps[number], context))) + 1 for scope, number, context in contexts_of(stretch)
    )


def compare_bytes(plan: Plan, scratch: Path) -> Numbers:
    empty = asyncio.run(empty_bytes(scratch / "empty"))
    rows = []
    ratios = []
    for name, field, events in (
        ("without full text", "note", plan.bytes_events),
        ("every event's text indexed", "text", plan.text_events),
    ):
        stretch = stream(events, field=field)
        folder = scratch / f"bytes-{field}"
        raw = asyncio.run(fill(folder / "space.db", stretch))
        size = files_bytes(folder) - empty
        shutil.rmtree(folder)
        count = count_of(stretch)
        ratios.append(size / raw)
        rows.append((name, f"{count:,}", f"{raw / count:,.0f}", f"{size / count:,.0f}", f"{size / raw:.3f}"))
    columns = ("", "events", "B/event, embedded JSONL", "B/event, all files", "ratio")
    show(f"bytes: all files after closing, an empty space's {empty:,} subtracted", columns, rows)
    return {"bytes_vs_embedded": ratios[0], "bytes_with_text_vs_embedded": ratios[1]}


async def fill_transcripts(path: Path, lines: Sequence[tuple[str, bytes]]) -> None:
    """Fill a space with one event for each record of the transcripts, with the record's time."""
    at = datetime(2026, 9, 1, tzinfo=UTC)
    contexts: dict[str, mica.Context] = {}
    async with opened(path) as memory:
        for session, line in lines:
            data = json.loads(line)
            if "timestamp" in data:
                at = datetime.fromisoformat(data["timestamp"])
            context = contexts.setdefault(session, mica.Context(session=session, agent=data.get("agentId")))
            memory.emit(f"transcript.{data['type']}", data, context=context, at=at, origin="imported")
        await memory.durable()
        aged = await memory.upkeep.age()
        check(aged == len(lines), f"{len(lines)} records are stored, {aged} aged")
        found = [
            event.data for event in sorted(await memory.events.query(mica.EventQuery(limit=None)), key=lambda e: e.id)
        ]
        check((await memory.upkeep.sizes()).events == len(lines), f"{len(lines)} records are stored")
        check(found == [json.loads(line) for _, line in lines], "every record comes back as it was")


def compare_transcripts(plan: Plan, scratch: Path) -> Numbers:
    source = importlib.import_module("import")  # bench/import.py, whose name is a keyword
    corpus = source.Corpus(
        scratch / "corpus", [source.read_recording(p) for p in sorted(source.RECORDINGS.rglob("*.jsonl"))]
    )
    corpus.grow(int(plan.transcript_mb * 1e6))
    lines = [(path.stem, line) for path in corpus.files for line in path.read_bytes().splitlines(keepends=True)]
    raw = sum(len(line) for _, line in lines)
    empty = asyncio.run(empty_bytes(scratch / "empty-too"))
    asyncio.run(fill_transcripts(scratch / "transcripts" / "space.db", lines))
    size = files_bytes(scratch / "transcripts") - empty
    shutil.rmtree(scratch / "transcripts")
    large = sum(len(line) for _, line in lines if len(line) > 5_120)
    row = f"{len(lines):,}", f"{raw / 1e6:.1f}", f"{large / raw:.0%}", f"{size / 1e6:.1f}", f"{size / raw:.3f}"
    columns = ("", "events", "MB raw", "of it in records over 5 kB", "MB, all files", "ratio")
    show("transcripts: one event for each record", columns, [("records as events", *row)])
    return {"transcript_vs_raw": size / raw, "transcript_mb": raw / 1e6}


# -- Bursts ---------------------------------------------------------------------------------------------------

BURST_EVENTS, BURST_S = 100, 0.002
SYNC_S = 0.01

Call = Callable[[str, dict[str, object], mica.Context, mica.Ref | None], mica.Ref | None]


async def bursts(call: Call, stretch: Sequence[tuple[Scope, mica.Context]], seconds: float) -> tuple[array[int], float]:
    """Call in bursts. Returns the nanoseconds of every call, and the actual number of calls per second."""
    taken = array("q")
    clock = time.perf_counter_ns
    steps = ((step, context) for scope, context in stretch for step in scope.steps)
    began = due = time.perf_counter()
    parent: mica.Ref | None = None
    ref: mica.Ref | None = None
    for _ in range(round(seconds / BURST_S)):
        for _ in range(BURST_EVENTS):
            (name, data), context = next(steps)
            start = clock()
            ref = call(name, data, context, parent)
            taken.append(clock() - start)
        parent = ref
        due += BURST_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return taken, len(taken) / (time.perf_counter() - began)


async def run_bursts(stretch: Sequence[Scope], path: Path, seconds: float) -> dict[str, tuple[array[int], float]]:
    async def keep_syncing() -> None:
        while True:
            await memory.durable()
            await asyncio.sleep(SYNC_S)

    def nothing(name: str, data: dict[str, object], context: mica.Context, parent: mica.Ref | None) -> None:
        pass

    prepared = [(scope, scope.context) for scope in stretch]
    async with opened(path) as memory:
        emit = memory.emit
        control = await bursts(nothing, prepared, seconds)
        syncing = asyncio.create_task(keep_syncing())
        ours = await bursts(
            lambda name, data, context, parent: emit(name, data, context=context, parent=parent), prepared, seconds
        )
        syncing.cancel()
        await asyncio.wait([syncing])
        await memory.durable()
        await memory.events.query(mica.EventQuery(limit=1))
        found = (await memory.upkeep.sizes()).events
        check(found == len(ours[0]), f"{len(ours[0])} events were emitted in bursts, {found} are stored")
    return {"no-op call (control)": control, "mica: emit": ours}


def compare_bursts(plan: Plan, scratch: Path) -> Numbers:
    stretch = stream(round(plan.burst_s / BURST_S) * BURST_EVENTS + SCOPE_EVENTS)
    gc.collect()
    gc.freeze()
    shares = 0.5, 0.99, 0.999, 1.0
    found: dict[str, list[list[float]]] = {}
    rates: dict[str, list[float]] = {}
    for number in range(plan.rounds):
        folder = scratch / f"bursts-{number}"
        for name, (taken, rate) in asyncio.run(run_bursts(stretch, folder / "space.db", plan.burst_s)).items():
            found.setdefault(name, []).append([percentile(taken, share) / 1e3 for share in shares])
            rates.setdefault(name, []).append(rate)
        shutil.rmtree(folder)
    gc.unfreeze()
    middle = {name: [median(values) for values in zip(*rounds, strict=True)] for name, rounds in found.items()}
    rows = [(name, *(f"{v:,.1f}" for v in values), f"{median(rates[name]):,.0f}") for name, values in middle.items()]
    title = (
        f"bursts of {BURST_EVENTS} every {BURST_S * 1e3:g} ms, medians of {plan.rounds} rounds of {plan.burst_s:g} s"
    )
    show(title, ("wall µs of one call", "p50", "p99", "p99.9", "max", "calls/s"), rows)
    control, ours = middle.values()
    return {
        "emit_p50_us": ours[0],
        "emit_p99_us": ours[1],
        "emit_p999_us": ours[2],
        "control_p999_us": control[2],
        "burst_calls_s": median(rates["mica: emit"]),
    }


# -- Kills ----------------------------------------------------------------------------------------------------

OURS = "transcript.read", "log.purged"  # what mica itself records
ACK = struct.Struct("<q")
BUSY, OPENED = -1, 0  # sent before the first event: the fold or import begins, and it is done
CHAIN_EVENTS = 8


def event_of(writer: int, number: int) -> tuple[str, dict[str, object]]:
    """Return the name and data of a writer's event: the same in the emitting child and in the checking process."""
    seal = blake2b(f"{writer}:{number}".encode(), digest_size=8).digest()
    size = 6_000 if number % 97 == 0 else seal[0] * 3  # now and then one that is stored beside the row
    start = int.from_bytes(seal[1:4]) % 1_000_000
    data = {"writer": writer, "number": number, "seal": seal.hex(), "padding": library()[start : start + size]}
    return f"kill.{number % 7}", data


def context_of(writer: int, number: int) -> mica.Context:
    return mica.Context(session=f"writer {writer}", agent=str(writer), correlation=f"{writer}-{number // CHAIN_EVENTS}")


def write_until_killed(path: Path, writer: int, acks: Connection, kind: str, files: Sequence[Path]) -> None:
    asyncio.run(_write_until_killed(path, writer, acks.fileno(), kind, files))


async def _write_until_killed(path: Path, writer: int, acks: int, kind: str, files: Sequence[Path]) -> None:
    """Emit, and acknowledge every block by pipe when `emit` has returned; `kind` selects the concurrent work."""
    chance = random.Random(writer)
    number = 0
    ref: mica.Ref | None = None
    async with opened(path) as memory:
        if kind in ("fold", "import"):
            os.write(acks, ACK.pack(BUSY))
        if kind == "import":
            await memory.clients.import_transcripts(files)
        if kind == "fold":
            await memory.events.position()
        os.write(acks, ACK.pack(OPENED))
        task: asyncio.Task[None] | None = None
        if kind == "age":
            task = asyncio.create_task(keep_ageing(memory))
        elif kind == "purge":
            task = asyncio.create_task(keep_purging(memory, writer))
        while True:
            check(task is None or not task.done(), f"{kind} continues")
            for _ in range(chance.randint(1, 120)):
                number += 1
                name, data = event_of(writer, number)
                parent = ref if number % CHAIN_EVENTS else None
                ref = memory.emit(name, data, context=context_of(writer, number), parent=parent)
            if kind == "durable" and chance.random() < 0.2:
                await memory.durable()
            os.write(acks, ACK.pack(number))
            if kind == "tight":
                time.sleep(chance.random() / 100)  # noqa: ASYNC251 - the loop must not run: nothing is folded
            else:
                await asyncio.sleep(chance.random() / 100)


async def keep_ageing(memory: mica.Memory) -> None:
    """Compress stored events continuously."""
    while True:
        await memory.upkeep.age(timedelta(0))
        await asyncio.sleep(0.001)


async def keep_purging(memory: mica.Memory, writer: int) -> None:
    """Emit and purge events continuously; every other time after ageing."""
    for number in itertools.count():
        session = f"doomed {writer} {number}"
        for _ in range(20):
            memory.emit("doomed", {"text": session, "padding": "x" * 6_000}, context=mica.Context(session=session))
        if number % 2:
            await memory.upkeep.age(timedelta(0))
        purged = await memory.purge(session=session, reason="bench")
        check(purged.events == 20, f"20 events are purged, {purged.events} were")


class Child(NamedTuple):
    writer: int
    process: BaseProcess
    acks: Connection

    def first(self) -> None:
        """Wait for the first acknowledgement."""
        check(self.acks.poll(30), f"writer {self.writer} begins")

    def kill(self) -> int:
        """Kill it now; returns the last acknowledged number, or BUSY if it did not emit yet."""
        self.process.kill()
        self.process.join()
        check(self.process.exitcode == -9, f"writer {self.writer} is killed, it ended with {self.process.exitcode}")
        received = b""
        while part := os.read(self.acks.fileno(), 2**16):
            received += part
        self.acks.close()
        whole = len(received) // ACK.size * ACK.size
        return max(int(number) for (number,) in ACK.iter_unpack(received[:whole]))


class Killed(NamedTuple):
    """Counts over some kills."""

    kills: int = 0
    busy: int = 0  # of them, while the process folded or imported what it had found
    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0
    segments: int = 0  # that were left for the next process
    reopen_s: float = 0.0


def kill_round(number: int, path: Path, files: Sequence[Path], imported: int) -> Killed:
    """Kill two writers, and a third that reopens the space while the second still writes. Counts the damage."""
    chance = random.Random(SEED + number)
    server = multiprocessing.get_context("forkserver")

    def begin(writer: int, kind: str) -> Child:
        receiver, sender = server.Pipe(duplex=False)
        process = server.Process(target=write_until_killed, args=(path, writer, sender, kind, files))
        process.start()
        sender.close()
        return Child(writer, process, receiver)

    acknowledged: dict[int, int] = {}
    kinds = "tight", "durable", "age", "purge"
    first, second = begin(1, kinds[number % 4]), begin(2, kinds[(number + 3) % 4])
    first.first()
    second.first()
    time.sleep(chance.uniform(0.02, 0.6))
    acknowledged[1] = first.kill()
    third = begin(3, "import" if number % 2 else "fold")
    third.first()
    time.sleep(chance.uniform(0.0, 0.03))  # folding or importing takes about as long
    reached = third.kill()
    acknowledged[3] = max(0, reached)
    time.sleep(chance.uniform(0.0, 0.2))
    acknowledged[2] = second.kill()
    segments = sum(1 for _ in path.parent.rglob("*.segment"))
    wall = time.perf_counter()
    events, missing = asyncio.run(_reopened(path, files if number % 2 else ()))
    check(number % 2 == 0 or missing == imported, f"{imported} events are imported after a kill, {missing} were")
    lost, doubled, found = compare_events(events, acknowledged)
    return Killed(
        3, int(reached == BUSY), sum(acknowledged.values()), found, lost, doubled, segments, time.perf_counter() - wall
    )


async def _reopened(path: Path, files: Sequence[Path]) -> tuple[list[mica.Event], int]:
    """Reopen the space and repeat what was killed. Returns the writers' events, and the number of imported events."""
    async with opened(path) as memory:
        if files:
            await memory.clients.import_transcripts(files)
        before = (await memory.upkeep.sizes()).events
        events = await memory.events.query(mica.EventQuery(limit=None))
        after = (await memory.upkeep.sizes()).events  # due work may have recorded crystals meanwhile
        check(before <= len(events) <= after, "every stored event can be queried")
        for session in {event.context.session for event in events if event.name == "doomed"}:
            await memory.purge(session=session, reason="bench: a purge that was killed is called again")
        check(not await memory.events.query(mica.EventQuery(names=("doomed",), limit=1)), "what is purged is gone")
        check(not await memory.upkeep.verify(), "`verify` finds nothing after a kill")
    ours = [event for event in events if event.name.startswith("kill.")]
    return ours, sum(event.origin != "agent" and event.name not in OURS for event in events)


def compare_events(events: Sequence[mica.Event], acknowledged: dict[int, int]) -> tuple[int, int, int]:
    """Count the lost acknowledged events, the duplicates and the events found. Exits if a stored event is wrong."""
    by_writer: dict[int, dict[int, mica.Event]] = {writer: {} for writer in acknowledged}
    times: Counter[tuple[int, int]] = Counter()
    for event in events:
        data = event.data
        writer, number = int(str(data["writer"])), int(str(data["number"]))
        times[writer, number] += 1
        by_writer[writer][number] = event
        is_right = (event.name, data) == event_of(writer, number) and event.context == context_of(writer, number)
        check(is_right, f"event {number} of writer {writer} is as it was emitted")
    lost = 0
    for writer, found in by_writer.items():
        lost += sum(number not in found for number in range(1, acknowledged[writer] + 1))
        check(len(found) == max(found, default=0) or lost > 0, f"the events of writer {writer} have no hole")
        for number, event in found.items():
            above = found[number - 1] if number % CHAIN_EVENTS and number > 1 and number - 1 in found else None
            check(event.parent_id == (above and above.id), f"event {number} of writer {writer} has its parent")
    return lost, times.total() - len(times), len(times)


def compare_kills(plan: Plan, scratch: Path) -> Numbers:
    source = importlib.import_module("import")
    files = sorted(source.RECORDINGS.rglob("*.jsonl"))
    imported = asyncio.run(_reopened(scratch / "import" / "space.db", files))[1]
    multiprocessing.get_context("forkserver").set_forkserver_preload(["__main__", "mica"])
    parts = []
    for number in range(plan.kill_rounds):
        folder = scratch / f"kill-{number}"
        parts.append(kill_round(number, folder / "space.db", files, imported))
        shutil.rmtree(folder)
    whole = Killed(*(sum(values) for values in zip(*parts, strict=True)))
    rows = [
        ("kill -9, one in three of a process that had just reopened the space", f"{whole.kills:,}"),
        ("of them, before it had folded what was left, or imported", f"{whole.busy:,}"),
        ("events acknowledged by pipe", f"{whole.acknowledged:,}"),
        ("events found, those without acknowledgement too", f"{whole.found:,}"),
        ("segments left for the next process", f"{whole.segments:,}"),
        ("acknowledged events lost", f"{whole.lost:,}"),
        ("events stored twice", f"{whole.doubled:,}"),
        ("events that differ from what was emitted (one ends the run)", "0"),
        ("reopening, checking and comparing, s, median", f"{median([part.reopen_s for part in parts]):.2f}"),
    ]
    show(
        "kills: in emit, a roll, the fold, an import, ageing, a purge (with PostgreSQL: `bench/postgres.py`)",
        ("", "n"),
        rows,
    )
    return {
        "lost_acked": whole.lost,
        "doubled": whole.doubled,
        "kills": whole.kills,
        "kills_busy": whole.busy,
        "kill_events": whole.acknowledged,
    }


# -- Reopening, and growth ------------------------------------------------------------------------------------

LIVE = 10  # sessions at once where queries are compared: also the smaller space then has sessions that have ended


def leave_unfolded(path: Path, events: int, done: Connection) -> None:
    asyncio.run(_leave_unfolded(path, events, done))


async def _leave_unfolded(path: Path, events: int, done: Connection) -> None:
    async with opened(path) as memory:
        last: dict[int, mica.Ref] = {}
        for scope in scopes(events // SCOPE_EVENTS, live=LIVE):
            emit_prepared_scope(memory, scope, last)
        done.send("all emitted")
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()  # the loop must not run: everything waits in segments until the kill


def emit_prepared_scope(memory: mica.Memory, scope: Scope, last: dict[int, mica.Ref]) -> None:
    context, parent = scope.context, last.get(scope.chain)
    for name, data in scope.steps:
        last[scope.chain] = memory.emit(name, data, context=context, parent=parent)


class Reopened(NamedTuple):
    """The output of `_reopen.py`: seconds of a new process, of CPU since its start and of wall time since opening."""

    begun_cpu_s: float
    opened_cpu_s: float
    first_cpu_s: float
    first_wall_s: float
    counted_cpu_s: float
    counted_wall_s: float
    latest: int
    counted: int

    def for_a_million(self, cpu_s: float) -> float:
        """Scale CPU seconds to a million events, except those for starting Python."""
        return self.begun_cpu_s + (cpu_s - self.begun_cpu_s) * 1e6 / self.counted


def in_process(target: Callable[..., None], *args: object) -> tuple[BaseProcess, Connection]:
    """Start a new interpreter that runs the target, and return it with the pipe for its answer."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=target, args=(*args, sender))
    process.start()
    sender.close()
    return process, receiver


def compare_reopening(plan: Plan, path: Path) -> Numbers:
    events = plan.reopen_events // SCOPE_EVENTS * SCOPE_EVENTS
    writer, done = in_process(leave_unfolded, path, events)
    check(bool(done.recv()), "the writer has emitted everything")
    writer.kill()
    writer.join()
    left = files_bytes(path.parent)
    # An installed package has bytecode; in a working copy it may be missing, and switched off.
    compileall.compile_dir(Path(mica.__file__).parent, quiet=2)
    command = [sys.executable, str(Path(__file__).with_name("_reopen.py")), str(path)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found = Reopened(**json.loads(answer))
    check(found.counted == events, f"{events} events were left in segments, {found.counted} are counted")
    check(found.latest == 100, f"the last 100 are asked for, {found.latest} came")
    rows = [
        (name, f"{cpu:.2f}", wall, f"{cpu / events * 1e6:.2f}", f"{found.for_a_million(cpu):.2f}")
        for name, cpu, wall in (
            ("Python started, mica imported", found.begun_cpu_s, ""),
            ("the space is open", found.opened_cpu_s, ""),
            ("the last 100 events are read", found.first_cpu_s, f"{found.first_wall_s:.2f}"),
            ("all of them are counted", found.counted_cpu_s, f"{found.counted_wall_s:.2f}"),
        )
    ]
    columns = ("until", "CPU s", "wall s", "CPU µs/event", "CPU s for 1 M")
    title = f"reopening after kill -9: {events:,} events in segments ({left / 1e6:,.0f} MB with the empty store)"
    show(title, columns, rows)
    return {
        "reopen_1m_cpu_s": found.for_a_million(found.counted_cpu_s),
        "reopen_events": events,
    }


async def grow(path: Path, events: int) -> None:
    """Fill a space with this many events, stored as they are emitted."""
    last: dict[int, mica.Ref] = {}
    async with opened(path) as memory:
        for number, scope in enumerate(scopes(events // SCOPE_EVENTS, live=LIVE), 1):
            emit_prepared_scope(memory, scope, last)
            if number % 25_000 == 0:  # before the journal is full
                await memory.events.position()
        found = await memory.events.position()
        check(found == events, f"{events} events were emitted, {found} are stored")


class Questions(NamedTuple):
    """The queries for a space."""

    by_id: list[mica.Event]
    ranges: list[tuple[datetime, datetime]]


async def questions(memory: mica.Memory, count: int, chance: random.Random) -> Questions:
    whole = (await memory.upkeep.sizes()).events
    by_id: list[mica.Event] = []
    ranges: list[tuple[datetime, datetime]] = []
    for _ in range(count):
        event = await memory.events.get(chance.randint(1, whole))
        while event.context.session == LASTING:
            event = await memory.events.get(chance.randint(1, whole))
        by_id.append(event)
        start = chance.randint(1, whole - 1_000)
        ranges.append(((await memory.events.get(start)).at, (await memory.events.get(start + 1_000)).at))
    return Questions(by_id, ranges)


KINDS = "by id", "last 100 of a session", "a chain", "a range of 1,000", "last 100 of the session that never ends"


async def ask(memory: mica.Memory, kind: str, asked: Questions, number: int) -> int:
    """Run one query of a kind, check the answer, and return its length."""
    event = asked.by_id[number]
    match KINDS.index(kind):
        case 0:
            check(await memory.events.get(event.id) == event, f"event {event.id} is found by its id")
            return 1
        case 1:
            found = await memory.events.query(mica.EventQuery(session=event.context.session, limit=100))
            check({each.context.session for each in found} == {event.context.session}, "events are of the session")
        case 2:
            found = await memory.events.chain(event)
            check(event in found, f"event {event.id} is in its chain")
        case 3:
            since, until = asked.ranges[number]
            found = await memory.events.query(mica.EventQuery(since=since, until=until, limit=None))
            check(990 <= len(found) <= 1_010, f"a range has about 1,000 events, it has {len(found)}")
        case _:
            found = await memory.events.query(mica.EventQuery(session=LASTING, limit=100))
            check(len(found) == 100, "the lasting session has 100 events")
    return len(found)


async def query_costs(paths: Sequence[Path], count: int) -> list[dict[str, list[Cost]]]:
    """Measure each kind of query in each space; the spaces take turns."""
    memories = [await opened(path) for path in paths]
    try:
        asked = [await questions(memory, count, random.Random(SEED)) for memory in memories]
        costs: list[dict[str, list[Cost]]] = [{kind: [] for kind in KINDS} for _ in memories]
        for number in range(count):
            for kind in KINDS:
                for place, memory in enumerate(memories):
                    _, cost = await timed(ask(memory, kind, asked[place], number))
                    costs[place][kind].append(cost)
    finally:
        for memory in memories:
            await memory.close()
    return costs


def compare_growth(plan: Plan, spaces: Sequence[tuple[int, Path]]) -> Numbers:
    """Compare queries of a smaller and a larger space; each has its number of events and its path."""
    costs = asyncio.run(query_costs([path for _, path in spaces], plan.queries))
    rows = []
    ratios: dict[str, float] = {}
    for kind in KINDS:
        cpu = [median([cost.cpu_s for cost in each[kind]]) * 1e6 for each in costs]
        wall = [median([cost.wall_s for cost in each[kind]]) * 1e6 for each in costs]
        ratios[kind] = cpu[-1] / cpu[-2]
        rows.append((kind, *(f"{value:,.0f}" for value in cpu), f"{ratios[kind]:.2f}", f"{wall[-1] / wall[-2]:.2f}"))
    columns = ("p50, CPU µs", *(f"{events:,} events" for events, _ in spaces), "CPU ratio", "wall ratio")
    show(f"growth: {plan.queries} queries of each kind in turn, through the public API", columns, rows)
    return {"growth": max(ratios[kind] for kind in KINDS[:4]), "growth_lasting_session": ratios[KINDS[4]]}


# -- All of it ------------------------------------------------------------------------------------------------


PARTS: dict[str, Callable[[Plan, Path], Numbers]] = {
    "emit": compare_emit,
    "sustained": compare_sustained,
    "bytes": compare_bytes,
    "transcripts": compare_transcripts,
    "bursts": compare_bursts,
    "kills": compare_kills,
}


def main() -> None:
    parser = argument_parser(__doc__, quick="smaller streams, 12 kills")
    parser.add_argument("--large", action="store_true", help="compare queries of 1 M and 10 M events")
    parser.add_argument("--only", choices=[*PARTS, "reopening", "growth"], help="ask this question alone")
    parser.add_argument("--kills", type=int, metavar="N", help="at least so many (default 201, 12 with --quick)")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    if options.kills is not None:
        plan = plan._replace(kill_rounds=max(1, -(-options.kills // 3)))

    began = time.perf_counter()
    print(f"{machine()}; seed {SEED}")
    if options.quick:
        print(
            f"scaled down: {plan.rounds} rounds, of {plan.emit_events:,} events, of {plan.sustained_s:g} s sustained, "
            f"{plan.kill_rounds * 3} kills, {plan.reopen_events:,} events left by a killed writer "
            f"(reopen_1m_cpu_s is that × {1e6 / plan.reopen_events:g}, without the start of Python), growth "
            f"{plan.small_events:,} → {plan.grown_events:,}"
        )
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as folder:
        scratch = Path(folder)
        for name, part in PARTS.items():
            if options.only in (None, name):
                numbers |= part(plan, scratch)
        if options.only in (None, "reopening"):
            numbers |= compare_reopening(plan, scratch / "reopened" / "space.db")
            shutil.rmtree(scratch / "reopened")
        if options.only in (None, "growth"):
            sizes = (FULL.grown_events, LARGE_EVENTS) if options.large else (plan.small_events, plan.grown_events)
            spaces = [(events, scratch / f"grown-{events}" / "space.db") for events in sizes]
            for events, path in spaces:
                asyncio.run(grow(path, events))
            numbers |= compare_growth(plan, spaces)
    report(numbers, time.perf_counter() - began)


def report(numbers: Numbers, seconds: float) -> None:
    rows = []
    for name, bar in BARS.items():
        if (value := numbers.get(name)) is None:
            continue
        sign = "≥" if bar.holds is ge else "≤"
        verdict = "reaches the goal" if bar.holds(value, bar.goal) else "reaches the bar"
        if not bar.holds(value, bar.least):
            verdict = BELOW
        rows.append((name, f"{value:,.3g}", f"{sign} {bar.least:g}", f"{sign} {bar.goal:g}", verdict))
    show(f"bars, after {seconds:.0f} s", ("", "value", "bar", "goal", ""), rows)
    finish(numbers)
    check(
        not numbers.get("lost_acked") and not numbers.get("doubled"),
        "no acknowledged event is lost, none is stored twice",
    )


if __name__ == "__main__":
    main()
