"""Lines of JSON from foreign programs: streamed, decoded into small structs, never trusted.

A transcript is written by a program that may be running, crashing or newer than mica. What can be read is
read; what cannot is counted in a tally, with the reason, and costs nothing but itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")

LINE_BYTES_MAX = 512 * 2**20  # ten times the longest line seen in the wild; a longer one is not a record
COMPLAINTS_MAX = 100  # enough to see what is wrong; the rest is only counted
KINDS_MAX = 100  # record types of a foreign program; a file with more is not a transcript


class Tally(msgspec.Struct):
    """What an import met besides events."""

    lines: int = 0
    broken: int = 0  # lines without a readable record, and events that cannot be stored
    complaints: list[tuple[int, str]] = []  # line number and reason of the first of them
    unknown: dict[str, int] = {}  # record types nobody taught us, and how often
    misfits: int = 0  # fields of an unexpected type, left out of their record
    torn: int = 0  # last lines that were still being written
    unsettled: int = 0  # last turns that may go on, so that their end is not told yet

    def complain(self, number: int, reason: str) -> None:
        self.broken += 1
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append((number, reason[:200]))

    def add(self, other: Tally, *, name: str) -> None:
        """Take in what was met in the file of this name."""
        self.lines += other.lines
        self.broken += other.broken
        room = COMPLAINTS_MAX - len(self.complaints)
        self.complaints += [(number, f"{name}: {reason}") for number, reason in other.complaints[:room]]
        for kind, count in other.unknown.items():
            self.unknown[kind] = self.unknown.get(kind, 0) + count
        self.misfits += other.misfits
        self.torn += other.torn
        self.unsettled += other.unsettled

    def meet(self, kind: str) -> None:
        name = kind[:60] if len(self.unknown) < KINDS_MAX or kind[:60] in self.unknown else "…"
        self.unknown[name] = self.unknown.get(name, 0) + 1


class Line(msgspec.Struct, frozen=True):
    """One line of a file, with its line end."""

    number: int
    end: int  # the offset after it
    text: bytes
    whole: bool  # it has a line end
    cut: bool  # it is longer than allowed, and the text is only its beginning


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file, one in memory at a time. Raises OSError."""
    with path.open("rb", buffering=2**20) as file:
        yield from lines_of(file)


def lines_of(file: IO[bytes]) -> Iterator[Line]:
    """The same of an open file, from where it is."""
    number = end = 0
    while text := file.readline(LINE_BYTES_MAX):
        number += 1
        size, last = len(text), text
        while not last.endswith(b"\n") and (more := file.readline(LINE_BYTES_MAX)):
            size, last = size + len(more), more
        end += size
        yield Line(number, end, text, last.endswith(b"\n"), size > len(text))


class Shape(Generic[T]):
    """Reads JSON into one type. The fast way is msgspec; what it refuses is mended field by field."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._info = inspect.type_info(kind)

    def read(self, encoded: bytes | msgspec.Raw, tally: Tally) -> T:
        """The value; fields that do not fit take their default. Raises ValueError if nothing can be read."""
        try:
            return self._decoder.decode(encoded)
        except (ValueError, RecursionError):
            return self._mend(bytes(encoded), tally)

    def fit(self, value: object, tally: Tally) -> T | None:
        """The same for a JSON value that somebody decoded; None if it is of another kind."""
        try:
            fitted = _fit_one(_clean(value), self._info, tally)
        except RecursionError:
            return None
        return None if fitted is _MISFIT else fitted  # type: ignore[return-value]  # as in _mend

    def _mend(self, encoded: bytes, tally: Tally) -> T:
        try:
            text = encoded.strip(b"\0 \t\r\n").decode("utf-8", "replace")
            value = _fit_one(_clean(json.loads(text, strict=False)), self._info, tally)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if value is _MISFIT:
            raise ValueError(f"expected {type(self._info).__name__.removesuffix('Type').lower()}, got {text[:20]!r}")
        return value  # type: ignore[return-value]  # _fit built it from the type's own description


def value_of(encoded: bytes | msgspec.Raw) -> object:
    """Any JSON value, mended where that helps; None where there is none."""
    try:
        return msgspec.json.decode(encoded)
    except (ValueError, RecursionError):
        text = bytes(encoded).strip(b"\0 \t\r\n").decode("utf-8", "replace")
    try:
        return _clean(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return None


_MISFIT = object()


def _fit(value: object, info: inspect.Type, tally: Tally) -> object:
    """The part of a value that fits a type, or _MISFIT."""
    fitted = _fit_one(value, info, tally)
    if fitted is _MISFIT:
        tally.misfits += 1
    return fitted


def _fit_one(value: object, info: inspect.Type, tally: Tally) -> object:
    match info:
        case inspect.UnionType(types=types):
            fits = (_fit_one(value, member, tally) for member in types)
            return next((fitted for fitted in fits if fitted is not _MISFIT), _MISFIT)
        case inspect.StructType(cls=cls, fields=fields) if isinstance(value, dict):
            given = {
                field.name: _fit(value[field.encode_name], field.type, tally)
                for field in fields
                if field.encode_name in value
            }
            return cls(**{name: fitted for name, fitted in given.items() if fitted is not _MISFIT})
        case inspect.ListType(item_type=item_type) if isinstance(value, list):
            return [fitted for item in value if (fitted := _fit(item, item_type, tally)) is not _MISFIT]
        case inspect.DictType(value_type=value_type) if isinstance(value, dict):
            pairs = ((key, _fit(child, value_type, tally)) for key, child in value.items())
            return {key: fitted for key, fitted in pairs if fitted is not _MISFIT}
        case inspect.RawType():
            return msgspec.Raw(msgspec.json.encode(value))
        case inspect.StrType() if isinstance(value, str):
            return value
        case inspect.BoolType() if isinstance(value, bool):
            return value
        case inspect.IntType(ge=low, le=high) if isinstance(value, int) and not isinstance(value, bool):
            return value if (low is None or value >= low) and (high is None or value <= high) else _MISFIT
        case inspect.FloatType() if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case inspect.DateTimeType() if isinstance(value, str):
            return _moment(value)
        case inspect.NoneType() if value is None:
            return None
        case _:
            return _MISFIT


def _moment(value: str) -> object:
    try:
        return msgspec.convert(value, datetime)
    except ValueError:
        return _MISFIT


def _clean(value: object) -> object:
    """The same value without lone surrogates, which no store can hold; halves that meet become one."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_clean(key): _clean(child) for key, child in value.items()}
        case list():
            return [_clean(child) for child in value]
        case _:
            return value
