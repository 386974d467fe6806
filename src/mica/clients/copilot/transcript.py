"""Copilot CLI transcripts, read into events (A-12).

`$COPILOT_HOME/session-state/<session>/events.jsonl` has one event a line, `{"type","data","id","timestamp"}`. What
hooks added to a prompt or to a result stands beside the original there, and only the original counts (TC-11).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from mica.clients import reader as reading
from mica.clients.claude_code.records import Count
from mica.clients.copilot import tools as copilot_tools
from mica.clients.event_builder import Asked, Teller, utc
from mica.clients.prompts import Command, typed
from mica.clients.reader import HEAD_LINES_MAX, Head
from mica.clients.records import Shape, Tally, value_of
from mica.clients.tool_effects import Call
from mica.model.event import Event

CLIENT = "copilot"
PENDING_MAX = 10_000  # calls without a result; a transcript with more has lost its results

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


class Place(msgspec.Struct, rename="camel", gc=False):
    cwd: str | None = None
    git_root: str | None = None
    branch: str | None = None


class Usage(msgspec.Struct, rename="camel", gc=False):
    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Failure(msgspec.Struct, gc=False):
    code: str | None = None
    message: str | None = None


class Shell(msgspec.Struct, rename="camel", gc=False):
    exit_code: int | None = None


class Data(msgspec.Struct, rename="camel", gc=False):
    session_id: str | None = None
    copilot_version: str | None = None
    context: Place | None = None
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
    error: Failure | str | None = None
    shell_execution: Shell | None = None
    usage: Usage | None = None
    reason: str | None = None
    shutdown_type: str | None = None
    pre_compaction_tokens: Count | None = None
    post_compaction_tokens: Count | None = None


class Record(msgspec.Struct, gc=False):
    """One line of a session."""

    type: str | None = None
    id: str | None = None
    timestamp: datetime | None = None
    data: Data | None = None


RECORD = Shape(Record)


class Session(Teller):
    """What is remembered while a session is read."""

    def __init__(self, name: str, root: str | None) -> None:
        super().__init__(CLIENT, session=name, root=root)
        self.cwd: str | None = None
        self.branch: str | None = None
        self.pending: dict[str, Asked] = {}
        self.prompt_name = ""

    def take(self, record: Record, *, number: int, tally: Tally) -> list[Event]:
        """The events this record brings about."""
        self.begin(number, tally)
        if not self.is_dated(utc(record.timestamp)):
            return []
        data = record.data or Data()
        name = record.id or f"{self.at}:{number}"
        match record.type:
            case "session.start" | "session.resume" | "session.context_changed":
                self._open(data)
            case "user.message":
                self._said(data)
            case "session.usage_record" if data.usage is not None:
                self._answered(name, data.usage)
            case "assistant.message":
                self._spoke(data)
            case "assistant.turn_end":
                self.release_closing()
            case "tool.execution_start":
                self._ask(data)
            case "tool.execution_complete":
                self._returned(name, data)
            case "session.compaction_complete" if data.success is not False:
                self.compact(name, trigger=None, before=data.pre_compaction_tokens, after=data.post_compaction_tokens)
            case "session.shutdown":
                self.release()
                self.end(data.reason or data.shutdown_type)
            case _ if record.type not in _IGNORED:
                tally.meet(record.type or "(none)")
        return self.made

    def _open(self, data: Data) -> None:
        place = data.context or Place()
        self.cwd = place.cwd or data.cwd or self.cwd
        self.branch = place.branch or data.branch or self.branch
        self.place(data.session_id, branch=self.branch, cwd=place.git_root or self.cwd)
        self.start(cwd=self.cwd, branch=self.branch, version=data.copilot_version)

    def _said(self, data: Data) -> None:
        said = typed(CLIENT, data.content or "")
        if said is None or data.source not in (None, "user") or data.parent_tool_call_id is not None:
            return
        self.release()
        if isinstance(said, Command):
            self.prompt_name = self.nth(f"/{said.name} {said.args}")
            self.command(self.prompt_name, command=said.name, args=said.args)
        else:
            self.prompt_name = self.nth(said.text)
            self.prompt(self.prompt_name, said.text)

    def _answered(self, name: str, usage: Usage) -> None:
        """Copilot counts what was cached as input."""
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

    def _spoke(self, data: Data) -> None:
        if data.parent_tool_call_id is not None:
            return  # a subagent
        self.closing = None
        text = (data.content or "").strip()
        if text and not data.tool_requests:
            self.hold_closing(self.prompt_name or self.nth(text), text)

    def _ask(self, data: Data) -> None:
        if data.tool_call_id:
            self.pending[data.tool_call_id] = Asked(data.tool_name or "(none)", value_of(data.arguments))
            if len(self.pending) > PENDING_MAX:
                del self.pending[next(iter(self.pending))]

    def _returned(self, name: str, data: Data) -> None:
        """Hooks do not know a call's id, so that it is named by what it was given."""
        asked = self.pending.pop(data.tool_call_id or name, None)
        if asked is None:
            return
        failure = data.error if isinstance(data.error, Failure) else Failure(message=data.error)
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
        called = self.nth([asked.given, failed])
        call = Call(
            id=called, tool=asked.tool, given=asked.given, result=facts, failed=failed, denied=denied, cwd=self.cwd
        )
        self.call(called, copilot_tools.drafts(call, self.files, self.tally))


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    return reading.find_files(root, is_one=lambda name: name == "events.jsonl", unreadable=unreadable)


def head(path: Path) -> Head | None:
    for record in reading.first_records(path, RECORD, limit=HEAD_LINES_MAX):
        data = record.data
        if record.type == "session.start" and data is not None and data.session_id:
            place = data.context or Place()
            cwd, branch = place.cwd or data.cwd, place.branch
            return Head(session=data.session_id, cwd=cwd, version=data.copilot_version, branch=branch)
    return None


extent = reading.file_extent
numbers = reading.line_numbers


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: Tally
) -> Iterator[tuple[int, list[Event]]]:
    return reading.read_lines(path, RECORD, Session(path.parent.name, root), start=start, closed=closed, tally=tally)
