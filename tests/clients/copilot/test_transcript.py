"""Reading Copilot CLI sessions."""

from __future__ import annotations

from pathlib import Path

from tests.clients.transcripts import (
    COPILOT,
    Json,
    events_of,
    navigation,
    write,
)

from mica.clients.copilot import transcript as copilot


def test_a_session_has_the_changed_lines_of_its_diffs() -> None:
    """keeps: A-12, TA-02"""
    assert navigation(events_of(copilot, COPILOT)) == [
        ("read", "src/auth.py", 10, 40, None),
        ("search", "src/auth.py", None, None, None),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/db.py", 3, 3, None),
    ]


def test_denied_calls_touch_nothing(tmp_path: Path) -> None:
    def event(kind: str, **data: object) -> Json:
        return {"type": kind, "data": data, "id": kind, "timestamp": "2026-11-15T11:00:00Z"}

    path = write(
        tmp_path / "events.jsonl",
        event("session.start", sessionId="s1", context={"cwd": "/home/dev/shop"}),
        event("user.message", content="Injected by a skill", source="skill-x"),
        event("tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "cat a.py"}),
        event("tool.execution_complete", toolCallId="c1", success=False, error={"code": "denied", "message": "no"}),
        event("tool.execution_start", toolCallId="c2", toolName="edit", arguments={"path": "/home/dev/shop/a.py"}),
        event("tool.execution_complete", toolCallId="c2", success=False, error={"message": "No match found"}),
    )
    events = events_of(copilot, path)

    assert [event.name for event in events] == ["session.started", "tool.failed", "tool.failed"]
