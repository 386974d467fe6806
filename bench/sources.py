"""What does a declared source cost compared with querying by hand, and does a bad source delay others?

    python bench/sources.py

Six real sources with 54 fragments for each concept: two tables of a PostgreSQL, one of SQLite, a JSON file, a file of
lines and a live object. By hand means typical application code: asyncpg in a read-only transaction,
sqlite3 and files in threads, files read when they changed; it returns rows, and maps, limits and cancels nothing.
Then: how long the event loop is blocked while a document of 1 MB is read, how long a query of a million rows takes to
be cut off, and how many queries are left on the server when calls are cancelled. The last line of the output is
one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

import mica
from _sources import FACETS, Plain, Six, six_sources
from _table import argument_parser, check, finish, machine, median, percentile, show
from mica.sources.protocol import Concept, Question

BLOCK = 20  # questions in turn, ours and by hand, so that a busy moment meets both
CANCELLED = 50
LAG_EVERY_S = 0.001
DOCUMENT_BYTES = 950_000  # just below the default limit of a JSON source
ODD = """
[sources.million]
driver = "postgres"
dsn_env = "BENCH_DSN"
query = "SELECT i AS key, i AS value FROM generate_series(1, 1000000) AS i"

[sources.sleeping]
driver = "postgres"
dsn_env = "BENCH_DSN"
query = "SELECT pg_sleep(600)::text AS key"
timeout_s = 60

