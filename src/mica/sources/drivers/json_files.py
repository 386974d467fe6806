"""JSON files as sources. A file is one document, or has one document per line.

Files are read in threads and cached until they change.
"""

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
from mica.sources.drivers.documents import DocumentRow, JsonDocument, Selecting, Selector, columns_of
from mica.sources.drivers.live import Conditions
from mica.sources.drivers.rows import ROWS_TOLD_MAX, MappedRows
from mica.sources.drivers.tables import (
    About,
    Around,
    DeclaredSource,
    QueryTemplate,
    SourceQueryPreview,
    SourceTable,
    Where,
    parts_of,
)
from mica.sources.protocol import RANK_FILE, Concept

DOCUMENT_BYTES_MAX = 1_000_000  # decoding it blocks the interpreter for about 10 ms; a table may allow more
LINES_BYTES_MAX = 4_000_000  # more than for a document, because other threads can run between two lines
SETTLED_NS = 2_000_000_000  # a file that changed more recently may change again without a new modification time
DOCUMENTS_MAX = 16  # cached by one source whose path depends on the concept
NAME_CHARACTERS_MAX = 200  # of a part of a concept in a path; file systems take 255 bytes

FilePath = Annotated[str, About(min_length=1, description="a file; {domain}, {type} and {id} may be parts of its name")]
Bytes = Annotated[int, About(ge=1, le=1_000_000_000, description="a number of bytes, 1 to 1000000000")]


class JsonTable(SourceTable, frozen=True, kw_only=True, tag="json"):
    """The settings of a source that reads a file with one JSON document."""

    path: FilePath
    select: Selector | None = None
    where: Conditions = msgspec.field(default_factory=dict)
    bytes_max: Bytes = DOCUMENT_BYTES_MAX


class JsonLinesTable(SourceTable, frozen=True, kw_only=True, tag="jsonl"):
    """The settings of a source that reads a file with one JSON document per line, the latest in the last line.

    If a file is longer than `bytes_max`, only its end is read.
    """

    path: FilePath
    where: Conditions = msgspec.field(default_factory=dict)
    bytes_max: Bytes = LINES_BYTES_MAX


class _Version(NamedTuple):
    """The identity, size and modification time of a file. If any of them differs, the file has changed."""

    device: int
    inode: int
    changed_ns: int
    size_bytes: int


