"""The records of a Claude Code transcript, as far as mica needs them.

The vendor calls the format internal, so every field may be missing and every type may be wrong. Fields not
named here are skipped without being built: most bytes of a transcript are texts that it holds several times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from mica.clients.records import Shape

CLIENT = "claude-code"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

# Types that say nothing mica keeps. `attachment` is the host speaking, hooks and re-attached files among it;
# only what was typed while the agent worked arrives that way too.
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
    """Whether the first bytes of a whole line already show a record that makes no events."""
    first = _TYPE_FIRST.match(line)
    ignored = first[1].decode() in IGNORED if first else _ATTACHMENT_FIRST.match(line) is not None
    return ignored and _TYPED_MEANWHILE not in line and line.find(BEGINNING, 1) < 0


class Piece(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class Block(msgspec.Struct, gc=False):
    """A part of a message: text, a tool call or its result."""

    type: str | None = None
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    tool_use_id: str | None = None
    content: str | list[Piece] | None = None
    is_error: bool | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None


class Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    content: str | list[Block] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


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
    prompt: str | list[Piece] | None = None
    command_mode: str | None = None
    origin: Speaker | None = None
    is_meta: bool | None = None


class Record(msgspec.Struct, rename="camel", gc=False):
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
    message: Message | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw()
    tool_denial_kind: str | None = None
    permission_decision: Decision | None = None
    compact_metadata: Compaction | None = None
    origin: Speaker | None = None
    forked_from: Fork | None = None
    attachment: msgspec.Raw = msgspec.Raw()


# -- What tools are given ------------------------------------------------------------------------------


class Input(msgspec.Struct, gc=False):
    """The arguments of a tool call that say what it touches."""

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


# -- What tools return ---------------------------------------------------------------------------------


class File(msgspec.Struct, rename="camel", gc=False):
    file_path: str | None = None
    content: str | None = None
    num_lines: Count | None = None
    start_line: Count | None = None
    total_lines: Count | None = None


class Patch(msgspec.Struct, rename="camel", gc=False):
    new_start: Count | None = None
    new_lines: Count = 0
    old_lines: Count = 0
    lines: list[str] = []


class Result(msgspec.Struct, rename="camel", gc=False):
    """A result as the program keeps it beside the message; which fields are there depends on the tool."""

    type: str | None = None
    file: File | None = None  # Read
    file_path: str | None = None  # Edit, Write, MultiEdit
    structured_patch: list[Patch] | None = None
    content: msgspec.Raw = msgspec.Raw()  # Write, Grep
    stdout: str | None = None  # Bash
    stderr: str | None = None
    background_task_id: str | None = None
    mode: str | None = None  # Grep
    filenames: list[str] | None = None  # Grep, Glob
    agent_id: str | None = None  # Agent
    agent_type: str | None = None


RECORD = Shape(Record)
ATTACHMENT = Shape(Attachment)
INPUT = Shape(Input)
RESULT = Shape(Result)
TEXT = Shape(str)


def text_of(content: str | Sequence[Piece | Block] | None) -> str:
    """The texts of a content, a line end between them."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(piece.text for piece in content if piece.text)
