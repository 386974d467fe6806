"""Gemini CLI transcripts, read into events (A-12).

`~/.gemini/tmp/<project>/chats/session-….jsonl` has a header, messages, and patches `{"$set": …}`. A message is written
again, under the same id, when its tool calls have returned: the last one counts. The header names the project by a hash
of its path; the path itself is found beside the file or in it, and believed only where its hash is that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec

from mica.clients import reader as reading
from mica.clients.claude_code.records import Count
from mica.clients.event_builder import Teller, utc
from mica.clients.gemini import tools as gemini_tools
from mica.clients.prompts import Command, joined, typed
from mica.clients.reader import HEAD_LINES_MAX, Head
from mica.clients.records import Shape, Tally, value_of
from mica.clients.tool_effects import Call
from mica.model.event import Event

CLIENT = "gemini"
PROJECT_LINES_MAX = 200  # looked through for a path that has the project's hash
_MARKER = ".project_root"
_REGISTRY_BYTES_MAX = 10 * 2**20  # of projects.json: a few hundred bytes for each project
_PATH = re.compile(r'(?:/|[A-Za-z]:\\\\?)[^\s"\'<>|*?`,;()]{1,500}')
_PATHS_MAX = 10_000  # looked at for it, with all folders above them
_PATH_LINE_BYTES_MAX = 10 * 2**20  # a longer record holds a file's text, not its place
_IGNORED = frozenset(
    ("info", "error", "warning", "system", "about", "help", "stats", "model_stats", "tool_stats", "quit")
)


class Part(msgspec.Struct, gc=False):
    text: str | None = None


class Tokens(msgspec.Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = None


class Response(msgspec.Struct, gc=False):
    output: str | None = None
    error: str | None = None


class Returned(msgspec.Struct, gc=False):
    response: Response | None = None


class Result(msgspec.Struct, rename="camel", gc=False):
    text: str | None = None
    function_response: Returned | None = None


class ToolCall(msgspec.Struct, rename="camel", gc=False):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    result: list[Result] | str | None = None
    result_display: msgspec.Raw = msgspec.Raw()
    status: str | None = None
    timestamp: datetime | None = None


class Message(msgspec.Struct, rename="camel", gc=False):
    id: str | None = None
    timestamp: datetime | None = None
    type: str | None = None
    content: str | list[Part] | None = None
    display_content: str | list[Part] | None = None
    tokens: Tokens | None = None
    model: str | None = None
    tool_calls: list[ToolCall] | None = None


class Patch(msgspec.Struct, gc=False):
    messages: list[Message] | None = None


class Record(Message, rename="camel", gc=False):
    """One line: a header, a message or a patch."""

    session_id: str | None = None
    project_hash: str | None = None
    start_time: datetime | None = None
    kind: str | None = None
    patch: Patch | None = msgspec.field(default=None, name="$set")
    rewind: str | None = msgspec.field(default=None, name="$rewindTo")


RECORD = Shape(Record)


class Session(Teller):
    """What is remembered while a session file is read."""

    def __init__(self, name: str, root: str | None, *, cwd: str | None) -> None:
        super().__init__(CLIENT, session=name, root=root)
        self.cwd = cwd
        self.is_subagent = False
        self.said: set[str] = set()  # messages of people that were taken
        self.told: set[str] = set()  # calls whose events were made
        self.prompt_name = ""

    def take(self, record: Record, *, number: int, tally: Tally) -> list[Event]:
        """The events this record brings about."""
        self.begin(number, tally)
        self.at = utc(record.timestamp) or utc(record.start_time) or self.at
        if record.project_hash is not None or (record.session_id is not None and record.type is None):
            self._open(record)
        elif record.patch is not None:
            for message in record.patch.messages or ():
                self.at = utc(message.timestamp) or self.at
                self._message(message)
        elif record.type is not None:
            self._message(record)
        elif record.rewind is None:
            tally.meet("(none)")
        return self.made

    def _open(self, record: Record) -> None:
        if not self.is_dated():
            return
        self.is_subagent = record.kind == "subagent"
        self.place(record.session_id, agent="subagent" if self.is_subagent else None, branch=None, cwd=self.cwd)
        if not self.is_subagent:
            self.start(cwd=self.cwd, branch=None, version=None)

    def _message(self, message: Message) -> None:
        if not self.is_dated():
            return
        if message.type == "user":
            self._said(message)
        elif message.type == "gemini":
            self._answered(message)
        elif message.type not in _IGNORED:
            self.tally.meet(message.type or "(none)")

    def _said(self, message: Message) -> None:
        name = message.id or f"{self.at}:{self.number}"
        if name in self.said or self.is_subagent:
            return
        self.said.add(name)
        said = typed(CLIENT, _text(message.content))
        if said is None:
            return
        self.release()
        if isinstance(said, Command):
            self.prompt_name = self.nth(f"/{said.name} {said.args}")
            self.command(self.prompt_name, command=said.name, args=said.args)
        else:
            self.prompt_name = self.nth(said.text)
            self.prompt(self.prompt_name, said.text)

    def _answered(self, message: Message) -> None:
        name = message.id or f"{self.at}:{self.number}"
        if message.tokens is not None:
            self.hold_answer(name, _usage(message.model, message.tokens))
        self.closing = None
        for call in message.tool_calls or ():
            self._call(name, call)
        text = _text(message.content).strip()
        if text and not message.tool_calls and not self.is_subagent:
            self.hold_closing(self.prompt_name or name, text)

    def _call(self, message: str, call: ToolCall) -> None:
        """A call that has returned. Hooks do not know its id, so that it is named by what it was given."""
        own = f"{message}:{call.id}"
        if call.status not in ("success", "error", "cancelled") or own in self.told:
            return
        self.told.add(own)
        given = value_of(call.args)
        failed = call.status != "success"
        display = value_of(call.result_display)
        output = call.result if isinstance(call.result, str) else joined(list(map(_output, call.result or ())))
        result = {"llmContent": gemini_tools.without_hooks(output), "returnDisplay": display}
        name = self.nth([given, failed])
        told = Call(
            id=name,
            tool=call.name or "(none)",
            given=given,
            result=result,
            failed=failed,
            denied=call.status == "cancelled",
            cwd=self.cwd,
        )
        before, self.at = self.at, utc(call.timestamp) or self.at
        self.call(name, gemini_tools.drafts(told, self.files, self.tally))
        self.at = before


def _usage(model: str | None, tokens: Tokens) -> dict[str, object]:
    """Gemini counts what was cached as input, and what was thought beside the output."""
    fresh = None if tokens.input is None else max(0, tokens.input - (tokens.cached or 0))
    output = None if tokens.output is None else tokens.output + (tokens.thoughts or 0)
    return {
        "model": model,
        "input_tokens": fresh,
        "cache_read_tokens": tokens.cached,
        "cache_write_tokens": None,
        "output_tokens": output,
        "reasoning_tokens": tokens.thoughts,
    }


def _text(content: str | list[Part] | None) -> str:
    return content if isinstance(content, str) else joined([part.text for part in content or ()])


def _output(result: Result) -> str | None:
    response = result.function_response.response if result.function_response else None
    return result.text if response is None else response.output or response.error


# -- Which project --------------------------------------------------------------------------------------


def _project(path: Path, wanted: str | None) -> str | None:
    """The folder that a session speaks of: the one with this hash. Without a hash, as the file beside it says."""
    folder = path.parent.parent
    if (marked := _line(folder / _MARKER)) and wanted in (None, _hash(marked)):
        return marked
    if wanted is None:
        return None
    registry = _registry(folder.parent.parent / "projects.json")
    return next((named for named in registry if _hash(named) == wanted), None) or _spoken_of(path, wanted)


def _hash(path: str) -> str:
    return sha256(path.encode("utf-8", "surrogatepass")).hexdigest()


def _line(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline(5_000).strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _registry(path: Path) -> Iterable[str]:
    """The paths that Gemini's own list of projects names."""
    try:
        with path.open("rb") as file:
            value = msgspec.json.decode(file.read(_REGISTRY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ()
    projects = value.get("projects") if isinstance(value, dict) else None
    return [key for key in projects if isinstance(key, str)] if isinstance(projects, dict) else ()


def _spoken_of(path: Path, wanted: str) -> str | None:
    """A folder with this hash among those that the session speaks of, or above them."""
    lines = reading.first_lines(path, limit=PROJECT_LINES_MAX)
    texts = (line.decode("utf-8", "replace") for line in lines if len(line) <= _PATH_LINE_BYTES_MAX)
    places = (found[0] for text in texts for found in _PATH.finditer(text))
    tried: set[str] = set()
    for place in islice(places, _PATHS_MAX):
        pure = PurePosixPath(place) if place.startswith("/") else PureWindowsPath(place.replace("\\\\", "\\"))
        for folder in map(str, (pure, *pure.parents)):
            if folder in tried:
                break
            tried.add(folder)
            if _hash(folder) == wanted:
                return folder
    return None


# -- The reader -----------------------------------------------------------------------------------------


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    def is_one(name: str) -> bool:
        return name.startswith("session-") and name.endswith(".jsonl")

    return reading.find_files(root, is_one=is_one, unreadable=unreadable)


def head(path: Path) -> Head | None:
    for record in reading.first_records(path, RECORD, limit=HEAD_LINES_MAX):
        if record.session_id is not None and record.project_hash is not None:
            return Head(session=record.session_id, cwd=_project(path, record.project_hash))
    return None


extent = reading.file_extent
numbers = reading.line_numbers


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: Tally
) -> Iterator[tuple[int, list[Event]]]:
    first = head(path)
    story = Session(path.stem, root, cwd=first.cwd if first else None)
    yield from reading.read_lines(path, RECORD, story, start=start, closed=closed, tally=tally)