class FileSource(DeclaredSource):
    """A source that reads a JSON file. When the file has changed, it is read again."""

    rank = RANK_FILE
    table: JsonTable | JsonLinesTable

    def __init__(self, name: str, table: JsonTable | JsonLinesTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._path = QueryTemplate(str(around.folder / Path(table.path).expanduser()))
        self._only = None if self._path.fixed is None else Path(self._path.fixed)  # set if all concepts share one file
        self._where = Where(table.where)
        self._known: OrderedDict[Path, tuple[_Version, JsonDocument]] = OrderedDict()

    @abstractmethod
    def parsed(self, path: Path, content: bytes, skipped: int) -> JsonDocument:
        """Split `content`, the bytes read from the file at `path`, into rows.

        `skipped` is the number of bytes at the beginning of the file that were not read. Raises SourceFailed if the
        file is not JSON.
        """

    @property
    def place(self) -> str:
        return self.table.path

    async def version_of(self, concept: Concept) -> str:
        """Return the version of the file for a concept, computed from the file's metadata.

        If the file was changed a moment ago, each call returns a different version, because the file may change again
        without a new modification time.
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

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        path = self._file(concept)
        wanted = self._where.of(concept)
        return await self.blocking(lambda: self._map(path, concept, wanted, now))

    def _map(self, path: Path, concept: Concept, wanted: dict[str, str], now: datetime) -> MappedRows:
        read = self._read(path)
        if read is None:
            return MappedRows((), ())
        version, document = read
        changed_at = datetime.fromtimestamp(version.changed_ns / 1e9, UTC)
        return self.map_document(document, concept, wanted, now=now, at=min(changed_at, now), where=f"{path}#")

    def _file(self, concept: Concept) -> Path:
        """Return the path of the file for a concept.

        Raises SourceFailed if a part of the concept that is inserted could lead to another folder, or is too long.
        """
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

    def _read(self, path: Path) -> tuple[_Version, JsonDocument] | None:
        """Return the version of the file at `path`, and its rows.

        If the file does not exist, the result depends on the source: None if the source has one file for each concept;
        otherwise SourceFailed is raised. SourceFailed is also raised if the file cannot be read or is too large.
        """
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would block otherwise
        except FileNotFoundError as error:
            if self._only is None:
                return None  # there is a file for each concept, but not for this concept
            raise SourceFailed(
                self.name, f"there is no file {path}; correct `path`, or run the program that writes it"
            ) from error
        except (OSError, ValueError) as error:
            raise SourceFailed(self.name, f"{path} cannot be opened: {error}") from error
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            os.close(opened)
            raise SourceFailed(self.name, f"{path} is not a file but a folder, pipe or device; give a file")
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
                    "raise bytes_max, or use a smaller file",
                )
            file.seek(skipped)
            try:
                content = file.read(self.table.bytes_max + 1)[: self.table.bytes_max]
            except OSError as error:
                raise SourceFailed(self.name, f"{path} cannot be read: {error}") from error
        read = version, self.parsed(path, content, skipped)
        if time.time_ns() - version.changed_ns > SETTLED_NS:
            self._known[path] = read
            while len(self._known) > DOCUMENTS_MAX:
                self._known.popitem(last=False)
        return read

    def explain(self, concept: Concept) -> SourceQueryPreview:
        return self.preview(str(self._file(concept)), self._where.of(concept))

    async def check(self) -> str:
        path = self._only
        if path is None:
            return f"one file for each concept: {self._path.text}"
        read = await self.blocking(lambda: self._read(path))
        return f"{path}, {read[0].size_bytes if read else 0:,} bytes"

    async def close(self) -> None:
        self._known.clear()


class JsonSource(FileSource):
    """A source that reads a file with one JSON document."""

    driver = "json"
    table: JsonTable

    def __init__(self, name: str, table: JsonTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._selecting = Selecting(name, table.select)

    def parsed(self, path: Path, content: bytes, skipped: int) -> JsonDocument:
        try:
            root = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SourceFailed(self.name, f"{path} is not JSON in UTF-8: {_why(content, error)}") from error
        return self._selecting.of(root)

    def explain(self, concept: Concept) -> SourceQueryPreview:
        plain = super().explain(concept)
        return msgspec.structs.replace(plain, asks=f"{plain.asks} {self.table.select}") if self.table.select else plain


class JsonLinesSource(FileSource):
    """A source that reads a file with one JSON document per line.

    The rows have the reverse order of the lines, so the latest comes first. Invalid lines are skipped and reported.
    """

    driver = "jsonl"

    def parsed(self, path: Path, content: bytes, skipped: int) -> JsonDocument:
        lines = content.split(b"\n")
        missing: list[str] = []
        if skipped:
            lines[0] = b""  # probably the end of a longer line
            missing.append(
                f"only the last {self.table.bytes_max:,} bytes of {path.name} are read; raise bytes_max for more"
            )
        parts, wrong = [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            called = f"line {number} of the part read" if skipped else f"line {number}"
            try:
                parts.append(DocumentRow(str(number), called, columns_of(msgspec.json.decode(line))))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                half = " (half-written?)" if number == len(lines) else ""
                wrong.append(f"{called} is not JSON{half}: {error}")
        if wrong:
            more = f", and {len(wrong) - ROWS_TOLD_MAX} more" if len(wrong) > ROWS_TOLD_MAX else ""
            missing.append("; ".join(wrong[-ROWS_TOLD_MAX:]) + more)
        return JsonDocument(None, parts[::-1], missing=tuple(missing))


def _why(content: bytes, error: Exception) -> str:
    """Return why the bytes `content` are not JSON, and what to do. `error` is the error of the JSON decoder.

    If the bytes are not UTF-8, this is the reason; otherwise the reason is `error`.
    """
    try:
        content.decode()
    except UnicodeDecodeError as other:
        if other.end < len(content) or not other.reason.startswith("unexpected end"):
            found = f"its byte {other.start + 1:,} is 0x{content[other.start]:02x}"
            return f"{found}; convert it, as `iconv -f latin1 -t utf-8` does"
    return f"{error}; is it being written?"
