"""The files that hooks and mica share beside a space."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest

from mica import hook
from mica.clients.spool import (
    FAILURES_SHOWN,
    FORGOTTEN_S,
    OLD_S,
    UNRENDERED_S,
    Cursor,
    PromptAnswer,
    SessionAnswer,
    SessionState,
    SpoolLine,
    Spools,
    hooks_folder,
    register_command,
)


@pytest.fixture
def spools(tmp_path: Path) -> Spools:
    return Spools(hooks_folder(tmp_path / "space.db"))


def spool_line(number: int) -> bytes:
    return (
        json.dumps({"v": 1, "at": number, "client": "claude", "event": "Stop"}, separators=(",", ":")).encode() + b"\n"
    )


def write(spools: Spools, name: str, content: bytes) -> Path:
    path = spools.folder / "spool" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read_all(spools: Spools, session: str) -> list[int]:
    """Read a session's spool as an ingest does; returns the times of its lines."""
    cursor, times = spools.cursor(session), []
    for file in spools.waiting().get(session, []):
        for portion in spools.portions(cursor, file):
            times += [line.at for line in portion.lines]
            spools.save_cursor(session, cursor, file, portion.end)
    return times


def test_lines_are_read_once_and_a_torn_one_is_left_for_later(spools: Spools) -> None:
    path = write(spools, "s1.jsonl", spool_line(1) + spool_line(2) + b'{"v":1,"at":3')
    assert read_all(spools, "s1") == [1, 2]
    assert spools.waiting_bytes() == len(b'{"v":1,"at":3')

    path.write_bytes(spool_line(1) + spool_line(2) + spool_line(3))

    assert spools.has_news()
    assert read_all(Spools(spools.folder), "s1") == [3]
    assert not Spools(spools.folder).has_news()


def test_a_replaced_spool_is_read_from_its_beginning(spools: Spools) -> None:
    write(spools, "s1.jsonl", spool_line(1) + spool_line(2))
    read_all(spools, "s1")

    write(spools, "s1.jsonl", spool_line(7))

    assert read_all(spools, "s1") == [7]


def test_a_line_after_a_torn_one_is_read_and_a_broken_one_is_reported(spools: Spools) -> None:
    file = write(spools, "s1.jsonl", b'{"v":1,"at":1,"cli' + spool_line(2) + b"nonsense\n" + spool_line(3))

    [portion] = spools.portions(Cursor(), file)

    assert [line.at for line in portion.lines] == [2, 3]
    assert len(portion.broken) == 1
    assert portion.end == file.stat().st_size


