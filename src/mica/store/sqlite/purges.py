"""The SQLite implementation of `PurgeLog`, the removal of event content.

A purge turns rows of events into tombstones, and deletes the interned words (names, sessions and terms that are stored
once and referred to by number) that no row refers to any more. Events in compressed blocks are turned into rows first.
`scrub` rewrites the file, so that no free page contains a copy.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import apsw
import msgspec

from mica.errors import StoreBusy, StoreFull
from mica.model.event import EMPTY, PURGED, Event, EventId, Tombstone, is_tombstone, make_tombstone
from mica.model.mark import searchable_text
from mica.store.codec import INLINE_BYTES_MAX
from mica.store.purges import Purge
from mica.store.sqlite import beliefs, crystals, replies, trails
from mica.store.sqlite import postings as sqlite_postings
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import COLUMNS, Row, as_json, authority, insert, row_checksum, translated, values_checksum
from mica.store.sqlite.log import EVENTS
from mica.store.sqlite.worker import RETRY_S, SqliteRole, threaded
from mica.store.sqlite.write_ahead_log import describe_copies
from mica.words import terms

BURY_BLOCKS = 4  # blocks rewritten per transaction, which takes about 100 ms, like an ageing step
READERS_S = 10  # how long `scrub` waits for readers of the write-ahead log; a normal read takes less

# For each table of interned words, the queries for rows that refer to a word. Contexts refer to sessions, so their
# unused rows are deleted first.
_REFERRED = {
    "names": ("SELECT 1 FROM events WHERE name = names.id", "SELECT 1 FROM block_names WHERE name = names.id"),
    "payloads": (
        "SELECT 1 FROM events WHERE payload = payloads.id",
        "SELECT 1 FROM block_payloads WHERE payload = payloads.id",
    ),
    "contexts": (
        "SELECT 1 FROM events WHERE context = contexts.id",
        "SELECT 1 FROM block_contexts WHERE context = contexts.id",
    ),
    "sessions": ("SELECT 1 FROM contexts WHERE session = sessions.id",),  # a text has the session of its context
    # A cross join: otherwise SQLite scans all postings for each term.
    "terms": ("SELECT 1 FROM volumes CROSS JOIN postings ON volume = volumes.id AND term = terms.id",),
}
_NUMBERED = ("names", "contexts", "sessions", "terms")  # processes cache these numbers


class SqlitePurges(SqliteRole):
    """Implements `PurgeLog` in a SQLite file."""

    all = threaded(SqliteCore.purges)

    @property
    def generation(self) -> int:
        return -1 if self._worker.core is None else self._worker.core.generation

    async def bury(self, identifiers: Sequence[EventId], cause: Tombstone) -> int:
        portions = await self._worker.run(bury_portions, identifiers)
        return sum([await self._worker.run(bury, portion, cause) for portion in portions])

    async def add(self, purge: Purge) -> None:
        await self._worker.run(add_purge, purge)

    async def scrub(self) -> list[str]:
        path = self._worker.path
        problems = describe_copies(path)
        try:
            await self._worker.run(compact)
        except (StoreFull, StoreBusy) as error:
            problems.append(f"{path} could not be rewritten and its free pages may contain copies: {error}")
        until = asyncio.get_running_loop().time() + READERS_S
        while not await self._worker.run(truncate_log):
            if asyncio.get_running_loop().time() > until:
                problems.append(
                    f"{path}-wal is read by another process and may contain copies; end that process and purge again"
                )
                break
            await asyncio.sleep(random.uniform(*RETRY_S))
        return problems


def bury_portions(core: SqliteCore, identifiers: Iterable[EventId]) -> list[list[EventId]]:
    """Divide ids into portions, so that burying one portion rewrites only a few blocks of compressed events.

    The caller buries each portion in a transaction of its own, so other writers do not wait long.
    """
    by_block: defaultdict[int, list[EventId]] = defaultdict(list)
    with core.reading():
        for identifier in dict.fromkeys(identifiers):
            by_block[_block_of(core, identifier)].append(identifier)
    blocks = sorted(by_block)
    return [
        [identifier for block in blocks[start : start + BURY_BLOCKS] for identifier in by_block[block]]
        for start in range(0, len(blocks), BURY_BLOCKS)
    ]


def _block_of(core: SqliteCore, identifier: EventId) -> int:
    """Return the number of the block that contains an event; 0 if it is in no block."""
    key = core.words.known_key(identifier) if core.blocks.is_used else None
    position = None if key is None else core.blocks.position(*key)
    return 0 if position is None else core.blocks.place(position)


def bury(core: SqliteCore, identifiers: Sequence[EventId], cause: Tombstone) -> int:
    """Replace these events by tombstones in one transaction; returns how many were replaced."""
    with core.writing():
        known = (core.get(identifier) for identifier in dict.fromkeys(identifiers))
        content = [event for event in known if event is not None and not is_tombstone(event)]
        if content:
            restore_rows(core, (event.position or 0 for event in content))
            name, context = core.words.number("names", PURGED), core.words.context_number(EMPTY)
            _replace(core.connection, content, cause, name=name, context=context)
    core.forget()
    return len(content)


def restore_rows(core: SqliteCore, positions: Iterable[int]) -> int:
    """Move the events at these positions from blocks back into rows, inside a transaction; returns how many moved."""
    rows = core.blocks.take_out(positions) if core.blocks.is_used else []
    insert(core.connection, *EVENTS, [_restored(core, row) for row in rows])
    return len(rows)


def _restored(core: SqliteCore, row: Row) -> Row:
    *head, body, payload, _ = row
    if body is not None and len(body) > INLINE_BYTES_MAX:
        payload, body = core.payload_number(body), None
    restored = (*head, body if body is None else body.decode(), payload)
    return (*restored, row_checksum(restored))


def _replace(
    connection: apsw.Connection, events: Sequence[Event], cause: Tombstone, *, name: int, context: int
) -> None:
    """Turn the rows of these events into tombstones, and delete everything that only they refer to.

    `name` and `context` are the row ids of the name and the context of a tombstone.
    """
    positions = as_json([event.position or 0 for event in events])
    connection.pragma("secure_delete", "on")  # deleted content is overwritten with zeros
    with authority(connection, "purge"):
        used = _used(connection, positions)
        used["terms"] = _unindex(connection, events, positions)
        crystals.bury(connection, positions)
        trails.clear(connection)
        beliefs.clear(connection)
        replies.clear(connection)
        for event in events:
            _replace_row(connection, event.position or 0, make_tombstone(event, cause).body, name=name, context=context)
        connection.execute(
            "UPDATE space SET generation = generation + 1, highest_number = max(highest_number, ?)",
            (max(_highest(connection, table) for table in _NUMBERED),),
        )
        for table, referring in _REFERRED.items():
            unused = " AND ".join(f"NOT EXISTS ({reference})" for reference in referring)
            connection.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?)) AND {unused}",
                (as_json(used[table]),),
            )


def _replace_row(connection: apsw.Connection, position: int, body: bytes, *, name: int, context: int) -> None:
    """Turn one row into a tombstone with this body."""
    old = connection.execute(f"SELECT {COLUMNS} FROM events WHERE position = ?", (position,)).fetchone()
    assert old is not None
    row = (*old[:3], name, old[4], context, *old[6:12], 0, body.decode(), None)
    connection.execute(
        "UPDATE events SET name = ?, context = ?, data = ?, payload = NULL, error = 0, crc = ? WHERE position = ?",
        (name, context, body.decode(), row_checksum(row), position),
    )


def _used(connection: apsw.Connection, positions: str) -> dict[str, list[int]]:
    """Return, by table, the row ids of the interned words, contexts and payloads that these events refer to."""
    chosen = "WHERE position IN (SELECT value FROM json_each(?))"
    used = {
        table: [row[0] for row in connection.execute(f"SELECT DISTINCT {column} FROM events {chosen}", (positions,))]
        for table, column in (("names", "name"), ("payloads", "payload"), ("contexts", "context"))
    }
    rows = connection.execute(
        "SELECT DISTINCT session FROM contexts WHERE id IN (SELECT value FROM json_each(?))",
        (as_json(used["contexts"]),),
    )
    return used | {"sessions": [row[0] for row in rows]}


def _unindex(connection: apsw.Connection, events: Sequence[Event], positions: str) -> list[int]:
    """Remove events from the full-text index; returns the row ids of the terms in their texts.

    Terms of the latest texts, which are outside volumes (see `postings`), are left out, because they are still in use.
    """
    by_event = {
        event.position or 0: set(terms(text)) for event in events if (text := searchable_text(event)) is not None
    }
    wanted = as_json(sorted(set().union(*by_event.values())))
    rows = connection.execute("SELECT term, id FROM terms WHERE term IN (SELECT value FROM json_each(?))", (wanted,))
    numbers: dict[str, int] = dict(rows)
    sqlite_postings.remove(
        connection, {position: [numbers[term] for term in own if term in numbers] for position, own in by_event.items()}
    )
    for table in ("texts", "vectors"):
        connection.execute(f"DELETE FROM {table} WHERE position IN (SELECT value FROM json_each(?))", (positions,))
    return sorted({*numbers.values()} - sqlite_postings.unfiled_terms(connection))


def _highest(connection: apsw.Connection, table: str) -> int:
    row = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
    return int(row[0] or 0) if row else 0


def add_purge(core: SqliteCore, purge: Purge) -> None:
    """Store a purge, and delete the cached replies, which may quote purged content."""
    values = purge.tombstone.purge, msgspec.json.encode(purge).decode()
    with core.writing():
        core.connection.execute(
            "INSERT INTO purges (id, purge, crc) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (*values, values_checksum(*values)),
        )
        core.connection.execute("UPDATE space SET generation = generation + 1")
        replies.clear(core.connection)


def compact(core: SqliteCore) -> None:
    """Rewrite the file, because the free space of its pages may contain copies of old rows."""
    with translated(core.path):
        core.connection.execute("VACUUM")


def truncate_log(core: SqliteCore) -> bool:
    """Copy the write-ahead log into the file and empty it. Return False if another process is still reading it."""
    with translated(core.path):
        busy, _, _ = next(iter(core.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
    return not busy
