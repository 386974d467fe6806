"""Importing transcripts: idempotent, resumable, in any order, and nothing skipped without being counted."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from functools import partial
from pathlib import Path

import msgspec
import pytest

import mica
from mica import EventQuery, Memory
from mica.clients.claude_code import transcript as claude_code
from mica.clients.importer import Progress
from mica.clients.records import ImportTally
from mica.model.event import Event
from mica.model.walk import walks_of
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock

FIXTURES = Path(__file__).parents[1] / "fixtures" / "claude-code"
OTHERS = FIXTURES.parent
A, B, SUBAGENT = (FIXTURES / f"{name}.jsonl" for name in ("transcript-a", "transcript-b-compact-resume", "subagent"))


async def stored(memory: Memory) -> dict[str, Event]:
    """What an import left, without the places it reached."""
    events = await memory.events.query(EventQuery(limit=None))
    return {
        event.id: msgspec.structs.replace(event, position=None) for event in events if event.name != "transcript.read"
    }


async def test_recordings_are_imported_completely_and_once(memory: Memory) -> None:
    """keeps: A-12. All reads and writes with their ranges; usage counted once for each answer."""
    done = await memory.clients.import_transcripts([A, B, SUBAGENT])

    assert (done.files, done.repeated, done.failed) == (3, 0, {})
    assert done.events == len(await stored(memory))
    answers = [event for event in (await stored(memory)).values() if event.name == "model.answer"]
    assert len(answers) == 7 + 8 + 2
    assert sum(int(str(event.data["output_tokens"])) for event in answers) == 308 + 8 * 44 + 88
    assert await memory.upkeep.verify() == []


async def test_a_foreign_event_with_the_name_of_an_offset_is_ignored(memory: Memory) -> None:
    """keeps: U-04.

    An application may use any event name; `mica import` and `mica doctor` once failed on such an event.
    """
    memory.emit("transcript.read", {"text": "the whole transcript"})
    memory.emit("transcript.read", {"transcript": str(A), "bytes": -1, "fingerprint": ""})

    assert await memory.clients.unread([A]) == [A]
    assert (await memory.clients.import_transcripts([A])).files == 1


async def test_every_client_is_read_into_the_same_vocabulary(memory: Memory, opencode_db: Path) -> None:
    """keeps: A-12, TA-02. The file itself identifies its client; importing again stores nothing."""
    transcripts = [OTHERS / "codex" / "rollout.jsonl", OTHERS / "gemini" / "session.jsonl"]
    transcripts += [OTHERS / "copilot" / "events.jsonl", opencode_db / "ses_e20fcff63ffeYSlgXduvIiEfNe", A]

    done = await memory.clients.import_transcripts(transcripts, root=Path("/home/dev/shop"))
    again = await memory.clients.import_transcripts(transcripts, root=Path("/home/dev/shop"))

    assert (done.files, done.failed, done.tally.broken, done.tally.unknown) == (5, {}, 0, {})
    assert (again.events, again.unchanged) == (0, 5)
    walks = walks_of(await memory.events.query(EventQuery(limit=None)))
    assert {walk.agent for walk in walks} == {"codex", "gemini", "copilot", "opencode", "claude-code"}
    assert all("src/auth.py" in walk.touched and "src/db.py" in walk.touched for walk in walks)


async def test_an_opencode_session_that_grows_is_continued(memory: Memory, opencode_db: Path) -> None:
    path = opencode_db / "ses_e20fcff63ffeYSlgXduvIiEfNe"
    await memory.clients.import_transcripts([path])
    assert await memory.clients.unread([path]) == []
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        for number, role in enumerate(("user", "assistant"), start=2):
            message = json.dumps({"role": role, "time": {"created": 1794742999000 + number}})
            values = (f"msg_{number}", path.name, 1794742999000 + number, message)
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", values)
        part = json.dumps({"type": "text", "text": "And the tests?"})
        connection.execute("INSERT INTO part VALUES ('prt_2', 'msg_2', '', ?)", (part,))
        connection.commit()

    assert await memory.clients.unread([path]) == [path]
    done = await memory.clients.import_transcripts([path])

    assert (done.events, done.repeated, done.tally.torn) == (1, 0, 1)  # the answer is still being written


async def test_importing_again_changes_nothing(memory: Memory) -> None:
    """keeps: U-01. No duplicates."""
    await memory.clients.import_transcripts([A, B, SUBAGENT])
    before = await stored(memory)

    again = await memory.clients.import_transcripts([A, B, SUBAGENT])

    assert (again.events, again.repeated, again.unchanged) == (0, 0, 3)
    assert await stored(memory) == before


async def test_the_order_and_location_of_files_do_not_matter(
    memory: Memory, tmp_path: Path, home: mica.Settings
) -> None:
    await memory.clients.import_transcripts([A, B, SUBAGENT])
    moved = []
    for path in (SUBAGENT, B, A):
        moved.append(tmp_path / f"moved-{path.name}")
        moved[-1].write_bytes(path.read_bytes())
    async with mica.open(":memory:", settings=home) as other:
        await other.clients.import_transcripts(moved, root=Path("/home/dev/shop"))
        assert await stored(other) == await stored(memory)

    copied = await memory.clients.import_transcripts(moved, root=Path("/home/dev/shop"))
    assert copied.events == 0
    assert copied.repeated > 0


@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.99])
async def test_a_transcript_that_grows_is_continued_at_its_offset(memory: Memory, tmp_path: Path, share: float) -> None:
    """Resumable: also when the first part ends in the middle of a line."""
    whole = B.read_bytes()
    path = tmp_path / "live.jsonl"
    path.write_bytes(whole[: int(len(whole) * share)])
    first = await memory.clients.import_transcripts([path])
    path.write_bytes(whole)
    second = await memory.clients.import_transcripts([path])
    third = await memory.clients.import_transcripts([path])

    reference = Memory(EphemeralStore(), settings=memory._settings)
    await reference.clients.import_transcripts([B])
    assert await stored(memory) == await stored(reference)
    assert first.events + second.events == len(await stored(memory))
    assert third.unchanged == 1
    await reference.close()


def record(kind: str, uuid: str, content: object, *, output_tokens: int = 0, **more: object) -> str:
    """A line as old versions wrote it: no record says that it ends the turn."""
    message: dict[str, object] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": uuid[:2], "model": "m", "usage": {"input_tokens": 1, "output_tokens": output_tokens}}
    fields = {"type": kind, "uuid": uuid, "message": message, "sessionId": "s1", "cwd": "/home/dev/shop"}
    return json.dumps(fields | {"timestamp": "2026-10-01T11:00:00.000Z", "promptId": "p1"} | more) + "\n"


def text(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


SILENT = [
    record("user", "u1", "Look into it"),
    record("assistant", "a1-1", text("Looking."), output_tokens=3),
    record("assistant", "a1-2", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}], output_tokens=250),
    record("user", "u2", [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]),
    record("assistant", "a2-1", text("Done."), output_tokens=40),
]


async def told(memory: Memory) -> tuple[list[object], list[object]]:
    """The tokens of each answer, and the closing words."""
    events = (await stored(memory)).values()
    answers = [event.data["output_tokens"] for event in events if event.name == "model.answer"]
    return answers, [event.data["text"] for event in events if event.data.get("tags") == ["closing"]]


@pytest.mark.parametrize("count", range(1, len(SILENT)))
async def test_a_running_session_does_not_count_as_ended(
    memory: Memory, clock: HandClock, tmp_path: Path, count: int
) -> None:
    """An unfinished turn stored as complete would stay so, because the first stored version is final."""
    path = tmp_path / "live.jsonl"

    def grow(lines: list[str]) -> None:
        path.write_text("".join(lines))
        os.utime(path, (clock().timestamp(), clock().timestamp()))

    grow(SILENT[:count])
    await memory.clients.import_transcripts([path])
    grow(SILENT)
    await memory.clients.import_transcripts([path])
    clock.move(minutes=31)
    await memory.clients.import_transcripts([path])

    assert await told(memory) == ([250, 40], ["Done."])
    assert (await memory.clients.import_transcripts([path])).unchanged == 1


async def test_an_idle_session_is_settled_without_growing(memory: Memory, clock: HandClock, tmp_path: Path) -> None:
    path = tmp_path / "quiet.jsonl"
    path.write_text("".join(SILENT))
    os.utime(path, (clock().timestamp(), clock().timestamp()))

    live = await memory.clients.import_transcripts([path])
    assert live.tally.unsettled == 1
    assert await told(memory) == ([250], [])
    clock.move(minutes=29)
    assert await memory.clients.unread([path]) == []
    assert (await memory.clients.import_transcripts([path])).unchanged == 1

    clock.move(minutes=1)
    assert await memory.clients.unread([path]) == [path]
    quiet = await memory.clients.import_transcripts([path])
    assert (quiet.events, quiet.repeated, quiet.tally.unsettled) == (2, 0, 0)
    assert await told(memory) == ([250, 40], ["Done."])
    assert await memory.clients.unread([path]) == []


async def test_an_interrupted_import_is_continued(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk and the place it reaches are stored together: nothing is lost, nothing doubled."""
    monkeypatch.setattr("mica.clients.importer.CHUNK_EVENTS", 5)
    seen: list[Progress] = []

    class Cut(Exception):
        pass

    def cut(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 3:
            raise Cut

    with pytest.raises(Cut):
        await memory.clients.import_transcripts([A], on_progress=cut)
    part = len(await stored(memory))
    rest = await memory.clients.import_transcripts([A])

    assert 0 < part < part + rest.events == len(await stored(memory))
    assert rest.repeated == 0


async def test_progress_only_grows_and_ends_at_the_whole(memory: Memory) -> None:
    seen: list[Progress] = []
    await memory.clients.import_transcripts([A, B, SUBAGENT], on_progress=seen.append)
    done = [progress.bytes_done for progress in seen]
    assert done == sorted(done)
    assert (seen[-1].bytes_done, seen[-1].files_done) == (seen[-1].bytes, 3)


async def test_a_replaced_file_is_read_from_its_beginning(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(B.read_bytes())
    await memory.clients.import_transcripts([path])
    path.write_bytes(A.read_bytes())
    done = await memory.clients.import_transcripts([path])
    assert done.events > 0
    assert await memory.clients.unread([path]) == []


async def test_events_of_an_earlier_version_stay_as_they_are(memory: Memory) -> None:
    """An event is never changed, and an import does not stop at it."""
    [(_, first), *_] = list(claude_code.read(A, tally=ImportTally()))
    older = msgspec.structs.replace(first[0], body=b'{"read":"otherwise"}')
    await memory._store.log.append([older])

    done = await memory.clients.import_transcripts([A])

    assert done.repeated == 1
    assert (await memory.events.get(older.id)).data == {"read": "otherwise"}
    assert await memory.clients.unread([A]) == []


async def test_a_refused_event_does_not_stop_an_import(memory: Memory, tmp_path: Path) -> None:
    """A subagent may name what was typed meanwhile as its prompt, which begins no chain: its place does not fit."""
    queued = {"type": "queued_command", "prompt": "And the tests", "commandMode": "prompt"}
    main, subagent = tmp_path / "main.jsonl", tmp_path / "agent.jsonl"
    main.write_text(SILENT[0] + record("attachment", "q1", None, attachment=queued))
    called = [{"type": "tool_use", "id": "c9", "name": "Bash", "input": {"command": "cat a.py"}}]
    returned = [{"type": "tool_result", "tool_use_id": "c9", "content": "ok"}]
    by_agent = partial(record, agentId="x", isSidechain=True)
    subagent.write_text(
        by_agent("assistant", "b1", called, output_tokens=7)
        + by_agent("user", "b2", returned, promptId="q1")
        + by_agent("user", "b3", [], promptId="p1")
        + by_agent("assistant", "b4", text("Fine."), output_tokens=8)
    )

    done = await memory.clients.import_transcripts([main, subagent, A])

    assert (done.files, done.failed) == (3, {})
    [(number, reason), *others] = done.tally.complaints
    assert (number, done.tally.broken) == (2, 1 + len(others))
    assert reason.startswith("agent.jsonl: event ")
    assert "its parent" in reason
    assert all(" was refused" in other for _, other in others)
    assert await memory.clients.unread([main, subagent, A]) == []


async def test_an_unreadable_file_is_reported(memory: Memory, tmp_path: Path) -> None:
    """Gone, a folder, a pipe nobody writes, a link to itself: the others go on."""
    gone, folder, pipe, loop = (tmp_path / f"{name}.jsonl" for name in ("gone", "folder", "pipe", "loop"))
    folder.mkdir()
    os.mkfifo(pipe)
    loop.symlink_to(loop)

    seen: list[Progress] = []
    done = await memory.clients.import_transcripts([gone, folder, pipe, loop, A], on_progress=seen.append)

    assert list(done.failed) == [str(path) for path in (gone, folder, pipe, loop)]
    assert done.failed[str(pipe)] == "not a regular file"
    assert done.files == 1
    assert (seen[-1].bytes_done, seen[-1].files_done) == (A.stat().st_size, 5)
    assert await memory.clients.unread([gone, A]) == []


async def test_subagents_of_a_turn_without_a_prompt_have_a_parent(memory: Memory, tmp_path: Path) -> None:
    """keeps: TE-02. No reference dangles."""

    def without_prompt(line: str) -> bool:
        record = json.loads(line)
        return not (record.get("type") == "user" and isinstance(record["message"]["content"], str))

    path = tmp_path / "untyped.jsonl"
    path.write_text("\n".join(filter(without_prompt, B.read_text().splitlines())) + "\n")
    await memory.clients.import_transcripts([path, SUBAGENT])
    assert await memory.upkeep.verify() == []
    assert [e.name for e in await memory.events.query(EventQuery(names=("turn.started",)))] == ["turn.started"]
