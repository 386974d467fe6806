"""What `mica-hook` leaves beside a space: a spool for each session, answers, failures, and two switches.

The hook appends whole lines and never waits. Whoever ingests holds one lock for all spools of a space; how far each was
read is kept in a cursor beside it, which is written after what was read is stored. Cut off in between, the same lines
are read again and make the same events.
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
OLD_S = 60  # a spool that was read whole and has not grown for so long is removed: it is not redacted yet
FORGOTTEN_S = 90 * 86_400  # a session is not taken up again after so long
FINGERPRINT_BYTES = 256  # of the first line, which has its time in microseconds
FAILURES_SHOWN = 20

_BEGINNING = b'{"v":1,"at":'


def hooks_folder(file: Path) -> Path:
    """Where the hooks of the space in this file write."""
    return file.with_name(file.name + hook.HOOKS.decode())


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a spool."""

    at: int  # microseconds since 1970
    client: str
    event: str
    directory: str | None = None
    payload: dict[str, object] = {}
    offered: dict[str, object] | None = None
    v: int = 1


class Remembered(msgspec.Struct, kw_only=True):
    """What is kept of a session between two ingests; never a text."""

    started: bool = False
    root: str | None = None  # the folder that paths are relative to
    turn: str | None = None  # the name of the prompt that everything hangs under
    prompts: list[str] = []  # those that were told
    met: dict[str, int] = {}  # how often something without a name of its own was met
    lengths: dict[str, int] = {}
    command: tuple[str, str] | None = None  # a slash command of OpenCode, until its message comes


_LINE = msgspec.json.Decoder(Line)


class Cursor(msgspec.Struct, kw_only=True):
    """How far the spools of one session were read, and what is remembered of it."""

    files: dict[str, tuple[str, int]] = {}  # each file's fingerprint and the offset reached
    remembered: Remembered = msgspec.field(default_factory=Remembered)


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a spool, and the offset reached with them."""

    lines: list[Line]
    broken: list[str]  # why others could not be read
    end: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a hook observed or answered nothing."""

    at: int
    client: str = ""
    event: str = ""
    reason: str = ""


class PromptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook answers a prompt with: what ranks files (`mica.navigation.engine_copy`), and what it ranks them by."""

    engine: str
    library: str  # the folder that the engine's one library is in
    past: str
    trees: dict[str, str]  # for each working tree, the file that keeps it
    holdout: float = 0.1  # share of sessions that are told nothing, to measure what telling is worth
    version: int = 2


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook prints at the start of a session."""

    text: str
    receipt: str | None = None  # the event that records the brief
    holdout: float = 0.0  # share of sessions that are told nothing, to measure what telling is worth
    version: int = 1


