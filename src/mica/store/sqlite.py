"""The embedded store: one SQLite file for a space.

`SqliteCore` is synchronous and belongs to one thread; a short-lived process may use it directly. `SqliteStore` is the
async store: the same core on one worker thread of its own. Write-ahead logging lets readers and one writer of several
processes go on together; every write is one immediate transaction, committed with a full sync.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw
import msgspec

from mica.errors import DuplicateEvent, InvalidEvent, StoreBusy, StoreUnavailable
from mica.model import (
    MARK,
    ORIGINS,
    Appended,
    Context,
    Event,
    EventId,
    EventQuery,
    Posting,
    Postings,
    Text,
    WriterId,
    event_id,
    mark_of,
    microseconds,
    name_pattern,
    searchable_text,
    split_id,
)
from mica.store.encoding import (
    CACHE_ENTRIES_MAX,
    INLINE_BYTES_MAX,
    READ_ROWS,
    compressed,
    digest,
    expanded,
    labels_of,
    labels_text,
    moment,
    near,
    remember,
)
from mica.store.protocol import (
    Sizes,
    broken_lineage,
    check_event,
    gathered,
    missing_positions,
    orphaned_texts,
    stale_texts,
    wanted_terms,
)
from mica.store.sqlite_file import open_file, translated
from mica.words import terms_of, words

P = ParamSpec("P")
R = TypeVar("R")
Key = tuple[int, int]  # an id: the number of its writer, and its sequence
Row = tuple[Any, ...]  # the schema's tables are STRICT: a column has the type that it declares

PATIENCE_S = 60  # eight writers with full syncs wait for seconds, not minutes: longer means that one is stuck
BUSY_MS = 20  # how long the worker thread itself may wait: readers of this process stand behind it
RETRY_S = 0.005, 0.03  # between two tries, at random, so that writers do not keep step

_COLUMNS = """position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer,
    parent_sequence, depth, origin, error, data, payload"""
_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}
_INSERT = f"INSERT INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a stored event stands in its chain: what its children are compared with."""

    id: EventId
    root_id: EventId
    depth: int
    own: Key
    root: Key


