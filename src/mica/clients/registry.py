"""The clients whose transcripts mica reads, and whose a transcript is."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from mica.clients.reader import HEAD_LINES_MAX, Reader, first_lines

CLAUDE_CODE, CODEX, COPILOT, GEMINI, OPENCODE = "claude-code", "codex", "copilot", "gemini", "opencode"
CLIENTS = (CLAUDE_CODE, CODEX, COPILOT, GEMINI, OPENCODE)

# What the first lines of a transcript of each hold. Claude Code's begin with anything.
_SIGNS = {CODEX: b'"session_meta"', COPILOT: b'"session.start"', GEMINI: b'"projectHash"'}


def reader_named(client: str) -> Reader:
    """The reader of one of `CLIENTS`. It is loaded when it is asked for: few use more than one."""
    return cast("Reader", import_module(f"mica.clients.{client.replace('-', '_')}"))


def reader_of(path: Path) -> Reader:
    """Whose transcript this is, from its beginning. What nobody claims is read as Claude Code's. Raises OSError."""
    if path.parent.suffix == ".db" and path.parent.is_file():
        return reader_named(OPENCODE)
    beginning = list(first_lines(path, limit=HEAD_LINES_MAX))
    for client, sign in _SIGNS.items():
        if any(sign in line for line in beginning) and (reader := reader_named(client)).head(path) is not None:
            return reader
    return reader_named(CLAUDE_CODE)
