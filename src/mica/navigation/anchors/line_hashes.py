"""Lines as numbers: short hashes of their trimmed text, so that what was read can be found again and not read again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

SILENT = 0  # lines without a letter or digit stand everywhere
ONCE, ONCE_IN_SYMBOL = 1, 2  # flags of a remembered line: it stood once in its file, once in its symbol
FLAGS = ONCE | ONCE_IN_SYMBOL
SIZE = 4  # bytes of a line: of 20 files of 10,000 lines, one has two lines that are taken for each other

_WORD = re.compile(r"\w")


def lines_of(text: str) -> list[str]:
    """The lines of a text as git, editors and agents count them; a final line end begins no other."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def hashes_of(lines: Iterable[str]) -> list[int]:
    """A number for each line, by its trimmed text; the bits of the flags are free."""
    known: dict[str, int] = {}
    found = []
    for line in lines:
        trimmed = line.strip()
        value = known.get(trimmed)
        if value is None:
            value = known[trimmed] = _hash(trimmed) if _WORD.search(trimmed) else SILENT
        found.append(value)
    return found


def digest(hashes: Sequence[int]) -> str:
    """One short hash of many lines."""
    return blake2b(packed(hashes), digest_size=8).hexdigest()


def packed(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(SIZE, "big") for value in values)


def unpacked(stored: bytes) -> list[int]:
    return [int.from_bytes(stored[at : at + SIZE], "big") for at in range(0, len(stored), SIZE)]


def _hash(text: str) -> int:
    value = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=SIZE).digest(), "big")
    return value & ~FLAGS or FLAGS + 1
