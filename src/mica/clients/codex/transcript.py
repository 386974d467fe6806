"""Reads Codex CLI transcripts, called rollouts, into events.

`$CODEX_HOME/sessions/YYYY/MM/DD/rollout-….jsonl` has one record per line, `{"timestamp","type","payload"}`. A command
occurs up to three times: as the model's call, as `item_completed` with its exit code, and as the text that the model
received; it becomes one event. Text from AGENTS.md, the environment, hooks or Codex itself is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from mica.clients import reader
from mica.clients.codex import tools
from mica.clients.event_builder import EventBuilder, PendingCall, utc
from mica.clients.prompts import PromptFilter, join_texts, text_of_prompt
from mica.clients.reader import HEAD_LINES_MAX, TranscriptHead
from mica.clients.records import Count, ImportTally, Shape, value_of
from mica.clients.tool_effects import ClientCall, digest
from mica.model.event import Event

NAME = "codex"
PROMPTS = PromptFilter(
    injected=("environment_context", "user_instructions", "turn_aborted", "subagent_notification", "skill"),
    openings=(
        "# AGENTS.md instructions for ",
        "<user_shell_command>",
        "<user_action>",
        "<permissions instructions>",
        "Another language model started to solve this problem",
    ),
    has_commands=False,
)
PENDING_MAX = 10_000  # calls without a result; in a transcript with more, results are missing

_RECORDS = ("session_meta", "turn_context", "response_item", "event_msg", "token_usage_record", "compacted")
_IGNORED = frozenset(("world_state", "ghost_snapshot"))
_IGNORED_ITEMS = frozenset(
    (
        *("reasoning", "web_search_call", "ghost_snapshot", "compaction", "compaction_summary", "context_compaction"),
        *("image_generation_call", "tool_search_call", "tool_search_output", "other", "agent_message"),
    )
)
_IGNORED_EVENTS = frozenset(
    (
        *("agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break"),
        *("background_event", "context_compacted", "entered_review_mode", "error", "exec_command_begin"),
        *("exited_review_mode", "hook_completed", "hook_started", "item_started", "mcp_tool_call_begin"),
        *("mcp_tool_call_end", "patch_apply_begin", "plan_update", "stream_error", "task_started"),
        *("thread_name_updated", "thread_rolled_back", "thread_settings_applied", "token_count", "turn_diff"),
        *("turn_started", "user_message", "view_image_tool_call", "warning", "web_search_begin", "web_search_end"),
    )
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output")


class CodexMetadata(msgspec.Struct, gc=False):
    turn_id: str | None = None
    content_item_kinds: list[str] | None = None


class CodexPart(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class Git(msgspec.Struct, gc=False):
    branch: str | None = None


class Action(msgspec.Struct, gc=False):
    command: list[str] | None = None
    working_directory: str | None = None


class CodexUsage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    output_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None
    total_tokens: Count | None = None


class CodexTokenCounts(msgspec.Struct, gc=False):
    total_token_usage: CodexUsage | None = None
    last_token_usage: CodexUsage | None = None


class CompletedItem(msgspec.Struct, gc=False):
    """The item of an `item_completed` record."""

    type: str | None = None
    id: str | None = None
    command: list[str] | str | None = None
    cwd: str | None = None
    status: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    changes: msgspec.Raw = msgspec.Raw()
    stdout: str | None = None
    stderr: str | None = None


class CodexOutput(msgspec.Struct, gc=False):
    """The output of a command with its exit code. Old versions of Codex write it as JSON inside a text."""

    content: str | None = None
    output: str | None = None
    success: bool | None = None
    exit_code: int | None = None
    metadata: CodexFacts | None = None


class CodexFacts(msgspec.Struct, gc=False):
    exit_code: int | None = None


class CodexPayload(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    timestamp: datetime | None = None
    cwd: str | None = None
    cli_version: str | None = None
    source: str | dict[str, msgspec.Raw] | None = None
    thread_source: str | None = None
    git: Git | None = None
    model: str | None = None
    role: str | None = None
    content: list[CodexPart] | str | None = None
    meta: CodexMetadata | None = msgspec.field(default=None, name="internal_chat_message_metadata_passthrough")
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    call_id: str | None = None
    output: str | CodexOutput | list[CodexPart] | None = None
    action: Action | None = None
    item: CompletedItem | None = None
    response_id: str | None = None
    usage: CodexUsage | None = None
    info: CodexTokenCounts | None = None
    last_agent_message: str | None = None
    message: str | None = None
    command: list[str] | str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    changes: msgspec.Raw = msgspec.Raw()
    success: bool | None = None
    stdout: str | None = None
    stderr: str | None = None


class CodexRecord(msgspec.Struct, gc=False):
    """One line of a rollout."""

    timestamp: datetime | None = None
    type: str | None = None
    payload: CodexPayload | None = None


RECORD = Shape(CodexRecord)
_OUTPUT = Shape(CodexOutput)


class CodexTranscript(EventBuilder):
    """Builds the events of one rollout."""

    def __init__(self, name: str, root: str | None) -> None:
        super().__init__(NAME, has_unique_names=True, session=name, root=root)
        self.turn_id: str | None = None
        self.turns: set[str] = set()  # ids of the turns that have begun
        self.pending: dict[str, PendingCall] = {}
        self.cwd: str | None = None
        self.model: str | None = None
        self.branch: str | None = None
        self.is_subagent = False
        self.has_meta = False
        self.has_usage = False  # whether usage records occur; then `token_count` records only repeat them
        self.total: int | None = None

    def take(self, record: CodexRecord, *, number: int, tally: ImportTally) -> list[Event]:
        """Return the events made from a record. Records of an unknown type are only counted in `tally`."""
        self.begin(number, tally)
        if record.type not in _RECORDS:
            if record.type not in _IGNORED:
                tally.count_unknown(record.type or "(none)")
            return []
        if not self.is_dated(utc(record.timestamp)):
            return []
        payload = record.payload or CodexPayload()
        self._turn(payload)
        match record.type:
            case "session_meta":
                self._meta(payload)
            case "turn_context":
                self.cwd = payload.cwd or self.cwd
                self.model = payload.model or self.model
                self._place()
            case "token_usage_record" if payload.usage is not None:
                self.has_usage = True
                self._add_answer(payload.response_id or str(payload.usage.total_tokens), payload.usage)
            case "compacted":
                self.compact(f"{self.turn_id}:{self.at.isoformat()}", trigger=None)
                self.summary(self.turn_id or self.session, payload.message or "")
            case "response_item":
                self._item(payload)
            case "event_msg":
                self._event_message(payload)
        return self.made

    # -- Turns and sessions

    def _turn(self, payload: CodexPayload) -> None:
        turn = payload.turn_id or (payload.meta.turn_id if payload.meta else None)
        if turn is not None and turn != self.turn_id:
            self.release()
            self.turn_id = turn
            self.turn = self.root(self.key("prompt", turn)) if turn in self.turns else None

    def _place(self) -> None:
        agent = "subagent" if self.is_subagent else None
        self.place(None, agent=agent, branch=self.branch, cwd=self.cwd)

    def _meta(self, payload: CodexPayload) -> None:
        if self.has_meta:
            return  # a fork repeats the record of its origin
        self.has_meta = True
        self.session = payload.session_id or payload.id or self.session
        self.cwd = payload.cwd or self.cwd
        self.branch = payload.git.branch if payload.git else None
        self.is_subagent = isinstance(payload.source, dict) or payload.thread_source not in (None, "user")
        self._place()
        self.start(cwd=payload.cwd, branch=self.branch, version=payload.cli_version)

    def _name_in_turn(self, name: str) -> str:
        """Return a name for a call or answer: the id of its turn and its own id. A forked session keeps both ids."""
        return f"{self.turn_id or self.session}:{name}"

    def _begin_turn(self) -> None:
        """Record the start of the current turn as the parent of its events, if no typed prompt was recorded."""
        if self.turn_id is not None and self.turn_id not in self.turns:
            self.turns.add(self.turn_id)
            self.untyped(self.turn_id)

    # -- Prompts

    def _item(self, payload: CodexPayload) -> None:
        if payload.type == "message":
            if payload.role == "user":
                self._prompt(payload)
        elif payload.type in _CALLS:
            self._add_call(payload)
        elif payload.type in _OUTPUTS:
            self._add_result(payload)
        elif payload.type not in _IGNORED_ITEMS:
            self.tally.count_unknown(f"response_item/{payload.type or '(none)'}")

    def _prompt(self, payload: CodexPayload) -> None:
        parts = [CodexPart(text=payload.content)] if isinstance(payload.content, str) else payload.content or []
        kinds = (payload.meta.content_item_kinds if payload.meta else None) or []
        if kinds:  # Codex names the author of each part
            parts = [part for part, kind in zip(parts, kinds, strict=False) if kind.startswith("user.")]
        prompt = PROMPTS.typed(join_texts(part.text for part in parts if part.text and PROMPTS.typed(part.text)))
        if prompt is None or self.is_subagent:
            return
        text = text_of_prompt(prompt)
        if self.turn_id is None:
            self.release()
            self.prompt(self.nth(text), text)
        elif self.turn_id not in self.turns:
            self.turns.add(self.turn_id)
            self.prompt(self.turn_id, text)
        else:
            self.add_prompt(f"{self.turn_id}:{digest(text)}", text)

    # -- Answers and tool calls

    def _add_answer(self, name: str, usage: CodexUsage) -> None:
        self._begin_turn()
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_input_tokens or 0
        fresh = None if usage.input_tokens is None else max(0, usage.input_tokens - cached - written)
        fields: dict[str, object] = {
            "model": self.model,
            "input_tokens": fresh,
            "cache_read_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_output_tokens,
        }
        self.hold_answer(self._name_in_turn(name), fields)
        self.release_answer()

    def _event_message(self, payload: CodexPayload) -> None:
        match payload.type:
            case "item_completed" if payload.item is not None:
                self._complete(payload.item)
            case "exec_command_end" | "patch_apply_end" if payload.call_id:
                is_command = payload.type == "exec_command_end"
                self._complete(
                    CompletedItem(
                        type="CommandExecution" if is_command else "FileChange",
                        id=payload.call_id,
                        command=payload.command,
                        cwd=payload.cwd,
                        status="failed" if payload.success is False else None,
                        aggregated_output=payload.aggregated_output,
                        exit_code=payload.exit_code,
                        changes=payload.changes,
                        stdout=payload.stdout,
                        stderr=payload.stderr,
                    )
                )
            case "token_count" if payload.info is not None and not self.has_usage:
                usage, total = payload.info.last_token_usage, payload.info.total_token_usage
                if usage is not None and total is not None and total.total_tokens != self.total:
                    self.total = total.total_tokens
                    self._add_answer(f"total {self.total}", usage)
            case "task_complete" | "turn_complete":
                if payload.last_agent_message and not self.is_subagent:
                    self.hold_closing(self.turn_id or self.nth(payload.last_agent_message), payload.last_agent_message)
                self.release()
            case "turn_aborted":
                self.closing = None
            case "item_completed" | "exec_command_end" | "patch_apply_end":
                pass
            case _ if payload.type not in _IGNORED_EVENTS:
                self.tally.count_unknown(f"event_msg/{payload.type or '(none)'}")

    def _add_call(self, payload: CodexPayload) -> None:
        if not payload.call_id:
            return
        arguments: object = payload.input
        if payload.arguments is not None:
            arguments = value_of(payload.arguments.encode("utf-8", "replace")) or payload.arguments
        if payload.action is not None:
            arguments = {"command": payload.action.command, "workdir": payload.action.working_directory}
        tool = "local_shell" if payload.type == "local_shell_call" else payload.name or "(none)"
        self.pending[payload.call_id] = PendingCall(tool, arguments)
        if len(self.pending) > PENDING_MAX:
            del self.pending[next(iter(self.pending))]

    def _complete(self, item: CompletedItem) -> None:
        """Add the events of a completed command or patch, with its exit code, folder and changed lines."""
        if item.type not in ("CommandExecution", "FileChange") or not item.id:
            return
        pending = self.pending.pop(item.id, None)
        if item.type == "FileChange":
            arguments: object = pending.arguments if pending else None
            result: dict[str, object] = {"status": item.status, "stdout": item.stdout, "stderr": item.stderr}
            if bytes(memoryview(item.changes)[:1]) == b"{":
                result["changes"] = value_of(item.changes)
            self._make_call(item.id, tools.PATCH, arguments, result)
            return
        # The command as Codex completed it; as in hooks, it is reported as a call of `Bash`.
        result = {"aggregated_output": item.aggregated_output, "exit_code": item.exit_code, "status": item.status}
        result["cwd"] = item.cwd
        self._make_call(item.id, tools.SHELL, {"command": item.command}, result)

    def _add_result(self, payload: CodexPayload) -> None:
        call = payload.call_id or ""
        pending = self.pending.pop(call, None)
        if pending is None:
            return  # an `item_completed` record was read before
        output, failed = payload.output, False
        if isinstance(output, list):
            output = join_texts([part.text for part in output])
        if isinstance(output, str) and output.startswith('{"output":'):
            with contextlib.suppress(ValueError):
                output = _OUTPUT.read(output.encode("utf-8", "replace"), self.tally)
        result: object = output
        if isinstance(output, CodexOutput):
            code = output.metadata.exit_code if output.metadata else output.exit_code
            result = {"output": output.output or output.content, "exit_code": code}
            failed = output.success is False
        self._make_call(call, pending.tool, pending.arguments, result, failed=failed)

    def _make_call(self, name: str, tool: str, arguments: object, result: object, *, failed: bool = False) -> None:
        self._begin_turn()
        call = ClientCall(id=name, tool=tool, arguments=arguments, result=result, failed=failed, cwd=self.cwd)
        self.call(self._name_in_turn(name), tools.drafts(call, self.files, self.tally))


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """Return the rollouts below a folder. In Codex's own folder, only its session folders are searched."""

    def is_one(name: str) -> bool:
        return name.startswith("rollout-") and name.endswith(".jsonl")

    folders = [root / name for name in ("sessions", "archived_sessions") if (root / name).is_dir()] or [root]
    return [path for folder in folders for path in reader.find_files(folder, is_one=is_one, unreadable=unreadable)]


def head(path: Path) -> TranscriptHead | None:
    for record in reader.first_records(path, RECORD, limit=HEAD_LINES_MAX):
        payload = record.payload
        if record.type == "session_meta" and payload is not None and (payload.session_id or payload.id):
            return TranscriptHead(
                session=payload.session_id or payload.id or "",
                cwd=payload.cwd,
                version=payload.cli_version,
                branch=payload.git.branch if payload.git else None,
            )
    return None


extent = reader.file_extent
numbers = reader.line_numbers


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
) -> Iterator[tuple[int, list[Event]]]:
    return reader.read_records(path, RECORD, CodexTranscript(path.stem, root), start=start, closed=closed, tally=tally)
