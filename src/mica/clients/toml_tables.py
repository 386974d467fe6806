"""Adds a table to the end of a TOML settings file and removes it again; no other byte changes. No I/O."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence

import msgspec

from mica.errors import InvalidInput

MISSING = msgspec.UNSET  # in place of a table that does not exist

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def table_at(text: str, keys: Sequence[str]) -> object:
    """Return the value under nested keys, or MISSING. Raises InvalidInput if the text is not TOML."""
    found: object = _parse(text)
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return MISSING
        found = found[key]
    return found


def with_table(text: str, keys: Sequence[str], table: Mapping[str, str | bool]) -> str:
    """Return `text` with a table added at the end. Raises InvalidInput if `keys` already has another value."""
    _parse(text)
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [_header(keys), *(f"{_key(key)} = {_encode(value)}" for key, value in table.items())]
    gap = "" if not text.strip() else end if text.endswith("\n") else end + end
    changed = text + gap + end.join(lines) + end
    if table_at(changed, keys) != dict(table):
        raise InvalidInput(f"{_header(keys)} cannot be added: another value has its name")
    return changed


def without_table(text: str, keys: Sequence[str]) -> str:
    """Return `text` without the table of this name and the empty line before it.

    Raises InvalidInput if the text has no header in the form that `with_table` writes.
    """
    lines = text.splitlines(keepends=True)
    begin = next((number for number, line in enumerate(lines) if line.strip() == _header(keys)), None)
    if begin is None:
        raise InvalidInput(f"{_header(keys)} is written in another form; remove it by hand")
    end = next((at for at in range(begin + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
    while end > begin + 1 and not lines[end - 1].partition("#")[0].strip():
        end -= 1  # comments and empty lines after the last key belong to the next table
    if begin > 0 and not lines[begin - 1].strip():
        begin -= 1
    return "".join(lines[:begin] + lines[end:])


def _header(keys: Sequence[str]) -> str:
    return f"[{'.'.join(map(_key, keys))}]"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _encode(key)


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"not TOML: {error}") from error
