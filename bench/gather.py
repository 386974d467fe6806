"""What does one gather over several sources cost, is it in time despite failures, and is it ever stale?

    python bench/gather.py

Six real sources: PostgreSQL twice, SQLite, a JSON file, a file of lines and a live object, 54 fragments for each
question (bench/_sources.py). First every question is new; beside it the same queries are asked by hand with a plain
`asyncio.gather`, and by mica's drivers alone, without a deadline, a cache or a record. They take turns in rounds of
20 questions, two at once; the result is the median of the rounds' ratios. For
`overhead_vs_plain` the tables have 30,000 rows, and one query reads a whole table without an index, which takes some
3 ms of an idle core. For `overhead_vs_plain_lookups` every query finds its rows by an index within a tenth of a
millisecond, so nearly all of the time is spent in clients and drivers. CPU is that of the loop's thread; for mica it
includes what is written afterwards. Next, one source hangs and another fails. Next, 10,000 questions are asked (600
with `--quick`), after which no task, thread or connection may be left. Next, 500 concepts are asked for by Zipf's law
while their rows change, each change announced by an event; answers with an old row that is not marked as old are
counted. Last, PostgreSQL is killed and started again under load. The last line of the output is one JSON object.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

import asyncpg

import mica
from _sources import FACETS, KIND, VERDICTS, Plain, Six, six_sources
from _table import argument_parser, check, finish, machine, median, percentile, show
from mica import Memory
from mica.sources.account import GatheredAccount
from mica.sources.protocol import Concept, Fragment, Question
from mica.tokens import estimate

CONCEPTS, ZIPF, SEED = 500, 1.1, 6  # of the workload, with its exponent and its seed
CHANGE_EVERY = 20  # questions between two changes of a row
WORKERS = 2  # concurrent callers
DEADLINE_S = 0.1
VERSIONS = 5  # of each row: 30,000 rows in a table of PostgreSQL
BLOCK = 20  # questions of one round
# Time until connections are returned, events stored and replies saved.
SETTLE_S = {"by hand": 0.05, "drivers alone": 0.05, "mica": 0.6, "mica, cached": 0.2}
CHANGED = "judgment.changed"  # the event after which replies are old


async def open_memory(six: Six, name: str) -> Memory:
    """Open a memory with all six sources, and query each of them once."""
    memory = await mica.open(six.folder / f"{name}.db", settings=six.settings)
    six.register(memory)
    for concept in six.concepts[:3]:
        await memory.sources.gather(concept, deadline_s=10)
    return memory


async def drivers(memory: Memory, concept: str) -> list[Fragment]:
    """Query the drivers of the six sources concurrently, without the rest of mica."""
    asked, now = Concept.parse(concept), datetime.now(UTC)
    found = await asyncio.gather(*(memory.sources[name].fragments(Question(concept=asked, now=now)) for name in FACETS))
    return [fragment for some in found for fragment in some]


async def timed(calls: Iterable[Callable[[], Awaitable[object]]], workers: int = WORKERS) -> list[float]:
    """Run the calls, some at once, and return the milliseconds of each."""
    waiting = iter(list(calls))
    took: list[float] = []

    async def work() -> None:
        for call in waiting:
            began = time.perf_counter()
            await call()
            took.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(work() for _ in range(workers)))
    return took


def is_complete(answer: GatheredAccount) -> bool:
    return not {*answer.missing, *(each.source for each in answer.degraded)} & set(FACETS)


class RoundCost(NamedTuple):
    """The cost of a round: milliseconds and CPU milliseconds of the loop, per question."""

    ms: list[float]
    cpu_ms: float


async def overhead(six: Six, *, what: str, calls: int) -> dict[str, float]:
    """Compare gathering with the rivals on new questions: each round asks all of them the same, in random order."""
    memory, plain = await open_memory(six, what.replace(" ", "-")), await Plain(six).open()
    draw = random.Random(SEED)
    answers: list[GatheredAccount] = []
    took: dict[str, list[RoundCost]] = {name: [] for name in SETTLE_S}

    async def gather(concept: str) -> None:
        answers.append(await memory.sources.gather(concept, deadline_s=DEADLINE_S))

    async def take(name: str, asked: Sequence[str], ask: Callable[[str], Awaitable[object]]) -> None:
        began = time.thread_time()
        ms = await timed([lambda each=each: ask(each) for each in asked])  # type: ignore[misc]
        await asyncio.sleep(SETTLE_S[name])  # background work is counted, and ends before the next turn
        took[name].append(RoundCost(ms, (time.thread_time() - began) * 1000 / len(asked)))

    for _ in range(0, calls, BLOCK):
        some = draw.sample(six.identifiers, BLOCK)
        concepts = [f"judgment:{KIND}:{each}" for each in some]
        memory.emit(CHANGED)
        for name in draw.sample(["by hand", "drivers alone", "mica"], 3):
            if name == "by hand":
                await take(name, some, plain.ask)
            elif name == "drivers alone":
                await take(name, concepts, lambda each: drivers(memory, each))
            else:
                await take(name, concepts, gather)
                await take("mica, cached", concepts, memory.sources.gather)
    fragments = len(await drivers(memory, six.concepts[0]))
    lines = [line for answer in answers for line in answer.injection.splitlines() if line.startswith("- [")]
    tokens = [estimate(line) for line in lines]
    coherent = [answer.coherence for answer in answers if answer.coherence is not None]
    await memory.close()
    await plain.close()
    every = {name: [ms for round_ in rounds for ms in round_.ms] for name, rounds in took.items()}
    cpu = {name: median([round_.cpu_ms for round_ in rounds]) for name, rounds in took.items()}

    def ratio(ours: str, rival: str) -> float:
        rounds = zip(took[ours], took[rival], strict=True)
        return median([median(one.ms) / median(other.ms) for one, other in rounds])

    show(
        f"{what}: every question new, {calls} of each, {WORKERS} at once, {fragments} fragments from six sources",
        ("", "p50 ms", "p95 ms", "p99 ms", "CPU ms", "p50 by hand", "CPU by hand"),
        [
            (
                name,
                *(f"{percentile(each, share):.2f}" for share in (0.5, 0.95, 0.99)),
                f"{cpu[name]:.2f}",
                f"{ratio(name, 'by hand'):.2f}",
                f"{cpu[name] / cpu['by hand']:.2f}",
            )
            for name, each in every.items()
        ],
    )
    check(fragments >= 50, f"there were {fragments} fragments, not 50")
    others = {name for answer in answers for name in answer.asked} - set(FACETS)
    check(not others, f"{', '.join(sorted(others))} were asked beside the six")
    ours, rival, hits = every["mica"], every["by hand"], every["mica, cached"]
    return {
        "fragments": fragments,
        "plain_p50_ms": median(rival),
        "plain_p99_ms": percentile(rival, 0.99),
        "p50_ms": median(ours),
        "p95_ms": percentile(ours, 0.95),
        "p99_ms": percentile(ours, 0.99),
        "overhead_vs_plain": ratio("mica", "by hand"),
        "overhead_p99_vs_plain": percentile(ours, 0.99) / percentile(rival, 0.99),
        "overhead_vs_drivers": ratio("mica", "drivers alone"),
        "cpu_ms": cpu["mica"],
        "cpu_vs_plain": cpu["mica"] / cpu["by hand"],
        "cache_hit_ms": median(hits),
        "cache_hit_vs_miss": ratio("mica, cached", "mica"),
        "complete": sum(map(is_complete, answers)) / len(answers),
        "coherence": sum(coherent) / len(coherent),
        "tokens_per_fragment": sum(tokens) / len(tokens),
        "tokens_per_fragment_max": max(tokens),
    }


async def hung(six: Six, *, calls: int) -> dict[str, float]:
    """Measure gathers while one source hangs and another fails."""
    memory = await open_memory(six, "hung")

    async def never(concept: Concept) -> None:
        await asyncio.Event().wait()

    def fails(concept: Concept) -> None:
        raise RuntimeError("no such thing")

    memory.sources.register("hung", never)
    memory.sources.register("failing", fails)
    answers: list[GatheredAccount] = []

    async def one(number: int) -> None:
        if number % CONCEPTS == 0:
            memory.emit(CHANGED)  # every question is new again
        answers.append(await memory.sources.gather(six.concepts[number % CONCEPTS], deadline_s=DEADLINE_S))

    took = await timed([lambda number=number: one(number) for number in range(calls)])  # type: ignore[misc]
    await memory.close()
    whole = sum(map(is_complete, answers)) / len(answers)
    named = sum({"hung", "failing"} <= answer.missing.keys() for answer in answers) / len(answers)
    waited = sum(answer.missing.get("hung", "").startswith("no answer") for answer in answers)
    show(
        f"one source hung and one failing, {calls} questions, a deadline of {DEADLINE_S * 1000:.0f} ms",
        ("", "p50 ms", "p99 ms", "complete for the rest", "both named", "waited for it"),
        [
            (
                "mica",
                f"{median(took):.1f}",
                f"{percentile(took, 0.99):.1f}",
                f"{whole:.3f}",
                f"{named:.3f}",
                str(waited),
            )
        ],
    )
    return {"p99_ms_hung": percentile(took, 0.99), "complete_for_rest": whole, "named": named}


async def connections(six: Six) -> int:
    connection = await asyncpg.connect(six.server.dsn())
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE client_port IS NOT NULL"))
    finally:
        await connection.close()


async def leaking(six: Six, *, calls: int) -> dict[str, float]:
    """Count the tasks, threads and connections that remain after thousands of questions."""
    memory = await open_memory(six, "leaking")

    async def never(concept: Concept) -> None:
        await asyncio.Event().wait()

    memory.sources.register("hung", never)
    draw = random.Random(SEED)
    await timed(
        [lambda: memory.sources.gather(draw.choice(six.concepts[:200])) for _ in range(400)], workers=8
    )  # pools are filled

    async def counted() -> tuple[int, int, int]:
        await memory.events.position()
        unchanged, tasks = 0, len(asyncio.all_tasks())
        for _ in range(60):  # answers that came too late are still being stored
            await asyncio.sleep(0.1)
            unchanged = unchanged + 1 if len(asyncio.all_tasks()) == tasks else 0
            tasks = len(asyncio.all_tasks())
            if unchanged == 10:
                break
        return tasks, threading.active_count(), await connections(six)

    before = await counted()
    took = await timed(
        [lambda: memory.sources.gather(draw.choice(six.concepts[:200])) for _ in range(calls)], workers=8
    )
    after = await counted()
    await memory.close()
    leaked = sum(max(0, now - then) for now, then in zip(after, before, strict=True))
    show(
        f"{calls:,} questions about 200 concepts, eight at once, a source hung all the while",
        ("", "tasks", "threads", "connections"),
        [("before", *map(str, before)), ("after", *map(str, after))],
    )
    return {"leaked": leaked, "calls": len(took)}


async def killed(six: Six, *, for_s: float) -> dict[str, float]:
    """Kill and restart PostgreSQL under load, and measure errors and the time until answers are complete again."""
    memory = await open_memory(six, "killed")
    raised, answered, is_over = [], [], asyncio.Event()
    numbers = count()

    async def ask() -> None:
        while not is_over.is_set():
            number = next(numbers) % CONCEPTS
            if number == 0:
                memory.emit(CHANGED)  # every question is new again
            try:
                answer = await memory.sources.gather(six.concepts[number], deadline_s=DEADLINE_S)
            except Exception as error:  # noqa: BLE001 - counted
                raised.append(repr(error))
            else:
                answered.append((time.monotonic(), is_complete(answer)))
            await asyncio.sleep(0.01)

    asking = [asyncio.ensure_future(ask()) for _ in range(WORKERS)]
    await asyncio.sleep(for_s / 3)
    await asyncio.to_thread(six.server.kill)
    killed_at = time.monotonic()
    await asyncio.sleep(for_s / 3)
    await asyncio.to_thread(six.server.restart)
    while True:
        with suppress(OSError, asyncpg.PostgresError):
            await (await asyncpg.connect(six.server.dsn())).close()
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
                "mica",
                f"{len(answered):,}",
                str(len(raised)),
                f"{without.count(False)} of {len(without)}",
                f"{recovered:.2f}",
                f"{sum(after) / max(1, len(after)):.3f}",
            )
        ],
    )
    return {"raised": len(raised), "recovered_s": recovered, "answered": len(answered)}


async def popular(six: Six, *, calls: int) -> dict[str, float]:
    """Ask for 500 concepts by Zipf's law while their rows change; measure the hit rate and count stale answers."""
    memory = await open_memory(six, "popular")
    draw = random.Random(SEED)
    weights = [1 / rank**ZIPF for rank in range(1, CONCEPTS + 1)]
    truth: dict[str, str] = {}
    hits = cacheable = stale = marked = changes = 0
    for number, place in enumerate(draw.choices(range(CONCEPTS), weights, k=calls)):
        if number % CHANGE_EVERY == 0:
            changed = draw.choices(range(CONCEPTS), weights)[0]
            truth[six.identifiers[changed]] = draw.choice(VERDICTS)
            await six.change(six.identifiers[changed], truth[six.identifiers[changed]])
            memory.emit(CHANGED, {"concept": six.concepts[changed]})
            changes += 1
        answer = await memory.sources.gather(six.concepts[place], deadline_s=DEADLINE_S)
        hits += len(set(answer.cached) & set(FACETS))
        cacheable += len(FACETS) - 1  # the live object is asked each time
        values = {each.value for each in answer.fragments if each.key == "facet 0" and each.source == "verdicts"}
        expected = truth.get(six.identifiers[place])
        is_marked = any(each.source == "verdicts" for each in answer.degraded)
        marked += is_marked
        stale += bool(values) and expected is not None and values != {expected} and not is_marked
    await memory.close()
    hit_rate = hits / cacheable
    show(
        f"{calls:,} questions about {CONCEPTS} concepts (Zipf {ZIPF}, seed {SEED}), a row changed every {CHANGE_EVERY}",
        ("", "hit rate", "changes", "old, not marked", "marked as old"),
        [("mica", f"{hit_rate:.3f}", str(changes), str(stale), str(marked))],
    )
    return {"hit_rate": hit_rate, "stale_served": stale, "changes": changes}


async def run(folder: Path, *, is_quick: bool) -> dict[str, float]:
    async with six_sources(folder, concepts=CONCEPTS, versions=VERSIONS) as six:
        lookups = await overhead(six, what="all by an index", calls=40 if is_quick else 1_000)
        await six.drop_index()
        numbers = await overhead(six, what="one without an index", calls=100 if is_quick else 1_000)
        compared = ("plain_p99_ms", "p99_ms", "overhead_vs_plain", "overhead_p99_vs_plain", "cpu_vs_plain")
        numbers |= {f"{name}_lookups": lookups[name] for name in compared}
        numbers |= await hung(six, calls=120 if is_quick else 1_000)
        numbers |= await leaking(six, calls=600 if is_quick else 10_000)
        numbers |= await popular(six, calls=1_000 if is_quick else 10_000)
        numbers |= await killed(six, for_s=1.5 if is_quick else 6.0)
        return numbers


def main() -> None:
    parser = argument_parser(__doc__, quick="fewer questions: under 40 s")
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="mica-gather-") as folder:
        finish(asyncio.run(run(Path(folder), is_quick=arguments.quick)))


if __name__ == "__main__":
    main()
