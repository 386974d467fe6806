"""What a person typed, apart from all the text that programs put beside it, whatever the client.

None of what hooks, files of instructions, commands or mica itself put before the model is evidence of what the person
wants (TC-11): recalled text that came back as a prompt would confirm itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

# Elements that hosts and hooks put into a prompt.
_INJECTED: dict[str, tuple[str, ...]] = {
    "codex": ("environment_context", "user_instructions", "turn_aborted", "subagent_notification", "skill"),
    "gemini": ("hook_context", "session_context", "state_snapshot"),
    "copilot": ("current_datetime", "system_reminder", "system_notification", "skill-context"),
    "opencode": ("system-reminder",),
    "cursor": ("system_reminder", "additional_context"),
}
_NOT_TYPED: dict[str, tuple[str, ...]] = {
    "codex": ("# AGENTS.md instructions for ", "<user_shell_command>", "<user_action>", "<permissions instructions>"),
    "gemini": (
        "<session_context>",
        "This is the Gemini CLI. We are setting up the context for our chat.",
        "Here is the user's editor context as a JSON object",
        "Here is a summary of changes in the user's editor context",
        "System: Please continue.",
    ),
}
_OURS = '<memory from="mica"', "</memory>"  # as a brief is fenced
_COMMAND = re.compile(r"/([A-Za-z][\w:.-]{0,100})(?:\s+(.*))?\Z", re.DOTALL)


class Prompt(msgspec.Struct, frozen=True):
    text: str


class Command(msgspec.Struct, frozen=True):
    """A slash command, without its slash."""

    name: str
    args: str


def typed(client: str, text: str) -> Prompt | Command | None:
    """What the person typed in a prompt as this client delivers it; None when nobody did."""
    for tag in _INJECTED.get(client, ()):
        text = without(text, tag)
    text = without_recalled(text).strip()
    if not text or text.startswith(_NOT_TYPED.get(client, ())):
        return None
    if command := _COMMAND.match(text):
        return Command(command[1], (command[2] or "").strip())
    return Prompt(text)


def without_recalled(text: str) -> str:
    """The text without what mica itself has put there."""
    return _cut(text, *_OURS)


def without(text: str, tag: str) -> str:
    """The text without the elements of this name. A tag that nobody closed is something the person wrote."""
    return _cut(text, f"<{tag}>", f"</{tag}>")


def _cut(text: str, opening: str, closing: str) -> str:
    """In one pass: a prompt may hold megabytes of it."""
    kept: list[str] = []
    place = 0
    while (begin := text.find(opening, place)) >= 0 and (end := text.find(closing, begin)) >= 0:
        kept.append(text[place:begin])
        place = end + len(closing)
    return "".join([*kept, text[place:]]) if kept else text


def joined(texts: Sequence[str | None]) -> str:
    return "\n".join(text for text in texts if text)
