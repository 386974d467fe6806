"""Summaries that agents wrote when they compacted their windows: marks of the agent, never prompts of the user."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.clients.transcripts import chat, events_of, marks, named, rollout, says, session_of, write

import mica
from mica.clients.claude_code import transcript as claude_code
from mica.clients.codex import transcript as codex
from mica.clients.copilot import transcript as copilot
from mica.clients.gemini import transcript as gemini
from mica.clients.hook_events import HookReader
from mica.clients.opencode import transcript as opencode
from mica.clients.records import ImportTally
from mica.clients.spool import SpoolLine
from mica.clients.summaries import summary_in
from mica.model.event import Event
from mica.settings import Settings

SUMMARY = "1. Primary request: move the queue to Redis streams.\n2. Open: the dead letter queue."
CLAUDE = (
    "This session is being continued from a previous conversation that ran out of context. The summary below covers "
    f"the earlier portion of the conversation.\n\nSummary:\n{SUMMARY}\n\nIf you need specific details from before "
    "compaction (like exact code snippets), read the full transcript at: /home/dev/x.jsonl\nContinue the conversation "
    "from where it left off without asking the user any further questions."
)
CODEX = (
    "Another language model started to solve this problem and produced a summary of its thinking process. Here is the "
    f"summary produced by the other language model, use it to assist with your own analysis:\n{SUMMARY}"
)


@pytest.mark.parametrize(
    "text",
    [
        CLAUDE,
        CODEX,
        SUMMARY,
        f"<analysis>Let me think.\n\nSummary: no</analysis>\n\n<summary>\n{SUMMARY}\n</summary>",
        f"Analysis:\nI look at each message.\n\nSummary:\n{SUMMARY}",
        CLAUDE.partition("\n\nIf you need")[0] + "\n\nPlease continue the conversation from where we left it off.",
        f"<state_snapshot>\n{SUMMARY}\n</state_snapshot>",
    ],
)
def test_the_words_of_the_client_are_removed(text: str) -> None:
    assert summary_in(text) == SUMMARY


@pytest.mark.parametrize("text", ["", "  \n", "<system-reminder>x</system-reminder>", "Summary:\n"])
def test_a_compaction_without_a_summary_has_none(text: str) -> None:
    assert summary_in(text) == ""


def user(text: str, number: int, **more: object) -> dict[str, object]:
    """A record of Claude Code with a message of the user."""
    return {
        "type": "user",
        "sessionId": "s1",
        "promptId": "p1",
        "uuid": f"u{number}",
        "timestamp": f"2026-11-15T11:00:{number:02}Z",
        "cwd": "/home/dev/shop",
        "message": {"role": "user", "content": text},
        **more,
    }


def claude_events(folder: Path) -> list[Event]:
    compacted = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
    path = write(
        folder / "s1.jsonl",
        user("Move the queue", 0),
        user(CLAUDE, 1, **compacted),
        user(CLAUDE.replace("dead letter", "second"), 2, **compacted),
    )
    return events_of(claude_code, path)


def codex_events(folder: Path) -> list[Event]:
    texts = (CODEX, CODEX.replace("dead letter", "second"), "")
    compacted: list[tuple[str, dict[str, object]]] = [("compacted", {"message": text}) for text in texts]
    return events_of(codex, rollout(folder / "rollout-1.jsonl", says("Move the queue"), *compacted, says(CODEX)))


def copilot_events(folder: Path) -> list[Event]:
    def event(kind: str, number: int, **data: object) -> dict[str, object]:
        return {"type": kind, "data": data, "id": f"{kind}{number}", "timestamp": f"2026-11-15T11:00:{number:02}Z"}

    path = write(
        folder / "events.jsonl",
        event("session.start", 0, sessionId="s1", context={"cwd": "/home/dev/shop"}),
        event("user.message", 1, content="Move the queue"),
        event("session.compaction_complete", 2, success=True, summaryContent=SUMMARY),
        event("session.compaction_complete", 3, success=True, summaryContent=SUMMARY.replace("dead letter", "second")),
        event("session.compaction_complete", 4, success=False),
    )
    return events_of(copilot, path)


def gemini_events(folder: Path) -> list[Event]:
    summaries = (f"<state_snapshot>{SUMMARY.replace('dead', word)}</state_snapshot>" for word in ("dead", "second"))
    messages: list[dict[str, object]] = [
        {"id": f"m{number}", "type": "user", "content": text}
        for number, text in enumerate(("Move the queue", *summaries))
    ]
    return events_of(gemini, chat(folder / "session-1.jsonl", *messages))


CLIENTS: dict[str, Callable[[Path], Sequence[Event]]] = {
    "claude-code": claude_events,
    "codex": codex_events,
    "copilot": copilot_events,
    "gemini": gemini_events,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_summary_is_one_mark_of_the_agent(client: str, tmp_path: Path) -> None:
    """keeps: TC-11. With the session's context; it is no prompt, although some clients write it as the user's."""
    events = CLIENTS[client](tmp_path)

    assert marks(events, "prompt") == ["Move the queue"]
    assert marks(events, "summary")[0] == SUMMARY
    assert len(marks(events, "summary")) == len(set(marks(events, "summary"))) == 2
    written = [event for event in named(events, "mark") if event.data["tags"] == ["summary"]]
    assert {(event.origin, event.context.session) for event in written} == {("agent", "s1")}
    assert [event.id for event in CLIENTS[client](tmp_path)] == [event.id for event in events]


def test_a_summary_of_opencode_is_no_closing_words(opencode_db: Path) -> None:
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        rows = list(connection.execute("SELECT id, data FROM message ORDER BY time_created"))
        last, data = next((name, json.loads(data)) for name, data in reversed(rows) if '"assistant"' in data)
        connection.execute("UPDATE message SET data = ? WHERE id = ?", (json.dumps(data | {"summary": True}), last))
        connection.commit()
    closings = marks(events_of(opencode, session_of(opencode_db)), "closing")

    [summary] = marks(events_of(opencode, session_of(opencode_db)), "summary")

    assert summary
    assert summary not in closings


def spooled(text: str, number: int) -> SpoolLine:
    payload: dict[str, object] = {"session_id": "s1", "prompt_id": "p1", "compact_summary": text}
    at = 1_794_742_952_000_000 + number
    return SpoolLine(at=at, client="claude", event="PostCompact", directory="/home/dev/shop", payload=payload)


def test_a_hook_and_a_transcript_make_one_summary(tmp_path: Path) -> None:
    """Neither gives it a name, so it is counted within its turn; reading in pieces keeps the count."""
    first = HookReader()
    events = first.read(spooled(f"<summary>{SUMMARY}</summary>", 0), tally=ImportTally())
    second = HookReader(first.state())
    events += second.read(spooled(SUMMARY.replace("dead letter", "second"), 1), tally=ImportTally())

    from_hooks = [(event.id, event.data["text"]) for event in named(events, "mark")]
    transcribed = [event for event in named(claude_events(tmp_path), "mark") if event.data["tags"] == ["summary"]]
    assert from_hooks == [(event.id, event.data["text"]) for event in transcribed]


def test_without_prompts_no_summary_is_stored() -> None:
    reader = HookReader(keeps_prompts=False)

    assert named(reader.read(spooled(SUMMARY, 0), tally=ImportTally()), "mark") == []


async def test_a_summary_is_found_and_is_evidence(tmp_path: Path, home: Settings) -> None:
    claude_events(tmp_path)
    async with mica.open(":memory:", settings=home) as memory:
        for _ in range(2):
            await memory.clients.import_transcripts([tmp_path / "s1.jsonl"])
        [hit, *_] = (await memory.search("dead letter queue")).marks
        [reason] = await memory.why(hit.id)

    assert (hit.mark.text, hit.mark.tags, hit.mark.origin, hit.mark.session) == (SUMMARY, ("summary",), "agent", "s1")
    assert reason.name == "mark"
