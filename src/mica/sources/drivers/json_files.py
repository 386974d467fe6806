"""Files of JSON, one document or one for each line, read on threads and kept in mind until they change."""

from __future__ import annotations

import os
import stat
import time
from abc import abstractmethod
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from mica.errors import SourceFailed
from mica.sources.drivers.documents import Document, Part, Selecting, Selector, columns_of
from mica.sources.drivers.live import Conditions
from mica.sources.drivers.rows import ROWS_TOLD_MAX, Told
from mica.sources.drivers.tables import About, Around, Asking, DeclaredSource, Explained, SourceTable, Where, parts_of
from mica.sources.protocol import RANK_FILE, Concept

DOCUMENT_BYTES_MAX = 1_000_000  # decoding it holds the interpreter for some 10 ms; more is for those who say so
LINES_BYTES_MAX = 4_000_000  # between two lines others have their turn
SETTLED_NS = 2_000_000_000  # after its last change a file may change once more without a trace: the coarsest clocks
DOCUMENTS_MAX = 16  # kept in mind by one source whose path depends on the concept
NAME_CHARACTERS_MAX = 200  # of a part of a concept in a path; file systems take 255 bytes

FilePath = Annotated[str, About(min_length=1, description="a file; {domain}, {type} and {id} may be parts of its name")]
Bytes = Annotated[int, About(ge=1, le=1_000_000_000, description="a number of bytes, 1 to 1000000000")]


class JsonTable(SourceTable, frozen=True, kw_only=True, tag="json"):
    """One document in a file."""

    path: FilePath
    select: Selector | None = None
    where: Conditions = msgspec.field(default_factory=dict)
    bytes_max: Bytes = DOCUMENT_BYTES_MAX


class JsonLinesTable(SourceTable, frozen=True, kw_only=True, tag="jsonl"):
    """A file with one document for each line, the latest last. Of one that is too long the end is read."""

    path: FilePath
    where: Conditions = msgspec.field(default_factory=dict)
    bytes_max: Bytes = LINES_BYTES_MAX


