"""Encodings that engines share: times, large payloads, labels, and the marks of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TypeVar

import msgspec

from mica.errors import StoreError
from mica.model.event import EPOCH, Context

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

K = TypeVar("K")
V = TypeVar("V")

INLINE_BYTES_MAX = 5_120  # larger data becomes a payload, stored once by content (E-27)
CACHE_ENTRIES_MAX = 50_000  # cached interned words, a few MB; beyond that they are looked up again
READ_ROWS = 1_000  # rows decoded at a time when the whole log is read

_CHECKED: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
_QUICK: dict[int, int] = {zstd.CompressionParameter.compression_level: 3, **_CHECKED}  # while a writer waits
_SMALL: dict[int, int] = {zstd.CompressionParameter.compression_level: 9, **_CHECKED}  # 2 µs an event more, 9 % less


def moment(at: int) -> datetime:
    """Convert microseconds since 1970 to a time; the inverse of `microseconds`."""
    return EPOCH + timedelta(microseconds=at)


def digest(body: bytes) -> bytes:
    """The digest that a payload is stored under."""
    return blake2b(body, digest_size=16).digest()


def compress(body: bytes) -> bytes:
    return zstd.compress(body, options=_QUICK)


def compress_small(body: bytes) -> bytes:
    """Like `compress`, but smaller and slower, for background work."""
    return zstd.compress(body, options=_SMALL)


def expand(frame: bytes) -> bytes:
    try:
        return zstd.decompress(frame)
    except zstd.ZstdError as error:
        raise StoreError(f"compressed content is damaged ({error}); restore a backup") from error


def labels_text(context: Context) -> str:
    return msgspec.json.encode(context.labels).decode()


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    """The labels in a text that `labels_text` returned."""
    return msgspec.json.decode(text, type=tuple[tuple[str, str], ...])


def remember(cache: dict[K, V], key: K, value: V, *, limit: int | None = None) -> None:
    """Put a value into a cache. A full cache is emptied first."""
    if len(cache) >= (CACHE_ENTRIES_MAX if limit is None else limit):
        cache.clear()
    cache[key] = value


class SessionMarks:
    """The marks of one session, in order."""

    def __init__(self, positions: Sequence[int], lengths: Sequence[int]) -> None:
        self._positions = positions
        self._lengths = lengths
        self._length = sum(lengths)
        self._ordinals = dict(zip(positions, range(len(positions)), strict=True))

    def __len__(self) -> int:
        return len(self._positions)

    def near(self, wanted: Iterable[int], *, neighbours: int) -> dict[int, tuple[int, int, int]]:
        """The wanted marks and the nearest others: position to length, ordinal and the session's length."""
        found: dict[int, tuple[int, int, int]] = {}
        for position in wanted:
            if (middle := self._ordinals.get(position)) is None:  # retracted between two reads
                continue
            for ordinal in range(max(0, middle - neighbours), min(len(self), middle + neighbours + 1)):
                found[self._positions[ordinal]] = self._lengths[ordinal], ordinal, self._length
        return found
