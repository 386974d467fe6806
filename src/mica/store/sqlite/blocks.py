"""The compressed part of the log in a SQLite store: blocks of old events, and lookup tables for them.

An event is either a row or in a block, so a reader inside one transaction sees it exactly once. Ageing moves old rows
into blocks, one transaction per step; `take_out` moves events back so that a purge can change them. An event whose
parent is unknown, or contradicts its root or depth, stays a row. Therefore every event in a block has the same root as
its parent.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from typing import NamedTuple

import apsw

from mica.errors import StoreDamaged, StoreError
from mica.store.checks import missing_positions
from mica.store.codec import INLINE_BYTES_MAX, expand
from mica.store.sqlite.block_format import (
    BLOCK_BYTES_MAX,
    CHAPTER_POSITIONS,
    EventBlock,
    Header,
    cuts,
    decode_chapter,
    encode,
    encode_chapter,
)
from mica.store.sqlite.file import COLUMNS, Key, Row, as_json, authority, check_row

STEP_EVENTS = CHAPTER_POSITIONS  # per transaction; other writers wait about 100 ms for it
STEP_BYTES_MAX = 8 * BLOCK_BYTES_MAX  # a step also ends here, so that large events do not make it longer
UNSHARED_BYTES_MAX = BLOCK_BYTES_MAX // 4  # a larger payload stays outside, or it would slow down reads of its block
CACHE_BYTES_MAX = 48 * 2**20  # of expanded blocks: enough for those of one step, so that the log is read in order
CHAPTERS_MAX = 16  # expanded chapters in the cache, 64 kB each
# The lookup tables, which can be rebuilt from the blocks.
MAPS = ("block_sessions", "block_contexts", "block_names", "block_roots", "block_payloads")


class BlockFilter(NamedTuple):
    """The conditions of a query, with row ids of sessions and names instead of their texts. None means no condition."""

    session: int | None = None
    names: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    error: int | None = None
    positions: frozenset[int] | None = None
    context: Callable[[int], bool] | None = None
    sessions: frozenset[int] | None = None  # sessions of the contexts that may match


class Blocks:
    """Reads and writes blocks on one connection, inside its transactions."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._reshaped = 0
        self._blocks: OrderedDict[int, EventBlock] = OrderedDict()
        self._blocks_bytes = 0
        self._chapters: OrderedDict[int, array[int]] = OrderedDict()

    def refresh(self) -> None:
        """Empty the cache if any process has changed blocks since the last call."""
        reshaped = self._one("SELECT reshaped FROM space")
        if reshaped != self._reshaped:
            self.forget()
            self._reshaped = reshaped

    def forget(self) -> None:
        self._reshaped = -1
        self._blocks.clear()
        self._blocks_bytes = 0
        self._chapters.clear()

    @property
    def is_used(self) -> bool:
        """True if any event was ever moved into a block, as of the last `refresh`."""
        return self._reshaped != 0

    # -- Reading ----------------------------------------------------------------------------------------------

    def block(self, number: int) -> EventBlock:
        """Return the block with this number, from the cache if possible. Raises StoreError if it is missing."""
        known = self._blocks.get(number)
        if known is None:
            row = self._connection.execute("SELECT header, bodies FROM blocks WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise StoreDamaged(self._connection.filename, f"block {number} is missing")
            known = self._blocks[number] = EventBlock(*row)
            self._blocks_bytes += known.size_bytes
            while self._blocks_bytes > CACHE_BYTES_MAX and len(self._blocks) > 1:
                _, oldest = self._blocks.popitem(last=False)
                self._blocks_bytes -= oldest.size_bytes
        else:
            self._blocks.move_to_end(number)
        return known

    def place(self, position: int) -> int:
        """Return the number of the block that contains the event at this position; 0 if it is in no block."""
        chapter = self._chapter(position // CHAPTER_POSITIONS) if position > 0 else None
        return chapter[position % CHAPTER_POSITIONS] if chapter else 0

    def _chapter(self, number: int) -> array[int] | None:
        known = self._chapters.get(number)
        if known is None:
            row = self._connection.execute("SELECT places FROM chapters WHERE id = ?", (number,)).fetchone()
            if row is None:
                return None
            known = self._chapters[number] = decode_chapter(row[0])
            if len(self._chapters) > CHAPTERS_MAX:
                self._chapters.popitem(last=False)
        else:
            self._chapters.move_to_end(number)
        return known

    def position(self, writer: int, sequence: int) -> int | None:
        """Return the position of an event that was ever moved into a block; None for any other event."""
        run = self._run(writer, sequence)
        if run is None or sequence > run[1]:
            return None
        return run[2] + sequence - run[0]

    def _run(self, writer: int, sequence: int) -> tuple[int, int, int] | None:
        """Return the last run of a writer that starts at or before `sequence`.

        A run is a range of consecutive ids at consecutive positions: first and last sequence, and first position.
        """
        row = self._connection.execute(
            """SELECT first_sequence, last_sequence, first_position FROM runs
            WHERE writer = ? AND first_sequence <= ? ORDER BY first_sequence DESC LIMIT 1""",
            (writer, sequence),
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def known(self, writer: int, sequences: Sequence[int]) -> list[int]:
        """Return those of `sequences` whose events were ever moved into blocks."""
        run = self._run(writer, max(sequences))
        if run is None or run[1] < min(sequences):
            return []
        return [sequence for sequence in sequences if self.position(writer, sequence) is not None]

    def at(self, positions: Iterable[int]) -> list[Row]:
        """Return the events in blocks at these positions as rows, in any order; other positions are skipped."""
        places = sorted((place, position) for position in sorted(positions) if (place := self.place(position)))
        found = []
        for number, group in groupby(places, lambda pair: pair[0]):
            block = self.block(number)
            found += [row_of(block, block.indexes[position]) for _, position in group]
        return found

    def after(self, position: int, *, until: int | None, limit: int) -> list[Row]:
        """Return the first `limit` events in blocks after `position`, as rows in any order.

        No row has a position above `until`, unless `until` is None.
        """
        found: list[int] = []
        chapters = self._connection.execute(
            "SELECT id FROM chapters WHERE id >= ? AND last_position > ? ORDER BY id",
            (max(0, position) // CHAPTER_POSITIONS, position),
        )
        for (number,) in chapters:
            first = number * CHAPTER_POSITIONS
            if len(found) >= limit or (until is not None and first > until):
                break
            places = self._chapter(number) or array("q")
            start = max(0, position + 1 - first)
            found += [first + index for index, place in enumerate(places[start:], start) if place]
        if until is not None:
            found = found[: bisect_right(found, until)]
        return self.at(found[:limit])

    def latest(self, block_filter: BlockFilter, rows: Sequence[Row], limit: int | None) -> list[Row]:
        """Return `rows` and the matching events in blocks, merged, latest first, up to `limit`.

        `rows` are the matching events outside of blocks, latest first.
        """
        found: list[tuple[int, int, Row | tuple[EventBlock, int]]] = [(row[4], row[0], row) for row in rows]
        with closing(self._candidates(block_filter)) as candidates:
            for number, last_at in candidates:
                if limit is not None and len(found) >= limit and (limit == 0 or last_at < found[limit - 1][0]):
                    break  # no later match is possible in the remaining blocks
                block = self.block(number)
                ats, positions = block.ats, block.positions
                found += [(ats[index], positions[index], (block, index)) for index in _fitting(block, block_filter)]
                if limit is not None and len(found) >= limit:  # otherwise all matches are returned
                    found.sort(reverse=True)  # by time, then position: no two have the same
                    del found[limit:]
        found.sort(reverse=True)
        return [row_of(*place) if isinstance(place[0], EventBlock) else place for _, _, place in found]

    def _candidates(self, block_filter: BlockFilter) -> Generator[tuple[int, int], None, None]:
        """Yield pairs of the number of a block that may contain matches, and the latest possible time of a match in it.

        The block with the latest such time comes first.
        """
        conditions = ["TRUE"]
        bindings: list[int | str] = []
        source, last_at = "blocks", "blocks.last_at"
        if block_filter.session is not None:
            source, last_at = "block_sessions JOIN blocks ON blocks.id = block", "block_sessions.last_at"
            conditions.append("session = ?")
            bindings.append(block_filter.session)
        if block_filter.since is not None:
            conditions.append("blocks.last_at >= ?")
            bindings.append(block_filter.since)
        if block_filter.until is not None:
            conditions.append("blocks.first_at < ?")
            bindings.append(block_filter.until)
        if block_filter.error is not None:
            conditions.append("blocks.errors > 0" if block_filter.error else "blocks.errors < blocks.events")
        for column, table, numbers in (
            ("session", "block_sessions", block_filter.sessions),
            ("name", "block_names", block_filter.names),
        ):
            if numbers is not None:
                conditions.append(
                    f"""blocks.id IN (SELECT block FROM {table}
                    WHERE {column} IN (SELECT value FROM json_each(?)))"""
                )
                bindings.append(as_json(sorted(numbers)))
        if block_filter.positions is not None:
            conditions.append("blocks.id IN (SELECT value FROM json_each(?))")
            bindings.append(as_json(sorted({self.place(position) for position in sorted(block_filter.positions)})))
        statement = f"SELECT blocks.id, {last_at} FROM {source} WHERE {' AND '.join(conditions)}"
        yield from self._connection.execute(f"{statement} ORDER BY {last_at} DESC", bindings)

    def members(self, roots: Iterable[Key]) -> Iterator[tuple[Key, Row]]:
        """Yield the events in blocks that descend from these root events, as pairs of the parent's key and the row."""
        for root in roots:
            numbers = self._connection.execute("SELECT block FROM block_roots WHERE (writer, sequence) = (?, ?)", root)
            for (number,) in list(numbers):
                block = self.block(number)
                for index, sequence in enumerate(block.root_sequences):
                    if (block.root_writers[index], sequence) == root and block.parent_writers[index]:
                        yield (block.parent_writers[index], block.parent_sequences[index]), row_of(block, index)

    def of_contexts(self, contexts: Collection[int]) -> list[Row]:
        """Return the events in blocks that have one of these contexts, as rows."""
        numbers = self._connection.execute(
            "SELECT DISTINCT block FROM block_contexts WHERE context IN (SELECT value FROM json_each(?))",
            (as_json(sorted(contexts)),),
        )
        found = []
        for (number,) in list(numbers):
            block = self.block(number)
            found += [row_of(block, index) for index, context in enumerate(block.contexts) if context in contexts]
        return found

    def header(self, writer: int, sequence: int) -> Header | None:
        """Return the header of an event in a block; None if the event is in no block."""
        position = self.position(writer, sequence)
        number = 0 if position is None else self.place(position)
        if position is None or not number:
            return None
        block = self.block(number)
        return block.header(block.indexes[position])

    def counts(self) -> tuple[int, int, int]:
        """Return the number of blocks, of events in blocks, and of large payloads that are stored in blocks."""
        row = self._connection.execute("SELECT count(*), sum(events), sum(payloads) FROM blocks").fetchone()
        assert row is not None
        return row[0], row[1] or 0, row[2] or 0

    # -- Ageing -----------------------------------------------------------------------------------------------

    def age(self, before: int, *, limit: int, at_least: int) -> int:
        """Move up to `limit` rows older than `before` into blocks; returns the number of rows moved.

        `before` is in microseconds since 1970. Must be called in a transaction.
        """
        rows, bodies, unshared = self._due(before, limit)
        is_full = sum(map(len, bodies)) >= STEP_BYTES_MAX  # a few large events fill a step
        if not rows or (len(rows) < at_least and not is_full):
            return 0
        sessions = self._sessions({row.context for row in rows})
        order = sorted(range(len(rows)), key=lambda index: (sessions[rows[index].context], rows[index].position))
        places: dict[int, int] = {}
        with self._authority():
            for start, end in cuts([len(bodies[index]) for index in order]):
                headers = [rows[index] for index in order[start:end]]
                number = self._write(headers, [bodies[index] for index in order[start:end]], sessions)
                places.update((header.position, number) for header in headers)
            self._set_places(places)
            self._store_runs(sorted(rows))
            self._connection.executemany(  # a third of the time of deleting row by row
                "DELETE FROM events WHERE position BETWEEN ? AND ?", list(_ranges(sorted(places)))
            )
            self._connection.executemany("DELETE FROM payloads WHERE id = ?", [(payload,) for payload in unshared])
        return len(rows)

    def _due(self, before: int, limit: int) -> tuple[list[Header], list[bytes], list[int]]:
        """Return the headers and bodies of the oldest rows before the time `before`, and row ids of payloads.

        These payloads are stored apart from their rows, and each is used by one row only. Their content is among the
        bodies, so that it moves into the block.
        """
        headers: list[Header] = []
        bodies: list[bytes] = []
        unshared: list[int] = []
        places: dict[Key, tuple[int, int, int]] = {}
        total = 0
        rows = self._connection.execute(f"SELECT {COLUMNS} FROM events WHERE at < ? ORDER BY at, position", (before,))
        for row in rows:
            check_row(row, self._connection)  # or the block would pass for undamaged
            header = Header._make((*row[:8], row[8] or 0, row[9] or 0, *row[10:13], row[14] or 0))
            places[header.writer, header.sequence] = header.root_writer, header.root_sequence, header.depth
            if row[8] is not None and not self._fits(header, places):
                continue
            body = b"" if row[13] is None else row[13].encode()
            if row[13] is None and (frame := self._unshared_payload(header.payload)) is not None:
                unshared.append(header.payload)
                header, body = header._replace(payload=0), expand(frame)
            headers.append(header)
            bodies.append(body)
            total += len(body)
            if len(headers) >= limit or total >= STEP_BYTES_MAX:
                break
        return headers, bodies, unshared

    def _fits(self, header: Header, places: dict[Key, tuple[int, int, int]]) -> bool:
        """Return True if the parent of the event is stored, has the same root, and is one level above it."""
        key = header.parent_writer, header.parent_sequence
        if key not in places:
            row = self._connection.execute(
                "SELECT root_writer, root_sequence, depth FROM events WHERE writer = ? AND sequence = ?", key
            ).fetchone()
            if row is None:
                parent = self.header(*key)
                if parent is None:
                    return False
                row = parent.root_writer, parent.root_sequence, parent.depth
            places[key] = row[0], row[1], row[2]
        return places[key] == (header.root_writer, header.root_sequence, header.depth - 1)

    def _unshared_payload(self, payload: int) -> bytes | None:
        """Return the compressed payload if it is small enough for a block and only one event uses it; else None."""
        row = self._connection.execute(
            """SELECT body FROM payloads WHERE id = ?1 AND size_bytes <= ?2
            AND (SELECT count(*) FROM events WHERE payload = ?1) = 1
            AND NOT EXISTS (SELECT 1 FROM block_payloads WHERE payload = ?1)""",
            (payload, UNSHARED_BYTES_MAX),
        ).fetchone()
        return None if row is None else row[0]

    def take_out(self, positions: Iterable[int]) -> list[Row]:
        """Remove the events at these positions from their blocks; returns them as rows, which the caller must insert.

        Must be called in a transaction. The blocks are rewritten without these events. The mapping from ids to
        positions stays, because a position never changes.
        """
        wanted = {position: number for position in positions if (number := self.place(position))}
        found: list[Row] = []
        places = dict.fromkeys(wanted, 0)
        if not wanted:
            return found
        with self._authority():
            for number in sorted({*wanted.values()}):
                block = self.block(number)
                headers, sessions = list(block.headers()), self._sessions({*block.contexts})
                self._remove(number, headers, sessions)
                found += [row_of(block, index) for index, header in enumerate(headers) if header.position in wanted]
                rest = [index for index, header in enumerate(headers) if header.position not in wanted]
                if rest:
                    remaining = [headers[index] for index in rest]
                    written = self._write(remaining, [block.body(index) for index in rest], sessions)
                    places.update((header.position, written) for header in remaining)
            self._set_places(places)
        return found

    def remap(self) -> None:
        """Rebuild the lookup tables of the blocks. Must be called in a transaction."""
        with self._authority():
            for table in (*MAPS, "chapters", "runs"):
                self._connection.execute(f"DELETE FROM {table}")
            self._chapters.clear()
            for number in self._numbers():
                headers = list(self.block(number).headers())
                self._map(number, headers, self._sessions({header.context for header in headers}))
                self._set_places({header.position: number for header in headers})
                self._store_runs(sorted(headers))

    def problems(self) -> list[str]:
        """Return one sentence for each damaged block or lookup table."""
        numbers = self._numbers()
        problems = missing_positions(_ranges(self._lost({0, *numbers})))
        for chapter, last in self._connection.execute("SELECT id, last_position FROM chapters"):
            places = self._chapter(chapter) or ()
            if last != chapter * CHAPTER_POSITIONS + max(
                (index for index, block in enumerate(places) if block), default=-1
            ):
                problems.append(f"chapter {chapter} states a wrong last position; `mica upkeep rebuild` repairs it")
        expected = dict.fromkeys(MAPS, 0)
        for number in numbers:
            row = self._connection.execute(
                "SELECT events, errors, payloads, first_at, last_at FROM blocks WHERE id = ?", (number,)
            ).fetchone()
            try:
                block = self.block(number)
                is_whole = block.is_whole()
            except (StoreError, ValueError, IndexError) as error:
                problems.append(f"block {number} cannot be read: {error}")
                continue
            large = sum(len(block.body(index)) > INLINE_BYTES_MAX for index in range(len(block)))
            actual = len(block), sum(block.errors), large, min(block.ats), max(block.ats)
            if not is_whole or actual != row:
                problems.append(f"block {number} does not match its row")
            headers = list(block.headers())
            sessions = self._sessions({*block.contexts})
            lookup_keys = _lookup_keys(headers, sessions)
            is_mapped = all(
                self.place(header.position) == number
                and self.position(header.writer, header.sequence) == header.position
                for header in headers
            )
            for table, keys in lookup_keys.items():
                expected[table] += len(keys)
                conditions = " AND ".join(f"{column} = ?" for column in (*_KEYS[table], "block"))
                statement = f"SELECT 1 FROM {table} WHERE {conditions}"
                is_mapped &= all(self._connection.execute(statement, (*key, number)).fetchone() for key in keys)
            rows = self._connection.execute("SELECT session, last_at FROM block_sessions WHERE block = ?", (number,))
            is_mapped &= dict(iter(rows)) == _last_times(headers, sessions)
            if not is_mapped:
                problems.append(f"the lookup tables do not match block {number}; `mica upkeep rebuild` repairs them")
        for table in MAPS:
            if not problems and self._one(f"SELECT count(*) FROM {table}") != expected[table]:
                problems.append(f"{table} refers to missing blocks; `mica upkeep rebuild` repairs it")
        return problems

    def _lost(self, numbers: Collection[int]) -> Iterator[int]:
        """Yield, in order, the positions that the chapters (see `block_format`) assign to a block not in `numbers`."""
        for (chapter,) in list(self._connection.execute("SELECT id FROM chapters ORDER BY id")):
            for index, place in enumerate(self._chapter(chapter) or ()):
                if place not in numbers:
                    yield chapter * CHAPTER_POSITIONS + index

    # -- Writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def _authority(self) -> Iterator[None]:
        """Permit changes to blocks inside the `with` body. After it, all connections empty their block caches."""
        with authority(self._connection, "age"):
            yield
        self._connection.execute("UPDATE space SET reshaped = reshaped + 1")
        self.forget()

    def _write(self, headers: Sequence[Header], bodies: Sequence[bytes], sessions: dict[int, int]) -> int:
        """Write a block of these events with its lookup rows; returns its number."""
        large = sum(len(body) > INLINE_BYTES_MAX for body in bodies)
        number = self._insert(headers, *encode(headers, bodies), payloads=large)
        self._map(number, headers, sessions)
        return number

    def _remove(self, number: int, headers: Sequence[Header], sessions: dict[int, int]) -> None:
        """Delete a block of these events with its lookup rows."""
        for table, keys in _lookup_keys(headers, sessions).items():
            conditions = " AND ".join(f"{column} = ?" for column in (*_KEYS[table], "block"))
            self._connection.executemany(f"DELETE FROM {table} WHERE {conditions}", [(*key, number) for key in keys])
        self._connection.execute("DELETE FROM blocks WHERE id = ?", (number,))

    def _insert(self, headers: Sequence[Header], header: bytes, bodies: bytes, *, payloads: int) -> int:
        ats = [each.at for each in headers]
        self._connection.execute(
            """INSERT INTO blocks (events, errors, payloads, first_at, last_at, header, bodies)
            VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (len(headers), sum(each.error for each in headers), payloads, min(ats), max(ats), header, bodies),
        )
        return self._connection.last_insert_rowid()

    def _map(self, number: int, headers: Sequence[Header], sessions: dict[int, int]) -> None:
        for table, keys in _lookup_keys(headers, sessions).items():
            columns = (*_KEYS[table], "block")
            rows: list[tuple[int, ...]] = [(*key, number) for key in keys]
            if table == "block_sessions":
                columns = (*columns, "last_at")
                last = _last_times(headers, sessions)
                rows = [(*row, last[row[0]]) for row in rows]
            marks = ", ".join("?" * len(columns))
            self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", sorted(rows))

    def _set_places(self, places: dict[int, int]) -> None:
        """Store the block number of each of these positions; 0 means that the event is in no block."""
        by_chapter = groupby(sorted(places.items()), lambda place: place[0] // CHAPTER_POSITIONS)
        for number, group in by_chapter:
            chapter = self._chapter(number) or array("q", bytes(8 * CHAPTER_POSITIONS))
            for position, block in group:
                chapter[position % CHAPTER_POSITIONS] = block
            last = max((index for index, block in enumerate(chapter) if block), default=-1)
            self._connection.execute(
                """INSERT INTO chapters (id, last_position, places) VALUES (?, ?, ?)
                ON CONFLICT (id) DO UPDATE SET last_position = excluded.last_position, places = excluded.places""",
                (number, number * CHAPTER_POSITIONS + last, encode_chapter(chapter)),
            )

    def _store_runs(self, headers: Sequence[Header]) -> None:
        """Store the mapping from the ids of these events to their positions, as runs (see `_run`).

        `headers` must be in order of position.
        """
        runs: list[tuple[int, int, int, int]] = []  # writer, first and last sequence, first position
        for header in headers:
            if runs:
                writer, first, last, position = runs[-1]
                is_next = (header.writer, header.sequence) == (writer, last + 1)
                if is_next and header.position == position + last + 1 - first:
                    runs[-1] = writer, first, header.sequence, position
                    continue
            runs.append((header.writer, header.sequence, header.sequence, header.position))
        for writer, first, last, position in runs:
            before = self._run(writer, last)
            if before is None or before[1] < first:
                self._store_run(writer, first, last, position)
            else:  # some were in a block before and were taken out of it
                for sequence in range(first, last + 1):
                    if self.position(writer, sequence) is None:
                        self._store_run(writer, sequence, sequence, position + sequence - first)

    def _store_run(self, writer: int, first: int, last: int, position: int) -> None:
        self._connection.execute(
            "INSERT INTO runs (writer, first_sequence, last_sequence, first_position) VALUES (?, ?, ?, ?)",
            (writer, first, last, position),
        )

    def _sessions(self, contexts: Collection[int]) -> dict[int, int]:
        """Return the session number of each of these contexts, 0 for none."""
        rows = self._connection.execute(
            "SELECT id, coalesce(session, 0) FROM contexts WHERE id IN (SELECT value FROM json_each(?))",
            (as_json(sorted(contexts)),),
        )
        return dict(rows)

    def _numbers(self) -> list[int]:
        return [number for (number,) in self._connection.execute("SELECT id FROM blocks ORDER BY id")]

    def _one(self, statement: str) -> int:
        row = self._connection.execute(statement).fetchone()
        assert row is not None
        return int(row[0])


_KEYS = {
    "block_sessions": ("session",),
    "block_contexts": ("context",),
    "block_names": ("name",),
    "block_roots": ("writer", "sequence"),
    "block_payloads": ("payload",),
}


def _lookup_keys(headers: Iterable[Header], sessions: dict[int, int]) -> dict[str, set[tuple[int, ...]]]:
    """Return the keys that a block of these events has in each lookup table."""
    keys: dict[str, set[tuple[int, ...]]] = {table: set() for table in MAPS}
    for header in headers:
        keys["block_contexts"].add((header.context,))
        keys["block_names"].add((header.name,))
        if header.parent_writer:
            keys["block_roots"].add((header.root_writer, header.root_sequence))
        if header.payload:
            keys["block_payloads"].add((header.payload,))
    keys["block_sessions"] = {(sessions[context],) for (context,) in keys["block_contexts"]}
    return keys


def _last_times(headers: Iterable[Header], sessions: dict[int, int]) -> dict[int, int]:
    """Return the time of the last event of each session among these events."""
    return {sessions[each.context]: each.at for each in sorted(headers, key=lambda each: each.at)}


def _ranges(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive positions in `positions`, which are sorted, as pairs of first and last."""
    for _, group in groupby(enumerate(positions), lambda pair: pair[1] - pair[0]):
        (_, first), *rest = group
        yield first, rest[-1][1] if rest else first


def row_of(block: EventBlock, index: int) -> Row:
    """Return an event of a block as a row of the events table; its data is bytes instead of text."""
    header = block.header(index)
    return (
        *header[:8],
        header.parent_writer or None,
        header.parent_sequence if header.parent_writer else None,
        *header[10:13],
        None if header.payload else block.body(index),
        header.payload or None,
        None,  # the frames of a block have checksums
    )


def _fitting(block: EventBlock, block_filter: BlockFilter) -> list[int]:
    """Return the indexes of the events in a block that match the filter."""
    contexts = None
    if block_filter.context is not None:
        contexts = {context for context in {*block.contexts} if block_filter.context(context)}
    columns: list[tuple[array[int], Callable[[int], bool]]] = []  # most selective first
    for column, numbers in (
        (block.positions, block_filter.positions),
        (block.names, block_filter.names),
        (block.contexts, contexts),
    ):
        if numbers is not None:
            columns.append((column, numbers.__contains__))
    if block_filter.error is not None:
        columns.append((block.errors, block_filter.error.__eq__))
    if block_filter.since is not None:
        columns.append((block.ats, block_filter.since.__le__))
    if block_filter.until is not None:
        columns.append((block.ats, block_filter.until.__gt__))
    fitting = list(range(len(block)))
    for column, fits in columns:
        fitting = [index for index in fitting if fits(column[index])]
    return fitting
