"""What each coding agent is given: files of ours in its folders, and entries in files of its own."""

from __future__ import annotations

from collections.abc import Callable

from mica.inject.clients import claude, codex, copilot, cursor, gemini, opencode
from mica.inject.clients.pieces import Client, Machine

CLIENTS: dict[str, Callable[[Machine], Client]] = {
    "claude-code": claude.client,
    "codex": codex.client,
    "copilot": copilot.client,
    "gemini": gemini.client,
    "opencode": opencode.client,
    "cursor": cursor.client,
}