[sources.large]
driver = "json"
path = "large.json"
where = { id = "{id}" }
"""

Ask = Callable[[int], Awaitable[object]]


async def timed(ask: Ask, numbers: range) -> tuple[list[float], float]:
    """Ask each question. Returns the milliseconds of each, and the mean CPU milliseconds."""
    took = []
    cpu = time.process_time()
    for number in numbers:
        began = time.perf_counter()
        await ask(number)
        took.append((time.perf_counter() - began) * 1_000)
    return took, (time.process_time() - cpu) * 1_000 / len(took)


async def beside(ours: Ask, by_hand: Ask, *, calls: int) -> dict[str, float]:
    """Measure both in turn, with the same concepts."""
    took: dict[str, list[float]] = {"ours": [], "hand": []}
    cpu: dict[str, list[float]] = {"ours": [], "hand": []}
    for start in range(0, calls, BLOCK):
        for name, ask in (("hand", by_hand), ("ours", ours)):
            some, used = await timed(ask, range(start, start + BLOCK))
            took[name] += some
            cpu[name].append(used)
    return {
        "ms": median(took["ours"]),
        "hand_ms": median(took["hand"]),
        "p99_ms": percentile(took["ours"], 0.99),
        "hand_p99_ms": percentile(took["hand"], 0.99),
        "cpu_ms": median(cpu["ours"]),
        "cpu_vs_hand": median(cpu["ours"]) / max(0.001, median(cpu["hand"])),
    }


async def drivers(memory: mica.Memory, plain: Plain, six: Six, *, calls: int) -> dict[str, float]:
    """Measure each source alone, and all six at once, against the same queries by hand."""
    concepts = [Concept.parse(each) for each in six.concepts]
    now = datetime.now(UTC)

    async def alone(name: str, number: int) -> None:
        found = await memory.sources[name].fragments(Question(concept=concepts[number], now=now))
        check(
            len(found) == FACETS[name], f"{name} has {len(found)} fragments of {concepts[number]}, not {FACETS[name]}"
        )

    async def together(number: int) -> None:
        await asyncio.gather(*(alone(name, number) for name in FACETS))

    rows: list[tuple[str, ...]] = []
    numbers: dict[str, float] = {}
    pairs: dict[str, tuple[Ask, Ask]] = {
        name: (lambda n, name=name: alone(name, n), lambda n, name=name: plain.of(name, six.identifiers[n]))  # type: ignore[misc]
        for name in FACETS
    }
    pairs["all six"] = together, lambda n: plain.ask(six.identifiers[n])
    for name, (ours, by_hand) in pairs.items():
        found = await beside(ours, by_hand, calls=calls)
        figures = ("ms", "hand_ms", "p99_ms", "hand_p99_ms", "cpu_ms")
        is_looked_up = name == "patterns"  # by hand, a live object is a dictionary lookup
        ratio = "" if is_looked_up else f"{found['cpu_vs_hand']:.2f}"
        rows.append((name, *(f"{found[each]:.2f}" for each in figures), ratio))
        reported = ("ms", "cpu_ms") if is_looked_up else ("ms", "cpu_ms", "cpu_vs_hand")
        numbers |= {f"{name.replace(' ', '_')}_{each}": found[each] for each in reported}
        if name == "all six":
            numbers |= {"p99_ms": found["p99_ms"], "hand_p99_ms": found["hand_p99_ms"]}
    show(
        f"{calls} questions to each, {six.fragments} fragments of a concept in all",
        ("source", "ms", "by hand", "p99", "by hand", "CPU ms", "CPU ÷ by hand"),
        rows,
    )
    return numbers


async def lag(memory: mica.Memory, six: Six, *, rounds: int) -> dict[str, float]:
    """Measure how long the event loop is blocked while a changed document is read."""
    row = {"key": "k", "text": "x" * 60, "id": "another"}
    document = json.dumps([row] * (DOCUMENT_BYTES // len(json.dumps(row) + ", ")))
    lags, idle, took = [], [], []
    for _ in range(rounds):
        (six.folder / "large.json").write_text(document, encoding="utf-8")
        began = time.perf_counter()
        lags.append(
            await _worst(
                memory.sources["large"].fragments(Question(concept=Concept("a", "b", "c"), now=datetime.now(UTC)))
            )
        )
        took.append((time.perf_counter() - began) * 1_000)
        idle.append(await _worst(asyncio.sleep(took[-1] / 1_000)))
    return {"large_json_ms": median(took), "large_json_lag_ms": median(lags), "idle_lag_ms": median(idle)}


async def _worst(work: Awaitable[object]) -> float:
    """Await the work, and return the longest time that it blocked the event loop, in milliseconds."""
    doing = asyncio.ensure_future(work)
    worst = 0.0
    while not doing.done():
        before = time.perf_counter()
        await asyncio.sleep(LAG_EVERY_S)
        worst = max(worst, time.perf_counter() - before - LAG_EVERY_S)
    await doing
    return worst * 1_000


async def bounds(memory: mica.Memory, six: Six) -> dict[str, float]:
    """Measure a query of a million rows, and count the queries that cancelled calls leave on the server."""
    concept, now = Concept.parse(six.concepts[0]), datetime.now(UTC)
    began = time.perf_counter()
    cut = await memory.sources["million"].fragments(Question(concept=concept, now=now))
    million_ms = (time.perf_counter() - began) * 1_000
    check(len(cut) == 50, f"a million rows became {len(cut)} fragments, not 50")
    for _ in range(CANCELLED):
        asking = asyncio.ensure_future(memory.sources["sleeping"].fragments(Question(concept=concept, now=now)))
        await asyncio.sleep(0.005)
        asking.cancel()
        await asyncio.wait([asking])
    await memory.sources.close()
    connection = await asyncpg.connect(six.server.dsn(), statement_cache_size=0)
    left = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()"
    )
    await connection.close()
    return {"million_rows_ms": million_ms, "cancelled": CANCELLED, "left_on_server": int(left)}


async def run(folder: Path, *, calls: int, rounds: int) -> dict[str, float]:
    async with six_sources(folder, more=ODD) as six, mica.open(":memory:", settings=six.settings) as memory:
        six.register(memory)
        plain = await Plain(six).open()
        numbers = await drivers(memory, plain, six, calls=calls)
        await plain.close()
        numbers |= await lag(memory, six, rounds=rounds)
        numbers |= await bounds(memory, six)
    show(
        "bounds",
        ("", "value"),
        [
            (name, f"{numbers[name]:.1f}")
            for name in ("large_json_ms", "large_json_lag_ms", "idle_lag_ms", "million_rows_ms", "left_on_server")
        ],
    )
    return numbers


def main() -> None:
    parser = argument_parser(__doc__, quick="fewer questions: under 40 s")
    arguments = parser.parse_args()
    print(machine())
    calls, rounds = (100, 5) if arguments.quick else (500, 20)
    with tempfile.TemporaryDirectory(prefix="mica-sources-") as folder:
        finish(asyncio.run(run(Path(folder), calls=calls, rounds=rounds)))


if __name__ == "__main__":
    main()
