"""Reads Claude Code transcripts into events.

`~/.claude/projects/<folder>/<session>.jsonl` has one record per line; subagents write separate files next to it. Every
read, search, edit and command becomes an event in the order of access, with its lines, tokens and hash. Prompts,
commits, the agent's closing words and its summaries become marks, verbatim except for secrets. Text that hooks, mica or
Claude Code itself inserted is ignored.

The id of an event is derived from the id that the transcript gives a prompt, call or answer. So reading a file twice,
in pieces or in another order gives the same ids, and so does reading a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from mica.clients import reader
from mica.clients.claude_code.records import (
    ATTACHMENT,
    BEGINNING,
    IGNORED,
    INPUT,
    RECORD,
    RESULT,
    TEXT,
    Attachment,
    ClaudeBlock,
    ClaudeInput,
    ClaudeMessage,
    ClaudeRecord,
    ClaudeResult,
    Compaction,
    is_ignored,
    typed,
    typed_while_working,
)
from mica.clients.claude_code.tools import ClaudeToolCall, drafts_of, guess
from mica.clients.event_builder import EventBuilder, utc
from mica.clients.line_ranges import count_lines
from mica.clients.prompts import Prompt, TypedPrompt
from mica.clients.reader import TranscriptHead
from mica.clients.records import ImportTally, text_of
from mica.clients.tool_effects import ClientCall
from mica.events.json_lines import read_lines
from mica.model.event import Event, Ref

NAME = "claude-code"
HEAD_LINES_MAX = 200  # Claude Code writes a few dozen records before the first one with the session's folder
RECORDS = ("user", "assistant", "system", "attachment")
PENDING_MAX = 10_000  # calls without a result; in a transcript with more, results are missing

_TURN_ENDS = ("turn_duration", "stop_hook_summary", "compact_boundary")


class PendingClaudeCall(msgspec.Struct, frozen=True):
    """A tool call whose result is not read yet."""

    tool: str
    arguments: ClaudeInput
    lines: int | None = None  # the number of lines that a Write call writes


class ClaudeTranscript(EventBuilder):
    """Builds the events of one transcript.

    Between records it keeps ids, calls whose result is not read yet, and the number of lines of each file.
    """

    def __init__(self, name: str, root: str | None) -> None:
        super().__init__(NAME, has_unique_names=True, session=name, root=root)
        self.prompts: dict[str, str] = {}  # for each prompt id, the record in which it first occurred
        self.pending: dict[str, PendingClaudeCall] = {}

    def take(self, record: ClaudeRecord, *, number: int, tally: ImportTally) -> list[Event]:
        """Return the events made from a record. Records of an unknown type are only counted in `tally`."""
        self.begin(number, tally)
        if record.type not in RECORDS:
            if record.type not in IGNORED:
                tally.count_unknown(record.type or "(none)")
            return []
        if not self.is_dated(utc(record.timestamp)):
            return []
        if record.type == "attachment":
            self._queued_prompt(record)
            return self.made
        self._open(record)
        if record.type == "user":
            self._user(record)
        elif record.type == "assistant" and record.message is not None:
            self._assistant(record, record.message)
        elif record.subtype in _TURN_ENDS:
            self.release()
            if record.subtype == "compact_boundary":
                self._compacted(record)
        return self.made

    # -- Session and names

    def _place(self, record: ClaudeRecord) -> None:
        forked = record.forked_from.session_id if record.forked_from else None
        agent = record.agent_id or ("subagent" if record.is_sidechain else NAME)
        self.place(forked or record.session_id, agent=agent, branch=record.git_branch, cwd=record.cwd)

    def _open(self, record: ClaudeRecord) -> None:
        self._place(record)
        if not _is_subagent(record):
            self.start(cwd=record.cwd, branch=record.git_branch, version=record.version)

    def _name(self, record: ClaudeRecord) -> str:
        return record.uuid or f"{self.session}:{self.at}:{self.number}"

    # -- Prompts

    def _user(self, record: ClaudeRecord) -> None:
        if record.prompt_id:
            # A subagent's prompt is in another file; any other parent must be a prompt of this file.
            known = _is_subagent(record) or record.prompt_id in self.prompts
            self.turn = self.root(f"prompt:{record.prompt_id}") if known else None
        content = record.message.content if record.message else None
        results = [block for block in content if block.type == "tool_result"] if isinstance(content, list) else []
        if results and record.prompt_id and self.turn is None:
            self._begin_untyped(record.prompt_id)
        for block in results:
            self._result(record, block)
        if record.is_compact_summary:
            self.summary(record.prompt_id or self._name(record), text_of(content))
        if results or _is_subagent(record):
            return
        prompt = typed(record)
        if prompt is not None:
            self.release()
            self._prompt(record, prompt)
        elif text_of(content).startswith("[Request interrupted by user"):
            self.closing = None  # the agent was interrupted, so these were not its closing words

    def _prompt(self, record: ClaudeRecord, prompt: Prompt) -> None:
        opener = self._name(record)
        name = record.prompt_id or opener
        self.turn = self.root(f"prompt:{name}")
        if self.prompts.setdefault(name, opener) == opener:
            self._make_prompt(prompt, key=f"prompt:{name}", parent=None)
        else:  # another prompt was typed before the agent answered
            self._make_prompt(prompt, key=f"prompt:{name}:{opener}", parent=self.turn)

    def _begin_untyped(self, name: str) -> None:
        self.prompts[name] = name
        self.untyped(name)

    def _queued_prompt(self, record: ClaudeRecord) -> None:
        """Add a prompt to the current turn. The person typed it while the agent was working."""
        prompt = typed_while_working(self._decode_attachment(record.attachment))
        if prompt is None or _is_subagent(record):
            return
        self._place(record)
        self._make_prompt(prompt, key=f"prompt:{self._name(record)}", parent=self.parent)

    def _decode_attachment(self, raw: msgspec.Raw) -> Attachment:
        try:
            return ATTACHMENT.read(raw, self.tally)
        except ValueError:
            return Attachment()

    def _make_prompt(self, prompt: Prompt, *, key: str, parent: Ref | None) -> None:
        if isinstance(prompt, TypedPrompt):
            self.make_prompt(prompt.text, key=key, parent=parent)
        else:
            self.make_command(prompt.name, prompt.args, key=key, parent=parent)

    # -- Answers and tool calls

    def _assistant(self, record: ClaudeRecord, message: ClaudeMessage) -> None:
        if record.is_api_error_message or message.model == "<synthetic>":
            return  # written by Claude Code, not by the model
        self._count(record, message)
        blocks = (
            [ClaudeBlock(type="text", text=message.content)]
            if isinstance(message.content, str)
            else message.content or []
        )
        for block in blocks:
            if block.type == "tool_use" and block.id:
                self._add_call(block.id, block)
        text = "\n".join(block.text for block in blocks if block.type == "text" and block.text).strip()
        if any(block.type == "tool_use" for block in blocks):
            self.closing = None
        elif text and message.stop_reason in (None, "end_turn"):
            self.hold_closing(self.closing_name(text), text)
            if message.stop_reason:
                self.release_closing()

    def _count(self, record: ClaudeRecord, message: ClaudeMessage) -> None:
        """Record the token usage of an answer as one event.

        Claude Code writes each block of an answer as a separate record. Old versions write the complete usage only in
        the last record, which cannot be recognized as the last; so the event is held back until the next answer begins.
        """
        if message.usage is None:
            return
        unnamed = f"{message.id}:{record.request_id or ''}" if message.id else self._name(record)
        fields: dict[str, object] = {
            "model": message.model,
            "input_tokens": message.usage.input_tokens,
            "cache_read_tokens": message.usage.cache_read_input_tokens,
            "cache_write_tokens": message.usage.cache_creation_input_tokens,
            "output_tokens": message.usage.output_tokens,
        }
        self.hold_answer(record.request_ref or unnamed, fields)
        if message.stop_reason is not None:
            self.release_answer()

    def _add_call(self, call: str, block: ClaudeBlock) -> None:
        tool = block.name or "(none)"
        try:
            arguments = INPUT.read(block.input, self.tally)
        except ValueError:
            arguments = ClaudeInput()
        written = None
        if tool == "Write":
            try:
                written = count_lines(TEXT.read(arguments.content, self.tally))
            except ValueError:
                written = None
        arguments.content = msgspec.Raw()  # it would keep the whole line in memory
        self.pending[call] = PendingClaudeCall(tool, arguments, written)
        if len(self.pending) > PENDING_MAX:
            del self.pending[next(iter(self.pending))]

    def _result(self, record: ClaudeRecord, block: ClaudeBlock) -> None:
        result = self._decode_result(record.tool_use_result)
        pending = self.pending.pop(block.tool_use_id or "", None)
        if pending is None:
            tool = guess(result)
            if tool is None:
                return
            pending = PendingClaudeCall(tool, ClaudeInput())
        name = block.tool_use_id or self._name(record)
        failed = block.is_error
        if failed is None:
            failed = bytes(memoryview(record.tool_use_result)[:8]) == b'"Error: '
        decision = record.permission_decision.decision if record.permission_decision else None
        denied = record.tool_denial_kind is not None or decision == "reject"
        call = ClaudeToolCall(
            call=ClientCall(id=name, tool=pending.tool, failed=failed or denied, denied=denied, cwd=record.cwd),
            arguments=pending.arguments,
            lines=pending.lines,
            result=result,
            text=text_of(block.content),
        )
        self.call(name, drafts_of(call, self.files, self.tally))

    def _decode_result(self, raw: msgspec.Raw) -> ClaudeResult:
        if bytes(memoryview(raw)[:1]) != b"{":
            return ClaudeResult()
        try:
            return RESULT.read(raw, self.tally)
        except ValueError:
            return ClaudeResult()

    def _compacted(self, record: ClaudeRecord) -> None:
        facts = record.compact_metadata or Compaction()
        name = self._name(record)
        self.compact(name, trigger=facts.trigger, before=facts.pre_tokens, after=facts.post_tokens)


def _is_subagent(record: ClaudeRecord) -> bool:
    return record.agent_id is not None or record.is_sidechain is True


# -- The reader -----------------------------------------------------------------------------------------


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """Return the transcripts below a folder, newest first, including those of subagents."""
    return reader.find_files(root, is_one=lambda name: name.endswith(".jsonl"), unreadable=unreadable)


extent = reader.file_extent
numbers = reader.line_numbers


def head(path: Path) -> TranscriptHead | None:
    """Read the session of a transcript from its first lines; None if it is not a transcript. Raises OSError."""
    first: TranscriptHead | None = None
    tally = ImportTally()
    for line in read_lines(path):
        try:
            record = RECORD.read(line.text, tally)
        except ValueError:
            record = ClaudeRecord()
        if record.session_id and (record.type in RECORDS or record.type in IGNORED):
            first = first or TranscriptHead(session=record.session_id, agent=record.agent_id)
            if record.cwd:
                facts = {"cwd": record.cwd, "version": record.version, "branch": record.git_branch}
                return TranscriptHead(session=first.session, agent=first.agent or record.agent_id, **facts)
        if line.number >= HEAD_LINES_MAX:
            break
    return first


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
) -> Iterator[tuple[int, list[Event]]]:
    transcript = ClaudeTranscript(path.stem, root)
    return reader.read_records(
        path, RECORD, transcript, start=start, closed=closed, tally=tally, skip=is_ignored, rescue=_record_after_torn
    )


def _record_after_torn(text: bytes, tally: ImportTally) -> ClaudeRecord | None:
    """Decode the complete record at the end of a line that begins with a cut-off record; None if there is none."""
    begin = text.rfind(BEGINNING)
    if begin < 1:
        return None
    try:
        return RECORD.read(text[begin:], tally)
    except ValueError:
        return None
