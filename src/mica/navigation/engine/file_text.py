"""What stands in a file of a working tree, and nothing outside of it. Hooks load it, so it imports next to nothing."""

from __future__ import annotations

import posix

SIZE_BYTES_MAX = 1_000_000  # of a file whose words are read; larger ones are data
READ_BYTES_MAX = 200_000  # of those, from the beginning: what a file is about stands there
SECRET_NAMES = frozenset(".env .netrc .pgpass .npmrc .pypirc id_rsa id_ed25519 credentials".split())

_FOLDER, _REGULAR, _KIND = 0o040000, 0o100000, 0o170000


def is_secret(path: str) -> bool:
    """Whether a file is one that people keep keys in; its name may be offered, its text is never read."""
    name = path.rpartition("/")[2]
    return name in SECRET_NAMES or name.startswith(".env.")


def text_of(root: str, path: str) -> str | None:
    """What stands in a file, from its beginning; None when it is no text, too large, gone, secret or outside.

    No link is followed, neither of the file nor of a folder below the root.
    """
    if is_secret(path):
        return None
    try:
        place = root
        *folders, name = path.split("/")
        for part in folders:
            place = f"{place}/{part}"
            if part in ("", ".", "..") or posix.lstat(place).st_mode & _KIND != _FOLDER:
                return None
        place = f"{place}/{name}"
        if name in ("", ".", "..") or posix.lstat(place).st_mode & _KIND != _REGULAR:
            return None
        file = posix.open(place, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if posix.fstat(file).st_size > SIZE_BYTES_MAX:
            return None
        read = b""
        while len(read) < READ_BYTES_MAX and (more := posix.read(file, READ_BYTES_MAX - len(read))):
            read += more
    except OSError:
        return None
    finally:
        posix.close(file)
    return None if b"\0" in read[:8_000] else read.decode("utf-8", "replace")
