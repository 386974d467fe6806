"""What does one account of scattered state cost, does it come in time whatever fails, and is it ever out of date?

    python bench/gather.py

Six real sources: three tables of a PostgreSQL, two JSON files and a live object, some 60 fragments for each question.
First every question is new, and beside it a plain `asyncio.gather` asks the same sources the same, without a deadline,
a cache or an account. Then one source hangs for ever and another fails. Then 10,000 questions, after which nothing may
be left behind; then PostgreSQL is killed and started again under load. Last, a stated workload: 500 concepts, asked by
Zipf's law with a seed, whose rows really change now and then, with an event that says so; an answer that tells an old
row, and does not say that it is old, is counted. The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import asyncpg

import mica
from _table import check, finish, machine, median, percentile, show
from mica import Memory
from mica.inject.gathered import Defragged
from mica.select.fragments import Concept, Fragment
from mica.testing.postgres import APP, Server, postgres_server
from mica.tokens import estimate

SIGNALS = 25  # learning events of each of a concept's 20 loops, which are added up for every question
CONCEPTS = 1_500  # that PostgreSQL knows something of
POPULAR, ZIPF, SEED = 500, 1.1, 6  # concepts of the workload, its exponent, its seed
CHANGE_EVERY = 20  # questions between two changes of a row
WORKERS = 2  # who ask at once
SIX = ("judgments_table", "learning", "arms", "readback", "psychology", "patterns")
DEADLINE_S = 0.1
CALLS = 10_000  # after which nothing may be left behind

TABLES = f"""
CREATE SCHEMA app;
CREATE TABLE app.judgments (concept text, number int, verdict text, version int, PRIMARY KEY (concept, number));
CREATE TABLE app.learning (concept text, loop text, number int, signal float, PRIMARY KEY (concept, loop, number));
CREATE TABLE app.arms (concept text, arm text, pulls int, PRIMARY KEY (concept, arm));
INSERT INTO app.judgments SELECT c::text, n, 'GROWL', 1 FROM generate_series(1, {CONCEPTS}) c, generate_series(1, 10) n;
INSERT INTO app.learning SELECT c::text, 'loop ' || n, m, 0.5 + (n + m) / 1000.0
    FROM generate_series(1, {CONCEPTS}) c, generate_series(1, 20) n, generate_series(1, {SIGNALS}) m;
INSERT INTO app.arms SELECT c::text, 'arm ' || n, n * 7 FROM generate_series(1, {CONCEPTS}) c, generate_series(1, 10) n;
GRANT ALL ON SCHEMA app TO {APP};
GRANT ALL ON ALL TABLES IN SCHEMA app TO {APP};
ANALYZE app.judgments; ANALYZE app.learning; ANALYZE app.arms;
"""

QUERIES = {
    "judgments_table": """SELECT 'verdict ' || number AS key, verdict || ', version ' || version AS text,
        version AS value FROM app.judgments WHERE concept = $1""",
    "learning": """SELECT loop AS key, loop || ' has the signal ' || round(avg(signal)::numeric, 3) AS text,
        avg(signal) AS value FROM app.learning WHERE concept = $1 GROUP BY loop""",
    "arms": """SELECT arm AS key, arm || ' was pulled ' || pulls || ' times' AS text,
        pulls AS value FROM app.arms WHERE concept = $1""",
}
FILES = ("readback", "psychology")


def declared() -> str:
    """The settings that declare five of the six sources."""
    tables = [
        f'[sources.{name}]\ndriver = "postgres"\ndsn_env = "APP_DSN"\nparameters = ["{{id}}"]\n'
        f'invalidated_by = ["app.changed"]\nquery = """{query}"""\n'
        for name, query in QUERIES.items()
    ]
    return "\n".join([*tables, *(f'[sources.{name}]\ndriver = "json"\npath = "{name}.json"\n' for name in FILES)])


def patterns(concept: Concept) -> list[dict[str, object]]:
    """What a live object knows."""
    return [{"key": f"pattern {n}", "text": f"pattern {n} was seen {n} times", "value": n} for n in range(5)]


def asked(number: int) -> str:
    return f"review:code:{number}"


class Place:
    """A PostgreSQL with the tables of an application, its JSON files, and settings that declare both."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        server.run(TABLES)
        server.run("CHECKPOINT")  # so that a start after a crash has little to do again
        state = [
            {"key": f"state {n}", "text": f"state {n} is level {n}", "value": n, "confidence": 0.6} for n in range(12)
        ]
        (folder / "readback.json").write_text(json.dumps(state[:8]), encoding="utf-8")
        (folder / "psychology.json").write_text(json.dumps(state[8:]), encoding="utf-8")
        (folder / "config.toml").write_text(declared(), encoding="utf-8")

    def opening(self, name: str) -> Awaitable[Memory]:
        variables = {
            "HOME": str(self.folder),
            "MICA_CONFIG": str(self.folder / "config.toml"),
            "APP_DSN": self.server.dsn(role=APP),
            "MICA_SEMANTIC": "off",
        }
        return mica.open(self.folder / f"{name}.db", settings=mica.load_settings(variables))

    async def opened(self, name: str) -> Memory:
        """A memory with all six sources, which have answered once."""
        memory = await self.opening(name)
        memory.register("patterns", patterns)
        for _ in range(3):
            await memory.defrag(asked(CONCEPTS), deadline_s=10)
        return memory


