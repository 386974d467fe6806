"""What each coding agent is given: files of ours in its folders, and entries in files of its own."""

from __future__ import annotations

from collections.abc import Callable

from mica.clients.claude_code import install as claude
from mica.clients.codex import install as codex
from mica.clients.copilot import install as copilot
from mica.clients.cursor import install as cursor
from mica.clients.gemini import install as gemini
from mica.clients.installation import Client, Machine
from mica.clients.opencode import install as opencode

CLIENTS: dict[str, Callable[[Machine], Client]] = {
    "claude-code": claude.client,
    "codex": codex.client,
    "copilot": copilot.client,
    "gemini": gemini.client,
    "opencode": opencode.client,
    "cursor": cursor.client,
}
