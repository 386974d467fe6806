"""Reads OpenCode sessions into events.

One SQLite file, `~/.local/share/opencode/opencode.db`, has the sessions of all projects in the tables `session`,
`message` and `part`. Each session is treated as a separate transcript. Its path is the path of the SQLite file followed
by the session id, and a place in it is a message number. The SQLite file is opened read-only and only briefly.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

import msgspec

from mica.clients import reader
from mica.clients.event_builder import NEVER, EventBuilder, moment
from mica.clients.opencode import tools
from mica.clients.prompts import PromptFilter, SlashCommand, join_texts
from mica.clients.reader import Extent, TranscriptHead
from mica.clients.records import Count, ImportTally, Shape, value_of
from mica.clients.tool_effects import ClientCall
from mica.model.event import Event

NAME = "opencode"
PROMPTS = PromptFilter(injected=("system-reminder",))
BUSY_S = 5.0  # OpenCode writes in milliseconds; a process that locks the file longer is stuck

_IGNORED_PARTS = frozenset(
    ("agent", "file", "patch", "reasoning", "retry", "snapshot", "step-finish", "step-start", "subtask")
)


class Times(msgspec.Struct, gc=False):
    created: float | int | None = None
    completed: float | int | None = None
    start: float | int | None = None
    end: float | int | None = None


class Folders(msgspec.Struct, gc=False):
    cwd: str | None = None
    root: str | None = None


class OpencodeCacheTokens(msgspec.Struct, gc=False):
    read: Count | None = None
    write: Count | None = None


class OpencodeTokens(msgspec.Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None
    cache: OpencodeCacheTokens | None = None


class OpencodeMessage(msgspec.Struct, gc=False):
    role: str | None = None
    parent: str | None = msgspec.field(default=None, name="parentID")
    agent: str | None = None
    mode: str | None = None
    time: Times | None = None
    path: Folders | None = None
    tokens: OpencodeTokens | None = None
    model: str | None = msgspec.field(default=None, name="modelID")
    finish: str | None = None
    summary: msgspec.Raw = msgspec.Raw()  # true: a summary by the assistant; in a user's message, the changed files
    error: msgspec.Raw = msgspec.Raw()


class OpencodeState(msgspec.Struct, gc=False):
    status: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    output: str | None = None
    error: str | None = None
    metadata: msgspec.Raw = msgspec.Raw()
    time: Times | None = None


class OpencodePart(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    tool: str | None = None
    call: str | None = msgspec.field(default=None, name="callID")
    state: OpencodeState | None = None
    auto: bool | None = None
    time: Times | None = None


Parts = list[tuple[str, OpencodePart]]  # the parts of a message, each with its id
_MESSAGE = Shape(OpencodeMessage)
_PART = Shape(OpencodePart)


class OpencodeSessionRow(msgspec.Struct, frozen=True):
    """A row of the table `session`. A column that this database does not have is None."""

    id: str
    directory: str | None
    parent: str | None
    version: str | None
    created: float | None
    updated: float | None


class OpencodeTranscript(EventBuilder):
    """Builds the events of one session."""

    def __init__(self, row: OpencodeSessionRow, root: str | None) -> None:
        super().__init__(NAME, session=row.id, root=root)
        self.row = row
        self.at = moment(row.created) or NEVER
        self.cwd = row.directory
        self.is_subagent = row.parent is not None
        self.prompts: set[str] = set()
        self.place(row.id, branch=None, cwd=self.cwd)

    def take(
        self, name: str, message: OpencodeMessage, parts: Parts, *, number: int, tally: ImportTally
    ) -> list[Event]:
        """Return the events made from a message. Parts of an unknown type are only counted in `tally`."""
        self.begin(number, tally)
        times = message.time or Times()
        if not self.is_dated(moment(times.created)):
            return []
        folder = message.path.cwd if message.path else None
        self.cwd = folder or self.cwd
        agent = (message.agent or message.mode or "subagent") if self.is_subagent else None
        self.place(self.row.id, agent=agent, branch=None, cwd=self.cwd)
        if not self.is_subagent:
            self.start(cwd=self.row.directory or self.cwd, branch=None, version=self.row.version)
        if message.role == "user":
            self._prompt(name, parts)
        elif message.role == "assistant":
            self._add_answer(name, message, parts)
        else:
            tally.count_unknown(f"message/{message.role or '(none)'}")
        for _, part in parts:
            if part.type not in ("text", "tool", "compaction") and part.type not in _IGNORED_PARTS:
                tally.count_unknown(f"part/{part.type or '(none)'}")
        return self.made

    def _prompt(self, name: str, parts: Parts) -> None:
        if any(part.type == "compaction" for _, part in parts):
            auto = next((part.auto for _, part in parts if part.type == "compaction"), None)
            self.compact(name, trigger=None if auto is None else "auto" if auto else "manual")
            return
        texts = [part.text for _, part in parts if part.type == "text" and not part.synthetic and not part.ignored]
        prompt = PROMPTS.typed(join_texts(texts))
        if prompt is None or self.is_subagent:
            return
        self.prompts.add(name)
        if isinstance(prompt, SlashCommand):
            self.command(name, command=prompt.name, args=prompt.args)
        else:
            self.prompt(name, prompt.text)

    def _add_answer(self, name: str, message: OpencodeMessage, parts: Parts) -> None:
        if message.parent is not None:
            self.turn = self.root(self.key("prompt", message.parent)) if message.parent in self.prompts else self.turn
        if message.tokens is not None:
            self.hold_answer(name, _usage(message))
            self.release_answer()
        for part_name, part in parts:
            if part.type == "tool" and part.state is not None:
                self._call(part.call or part_name, part.tool or "(none)", part.state)
        text = join_texts([part.text for _, part in parts if part.type == "text" and not part.synthetic]).strip()
        ended = message.finish in ("stop", "end_turn", "length")
        if ended and bytes(message.summary) == b"true":
            self.summary(message.parent or name, text)
        elif text and ended and not self.is_subagent:
            self.hold_closing(message.parent or name, text)
            self.release_closing()

    def _call(self, name: str, tool: str, state: OpencodeState) -> None:
        if state.status not in ("completed", "error"):
            return  # it did not run, or is still running
        metadata = value_of(state.metadata)
        result = {"output": state.output, "error": state.error, "metadata": metadata}
        failed = state.status == "error"
        call = ClientCall(
            id=name, tool=tool, arguments=value_of(state.input), result=result, failed=failed, cwd=self.cwd
        )
        before, self.at = self.at, moment(state.time.start if state.time else None) or self.at
        self.call(name, tools.drafts(call, self.files, self.tally))
        self.at = before


def _usage(message: OpencodeMessage) -> dict[str, object]:
    tokens = message.tokens or OpencodeTokens()
    cache = tokens.cache or OpencodeCacheTokens()
    return {
        "model": message.model,
        "input_tokens": tokens.input,
        "cache_read_tokens": cache.read,
        "cache_write_tokens": cache.write,
        "output_tokens": None if tokens.output is None else tokens.output + (tokens.reasoning or 0),
        "reasoning_tokens": tokens.reasoning,
    }


# -- The file -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to the database. Errors on opening or reading it are raised as OSError."""
    reader.status(path)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        # A read may continue in another thread, but never in two at once.
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            yield connection
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _rows(connection: sqlite3.Connection, session: str | None = None) -> list[OpencodeSessionRow]:
    """Return the rows of all sessions or of one session; empty if the schema of the database is unknown."""
    columns = _columns(connection, "session")
    if "id" not in columns or not _columns(connection, "message") >= {"id", "session_id", "data"}:
        return []
    wanted = ("directory", "parent_id", "version", "time_created", "time_updated")
    chosen = ", ".join(name if name in columns else "NULL" for name in wanted)
    where = "" if session is None else " WHERE id = ?"
    found = connection.execute(f"SELECT id, {chosen} FROM session{where}", () if session is None else (session,))
    return [
        OpencodeSessionRow(str(row[0]), _text(row[1]), _text(row[2]), _text(row[3]), _number(row[4]), _number(row[5]))
        for row in found
    ]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _messages(connection: sqlite3.Connection, session: str) -> list[str]:
    order = "time_created, id" if "time_created" in _columns(connection, "message") else "id"
    found = connection.execute(f"SELECT id FROM message WHERE session_id = ? ORDER BY {order}", (session,))
    return [str(row[0]) for row in found]


