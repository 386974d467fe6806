"""OpenCode transcripts, read into events (A-12).

One SQLite file, `~/.local/share/opencode/opencode.db`, holds the sessions of all projects: rows of `session`, `message`
and `part`. Each session counts as a transcript of its own; its path is the file's with the session's id behind it, and
its places count messages. The file is opened for reading only, and only for a moment at a time.
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

from mica.clients import reader as reading
from mica.clients.claude_code.records import Count
from mica.clients.event_builder import NEVER, Teller, moment
from mica.clients.opencode import tools as opencode_tools
from mica.clients.prompts import Command, joined, typed
from mica.clients.reader import Extent, Head
from mica.clients.records import Shape, Tally, value_of
from mica.clients.tool_effects import Call
from mica.model.event import Event

CLIENT = "opencode"
BUSY_S = 5.0  # OpenCode writes in milliseconds; who holds the file longer is stuck

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


class Cache(msgspec.Struct, gc=False):
    read: Count | None = None
    write: Count | None = None


class Tokens(msgspec.Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None
    cache: Cache | None = None


class Message(msgspec.Struct, gc=False):
    role: str | None = None
    parent: str | None = msgspec.field(default=None, name="parentID")
    agent: str | None = None
    mode: str | None = None
    time: Times | None = None
    path: Folders | None = None
    tokens: Tokens | None = None
    model: str | None = msgspec.field(default=None, name="modelID")
    finish: str | None = None
    summary: msgspec.Raw = msgspec.Raw()  # true: the assistant sums up; of a user's message, what changed
    error: msgspec.Raw = msgspec.Raw()


class State(msgspec.Struct, gc=False):
    status: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    output: str | None = None
    error: str | None = None
    metadata: msgspec.Raw = msgspec.Raw()
    time: Times | None = None


class Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    tool: str | None = None
    call: str | None = msgspec.field(default=None, name="callID")
    state: State | None = None
    auto: bool | None = None
    time: Times | None = None


Parts = list[tuple[str, Part]]  # each with its id
_MESSAGE = Shape(Message)
_PART = Shape(Part)


class Row(msgspec.Struct, frozen=True):
    """A session, as far as its columns are there."""

    id: str
    directory: str | None
    parent: str | None
    version: str | None
    created: float | None
    updated: float | None


class Session(Teller):
    """What is remembered while a session is read."""

    def __init__(self, row: Row, root: str | None) -> None:
        super().__init__(CLIENT, session=row.id, root=root)
        self.row = row
        self.at = moment(row.created) or NEVER
        self.cwd = row.directory
        self.is_subagent = row.parent is not None
        self.prompts: set[str] = set()
        self.place(row.id, branch=None, cwd=self.cwd)

    def take(self, name: str, message: Message, parts: Parts, *, number: int, tally: Tally) -> list[Event]:
        """The events this message brings about."""
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
            self._said(name, parts)
        elif message.role == "assistant":
            self._answered(name, message, parts)
        else:
            tally.meet(f"message/{message.role or '(none)'}")
        for _, part in parts:
            if part.type not in ("text", "tool", "compaction") and part.type not in _IGNORED_PARTS:
                tally.meet(f"part/{part.type or '(none)'}")
        return self.made

    def _said(self, name: str, parts: Parts) -> None:
        if any(part.type == "compaction" for _, part in parts):
            auto = next((part.auto for _, part in parts if part.type == "compaction"), None)
            self.compact(name, trigger=None if auto is None else "auto" if auto else "manual")
            return
        texts = [part.text for _, part in parts if part.type == "text" and not part.synthetic and not part.ignored]
        said = typed(CLIENT, joined(texts))
        if said is None or self.is_subagent:
            return
        self.prompts.add(name)
        if isinstance(said, Command):
            self.command(name, command=said.name, args=said.args)
        else:
            self.prompt(name, said.text)

    def _answered(self, name: str, message: Message, parts: Parts) -> None:
        if message.parent is not None:
            self.turn = self.root(self.key("prompt", message.parent)) if message.parent in self.prompts else self.turn
        if message.tokens is not None:
            self.hold_answer(name, _usage(message))
            self.release_answer()
        for part_name, part in parts:
            if part.type == "tool" and part.state is not None:
                self._call(part.call or part_name, part.tool or "(none)", part.state)
        text = joined([part.text for _, part in parts if part.type == "text" and not part.synthetic]).strip()
        ended = message.finish in ("stop", "end_turn", "length") and bytes(message.summary) != b"true"
        if text and ended and not self.is_subagent:
            self.hold_closing(message.parent or name, text)
            self.release_closing()

    def _call(self, name: str, tool: str, state: State) -> None:
        if state.status not in ("completed", "error"):
            return  # it was never run, or is running
        metadata = value_of(state.metadata)
        result = {"output": state.output, "error": state.error, "metadata": metadata}
        failed = state.status == "error"
        call = Call(id=name, tool=tool, given=value_of(state.input), result=result, failed=failed, cwd=self.cwd)
        before, self.at = self.at, moment(state.time.start if state.time else None) or self.at
        self.call(name, opencode_tools.drafts(call, self.files, self.tally))
        self.at = before


def _usage(message: Message) -> dict[str, object]:
    tokens = message.tokens or Tokens()
    cache = tokens.cache or Cache()
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
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, for reading. Raises OSError, whatever SQLite says."""
    reading.status(path)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        # A reading may go on in another thread, never in two at once.
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            yield connection
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _rows(connection: sqlite3.Connection, session: str | None = None) -> list[Row]:
    """The sessions, or the one. An unknown layout has none."""
    there = _columns(connection, "session")
    if "id" not in there or not _columns(connection, "message") >= {"id", "session_id", "data"}:
        return []
    wanted = ("directory", "parent_id", "version", "time_created", "time_updated")
    chosen = ", ".join(name if name in there else "NULL" for name in wanted)
    where = "" if session is None else " WHERE id = ?"
    found = connection.execute(f"SELECT id, {chosen} FROM session{where}", () if session is None else (session,))
    return [
        Row(str(row[0]), _text(row[1]), _text(row[2]), _text(row[3]), _number(row[4]), _number(row[5])) for row in found
    ]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _messages(connection: sqlite3.Connection, session: str) -> list[str]:
    """The ids of a session's messages in order. Ids rise with time."""
    order = "time_created, id" if "time_created" in _columns(connection, "message") else "id"
    found = connection.execute(f"SELECT id FROM message WHERE session_id = ? ORDER BY {order}", (session,))
    return [str(row[0]) for row in found]


