"""What do marks, searches, briefs and crystals cost, and do they cost more in a larger space?

    python bench/witness.py
    python bench/witness.py --quick                     # smaller, says what was scaled down
    python bench/witness.py --only search               # one part: marks, search, backlog or crystals

Marks are phrases that people wrote about Python's standard library, so their words have natural frequencies. Each
part has its rival in the same run: a bare SQLite insert for marks, a plain FTS5 table of the same texts for searches
and briefs, the first sentences of the same marks for crystals. All input must be stored, every mark must be beneath
a crystal or wait for one, and `verify` must find nothing, or the run ends with an error. The last line of the output
is one JSON object.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import mica
from _events import SEED, library
from _judge import STOP_WORDS, tokens
from _table import Cost, argument_parser, check, finish, machine, measure, median, percentile, show, spread

T = TypeVar("T")

BATCH = 1_000  # rows of a commit of the batched rival
PHRASES, PHRASE_WORDS = (2, 4), (3, 9)  # of a mark
QUERY_WORDS = 2, 5
SESSION_MARKS = 50  # of a session that is searched; LIVE of them take turns
LIVE = 20
STORED_AT_MOST = 50_000  # marks emitted at once: the journal is limited
WARM_UP = 5  # queries that are not counted, after the first
BUDGET_TOKENS = 2_000
PAUSE_S = 0.05  # between two briefs beside other work
WHOLE_SESSION_MARKS = 200
DAY_SESSIONS, DAY_SESSION_MARKS = 5, 40
LEAD_SHARE = 0.1  # of the tokens of its marks, which is what a session's crystal may have at most
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)

_ROWS = """
CREATE TABLE marks (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, agent TEXT NOT NULL, at TEXT NOT NULL, text TEXT NOT NULL
)
"""
_INSERT = "INSERT INTO marks (session, agent, at, text) VALUES (?, ?, ?, ?)"
_FULL_TEXT = "CREATE VIRTUAL TABLE marks USING fts5 (session UNINDEXED, agent UNINDEXED, at UNINDEXED, text, {options})"

Numbers = dict[str, float | int]


class Plan(NamedTuple):
    """How large a run is: counts of rounds, events and queries."""

    rounds: int
    single_marks: int  # in a round
    batched_marks: int  # in a round
    spaces: tuple[int, ...]  # marks in each, the smallest first
    queries: int
    sessions: int  # of WHOLE_SESSION_MARKS, crystallized one by one
    weeks: int
    waiting_marks: int  # that are crystallized beside briefs


FULL = Plan(
    rounds=5,
    single_marks=1_000,
    batched_marks=20_000,
    spaces=(10_000, 100_000, 1_000_000),
    queries=200,
    sessions=20,
    weeks=8,
    waiting_marks=10_000,
)
QUICK = Plan(
    rounds=3,
    single_marks=100,
    batched_marks=4_000,
    spaces=(10_000, 30_000),
    queries=40,
    sessions=6,
    weeks=2,
    waiting_marks=2_000,
)


# -- Texts ----------------------------------------------------------------------------------------------------


@cache
def prose() -> list[str]:
    """Return the words of the standard library's docstrings and comments, in their order."""
    found = re.findall(r'"""(.*?)"""|# (.*?)\n', library(), re.DOTALL)
    return re.findall(r"[A-Za-z][A-Za-z'-]+", " ".join(docstring or comment for docstring, comment in found))


class NewMark(NamedTuple):
    """A mark to be recorded."""

    text: str
    session: str
    agent: str


def text(chance: random.Random) -> str:
    """Make a text of a few random phrases, each as a sentence."""
    words = prose()
    phrases = []
    for _ in range(chance.randint(*PHRASES)):
        start, length = chance.randrange(len(words) - PHRASE_WORDS[1]), chance.randint(*PHRASE_WORDS)
        phrases.append(" ".join(words[start : start + length]).capitalize() + ".")
    return " ".join(phrases)


