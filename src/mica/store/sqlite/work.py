"""The SQLite implementation of `WorkQueue`, the queue of background work.

A write transaction holds the only write lock, so rows cannot change between its reads and its writes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from mica.errors import ClaimLost
from mica.model.event import microseconds, new_writer, utc_now
from mica.store.leases import COLUMNS, Claim, Work, check_lease, check_moment, check_words, claim_of, work_of
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import as_json
from mica.store.sqlite.worker import SqliteRole, threaded

_FREE = "kind IN (SELECT value FROM json_each(?)) AND due_at <= ? AND (claim IS NULL OR held_until <= ?)"
_SOONER = """UPDATE SET
    due_at = iif(claim IS NULL, min(due_at, excluded.due_at), due_at),
    again_at = iif(claim IS NULL, NULL, min(coalesce(again_at, excluded.due_at), excluded.due_at))"""


def _plan(core: SqliteCore, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
    check_words(kind=kind, about=about)
    check_moment("due_at", due_at)
    with core.writing():
        core.connection.execute(
            f"""INSERT INTO work (kind, about, due_at) VALUES (?, ?, ?)
            ON CONFLICT DO {"NOTHING" if only_new else _SOONER}""",
            (kind, about, microseconds(due_at)),
        )


def _claim(core: SqliteCore, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
    check_words(owner=owner)
    check_moment("due_by", due_by)
    check_lease(lease)
    now = utc_now()
    free = (as_json(list(kinds)), microseconds(due_by), microseconds(now))
    # Check without the write lock first, because usually nothing is due.
    if next(core.rows(f"SELECT 1 FROM work WHERE {_FREE} LIMIT 1", free), None) is None:
        return None
    identifier = new_writer()
    with core.writing():
        rows = core.connection.execute(
            f"""UPDATE work SET claim = ?, owner = ?, held_until = ? WHERE (kind, about) = (
                SELECT kind, about FROM work WHERE {_FREE} ORDER BY due_at, kind, about LIMIT 1
            ) RETURNING {COLUMNS}""",
            (identifier, owner, microseconds(now + lease), *free),
        ).fetchall()
    return claim_of(identifier, rows[0]) if rows else None


def _renew(core: SqliteCore, claim: Claim, *, lease: timedelta) -> Claim:
    check_lease(lease)
    with core.writing():
        rows = core.connection.execute(
            f"UPDATE work SET held_until = ? WHERE kind = ? AND about = ? AND claim = ? RETURNING {COLUMNS}",
            (microseconds(utc_now() + lease), claim.kind, claim.about, claim.id),
        ).fetchall()
    if not rows:
        raise ClaimLost(claim.kind, claim.about, claim.owner)
    return claim_of(claim.id, rows[0])


def _finish(core: SqliteCore, claim: Claim, *, again_at: datetime | None = None) -> None:
    if again_at is not None:
        check_moment("again_at", again_at)
    with core.writing():
        row = core.connection.execute(
            "SELECT again_at FROM work WHERE kind = ? AND about = ? AND claim = ?",
            (claim.kind, claim.about, claim.id),
        ).fetchone()
        if row is None:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        next_at = None if again_at is None else microseconds(again_at)
        planned = [at for at in (next_at, row[0]) if at is not None]
        if planned:
            core.connection.execute(
                """UPDATE work SET due_at = ?, again_at = NULL, claim = NULL, owner = NULL, held_until = NULL
                WHERE kind = ? AND about = ?""",
                (min(planned), claim.kind, claim.about),
            )
        else:
            core.connection.execute("DELETE FROM work WHERE kind = ? AND about = ?", (claim.kind, claim.about))


def _all(core: SqliteCore) -> list[Work]:
    rows = core.rows(f"SELECT {COLUMNS} FROM work ORDER BY due_at, kind, about")
    return [work_of(row) for row in rows]


class SqliteWork(SqliteRole):
    """Implements `WorkQueue` in a SQLite file."""

    plan = threaded(_plan)
    claim = threaded(_claim)
    renew = threaded(_renew)
    finish = threaded(_finish)
    all = threaded(_all)