async def plain(memory: Memory, number: int) -> list[Fragment]:
    """The rival: the same sources, asked at once, and nothing else."""
    concept, now = Concept.parse(asked(number)), datetime.now(UTC)
    found = await asyncio.gather(*(memory.sources[name].fragments(concept, now=now) for name in SIX))
    return [fragment for some in found for fragment in some]


async def timed(calls: Iterable[Callable[[], Awaitable[object]]], workers: int = WORKERS) -> list[float]:
    """Milliseconds of each call, some at once."""
    waiting = iter(list(calls))
    took: list[float] = []

    async def work() -> None:
        for call in waiting:
            began = time.perf_counter()
            await call()
            took.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(work() for _ in range(workers)))
    return took


def is_complete(answer: Defragged) -> bool:
    return not {*answer.missing, *(each.source for each in answer.degraded)} & set(SIX)


async def overhead(place: Place, *, calls: int) -> dict[str, float]:
    """Every question new, in turn with the rival."""
    memory = await place.opened("overhead")
    answers: list[Defragged] = []
    rival, ours = [], []
    numbers = iter(range(1, CONCEPTS))

    async def one(number: int) -> None:
        answers.append(await memory.defrag(asked(number), deadline_s=DEADLINE_S))

    block = 20
    for _ in range(calls // block):
        some = [next(numbers) for _ in range(block)]
        rival += await timed([lambda number=number: plain(memory, number) for number in some])  # type: ignore[misc]
        ours += await timed([lambda number=number: one(number) for number in some])  # type: ignore[misc]
    hits = await timed([lambda number=number: memory.defrag(asked(number)) for number in range(1, block)])  # type: ignore[misc]
    fragments = len(await plain(memory, 1))
    lines = [line for answer in answers for line in answer.injection.splitlines() if line.startswith("- [")]
    tokens = [estimate(line) for line in lines]
    await memory.close()
    show(
        f"every question new, {calls} of each, {WORKERS} at once, {fragments} fragments from six sources",
        ("", "p50 ms", "p95 ms", "p99 ms"),
        [
            (name, *(f"{percentile(took, share):.2f}" for share in (0.5, 0.95, 0.99)))
            for name, took in (("plain asyncio.gather", rival), ("defrag", ours), ("defrag, asked before", hits))
        ],
    )
    check(fragments >= 50, f"there were {fragments} fragments, not 50")
    return {
        "fragments": fragments,
        "plain_p50_ms": median(rival),
        "plain_p99_ms": percentile(rival, 0.99),
        "p50_ms": median(ours),
        "p99_ms": percentile(ours, 0.99),
        "overhead_vs_plain": median(ours) / median(rival),
        "overhead_p99_vs_plain": percentile(ours, 0.99) / percentile(rival, 0.99),
        "cache_hit_ms": median(hits),
        "cache_hit_vs_miss": median(hits) / median(ours),
        "complete": sum(map(is_complete, answers)) / len(answers),
        "tokens_per_fragment": sum(tokens) / len(tokens),
        "tokens_per_fragment_max": max(tokens),
    }


async def hung(place: Place, *, calls: int) -> dict[str, float]:
    """One source hangs for ever, another fails."""
    memory = await place.opened("hung")

    async def never(concept: Concept) -> None:
        await asyncio.Event().wait()

    def fails(concept: Concept) -> None:
        raise RuntimeError("no such thing")

    memory.register("hung", never)
    memory.register("failing", fails)
    answers: list[Defragged] = []

    async def one(number: int) -> None:
        answers.append(await memory.defrag(asked(number), deadline_s=DEADLINE_S))

    took = await timed([lambda number=number: one(number) for number in range(500, 500 + calls)])  # type: ignore[misc]
    await memory.close()
    whole = sum(map(is_complete, answers)) / len(answers)
    named = sum({"hung", "failing"} <= answer.missing.keys() for answer in answers) / len(answers)
    waited = sum("no answer within" in answer.missing.get("hung", "") for answer in answers)
    show(
        f"one source hung and one failing, {calls} questions, a deadline of {DEADLINE_S * 1000:.0f} ms",
        ("", "p50 ms", "p99 ms", "complete for the rest", "both named", "waited for it"),
        [
            (
                "defrag",
                f"{median(took):.1f}",
                f"{percentile(took, 0.99):.1f}",
                f"{whole:.3f}",
                f"{named:.3f}",
                str(waited),
            )
        ],
    )
    return {"p99_ms_hung": percentile(took, 0.99), "complete_for_rest": whole, "named": named}


async def connections(place: Place) -> int:
    connection = await asyncpg.connect(place.server.dsn())
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = $1", APP))
    finally:
        await connection.close()


async def leaking(place: Place) -> dict[str, float]:
    """What is left behind after very many questions: tasks, threads, connections."""
    memory = await place.opened("leaking")

    async def never(concept: Concept) -> None:
        await asyncio.Event().wait()

    memory.register("hung", never)
    draw = random.Random(SEED)
    await timed([lambda: memory.defrag(asked(draw.randint(1, 200))) for _ in range(400)], workers=8)  # pools are filled

    async def counted() -> tuple[int, int, int]:
        await memory.position()
        for _ in range(40):
            await asyncio.sleep(0.1)
            if not any("defrag" in repr(task) or "_ask" in repr(task) for task in asyncio.all_tasks()):
                break
        return len(asyncio.all_tasks()), threading.active_count(), await connections(place)

    before = await counted()
    took = await timed([lambda: memory.defrag(asked(draw.randint(1, 200))) for _ in range(CALLS)], workers=8)
    after = await counted()
    await memory.close()
    leaked = sum(max(0, now - then) for now, then in zip(after, before, strict=True))
    show(
        f"{CALLS:,} questions about 200 concepts, eight at once, a source hung all the while",
        ("", "tasks", "threads", "connections"),
        [("before", *map(str, before)), ("after", *map(str, after))],
    )
    return {"leaked": leaked, "calls": len(took)}


async def killed(place: Place, *, for_s: float) -> dict[str, float]:
    """PostgreSQL is killed and started again while questions come."""
    memory = await place.opened("killed")
    raised, answered, is_over = [], [], asyncio.Event()
    numbers = count()

    async def ask() -> None:
        while not is_over.is_set():
            number = next(numbers) % CONCEPTS + 1
            if number == 1:
                memory.emit("app.changed")  # every question is new again
            try:
                answer = await memory.defrag(asked(number), deadline_s=DEADLINE_S)
            except Exception as error:  # noqa: BLE001 - counted
                raised.append(repr(error))
            else:
                answered.append((time.monotonic(), is_complete(answer)))
            await asyncio.sleep(0.01)

    asking = [asyncio.ensure_future(ask()) for _ in range(WORKERS)]
    await asyncio.sleep(for_s / 3)
    await asyncio.to_thread(place.server.kill)
    killed_at = time.monotonic()
    await asyncio.sleep(for_s / 3)
    await asyncio.to_thread(place.server.restart)
    while True:
        with suppress(OSError, asyncpg.PostgresError):
            await (await asyncpg.connect(place.server.dsn())).close()
            break
    back_at = time.monotonic()
    until = back_at + 10
    while time.monotonic() < until and not any(whole for at, whole in answered if at > back_at):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(for_s / 3)
    is_over.set()
    await asyncio.gather(*asking)
    await memory.close()
    recovered = min((at for at, whole in answered if whole and at > back_at), default=float("inf")) - back_at
    without = [whole for at, whole in answered if killed_at < at < back_at]
    after = [whole for at, whole in answered if at > back_at + recovered]
    show(
        "PostgreSQL killed and started again under load",
        ("", "answers", "raised", "incomplete while away", "recovered s", "complete afterwards"),
        [
            (
                "defrag",
                f"{len(answered):,}",
                str(len(raised)),
                f"{without.count(False)} of {len(without)}",
                f"{recovered:.2f}",
                f"{sum(after) / max(1, len(after)):.3f}",
            )
        ],
    )
    return {"raised": len(raised), "recovered_s": recovered, "answered": len(answered)}


async def popular(place: Place, *, calls: int) -> dict[str, float]:
    """Zipf's law over 500 concepts, whose rows change."""
    memory = await place.opened("popular")
    draw = random.Random(SEED)
    weights = [1 / rank**ZIPF for rank in range(1, POPULAR + 1)]
    asked_for = draw.choices(range(1, POPULAR + 1), weights, k=calls)
    versions = dict.fromkeys(range(1, POPULAR + 1), 1)
    hits = cacheable = stale = told = changes = 0
    connection = await asyncpg.connect(place.server.dsn())
    for number, concept in enumerate(asked_for):
        if number % CHANGE_EVERY == 0:
            changed = draw.choices(range(1, POPULAR + 1), weights)[0]
            versions[changed] += 1
            await connection.execute(
                "UPDATE app.judgments SET version = $2 WHERE concept = $1", str(changed), versions[changed]
            )
            memory.emit("app.changed", {"concept": asked(changed)})
            changes += 1
        answer = await memory.defrag(asked(concept), deadline_s=DEADLINE_S)
        cached = set(answer.cached) & set(SIX)
        hits += len(cached - {"patterns"})
        cacheable += len(SIX) - 1
        said = {each.value for each in answer.fragments if each.key.startswith("verdict ")}
        is_told = any(each.source == "judgments_table" for each in answer.degraded)
        told += is_told
        stale += bool(said) and said != {versions[concept]} and not is_told
    await connection.close()
    await memory.close()
    hit_rate = hits / cacheable
    show(
        f"{calls:,} questions about {POPULAR} concepts (Zipf {ZIPF}, seed {SEED}), a row changed every {CHANGE_EVERY}",
        ("", "hit rate", "changes", "old and not told", "old and told"),
        [("defrag", f"{hit_rate:.3f}", str(changes), str(stale), str(told))],
    )
    return {"hit_rate": hit_rate, "stale_served": stale, "changes": changes}


async def run(place: Place, *, is_quick: bool) -> dict[str, float]:
    numbers = await overhead(place, calls=200 if is_quick else 1_000)
    numbers |= await hung(place, calls=150 if is_quick else 1_000)
    numbers |= await leaking(place)
    numbers |= await popular(place, calls=1_500 if is_quick else 10_000)
    numbers |= await killed(place, for_s=1.5 if is_quick else 6.0)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer questions: under 40 s")
    arguments = parser.parse_args()
    print(machine())
    with postgres_server() as server, tempfile.TemporaryDirectory(prefix="mica-gather-") as folder:
        finish(asyncio.run(run(Place(server, Path(folder)), is_quick=arguments.quick)))


if __name__ == "__main__":
    main()
