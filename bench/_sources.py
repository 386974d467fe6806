"""Six real sources and their contents: PostgreSQL twice, SQLite, a JSON file, a file of lines, and a live object.

Every concept has 54 fragments. All six sources have a statement about `facet 0`, on which they may agree or not.
Both tables of PostgreSQL hold a history, of which the queries select the latest version of each row: `verdicts` by an
index, `learning` by a field of a JSON document, with an index or, as in many applications, without one.
`Plain` runs the same queries by hand, as an application would without mica: drivers and `asyncio.gather`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg

import mica
from mica.settings import Settings, load_settings
from mica.testing.postgres import LocalPostgres, postgres_server

KIND = "code_review"
FACETS = {"verdicts": 12, "learning": 12, "arms": 10, "readback": 8, "signals": 6, "patterns": 6}  # 54 for a concept
VERDICTS = ("HOWL", "WAG", "GROWL", "BARK")
SETTLED_S = 1_700_000_000  # long ago, because a file that has just changed is read each time
JUDGMENTS = """SELECT DISTINCT ON (number) facet, verdict, confidence, at
    FROM bench.judgments WHERE kind = $1 AND id = $2 ORDER BY number, at DESC"""
LEARNING = """SELECT DISTINCT ON (number) learned ->> 'facet' AS facet, learned ->> 'signal' AS signal,
        (learned ->> 'confidence')::float8 AS confidence, at
    FROM bench.learning WHERE learned ->> 'judgment' = $1 ORDER BY number, at DESC"""
TABLES = """
[sources.verdicts]
driver = "postgres"
dsn_env = "BENCH_DSN"
concepts = ["judgment:*"]
rank = 10
query = '''JUDGMENTS'''
parameters = ["{type}", "{id}"]
fragment = { key = "{facet}", value = "{verdict}", confidence = "{confidence}", at = "{at}" }
invalidated_by = ["judgment.*"]

[sources.learning]
driver = "postgres"
dsn_env = "BENCH_DSN"
concepts = ["judgment:*"]
rank = 11
query = '''LEARNING'''
fragment = { key = "{facet}", value = "{signal}", confidence = "{confidence}", at = "{at}" }
invalidated_by = ["judgment.*"]

[sources.arms]
driver = "sqlite"
path = "arms.db"
concepts = ["judgment:*"]
rank = 15
query = "SELECT arm AS key, mean AS value, confidence, at FROM arms WHERE task = $1 ORDER BY rowid"
fragment = { is_estimate = true }
invalidated_by = ["judgment.*"]

[sources.readback]
driver = "json"
path = "readback.json"
bytes_max = 8000000
concepts = ["judgment:*"]
rank = 20
where = { id = "{id}" }
fragment = { key = "{facet}", value = "{verdict}", confidence = "{confidence}", at = "{at}" }
invalidated_by = ["judgment.*"]

[sources.signals]
driver = "jsonl"
path = "signals.jsonl"
concepts = ["judgment:*"]
rank = 21
where = { id = "{id}" }
fragment = { key = "{facet}", value = "{verdict}", confidence = "{confidence}", at = "{at}" }
invalidated_by = ["judgment.*"]