def new_marks(count: int, *, seed: int = SEED) -> Iterator[NewMark]:
    """Generate this many marks of interleaved sessions, the same for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        block, within = divmod(number, SESSION_MARKS * LIVE)
        live = within % LIVE
        yield NewMark(text(chance), f"session-{block * LIVE + live}", f"agent-{live % 7}")


def queries(spaces: Sequence[int], count: int) -> list[tuple[int, str]]:
    """Make queries from marks that every space has: each mark's number, and two to five of its words in their order."""
    chance = random.Random(SEED)
    chosen = set(chance.sample(range(min(spaces)), count))
    planned = []
    for number, mark in enumerate(new_marks(min(spaces))):
        if number in chosen:
            words = [word for word in re.findall(r"[a-z]{3,}", mark.text.lower()) if word not in STOP_WORDS]
            wanted = sorted(chance.sample(range(len(words)), min(len(words), chance.randint(*QUERY_WORDS))))
            planned.append((number, " ".join(words[place] for place in wanted)))
    chance.shuffle(planned)
    return planned


# -- Spaces and rivals ----------------------------------------------------------------------------------------


def opened(path: Path) -> mica.memory.Opening:
    """Open a space without an embedding model, which would run during other measurements."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = mica.Settings(home=path.parent, transcripts=path.parent, semantic="off")
    return mica.open(path, settings=settings)


def bare(path: Path, table: str = _ROWS) -> sqlite3.Connection:
    """Open a bare SQLite file with the same promise as `durable`: committed rows survive power loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(table)
    connection.commit()
    return connection


def full_text() -> str:
    return _FULL_TEXT.format(options="tokenize = 'porter unicode61'")


def row(mark: NewMark) -> tuple[str, str, str, str]:
    return mark.session, mark.agent, datetime.now(UTC).isoformat(), mark.text


def insert(connection: sqlite3.Connection, marks: Sequence[NewMark], *, at_once: int) -> list[float]:
    """Insert marks, so many in one commit; returns how long each commit took, with its inserts."""
    waits = []
    for start in range(0, len(marks), at_once):
        began = time.perf_counter()
        for mark in marks[start : start + at_once]:
            connection.execute(_INSERT, row(mark))
        connection.commit()
        waits.append(time.perf_counter() - began)
    return waits


def observe(memory: mica.Memory, mark: NewMark, *, at: datetime | None = None) -> mica.Ref:
    return memory.mark(mark.text, context=mica.Context(session=mark.session, agent=mark.agent), at=at)


async def timed(awaitable: Awaitable[T]) -> tuple[T, Cost]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = await awaitable
    return result, Cost(time.perf_counter() - wall, time.process_time() - cpu)


# -- Marks ----------------------------------------------------------------------------------------------------

SINGLE = "mica: one, then durable()"
SINGLE_BARE = "sqlite3: one insert, one commit"
BATCHED = "mica: many, then durable()"
STORED = "mica: many, then stored and indexed"
BATCHED_BARE = f"sqlite3: a commit every {BATCH:,}"
BATCHED_FTS5 = f"sqlite3 into FTS5: a commit every {BATCH:,}"


class WriteCost(NamedTuple):
    cost: Cost
    marks: int
    waits_s: Sequence[float] = ()

    @property
    def rate(self) -> float:
        return self.marks / self.cost.wall_s


async def write_singly(memory: mica.Memory, marks: Sequence[NewMark]) -> WriteCost:
    waits = []
    wall, cpu = time.perf_counter(), time.process_time()
    for mark in marks:
        began = time.perf_counter()
        observe(memory, mark)
        await memory.durable()
        waits.append(time.perf_counter() - began)
    return WriteCost(Cost(time.perf_counter() - wall, time.process_time() - cpu), len(marks), waits)


async def write_marks(path: Path, singles: Sequence[NewMark], batch: Sequence[NewMark]) -> dict[str, WriteCost]:
    """Measure one round of mica, in a new space."""
    async with opened(path) as memory:
        single = await write_singly(memory, singles)
        await memory.events.position()
        wall, cpu = time.perf_counter(), time.process_time()
        for mark in batch:
            observe(memory, mark)
        await memory.durable()
        batched = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        found = await memory.events.position()
        stored = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        expected = len(singles) + len(batch)
        check(found == expected, f"{expected} marks were made, {found} are stored")
    return {
        SINGLE: single,
        BATCHED: WriteCost(batched, len(batch)),
        STORED: WriteCost(stored, len(batch)),
    }


