"""The files that `mica-hook` and mica share beside a space: a spool per session, answers, failures and two switches.

The hook appends whole lines and never waits. An ingest holds one lock for all spools of a space. A cursor beside each
spool has the offset read so far and is written after the events are stored, so an interrupted ingest reads the same
lines again and makes the same events.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from mica import hook

LOCK = "ingest.lock"
CURSOR = ".cursor"
BATCH_BYTES = 8 * 2**20
OLD_S = 60  # after this time without growth a finished spool is removed, because it is not redacted
FORGOTTEN_S = 90 * 86_400  # a session is not resumed after this time
FINGERPRINT_BYTES = 256  # of the first line, which has its time in microseconds
FAILURES_SHOWN = 20

_BEGINNING = b'{"v":1,"at":'


def hooks_folder(file: Path) -> Path:
    """The folder that hooks use for the space in this file."""
    return file.with_name(file.name + hook.HOOKS.decode())


def is_spooled(file: Path) -> bool:
    """Whether hooks have spooled events for the space in this file, which need not exist yet."""
    return bool(Spools(hooks_folder(file)).waiting())


class SpoolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a spool."""

    at: int  # microseconds since 1970
    client: str
    event: str
    directory: str | None = None
    payload: dict[str, object] = {}
    offered: dict[str, object] | None = None
    v: int = 1


class SessionState(msgspec.Struct, kw_only=True):
    """The state of a session between two ingests; it contains no texts."""

    started: bool = False
    root: str | None = None  # the folder that paths are relative to
    turn: str | None = None  # the name of the current prompt, the parent of new events
    prompts: list[str] = []  # names of the prompts stored so far
    met: dict[str, int] = {}  # how often each thing without a name was seen
    lengths: dict[str, int] = {}
    command: tuple[str, str] | None = None  # a slash command of OpenCode, until its message arrives


_LINE = msgspec.json.Decoder(SpoolLine)


class Cursor(msgspec.Struct, kw_only=True):
    """The offsets that the spools of one session were read to, and the state of the session."""

    files: dict[str, tuple[str, int]] = {}  # each file's fingerprint and the offset reached
    remembered: SessionState = msgspec.field(default_factory=SessionState)


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a spool, and the offset after them."""

    lines: list[SpoolLine]
    broken: list[str]  # reasons why other lines could not be read
    end: int


class HookFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that a hook recorded."""

    at: int
    client: str = ""
    event: str = ""
    reason: str = ""


class PromptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a hook answers a prompt: the ranking code (a copy of `navigation.engine`) and its data."""

    engine: str
    entry: str = ""  # `module:function` in the engine; empty in files of mica before it was written
    library: str  # the folder of the stemmer, the engine's only library
    past: str
    trees: dict[str, str]  # for each working tree, the file with its index
    holdout: float = 0.1  # share of sessions that get no answer, to measure its effect
    version: int = 2


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The text that a hook prints at the start of a session."""

    text: str
    receipt: str | None = None  # the event that records the brief
    holdout: float = 0.0  # share of sessions that get no answer, to measure its effect
    version: int = 1


