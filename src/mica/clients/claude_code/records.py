"""Decodes the records of a Claude Code transcript, and finds the words that a person typed in them.

The vendor calls the format internal, so every field may be missing and every type may be wrong. Fields that are
not declared here are skipped without being decoded, because most of a transcript is text that it repeats.

Records of type `user` also contain text from hooks, commands, the editor and other agents. Such text does not count as
typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from mica.clients.prompts import Prompt, PromptFilter, SlashCommand, TypedPrompt, element, parse_command
from mica.clients.records import Count, Shape, TextPart, text_of

# Record types without events. Claude Code writes `attachment` for hooks and re-attached files, and also for prompts
# that were typed while the agent worked, which `is_ignored` lets through.
IGNORED = frozenset(
    (
        *("agent-name", "ai-title", "api-request", "api-request-blob", "api-request-shape", "atis-latch"),
        *("attachment", "attribution-snapshot", "content-replacement", "cost-state", "custom-title"),
        *("file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link", "progress"),
        *("queue-operation", "saved_hook_context", "speculation-accept", "summary", "tag", "task-summary"),
        *("tools-used", "worktree-state"),
    )
)
BEGINNING = b'{"parentUuid"'  # of most records; within a text its quotes would be escaped
_TYPED_MEANWHILE = b'"queued_command"'
_TYPE_FIRST = re.compile(rb'\{"type": ?"([a-z_-]+)"')
_ATTACHMENT_FIRST = re.compile(
    rb'\{"parentUuid": ?(?:null|"[0-9a-f-]+"), ?"isSidechain": ?(?:true|false),'
    rb'(?: ?"agentId": ?"\w+",)? ?"attachment": ?\{'
)


def is_ignored(line: bytes) -> bool:
    """Return True if the first bytes of a complete line show that no event is made from its record."""
    first = _TYPE_FIRST.match(line)
    ignored = first[1].decode() in IGNORED if first else _ATTACHMENT_FIRST.match(line) is not None
    return ignored and _TYPED_MEANWHILE not in line and line.find(BEGINNING, 1) < 0


class ClaudeBlock(msgspec.Struct, gc=False):
    """A part of a message: a text, a tool call or a tool result."""

    type: str | None = None
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    tool_use_id: str | None = None
    content: str | list[TextPart] | None = None
    is_error: bool | None = None


class ClaudeUsage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None


class ClaudeMessage(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: str | list[ClaudeBlock] | None = None
    stop_reason: str | None = None
    usage: ClaudeUsage | None = None


class Compaction(msgspec.Struct, rename="camel", gc=False):
    trigger: str | None = None
    pre_tokens: Count | None = None
    post_tokens: Count | None = None


class Speaker(msgspec.Struct, gc=False):
    kind: str | None = None


class Decision(msgspec.Struct, gc=False):
    decision: str | None = None


class Fork(msgspec.Struct, rename="camel", gc=False):
    session_id: str | None = None


class Attachment(msgspec.Struct, rename="camel", gc=False):
    type: str | None = None
    prompt: str | list[TextPart] | None = None
    command_mode: str | None = None
    origin: Speaker | None = None
    is_meta: bool | None = None


class ClaudeRecord(msgspec.Struct, rename="camel", gc=False):
    """One line of a transcript."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    prompt_id: str | None = None
    timestamp: datetime | None = None
    cwd: str | None = None
    version: str | None = None
    git_branch: str | None = None
    request_id: str | None = None
    request_ref: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    message: ClaudeMessage | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw()
    tool_denial_kind: str | None = None
    permission_decision: Decision | None = None
    compact_metadata: Compaction | None = None
    origin: Speaker | None = None
    forked_from: Fork | None = None
    attachment: msgspec.Raw = msgspec.Raw()


# -- Arguments of tools ------------------------------------------------------------------------------


class ClaudeInput(msgspec.Struct, gc=False):
    """The arguments of a tool call. One struct has the fields of all tools, so most of them are None."""

    file_path: str | None = None
    notebook_path: str | None = None
    path: str | None = None
    offset: Count | None = None
    limit: Count | None = None
    command: str | None = None
    pattern: str | None = None
    skill: str | None = None
    subagent_type: str | None = None
    description: str | None = None
    content: msgspec.Raw = msgspec.Raw()

    @property
    def file(self) -> str | None:
        return self.file_path or self.notebook_path or self.path