def write_rows(path: Path, singles: Sequence[NewMark], batch: Sequence[NewMark]) -> dict[str, WriteCost]:
    """Measure one round of the rivals, each in a new file."""
    done: dict[str, WriteCost] = {}
    for name, table, marks, at_once in (
        (SINGLE_BARE, _ROWS, singles, 1),
        (BATCHED_BARE, _ROWS, batch, BATCH),
        (BATCHED_FTS5, full_text(), batch, BATCH),
    ):
        with closing(bare(path / f"{len(done)}.db", table)) as connection:
            waits, cost = measure(partial(insert, connection, marks, at_once=at_once))
            (found,) = connection.execute("SELECT count(*) FROM marks").fetchone()
            check(found == len(marks), f"{len(marks)} rows were inserted, {found} are there")
        done[name] = WriteCost(cost, len(marks), waits)
    return done


def compare_marks(plan: Plan, scratch: Path) -> Numbers:
    rounds: list[dict[str, WriteCost]] = []
    marks = list(new_marks(plan.single_marks + plan.batched_marks))
    singles, batch = marks[: plan.single_marks], marks[plan.single_marks :]
    for number in range(plan.rounds):
        folder = scratch / f"marks-{number}"
        rivals = write_rows(folder, singles, batch)
        rounds.append(rivals | asyncio.run(write_marks(folder / "space.db", singles, batch)))
        shutil.rmtree(folder)

    def rates(name: str, rival: str) -> float:
        return median([each[name].rate / each[rival].rate for each in rounds])

    def times(name: str, rival: str) -> float:
        return median([each[rival].cost.cpu_s / each[name].cost.cpu_s for each in rounds])

    def line(name: str, rival: str) -> tuple[str, ...]:
        done = [each[name] for each in rounds]
        wall = spread([each.cost.wall_s / each.marks * 1e6 for each in done], digits=1)
        cpu = spread([each.cost.cpu_s / each.marks * 1e6 for each in done], digits=1)
        ratios = f"{rates(name, rival):.2f}", f"{times(name, rival):.2f}"
        return name, f"{median([each.rate for each in done]):,.0f}", wall, cpu, *ratios

    columns = ("", "marks/s", "wall µs/mark (min – median)", "CPU µs/mark", "× sqlite3, marks/s", "CPU")
    title = f"marks: {plan.rounds} rounds in turn, {plan.single_marks:,} one by one"
    show(title, columns, [line(name, SINGLE_BARE) for name in (SINGLE_BARE, SINGLE)])
    waits_ms = [wait * 1e3 for each in rounds for wait in each[SINGLE].waits_s]
    bare_ms = [wait * 1e3 for each in rounds for wait in each[SINGLE_BARE].waits_s]
    print(
        f"  until one is on disk, p50 and p95: mica {median(waits_ms):.2f} and {percentile(waits_ms, 0.95):.2f} ms, "
        f"sqlite3 {median(bare_ms):.2f} and {percentile(bare_ms, 0.95):.2f} ms"
    )
    title = f"marks: {plan.rounds} rounds in turn, {plan.batched_marks:,} together"
    show(title, columns, [line(name, BATCHED_BARE) for name in (BATCHED_BARE, BATCHED_FTS5, BATCHED, STORED)])
    return {
        "mark_single_vs_sqlite": rates(SINGLE, SINGLE_BARE),
        "mark_batched_vs_sqlite": times(BATCHED, BATCHED_BARE),
        "mark_stored_vs_sqlite": times(STORED, BATCHED_BARE),
        "mark_stored_vs_fts5": times(STORED, BATCHED_FTS5),
        "mark_p95_ms": percentile(waits_ms, 0.95),
    }


# -- Search and briefs ----------------------------------------------------------------------------------------


