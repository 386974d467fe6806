"""Records of Claude Code to events: what was said and done in each turn, under the prompt that began it."""

from __future__ import annotations

import msgspec

from mica.clients.claude_code.prompts import typed, typed_meanwhile
from mica.clients.claude_code.records import (
    ATTACHMENT,
    CLIENT,
    IGNORED,
    INPUT,
    RESULT,
    TEXT,
    Attachment,
    Block,
    Compaction,
    Input,
    Message,
    Record,
    Result,
    text_of,
)
from mica.clients.claude_code.tools import Answered, drafts_of, guess
from mica.clients.event_builder import Teller, utc
from mica.clients.line_ranges import line_count
from mica.clients.prompts import Command, Prompt
from mica.clients.records import Tally
from mica.clients.tool_effects import Call
from mica.model.event import Event, Ref

RECORDS = ("user", "assistant", "system", "attachment")
PENDING_MAX = 10_000  # calls without a result; a transcript with more has lost its results

_TURN_ENDS = ("turn_duration", "stop_hook_summary", "compact_boundary")


class _Asked(msgspec.Struct, frozen=True):
    """A tool call that waits for its result."""

    tool: str
    given: Input
    lines: int | None = None  # of the text to be written


class Transcript(Teller):
    """What is remembered while a transcript is read: ids, open calls, lengths of files; never their text."""

    def __init__(self, name: str, root: str | None) -> None:
        super().__init__(CLIENT, session=name, root=root)
        self.prompts: dict[str, str] = {}  # a prompt's name and the record that opened it
        self.pending: dict[str, _Asked] = {}

    def take(self, record: Record, *, number: int, tally: Tally) -> list[Event]:
        """The events this record brings about."""
        self.begin(number, tally)
        if record.type not in RECORDS:
            if record.type not in IGNORED:
                tally.meet(record.type or "(none)")
            return []
        if not self.is_dated(utc(record.timestamp)):
            return []
        if record.type == "attachment":
            self._meanwhile(record)
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

    # -- Where a record stands

    def _place(self, record: Record) -> None:
        forked = record.forked_from.session_id if record.forked_from else None
        agent = record.agent_id or ("subagent" if record.is_sidechain else CLIENT)
        self.place(forked or record.session_id, agent=agent, branch=record.git_branch, cwd=record.cwd)

    def _open(self, record: Record) -> None:
        self._place(record)
        if not _is_subagent(record):
            self.start(cwd=record.cwd, branch=record.git_branch, version=record.version)

    def _name(self, record: Record) -> str:
        """What a record is called; one that lacks its uuid is called by its place."""
        return record.uuid or f"{self.session}:{self.at}:{self.number}"

    # -- What people say

    def _user(self, record: Record) -> None:
        if record.prompt_id:
            # A subagent's prompt stands in another file; here only prompts that were seen can be parents.
            known = _is_subagent(record) or record.prompt_id in self.prompts
            self.turn = self.root(f"prompt:{record.prompt_id}") if known else None
        content = record.message.content if record.message else None
        results = [block for block in content if block.type == "tool_result"] if isinstance(content, list) else []
        if results and record.prompt_id and self.turn is None:
            self._begin_untyped(record.prompt_id)
        for block in results:
            self._result(record, block)
        if results or _is_subagent(record):
            return
        said = typed(record)
        if said is not None:
            self.release()
            self._prompt(record, said)
        elif text_of(content).startswith("[Request interrupted by user"):
            self.closing = None  # the turn did not end by these words

    def _prompt(self, record: Record, said: Prompt | Command) -> None:
        opener = self._name(record)
        name = record.prompt_id or opener
        self.turn = self.root(f"prompt:{name}")
        if self.prompts.setdefault(name, opener) == opener:
            self._say(said, key=f"prompt:{name}", parent=None)
        else:  # more was typed before the agent answered
            self._say(said, key=f"prompt:{name}:{opener}", parent=self.turn)

    def _begin_untyped(self, name: str) -> None:
        """A turn that nobody typed: its subagents' files refer to it too."""
        self.prompts[name] = name
        self.untyped(name)

    def _meanwhile(self, record: Record) -> None:
        """What was typed while the agent worked belongs to the turn it was typed into."""
        said = typed_meanwhile(self._decode_attachment(record.attachment))
        if said is None or _is_subagent(record):
            return
        self._place(record)
        self._say(said, key=f"prompt:{self._name(record)}", parent=self.parent)

    def _decode_attachment(self, raw: msgspec.Raw) -> Attachment:
        try:
            return ATTACHMENT.read(raw, self.tally)
        except ValueError:
            return Attachment()

    def _say(self, said: Prompt | Command, *, key: str, parent: Ref | None) -> None:
        if isinstance(said, Prompt):
            self.say(said.text, key=key, parent=parent)
        else:
            self.run_command(said.name, said.args, key=key, parent=parent)

    # -- What the agent says and does

    def _assistant(self, record: Record, message: Message) -> None:
        if record.is_api_error_message or message.model == "<synthetic>":
            return  # the host speaks in the model's place
        self._count(record, message)
        blocks = (
            [Block(type="text", text=message.content)] if isinstance(message.content, str) else message.content or []
        )
        for block in blocks:
            if block.type == "tool_use" and block.id:
                self._ask(block.id, block)
        text = "\n".join(block.text for block in blocks if block.type == "text" and block.text).strip()
        if any(block.type == "tool_use" for block in blocks):
            self.closing = None
        elif text and message.stop_reason in (None, "end_turn"):
            self.hold_closing(self.closing_name(text), text)
            if message.stop_reason:
                self.release_closing()

    def _count(self, record: Record, message: Message) -> None:
        """Counts an answer once; each of its blocks is a record that repeats it.

        In old versions only the last of them knows all tokens, and none says that it is the last.
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

    def _ask(self, call: str, block: Block) -> None:
        tool = block.name or "(none)"
        try:
            given = INPUT.read(block.input, self.tally)
        except ValueError:
            given = Input()
        written = None
        if tool == "Write":
            try:
                written = line_count(TEXT.read(given.content, self.tally))
            except ValueError:
                written = None
        given.content = msgspec.Raw()  # it would keep the whole line in memory
        self.pending[call] = _Asked(tool, given, written)
        if len(self.pending) > PENDING_MAX:
            del self.pending[next(iter(self.pending))]

    def _result(self, record: Record, block: Block) -> None:
        result = self._decode_result(record.tool_use_result)
        asked = self.pending.pop(block.tool_use_id or "", None)
        if asked is None:
            tool = guess(result)
            if tool is None:
                return
            asked = _Asked(tool, Input())
        name = block.tool_use_id or self._name(record)
        failed = block.is_error
        if failed is None:
            failed = bytes(memoryview(record.tool_use_result)[:8]) == b'"Error: '
        decision = record.permission_decision.decision if record.permission_decision else None
        denied = record.tool_denial_kind is not None or decision == "reject"
        told = Answered(
            call=Call(id=name, tool=asked.tool, failed=failed or denied, denied=denied, cwd=record.cwd),
            given=asked.given,
            lines=asked.lines,
            result=result,
            text=text_of(block.content),
        )
        self.call(name, drafts_of(told, self.files, self.tally))

    def _decode_result(self, raw: msgspec.Raw) -> Result:
        """The structured result; some tools return text, or nothing, in its place."""
        if bytes(memoryview(raw)[:1]) != b"{":
            return Result()
        try:
            return RESULT.read(raw, self.tally)
        except ValueError:
            return Result()

    def _compacted(self, record: Record) -> None:
        facts = record.compact_metadata or Compaction()
        name = self._name(record)
        self.compact(name, trigger=facts.trigger, before=facts.pre_tokens, after=facts.post_tokens)


def _is_subagent(record: Record) -> bool:
    return record.agent_id is not None or record.is_sidechain is True
