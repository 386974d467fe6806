"""The files and lines that tool calls of Copilot CLI touch."""

from __future__ import annotations

from tests.clients.hook_payloads import (
    touched_files,
)


def test_recorded_payloads_of_native_hooks_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("copilot-native") == {
        4: [("read", "src/auth.py", 10, 40, None)],
        7: [("search", "src/auth.py", None, None, None)],
        9: [("read", "src/db.py", 1, 5, None)],
        12: [("edit", "src/db.py", None, None, None)],
    }


def test_recorded_payloads_of_plugin_hooks_touch_the_expected_lines() -> None:
    """keeps: A-12. Every other payload of the recording touches nothing."""
    assert touched_files("copilot-plugin") == {
        3: [("read", "src/auth.py", 10, 40, None)],
        4: [("search", "src/auth.py", None, None, None)],
        5: [("read", "src/db.py", 1, 5, None)],
    }