async def fill(path: Path, marks: int) -> Cost:
    """Fill a space with this many marks, stored and indexed, and return the cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    async with opened(path) as memory:
        for number, mark in enumerate(new_marks(marks), 1):
            observe(memory, mark)
            if number % STORED_AT_MOST == 0:
                await memory.events.position()
        found = await memory.events.position()
        check(found == marks, f"{marks} marks were made, {found} are stored")
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def fill_rival(path: Path, marks: int) -> Cost:
    """Fill a full-text table with the same texts, and return the cost."""

    def run() -> None:
        with closing(bare(path, full_text())) as connection:
            connection.executemany(_INSERT, map(row, new_marks(marks)))
            connection.commit()
            (found,) = connection.execute("SELECT count(*) FROM marks").fetchone()
            check(found == marks, f"{marks} rows were inserted, {found} are there")

    return measure(run)[1]


def match(connection: sqlite3.Connection, query: str) -> list[str]:
    wanted = " OR ".join(f'"{word}"' for word in query.split())
    statement = "SELECT text FROM marks WHERE marks MATCH ? ORDER BY bm25(marks) LIMIT 10"
    return [found for (found,) in connection.execute(statement, (wanted,))]


class QueryCosts(NamedTuple):
    """The costs of the queries to one space and its rival, and how many of them succeeded."""

    marks: int
    first_ms: float  # of the first search after opening
    search: list[Cost]
    fts5: list[Cost]
    found: tuple[int, int]  # queries whose own mark was among the ten results: of search, of FTS5
    brief: list[Cost]
    missing: int  # briefs with a missing source
    lacking: Counter[str]  # the missing sources, by name


async def ask(places: Mapping[int, Path], planned: Sequence[tuple[int, str]]) -> list[QueryCosts]:
    """Run the queries in all spaces and their rivals, in turn."""
    memories = {marks: await opened(path) for marks, path in places.items()}
    rivals = {marks: sqlite3.connect(path.with_name("fts5.db")) for marks, path in places.items()}
    source = _sources(min(places), {number for number, _ in planned})
    results = []
    try:
        for marks, memory in memories.items():
            _, first = await timed(memory.search(planned[0][1]))
            results.append(QueryCosts(marks, first.wall_s * 1e3, [], [], (0, 0), [], 0, Counter()))
        for counted, (number, query) in enumerate([*planned[-WARM_UP:], *planned], -WARM_UP):
            for place, marks in enumerate(places):
                hits, cost = await timed(memories[marks].search(query))
                rows, rival = measure(partial(match, rivals[marks], query))
                check(bool(hits) and bool(rows), f"{query!r} is answered")
                if counted >= 0:
                    results[place].search.append(cost)
                    results[place].fts5.append(rival)
                    ours, theirs = results[place].found
                    ours += any(hit.text == source[number] for hit in hits)
                    theirs += source[number] in rows
                    results[place] = results[place]._replace(found=(ours, theirs))
        for _, query in planned:
            for place, marks in enumerate(places):
                brief, cost = await timed(memories[marks].brief(query, budget_tokens=BUDGET_TOKENS))
                results[place].brief.append(cost)
                results[place] = results[place]._replace(missing=results[place].missing + bool(brief.missing))
                results[place].lacking.update(brief.missing.keys())
                await memories[marks].events.position()  # so that late sources do not slow the next brief
    finally:
        for memory in memories.values():
            await memory.close()
        for connection in rivals.values():
            connection.close()
    return results


def _sources(marks: int, wanted: set[int]) -> dict[int, str]:
    return {number: mark.text for number, mark in enumerate(new_marks(marks)) if number in wanted}


def p95_ms(costs: Sequence[Cost]) -> float:
    return percentile([cost.wall_s * 1e3 for cost in costs], 0.95)


def p95_cpu_ms(costs: Sequence[Cost]) -> float:
    return percentile([cost.cpu_s * 1e3 for cost in costs], 0.95)


def compare_search(plan: Plan, scratch: Path) -> Numbers:
    planned = queries(plan.spaces, plan.queries)
    places = {marks: scratch / f"search-{marks}" / "space.db" for marks in plan.spaces}
    rows = []
    for marks, path in places.items():
        ours, theirs = asyncio.run(fill(path, marks)), fill_rival(path.with_name("fts5.db"), marks)
        rows.append((f"{marks:,}", f"{ours.cpu_s:.1f}", f"{theirs.cpu_s:.1f}", f"{theirs.cpu_s / ours.cpu_s:.2f}"))
    show("filling the spaces, with making the texts", ("marks", "mica, CPU s", "FTS5, CPU s", "× FTS5"), rows)
    found = asyncio.run(ask(places, planned))
    _show_answers(plan, found)
    for path in places.values():
        shutil.rmtree(path.parent)
    before, last = found[-2:]
    return {
        **{f"search_p95_ms_{short(each.marks)}": p95_ms(each.search) for each in found},
        **{f"search_p95_cpu_ms_{short(each.marks)}": p95_cpu_ms(each.search) for each in found},
        "search_vs_fts5": p95_cpu_ms(last.fts5) / p95_cpu_ms(last.search),
        "search_growth": p95_cpu_ms(last.search) / p95_cpu_ms(before.search),
        "fts5_growth": p95_cpu_ms(last.fts5) / p95_cpu_ms(before.fts5),
        "search_found": last.found[0] / plan.queries,
        "fts5_found": last.found[1] / plan.queries,
        "brief_p95_ms": p95_ms(last.brief),
        "brief_missing": last.missing / len(last.brief),
    }


# -- Briefs during background work ------------------------------------------------------------------------------


async def beside(path: Path, planned: Sequence[str]) -> tuple[list[Cost], list[Cost], tuple[int, int], float]:
    """Measure briefs of an idle space, then while the crystals of all its sessions are made.

    Returns the costs, the number of incomplete briefs, and the seconds for the crystals.
    """
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    missing = [0, 0]

    async def brief(place: int) -> None:
        brief, cost = await timed(memory.brief(planned[len(costs[place]) % len(planned)], budget_tokens=BUDGET_TOKENS))
        costs[place].append(cost)
        missing[place] += bool(brief.missing)
        await asyncio.sleep(PAUSE_S)

    settings = mica.Settings(home=path.parent, transcripts=path.parent, semantic="off", time_zone="UTC")
    async with mica.open(path, settings=settings, clock=lambda: datetime.now(UTC) + timedelta(weeks=2)) as memory:
        await memory.briefs.prepare()
        for query in planned[:WARM_UP]:
            await memory.brief(query)
        for _ in planned:
            await brief(0)
        began = time.perf_counter()
        crystallizing = asyncio.create_task(memory.crystals.make_due())
        while not crystallizing.done():
            await brief(1)
        took_s = time.perf_counter() - began
        check(len(await crystallizing) > 0, "crystals were made meanwhile")
    return *costs, (missing[0], missing[1]), took_s


def compare_backlog(plan: Plan, scratch: Path) -> Numbers:
    marks = plan.waiting_marks
    path = scratch / "backlog" / "space.db"
    asyncio.run(fill(path, marks))
    planned = [query for _, query in queries([marks], min(plan.queries, 100))]
    alone, busy, missing, took_s = asyncio.run(beside(path, planned))
    rows = [
        (
            name,
            f"{len(costs)}",
            f"{median([cost.wall_s * 1e3 for cost in costs]):.0f}",
            f"{p95_ms(costs):.0f}",
            f"{lack / len(costs):.0%}",
        )
        for name, costs, lack in (
            ("nothing else is done", alone, missing[0]),
            (f"{marks // SESSION_MARKS} sessions are crystallized, {took_s:.0f} s", busy, missing[1]),
        )
    ]
    show(
        f"briefs of {marks:,} marks, one after the other with {PAUSE_S * 1e3:.0f} ms between, while",
        ("", "briefs", "p50 ms", "p95 ms", "missing"),
        rows,
    )
    shutil.rmtree(path.parent)
    return {
        "brief_busy_p95_ms": p95_ms(busy),
        "brief_busy_missing": missing[1] / len(busy),
        "brief_alone_missing": missing[0] / len(alone),
        "backlog_s": took_s,
    }


def short(marks: int) -> str:
    return f"{marks // 1_000_000}m" if marks >= 1_000_000 else f"{marks // 1_000}k"


def _show_answers(plan: Plan, found: Sequence[QueryCosts]) -> None:
    columns = ("", "p50 ms", "p95 ms", "p99 ms", "p95 CPU ms", "× FTS5, CPU", "first ms", "its mark in ten", "missing")
    for each in found:
        ours, theirs = (f"{count / plan.queries:.0%}" for count in each.found)
        missing = f"{each.missing / len(each.brief):.0%}"
        rows = []
        for name, costs, *notes in (
            ("FTS5: MATCH … OR …, bm25, 10", each.fts5, "", theirs, ""),
            ("mica: search, 10", each.search, f"{each.first_ms:.1f}", ours, ""),
            (f"mica: brief, {BUDGET_TOKENS:,} tokens", each.brief, "", "", missing),
        ):
            wall = [cost.wall_s * 1e3 for cost in costs]
            quantiles = (median(wall), percentile(wall, 0.95), percentile(wall, 0.99), p95_cpu_ms(costs))
            ratio = f"{p95_cpu_ms(each.fts5) / p95_cpu_ms(costs):.2f}"
            rows.append((name, *(f"{value:.2f}" for value in quantiles), ratio, *notes))
        title = f"{each.marks:,} marks: {plan.queries} queries of {QUERY_WORDS[0]} to {QUERY_WORDS[1]} words"
        show(f"{title}, all spaces and rivals in turn", columns, rows)
        if each.lacking:
            print(f"  missing from briefs: {', '.join(f'{name} {count}' for name, count in each.lacking.items())}")
    growths = [(f"{before.marks:,} → {after.marks:,}", *_growths(before, after)) for before, after in pairwise(found)]
    ratios = ("marks", "search, CPU", "FTS5, CPU", "search, wall", "FTS5, wall", "brief, wall")
    show("growth of p95", ratios, growths)


def _growths(before: QueryCosts, after: QueryCosts) -> list[str]:
    ratios = [
        p95_cpu_ms(after.search) / p95_cpu_ms(before.search),
        p95_cpu_ms(after.fts5) / p95_cpu_ms(before.fts5),
        p95_ms(after.search) / p95_ms(before.search),
        p95_ms(after.fts5) / p95_ms(before.fts5),
        p95_ms(after.brief) / p95_ms(before.brief),
    ]
    return [f"{ratio:.2f}" for ratio in ratios]


# -- Crystals -------------------------------------------------------------------------------------------------


class Clock:
    """A clock that the script sets."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at