def _decoded(connection: sqlite3.Connection, name: str, tally: Tally) -> tuple[Message, Parts, str | None]:
    """A message and its parts, and what of it could not be read."""
    problem: str | None = None
    message = Message()
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


def _parted(path: Path) -> tuple[Path, str] | None:
    """The database and the session that a path names; None where it names none."""
    return (path.parent, path.name) if path.parent.suffix == ".db" and path.parent.is_file() else None


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """The sessions of the database, or of each database in a folder, last used first."""
    if _parted(root) is not None:
        return [root]

    def is_one(name: str) -> bool:
        return name.startswith("opencode") and name.endswith(".db")

    found: list[tuple[float, Path]] = []
    for file in reading.find_files(root, is_one=is_one, unreadable=unreadable):
        try:
            with _opened(file) as connection:
                for row in _rows(connection):
                    if "/" not in row.id and "\0" not in row.id and row.id not in (".", ".."):
                        found.append((-(row.updated or row.created or 0), file / row.id))
        except OSError as error:
            if unreadable is None:
                raise
            unreadable[str(file)] = error.strerror or str(error)
    return [path for _, path in sorted(found)]


def head(path: Path) -> Head | None:
    parted = _parted(path)
    if parted is None:
        return None
    with _opened(parted[0]) as connection:
        rows = _rows(connection, parted[1])
    return Head(session=rows[0].id, cwd=rows[0].directory, version=rows[0].version) if rows else None


def extent(path: Path) -> Extent:
    parted = _parted(path)
    if parted is None:
        raise FileNotFoundError(errno.ENOENT, "no session of OpenCode", str(path))
    file, session = parted
    with _opened(file) as connection:
        rows = _rows(connection, session)
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "no such session", str(path))
        count = len(_messages(connection, session))
        everything = connection.execute("SELECT count(*) FROM message").fetchone()[0]
    changed_at = (rows[0].updated or rows[0].created or 0) / 1_000
    return Extent(
        end=count,
        size_bytes=file.stat().st_size * count // max(1, everything),  # its share, for the progress
        changed_at=changed_at,
        fingerprint=blake2b(f"{session}:{rows[0].created}".encode(), digest_size=8).hexdigest(),
    )


def numbers(path: Path, places: Collection[int]) -> dict[int, int]:
    return {place: place for place in places}


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: Tally
) -> Iterator[tuple[int, list[Event]]]:
    """A message that is still being written ends the reading, like a torn line."""
    parted = _parted(path)
    if parted is None:
        raise FileNotFoundError(errno.ENOENT, "no session of OpenCode", str(path))
    with _opened(parted[0]) as connection:
        rows = _rows(connection, parted[1])
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "no such session", str(path))
        story = Session(rows[0], root)
        names = _messages(connection, parted[1])
        done = end = 0
        for number, name in enumerate(names, start=1):
            heard = tally if number > start else Tally()
            heard.lines += 1
            message, parts, problem = _decoded(connection, name, heard)
            if not closed and not _is_done(message, is_last=number == len(names)):
                heard.torn += 1
                break
            if problem is not None:
                heard.complain(number, problem)
            end = number
            events = story.take(name, message, parts, number=number, tally=heard)
            if events and end > start:
                done = end
                yield end, events
        if end > max(start, done):
            yield end, []


def _is_done(message: Message, *, is_last: bool) -> bool:
    if message.role == "assistant":
        completed = message.time is not None and message.time.completed is not None
        return completed or len(memoryview(message.error)) > 0 or not is_last
    return not is_last
