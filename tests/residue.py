"""Searches the files of a space for remains of a text: in raw bytes, in compressed data, and on free database pages."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME = b"\x28\xb5\x2f\xfd"  # the magic number of a zstd frame


def residue(folder: Path, needles: list[str]) -> list[str]:
    """Return where files below a folder still contain one of the texts: a line for each place, with text and file."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        # Frames are searched in the raw bytes, so that those on free pages and in the WAL are included.
        places = {"": content, "a frame of ": b"".join(_decompress(content))}
        if content.startswith(b"SQLite format 3"):
            places["a row of "] = b"".join(_values(path))
        found += [
            f"{needle!r} in {place}{path.name}"
            for place, searched in places.items()
            for needle in (needle.encode() for needle in needles)
            if needle in searched
        ]
    return found


def _decompress(stored: bytes) -> Iterator[bytes]:
    """Yield the decompressed content of each zstd frame in these bytes. A damaged frame yields its first part."""
    start = stored.find(FRAME)
    while start >= 0:
        decoder = zstd.ZstdDecompressor()
        content = b""
        try:
            for at in range(start, len(stored), 512):  # a frame that continues on another page yields its first part
                content += decoder.decompress(stored[at : at + 512])
                if decoder.eof:
                    break
        except zstd.ZstdError:
            pass
        yield content
        start = stored.find(FRAME, start + 1)


def _values(path: Path) -> Iterator[bytes]:
    """Yield each binary value in the tables of a SQLite file, followed by its decompressed content."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield from (with_frames(value) for value in row if isinstance(value, bytes))
    finally:
        connection.close()


def with_frames(value: bytes) -> bytes:
    """Return a stored value followed by the decompressed content of all zstd frames in it."""
    return value + b"".join(_decompress(value))
