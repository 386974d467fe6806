"""Records of Claude Code to events: what was said and done in each turn, under the prompt that began it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from mica.errors import InvalidInput
from mica.model import (
    EMPTY,
    LABEL_CHARACTERS_MAX,
    MARK,
    Context,
    Event,
    Origin,
    Ref,
    child_of,
    event_id,
    make_event,
    sequence_named,
    writer_named,
)
from mica.observe.clients.claude_prompts import Command, Prompt, typed, typed_meanwhile
from mica.observe.clients.claude_records import (
    ATTACHMENT,
    CLIENT,
    IGNORED,
    INPUT,
    RESULT,
    TEXT,
    Attachment,
    Block,
    Input,
    Message,
    Record,
    Result,
    text_of,
)
from mica.observe.clients.claude_tools import Answered, drafts_of, guess
from mica.observe.clients.ranges import line_count
from mica.observe.clients.records import Tally
from mica.observe.clients.touching import Call, Files, verbatim

WRITER = writer_named(f"import:{CLIENT}")
RECORDS = ("user", "assistant", "system", "attachment")
TEXT_CHARACTERS_MAX = 1_000_000  # more than a model's window holds; what is longer was not typed
PENDING_MAX = 10_000  # calls without a result; a transcript with more has lost its results

_NEVER = datetime.max.replace(tzinfo=UTC)
_TURN_ENDS = ("turn_duration", "stop_hook_summary", "compact_boundary")


class _Asked(msgspec.Struct, frozen=True):
    """A tool call that waits for its result."""

    tool: str
    given: Input
    lines: int | None = None  # of the text to be written


class _Held(msgspec.Struct, frozen=True):
    """An event that is not certain before the next record."""

    key: str
    text: str
    fields: dict[str, object]
    at: datetime
    context: Context
    parent: Ref


class Transcript:
    """What is remembered while a transcript is read: ids, open calls, lengths of files; never their text."""

    def __init__(self, name: str, root: str | None) -> None:
        self.session = name
        self.at = _NEVER
        self.context = EMPTY
        self.turn: Ref | None = None  # the prompt that everything hangs under until the next
        self.files = Files(root)
        self.sessions: set[str] = set()
        self.prompts: dict[str, str] = {}  # a prompt's name and the record that opened it
        self.pending: dict[str, _Asked] = {}
        self.seen: set[int] = set()  # sequences of the events made
        self.answer: _Held | None = None
        self.closing: _Held | None = None
        self.made: list[Event] = []
        self.number = 0
        self.tally = Tally()

    def take(self, record: Record, *, number: int, tally: Tally) -> list[Event]:
        """The events this record brings about."""
        self.number, self.tally, self.made = number, tally, []
        if record.type not in RECORDS:
            if record.type not in IGNORED:
                tally.meet(record.type or "(none)")
            return []
        self.at = _utc(record.timestamp) or self.at
        if self.at is _NEVER:
            tally.complain(number, "no time, and none before it")
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
            self._release()
            if record.subtype == "compact_boundary":
                self._compacted(record)
        return self.made

    @property
    def is_settled(self) -> bool:
        """Whether no event waits for a later record."""
        return self.answer is None and self.closing is None

    def settle(self) -> list[Event]:
        """The events that only the end of the file makes certain."""
        self.made = []
        self._release()
        return self.made

    # -- Where a record stands

    def _place(self, record: Record) -> None:
        forked = record.forked_from.session_id if record.forked_from else None
        self.session = forked or record.session_id or self.session
        agent = record.agent_id or ("subagent" if record.is_sidechain else CLIENT)
        self.context = _context(_label(self.session), _label(agent), _label(record.git_branch))
        self.files.root = self.files.root or record.cwd

    def _open(self, record: Record) -> None:
        self._place(record)
        if self.session in self.sessions or _is_subagent(record):
            return
        self.sessions.add(self.session)
        fields: dict[str, object] = {
            "cwd": record.cwd,
            "branch": record.git_branch,
            "version": record.version,
            "client": CLIENT,
        }
        self._make(f"session:{self.session}", "session.started", fields, parent=None, origin="tool")

    @property
    def _parent(self) -> Ref:
        return self.turn or _root(f"session:{self.session}")

    def _name(self, record: Record) -> str:
        """What a record is called; one that lacks its uuid is called by its place."""
        return record.uuid or f"{self.session}:{self.at}:{self.number}"

    # -- What people say

    def _user(self, record: Record) -> None:
        if record.prompt_id:
            # A subagent's prompt stands in another file; here only prompts that were seen can be parents.
            known = _is_subagent(record) or record.prompt_id in self.prompts
            self.turn = _root(f"prompt:{record.prompt_id}") if known else None
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
            self._release()
            self._prompt(record, said)
        elif text_of(content).startswith("[Request interrupted by user"):
            self.closing = None  # the turn did not end by these words

    def _prompt(self, record: Record, said: Prompt | Command) -> None:
        opener = self._name(record)
        name = record.prompt_id or opener
        self.turn = _root(f"prompt:{name}")
        if self.prompts.setdefault(name, opener) == opener:
            self._say(said, key=f"prompt:{name}", parent=None)
        else:  # more was typed before the agent answered
            self._say(said, key=f"prompt:{name}:{opener}", parent=self.turn)

    def _begin_untyped(self, name: str) -> None:
        """A turn that nobody typed, such as one begun by a notification: its subagents' files refer to it too."""
        self.prompts[name] = name
        self.turn = self._make(f"prompt:{name}", "turn.started", {}, parent=None, origin="tool")

    def _meanwhile(self, record: Record) -> None:
        """What was typed while the agent worked belongs to the turn it was typed into."""
        said = typed_meanwhile(self._decode_attachment(record.attachment))
        if said is None or _is_subagent(record):
            return
        self._place(record)
        self._say(said, key=f"prompt:{self._name(record)}", parent=self._parent)

    def _decode_attachment(self, raw: msgspec.Raw) -> Attachment:
        try:
            return ATTACHMENT.read(raw, self.tally)
        except ValueError:
            return Attachment()

    def _say(self, said: Prompt | Command, *, key: str, parent: Ref | None) -> None:
        if isinstance(said, Prompt):
            text = verbatim(said.text, limit=TEXT_CHARACTERS_MAX)
            self._make(key, MARK, {"text": text, "tags": ["prompt"]}, parent=parent, origin="user")
            return
        args = verbatim(said.args, limit=TEXT_CHARACTERS_MAX)
        fields: dict[str, object] = {"name": said.name, "args": args}
        if args:
            fields["text"] = f"/{said.name} {args}"
        self._make(key, "command.run", fields, parent=parent, origin="user")

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
            fields: dict[str, object] = {"tags": ["closing"]}
            self.closing = self._hold(f"closing:{self._name(record)}", fields, text=text)
            if message.stop_reason:
                self._release_closing()

    def _count(self, record: Record, message: Message) -> None:
        """Counts an answer once; each of its blocks is a record that repeats it.

        In old versions only the last of them knows all tokens, and none says that it is the last.
        """
        if message.usage is None:
            return
        unnamed = f"{message.id}:{record.request_id or ''}" if message.id else self._name(record)
        key = f"answer:{record.request_ref or unnamed}"
        fields: dict[str, object] = {
            "model": message.model,
            "input_tokens": message.usage.input_tokens,
            "cache_read_tokens": message.usage.cache_read_input_tokens,
            "cache_write_tokens": message.usage.cache_creation_input_tokens,
            "output_tokens": message.usage.output_tokens,
        }
        held = self._hold(key, fields)
        if self.answer is not None and self.answer.key == key:
            held = msgspec.structs.replace(held, at=self.answer.at, parent=self.answer.parent)
        else:
            self._release_answer()
        self.answer = held
        if message.stop_reason is not None:
            self._release_answer()

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
        turn = self._parent
        first = None
        for index, draft in enumerate(drafts_of(told, self.files, self.tally)):
            parent = first if draft.inner and first else turn
            key = f"call:{name}:{index}"
            made = self._make(key, draft.name, draft.fields, parent=parent, origin=draft.origin, error=draft.error)
            first = first or made

    def _decode_result(self, raw: msgspec.Raw) -> Result:
        """The structured result; some tools return text, or nothing, in its place."""
        if bytes(memoryview(raw)[:1]) != b"{":
            return Result()
        try:
            return RESULT.read(raw, self.tally)
        except ValueError:
            return Result()

    def _compacted(self, record: Record) -> None:
        facts = record.compact_metadata
        fields: dict[str, object] = {
            "trigger": facts and facts.trigger,
            "before_tokens": facts and facts.pre_tokens,
            "after_tokens": facts and facts.post_tokens,
        }
        parent = _root(f"session:{self.session}")
        self._make(f"compacted:{self._name(record)}", "session.compacted", fields, parent=parent, origin="tool")

    # -- Making events

    def _hold(self, key: str, fields: dict[str, object], *, text: str = "") -> _Held:
        return _Held(key, text, fields, self.at, self.context, self._parent)

    def _release(self) -> None:
        self._release_answer()
        self._release_closing()

    def _release_answer(self) -> None:
        held, self.answer = self.answer, None
        if held is not None:
            self._make_held(held, "model.answer", held.fields)

    def _release_closing(self) -> None:
        held, self.closing = self.closing, None
        if held is not None:
            self._make_held(held, MARK, {"text": verbatim(held.text, limit=TEXT_CHARACTERS_MAX), **held.fields})

    def _make_held(self, held: _Held, name: str, fields: dict[str, object]) -> None:
        self._make(held.key, name, fields, parent=held.parent, origin="agent", at=held.at, context=held.context)

    def _make(
        self,
        key: str,
        name: str,
        fields: dict[str, object],
        *,
        parent: Ref | None,
        origin: Origin,
        error: bool = False,
        at: datetime | None = None,
        context: Context | None = None,
    ) -> Ref:
        """Adds the event of this key, once for each file, and gives its place."""
        sequence = sequence_named(key)
        identifier = event_id(WRITER, sequence)
        place = child_of(WRITER, sequence, parent) if parent else Ref(WRITER, sequence)
        if sequence in self.seen:
            return place
        self.seen.add(sequence)
        try:
            event = make_event(
                identifier,
                name,
                fields,
                at=at or self.at,
                context=context or self.context,
                parent=parent,
                origin=origin,
                error=error,
            )
        except InvalidInput as problem:
            self.tally.complain(self.number, str(problem))
        else:
            self.made.append(event)
        return place


def _is_subagent(record: Record) -> bool:
    return record.agent_id is not None or record.is_sidechain is True


@lru_cache(maxsize=1_024)
def _root(key: str) -> Ref:
    """The place of an event that begins a chain, whether it was seen or not."""
    return Ref(WRITER, sequence_named(key))


@lru_cache(maxsize=1_024)
def _context(session: str, agent: str, branch: str) -> Context:
    labels = {"client": CLIENT, "branch": branch} if branch else {"client": CLIENT}
    return EMPTY.with_(session=session or None, agent=agent, labels=labels)


def _label(value: str | None) -> str:
    return (value or "")[:LABEL_CHARACTERS_MAX].replace("\0", "�")


def _utc(moment: datetime | None) -> datetime | None:
    """The moment in UTC. One without a zone is taken as UTC; one outside the calendar is none."""
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
