"""Decodes untrusted JSON records of other programs into small structs.

A transcript is written by a program that may be running, crashing or newer than mica. So a field of an unexpected type
is left out, and a record that cannot be read is counted in a tally with the reason. Other records are not affected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Generic, Protocol, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]

COMPLAINTS_MAX = 100  # enough to see what is wrong; further ones are only counted
KINDS_MAX = 100  # unknown record types that are counted by name; a file with more is not a transcript


class ImportTally(msgspec.Struct):
    """Counts of an import: lines read, and everything that was skipped or could not be read."""

    lines: int = 0
    broken: int = 0  # lines without a readable record, and events that cannot be stored
    complaints: list[tuple[int, str]] = []  # line numbers and reasons of the first broken lines
    unknown: dict[str, int] = {}  # unknown record types, and how often they occurred
    misfits: int = 0  # fields of an unexpected type, left out
    torn: int = 0  # last lines that were still being written
    unsettled: int = 0  # last turns that may continue, so that their end is not recorded yet

    def complain(self, number: int, reason: str) -> None:
        """Count a record that could not be read or stored. `number` is its line number, shown with the reason."""
        self.broken += 1
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append((number, reason[:200]))

    def add(self, other: ImportTally, *, name: str) -> None:
        """Add the counts of another tally. Its complaints get the file name `name` as a prefix."""
        self.lines += other.lines
        self.broken += other.broken
        room = COMPLAINTS_MAX - len(self.complaints)
        self.complaints += [(number, f"{name}: {reason}") for number, reason in other.complaints[:room]]
        for kind, count in other.unknown.items():
            self.unknown[kind] = self.unknown.get(kind, 0) + count
        self.misfits += other.misfits
        self.torn += other.torn
        self.unsettled += other.unsettled

    def count_unknown(self, kind: str) -> None:
        """Count a record of an unknown type."""
        name = kind[:60] if len(self.unknown) < KINDS_MAX or kind[:60] in self.unknown else "…"
        self.unknown[name] = self.unknown.get(name, 0) + 1


class TextPart(msgspec.Struct, gc=False):
    """A part of a message's content, in the form that most clients use."""

    type: str | None = None
    text: str | None = None


class _HasText(Protocol):
    @property
    def text(self) -> str | None: ...


def text_of(content: str | Sequence[_HasText] | None) -> str:
    """Join the texts of a message's content with line ends."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if part.text)


class Shape(Generic[T]):
    """A lenient JSON decoder for one type. If msgspec cannot decode a value, its fields are decoded one by one."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self._kind)  # created on first use: most processes read at most one client

    @cached_property
    def _info(self) -> inspect.Type:
        return inspect.type_info(self._kind)

    def read(self, encoded: bytes | msgspec.Raw, tally: ImportTally) -> T:
        """Decode a value. Fields of an unexpected type get their default and are counted in `tally`.

        Raises ValueError if the value is not JSON, or not of the expected type itself.
        """
        try:
            return self._decoder.decode(encoded)
        except (ValueError, RecursionError):
            return self._fit_encoded(bytes(encoded), tally)

    def fit(self, value: object, tally: ImportTally) -> T | None:
        """Convert a value decoded from JSON, with the same tolerance as `read`; None if it has another type."""
        try:
            fitted = _fit_one(_clean(value), self._info, tally)
        except RecursionError:
            return None
        return None if fitted is _MISFIT else fitted  # type: ignore[return-value]  # as in _fit_encoded

    def _fit_encoded(self, encoded: bytes, tally: ImportTally) -> T:
        try:
            text = encoded.strip(b"\0 \t\r\n").decode("utf-8", "replace")
            value = _fit_one(_clean(json.loads(text, strict=False)), self._info, tally)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if value is _MISFIT:
            raise ValueError(f"expected {type(self._info).__name__.removesuffix('Type').lower()}, got {text[:20]!r}")
        return value  # type: ignore[return-value]  # _fit built it from the type's own description


def value_of(encoded: bytes | msgspec.Raw) -> object:
    """Decode any JSON value. Invalid characters are replaced. None if it is not JSON."""
    try:
        return msgspec.json.decode(encoded)
    except (ValueError, RecursionError):
        text = bytes(encoded).strip(b"\0 \t\r\n").decode("utf-8", "replace")
    try:
        return _clean(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return None


_MISFIT = object()


def _fit(value: object, info: inspect.Type, tally: ImportTally) -> object:
    """Convert a value to the type `info`. If it has another type, count it as a misfit and return _MISFIT."""
    fitted = _fit_one(value, info, tally)
    if fitted is _MISFIT:
        tally.misfits += 1
    return fitted


def _fit_one(value: object, info: inspect.Type, tally: ImportTally) -> object:
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
    """Replace lone surrogates in all texts, because stores refuse them. A pair of surrogates becomes one character."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_clean(key): _clean(child) for key, child in value.items()}
        case list():
            return [_clean(child) for child in value]
        case _:
            return value
