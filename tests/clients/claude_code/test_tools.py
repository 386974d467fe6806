"""The files and lines that tool calls of Claude Code touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    touched_files,
)


def test_recorded_payloads_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("claude-code") == {
        7: [("read", "src/db.py", 1, 60, 60)],
        8: [("read", "src/auth.py", 10, 39, 120)],
        12: [("read", "src/db.py", 1, 5, 60), ("read", "src/auth.py", 1, 3, 120)],
        18: [("read", "src/missing.py", None, None, None)],
        42: [("read", "src/auth.py", 50, 54, 120)],
        48: [("edit", "src/auth.py", 52, 53, 121)],
        51: [("create", "src/new.py", 1, 1, 1)],
    }