def _decode(connection: sqlite3.Connection, name: str, tally: ImportTally) -> tuple[OpencodeMessage, Parts, str | None]:
    """Decode a message and its parts. The third value says why one of them could not be read; otherwise it is None."""
    problem: str | None = None
    message = OpencodeMessage()
    for (data,) in connection.execute("SELECT data FROM message WHERE id = ?", (name,)):
        try:
            message = _MESSAGE.read(_bytes(data), tally)
        except ValueError as error:
            problem = f"message {name}: {error}"
    parts: Parts = []
    for part_name, data in connection.execute("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (name,)):
        try:
            parts.append((str(part_name), _PART.read(_bytes(data), tally)))
        except ValueError as error:
            problem = f"part {part_name}: {error}"
    return message, parts, problem


def _bytes(data: object) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode("utf-8", "replace")


# -- The reader -----------------------------------------------------------------------------------------


def _split_path(path: Path) -> tuple[Path, str] | None:
    return (path.parent, path.name) if path.parent.suffix == ".db" and path.parent.is_file() else None


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """Return the sessions of a database, or of all databases in a folder, most recently used first."""
    if _split_path(root) is not None:
        return [root]

    def is_one(name: str) -> bool:
        return name.startswith("opencode") and name.endswith(".db")

    found: list[tuple[float, Path]] = []
    for file in reader.find_files(root, is_one=is_one, unreadable=unreadable):
        try:
            with _open(file) as connection:
                for row in _rows(connection):
                    if "/" not in row.id and "\0" not in row.id and row.id not in (".", ".."):
                        found.append((-(row.updated or row.created or 0), file / row.id))
        except OSError as error:
            if unreadable is None:
                raise
            unreadable[str(file)] = error.strerror or str(error)
    return [path for _, path in sorted(found)]


def head(path: Path) -> TranscriptHead | None:
    split = _split_path(path)
    if split is None:
        return None
    with _open(split[0]) as connection:
        rows = _rows(connection, split[1])
    return TranscriptHead(session=rows[0].id, cwd=rows[0].directory, version=rows[0].version) if rows else None


def extent(path: Path) -> Extent:
    split = _split_path(path)
    if split is None:
        raise FileNotFoundError(errno.ENOENT, "no session of OpenCode", str(path))
    file, session = split
    with _open(file) as connection:
        rows = _rows(connection, session)
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "no such session", str(path))
        count = len(_messages(connection, session))
        everything = connection.execute("SELECT count(*) FROM message").fetchone()[0]
    changed_at = (rows[0].updated or rows[0].created or 0) / 1_000
    return Extent(
        end=count,
        size_bytes=file.stat().st_size * count // max(1, everything),  # its share of the file, for the progress
        changed_at=changed_at,
        fingerprint=blake2b(f"{session}:{rows[0].created}".encode(), digest_size=8).hexdigest(),
    )


