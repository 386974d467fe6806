"""The files that `mica-hook` and mica share, in a folder next to the file of a space.

The files are the spool (lines that hooks have written, in a file for each session), the answers that hooks print,
records of failures, and two switches.

A hook appends whole lines to the spool and never waits for a lock. An ingest, which turns these lines into events,
holds one lock for all spools of a space. For each session it writes how far it has read to a cursor file, after the
events are stored. So an interrupted ingest reads the same lines again and creates the same events.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias, TypeVar
from zlib import crc32

import msgspec

from mica import hook
from mica.private_files import is_protected, make_private_folder, open_private, replace_private
from mica.spool_news import FINGERPRINT_BYTES

T = TypeVar("T")

LOCK = "ingest.lock"
CURSOR = ".cursor"
BATCH_BYTES = 8 * 2**20
OLD_S = 60  # a spool that was read and rendered is removed after this time without growth: its text is not redacted
UNRENDERED_S = 600  # the same for a spool that was read but not rendered, because no ingest has run since
FORGOTTEN_S = 90 * 86_400  # a session is not resumed after this time
FAILURES_SHOWN = 20

DAMAGED = "damaged-lines"  # lines of the spools that could not be read

_BEGINNING = b'{"v":1,"at":'
_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"\}\s*\Z')  # at the end of a line; older hooks wrote none


def hooks_folder(file: Path) -> Path:
    """Return the folder that hooks write to for the space in this file."""
    return file.with_name(file.name + hook.HOOKS.decode())


def is_spooled(file: Path) -> bool:
    """Return True if hooks have written lines for the space in `file`. The file need not exist yet."""
    return bool(Spools(hooks_folder(file)).waiting())


class SpoolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a spool: the call of a hook."""

    at: int  # microseconds since 1970
    client: str
    event: str
    directory: str | None = None
    payload: dict[str, object] = {}
    offered: dict[str, object] | None = None
    v: int = 1


class SessionState(msgspec.Struct, kw_only=True):
    """Facts from the lines of a session that were read, which are needed to read its later lines. It has no texts."""

    started: bool = False
    root: str | None = None  # the folder that paths are relative to
    turn: str | None = None  # the name of the current prompt, the parent of new events
    prompts: list[str] = []  # names of the prompts stored so far
    met: dict[str, int] = {}  # for prompts and calls without an id: how often the same content occurred
    lengths: dict[str, int] = {}  # for each file, its number of lines when last seen
    command: tuple[str, str] | None = None  # a slash command of OpenCode, until its message arrives


_LINE = msgspec.json.Decoder(SpoolLine)


SpoolOffsets: TypeAlias = dict[str, tuple[str, int]]  # by file name: its fingerprint, and the byte offset reached


class Cursor(msgspec.Struct, kw_only=True):
    """How far the spool files of a session were read, and the state of the session at that point."""

    files: SpoolOffsets = {}
    remembered: SessionState = msgspec.field(default_factory=SessionState)
    is_over: bool = False  # the last lines that were read end the session


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of lines from a spool file. `end` is the byte offset after them."""

    lines: list[SpoolLine]
    broken: list[str]  # for each line of the batch that could not be read, the reason
    unread: bytes  # these lines
    end: int


class HookFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a hook, as the hook recorded it."""

    at: int
    client: str = ""
    event: str = ""
    reason: str = ""


class PromptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook needs to answer a prompt: the ranking code (a copy of `navigation.engine`) and its data files."""

    engine: str
    entry: str = ""  # `module:function` in the engine; empty in a file that an older mica wrote
    library: str  # the folder of the stemmer, the engine's only library
    past: str  # the file with past work, see `Spools.past`
    trees: dict[str, str]  # for each working tree, the file with its index
    holdout: float = 0.1  # share of sessions that get no answer, to measure its effect
    version: int = 2


class AnswerLine(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One line of a rendered brief that the hook may leave out, because it is repeated or to make room for news.

    It is written as a list, because decoding is a part of what a hook costs. Places are offsets in the text.
    """

    start: int
    end: int  # before the line end
    said_start: int  # the statement in the line
    said_end: int
    score: float  # the line with the lowest is left out first
    is_open: bool = False  # a task or question that was open
    sessions: tuple[str, ...] = ()  # the sessions that its sources are from; empty if unknown


class RunningSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that had no end when the brief was rendered. Times are microseconds since 1970."""

    file: str  # its name in the spool
    prompt: str  # the latest
    at: int  # when it was typed
    active_at: int
    closed_at: int = 0  # when the agent last ended a turn


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The text that a hook prints at the start of a session, and what it needs to add what was spooled since."""

    text: str  # may be empty
    receipt: str | None = None  # the event that records the brief
    holdout: float = 0.0  # share of sessions that get no answer, to measure its effect
    budget_tokens: int = 0  # of the whole answer; 0: nothing is added
    read: SpoolOffsets = {}  # what was spooled before the text was made
    lines: tuple[AnswerLine, ...] = ()
    running: tuple[RunningSession, ...] = ()
    version: int = 1

    @property
    def is_complete(self) -> bool:
        """False for one that an older mica wrote, or while briefs are switched off."""
        return self.budget_tokens > 0


class Spools:
    """The folder of one space that hooks share with mica. Reads spooled lines, and writes what hooks answer with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spool = folder / hook.SPOOL.decode()
        self._sizes_read: dict[str, int] = {}  # sizes of files that were read completely

    def waiting(self) -> dict[str, list[Path]]:
        """Return the spool files of each session, in the order in which they must be read."""
        found: dict[str, list[Path]] = {}
        try:
            names = sorted(os.listdir(self._spool))  # noqa: PTH208 - every read looks
        except (FileNotFoundError, NotADirectoryError):
            return {}
        for name in names:
            if name.endswith(".jsonl"):
                found.setdefault(name.partition(".")[0], []).append(self._spool / name)
        return {
            session: sorted(files, key=lambda file: (file.name.count("."), file.name))
            for session, files in found.items()
        }

    def has_news(self) -> bool:
        """Return True if a spool file has lines that were not ingested yet."""
        for session, files in self.waiting().items():
            for file in files:
                with suppress(OSError):
                    size = file.stat().st_size
                    if self._sizes_read.get(file.name) != size and self._start(self.cursor(session), file) < size:
                        return True
                    self._sizes_read[file.name] = size
        return False

    def waiting_bytes(self) -> int:
        """Return how many bytes of the spool files were not ingested yet."""
        size = 0
        for session, files in self.waiting().items():
            cursor = self.cursor(session)
            for file in files:
                with suppress(OSError):
                    size += file.stat().st_size - self._start(cursor, file)
        return size

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Try to lock the spools for the `with` block. Never waits.

        Yields True if the lock was obtained, and False if another process has it or the lock file cannot be opened.
        """
        try:
            make_private_folder(self.folder)
            lock = os.fdopen(open_private(self.folder / LOCK, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")
        except OSError:
            yield False
            return
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    # -- Reading

    def cursor(self, session: str) -> Cursor:
        """Return the cursor of a session. A missing or damaged one is empty, so that the session is read again."""
        try:
            return msgspec.json.decode((self._spool / f"{session}{CURSOR}").read_bytes(), type=Cursor)
        except (OSError, ValueError):
            return Cursor()

    def portions(self, cursor: Cursor, file: Path) -> Iterator[Portion]:
        """Yield the lines of a file after the cursor, in batches. An incomplete last line is left for later."""
        try:
            with file.open("rb") as opened:
                place = self._start(cursor, file)
                opened.seek(place)
                while (portion := _portion(opened.readlines(BATCH_BYTES), place)) is not None:
                    place = portion.end
                    yield portion
        except FileNotFoundError:
            return

    def _start(self, cursor: Cursor, file: Path) -> int:
        fingerprint, offset = cursor.files.get(file.name, ("", 0))
        return offset if offset and fingerprint == _fingerprint(file) else 0

    def save_cursor(self, session: str, cursor: Cursor, file: Path, end: int) -> None:
        """Atomically record that everything in `file` up to the byte offset `end` is stored as events."""
        cursor.files[file.name] = (_fingerprint(file), end)
        replace_private(self._spool / f"{session}{CURSOR}", msgspec.json.encode(cursor))

    def offsets(self) -> SpoolOffsets:
        """Return how far each spool file was read."""
        cursors = [(self.cursor(session), files) for session, files in self.waiting().items()]
        return {
            file.name: (_fingerprint(file), start)
            for cursor, files in cursors
            for file in files
            if (start := self._start(cursor, file))
        }

    def remove_rendered(self) -> None:
        """Remove the spool files of sessions that are over, and quiet ones, as far as they were read and rendered.

        Until then, a session that starts gets what is in them from the hook.
        """
        answer = self.session_answer()
        for session in self.waiting():
            cursor = self.cursor(session)
            rendered = {} if answer is None else answer.read
            self.remove_finished(session, cursor, is_over=cursor.is_over, rendered=rendered)

    def remove_finished(
        self, session: str, cursor: Cursor, *, is_over: bool, rendered: SpoolOffsets | None = None
    ) -> None:
        """Remove those spool files of a session that were read completely.

        If the session is not over, only files that have not grown for OLD_S seconds are removed. With `rendered`, which
        says how far files were rendered, only those that were rendered completely, or have not grown for UNRENDERED_S.
        """
        for file in self.waiting().get(session, []):
            with suppress(OSError), file.open("rb") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a hook that writes now starts a new file
                status = os.fstat(opened.fileno())
                quiet_s = time.time() - status.st_mtime
                is_read = self._start(cursor, file) == status.st_size
                is_rendered = rendered is None or self._start(Cursor(files=rendered), file) == status.st_size
                is_due = (is_rendered and (is_over or quiet_s > OLD_S)) or quiet_s > UNRENDERED_S
                if is_read and is_due:
                    file.unlink()

    def sweep(self) -> None:
        """Remove all spool files that were read completely, and the lines that could not be read."""
        (self.folder / DAMAGED).unlink(missing_ok=True)
        for session in self.waiting():
            self.remove_finished(session, self.cursor(session), is_over=True)

    def forget_old(self) -> None:
        """Remove files that are unchanged for FORGOTTEN_S seconds, such as cursors of old sessions, but no spools."""
        shown = self.folder / hook.SHOWN.decode()
        for path in [*self._spool.glob("*"), *shown.glob("*")]:
            with suppress(OSError):
                if path.suffix != ".jsonl" and time.time() - path.stat().st_mtime > FORGOTTEN_S:
                    path.unlink()

    def put_aside(self, lines: bytes) -> None:
        """Keep lines that could not be read in a file, which `damaged` names."""
        descriptor = os.open(self.folder / DAMAGED, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as opened:
            opened.write(lines)

    @property
    def damaged(self) -> list[str]:
        """One sentence that names the file with the lines that could not be read; empty if there are none."""
        path = self.folder / DAMAGED
        with suppress(OSError):
            count = path.read_bytes().count(b"\n")
            lines = "1 line" if count == 1 else f"{count:,} lines"
            return [f"{lines} that hooks wrote could not be read and are in {path}; remove it when you have read it"]
        return []

    # -- Switches, answers, failures

    @property
    def is_on(self) -> bool:
        """False if recording by hooks is switched off for this space."""
        return not (self.folder / hook.OFF.decode()).exists()

    @property
    def keeps_prompts(self) -> bool:
        """False if recording of prompts is switched off for this space."""
        return not (self.folder / hook.NO_PROMPTS.decode()).exists()

    def switch(self, *, on: bool | None = None, prompts: bool | None = None) -> None:
        """Switch recording of the space (`on`) or of its prompts (`prompts`) on or off. None leaves it unchanged."""
        make_private_folder(self.folder)
        for name, wanted in ((hook.OFF, on), (hook.NO_PROMPTS, prompts)):
            if wanted is True:
                (self.folder / name.decode()).unlink(missing_ok=True)
            elif wanted is False:
                (self.folder / name.decode()).touch(mode=0o600)

    def write_answer(self, name: bytes, answer: SessionAnswer | PromptAnswer | None) -> None:
        """Atomically replace the file `name`, from which hooks answer. None removes the file."""
        path = self.folder / name.decode()
        if answer is None:
            path.unlink(missing_ok=True)
            return
        replace_private(path, msgspec.json.encode(answer))

    def session_answer(self) -> SessionAnswer | None:
        """Return what hooks print at the start of a session; None if nothing was rendered, or they refuse it."""
        return _read_answer(self.folder / hook.SESSION_ANSWER.decode(), SessionAnswer)

    def prompt_answer(self) -> PromptAnswer | None:
        """Return what hooks use to answer prompts; None if they do not answer, or refuse to."""
        return _read_answer(self.folder / hook.PROMPT_ANSWER.decode(), PromptAnswer)

    @property
    def past(self) -> Path:
        """The file in which hooks look up past work when they answer a prompt."""
        return self.folder / "past"

    def failures(self) -> list[HookFailure]:
        """Return the latest failures of hooks, oldest first."""
        found: list[HookFailure] = []
        for name in (f"{hook.FAILURES.decode()}.old", hook.FAILURES.decode()):
            with suppress(OSError):
                for line in (self.folder / name).read_bytes().splitlines():
                    with suppress(ValueError):
                        found.append(msgspec.json.decode(line, type=HookFailure))
        return found[-FAILURES_SHOWN:]


def command_file(home: Path) -> Path:
    """Return the path of the file with the command that hooks run to start an ingest."""
    return home / hook.COMMAND.decode()


def is_registered(home: Path) -> bool:
    """Return True if hooks start an ingest with this installation of mica, rather than with another one."""
    path = command_file(home)
    return path.exists() and is_protected(path) and path.read_text(encoding="utf-8") == _ingest_command()


def register_command(home: Path) -> None:
    """Write the command that lets hooks start an ingest with this installation of mica. Errors are ignored."""
    with suppress(OSError):
        if not is_registered(home):
            replace_private(command_file(home), _ingest_command().encode())


def _ingest_command() -> str:
    return f"{sys.executable}\n-P\n-m\nmica\ningest\n"  # a word on each line


def _read_answer(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind) if is_protected(path) else None
    except (OSError, ValueError):
        return None


def _portion(raw: list[bytes], place: int) -> Portion | None:
    lines: list[SpoolLine] = []
    broken: list[str] = []
    unread: list[bytes] = []
    end = place
    for text in raw:
        if not text.endswith(b"\n"):
            break
        end += len(text)
        try:
            lines += _decode(text)
        except ValueError as error:
            broken.append(str(error))
            unread.append(text)
    return Portion(lines=lines, broken=broken, unread=b"".join(unread), end=end) if end > place else None


def _decode(text: bytes) -> list[SpoolLine]:
    """Decode a line. Raises ValueError if it is damaged.

    If a torn line (after a full disk or a kill) comes before a whole one, only the whole one is decoded; both, if only
    the line break between them is damaged.
    """
    try:
        return [_decode_whole(text)]
    except ValueError:
        begin = text.rfind(_BEGINNING)
        if begin < 1:
            raise
        before: list[SpoolLine] = []
        with suppress(ValueError):
            before = _decode(text[: begin - 1])
        return [*before, _decode_whole(text[begin:])]


def _decode_whole(text: bytes) -> SpoolLine:
    line = _LINE.decode(text)
    if (found := _CHECKSUM.search(text)) and int(found[1], 16) != crc32(text[: found.start()]):
        raise ValueError("the line does not match its checksum")
    return line


def _fingerprint(file: Path) -> str:
    with suppress(OSError), file.open("rb") as opened:
        return blake2b(opened.readline(FINGERPRINT_BYTES), digest_size=8).hexdigest()
    return ""