class Spools:
    """The spools of one space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spool = folder / hook.SPOOL.decode()
        self._whole: dict[str, int] = {}  # files that were read whole, and their size then

    def waiting(self) -> dict[str, list[Path]]:
        """The sessions whose spools hold something, and their files; looking costs one listing."""
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
        """Whether a spool has grown since it was read last."""
        for session, files in self.waiting().items():
            for file in files:
                with suppress(OSError):
                    size = file.stat().st_size
                    if self._whole.get(file.name) != size and self._start(self.cursor(session), file) < size:
                        return True
                    self._whole[file.name] = size
        return False

    def waiting_bytes(self) -> int:
        """How much was spooled and not stored yet."""
        size = 0
        for session, files in self.waiting().items():
            cursor = self.cursor(session)
            for file in files:
                with suppress(OSError):
                    size += file.stat().st_size - self._start(cursor, file)
        return size

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether nobody else reads these spools; True until the block ends."""
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
        """Where reading this session goes on. One that cannot be read begins anew: nothing is stored twice."""
        try:
            return msgspec.json.decode((self._spool / f"{session}{CURSOR}").read_bytes(), type=Cursor)
        except (OSError, ValueError):
            return Cursor()

    def portions(self, cursor: Cursor, file: Path) -> Iterator[Portion]:
        """What of a file was not read before. A line that is being written is left for the next time."""
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

    def reached(self, session: str, cursor: Cursor, file: Path, end: int) -> None:
        """All up to here is stored."""
        cursor.files[file.name] = (_fingerprint(file), end)
        path = self._spool / f"{session}{CURSOR}"
        new = path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(cursor))
        new.rename(path)

    def tidy(self, session: str, cursor: Cursor, *, is_over: bool) -> None:
        """Remove what was read whole, when its session is over or nobody has written for a while."""
        for file in self.waiting().get(session, []):
            with suppress(OSError), file.open("rb") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a hook that writes now finds it gone, or waits not
                status = os.fstat(opened.fileno())
                is_read = self._start(cursor, file) == status.st_size
                if is_read and (is_over or time.time() - status.st_mtime > OLD_S):
                    file.unlink()

    def sweep(self) -> None:
        """Leave no copy of what is stored."""
        for session in self.waiting():
            self.tidy(session, self.cursor(session), is_over=True)

    def forget_old(self) -> None:
        """Remove cursors of sessions that nobody takes up any more, and what they were shown."""
        shown = self.folder / hook.SHOWN.decode()
        for path in [*self._spool.glob("*"), *shown.glob("*")]:
            with suppress(OSError):
                if path.suffix != ".jsonl" and time.time() - path.stat().st_mtime > FORGOTTEN_S:
                    path.unlink()

    # -- Switches, answers, failures

    @property
    def is_on(self) -> bool:
        return not (self.folder / hook.OFF.decode()).exists()

    @property
    def keeps_prompts(self) -> bool:
        return not (self.folder / hook.NO_PROMPTS.decode()).exists()

    def switch(self, *, on: bool | None = None, prompts: bool | None = None) -> None:
        """Observe this space or not; keep what was said or not. What is stored stays."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, wanted in ((hook.OFF, on), (hook.NO_PROMPTS, prompts)):
            if wanted is True:
                (self.folder / name.decode()).unlink(missing_ok=True)
            elif wanted is False:
                (self.folder / name.decode()).touch(mode=0o600)

    def answer(self, name: bytes, made: SessionAnswer | PromptAnswer | None) -> None:
        """Write what a hook prints, whole or not at all; None takes it back."""
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
        """What the start of a session is answered now."""
        try:
            raw = (self.folder / hook.SESSION_ANSWER.decode()).read_bytes()
            return msgspec.json.decode(raw, type=SessionAnswer)
        except (OSError, ValueError):
            return None

    def prompt_answer(self) -> PromptAnswer | None:
        """What a prompt is answered with now."""
        try:
            raw = (self.folder / hook.PROMPT_ANSWER.decode()).read_bytes()
            return msgspec.json.decode(raw, type=PromptAnswer)
        except (OSError, ValueError):
            return None

    @property
    def past(self) -> Path:
        """Where hooks look up what was done before."""
        return self.folder / "past"

    def failures(self) -> list[Failure]:
        """The latest failures of hooks, oldest first."""
        found: list[Failure] = []
        for name in (f"{hook.FAILURES.decode()}.old", hook.FAILURES.decode()):
            with suppress(OSError):
                for line in (self.folder / name).read_bytes().splitlines():
                    with suppress(ValueError):
                        found.append(msgspec.json.decode(line, type=Failure))
        return found[-FAILURES_SHOWN:]


def register_command(home: Path) -> None:
    """Tell hooks how this mica is started, so that they can start an ingest."""
    words = [sys.executable, "-P", "-m", "mica", "ingest"]
    path = home / hook.COMMAND.decode()
    text = "\n".join(words) + "\n"
    with suppress(OSError):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _portion(raw: list[bytes], place: int) -> Portion | None:
    lines: list[Line] = []
    broken: list[str] = []
    end = place
    for text in raw:
        if not text.endswith(b"\n"):
            break
        end += len(text)
        try:
            lines.append(_decoded(text))
        except ValueError as error:
            broken.append(str(error))
    return Portion(lines=lines, broken=broken, end=end) if end > place else None


def _decoded(text: bytes) -> Line:
    """A line; the whole one behind a torn one, which a full disk or a kill left on the same line."""
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
