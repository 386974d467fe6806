"""Which space an address names, as far as it was opened from this machine before."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from mica.model.event import new_writer


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A space that was opened from this machine. No password is in it."""

    address: str
    space: str


def recall(home: Path, address: object) -> str | None:
    """The id of the space at this address, if it was opened from this machine before."""
    try:
        known = msgspec.json.decode(_file(home, address).read_bytes(), type=_Known)
    except (OSError, msgspec.DecodeError):
        return None
    return known.space if known.address == str(address) else None


def remember_space(home: Path, address: object, space: str) -> None:
    """Keep in mind what `recall` is asked for. Where that cannot be written, opening needs the server."""
    if recall(home, address) == space:
        return
    file = _file(home, address)
    draft = file.with_name(f"{file.name}.{new_writer()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(_Known(address=str(address), space=space)))
        draft.replace(file)


def _file(home: Path, address: object) -> Path:
    return home / "addresses" / f"{blake2b(str(address).encode(), digest_size=16).hexdigest()}.json"