def test_a_damaged_line_is_put_aside_even_if_it_is_still_json(spools: Spools) -> None:
    """keeps: U-09. Any flipped bit of a line that a hook wrote is noticed, or changes nothing; old lines are read."""
    whole = hook._checked(spool_line(2))
    for bit in range(8 * len(whole)):
        damaged = bytearray(spool_line(1) + whole + spool_line(3))
        damaged[len(spool_line(1)) + bit // 8] ^= 1 << bit % 8
        file = write(spools, "s1.jsonl", bytes(damaged))

        [portion] = spools.portions(Cursor(), file)

        times = [line.at for line in portion.lines]
        if portion.broken:
            assert times == [1, 3]
            assert portion.unread in damaged
        else:
            assert times == [1, 2, 3]
            assert portion.lines[1] == msgspec.json.decode(spool_line(2), type=SpoolLine) or bit // 8 > len(whole) - 20


def test_lines_put_aside_are_named_until_the_file_is_removed(spools: Spools) -> None:
    write(spools, "s1.jsonl", b"")
    assert spools.damaged == []

    spools.put_aside(b"nonsense\n")
    spools.put_aside(b"more\n")

    [named] = spools.damaged
    assert named.startswith(f"2 lines that hooks wrote could not be read and are in {spools.folder}")
    spools.sweep()
    assert spools.damaged == []


def test_the_file_that_a_hook_wrote_beside_a_locked_one_comes_second(spools: Spools) -> None:
    write(spools, "s1.77-1.jsonl", spool_line(2))
    write(spools, "s1.jsonl", spool_line(1))
    write(spools, "s2.jsonl", spool_line(9))

    assert list(spools.waiting()) == ["s1", "s2"]
    assert read_all(spools, "s1") == [1, 2]


def test_a_cursor_keeps_the_state_of_its_session(spools: Spools) -> None:
    file = write(spools, "s1.jsonl", spool_line(1))
    state = SessionState(started=True, root="/shop", turn="p1", prompts=["p1"], command=("nav", "auth"))

    spools.save_cursor("s1", Cursor(remembered=state), file, file.stat().st_size)

    assert spools.cursor("s1").remembered == state
    (spools.folder / "spool" / "s1.cursor").write_text("{")
    assert spools.cursor("s1") == Cursor()


def test_a_finished_spool_is_removed_when_its_session_is_over_or_after_a_while(spools: Spools) -> None:
    for session in ("over", "quiet", "busy", "unread"):
        write(spools, f"{session}.jsonl", spool_line(1))
        if session != "unread":
            read_all(spools, session)
    long_ago = time.time() - OLD_S - 10
    os.utime(spools.folder / "spool" / "quiet.jsonl", (long_ago, long_ago))

    for session in ("over", "quiet", "busy", "unread"):
        spools.remove_finished(session, spools.cursor(session), is_over=session in ("over", "unread"))

    assert set(spools.waiting()) == {"busy", "unread"}
    spools.sweep()
    assert set(spools.waiting()) == {"unread"}


def test_a_spool_stays_until_it_is_rendered_but_not_for_long(spools: Spools) -> None:
    """A session that starts gets from it what the rendered brief lacks; its text is not redacted."""
    for session in ("new", "old", "grown"):
        write(spools, f"{session}.jsonl", spool_line(1))
        read_all(spools, session)
        cursor = spools.cursor(session)
        cursor.is_over = True
        file = spools.folder / "spool" / f"{session}.jsonl"
        spools.save_cursor(session, cursor, file, file.stat().st_size)
    long_ago = time.time() - UNRENDERED_S - 10
    os.utime(spools.folder / "spool" / "old.jsonl", (long_ago, long_ago))

    spools.remove_rendered()
    assert set(spools.waiting()) == {"new", "grown"}

    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello", read=spools.offsets()))
    with (spools.folder / "spool" / "grown.jsonl").open("ab") as opened:
        opened.write(spool_line(2))
    spools.remove_rendered()
    assert set(spools.waiting()) == {"grown"}


def test_cursors_of_old_sessions_are_forgotten_but_never_a_spool(spools: Spools) -> None:
    old, new = write(spools, "old.cursor", b"{}"), write(spools, "new.cursor", b"{}")
    spool = write(spools, "old.jsonl", spool_line(1))
    for path in (old, spool):
        os.utime(path, (time.time() - FORGOTTEN_S - 10,) * 2)

    spools.forget_old()

    assert not old.exists()
    assert new.exists()
    assert spool.exists()


def test_only_one_process_holds_the_lock(spools: Spools) -> None:
    with spools.lock() as first, Spools(spools.folder).lock() as second:
        assert (first, second) == (True, False)
    with spools.lock() as again:
        assert again


def test_switches_are_files_that_the_hook_sees(spools: Spools) -> None:
    assert (spools.is_on, spools.keeps_prompts) == (True, True)

    spools.switch(on=False, prompts=False)
    assert (spools.is_on, spools.keeps_prompts) == (False, False)
    spools.switch(on=True)

    assert (spools.is_on, spools.keeps_prompts) == (True, False)
    assert (spools.folder / hook.NO_PROMPTS.decode()).exists()


def test_answers_are_written_whole_and_removed(spools: Spools) -> None:
    prompt = PromptAnswer(engine="/e", entry="m:f", library="/l", past="/p", trees={"/shop": "/t"})
    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello", receipt="r1"))
    spools.write_answer(hook.PROMPT_ANSWER, prompt)

    assert spools.session_answer() == SessionAnswer(text="hello", receipt="r1")
    assert spools.prompt_answer() == prompt
    spools.write_answer(hook.SESSION_ANSWER, None)
    spools.write_answer(hook.PROMPT_ANSWER, None)
    assert (spools.session_answer(), spools.prompt_answer()) == (None, None)
    assert list(spools.folder.iterdir()) == []


def test_a_prompt_answer_without_an_entry_point_is_read(spools: Spools) -> None:
    """Files written by an earlier version have none."""
    spools.folder.mkdir()
    raw = {"engine": "/e", "library": "/l", "past": "/p", "trees": {}, "holdout": 0.1, "version": 2}
    (spools.folder / hook.PROMPT_ANSWER.decode()).write_text(json.dumps(raw))

    assert spools.prompt_answer() == PromptAnswer(engine="/e", library="/l", past="/p", trees={})


def test_the_latest_failures_are_listed_oldest_first(spools: Spools) -> None:
    spools.folder.mkdir()
    failures = [json.dumps({"at": number, "reason": f"r{number}"}) for number in range(FAILURES_SHOWN + 5)]
    (spools.folder / "failures.jsonl.old").write_text("\n".join(failures[:10]) + "\ntorn")
    (spools.folder / "failures.jsonl").write_text("\n".join(failures[10:]))

    assert [failure.at for failure in spools.failures()] == list(range(5, FAILURES_SHOWN + 5))


def test_the_command_that_starts_an_ingest_is_registered_once(tmp_path: Path) -> None:
    register_command(tmp_path / "data")
    path = tmp_path / "data" / hook.COMMAND.decode()
    before = path.stat().st_mtime_ns

    register_command(tmp_path / "data")

    assert path.read_text().split("\n") == [sys.executable, "-P", "-m", "mica", "ingest", ""]
    assert path.stat().st_mtime_ns == before


def test_an_unreadable_session_answer_is_none(spools: Spools) -> None:
    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="a"))
    (spools.folder / "session.json").write_bytes(b"\xff")

    assert spools.session_answer() is None