def opened_at(path: Path, clock: Clock) -> mica.memory.Opening:
    """Open a space where crystals are only made when this script makes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    crystals = mica.settings.CrystalSettings(auto=False)
    settings = mica.Settings(home=path.parent, transcripts=path.parent, crystals=crystals, time_zone="UTC")
    return mica.open(path, settings=settings, clock=clock)


_LEADS = "CREATE TABLE leads (session TEXT PRIMARY KEY, text TEXT NOT NULL)"


def lead(connection: sqlite3.Connection, session: str) -> None:
    """Run the rival: store the first sentences of a session's marks, up to a tenth of their tokens."""
    texts = [text for (text,) in connection.execute("SELECT text FROM marks WHERE session = ? ORDER BY at", (session,))]
    left = round(sum(map(tokens, texts)) * LEAD_SHARE)
    taken = []
    for sentence in (each for text in texts for each in re.split(r"(?<=\.) ", text)):
        if (price := tokens(sentence)) <= left:
            taken.append(sentence)
            left -= price
    connection.execute("INSERT INTO leads (session, text) VALUES (?, ?)", (session, " ".join(taken)))
    connection.commit()


def leads(connection: sqlite3.Connection, sessions: Iterable[str]) -> None:
    for session in sessions:
        lead(connection, session)


