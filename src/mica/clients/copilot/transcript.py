"""Reads Copilot CLI transcripts into events.

`$COPILOT_HOME/session-state/<session>/events.jsonl` has one event per line, `{"type","data","id","timestamp"}`. Text
that hooks added to a prompt or a result is stored next to the original. Only the original is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from mica.clients import reader
from mica.clients.copilot import tools
from mica.clients.event_builder import EventBuilder, PendingCall, utc
from mica.clients.prompts import PromptFilter, SlashCommand
from mica.clients.reader import HEAD_LINES_MAX, TranscriptHead
from mica.clients.records import Count, ImportTally, Shape, value_of
from mica.clients.tool_effects import ClientCall
from mica.model.event import Event

NAME = "copilot"
PROMPTS = PromptFilter(injected=("current_datetime", "system_reminder", "system_notification", "skill-context"))
PENDING_MAX = 10_000  # calls without a result; in a transcript with more, results are missing

_IGNORED = frozenset(
    (
        *("abort", "assistant.intent", "assistant.message_delta", "assistant.reasoning", "assistant.reasoning_delta"),
        *("assistant.turn_start", "assistant.usage", "hook.end", "hook.start", "pending_messages.modified"),
        *("session.compaction_start", "session.error", "session.handoff", "session.idle", "session.import_legacy"),
        *("session.info", "session.mode_changed", "session.model_change", "session.plan_changed"),
        *("session.task_complete", "session.title_changed", "session.truncation", "session.usage_info"),
        *("session.warning", "session.workspace_file_changed", "skill.context_delivered_ref", "skill.invoked"),
        *("subagent.completed", "subagent.failed", "subagent.selected", "subagent.started", "system.message"),
        *("system.notification", "tool.execution_partial_result", "tool.execution_progress", "tool.user_requested"),
    )
)


class CopilotWorkspace(msgspec.Struct, rename="camel", gc=False):
    cwd: str | None = None
    git_root: str | None = None
    branch: str | None = None


class CopilotUsage(msgspec.Struct, rename="camel", gc=False):
    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class CopilotFailure(msgspec.Struct, gc=False):
    code: str | None = None
    message: str | None = None


class CopilotShell(msgspec.Struct, rename="camel", gc=False):
    exit_code: int | None = None


class CopilotData(msgspec.Struct, rename="camel", gc=False):
    session_id: str | None = None
    copilot_version: str | None = None
    context: CopilotWorkspace | None = None
    cwd: str | None = None
    branch: str | None = None
    content: str | None = None
    source: str | None = None
    tool_call_id: str | None = None
    parent_tool_call_id: str | None = None
    tool_name: str | None = None
    tool_requests: list[msgspec.Raw] | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    success: bool | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: CopilotFailure | str | None = None
    shell_execution: CopilotShell | None = None
    usage: CopilotUsage | None = None
    reason: str | None = None
    shutdown_type: str | None = None
    pre_compaction_tokens: Count | None = None
    post_compaction_tokens: Count | None = None
    summary_content: str | None = None


class CopilotRecord(msgspec.Struct, gc=False):
    """One line of a session file."""

    type: str | None = None
    id: str | None = None
    timestamp: datetime | None = None
    data: CopilotData | None = None


RECORD = Shape(CopilotRecord)


class CopilotTranscript(EventBuilder):
    """Builds the events of one session file."""

    def __init__(self, name: str, root: str | None) -> None:
        super().__init__(NAME, session=name, root=root)
        self.cwd: str | None = None
        self.branch: str | None = None
        self.pending: dict[str, PendingCall] = {}
        self.prompt_name = ""

    def take(self, record: CopilotRecord, *, number: int, tally: ImportTally) -> list[Event]:
        """Return the events made from a record. Records of an unknown type are only counted in `tally`."""
        self.begin(number, tally)
        if not self.is_dated(utc(record.timestamp)):
            return []
        data = record.data or CopilotData()
        name = record.id or f"{self.at}:{number}"
        match record.type:
            case "session.start" | "session.resume" | "session.context_changed":
                self._open(data)
            case "user.message":
                self._prompt(data)
            case "session.usage_record" if data.usage is not None:
                self._add_answer(name, data.usage)
            case "assistant.message":
                self._message(data)
            case "assistant.turn_end":
                self.release_closing()
            case "tool.execution_start":
                self._add_call(data)
            case "tool.execution_complete":
                self._add_result(name, data)
            case "session.compaction_complete" if data.success is not False:
                self.compact(name, trigger=None, before=data.pre_compaction_tokens, after=data.post_compaction_tokens)
                self.summary(self.prompt_name or self.session, data.summary_content or "")
            case "session.shutdown":
                self.release()
                self.end(data.reason or data.shutdown_type)
            case _ if record.type not in _IGNORED:
                tally.count_unknown(record.type or "(none)")
        return self.made

    def _open(self, data: CopilotData) -> None:
        place = data.context or CopilotWorkspace()
        self.cwd = place.cwd or data.cwd or self.cwd
        self.branch = place.branch or data.branch or self.branch
        self.place(data.session_id, branch=self.branch, cwd=place.git_root or self.cwd)
        self.start(cwd=self.cwd, branch=self.branch, version=data.copilot_version)

    def _prompt(self, data: CopilotData) -> None:
        prompt = PROMPTS.typed(data.content or "")
        if prompt is None or data.source not in (None, "user") or data.parent_tool_call_id is not None:
            return
        self.release()
        if isinstance(prompt, SlashCommand):
            self.prompt_name = self.nth(f"/{prompt.name} {prompt.args}")
            self.command(self.prompt_name, command=prompt.name, args=prompt.args)
        else:
            self.prompt_name = self.nth(prompt.text)
            self.prompt(self.prompt_name, prompt.text)

    def _add_answer(self, name: str, usage: CopilotUsage) -> None:
        """Record the token usage of an answer. Cached tokens are not counted as input tokens."""
        cached, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        fields: dict[str, object] = {
            "model": usage.model,
            "input_tokens": None if usage.input_tokens is None else max(0, usage.input_tokens - cached - written),
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
        }
        if usage.reasoning_tokens is not None:
            fields["reasoning_tokens"] = usage.reasoning_tokens
        self.hold_answer(name, fields)
        self.release_answer()

    def _message(self, data: CopilotData) -> None:
        if data.parent_tool_call_id is not None:
            return  # a subagent
        self.closing = None
        text = (data.content or "").strip()
        if text and not data.tool_requests:
            self.hold_closing(self.prompt_name or self.nth(text), text)

    def _add_call(self, data: CopilotData) -> None:
        if data.tool_call_id:
            self.pending[data.tool_call_id] = PendingCall(data.tool_name or "(none)", value_of(data.arguments))
            if len(self.pending) > PENDING_MAX:
                del self.pending[next(iter(self.pending))]

    def _add_result(self, name: str, data: CopilotData) -> None:
        """Add the events of a completed call. The call is identified by its arguments, because hooks report no id."""
        pending = self.pending.pop(data.tool_call_id or name, None)
        if pending is None:
            return
        failure = data.error if isinstance(data.error, CopilotFailure) else CopilotFailure(message=data.error)
        result = value_of(data.result)
        if isinstance(result, str):
            result = {"content": result}
        facts: dict[str, object] = result if isinstance(result, dict) else {}
        if failure.message is not None:
            facts |= {"error": failure.message}
        if data.shell_execution is not None:
            facts |= {"exitCode": data.shell_execution.exit_code}
        failed = data.success is False
        denied = failure.code in ("denied", "rejected", "permission_denied")
        called = self.nth([pending.arguments, failed])
        call = ClientCall(
            id=called,
            tool=pending.tool,
            arguments=pending.arguments,
            result=facts,
            failed=failed,
            denied=denied,
            cwd=self.cwd,
        )
        self.call(called, tools.drafts(call, self.files, self.tally))


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    return reader.find_files(root, is_one=lambda name: name == "events.jsonl", unreadable=unreadable)


def head(path: Path) -> TranscriptHead | None:
    for record in reader.first_records(path, RECORD, limit=HEAD_LINES_MAX):
        data = record.data
        if record.type == "session.start" and data is not None and data.session_id:
            place = data.context or CopilotWorkspace()
            cwd, branch = place.cwd or data.cwd, place.branch
            return TranscriptHead(session=data.session_id, cwd=cwd, version=data.copilot_version, branch=branch)
    return None


extent = reader.file_extent
numbers = reader.line_numbers


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
) -> Iterator[tuple[int, list[Event]]]:
    return reader.read_records(
        path, RECORD, CopilotTranscript(path.parent.name, root), start=start, closed=closed, tally=tally
    )