class Spools:
    """The spools of one space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spool = folder / hook.SPOOL.decode()
        self._whole: dict[str, int] = {}  # sizes of files that were read completely

    def waiting(self) -> dict[str, list[Path]]:
        """The spool files by session. Costs one directory listing."""
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
        """True if a spool has grown since it was last read."""
        for session, files in self.waiting().items():
            for file in files:
                with suppress(OSError):
                    size = file.stat().st_size
                    if self._whole.get(file.name) != size and self._start(self.cursor(session), file) < size:
                        return True
                    self._whole[file.name] = size
        return False

    def waiting_bytes(self) -> int:
        """The number of bytes that are spooled but not stored yet."""
        size = 0
        for session, files in self.waiting().items():
            cursor = self.cursor(session)
            for file in files:
                with suppress(OSError):
                    size += file.stat().st_size - self._start(cursor, file)
        return size

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Yields True and holds the lock for the block, or yields False if another process holds it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("ab")
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
        """The saved cursor of a session, or an empty one. Reading from the start again stores nothing twice."""
        try:
            return msgspec.json.decode((self._spool / f"{session}{CURSOR}").read_bytes(), type=Cursor)
        except (OSError, ValueError):
            return Cursor()

    def portions(self, cursor: Cursor, file: Path) -> Iterator[Portion]:
        """The unread lines of a file. A line that is still being written is left for the next ingest."""
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
        """Record that everything up to this offset is stored."""
        cursor.files[file.name] = (_fingerprint(file), end)
        path = self._spool / f"{session}{CURSOR}"
        new = path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(cursor))
        new.rename(path)

    def remove_finished(self, session: str, cursor: Cursor, *, is_over: bool) -> None:
        """Remove files that were read completely, if the session is over or they have not grown for a while."""
        for file in self.waiting().get(session, []):
            with suppress(OSError), file.open("rb") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a hook that writes now starts a new file
                status = os.fstat(opened.fileno())
                is_read = self._start(cursor, file) == status.st_size
                if is_read and (is_over or time.time() - status.st_mtime > OLD_S):
                    file.unlink()

    def sweep(self) -> None:
        """Remove every file that was read completely."""
        for session in self.waiting():
            self.remove_finished(session, self.cursor(session), is_over=True)

    def forget_old(self) -> None:
        """Remove the cursors and shown lines of sessions that are too old to be resumed."""
        shown = self.folder / hook.SHOWN.decode()
        for path in [*self._spool.glob("*"), *shown.glob("*")]:
            with suppress(OSError):
                if path.suffix != ".jsonl" and time.time() - path.stat().st_mtime > FORGOTTEN_S:
                    path.unlink()

    # -- Switches, answers, failures

    @property
    def is_on(self) -> bool:
        """True if hooks record this space."""
        return not (self.folder / hook.OFF.decode()).exists()

    @property
    def keeps_prompts(self) -> bool:
        """True if hooks record prompts."""
        return not (self.folder / hook.NO_PROMPTS.decode()).exists()

    def switch(self, *, on: bool | None = None, prompts: bool | None = None) -> None:
        """Switch recording of the space, or of its prompts, on or off. Stored events stay."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, wanted in ((hook.OFF, on), (hook.NO_PROMPTS, prompts)):
            if wanted is True:
                (self.folder / name.decode()).unlink(missing_ok=True)
            elif wanted is False:
                (self.folder / name.decode()).touch(mode=0o600)

    def write_answer(self, name: bytes, made: SessionAnswer | PromptAnswer | None) -> None:
        """Write the file that a hook answers from, in one step; None removes it."""
        path = self.folder / name.decode()
        if made is None:
            path.unlink(missing_ok=True)
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.write(msgspec.json.encode(made))
        new.rename(path)

    def session_answer(self) -> SessionAnswer | None:
        """The current answer to the start of a session."""
        try:
            raw = (self.folder / hook.SESSION_ANSWER.decode()).read_bytes()
            return msgspec.json.decode(raw, type=SessionAnswer)
        except (OSError, ValueError):
            return None

    def prompt_answer(self) -> PromptAnswer | None:
        """The current way to answer prompts."""
        try:
            raw = (self.folder / hook.PROMPT_ANSWER.decode()).read_bytes()
            return msgspec.json.decode(raw, type=PromptAnswer)
        except (OSError, ValueError):
            return None

    @property
    def past(self) -> Path:
        """The file in which the prompt engine looks up past work."""
        return self.folder / "past"

    def failures(self) -> list[HookFailure]:
        """The latest failures, oldest first."""
        found: list[HookFailure] = []
        for name in (f"{hook.FAILURES.decode()}.old", hook.FAILURES.decode()):
            with suppress(OSError):
                for line in (self.folder / name).read_bytes().splitlines():
                    with suppress(ValueError):
                        found.append(msgspec.json.decode(line, type=HookFailure))
        return found[-FAILURES_SHOWN:]


def register_command(home: Path) -> None:
    """Write the command that starts this mica into the data folder, for hooks to start an ingest."""
    words = [sys.executable, "-P", "-m", "mica", "ingest"]
    path = home / hook.COMMAND.decode()
    text = "\n".join(words) + "\n"
    with suppress(OSError):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _portion(raw: list[bytes], place: int) -> Portion | None:
    lines: list[SpoolLine] = []
    broken: list[str] = []
    end = place
    for text in raw:
        if not text.endswith(b"\n"):
            break
        end += len(text)
        try:
            lines.append(_decode(text))
        except ValueError as error:
            broken.append(str(error))
    return Portion(lines=lines, broken=broken, end=end) if end > place else None


def _decode(text: bytes) -> SpoolLine:
    """A line; where a full disk or a kill left a torn one before it on the same line, the second."""
    try:
        return _LINE.decode(text)
    except ValueError:
        begin = text.rfind(_BEGINNING)
        if begin < 1:
            raise
        return _LINE.decode(text[begin:])


def _fingerprint(file: Path) -> str:
    with suppress(OSError), file.open("rb") as opened:
        return blake2b(opened.readline(FINGERPRINT_BYTES), digest_size=8).hexdigest()
    return ""