class Observer:
    """Records sessions of marks at the times of a clock, in a space and in the rival's table."""

    def __init__(self, memory: mica.Memory, rival: sqlite3.Connection, clock: Clock) -> None:
        self.memory = memory
        self.rival = rival
        self.clock = clock
        self.emitted = 0
        self._chance = random.Random(SEED)

    async def session(self, name: str, marks: int) -> None:
        """Record a session with one mark each minute."""
        made = [NewMark(text(self._chance), name, "bench") for _ in range(marks)]
        for mark in made:
            self.clock.at += timedelta(minutes=1)
            observe(self.memory, mark)
            self.rival.execute(_INSERT, (mark.session, mark.agent, self.clock.at.isoformat(), mark.text))
        self.rival.commit()
        self.emitted += marks
        await self.memory.events.position()


async def in_new_space(path: Path, work: Callable[[Observer], Awaitable[T]]) -> T:
    """Run the work with an observer of a new space, then check the laws, and return its result."""
    clock = Clock(MONDAY)
    with closing(bare(path.with_name("rival.db"))) as rival:
        rival.execute(_LEADS)
        rival.execute("CREATE INDEX marks_by_session ON marks (session, at)")
        async with opened_at(path, clock) as memory:
            observer = Observer(memory, rival, clock)
            result = await work(observer)
            await check_laws(memory, observer.emitted)
    return result


