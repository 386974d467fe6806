"""The clients whose transcripts mica reads, and whose a transcript is."""

from __future__ import annotations

from pathlib import Path

from mica.observe.clients import claude_code, codex, copilot, gemini, opencode
from mica.observe.clients.reading import Reader

# The order in which a file is asked whose it is; Claude Code's begin with anything, so it comes last.
_READERS: tuple[Reader, ...] = (opencode, codex, copilot, gemini, claude_code)
CLIENTS = tuple(sorted(reader.CLIENT for reader in _READERS))


def reader_named(client: str) -> Reader:
    """The reader of one of `CLIENTS`."""
    return next(reader for reader in _READERS if client == reader.CLIENT)


def reader_of(path: Path) -> Reader:
    """Whose transcript this is, from its beginning. What nobody claims is read as Claude Code's. Raises OSError."""
    return next((reader for reader in _READERS if reader.head(path) is not None), claude_code)
