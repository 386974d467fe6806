"""The files and lines that tool calls of OpenCode touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    touched_files,
)


def test_recorded_payloads_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("opencode") == {
        13: [("read", "src/auth.py", 10, 39, 121)],
        19: [("read", "src/db.py", 1, 5, None)],
        26: [("edit", "src/auth.py", 12, 12, 121)],
    }