class _Version(NamedTuple):
    """What tells that a file is another."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


class FileSource(DeclaredSource):
    """A file that is read when it has changed."""

    rank = RANK_FILE
    table: JsonTable | JsonLinesTable

    def __init__(self, name: str, table: JsonTable | JsonLinesTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._path = Asking(str(around.folder / Path(table.path).expanduser()))
        self._only = None if self._path.fixed is None else Path(self._path.fixed)  # where it is one for all concepts
        self._where = Where(table.where)
        self._known: OrderedDict[Path, tuple[_Version, Document]] = OrderedDict()

    @abstractmethod
    def parsed(self, path: Path, held: bytes, skipped: int) -> Document:
        """The rows in what was read; `skipped` bytes stand before it. Raises SourceFailed."""

    @property
    def place(self) -> str:
        return self.table.path

    async def version_of(self, concept: Concept) -> str:
        """What the file of a concept is now, in short: other words mean another file. It takes a look, no reading.

        What changed just now is never the same twice: it may change once more without a trace.
        """
        return await self.blocking(lambda: self._version_of(concept))

    def _version_of(self, concept: Concept) -> str:
        try:
            found = self._file(concept).stat()
        except (OSError, ValueError, SourceFailed) as error:
            return type(error).__name__
        now_ns = time.time_ns()
        unsettled = now_ns if now_ns - found.st_mtime_ns <= SETTLED_NS else ""
        return f"{found.st_dev} {found.st_ino} {found.st_mtime_ns} {found.st_size} {unsettled}"

    async def told(self, concept: Concept, *, now: datetime) -> Told:
        path = self._file(concept)
        wanted = self._where.of(concept)
        return await self.blocking(lambda: self._told(path, concept, wanted, now))

    def _told(self, path: Path, concept: Concept, wanted: dict[str, str], now: datetime) -> Told:
        read = self._read(path)
        if read is None:
            return Told((), ())
        version, document = read
        changed_at = datetime.fromtimestamp(version.changed_ns / 1e9, UTC)
        return self.told_from(document, concept, wanted, now=now, at=min(changed_at, now), where=f"{path}#")

    def _file(self, concept: Concept) -> Path:
        """The file for a concept. Raises SourceFailed where a part of it could lead out of its folder."""
        if self._only is not None:
            return self._only
        for name in self._path.names:
            part = parts_of(concept)[name]
            if "/" in part or part in {".", ".."} or len(part) > NAME_CHARACTERS_MAX:
                raise SourceFailed(
                    self.name,
                    f"{part!r:.80} cannot be part of a file's name; narrow `concepts` of [sources.{self.name}]",
                )
        return Path(self._path.of(concept))

    def _read(self, path: Path) -> tuple[_Version, Document] | None:
        """The document of a file; None where the concept has no file. Raises SourceFailed."""
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # which no pipe can hold
        except FileNotFoundError as error:
            if self._only is None:
                return None  # a file for each concept, and none for this one
            raise SourceFailed(
                self.name, f"there is no file {path}; correct `path`, or let its program make it"
            ) from error
        except (OSError, ValueError) as error:
            raise SourceFailed(self.name, f"{path} cannot be opened: {error}") from error
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            os.close(opened)
            raise SourceFailed(self.name, f"{path} is no file but a folder, pipe or device; give a file")
        with os.fdopen(opened, "rb") as file:
            version = _Version(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
            known = self._known.get(path)
            if known is not None and known[0] == version:
                return known
            skipped = max(0, version.size_bytes - self.table.bytes_max)
            if skipped and not isinstance(self.table, JsonLinesTable):
                raise SourceFailed(
                    self.name,
                    f"{path} has {version.size_bytes:,} bytes, more than bytes_max = {self.table.bytes_max:,}; "
                    "raise it, or keep what is asked for in a smaller file",
                )
            file.seek(skipped)
            try:
                held = file.read(self.table.bytes_max + 1)[: self.table.bytes_max]
            except OSError as error:
                raise SourceFailed(self.name, f"{path} cannot be read: {error}") from error
        read = version, self.parsed(path, held, skipped)
        if time.time_ns() - version.changed_ns > SETTLED_NS:
            self._known[path] = read
            while len(self._known) > DOCUMENTS_MAX:
                self._known.popitem(last=False)
        return read

    def explained(self, concept: Concept) -> Explained:
        return self.asked(str(self._file(concept)), self._where.of(concept))

    async def check(self) -> str:
        path = self._only
        if path is None:
            return f"one file for each concept: {self._path.text}"
        read = await self.blocking(lambda: self._read(path))
        return f"{path}, {read[0].size_bytes if read else 0:,} bytes"

    async def close(self) -> None:
        self._known.clear()


class JsonSource(FileSource):
    """One document."""

    driver = "json"
    table: JsonTable

    def __init__(self, name: str, table: JsonTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._selecting = Selecting(name, table.select)

    def parsed(self, path: Path, held: bytes, skipped: int) -> Document:
        try:
            root = msgspec.json.decode(held)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SourceFailed(self.name, f"{path} is not JSON in UTF-8: {_why(held, error)}") from error
        return self._selecting.of(root)

    def explained(self, concept: Concept) -> Explained:
        plain = super().explained(concept)
        return msgspec.structs.replace(plain, asks=f"{plain.asks} {self.table.select}") if self.table.select else plain


class JsonLinesSource(FileSource):
    """One document for each line, the latest first. What is no JSON is left out and told."""

    driver = "jsonl"

    def parsed(self, path: Path, held: bytes, skipped: int) -> Document:
        lines = held.split(b"\n")
        missing: list[str] = []
        if skipped:
            lines[0] = b""  # most likely the end of a longer one
            missing.append(
                f"only the last {self.table.bytes_max:,} bytes of {path.name} are read; raise bytes_max for more"
            )
        parts, wrong = [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            called = f"line {number} of the part read" if skipped else f"line {number}"
            try:
                parts.append(Part(str(number), called, columns_of(msgspec.json.decode(line))))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                half = " (half-written?)" if number == len(lines) else ""
                wrong.append(f"{called} is not JSON{half}: {error}")
        if wrong:
            more = f", and {len(wrong) - ROWS_TOLD_MAX} more" if len(wrong) > ROWS_TOLD_MAX else ""
            missing.append("; ".join(wrong[-ROWS_TOLD_MAX:]) + more)
        return Document(None, parts[::-1], missing=tuple(missing))


def _why(held: bytes, error: Exception) -> str:
    """Why bytes are no JSON, with what to do: they are in another encoding, or not whole."""
    try:
        held.decode()
    except UnicodeDecodeError as other:
        if other.end < len(held) or not other.reason.startswith("unexpected end"):
            found = f"its byte {other.start + 1:,} is 0x{held[other.start]:02x}"
            return f"{found}; convert it, as `iconv -f latin1 -t utf-8` does"
    return f"{error}; is it being written?"
