"""What hooks of coding agents told, as events: the lines that `mica-hook` spooled, whatever the client's shape.

Everything goes through a `Teller`, under the names that transcripts use too: a call that a hook told and that a
transcript tells later, or that two hooks of one client told, is one event. Whatever a payload lacks or holds in another
type is left out; an event that nobody taught us is counted and passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mica.clients.claude_code import tools as claude_tools
from mica.clients.claude_code.prompts import typed as typed_into_claude
from mica.clients.claude_code.records import Message, Record
from mica.clients.codex import tools as codex_tools
from mica.clients.copilot import tools as copilot_tools
from mica.clients.cursor import tools as cursor_tools
from mica.clients.event_builder import Teller, label
from mica.clients.gemini import tools as gemini_tools
from mica.clients.opencode import tools as opencode_tools
from mica.clients.prompts import Command, Prompt, typed
from mica.clients.records import Tally
from mica.clients.registry import CLAUDE_CODE
from mica.clients.spool import Line, Remembered
from mica.clients.tool_effects import Call, Draft, Files, digest
from mica.hook import PASSED_OVER, PROMPTS, STARTS, session_of
from mica.model.event import Event
from mica.model.walk import OFFER

BRIEFED = "session.briefed"  # a hook showed a brief: {"receipt"}; or would have: {"receipt", "held_out": true}
CHARACTERS_A_TOKEN = 4  # of lines with paths; a hook has no time to count
REMEMBERED_MAX = 10_000  # of anything, in one session

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMMAND = re.compile(r"/([A-Za-z][\w:.-]{0,100})(?:\s+(.*))?", re.DOTALL)

NAMES = {"claude": CLAUDE_CODE}  # of clients, where hooks and transcripts call them differently
TOOLS: dict[str, Callable[[Call, Files, Tally], list[Draft]]] = {
    "claude": claude_tools.drafts,
    "codex": codex_tools.drafts,
    "copilot": copilot_tools.drafts,
    "cursor": cursor_tools.drafts,
    "gemini": gemini_tools.drafts,
    "opencode": opencode_tools.drafts,
}
_COMMANDS = ("command.execute.before",)
_CALLS = ("PostToolUse", "AfterTool", "postToolUse", "tool.execute.after", "tool")
_FAILED_CALLS = ("PostToolUseFailure", "postToolUseFailure")
_CLOSES = ("Stop", "AfterAgent", "agentStop", "stop", "session.idle")
_ENDS = ("SessionEnd", "sessionEnd", "session.deleted")
_IGNORED = PASSED_OVER | frozenset(
    # Told by others: a command by its prompt, a compaction by the transcript, a shell and an edit by their tool calls.
    "UserPromptExpansion PreCompact PostCompact preCompact SubagentStart SubagentStop subagentStart subagentStop Setup "
    "StopFailure afterShellExecution afterMCPExecution afterFileEdit afterAgentResponse PreModelSwitch PostModelSwitch "
    "TaskCreated TaskCompleted TeammateIdle WorktreeCreate WorktreeRemove DirectoryAdded init session.status "
    "session.error session.updated session.diff session.compacted catalog.updated reference.updated "
    "integration.updated file.edited file.watcher.updated command.executed errorOccurred".split()
)


class Hearing:
    """Turns the lines of one session into events."""

    def __init__(
        self,
        remembered: Remembered | None = None,
        *,
        root_of: Callable[[Path], Path] = lambda folder: folder,
        keeps_prompts: bool = True,
        excluded: Collection[str] = (),
    ) -> None:
        self._kept = remembered or Remembered()
        self._root_of = root_of
        self._keeps_prompts = keeps_prompts
        self._excluded = excluded
        self._tellers: dict[str, Teller] = {}

    def take(self, line: Line, *, tally: Tally, number: int = 0) -> list[Event]:
        """The events that this line brings about."""
        event, payload = _opened(line)
        if event in _IGNORED:
            return []
        if line.client not in TOOLS or event not in (
            *STARTS,
            *PROMPTS,
            *_COMMANDS,
            *_CALLS,
            *_FAILED_CALLS,
            *_CLOSES,
            *_ENDS,
        ):
            tally.meet(f"{line.client}:{event}"[:60])
            return []
        teller = self._teller(line.client)
        teller.at = _EPOCH + timedelta(microseconds=line.at)
        teller.number, teller.tally, teller.made = number, tally, []
        cwd = _text(payload, "cwd", "directory") or line.directory
        self._place(teller, payload, cwd)
        if event in PROMPTS or event in _COMMANDS:
            self._prompt(teller, line, event, payload)
        elif event in _CALLS or event in _FAILED_CALLS:
            self._call(teller, line, payload, cwd, failed=event in _FAILED_CALLS)
        elif event in _CLOSES:
            self._close(teller, payload)
        elif event in _ENDS:
            teller.end(_text(payload, "reason"))
        if line.offered:
            self._offer(teller, line, line.offered)
        return teller.made

    def remembered(self) -> Remembered:
        """What the next ingest of this session needs to know."""
        kept = self._kept
        for teller in self._tellers.values():
            kept.lengths = dict(list(teller.files.lengths().items())[-REMEMBERED_MAX:])
        kept.prompts = kept.prompts[-REMEMBERED_MAX:]
        return kept

    # -- Where it happened

    def _teller(self, client: str) -> Teller:
        if client not in self._tellers:
            teller = Teller(NAMES.get(client, client), root=self._kept.root)
            for name, length in self._kept.lengths.items():
                teller.files.learn(name, length)
            self._tellers[client] = teller
        return self._tellers[client]

    def _place(self, teller: Teller, payload: Mapping[str, object], cwd: str | None) -> None:
        if self._kept.root is None and cwd is not None and cwd.startswith("/"):
            self._kept.root = str(self._root_of(Path(cwd)))
        teller.files.root = self._kept.root
        session = session_of(dict(payload)) or "unknown"
        teller.place(session, agent=_text(payload, "agent_id"), branch=None, cwd=cwd)
        if not self._kept.started:
            self._kept.started = True
            info = payload.get("info")
            version = _text(payload, "cursor_version") or _text(info, "version")
            teller.start(cwd=cwd, branch=None, version=version)
        if self._kept.turn is not None:
            teller.turn = teller.root(teller.key("prompt", self._kept.turn))

    # -- What was said

    def _prompt(self, teller: Teller, line: Line, event: str, payload: Mapping[str, object]) -> None:
        said = _said(line.client, event, payload) if self._keeps_prompts else None
        if event in _COMMANDS:  # the message that follows has a name, and holds what the command stands for
            self._kept.command = (said.name, said.args) if isinstance(said, Command) else None
            return
        if self._kept.command is not None:
            said, self._kept.command = Command(*self._kept.command), None
        name = _turn_name(payload)
        if name is None:
            name = f"{line.at}" if said is None else self._nth(payload, _as_typed(said))
        if name in self._kept.prompts:
            return
        self._begin(name)
        if line.client == "codex" and isinstance(said, Command):  # its own commands reach no hook
            said = Prompt(_as_typed(said).rstrip())
        match said:
            case Prompt(text=text):
                teller.prompt(name, text)
            case Command(name=command, args=args):
                teller.command(name, command=command, args=args)
            case None:
                teller.untyped(name)

    def _begin(self, name: str) -> None:
        self._kept.turn = name
        self._kept.prompts.append(name)

    def _close(self, teller: Teller, payload: Mapping[str, object]) -> None:
        text = _text(payload, "last_assistant_message", "prompt_response") if self._keeps_prompts else None
        turn = _turn_name(payload) or self._kept.turn
        if text and text.strip() and turn is not None:
            name = teller.closing_name(text.strip()) if teller.client == CLAUDE_CODE else turn
            teller.hold_closing(name, text.strip())
        teller.release()

    def _offer(self, teller: Teller, line: Line, offered: Mapping[str, object]) -> None:
        """What the agent was shown, or would have been, had it not been held out: recalled, never evidence."""
        is_held_out = offered.get("held_out") is True
        fields: dict[str, object] = {"receipt": _text(offered, "receipt")} | ({"held_out": True} if is_held_out else {})
        name = BRIEFED
        if offered.get("kind") == "prompt":
            paths, characters = offered.get("paths"), offered.get("characters")
            told = [label(path) for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
            tokens = characters // CHARACTERS_A_TOKEN if isinstance(characters, int) else 0
            name, fields = OFFER, {"paths": told, "tokens": tokens, "held_out": is_held_out}
        key = f"offer:{teller.session}:{line.at}"
        teller.make(key, name, fields, parent=teller.parent, origin="recalled")

    # -- What was done

    def _call(
        self, teller: Teller, line: Line, payload: Mapping[str, object], cwd: str | None, *, failed: bool
    ) -> None:
        tool = _text(payload, "tool_name", "toolName", "tool")
        if tool is None or tool in self._excluded:
            return
        given = _first(payload, "tool_input", "toolArgs", "args")
        result = _first(payload, "tool_response", "tool_result", "toolResult", "tool_output", "output", "error")
        turn = _turn_name(payload)
        if turn is not None and turn != self._kept.turn:
            self._kept.turn = turn
            teller.turn = teller.root(teller.key("prompt", turn))
            if turn not in self._kept.prompts:  # a turn that nobody typed, or whose prompt was told before we listened
                self._begin(turn)
                teller.untyped(turn)
        failed = failed or _says_failed(result)
        name = _text(payload, "tool_use_id", "callID") or self._nth(payload, [given, failed])
        call = Call(id=name, tool=tool, given=given, result=result, failed=failed, cwd=cwd)
        if line.client == "codex":  # whose calls have their names within a turn
            name = f"{turn or teller.session}:{name}"
        teller.call(name, TOOLS[line.client](call, teller.files, teller.tally))

    def _nth(self, payload: Mapping[str, object], value: object) -> str:
        """A name for what the client gives none, as `Teller.nth` would give it, counted for each kind of hook apart.

        A client that runs two kinds of hooks, its own and those of a plugin, tells everything twice: the n-th of one
        kind is the n-th of the other.
        """
        name = digest(value)
        kind = "plugin" if "hook_event_name" in payload else "own"
        counted = f"{kind}:{name}"
        self._kept.met[counted] = self._kept.met.get(counted, 0) + 1
        while len(self._kept.met) > REMEMBERED_MAX:
            del self._kept.met[next(iter(self._kept.met))]
        return f"{name}:{self._kept.met[counted]}"


# -- Shapes ----------------------------------------------------------------------------------------------------


def _opened(line: Line) -> tuple[str, dict[str, object]]:
    """The event's own name and its fields. OpenCode's are `input` and `output` of a function, or an event in one."""
    event, payload = line.event, line.payload
    if line.client != "opencode":
        return event, payload
    given, output = payload.get("input"), payload.get("output")
    fields: dict[str, object] = dict(given) if isinstance(given, dict) else dict(payload)
    if event == "event" or ("type" in fields and "properties" in fields):
        event = _text(fields, "type") or event
        properties = fields.get("properties")
        fields = dict(properties) if isinstance(properties, dict) else {}
        if isinstance(info := fields.get("info"), dict):
            fields |= {"directory": info.get("directory"), "session_id": info.get("id")}
    if output is not None:
        fields["output"] = output
    return event, fields


def _said(client: str, event: str, payload: Mapping[str, object]) -> Prompt | Command | None:
    """What the person typed; None when somebody else speaks."""
    if event in _COMMANDS:
        name = _text(payload, "command")
        return Command(name, _text(payload, "arguments") or "") if name else None
    text = _text(payload, "prompt", "text")
    if text is None:
        text = _parts(payload.get("output"))
    if text is None:
        return None
    if client != "claude":
        return typed(client, text)
    said = typed_into_claude(Record(message=Message(content=text)))
    if isinstance(said, Prompt) and (command := _COMMAND.fullmatch(said.text)):  # a hook sees it as it was typed
        return Command(command[1], (command[2] or "").strip())
    return said


def _as_typed(said: Prompt | Command) -> str:
    return said.text if isinstance(said, Prompt) else f"/{said.name} {said.args}"


def _says_failed(result: object) -> bool:
    """Whether a client without an event for failures tells one in its result."""
    if not isinstance(result, Mapping):
        return False
    return _text(result, "resultType", "result_type") not in (None, "success") or result.get("error") is not None


def _parts(output: object) -> str | None:
    """The texts of an OpenCode message that no plugin added."""
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
    """The first of these fields that holds a text."""
    if not isinstance(fields, Mapping):
        return None
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), None)


def _first(fields: Mapping[str, object], *names: str) -> object:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
