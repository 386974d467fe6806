"""Turns the lines that `mica-hook` wrote to a spool file into events, for every client.

Events get the same names as from transcripts. So a call becomes one event, even if a hook and a transcript, or two
hooks, report it. Fields that are missing or of another type are left out, and hook events of unknown types are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mica.clients.client import Client
from mica.clients.event_builder import EventBuilder, label
from mica.clients.prompts import Prompt, SlashCommand, TypedPrompt, text_of_prompt
from mica.clients.records import ImportTally
from mica.clients.registry import BY_HOOK
from mica.clients.spool import SessionState, SpoolLine
from mica.clients.tool_effects import ClientCall, digest
from mica.hook import ANSWERED, PASSED_OVER, PROMPTS, STARTS, session_of
from mica.model.event import BRIEFED, Event
from mica.model.walk import OFFER

CHARACTERS_A_TOKEN = 4  # of lines with paths; a hook has no time to count
REMEMBERED_MAX = 10_000  # entries of each kind, in one session

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_COMMANDS = ("command.execute.before",)
_CALLS = ("PostToolUse", "AfterTool", "postToolUse", "tool.execute.after", "tool")
_FAILED_CALLS = ("PostToolUseFailure", "postToolUseFailure")
_CLOSES = ("Stop", "AfterAgent", "agentStop", "stop", "session.idle")
_COMPACTED = ("PostCompact",)
_ENDS = ("SessionEnd", "sessionEnd", "session.deleted")
_KNOWN = frozenset((*STARTS, *PROMPTS, *_COMMANDS, *_CALLS, *_FAILED_CALLS, *_CLOSES, *_COMPACTED, *_ENDS))
_IGNORED = PASSED_OVER | frozenset(
    # Known from elsewhere: a command from its prompt, the size of a compaction from the transcript, edits from calls.
    "UserPromptExpansion PreCompact preCompact SubagentStart SubagentStop subagentStart subagentStop Setup "
    "StopFailure afterShellExecution afterMCPExecution afterFileEdit afterAgentResponse PreModelSwitch PostModelSwitch "
    "TaskCreated TaskCompleted TeammateIdle WorktreeCreate WorktreeRemove DirectoryAdded init session.status "
    "session.error session.updated session.diff session.compacted catalog.updated reference.updated "
    "integration.updated file.edited file.watcher.updated command.executed errorOccurred".split()
)


class HookReader:
    """Turns the spooled lines of one session into events.

    `state` is what `state()` returned after the last import of such lines. `root_of` returns the root of the working
    tree that a folder belongs to. Without `keeps_prompts`, no text of a prompt or an answer is recorded. Calls of the
    tools in `excluded` result in no events.
    """

    def __init__(
        self,
        state: SessionState | None = None,
        *,
        root_of: Callable[[Path], Path] = lambda folder: folder,
        keeps_prompts: bool = True,
        excluded: Collection[str] = (),
    ) -> None:
        self._state = state or SessionState()
        self._root_of = root_of
        self._keeps_prompts = keeps_prompts
        self._excluded = excluded
        self._builders: dict[str, EventBuilder] = {}

    def read(self, line: SpoolLine, *, tally: ImportTally, number: int = 0) -> list[Event]:
        """Return the events that a spooled line reports. A line of an unknown type is counted in `tally`."""
        client = BY_HOOK.get(line.client)
        event, payload = line.event, line.payload
        if client is not None and client.unwrap is not None and event != ANSWERED:
            event, payload = client.unwrap(event, payload)
        if event in _IGNORED:
            return []
        if client is None or (event not in _KNOWN and event != ANSWERED):
            tally.count_unknown(f"{line.client}:{event}")
            return []
        builder = self._builder(client)
        builder.at = _EPOCH + timedelta(microseconds=line.at)
        builder.begin(number, tally)
        cwd = _text(payload, "cwd", "directory") or line.directory
        self._place(builder, payload, cwd)
        if event in PROMPTS or event in _COMMANDS:
            self._prompt(builder, client, line, event, payload)
        elif event in _CALLS or event in _FAILED_CALLS:
            self._call(builder, client, payload, cwd, failed=event in _FAILED_CALLS)
        elif event in _CLOSES:
            self._close(builder, client, payload)
        elif event in _COMPACTED:
            self._summary(builder, payload)
        elif event in _ENDS:
            builder.end(_text(payload, "reason"))
        elif event == ANSWERED and (turn := _turn_name(payload)) is not None:
            builder.turn = builder.root(builder.key("prompt", turn))
        if line.offered:
            self._offer(builder, line, line.offered)
        return builder.made

    def state(self) -> SessionState:
        """Return what the next ingest (the import of spooled lines) needs to know about the session."""
        state = self._state
        for builder in self._builders.values():
            state.lengths = dict(list(builder.files.lengths().items())[-REMEMBERED_MAX:])
        state.prompts = state.prompts[-REMEMBERED_MAX:]
        return state

    # -- Where it happened

    def _builder(self, client: Client) -> EventBuilder:
        if client.name not in self._builders:
            builder = EventBuilder(client.name, has_unique_names=client.has_unique_names, root=self._state.root)
            for name, length in self._state.lengths.items():
                builder.files.learn(name, length)
            self._builders[client.name] = builder
        return self._builders[client.name]

    def _place(self, builder: EventBuilder, payload: Mapping[str, object], cwd: str | None) -> None:
        if self._state.root is None and cwd is not None and cwd.startswith("/"):
            self._state.root = str(self._root_of(Path(cwd)))
        builder.files.root = self._state.root
        session = session_of(dict(payload)) or "unknown"
        builder.place(session, agent=_text(payload, "agent_id"), branch=None, cwd=cwd)
        if not self._state.started:
            self._state.started = True
            version = _text(payload, "cursor_version") or _text(payload.get("info"), "version")
            builder.start(cwd=cwd, branch=None, version=version)
        if self._state.turn is not None:
            builder.turn = builder.root(builder.key("prompt", self._state.turn))

    # -- Prompts, closing words and answers

    def _prompt(
        self, builder: EventBuilder, client: Client, line: SpoolLine, event: str, payload: Mapping[str, object]
    ) -> None:
        prompt = _prompt_of(client, event, payload) if self._keeps_prompts else None
        if event in _COMMANDS:  # the message that follows has a name and holds the command's expansion
            self._state.command = (prompt.name, prompt.args) if isinstance(prompt, SlashCommand) else None
            return
        if self._state.command is not None:
            prompt, self._state.command = SlashCommand(*self._state.command), None
        name = _turn_name(payload)
        if name is None:
            name = f"{line.at}" if prompt is None else self._nth(payload, text_of_prompt(prompt))
        if name in self._state.prompts:
            return
        self._begin_turn(name)
        match prompt:
            case TypedPrompt(text=text):
                builder.prompt(name, text)
            case SlashCommand(name=command, args=args):
                builder.command(name, command=command, args=args)
            case None:
                builder.untyped(name)

    def _begin_turn(self, name: str) -> None:
        self._state.turn = name
        self._state.prompts.append(name)

    def _close(self, builder: EventBuilder, client: Client, payload: Mapping[str, object]) -> None:
        text = _text(payload, "last_assistant_message", "prompt_response") if self._keeps_prompts else None
        turn = _turn_name(payload) or self._state.turn
        if text and text.strip() and turn is not None:
            name = builder.closing_name(text.strip()) if client.names_closings_by_text else turn
            builder.hold_closing(name, text.strip())
        builder.release()

    def _summary(self, builder: EventBuilder, payload: Mapping[str, object]) -> None:
        text = _text(payload, "compact_summary") if self._keeps_prompts else None
        turn = _turn_name(payload) or self._state.turn
        if text and turn is not None:
            counted = f"summary:{_text(payload, 'agent_id') or ''}:{turn}"
            self._state.met[counted] = number = self._state.met.get(counted, 0) + 1
            builder.summary(turn, text, number=number)

    def _offer(self, builder: EventBuilder, line: SpoolLine, offered: Mapping[str, object]) -> None:
        """Record what a hook showed to the agent: file suggestions or a brief.

        In a held-out session the agent is shown nothing, so that the effect can be measured. The record then has the
        field `held_out`. The origin of the record is `recalled`, so it is never evidence.
        """
        is_held_out = offered.get("held_out") is True
        fields: dict[str, object] = {"receipt": _text(offered, "receipt")} | ({"held_out": True} if is_held_out else {})
        name = BRIEFED
        if offered.get("kind") == "prompt":
            paths, characters = offered.get("paths"), offered.get("characters")
            labels = [label(path) for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
            tokens = characters // CHARACTERS_A_TOKEN if isinstance(characters, int) else 0
            name, fields = OFFER, {"paths": labels, "tokens": tokens, "held_out": is_held_out}
        key = f"offer:{builder.session}:{line.at}"
        builder.make(key, name, fields, parent=builder.parent, origin="recalled")

    # -- Tool calls

    def _call(
        self, builder: EventBuilder, client: Client, payload: Mapping[str, object], cwd: str | None, *, failed: bool
    ) -> None:
        tool = _text(payload, "tool_name", "toolName", "tool")
        if tool is None or tool in self._excluded:
            return
        arguments = _first(payload, "tool_input", "toolArgs", "args")
        result = _first(payload, "tool_response", "tool_result", "toolResult", "tool_output", "output", "error")
        turn = _turn_name(payload)
        if turn is not None and turn != self._state.turn:
            self._state.turn = turn
            builder.turn = builder.root(builder.key("prompt", turn))
            if turn not in self._state.prompts:  # typed by no person, or before the hooks were installed
                self._begin_turn(turn)
                builder.untyped(turn)
        failed = failed or _is_failure(result)
        name = _text(payload, "tool_use_id", "callID") or self._nth(payload, [arguments, failed])
        call = ClientCall(id=name, tool=tool, arguments=arguments, result=result, failed=failed, cwd=cwd)
        if client.names_calls_in_turns:
            name = f"{turn or builder.session}:{name}"
        builder.call(name, client.drafts(call, builder.files, builder.tally))

    def _nth(self, payload: Mapping[str, object], value: object) -> str:
        """Return a name for a prompt or call to which the client gave no name, as `EventBuilder.nth` does.

        Occurrences are counted separately for the client's own hooks and for a plugin's hooks. If a client runs both,
        each call is reported twice, and both reports get the same name.
        """
        name = digest(value)
        kind = "plugin" if "hook_event_name" in payload else "own"
        counted = f"{kind}:{name}"
        met = self._state.met
        met[counted] = met.get(counted, 0) + 1
        while len(met) > REMEMBERED_MAX:
            del met[next(iter(met))]
        return f"{name}:{met[counted]}"


# -- Payloads --------------------------------------------------------------------------------------------------


def _prompt_of(client: Client, event: str, payload: Mapping[str, object]) -> Prompt | None:
    if event in _COMMANDS:
        name = _text(payload, "command")
        return SlashCommand(name, _text(payload, "arguments") or "") if name else None
    text = _text(payload, "prompt", "text")
    if text is None:
        text = _message_text(payload.get("output"))
    return None if text is None else client.typed(text)


def _is_failure(result: object) -> bool:
    """Return True if the result of a tool call says that the call failed. Some clients report failures only there."""
    if not isinstance(result, Mapping):
        return False
    return _text(result, "resultType", "result_type") not in (None, "success") or result.get("error") is not None


def _message_text(output: object) -> str | None:
    parts = output.get("parts") if isinstance(output, dict) else None
    if not isinstance(parts, list):
        return None
    texts = [_text(part, "text") for part in parts if isinstance(part, dict) and not part.get("synthetic")]
    return "\n".join(text for text in texts if text) or None


def _turn_name(payload: Mapping[str, object]) -> str | None:
    output = payload.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    return _text(payload, "prompt_id", "turn_id", "generation_id") or _text(message, "id")


def _text(fields: object, *names: str) -> str | None:
    if not isinstance(fields, Mapping):
        return None
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), None)


def _first(fields: Mapping[str, object], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
