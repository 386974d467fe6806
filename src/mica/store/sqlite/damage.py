"""Find rows of a SQLite file that do not match their checksums or cannot be decoded."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import closing

import apsw
import msgspec

from mica.errors import StoreDamaged
from mica.store.codec import digest, expand
from mica.store.migrations import load_schema
from mica.store.sqlite import postings
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import COLUMNS, check_row, values_checksum

# Tables with a checksum in each row, the columns that it covers, and what to do if it does not match.
_RESTORE = "restore a backup"
_REBUILD = "`mica upkeep rebuild` repairs it"
_CHECKED = (
    ("space", "id, created_at", _RESTORE),
    ("purges", "id, purge", _RESTORE),
    ("volumes", "first_position, first_at, last_at, positions, marks", _REBUILD),
    ("vectors", "position, model, vector", _REBUILD),
    ("trails", "key, slug, shape, runs, last_at, trail", _REBUILD),
    ("beliefs", "id, kind, state, session, last_at, belief", _REBUILD),
    ("replies", "concept, source, at, position, declared, reply", _REBUILD),
)


def damaged_rows(core: SqliteCore) -> list[str]:
    """Return one sentence for each row that does not match its checksum or cannot be decoded, and what to do."""
    found = [*_schema(core.connection), *_events(core), *_payloads(core), *_contexts(core)]
    for table, columns, remedy in _CHECKED:
        rows = core.rows(f"SELECT crc, {columns} FROM {table}")
        count = sum(crc is not None and crc != values_checksum(*values) for crc, *values in rows)
        if count:
            found.append(f"{count} of the rows of {table} do not match their checksums; {remedy}")
    if postings.has_wrong_counts(core.connection):
        found.append(f"the full-text index states wrong counts; {_REBUILD}")
    return found


def _schema(connection: apsw.Connection) -> Iterator[str]:
    """Yield one sentence for each definition of a table, index or trigger that differs from the schema."""
    with closing(apsw.Connection(":memory:")) as new:
        for _ in new.execute(load_schema("sqlite").statements):
            pass
        expected, actual = _definitions(new), _definitions(connection)
    for name in sorted(expected.keys() & actual.keys()):
        if expected[name] != actual[name]:
            yield f"{name} is not defined as in a new file; {_RESTORE}"


def _definitions(connection: apsw.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {name: "".join(re.sub(r"--[^\n]*", "", text).split()) for name, text in rows}


def _events(core: SqliteCore) -> Iterator[str]:
    for row in core.rows(f"SELECT {COLUMNS} FROM events ORDER BY position"):
        try:
            check_row(row, core.connection)
            if row[13] is not None:
                msgspec.json.decode(row[13])
        except (StoreDamaged, ValueError, TypeError, struct.error) as error:
            reason = error.what if isinstance(error, StoreDamaged) else f"the event at position {row[0]}: {error}"
            yield f"{reason}; {_RESTORE}, or export the others with `mica export`"


def _payloads(core: SqliteCore) -> Iterator[str]:
    for identifier, named, size, body in core.rows("SELECT id, digest, size_bytes, body FROM payloads"):
        try:
            content = expand(body)
        except StoreDamaged:
            content = b""
        if digest(content) != named or len(content) != size:
            yield f"payload {identifier} does not match its digest"


def _contexts(core: SqliteCore) -> Iterator[str]:
    for (identifier,) in list(core.rows("SELECT id FROM contexts")):
        try:
            core.words.learn_contexts([identifier])
        except StoreDamaged as error:
            yield error.what
        except (ValueError, TypeError) as error:
            yield f"context {identifier} cannot be decoded: {error}"
