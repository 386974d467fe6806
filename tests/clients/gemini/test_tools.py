"""The files and lines that tool calls of Gemini CLI touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    FIXTURES,
    assert_hooks_match_transcript,
    touched_files,
)

from mica.clients.gemini import transcript as gemini


def test_recorded_payloads_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("gemini") == {
        5: [("read", "src/auth.py", 10, 40, 121)],
        9: [("search", "src/auth.py", line, line, 121) for line in (5, 50, 51, *range(54, 61))],
        10: [("list", ".", None, None, None)],
        13: [("read", "src/db.py", 1, 5, None)],
        16: [("edit", "src/db.py", 3, 3, 60)],
    }


def test_hooks_and_transcript_give_the_same_events() -> None:
    assert_hooks_match_transcript("gemini", gemini, FIXTURES / "gemini/session.jsonl")
