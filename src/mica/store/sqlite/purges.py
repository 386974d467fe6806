"""How a purge changes the file of the embedded store: rows become tombstones, and words nobody uses any more go.

What has aged is taken out of its block first: here every event that goes is a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from mica.model.event import Event, Tombstone, searchable_text, tombstone
from mica.store.sqlite import crystals as sqlite_crystals
from mica.store.sqlite import postings as sqlite_postings
from mica.store.sqlite import replies as sqlite_replies
from mica.store.sqlite import trails as sqlite_trails
from mica.store.sqlite.authority import authority
from mica.store.sqlite.file import as_json
from mica.words import terms

# The words of a table, and who refers to them. Sessions come after the contexts that name them.
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
    "sessions": ("SELECT 1 FROM contexts WHERE session = sessions.id",),  # a text has that of its event's context
    # A cross join, for else SQLite looks through all postings for each term.
    "terms": ("SELECT 1 FROM volumes CROSS JOIN postings ON volume = volumes.id AND term = terms.id",),
}
_NUMBERED = ("names", "contexts", "sessions", "terms")  # processes remember their numbers


def bury(connection: apsw.Connection, events: Sequence[Event], told: Tombstone, *, name: int, context: int) -> None:
    """Replace these events by tombstones inside of a transaction. The name and the context are those of a tombstone."""
    positions = as_json([event.position or 0 for event in events])
    connection.pragma("secure_delete", "on")  # what is deleted is overwritten with zeros
    with authority(connection, "purge"):
        used = _used(connection, positions)
        used["terms"] = _unindexed(connection, events, positions)
        sqlite_crystals.bury(connection, positions)
        sqlite_trails.clear(connection)
        sqlite_replies.clear(connection)
        connection.executemany(
            "UPDATE events SET name = ?, context = ?, data = ?, payload = NULL, error = 0 WHERE position = ?",
            [(name, context, tombstone(event, told).body.decode(), event.position) for event in events],
        )
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


def truncate_log(connection: apsw.Connection) -> bool:
    """Bring everything from the log into the file and empty the log; False while another process reads in it."""
    busy, _, _ = next(iter(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
    return not busy


def _used(connection: apsw.Connection, positions: str) -> dict[str, list[int]]:
    """The numbers of the words that events at these positions refer to, by table."""
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


def _unindexed(connection: apsw.Connection, events: Sequence[Event], positions: str) -> list[int]:
    """Take events out of full text; the numbers of their terms that no text has which is in no volume yet."""
    said = {event.position or 0: set(terms(text)) for event in events if (text := searchable_text(event)) is not None}
    wanted = as_json(sorted(set().union(*said.values())))
    rows = connection.execute("SELECT term, id FROM terms WHERE term IN (SELECT value FROM json_each(?))", (wanted,))
    numbers: dict[str, int] = dict(rows)
    sqlite_postings.remove(
        connection, {position: [numbers[term] for term in of if term in numbers] for position, of in said.items()}
    )
    for table in ("texts", "vectors"):
        connection.execute(f"DELETE FROM {table} WHERE position IN (SELECT value FROM json_each(?))", (positions,))
    return sorted({*numbers.values()} - sqlite_postings.unfiled_terms(connection))


def _highest(connection: apsw.Connection, table: str) -> int:
    row = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
    return int(row[0] or 0) if row else 0
