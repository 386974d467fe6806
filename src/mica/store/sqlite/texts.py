"""The SQLite implementation of `TextIndex`, the full-text index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

import apsw

from mica.model.event import MARK, Event, microseconds
from mica.model.mark import Posting, Postings, Text, searchable_text
from mica.store.checks import orphaned_texts, stale_text, stale_texts
from mica.store.sqlite import postings as sqlite_postings
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import Row, as_json, insert
from mica.store.sqlite.statistics import TextStatistics
from mica.store.sqlite.words import SqliteWords
from mica.store.sqlite.worker import SqliteRole, threaded
from mica.words import words


def index(connection: apsw.Connection, interned: SqliteWords, events: Iterable[tuple[int, Event]]) -> None:
    """Add the texts of events to the full-text index. `events` are pairs of position and event."""
    rows: list[Row] = []
    texts: list[tuple[int, list[str]]] = []
    ids: list[str] = []
    sessions = interned.numbers["sessions"]
    for position, event in events:
        if (text := searchable_text(event)) is None:
            continue
        session = event.context.session
        number = None if session is None else sessions.get(session) or interned.number("sessions", session)
        text_words = words(text)
        texts.append((position, text_words))
        ids.append(event.id)
        rows.append((position, number, microseconds(event.at), len(text_words), event.name == MARK))
    if not rows:
        return
    for place in _retracted(connection, ids):
        rows[place] = (*rows[place][:-1], False)
    insert(connection, "texts (position, session, at, length, is_mark)", "(?, ?, ?, ?, ?)", rows)
    term_number = interned.term_numbers(set(chain.from_iterable(text_words for _, text_words in texts))).__getitem__
    sqlite_postings.add(
        connection, ((position, list(filter(None, map(term_number, text_words)))) for position, text_words in texts)
    )


def _retracted(connection: apsw.Connection, ids: Sequence[str]) -> list[int]:
    """Return the indexes in `ids` of the ids whose retraction is already stored."""
    if not next(iter(connection.execute("SELECT EXISTS (SELECT 1 FROM retractions)")))[0]:
        return []
    statement = "SELECT key FROM json_each(?) WHERE value IN (SELECT retracted FROM retractions)"
    return [place for (place,) in connection.execute(statement, (as_json(ids),))]


def clear(connection: apsw.Connection) -> None:
    """Empty the index and delete all vectors. Terms keep their numbers, because other processes cache them."""
    sqlite_postings.clear(connection)
    for table in ("texts", "vectors"):
        connection.execute(f"DELETE FROM {table}")


def unmark(connection: apsw.Connection, position: int) -> None:
    """Exclude the text at this position, if any, from searches of marks, because it was retracted."""
    connection.execute("UPDATE texts SET is_mark = 0 WHERE position = ?", (position,))
    sqlite_postings.unmark(connection, [position])


def stale(connection: apsw.Connection, log: Iterable[Event]) -> list[str]:
    """Return one sentence for each difference between the index and the log.

    They are compared one volume (a part of the index, see `postings`) at a time.
    """
    terms = dict(iter(connection.execute("SELECT id, term FROM terms")))
    between = """SELECT position, length, at, sessions.name FROM texts LEFT JOIN sessions ON sessions.id = session
        WHERE position > ? AND position <= ?"""
    problems: list[str] = []
    events = iter(log)
    event = next(events, None)
    before = 0
    for last, indexed in sqlite_postings.volume_terms(connection):
        rows: list[Row] = connection.execute(between, (before, last)).fetchall()
        lengths = {row[0]: row[1] for row in rows}
        origins = {row[0]: row[2:] for row in rows}
        counts = {
            position: {terms.get(term, ""): count for term, count in of_text.items()}
            for position, of_text in indexed.items()
        }
        while event is not None and (event.position or 0) <= last:
            is_misplaced = origins.get(event.position or 0) not in (
                None,
                (microseconds(event.at), event.context.session),
            )
            problems += stale_texts([event], lengths, counts) or ([stale_text(event)] if is_misplaced else [])
            event = next(events, None)
        problems += orphaned_texts({*lengths, *counts})
        before = last
    return problems


def _postings(
    core: SqliteCore,
    wanted: Sequence[str],
    *,
    weights: Mapping[str, float] | None = None,
    limit: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Postings:
    with core.reading():
        core.statistics.refresh()
        return core.statistics.postings(wanted, weights or {}, limit=limit, since=since, until=until)


def _postings_at(core: SqliteCore, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
    with core.reading():
        core.statistics.refresh()
        return core.statistics.postings_at(wanted, positions)


def _read(core: SqliteCore, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
    with core.reading():
        core.statistics.refresh()
        found = _around(core.connection, core.statistics, positions, neighbours=neighbours)
        return [
            Text(mark=mark, position=mark.position or 0, length=length, ordinal=ordinal, session_length=session_length)
            for mark in core.marks_at(sorted(found))
            for length, ordinal, session_length in [found[mark.position or 0]]
        ]


def _around(
    connection: apsw.Connection, statistics: TextStatistics, positions: Sequence[int], *, neighbours: int
) -> dict[int, tuple[int, int, int]]:
    """Return the marks at these positions and their neighbours: up to `neighbours` marks on each side.

    The result maps the position of each mark to the number of words in the mark, the index of the mark in its session,
    and the number of words in its session.
    """
    found: dict[int, tuple[int, int, int]] = {}
    by_session: defaultdict[int, list[int]] = defaultdict(list)
    chosen = (
        "SELECT position, length, session FROM texts WHERE is_mark AND position IN (SELECT value FROM json_each(?))"
    )
    for position, length, session in connection.execute(chosen, (as_json(sorted(set(positions))),)):
        if session is None:
            found[position] = (length, 0, length)
        else:
            by_session[session].append(position)
    for session, marks in statistics.session_marks(by_session).items():
        found |= marks.near(by_session[session], neighbours=neighbours)
    return found


class SqliteTexts(SqliteRole):
    """Implements `TextIndex` in a SQLite file."""

    postings = threaded(_postings)
    postings_at = threaded(_postings_at)
    read = threaded(_read)
