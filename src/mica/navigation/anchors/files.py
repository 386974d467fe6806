"""Files of a project as text: read within limits, and never from outside it."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec

from mica.clients.line_ranges import relative
from mica.navigation.engine.file_text import is_secret

FILE_BYTES_MAX = 16_000_000  # nobody reads more by range, and all of it is hashed
BINARY_BYTES = 8_000  # git, too, looks for a zero byte in so many
HOLDS_KEYS = "it may hold keys"


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file, under the path it has in the project."""

    path: str
    text: str
    replaced: int = 0  # bytes that were no UTF-8 and are shown as �


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file was not read."""

    path: str
    reason: str
    gone: bool = False


def read(root: Path, path: str) -> Contents | Unread:
    """A file of the project. What lies outside, holds keys, is binary or too large is refused with the reason."""
    path = relative(path, root=str(root), cwd=str(root))
    if path.startswith(("/", "~", "../")) or path in ("..", ".") or path[1:3] in (":/", ":"):
        return Unread(path=path, reason="it lies outside the project")
    if is_secret(path):
        return Unread(path=path, reason=HOLDS_KEYS)
    try:
        home = root.resolve()
        full = (root / path).resolve(strict=True)
        if not full.is_relative_to(home):
            return Unread(path=path, reason="a symlink leads out of the project")
        if is_secret(full.relative_to(home).as_posix()):
            return Unread(path=path, reason=HOLDS_KEYS)
        found = full.stat()
        if not stat.S_ISREG(found.st_mode):
            return Unread(path=path, reason="it is no file")
        if found.st_size > FILE_BYTES_MAX:
            return Unread(path=path, reason=f"it has more than {FILE_BYTES_MAX // 1_000_000} MB")
        content = full.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Unread(path=path, reason="there is no such file", gone=True)
    except ValueError:  # a zero byte in the path
        return Unread(path=path, reason="there can be no such file")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symlinks, before Python 3.13
        return Unread(path=path, reason=f"it cannot be read ({getattr(error, 'strerror', None) or error})")
    return decoded(path, content)


def decoded(path: str, content: bytes) -> Contents | Unread:
    """Bytes as text: UTF-8, or UTF-16 with its mark; what is neither is replaced and counted."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
        return Contents(path=path, text=text, replaced=text.count("\ufffd"))
    if b"\0" in content[:BINARY_BYTES]:
        return Unread(path=path, reason="it is binary")
    text = content.decode("utf-8-sig", "replace")
    return Contents(path=path, text=text, replaced=text.count("\ufffd") - content.count("\ufffd".encode()))