# -- Results of tools ---------------------------------------------------------------------------------


class ClaudeFile(msgspec.Struct, rename="camel", gc=False):
    file_path: str | None = None
    content: str | None = None
    num_lines: Count | None = None
    start_line: Count | None = None
    total_lines: Count | None = None


class ClaudePatch(msgspec.Struct, rename="camel", gc=False):
    new_start: Count | None = None
    new_lines: Count = 0
    old_lines: Count = 0
    lines: list[str] = []


class ClaudeResult(msgspec.Struct, rename="camel", gc=False):
    """The structured result of a tool call, stored next to the text for the model. Its fields depend on the tool."""

    type: str | None = None
    file: ClaudeFile | None = None  # Read
    file_path: str | None = None  # Edit, Write, MultiEdit
    structured_patch: list[ClaudePatch] | None = None
    content: msgspec.Raw = msgspec.Raw()  # Write, Grep
    stdout: str | None = None  # Bash
    stderr: str | None = None
    background_task_id: str | None = None
    mode: str | None = None  # Grep
    filenames: list[str] | None = None  # Grep, Glob
    agent_id: str | None = None  # Agent
    agent_type: str | None = None


RECORD = Shape(ClaudeRecord)
ATTACHMENT = Shape(Attachment)
INPUT = Shape(ClaudeInput)
RESULT = Shape(ClaudeResult)
TEXT = Shape(str)


# -- What the person typed -----------------------------------------------------------------------------

PROMPTS = PromptFilter(
    injected=(
        "system-reminder",
        "user-prompt-submit-hook",
        "session-start-hook",
        "ide_opened_file",
        "ide_selection",
        "ide_diagnostics",
    ),
    openings=(
        "<local-command-",
        "<bash-",
        "<task-notification",
        "<cross-session-message",
        "<teammate-message",
        "<channel",
        "[Request interrupted by user",
        "Caveat: The messages below were generated by the user while running local commands",
        "Stop hook feedback:",
        "This session is being continued from a previous conversation",
    ),
)
_REFUSAL = "The user doesn't want to proceed with this tool use."
_REASON = "the user said:\n"


def typed(record: ClaudeRecord) -> Prompt | None:
    """Return the prompt that a person typed in this record; None if Claude Code or another agent wrote it."""
    if record.is_meta or record.is_compact_summary or record.is_visible_in_transcript_only or record.message is None:
        return None
    return _typed(record.message.content, record.origin)


def typed_while_working(attachment: Attachment) -> Prompt | None:
    """Return the prompt that a person typed while the agent was working; None for attachments of other kinds."""
    if attachment.type != "queued_command" or attachment.is_meta or attachment.command_mode != "prompt":
        return None
    return _typed(attachment.prompt, attachment.origin)


def typed_in_hook(text: str) -> Prompt | None:
    """Return what a person typed, from the prompt in the payload of a hook; None if Claude Code wrote the prompt.

    In a payload, unlike in a transcript, a slash command appears exactly as it was typed.
    """
    prompt = _typed(text, None)
    return parse_command(prompt.text) if isinstance(prompt, TypedPrompt) else prompt


def reason_of_refusal(text: str) -> str | None:
    """Extract the reason that a person gave when refusing a tool call; None if there is none."""
    if not text.startswith(_REFUSAL) or _REASON not in text:
        return None
    return text.partition(_REASON)[2].partition("\n\nNote: The user's next message")[0].strip() or None


def _typed(content: str | Sequence[ClaudeBlock | TextPart] | None, origin: Speaker | None) -> Prompt | None:
    if origin is not None and origin.kind not in (None, "human"):
        return None
    text = PROMPTS.strip(text_of(content))
    if text.startswith(PROMPTS.openings):
        return None
    if text.startswith(("<command-name>", "<command-message>")):
        name = (element(text, "command-name") or "").strip().removeprefix("/")
        return SlashCommand(name, (element(text, "command-args") or "").strip()) if name else None
    if text.startswith("<user-memory-input>"):
        text = (element(text, "user-memory-input") or "").strip()
    if not text and isinstance(content, list | tuple) and any(part.type == "image" for part in content):
        text = "[image]"
    return TypedPrompt(text) if text else None