async def check_laws(memory: mica.Memory, emitted: int) -> None:
    """Exit unless every mark is beneath one session's crystal or waits for one, and `verify` finds nothing."""
    crystals = await memory.crystals.list(level="session", limit=None)
    covered = [source for crystal in crystals for source in crystal.sources]
    check(len(set(covered)) == len(covered), "no mark is beneath two crystals")
    waits = sum(each.count for each in await memory.crystals.waiting() if each.period.startswith(("session:", "pool:")))
    check(len(covered) + waits == emitted, f"{emitted} marks: {len(covered)} beneath crystals, {waits} wait")
    broken = await memory.upkeep.verify()
    check(not broken, f"verify finds nothing, not {broken[:3]}")


class CrystalCosts(NamedTuple):
    """The cost of crystals, and their sizes."""

    ours: list[Cost]
    theirs: list[Cost]
    tokens: int
    source_tokens: int


async def crystallize_sessions(observer: Observer, sessions: int) -> CrystalCosts:
    """Crystallize whole sessions, one after the other, and measure each; the first one warms up the process."""
    made = CrystalCosts([], [], 0, 0)
    for number in range(sessions):
        name = f"whole-{number}"
        await observer.session(name, WHOLE_SESSION_MARKS)
        crystals, cost = await timed(observer.memory.crystals.make(session=name))
        check([each.marks for each in crystals] == [WHOLE_SESSION_MARKS], f"{name} has one crystal of all its marks")
        _, rival = measure(partial(lead, observer.rival, name))
        made.ours.append(cost)
        made.theirs.append(rival)
        tokens, sources = crystals[0].tokens, crystals[0].source_tokens
        made = made._replace(tokens=made.tokens + tokens, source_tokens=made.source_tokens + sources)
    return made


class Level(NamedTuple):
    name: str
    crystals: int
    tokens: int
    source_tokens: int


class Weeks(NamedTuple):
    """The cost of the nightly runs, and the crystals of each level."""

    ours: list[Cost]
    theirs: list[Cost]
    levels: list[Level]


async def crystallize_weeks(observer: Observer, weeks: int) -> Weeks:
    """Record days of sessions, and measure closing the finished periods each night, at half past midnight."""
    nights = Weeks([], [], [])
    for day in range(weeks * 7):
        names = [f"day-{day}-{number}" for number in range(DAY_SESSIONS)]
        for number, name in enumerate(names):
            observer.clock.at = MONDAY + timedelta(days=day, hours=9 + 2 * number)
            await observer.session(name, DAY_SESSION_MARKS)
        observer.clock.at = MONDAY + timedelta(days=day + 1, minutes=30)
        made, cost = await timed(observer.memory.crystals.make_due())
        levels = [each.level for each in made]
        expected = ["session"] * DAY_SESSIONS + ["day"] + ["week"] * (day % 7 == 6)
        check(levels == expected, f"the night after day {day} makes {expected}, not {levels}")
        _, rival = measure(partial(leads, observer.rival, names))
        nights.ours.append(cost)
        nights.theirs.append(rival)
    for name in ("session", "day", "week"):
        found = [each for each in await observer.memory.crystals.list(limit=None) if each.level == name]
        nights.levels.append(
            Level(name, len(found), sum(each.tokens for each in found), sum(each.source_tokens for each in found))
        )
    return nights


