"""Finds committed transactions that SQLite ignores without an error, because its write-ahead log is damaged.

Each frame of the log has a checksum that also covers all frames before it. When SQLite opens a file after a crash, it
reads the log up to the first frame whose checksum is wrong, because a power loss may have interrupted the last
transaction. A flipped bit in the middle of the log has the same effect, and SQLite ignores all later transactions. This
module finds them, because their frames are still in the log.
"""

from __future__ import annotations

import filecmp
import logging
import os
import shutil
import struct
from pathlib import Path
from typing import NamedTuple

import apsw

from mica.errors import StoreDamaged

LOG = logging.getLogger("mica")

HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
SET_ASIDE = "-wal-damaged"  # and a number
_HEADER = struct.Struct(">8I")  # magic, format, page size, checkpoint, two salts, two checksums
_FRAME = struct.Struct(">6I")  # page, pages of the file if the frame ends a transaction, two salts, two checksums
_BIG_ENDIAN = 0x377F0683  # the magic number of a log whose checksums are of big-endian numbers


def check_log(connection: apsw.Connection, path: Path) -> None:
    """Check that SQLite has read the whole write-ahead log. Call it after the first read of a connection.

    If SQLite ignored only the last transaction, which a power loss can cause, the log is copied, and `describe_copies`
    reports the copy. Raises StoreDamaged if it ignored several, because a power loss cannot cause that.
    """
    log = path.with_name(path.name + "-wal")
    lost = _lost(connection, log)
    if not lost.transactions:
        return
    try:
        # A process that commits now looks the same. With the lock, its transaction is over, and was taken over.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return
    if _lost(connection, log) != lost:
        return
    if lost.transactions == 1:
        _copy_aside(log)
    else:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # or closing it would remove the log
        raise StoreDamaged(
            str(log),
            f"{lost.transactions} transactions that were written to it fail their checksums",
            f"nothing was changed; keep a copy of it and of {path.name}, then restore a backup, or move {log.name} "
            "elsewhere to use the store without them",
        )


def describe_copies(path: Path) -> list[str]:
    """Return a sentence about each copy that was made of a damaged write-ahead log of the store in this file."""
    return [
        f"{copy} is a copy of a write-ahead log whose last transaction was not whole: if the power failed while it was "
        "written, nothing that was acknowledged is missing, otherwise restore a backup; then remove it"
        for copy in copies(path)
    ]


def copies(path: Path) -> list[Path]:
    """Return the copies that were made of damaged write-ahead logs of the store in this file."""
    return sorted(path.parent.glob(f"{path.name}{SET_ASIDE}-*"))


def _copy_aside(log: Path) -> None:
    path = log.with_name(log.name.removesuffix("-wal"))
    if any(filecmp.cmp(log, copy, shallow=False) for copy in copies(path)):  # another process has opened it before
        return
    name = path.name + SET_ASIDE
    copy = next(each for number in range(1, 10_000) if not (each := log.with_name(f"{name}-{number}")).exists())
    shutil.copy2(log, copy)  # with its mode
    LOG.warning("%s was not whole when it was opened; %s is a copy of it; `mica doctor` says more", log, copy)


class _Lost(NamedTuple):
    """The transactions in the log that SQLite ignored: their number, and the header of their first frame."""

    transactions: int = 0
    first: bytes = b""


def _lost(connection: apsw.Connection, log: Path) -> _Lost:
    try:
        if log.stat().st_size <= HEADER_BYTES + FRAME_HEADER_BYTES:
            return _Lost()
        (row,) = connection.execute("PRAGMA wal_checkpoint(NOOP)").fetchall()
        return _after(log, max(0, int(str(row[1]))))
    except FileNotFoundError:  # emptied and removed by another process
        return _Lost()


def _after(log: Path, taken: int) -> _Lost:
    """Count the transactions in the log after its first `taken` frames, which are those that SQLite has read."""
    count, first = 0, b""
    with log.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        raw = opened.read(HEADER_BYTES)
        header = _HEADER.unpack(raw)
        is_whole = _checksum(raw[:24], big=header[0] == _BIG_ENDIAN) == header[6:]
        page_bytes = header[2] if is_whole else 4_096
        while True:
            start = HEADER_BYTES + taken * (FRAME_HEADER_BYTES + page_bytes)
            opened.seek(start)
            raw = opened.read(FRAME_HEADER_BYTES)
            if size < start + FRAME_HEADER_BYTES + page_bytes:  # the rest is of a frame that a kill has cut
                return _Lost(count, first)
            _, pages, *salts = _FRAME.unpack(raw)[:4]
            # Frames of an earlier log, which the file still has, differ in both salts; a flipped bit changes only one.
            if is_whole and salts[0] != header[4] and salts[1] != header[5]:
                return _Lost(count, first)
            count += bool(pages)
            first = first or raw
            taken += 1


def _checksum(raw: bytes, *, big: bool) -> tuple[int, int]:
    """Compute the checksum of the log's header, as the file format of SQLite defines it."""
    first = second = 0
    numbers = struct.unpack(f"{'>' if big else '<'}{len(raw) // 4}I", raw)
    for one, other in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
