"""Reading OpenCode sessions."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clients.transcripts import (
    events_of,
    named,
    navigation,
    session_of,
    spoil,
)

from mica.clients.opencode import transcript as opencode
from mica.clients.reader import TranscriptHead
from mica.clients.records import ImportTally


def test_a_session_has_the_completed_calls_and_not_the_failed_ones(opencode_db: Path) -> None:
    """keeps: A-12, TA-02"""
    events = events_of(opencode, session_of(opencode_db))

    assert navigation(events) == [
        ("read", "src/auth.py", 10, 39, 121),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/auth.py", 12, 12, 121),
    ]
    assert [event.data["tool"] for event in named(events, "tool.failed")] == ["grep", "skill"]


def test_a_message_that_is_being_written_is_left_for_later(opencode_db: Path) -> None:
    path = session_of(opencode_db)
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        [(last, data)] = connection.execute("SELECT id, data FROM message ORDER BY time_created DESC LIMIT 1")
        unfinished = json.loads(data)
        del unfinished["time"]["completed"]
        connection.execute("UPDATE message SET data = ? WHERE id = ?", (json.dumps(unfinished), last))
        connection.commit()
    tally = ImportTally()

    running = list(opencode.read(path, closed=False, tally=tally))
    rest = list(opencode.read(path, start=running[-1][0], tally=ImportTally()))

    assert (running[-1][0], tally.torn) == (6, 1)
    assert [event.name for _, events in rest for event in events] == ["model.answer", "mark"]
    assert opencode.extent(path).end == 7


def test_every_session_of_a_database_is_found(opencode_db: Path) -> None:
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        connection.execute("INSERT INTO session VALUES ('ses_2', '', NULL, '/home/dev/other', NULL, 1, 9999999999999)")
        connection.execute("INSERT INTO session VALUES ('../out', '', NULL, '/home/dev/other', NULL, 1, 1)")
        connection.commit()

    assert opencode.find(opencode_db.parent) == [opencode_db / "ses_2", session_of(opencode_db)]
    assert opencode.head(opencode_db / "ses_2") == TranscriptHead(session="ses_2", cwd="/home/dev/other")


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_tool_that_did_not_run_touched_nothing(opencode_db: Path, status: str) -> None:
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        for name, data in connection.execute("SELECT id, data FROM part").fetchall():
            part = json.loads(data)
            if "state" in part:
                part["state"]["status"] = status
                connection.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(part), name))
        connection.commit()

    assert not [event for event in events_of(opencode, session_of(opencode_db)) if "call" in event.data]


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"this is not SQLite" * 100)
    unreadable: dict[str, str] = {}

    assert opencode.find(tmp_path, unreadable=unreadable) == []
    assert list(unreadable) == [str(path)]
    with pytest.raises(OSError, match="database"):
        opencode.find(tmp_path)


def test_a_database_of_another_layout_has_no_sessions(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("CREATE TABLE session (key TEXT)")
        connection.commit()
    assert opencode.find(tmp_path) == []


def test_the_database_is_not_written_to(opencode_db: Path) -> None:
    before = opencode_db.read_bytes()
    opencode_db.chmod(0o400)
    opencode_db.parent.chmod(0o500)
    try:
        assert events_of(opencode, session_of(opencode_db))
        assert sorted(path.name for path in opencode_db.parent.iterdir()) == ["opencode.db"]
    finally:
        opencode_db.parent.chmod(0o700)
    assert opencode_db.read_bytes() == before


@settings(max_examples=40)
@given(data=st.data())
def test_damaged_rows_raise_nothing(opencode_db: Path, data: st.DataObject) -> None:
    path = session_of(opencode_db)
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        table = data.draw(st.sampled_from(["message", "part"]))
        rows = connection.execute(f"SELECT id, data FROM {table} ORDER BY id").fetchall()
        name, text = rows[data.draw(st.integers(0, len(rows) - 1))]
        spoiled = data.draw(
            st.one_of(
                st.just(text).map(lambda value: json.dumps(spoil(json.loads(value), data.draw))),
                st.binary(max_size=20),
                st.text(st.characters(codec="utf-8"), max_size=20),
                st.integers(0, 5),
            )
        )
        connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (spoiled, name))
        connection.commit()
        try:
            list(opencode.read(path, closed=data.draw(st.booleans()), tally=ImportTally()))
        finally:
            connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (text, name))
            connection.commit()