def compare_crystals(plan: Plan, scratch: Path) -> Numbers:
    made = asyncio.run(
        in_new_space(scratch / "sessions" / "space.db", lambda each: crystallize_sessions(each, plan.sessions))
    )
    nights = asyncio.run(in_new_space(scratch / "weeks" / "space.db", lambda each: crystallize_weeks(each, plan.weeks)))
    _show_sessions(made)
    growth, last_growth = _show_weeks(nights)
    return {
        "crystal_200_ms": median([cost.wall_s * 1e3 for cost in made.ours[1:]]),
        "crystal_vs_lead": median(
            [theirs.cpu_s / ours.cpu_s for ours, theirs in zip(made.ours[1:], made.theirs[1:], strict=True)]
        ),
        "crystal_share": made.tokens / made.source_tokens,
        "crystal_growth": growth,
        "crystal_growth_last": last_growth,
    }


def _show_sessions(made: CrystalCosts) -> None:
    rows = []
    for name, costs in (
        ("lead: the first sentences, stored", made.theirs),
        ("mica: crystallize(session=…)", made.ours),
    ):
        wall, cpu = ([getattr(cost, part) * 1e3 for cost in costs] for part in ("wall_s", "cpu_s"))
        ratio = median([theirs.cpu_s for theirs in made.theirs[1:]]) / median(cpu[1:]) * 1e3
        rows.append((name, f"{wall[0]:.1f}", spread(wall[1:], digits=1), spread(cpu[1:], digits=1), f"{ratio:.2f}"))
    columns = ("", "first, wall ms", "wall ms (min – median)", "CPU ms", "× lead, CPU")
    show(f"a session of {WHOLE_SESSION_MARKS} marks, {len(made.ours)} sessions", columns, rows)
    share = made.tokens / made.source_tokens
    print(f"  {made.tokens:,} tokens of crystals, {made.source_tokens:,} of their marks: {share:.1%}")


def _show_weeks(nights: Weeks) -> tuple[float, float]:
    """Print the cost of every week; return the ratios of the second and the last week to the first."""
    rows = []
    sums: list[float] = []
    for start in range(0, len(nights.ours), 7):  # whole weeks: only a week's last night makes its crystal
        part = slice(start, start + 7)
        ours, theirs = (sum(cost.cpu_s * 1e3 for cost in costs[part]) for costs in (nights.ours, nights.theirs))
        wall = sum(cost.wall_s * 1e3 for cost in nights.ours[part])
        sums.append(ours)
        cells = (f"{wall:.0f}", f"{ours:.0f}", f"{theirs:.0f}", f"{theirs / ours:.2f}", f"{ours / sums[0]:.2f}")
        rows.append((f"{len(sums)}", *cells))
    title = f"weeks of 7 days of {DAY_SESSIONS} sessions of {DAY_SESSION_MARKS} marks, closed each night"
    show(title, ("week", "wall ms", "CPU ms", "lead, CPU ms", "× lead, CPU", "to the first"), rows)
    levels = [
        (name, f"{count:,}", f"{size:,}", f"{beneath:,}", f"{size / beneath:.1%}")
        for name, count, size, beneath in nights.levels
    ]
    show("crystals by level", ("level", "crystals", "tokens", "tokens beneath", "share"), levels)
    return sums[1] / sums[0], sums[-1] / sums[0]


# -- All of it ------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Plan, Path], Numbers]] = {
    "marks": compare_marks,
    "search": compare_search,
    "backlog": compare_backlog,
    "crystals": compare_crystals,
}


def main() -> None:
    parser = argument_parser(__doc__, quick="fewer marks, and no space of a million")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL

    began = time.perf_counter()
    print(f"{machine()}; SQLite {sqlite3.sqlite_version}; seed {SEED}")
    if options.quick:
        sizes = " and ".join(f"{marks:,}" for marks in plan.spaces)
        print(f"scaled down: {plan.rounds} rounds, spaces of {sizes} marks, {plan.weeks} weeks of crystals")
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory(prefix="mica-bench-") as folder:
        for name, part in PARTS.items():
            if options.only in (None, name):
                numbers |= part(plan, Path(folder))
    print(f"\nafter {time.perf_counter() - began:.0f} s")
    finish(numbers)


if __name__ == "__main__":
    main()