class SqliteCore:
    """The store without its thread. Not safe for several threads; safe for several processes."""

    def __init__(self, path: Path, *, busy_ms: int = PATIENCE_S * 1_000) -> None:
        self._path = path
        self._words: dict[str, dict[str, int]] = {"writers": {}, "names": {}, "sessions": {}, "terms": {}}
        self._contexts: dict[Context, int] = {}
        self._last_context: tuple[Context | None, int] = None, 0
        self._places: dict[EventId, Place] = {}
        self._read_contexts: dict[int, Context] = {}
        self._read_words: dict[tuple[str, int], str] = {}
        with translated(path):
            self._connection = open_file(path, busy_ms=busy_ms)

    @cached_property
    def space(self) -> str:
        return str(self._one("SELECT id FROM space")[0])

    def append(self, events: Sequence[Event]) -> Appended:
        fresh: dict[EventId, Event] = {}
        places: dict[EventId, Place] = {}
        rows: list[Row] = []
        with self._writing():
            known = self._known(events)
            first = position = self._last_position() + 1
            for event in events:
                identifier, above = event.id, event.parent_id
                parent = None if above is None else places.get(above) or self._place(above)
                check_event(event, parent)
                if identifier not in known and identifier not in fresh:
                    fresh[identifier] = event
                    places[identifier] = place = self._new_place(event, parent)
                    rows.append(self._row(event, place, parent, position))
                    position += 1
                elif self._differs(event, fresh.get(identifier)):
                    raise DuplicateEvent(identifier)
            if rows:
                self._connection.executemany(_INSERT, rows)
                self._index(enumerate(fresh.values(), first))
                self._connection.execute("UPDATE space SET last_position = ?", (position - 1,))
        if len(self._places) + len(places) > CACHE_ENTRIES_MAX:
            self._places.clear()
        self._places |= places  # only now: what a failed commit takes back must not be remembered
        return Appended(stored=len(rows), repeated=len(events) - len(rows))

    def event(self, identifier: EventId) -> Event | None:
        writer, sequence = split_id(identifier)
        return next(
            self._read("WHERE writer = (SELECT id FROM writers WHERE name = ?) AND sequence = ?", (writer, sequence)),
            None,
        )

    def event_at(self, position: int) -> Event | None:
        return next(self._read("WHERE position = ?", (position,)), None)

    def events(self, query: EventQuery) -> list[Event]:
        conditions, bindings = self._conditions(query)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        limit = -1 if query.limit is None else query.limit
        found = list(self._read(f"{where} ORDER BY at DESC, position DESC LIMIT ?", (*bindings, limit)))
        return found[::-1]

    def log(self, after: int, *, limit: int) -> list[Event]:
        return list(self._read("WHERE position > ? ORDER BY position LIMIT ?", (after, limit)))

    def chain(self, correlation: str) -> list[Event]:
        try:
            writer, sequence = split_id(correlation)
        except InvalidEvent:
            writer, sequence = WriterId(""), -1  # no root has this id
        return list(
            self._read(
                """WHERE position IN (
                    SELECT position FROM events
                    WHERE root_writer = (SELECT id FROM writers WHERE name = ?) AND root_sequence = ?
                    UNION
                    SELECT position FROM events
                    WHERE context IN (SELECT id FROM contexts WHERE correlation = ?)
                ) ORDER BY at, position""",
                (writer, sequence, correlation),
            )
        )

    def ancestors(self, identifier: EventId) -> list[Event]:
        writer, sequence = split_id(identifier)
        return list(
            self._read(
                """WHERE position IN (
                    WITH RECURSIVE line (found, up_writer, up_sequence) AS (
                        SELECT NULL, parent_writer, parent_sequence FROM events
                        WHERE writer = (SELECT id FROM writers WHERE name = ?) AND sequence = ?
                        UNION
                        SELECT position, parent_writer, parent_sequence FROM line
                        JOIN events ON writer = up_writer AND sequence = up_sequence
                    )
                    SELECT found FROM line
                ) ORDER BY depth DESC""",
                (writer, sequence),
            )
        )

    def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        event = self.event(identifier)
        deepest = None if event is None or depth is None else event.depth + depth
        writer, sequence = split_id(identifier)
        return list(
            self._read(
                """WHERE position IN (
                    WITH RECURSIVE below (found, own_writer, own_sequence) AS (
                        SELECT NULL, (SELECT id FROM writers WHERE name = ?), ?
                        UNION
                        SELECT position, writer, sequence FROM below
                        JOIN events ON parent_writer = own_writer AND parent_sequence = own_sequence
                        WHERE depth <= coalesce(?, depth)
                    )
                    SELECT found FROM below
                ) ORDER BY at, position""",
                (writer, sequence, deepest),
            )
        )

    def postings(self, wanted: Sequence[str]) -> Postings:
        by_term = {
            term: tuple(
                Posting(*row)
                for row in self._rows(
                    """SELECT position, count, length, sessions.name FROM postings
                    JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
                    WHERE term = (SELECT id FROM terms WHERE term = ?) AND is_mark ORDER BY position""",
                    (term,),
                )
            )
            for term in wanted
        }
        lengths = self._rows("SELECT length, count(*) FROM texts WHERE is_mark GROUP BY length ORDER BY length")
        return gathered(by_term, lengths)

    def texts(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        found: dict[int, tuple[int, int, int]] = {}  # position: length, ordinal, length of the session
        wanted = set(positions)
        chosen = (
            "SELECT position, length, session FROM texts WHERE is_mark AND position IN (SELECT value FROM json_each(?))"
        )
        sessions = set()
        for position, length, session in self._rows(chosen, (_json(sorted(wanted)),)):
            found[position] = (length, 0, length)
            sessions.add(session)
        for session in sessions - {None}:
            in_order = "SELECT position, length FROM texts WHERE session = ? AND is_mark ORDER BY at, position"
            together = [(position, length) for position, length in self._rows(in_order, (session,))]
            found |= near(together, wanted, neighbours=neighbours)
        rest = "WHERE position IN (SELECT value FROM json_each(?)) ORDER BY position"
        events = self._read(rest, (_json(sorted(found)),))
        return [
            Text(mark=mark_of(event), length=length, ordinal=ordinal, session_length=whole)
            for event in events
            for length, ordinal, whole in [found[event.position or 0]]
        ]

    def agents(self) -> list[str]:
        statement = "SELECT DISTINCT agent FROM contexts WHERE agent IS NOT NULL ORDER BY agent"
        return [row[0] for row in self._rows(statement)]

    def sizes(self) -> Sizes:
        counts = self._one(
            """SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM texts WHERE is_mark),
            (SELECT count(*) FROM contexts), (SELECT count(*) FROM payloads)"""
        )
        events, marks, contexts, payloads = (count for count in counts)
        files = [self._path, *(self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))]
        size = sum(file.stat().st_size for file in files if file.exists())
        return Sizes(events=events, marks=marks, contexts=contexts, payloads=payloads, size_bytes=size)

    def verify(self) -> list[str]:
        with self._reading():
            return self._broken()

    def _broken(self) -> list[str]:
        problems = [f"SQLite: {row[0]}" for row in self._rows("PRAGMA integrity_check") if row[0] != "ok"]
        problems += [
            f"SQLite: row of {row[0]} names a missing {row[2]}" for row in self._rows("PRAGMA foreign_key_check")
        ]
        if problems:
            return problems  # rows of a damaged file cannot be trusted any further
        for identifier, named, body in self._rows("SELECT id, digest, body FROM payloads"):
            if digest(expanded(body)) != named:
                problems.append(f"payload {identifier} does not have the content that its digest names")
        for identifier, named in self._rows("SELECT id, digest FROM contexts"):
            if bytes.fromhex(self._context(identifier).id) != named:
                problems.append(f"context {identifier} does not have the content that its digest names")
        problems += broken_lineage(self._whole_log())
        return problems + self._missing_positions() + self._stale_texts()

    def _missing_positions(self) -> list[str]:
        """Gaps in the log: positions are given in order and never taken back."""
        gaps = self._rows(
            """SELECT before + 1, position - 1 FROM (
                SELECT position, lag(position, 1, 0) OVER (ORDER BY position) AS before FROM events
                UNION ALL
                SELECT last_position + 1, (SELECT coalesce(max(position), 0) FROM events) FROM space
            ) WHERE position > before + 1"""
        )
        return missing_positions((first, last) for first, last in gaps)

    def rebuild(self) -> int:
        count = 0
        with self._writing():
            for table in ("postings", "texts"):  # terms keep their numbers: other processes remember them
                self._connection.execute(f"DELETE FROM {table}")
            self._forget()
            last = 0
            while batch := self.log(last, limit=READ_ROWS):
                self._index((event.position or 0, event) for event in batch)
                last = batch[-1].position or 0
                count += len(batch)
        return count

    def close(self) -> None:
        self._connection.close()

    # -- Writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._forget()  # what was interned in the transaction is gone with it
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One view of the store for several reads, whatever others write meanwhile."""
        with translated(self._path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _forget(self) -> None:
        self._contexts.clear()
        self._last_context = None, 0
        self._places.clear()
        self._read_contexts.clear()
        self._read_words.clear()
        for cache in self._words.values():
            cache.clear()

    def _last_position(self) -> int:
        return int(self._one("SELECT last_position FROM space")[0])

    def _known(self, events: Iterable[Event]) -> set[EventId]:
        """Which of these events are there already, by id. A new writer's, or what follows its last, costs one look."""
        sequences: defaultdict[WriterId, list[int]] = defaultdict(list)
        for writer, sequence in [split_id(event.id) for event in events]:
            sequences[writer].append(sequence)
        known: set[EventId] = set()
        for writer, wanted in sequences.items():
            number = self._number("writers", writer)
            between = "SELECT 1 FROM events WHERE writer = ? AND sequence BETWEEN ? AND ? LIMIT 1"
            if self._connection.execute(between, (number, min(wanted), max(wanted))).fetchone() is not None:
                there = self._connection.execute(
                    """SELECT sequence FROM json_each(?) AS wanted
                    CROSS JOIN events ON events.writer = ? AND events.sequence = wanted.value""",
                    (_json(wanted), number),
                )
                known.update(event_id(writer, sequence) for (sequence,) in there)
        return known

    def _differs(self, event: Event, known: Event | None) -> bool:
        known = known or self.event(event.id)
        return known is None or msgspec.structs.replace(known, position=event.position) != event

    def _new_place(self, event: Event, parent: Place | None) -> Place:
        own = root = self._key(event.id)
        if event.parent_id is not None:
            root = self._key(event.root_id) if parent is None else parent.root
        return Place(event.id, event.root_id, event.depth, own, root)

    def _row(self, event: Event, place: Place, parent: Place | None, position: int) -> Row:
        """An event as a row of the table, its words interned."""
        body = event.body
        is_inline = len(body) <= INLINE_BYTES_MAX
        if parent is not None:
            above: Key | tuple[None, None] = parent.own
        else:
            above = (None, None) if event.parent_id is None else self._key(event.parent_id)
        return (
            position,
            *place.own,
            self._words["names"].get(event.name) or self._number("names", event.name),
            microseconds(event.at),
            self._context_number(event.context),
            *place.root,
            *above,
            event.depth,
            _ORIGIN[event.origin],
            event.error,
            body.decode() if is_inline else None,
            None if is_inline else self._payload_number(body),
        )

    def _index(self, events: Iterable[tuple[int, Event]]) -> None:
        """Index the text of events, given with their positions."""
        texts: list[Row] = []
        postings: list[Row] = []
        for position, event in events:
            text = searchable_text(event)
            if text is None:
                continue
            found, session = words(text), event.context.session
            number = None if session is None else self._number("sessions", session)
            texts.append((position, number, microseconds(event.at), len(found), event.name == MARK))
            for term, count in Counter(terms_of(found)).items():
                postings.append((self._words["terms"].get(term) or self._number("terms", term), position, count))
        self._connection.executemany(
            "INSERT INTO texts (position, session, at, length, is_mark) VALUES (?, ?, ?, ?, ?)", texts
        )
        postings.sort()  # as the table is: neighbours are written to the same page
        self._connection.executemany("INSERT INTO postings (term, position, count) VALUES (?, ?, ?)", postings)

    def _key(self, identifier: EventId) -> Key:
        writer, sequence = split_id(identifier)
        return self._words["writers"].get(writer) or self._number("writers", writer), sequence

    def _number(self, table: str, word: str) -> int:
        """The number by which this word is interned, made if need be."""
        known = self._words[table]
        if (number := known.get(word)) is not None:
            return number
        column = "term" if table == "terms" else "name"
        row = self._connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (word,)).fetchone()
        if row is None:
            self._connection.execute(f"INSERT INTO {table} ({column}) VALUES (?)", (word,))
            number = self._connection.last_insert_rowid()
        else:
            number = row[0]
        remember(known, word, number)
        return number

    def _context_number(self, context: Context) -> int:
        last, number = self._last_context  # events in a row mostly share one: comparing it costs less than hashing it
        if last is context:
            return number
        if (known := self._contexts.get(context)) is not None:
            self._last_context = context, known
            return known
        name = bytes.fromhex(context.id)
        session = None if context.session is None else self._number("sessions", context.session)
        self._connection.execute(
            """INSERT INTO contexts (digest, session, agent, user, task, correlation, labels)
            VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING""",
            (name, session, context.agent, context.user, context.task, context.correlation, labels_text(context)),
        )
        if self._connection.changes():
            number = self._connection.last_insert_rowid()
        else:
            number = int(self._one("SELECT id FROM contexts WHERE digest = ?", (name,))[0])
        remember(self._contexts, context, number)
        self._last_context = context, number
        return number

    def _payload_number(self, body: bytes) -> int:
        name = digest(body)
        row = self._connection.execute("SELECT id FROM payloads WHERE digest = ?", (name,)).fetchone()
        if row is not None:
            return int(row[0])
        self._connection.execute(
            "INSERT INTO payloads (digest, size_bytes, body) VALUES (?, ?, ?)", (name, len(body), compressed(body))
        )
        return self._connection.last_insert_rowid()

    # -- Reading ----------------------------------------------------------------------------------------------

    def _rows(self, statement: str, bindings: apsw.Bindings = ()) -> Iterator[Row]:
        with translated(self._path):
            yield from self._connection.execute(statement, bindings)

    def _one(self, statement: str, bindings: apsw.Bindings = ()) -> Row:
        return next(iter(self._rows(statement, bindings)))

    def _read(self, rest: str, bindings: apsw.Bindings = ()) -> Iterator[Event]:
        for row in self._rows(f"SELECT {_COLUMNS} FROM events {rest}", bindings):
            yield self._event(row)

    def _whole_log(self) -> Iterator[Event]:
        last = 0
        while batch := self.log(last, limit=READ_ROWS):
            yield from batch
            last = batch[-1].position or 0

    def _event(self, row: Row) -> Event:
        (position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer, parent_sequence,
         depth, origin, error, data, payload) = row  # fmt: skip
        if data is None:
            body = expanded(self._one("SELECT body FROM payloads WHERE id = ?", (payload,))[0])
        else:
            body = data.encode()
        parent = None if parent_writer is None else self._id(parent_writer, parent_sequence)
        return Event(
            id=self._id(writer, sequence),
            name=self._word("names", name),
            at=moment(at),
            body=body,
            context=self._context(context),
            root_id=self._id(root_writer, root_sequence),
            parent_id=parent,
            depth=depth,
            origin=ORIGINS[origin],
            error=bool(error),
            position=position,
        )

    def _id(self, writer: int, sequence: int) -> EventId:
        return event_id(WriterId(self._word("writers", writer)), sequence)

    def _word(self, table: str, number: int) -> str:
        key = (table, number)
        if (word := self._read_words.get(key)) is None:
            word = str(self._one(f"SELECT name FROM {table} WHERE id = ?", (number,))[0])
            remember(self._read_words, key, word)
        return word

    def _context(self, number: int) -> Context:
        if (context := self._read_contexts.get(number)) is None:
            session, agent, user, task, correlation, labels = self._one(
                """SELECT sessions.name, agent, user, task, correlation, labels FROM contexts
                LEFT JOIN sessions ON sessions.id = contexts.session WHERE contexts.id = ?""",
                (number,),
            )
            context = Context(
                session=session, agent=agent, user=user, task=task, correlation=correlation, labels=labels_of(labels)
            )
            remember(self._read_contexts, number, context)
        return context

    def _place(self, identifier: EventId) -> Place | None:
        """Where a stored event stands in its chain."""
        if (known := self._places.get(identifier)) is not None:
            return known
        writer, sequence = split_id(identifier)
        row = self._connection.execute(
            """SELECT root_writer, root_sequence, depth FROM events
            WHERE writer = (SELECT id FROM writers WHERE name = ?) AND sequence = ?""",
            (writer, sequence),
        ).fetchone()
        if row is None:
            return None
        found = Place(identifier, self._id(row[0], row[1]), row[2], self._key(identifier), (row[0], row[1]))
        remember(self._places, identifier, found)
        return found

    def _conditions(self, query: EventQuery) -> tuple[list[str], list[str | int]]:
        conditions: list[str] = []
        bindings: list[str | int] = []

        def require(condition: str, *values: str | int) -> None:
            conditions.append(condition)
            bindings.extend(values)

        if query.session is not None:
            require(
                """context IN (SELECT contexts.id FROM contexts JOIN sessions ON sessions.id = contexts.session
                WHERE sessions.name = ?)""",
                query.session,
            )
        if query.agent is not None:
            require("context IN (SELECT id FROM contexts WHERE agent = ?)", query.agent)
        if query.user is not None:
            require("context IN (SELECT id FROM contexts WHERE user = ?)", query.user)
        if query.names:
            patterns = [name_pattern(pattern) for pattern in query.names]
            fitting = [
                row[0]
                for row in self._rows("SELECT id, name FROM names ORDER BY id")
                if any(pattern.fullmatch(str(row[1])) for pattern in patterns)
            ]
            require(f"name IN ({', '.join('?' * len(fitting))})", *fitting)
        if query.since is not None:
            require("at >= ?", microseconds(query.since))
        if query.until is not None:
            require("at < ?", microseconds(query.until))
        if query.errors is not None:
            require("error = ?", int(query.errors))
        if query.text is not None:
            wanted = wanted_terms(query.text)
            require(
                """position IN (
                    SELECT position FROM postings JOIN terms ON terms.id = postings.term
                    WHERE terms.term IN (SELECT value FROM json_each(?)) GROUP BY position HAVING count(*) = ?)""",
                _json(wanted),
                len(wanted),
            )
        return conditions, bindings

    def _stale_texts(self) -> list[str]:
        """Where the index does not hold what the log says."""
        lengths = {row[0]: row[1] for row in self._rows("SELECT position, length FROM texts")}
        in_order = (
            "SELECT position, terms.term, count FROM postings JOIN terms ON terms.id = postings.term ORDER BY position"
        )
        counts = {
            position: {row[1]: row[2] for row in rows}
            for position, rows in groupby(self._rows(in_order), itemgetter(0))
        }
        return stale_texts(self._whole_log(), lengths, counts) + orphaned_texts({*lengths, *counts})