def numbers(path: Path, places: Collection[int]) -> dict[int, int]:
    return {place: place for place in places}


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
) -> Iterator[tuple[int, list[Event]]]:
    """Implement `Reader.read` for a session. A message that may be incomplete is left for a later call."""
    split = _split_path(path)
    if split is None:
        raise FileNotFoundError(errno.ENOENT, "no session of OpenCode", str(path))
    with _open(split[0]) as connection:
        rows = _rows(connection, split[1])
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "no such session", str(path))
        transcript = OpencodeTranscript(rows[0], root)
        names = _messages(connection, split[1])
        done = end = 0
        for number, name in enumerate(names, start=1):
            counts = tally if number > start else ImportTally()
            counts.lines += 1
            message, parts, problem = _decode(connection, name, counts)
            if not closed and not _is_complete(message, is_last=number == len(names)):
                counts.torn += 1
                break
            if problem is not None:
                counts.complain(number, problem)
            end = number
            events = transcript.take(name, message, parts, number=number, tally=counts)
            if events and end > start:
                done = end
                yield end, events
        if end > max(start, done):
            yield end, []


def _is_complete(message: OpencodeMessage, *, is_last: bool) -> bool:
    if message.role == "assistant":
        completed = message.time is not None and message.time.completed is not None
        return completed or len(memoryview(message.error)) > 0 or not is_last
    return not is_last
