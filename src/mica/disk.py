"""Writes bytes into files, and syncs files and folders so that they survive power loss, on Linux and macOS."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

# macOS: fsync only hands the bytes to the drive, whose cache power loss empties. Python names this call only there.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULL_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)  # from file systems that have only fsync, such as SMB
# A rewrite needs no new space here. Overlays have the numbers of the file system below them: see below.
_IN_PLACE = ("ext4", "overlay", "tmpfs", "xfs")


def sync(descriptor: int) -> None:
    """Return after the content of a file, and its size, are on disk. Raises OSError."""
    if not _sync_fully(descriptor):
        getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync


def sync_folder(folder: Path) -> None:
    """Return after the names of all files in a folder are on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not _sync_fully(descriptor):
            os.fsync(descriptor)  # fdatasync may leave out names
    finally:
        os.close(descriptor)


def _sync_fully(descriptor: int) -> bool:
    """Sync a file, and make the drive empty its cache. Returns False if the system has no call for that."""
    if _FULL_SYNC is None:
        return False
    try:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        return False
    return True


def write_at(descriptor: int, content: bytes | bytearray | memoryview, at: int) -> None:
    """Write all of `content` at an offset of a file. Raises OSError, for example if the disk is full."""
    written = os.pwrite(descriptor, content, at)
    while written < len(content):  # the disk is nearly full: the next call writes more or raises
        written += os.pwrite(descriptor, memoryview(content)[written:], at + written)


def has_reserved_space(descriptor: int) -> bool:
    """True if the file system of a file reserves space for all later writes to the same bytes (`posix_fallocate`).

    Only then may a file be written through a mapping: otherwise a full disk kills the process with SIGBUS. Btrfs, ZFS
    and APFS write each change to a new place on the disk, so they reserve nothing. An unknown file system is treated
    like these.
    """
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        # An overlay returns the numbers of the file system that holds its files, and btrfs does not count inodes.
        return _file_system(descriptor) in _IN_PLACE and os.fstatvfs(descriptor).f_files > 0
    except OSError:
        return False


def _file_system(descriptor: int) -> str:
    """The name of the file system of a file, such as "ext4"; empty if the system does not report it. Raises OSError."""
    described = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").split()
    mount = described[described.index("mnt_id:") + 1] if "mnt_id:" in described else ""
    with Path("/proc/self/mountinfo").open("rb") as mounts:
        for line in mounts:
            if line.split(b" ", 1)[0] == mount.encode():
                return line.partition(b" - ")[2].split(b" ", 1)[0].decode("ascii", "replace")
    return ""
