"""Shared work in an SQLite file. Who writes holds the only lock, so what is seen here is what is changed."""

from __future__ import annotations

from collections.abc import Collection

import apsw

from mica.model.event import Claim, Work
from mica.store.leases import COLUMNS, claim_of, work_of
from mica.store.sqlite.file import as_json

_FREE = "kind IN (SELECT value FROM json_each(?)) AND due_at <= ? AND (claim IS NULL OR held_until <= ?)"


_SOONER = """UPDATE SET
    due_at = iif(claim IS NULL, min(due_at, excluded.due_at), due_at),
    again_at = iif(claim IS NULL, NULL, min(coalesce(again_at, excluded.due_at), excluded.due_at))"""


def plan(connection: apsw.Connection, kind: str, about: str, *, due_at: int, only_new: bool) -> None:
    connection.execute(
        f"""INSERT INTO work (kind, about, due_at) VALUES (?, ?, ?)
        ON CONFLICT DO {"NOTHING" if only_new else _SOONER}""",
        (kind, about, due_at),
    )


def is_due(connection: apsw.Connection, kinds: Collection[str], *, due_by: int, now: int) -> bool:
    """Whether there is something to claim. Asked before the lock that all writers share is taken."""
    bindings = (as_json(list(kinds)), due_by, now)
    return connection.execute(f"SELECT 1 FROM work WHERE {_FREE} LIMIT 1", bindings).fetchone() is not None


def claim(
    connection: apsw.Connection,
    identifier: str,
    kinds: Collection[str],
    *,
    owner: str,
    due_by: int,
    now: int,
    held_until: int,
) -> Claim | None:
    row = connection.execute(
        f"""UPDATE work SET claim = ?, owner = ?, held_until = ? WHERE (kind, about) = (
            SELECT kind, about FROM work WHERE {_FREE} ORDER BY due_at, kind, about LIMIT 1
        ) RETURNING {COLUMNS}""",
        (identifier, owner, held_until, as_json(list(kinds)), due_by, now),
    ).fetchall()
    return claim_of(identifier, row[0]) if row else None


def renew(connection: apsw.Connection, held: Claim, *, held_until: int) -> Claim | None:
    """The claim with its new end; None when it holds nothing."""
    row = connection.execute(
        f"UPDATE work SET held_until = ? WHERE kind = ? AND about = ? AND claim = ? RETURNING {COLUMNS}",
        (held_until, held.kind, held.about, held.id),
    ).fetchall()
    return claim_of(held.id, row[0]) if row else None


def finish(connection: apsw.Connection, held: Claim, *, again_at: int | None) -> bool:
    """Whether the claim was good."""
    found = "SELECT again_at FROM work WHERE kind = ? AND about = ? AND claim = ?"
    row = connection.execute(found, (held.kind, held.about, held.id)).fetchone()
    if row is None:
        return False
    planned = [at for at in (again_at, row[0]) if at is not None]
    if planned:
        connection.execute(
            """UPDATE work SET due_at = ?, again_at = NULL, claim = NULL, owner = NULL, held_until = NULL
            WHERE kind = ? AND about = ?""",
            (min(planned), held.kind, held.about),
        )
    else:
        connection.execute("DELETE FROM work WHERE kind = ? AND about = ?", (held.kind, held.about))
    return True


def work(connection: apsw.Connection) -> list[Work]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM work ORDER BY due_at, kind, about")
    return [work_of(row) for row in rows]
