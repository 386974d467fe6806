"""Code that engines share: encodings of times, large payloads and labels, a bounded cache, the marks of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TypeVar

import msgspec

from mica.errors import StoreDamaged
from mica.model.event import EPOCH, Context

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

K = TypeVar("K")
V = TypeVar("V")

INLINE_BYTES_MAX = 5_120  # larger data becomes a payload, stored once by content
CACHE_ENTRIES_MAX = 50_000  # in one cache of interned words, a few MB; a full cache is emptied
READ_ROWS = 1_000  # rows decoded at a time when the whole log is read

_CHECKED: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
_QUICK: dict[int, int] = {zstd.CompressionParameter.compression_level: 3, **_CHECKED}  # for writers
_SMALL: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 9,
    **_CHECKED,
}  # 2 µs slower per event, 9 % smaller


def moment(at: int) -> datetime:
    """Convert microseconds since 1970 to a time; the inverse of `microseconds`."""
    return EPOCH + timedelta(microseconds=at)


def digest(body: bytes) -> bytes:
    """Return the 16-byte hash that identifies a payload (event data that is stored apart from its event)."""
    return blake2b(body, digest_size=16).digest()


def compress(body: bytes) -> bytes:
    return zstd.compress(body, options=_QUICK)


def compress_small(body: bytes) -> bytes:
    """Compress into fewer bytes than `compress` does, but more slowly. For background work."""
    return zstd.compress(body, options=_SMALL)


def expand(frame: bytes) -> bytes:
    try:
        return zstd.decompress(frame)
    except zstd.ZstdError as error:
        raise StoreDamaged("compressed content", str(error)) from error


def labels_text(context: Context) -> str:
    return msgspec.json.encode(context.labels).decode()


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    """Decode context labels from the text that `labels_text` returned."""
    return msgspec.json.decode(text, type=tuple[tuple[str, str], ...])


def remember(cache: dict[K, V], key: K, value: V, *, limit: int | None = None) -> None:
    """Add an entry to `cache`. If the cache has `limit` entries (default CACHE_ENTRIES_MAX), it is emptied first."""
    if len(cache) >= (CACHE_ENTRIES_MAX if limit is None else limit):
        cache.clear()
    cache[key] = value


class SessionMarks:
    """The positions and the lengths in words of all marks of one session, in order of time."""

    def __init__(self, positions: Sequence[int], lengths: Sequence[int]) -> None:
        self._positions = positions
        self._lengths = lengths
        self._length = sum(lengths)
        self._ordinals = dict(zip(positions, range(len(positions)), strict=True))

    def __len__(self) -> int:
        return len(self._positions)

    def near(self, wanted: Iterable[int], *, neighbours: int) -> dict[int, tuple[int, int, int]]:
        """Return the marks at the positions `wanted` and their neighbours: up to `neighbours` marks on each side.

        The result maps the position of each mark to the number of words in the mark, the index of the mark in the
        session, and the number of words in the session. A position without a mark is skipped.
        """
        found: dict[int, tuple[int, int, int]] = {}
        for position in wanted:
            if (middle := self._ordinals.get(position)) is None:  # retracted between two reads
                continue
            for ordinal in range(max(0, middle - neighbours), min(len(self), middle + neighbours + 1)):
                found[self._positions[ordinal]] = self._lengths[ordinal], ordinal, self._length
        return found