[sources.patterns]
driver = "memory"
concepts = ["judgment:*"]
rank = 30
"""


class Six:
    """The six sources. `fill` creates their contents, `settings` declare five, `register` adds the live object."""

    def __init__(
        self, folder: Path, server: LocalPostgres, *, concepts: int, versions: int = 1, more: str = ""
    ) -> None:
        self.server = server
        self._versions = versions  # of each row in PostgreSQL
        self.folder = folder
        self.identifiers = [f"r{number:05}" for number in range(concepts)]
        self.live = {each: _rows(each, "patterns") for each in self.identifiers}
        file = folder / "sources.toml"
        tables = TABLES.replace("JUDGMENTS", JUDGMENTS).replace("LEARNING", LEARNING)
        file.write_text(tables + more, encoding="utf-8")
        home = {"HOME": str(folder), "MICA_CONFIG": str(file), "MICA_SEMANTIC": "off"}
        self.settings: Settings = load_settings({**home, "BENCH_DSN": server.dsn()})

    @property
    def concepts(self) -> list[str]:
        return [f"judgment:{KIND}:{each}" for each in self.identifiers]

    @property
    def fragments(self) -> int:
        """The number of fragments of one concept, from all six sources."""
        return sum(FACETS.values())

    def register(self, memory: mica.Memory) -> None:
        """Register the live object as a source of a memory."""
        memory.sources.register("patterns", self.patterns)

    def patterns(self, concept: object) -> list[dict[str, object]]:
        return self.live.get(getattr(concept, "id", ""), [])

    async def change(self, identifier: str, verdict: str) -> None:
        """Change a verdict in the database; the caller must emit an event of `judgment.*`."""
        connection = await asyncpg.connect(self.server.dsn(), statement_cache_size=0)
        try:
            await connection.execute(
                "INSERT INTO bench.judgments VALUES ($1, $2, 0, 'facet 0', $3, 0.52, now())", KIND, identifier, verdict
            )
        finally:
            await connection.close()

    async def drop_index(self) -> None:
        """Drop the index, so that every query of `learning` reads the whole table."""
        connection = await asyncpg.connect(self.server.dsn(), statement_cache_size=0)
        try:
            await connection.execute("DROP INDEX bench.learned")
        finally:
            await connection.close()

    def fill(self) -> None:
        """Create the tables and files."""
        rows = {name: [row for each in self.identifiers for row in _rows(each, name)] for name in FACETS}
        asyncio.run(_fill_postgres(self.server, rows, versions=self._versions))
        with closing(sqlite3.connect(self.folder / "arms.db")) as connection:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("CREATE TABLE arms (task TEXT, arm TEXT, mean REAL, confidence REAL, at TEXT)")
            values = [(row["id"], row["facet"], row["mean"], row["confidence"], row["at"]) for row in rows["arms"]]
            connection.executemany("INSERT INTO arms VALUES (?, ?, ?, ?, ?)", values)
            connection.execute("CREATE INDEX tasks ON arms (task)")
            connection.commit()
        (self.folder / "readback.json").write_text(json.dumps(rows["readback"]), encoding="utf-8")
        lines = "".join(json.dumps(row) + "\n" for row in rows["signals"])
        (self.folder / "signals.jsonl").write_text(lines, encoding="utf-8")
        for name in ("readback.json", "signals.jsonl"):
            os.utime(self.folder / name, (SETTLED_S, SETTLED_S))


def _rows(identifier: str, source: str) -> list[dict[str, object]]:
    """Return the rows that a source has about a concept, always the same."""
    rows: list[dict[str, object]] = []
    for number in range(FACETS[source]):
        facet = "facet 0" if number == 0 else f"{source} {number}"
        verdict = VERDICTS[(int(identifier[1:]) + number) % len(VERDICTS)]
        at = f"2026-11-{1 + number % 28:02}T10:00:00+00:00"
        mean = round(0.1 + (int(identifier[1:]) % 80) / 100, 3)
        row = {"id": identifier, "facet": facet, "verdict": verdict, "mean": mean, "confidence": 0.52, "at": at}
        rows.append(row | {"key": facet, "value": verdict})
    return rows


async def _fill_postgres(server: LocalPostgres, rows: Mapping[str, list[dict[str, object]]], *, versions: int) -> None:
    connection = await asyncpg.connect(server.dsn(), statement_cache_size=0)
    try:
        await connection.execute(
            """CREATE SCHEMA bench;
            CREATE TABLE bench.judgments
                (kind text, id text, number int, facet text, verdict text, confidence float8, at timestamptz);
            CREATE TABLE bench.learning
                (number int, learned jsonb, at timestamptz)"""
        )
        judged = [
            (KIND, row["id"], number % FACETS["verdicts"], row["facet"], row["verdict"], row["confidence"], row["at"])
            for number, row in enumerate(rows["verdicts"])
        ]
        learned = [
            (
                number % FACETS["learning"],
                json.dumps(
                    {"judgment": row["id"], "facet": row["facet"], "signal": row["verdict"], "confidence": 0.52}
                ),
                row["at"],
            )
            for number, row in enumerate(rows["learning"])
        ]
        await connection.executemany(
            "INSERT INTO bench.judgments VALUES ($1, $2, $3, $4, $5, $6, ($7::text)::timestamptz)", judged
        )
        await connection.executemany("INSERT INTO bench.learning VALUES ($1, $2, ($3::text)::timestamptz)", learned)
        await connection.execute(
            f"""INSERT INTO bench.judgments SELECT kind, id, number, facet, 'HOWL', 0.3, at - version * interval '1 day'
                FROM bench.judgments, generate_series(1, {versions - 1}) AS version;
            INSERT INTO bench.learning SELECT number, learned, at - version * interval '1 day'
                FROM bench.learning, generate_series(1, {versions - 1}) AS version;
            CREATE INDEX ON bench.judgments (kind, id);
            CREATE INDEX learned ON bench.learning ((learned ->> 'judgment'));
            ANALYZE bench.judgments; ANALYZE bench.learning"""
        )
    finally:
        await connection.close()


@asynccontextmanager
async def six_sources(folder: Path, *, concepts: int = 500, versions: int = 1, more: str = "") -> AsyncIterator[Six]:
    """Yield the six sources, filled, on a PostgreSQL server of their own that is removed after the block.

    `more` is further TOML that declares other sources.
    """
    opened = await asyncio.to_thread(_Filled, folder, concepts, versions, more)
    try:
        yield opened.six
    finally:
        await asyncio.to_thread(opened.close)


class _Filled:
    def __init__(self, folder: Path, concepts: int, versions: int, more: str) -> None:
        self._server = postgres_server()
        self.six = Six(folder, self._server.__enter__(), concepts=concepts, versions=versions, more=more)
        self.six.fill()

    def close(self) -> None:
        self._server.__exit__(None, None, None)


class Plain:
    """The same queries by hand, as in a careful application: a pool, threads, files read again when they changed.

    It has no deadline, no cache and no record of answers.
    """

    def __init__(self, six: Six, *, threads: int = 8) -> None:
        self._six = six
        self._threads = ThreadPoolExecutor(max_workers=threads)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._known: dict[str, tuple[int, list[dict[str, object]]]] = {}

    async def open(self) -> Plain:
        self._pool = await asyncpg.create_pool(self._six.server.dsn(), min_size=4, max_size=4, statement_cache_size=0)
        return self

    async def ask(self, identifier: str) -> int:
        """Query all six sources concurrently about a concept, and return the number of rows."""
        return sum(await asyncio.gather(*(self.of(name, identifier) for name in FACETS)))

    async def of(self, source: str, identifier: str) -> int:
        """Query one source about a concept, and return the number of rows."""
        if source == "verdicts":
            return len(await self._rows(JUDGMENTS, KIND, identifier))
        if source == "learning":
            return len(await self._rows(LEARNING, identifier))
        if source == "patterns":
            return len(self._six.live[identifier])
        work = {"arms": self._arms, "readback": self._readback, "signals": self._signals}[source]
        return len(await asyncio.get_running_loop().run_in_executor(self._threads, work, identifier))

    async def _rows(self, query: str, *values: str) -> list[asyncpg.Record]:
        assert self._pool is not None
        async with self._pool.acquire() as connection, connection.transaction(readonly=True):
            rows: list[asyncpg.Record] = await connection.fetch(query, *values)
            return rows

    def _arms(self, identifier: str) -> list[object]:
        with closing(sqlite3.connect(f"file:{self._six.folder / 'arms.db'}?mode=ro", uri=True)) as connection:
            return list(connection.execute("SELECT arm, mean, confidence, at FROM arms WHERE task = ?", [identifier]))

    def _readback(self, identifier: str) -> list[object]:
        return [row for row in self._file("readback.json") if row["id"] == identifier]

    def _signals(self, identifier: str) -> list[object]:
        return [row for row in self._file("signals.jsonl") if row["id"] == identifier]

    def _file(self, name: str) -> list[dict[str, object]]:
        path = self._six.folder / name
        changed_ns = path.stat().st_mtime_ns
        known = self._known.get(name)
        if known is None or known[0] != changed_ns:
            content = path.read_bytes()
            is_document = name.endswith(".json")
            rows = json.loads(content) if is_document else [json.loads(line) for line in content.splitlines()]
            known = self._known[name] = changed_ns, rows
        return known[1]

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        self._threads.shutdown()
