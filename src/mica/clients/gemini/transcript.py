"""Reads Gemini CLI transcripts into events.

`~/.gemini/tmp/<project>/chats/session-….jsonl` has a header, messages, and patches `{"$set": …}`. When the tool calls
of a message have returned, Gemini writes the message again under the same id; the last version counts. The header has
only a hash of the project's path. To find the path, paths in the transcript and in files next to it are hashed and
compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec

from mica.clients import reader
from mica.clients.event_builder import EventBuilder, utc
from mica.clients.gemini import tools
from mica.clients.prompts import PromptFilter, SlashCommand, join_texts
from mica.clients.reader import HEAD_LINES_MAX, TranscriptHead
from mica.clients.records import Count, ImportTally, Shape, value_of
from mica.clients.tool_effects import ClientCall
from mica.model.event import Event

NAME = "gemini"
PROMPTS = PromptFilter(
    injected=("hook_context", "session_context", "state_snapshot"),
    openings=(
        "<session_context>",
        "This is the Gemini CLI. We are setting up the context for our chat.",
        "Here is the user's editor context as a JSON object",
        "Here is a summary of changes in the user's editor context",
        "System: Please continue.",
    ),
)
PROJECT_LINES_MAX = 200  # lines searched for a path with the project's hash
_MARKER = ".project_root"  # a file with the project's path
_REGISTRY_BYTES_MAX = 10 * 2**20  # of projects.json, with a few hundred bytes for each project
_PATH = re.compile(r'(?:/|[A-Za-z]:\\\\?)[^\s"\'<>|*?`,;()]{1,500}')
_PATHS_MAX = 10_000  # paths tried, each with all its parent folders
_PATH_LINE_BYTES_MAX = 10 * 2**20  # a longer record contains the text of a file
_IGNORED = frozenset(
    ("info", "error", "warning", "system", "about", "help", "stats", "model_stats", "tool_stats", "quit")
)


class GeminiPart(msgspec.Struct, gc=False):
    text: str | None = None


class GeminiTokens(msgspec.Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = None


class Response(msgspec.Struct, gc=False):
    output: str | None = None
    error: str | None = None


class Returned(msgspec.Struct, gc=False):
    response: Response | None = None


class GeminiCallResult(msgspec.Struct, rename="camel", gc=False):
    text: str | None = None
    function_response: Returned | None = None


class ToolCall(msgspec.Struct, rename="camel", gc=False):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    result: list[GeminiCallResult] | str | None = None
    result_display: msgspec.Raw = msgspec.Raw()
    status: str | None = None
    timestamp: datetime | None = None


class GeminiMessage(msgspec.Struct, rename="camel", gc=False):
    id: str | None = None
    timestamp: datetime | None = None
    type: str | None = None
    content: str | list[GeminiPart] | None = None
    display_content: str | list[GeminiPart] | None = None
    tokens: GeminiTokens | None = None
    model: str | None = None
    tool_calls: list[ToolCall] | None = None


class GeminiPatch(msgspec.Struct, gc=False):
    messages: list[GeminiMessage] | None = None


class GeminiRecord(GeminiMessage, rename="camel", gc=False):
    """One line of a session file: a header, a message or a patch."""

    session_id: str | None = None
    project_hash: str | None = None
    start_time: datetime | None = None
    kind: str | None = None
    patch: GeminiPatch | None = msgspec.field(default=None, name="$set")
    rewind: str | None = msgspec.field(default=None, name="$rewindTo")


RECORD = Shape(GeminiRecord)


class GeminiTranscript(EventBuilder):
    """Builds the events of one session file."""

    def __init__(self, name: str, root: str | None, *, cwd: str | None) -> None:
        super().__init__(NAME, session=name, root=root)
        self.cwd = cwd
        self.is_subagent = False
        self.prompts: set[str] = set()  # ids of prompts that were added
        self.calls: set[str] = set()  # names of calls that were added
        self.prompt_name = ""

    def take(self, record: GeminiRecord, *, number: int, tally: ImportTally) -> list[Event]:
        """Return the events made from a record. Records of an unknown type are only counted in `tally`."""
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
            tally.count_unknown("(none)")
        return self.made

    def _open(self, record: GeminiRecord) -> None:
        if not self.is_dated():
            return
        self.is_subagent = record.kind == "subagent"
        self.place(record.session_id, agent="subagent" if self.is_subagent else None, branch=None, cwd=self.cwd)
        if not self.is_subagent:
            self.start(cwd=self.cwd, branch=None, version=None)

    def _message(self, message: GeminiMessage) -> None:
        if not self.is_dated():
            return
        if message.type == "user":
            self._prompt(message)
        elif message.type == "gemini":
            self._add_answer(message)
        elif message.type not in _IGNORED:
            self.tally.count_unknown(message.type or "(none)")

    def _prompt(self, message: GeminiMessage) -> None:
        name = message.id or f"{self.at}:{self.number}"
        if name in self.prompts or self.is_subagent:
            return
        self.prompts.add(name)
        text = _text(message.content)
        if "</state_snapshot>" in text:
            self.summary(name, text)
        prompt = PROMPTS.typed(text)
        if prompt is None:
            return
        self.release()
        if isinstance(prompt, SlashCommand):
            self.prompt_name = self.nth(f"/{prompt.name} {prompt.args}")
            self.command(self.prompt_name, command=prompt.name, args=prompt.args)
        else:
            self.prompt_name = self.nth(prompt.text)
            self.prompt(self.prompt_name, prompt.text)

    def _add_answer(self, message: GeminiMessage) -> None:
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
        """Add the events of a completed call. The call is identified by its arguments, because hooks report no id."""
        own = f"{message}:{call.id}"
        if call.status not in ("success", "error", "cancelled") or own in self.calls:
            return
        self.calls.add(own)
        arguments = value_of(call.args)
        failed = call.status != "success"
        display = value_of(call.result_display)
        output = call.result if isinstance(call.result, str) else join_texts(list(map(_output, call.result or ())))
        result = {"llmContent": tools.without_hooks(output), "returnDisplay": display}
        name = self.nth([arguments, failed])
        client_call = ClientCall(
            id=name,
            tool=call.name or "(none)",
            arguments=arguments,
            result=result,
            failed=failed,
            denied=call.status == "cancelled",
            cwd=self.cwd,
        )
        before, self.at = self.at, utc(call.timestamp) or self.at
        self.call(name, tools.drafts(client_call, self.files, self.tally))
        self.at = before


def _usage(model: str | None, tokens: GeminiTokens) -> dict[str, object]:
    """Return the token usage of an answer. Thoughts count as output; cached tokens do not count as input."""
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


def _text(content: str | list[GeminiPart] | None) -> str:
    return content if isinstance(content, str) else join_texts([part.text for part in content or ()])


def _output(result: GeminiCallResult) -> str | None:
    response = result.function_response.response if result.function_response else None
    return result.text if response is None else response.output or response.error


# -- The project --------------------------------------------------------------------------------------


def _project(path: Path, wanted: str | None) -> str | None:
    """Return the project folder of a session; None if no folder with the hash `wanted` is found."""
    folder = path.parent.parent
    if (path_in_marker := _first_line(folder / _MARKER)) and wanted in (None, _hash(path_in_marker)):
        return path_in_marker
    if wanted is None:
        return None
    registry = _registry(folder.parent.parent / "projects.json")
    return next((project for project in registry if _hash(project) == wanted), None) or _search_paths(path, wanted)


def _hash(path: str) -> str:
    return sha256(path.encode("utf-8", "surrogatepass")).hexdigest()


def _first_line(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline(5_000).strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _registry(path: Path) -> Iterable[str]:
    try:
        with path.open("rb") as file:
            value = msgspec.json.decode(file.read(_REGISTRY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ()
    projects = value.get("projects") if isinstance(value, dict) else None
    return [key for key in projects if isinstance(key, str)] if isinstance(projects, dict) else ()


def _search_paths(path: Path, wanted: str) -> str | None:
    """Search the paths in a session, and their parent folders, for a path with the hash `wanted`."""
    lines = reader.first_lines(path, limit=PROJECT_LINES_MAX)
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

    return reader.find_files(root, is_one=is_one, unreadable=unreadable)


def head(path: Path) -> TranscriptHead | None:
    for record in reader.first_records(path, RECORD, limit=HEAD_LINES_MAX):
        if record.session_id is not None and record.project_hash is not None:
            return TranscriptHead(session=record.session_id, cwd=_project(path, record.project_hash))
    return None


extent = reader.file_extent
numbers = reader.line_numbers


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
) -> Iterator[tuple[int, list[Event]]]:
    first = head(path)
    transcript = GeminiTranscript(path.stem, root, cwd=first.cwd if first else None)
    yield from reader.read_records(path, RECORD, transcript, start=start, closed=closed, tally=tally)
