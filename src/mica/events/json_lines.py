"""Read files with one JSON record per line, one line at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

LINE_BYTES_MAX = 512 * 2**20  # ten times the longest line observed in practice; a longer one is not a record


class JsonLine(msgspec.Struct, frozen=True):
    """One line of a file, including its line break."""

    number: int  # from 1
    end: int  # the number of bytes from where reading began to the end of this line
    text: bytes
    whole: bool  # True if the line ends with a line break
    cut: bool  # True if the line is longer than allowed, so that `text` is only its beginning


def read_lines(file: Path | IO[bytes]) -> Iterator[JsonLine]:
    """Yield the lines of a file, or of an open file from its current position. Raises OSError."""
    if isinstance(file, Path):
        with file.open("rb", buffering=2**20) as opened:
            yield from read_lines(opened)
        return
    number = end = 0
    while text := file.readline(LINE_BYTES_MAX):
        number += 1
        size, last = len(text), text
        while not last.endswith(b"\n") and (more := file.readline(LINE_BYTES_MAX)):
            size, last = size + len(more), more
        end += size
        yield JsonLine(number, end, text, last.endswith(b"\n"), size > len(text))
