"""The coding agents that mica supports, and the detection of the agent that wrote a transcript."""

from __future__ import annotations

from pathlib import Path

from mica.clients import claude_code, codex, copilot, cursor, gemini, opencode
from mica.clients.client import Client
from mica.clients.reader import HEAD_LINES_MAX, Reader, first_lines
from mica.errors import InvalidInput

CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        claude_code.CLIENT,
        codex.CLIENT,
        copilot.CLIENT,
        gemini.CLIENT,
        opencode.CLIENT,
        cursor.CLIENT,
    )
}
BY_HOOK = {client.hook: client for client in CLIENTS.values()}
READERS: dict[str, Reader] = {name: client.reader for name, client in CLIENTS.items() if client.reader is not None}


def reader_named(client: str) -> Reader:
    """Return the transcript reader of a client. Raises InvalidInput if mica cannot read its transcripts."""
    try:
        return READERS[client]
    except KeyError:
        raise InvalidInput(f"mica reads no transcripts of {client!r}; it reads those of {', '.join(READERS)}") from None


def reader_of(path: Path) -> Reader:
    """Return the reader for a transcript, chosen by its first lines or, for a session in a database, by its path.

    The default for files is the reader of Claude Code. Raises OSError.
    """
    if path.parent.suffix == ".db" and path.parent.is_file():
        in_database = [READERS[name] for name in READERS if CLIENTS[name].is_database]
        return next((reader for reader in in_database if reader.head(path) is not None), in_database[0])
    beginning = list(first_lines(path, limit=HEAD_LINES_MAX))
    for name, reader in READERS.items():
        sign = CLIENTS[name].sign
        if sign and any(sign in line for line in beginning) and reader.head(path) is not None:
            return reader
    return READERS[claude_code.CLIENT.name]
