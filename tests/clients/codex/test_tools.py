"""The files and lines that tool calls of Codex CLI touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    FIXTURES,
    assert_hooks_match_transcript,
    touched_files,
)

from mica.clients.codex import transcript as codex


def test_recorded_payloads_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("codex") == {
        4: [("read", "src/auth.py", 10, 40, None)],
        6: [
            ("search", "src/auth.py", 5, 5, None),
            ("search", "src/auth.py", 50, 51, None),
            ("search", "src/auth.py", 54, 60, None),
            ("read", "src/db.py", 1, 3, None),
        ],
    }


def test_hooks_and_transcript_give_the_same_events() -> None:
    assert_hooks_match_transcript("codex", codex, FIXTURES / "codex/rollout.jsonl")
