"""Writes frames into a segment file with `pwrite`, for file systems where writing through a mapping is not safe.

A file system that writes each change to a new place, such as btrfs, may run out of space at any write. If the file is
mapped, a signal then kills the process; `pwrite` raises an error instead. On such a file system, `emit` writes to a
`HeapTarget` and a `SpineTarget` instead of the mapped memory, which takes about a microsecond longer.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from mica.disk import write_at
from mica.errors import StoreFull, StoreUnavailable
from mica.events.segment_header import HEADER_BYTES


class SegmentFile:
    """A segment file that `emit` writes. It stays open as long as an `emit` may use it, also while the journal closes.

    Otherwise a late write might reach another file that got the same descriptor.
    """

    _descriptor = -1

    def __init__(self, descriptor: int, path: Path, size_bytes: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._path = path
        self.size_bytes = size_bytes

    def write(self, content: bytes | bytearray, at: int) -> None:
        """Write at an offset. Raises StoreFull if the disk is full, and StoreUnavailable if it fails otherwise."""
        try:
            write_at(self._descriptor, content, at)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                reason = f"no room for an event in {self._path}: {error.strerror}; free some space"
                raise StoreFull(reason) from error
            reason = f"cannot write in {self._path}: {error.strerror}; the event was not recorded"
            raise StoreUnavailable(reason) from error

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class HeapTarget:
    """The heap of a segment file, written as if it were mapped: `target[start:end] = frame`."""

    def __init__(self, file: SegmentFile) -> None:
        self._file = file

    def __setitem__(self, place: slice, content: bytes | bytearray) -> None:
        if place.stop > self._file.size_bytes:
            raise IndexError("the frame does not fit into this segment")
        self._file.write(content, place.start)


class SpineTarget:
    """The spine of a segment file, written as if it were mapped: `target[index] = word`."""

    def __init__(self, file: SegmentFile, spine: memoryview[int]) -> None:
        self._file = file
        self._spine = spine

    def __getitem__(self, index: int) -> int:
        return self._spine[index]

    def __setitem__(self, index: int, word: int) -> None:
        if index >= len(self._spine):
            raise IndexError("the segment has no more frames")
        self._file.write(word.to_bytes(8, sys.byteorder), HEADER_BYTES + 8 * index)