def threaded(
    method: Callable[Concatenate[SqliteCore, P], R],
) -> Callable[Concatenate[SqliteStore, P], Coroutine[Any, Any, R]]:
    """The core's method, run on the store's worker thread."""

    async def run(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.run(method, *args, **kwargs)

    run.__doc__ = method.__doc__
    return run


class SqliteStore:
    """A space in a file. Open it with `await SqliteStore.open(path)`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-sqlite")
        self._core: SqliteCore | None = None
        self._space = ""

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        store = cls(path)
        try:
            store._core = await store._patiently(partial(SqliteCore, path, busy_ms=BUSY_MS))
            store._space = await store._patiently(lambda: store._core.space if store._core else "")
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    @property
    def space(self) -> str:
        return self._space

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def segments(self) -> Path:
        return self._path.with_name(self._path.name + "-segments")

    async def run(self, method: Callable[Concatenate[SqliteCore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._core is None:
            raise StoreUnavailable(f"the store {self._path} is closed; open it again")
        return await self._patiently(partial(method, self._core, *args, **kwargs))

    async def _patiently(self, call: Callable[[], R]) -> R:
        """Run on the worker thread; while another process writes, let others have the thread and try again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while True:
            try:
                return await loop.run_in_executor(self._thread, call)
            except StoreBusy as error:
                if loop.time() > until:
                    raise StoreBusy(f"{self._path} was busy for {PATIENCE_S} s; which process holds it?") from error
                await asyncio.sleep(random.uniform(*RETRY_S))

    append = threaded(SqliteCore.append)
    event = threaded(SqliteCore.event)
    event_at = threaded(SqliteCore.event_at)
    events = threaded(SqliteCore.events)
    log = threaded(SqliteCore.log)
    chain = threaded(SqliteCore.chain)
    ancestors = threaded(SqliteCore.ancestors)
    descendants = threaded(SqliteCore.descendants)
    postings = threaded(SqliteCore.postings)
    texts = threaded(SqliteCore.texts)
    agents = threaded(SqliteCore.agents)
    sizes = threaded(SqliteCore.sizes)
    verify = threaded(SqliteCore.verify)
    rebuild = threaded(SqliteCore.rebuild)

    async def close(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            # Queued work ends first. Shielded: a cancelled close must not leave the file open or the thread alive.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._end, core))

    def _end(self, core: SqliteCore) -> None:
        self._thread.submit(core.close).result()
        self._thread.shutdown()


def _json(values: Sequence[int] | Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()
