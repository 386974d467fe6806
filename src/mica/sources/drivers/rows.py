"""Converts the rows that a source returns to fragments, with templates such as `{verdict}: {reasoning}`.

A row has named columns. A template is a text with placeholders in braces, which are mostly names of columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec

from mica.errors import InvalidInput
from mica.sources.protocol import KEY_CHARACTERS_MAX, PHI_INV, Concept, Fragment, Value, is_value

TEXT_CHARACTERS_MAX = 2_000  # of one text; about 500 tokens, ten times what a fragment should cost
REFERENCES_MAX = 8  # in a chain of `$ref`; a longer chain is probably circular
UNSTATED_CONFIDENCE = PHI_INV  # of a row without a confidence: the highest confidence shown for a single source
SECONDS_MAX = 100_000_000_000  # the year 5138; a larger number is a time in milliseconds
ROWS_TOLD_MAX = 3  # unusable rows that are reported individually; the others are only counted

NUMBER_DIGITS_MAX = 300
LONG_NUMBER = (
    f"a value is a number of more than {NUMBER_DIGITS_MAX} digits, which cannot be compared; convert it to text"
)

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SPECIAL = re.compile(r"concept$|@name$|.*\.", re.DOTALL)  # matches a placeholder that is not just the name of a column


class MissingColumn:
    """The type of `NOTHING`, which is used instead of a value if a row does not have a column."""


NOTHING = MissingColumn()
_PLAIN = frozenset([str, int, float, bool, type(None), datetime, Decimal, MissingColumn])


class Unusable(ValueError):
    """Raised if a row cannot be converted to a fragment. The message is the reason."""


class Template:
    """A text with placeholders in braces, to be filled with values of a row.

    Filling gives a text, except if the whole template is one placeholder: it then gives the value itself, with its
    type.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError for a brace without its counterpart, and for an empty placeholder."""
        self.text = text
        self._parts: list[tuple[bool, str]] = []  # whether the part is a placeholder, and its name or text
        at = 0
        for found in _PLACE.finditer(text):
            self._add(text[at : found.start()])
            at = found.end()
            if found[0] in {"{{", "}}"}:
                self._add(found[0][0])
            elif found[1] is None:
                raise ValueError(
                    f"{found[0]!r} at character {found.start() + 1} is unpaired; write it twice for a literal brace"
                )
            elif not found[1].strip():
                raise ValueError(f"{{}} at character {found.start() + 1} names nothing; write {{column}}")
            else:
                self._parts.append((True, found[1].strip()))
        self._add(text[at:])
        is_column = len(self._parts) == 1 and self._parts[0][0] and not _SPECIAL.match(self._parts[0][1])
        self.column = self._parts[0][1] if is_column else None  # a column's name, if the template is only this column
        self.fixed = None if self.names else "".join(part for _, part in self._parts)  # the text without placeholders

    def _add(self, text: str) -> None:
        if text:
            self._parts.append((False, text))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the placeholders, in the order of the text."""
        return tuple(name for is_place, name in self._parts if is_place)

    def filled(self, row: SourceRecord) -> object:
        """Return the template filled with values of a row; NOTHING if the row lacks a column in the template."""
        if len(self._parts) == 1 and self._parts[0][0]:
            return row.look(self._parts[0][1])
        texts = []
        for is_place, part in self._parts:
            found = row.look(part) if is_place else part
            if found is NOTHING:
                return NOTHING
            texts.append(as_text(found))
        return "".join(texts)


class SourceRecord(NamedTuple):
    """One row of a source, with everything that the placeholders of a template can refer to."""

    columns: object  # a mapping, or an object with attributes
    concept: Concept
    name: str = ""  # the value of `{@name}`: the row's key in an object, or its number in a list
    path: str = ""  # where a person finds the row in the source
    root: object = None  # the document that the row is from; `$ref` points into it

    def look(self, path: str) -> object:
        """Return the value of the placeholder `path`; NOTHING if the row has no such value.

        `path` is one of: `concept`; a part of it, such as `concept.id`; `@name`; the name of a column; a path into a
        column, such as `state.fatigue` or `tags.0`.
        """
        if path == "concept":
            return str(self.concept)
        if path in {"concept.domain", "concept.type", "concept.id"}:
            return getattr(self.concept, path.partition(".")[2])
        if path == "@name":
            return self.name
        here = self._resolve(self.columns)
        if isinstance(here, Mapping) and path in here:
            return self._resolve(here[path])
        for step in path.split("."):
            here = self._resolve(_step(here, step))
            if here is NOTHING:
                return NOTHING
        return here

    def _resolve(self, value: object) -> object:
        """Return the value that a `$ref` refers to in the same document. Any other `value` is returned unchanged.

        Raises Unusable if references form a circle or refer to another document.
        """
        if type(value) in _PLAIN or (type(value) is dict and "$ref" not in value):
            return value  # nearly always; testing for a Mapping is slow
        seen: list[str] = []
        while isinstance(value, Mapping) and isinstance(pointer := value.get("$ref"), str):
            seen.append(pointer)
            if pointer in seen[:-1] or len(seen) > REFERENCES_MAX:
                raise Unusable(f"references go in a circle: {' → '.join(seen)}")
            if not pointer.startswith("#"):
                raise Unusable(f"$ref {pointer!r} leads to another document, which is not followed")
            value = self.root
            for step in pointer[1:].split("/")[1:]:
                value = _step(value, step.replace("~1", "/").replace("~0", "~"))
        return value


def _step(here: object, step: str) -> object:
    if isinstance(here, Mapping):
        return here.get(step, NOTHING)
    if isinstance(here, Sequence) and not isinstance(here, str | bytes):
        return here[int(step)] if step.isascii() and step.isdigit() and int(step) < len(here) else NOTHING
    if here is None or here is NOTHING or step.startswith("_") or isinstance(here, str | bytes | int | float):
        return NOTHING
    return getattr(here, step, NOTHING)


Templated = Annotated[str, msgspec.Meta(description='a text with columns in braces, as in "{verdict}: {reasoning}"')]
Moment = Annotated[str, msgspec.Meta(description='a column with a time, as in "{created_at}", or a time as text')]


class FragmentTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template for each field of a fragment. By default, a field is filled from the column of the same name."""

    key: Templated = "{key}"
    text: Templated = "{text}"
    value: Annotated[
        str | int | float | bool,
        msgspec.Meta(description='what is compared: a column, as in "{verdict}", or a constant'),
    ] = "{value}"
    confidence: Annotated[
        str | int | float, msgspec.Meta(description='a column, as in "{confidence}", or a number from 0 to 1')
    ] = "{confidence}"
    at: Moment = "{at}"
    valid_from: Moment = "{valid_from}"
    valid_until: Moment = "{valid_until}"
    locator: Templated = "{locator}"
    is_estimate: Annotated[bool, msgspec.Meta(description="true if its numbers may be averaged with others")] = False


class MappedRows(NamedTuple):
    """The fragments made from rows. `missing` has messages about rows that could not be used or were left out."""

    fragments: tuple[Fragment, ...]
    missing: tuple[str, ...]


class RowMapping:
    """Converts the rows of one source to fragments."""

    def __init__(self, source: str, table: FragmentTable) -> None:
        """`source` is the name of the source, and `table` has the templates.

        Raises ValueError for an invalid template.
        """
        self._source = source
        self._is_estimate = table.is_estimate
        self._templates = {name: _template(name, getattr(table, name)) for name in _MAPPED}
        self.given = {name for name in _MAPPED if getattr(table, name) != _DEFAULTS[name]}
        self._columns = {
            name: each.column for name, each in self._templates.items() if isinstance(each, Template) and each.column
        }

    def fragments(
        self, rows: Iterable[SourceRecord], *, now: datetime, at: datetime | None = None, where: str = ""
    ) -> MappedRows:
        """Return the fragments made from rows, in order. `missing` of the result reports the rows that cannot be used.

        A row without a time gets the time `at`, or `now` if `at` is None. A row without a locator gets one made of
        `where` and the row's path, name or number.
        """
        mapped: list[Fragment] = []
        unusable: list[str] = []
        for number, row in enumerate(rows, start=1):
            place = f"{where}{row.path or row.name or number}"
            try:
                mapped.append(self._fragment(row, now=now, at=at, place=place))
            except (Unusable, InvalidInput) as error:
                unusable.append(f"{place}: {error}")
        more = f", and {len(unusable) - ROWS_TOLD_MAX} more" if len(unusable) > ROWS_TOLD_MAX else ""
        return MappedRows(tuple(mapped), (f"{'; '.join(unusable[:ROWS_TOLD_MAX])}{more}",) if unusable else ())

    def _fragment(self, row: SourceRecord, *, now: datetime, at: datetime | None, place: str) -> Fragment:
        found = self._filled("key", row)
        key = "" if found is NOTHING else as_text(found).strip()
        if not key:
            raise Unusable(f'it has no key{_columns(row)}; say which column is the key: key = "{{column}}"')
        value = as_value(self._filled("value", row))
        found = self._filled("text", row)
        if found is NOTHING or found is None:
            text = f"{key}: {as_text(value)}" if value is not None else ""
        else:
            text = as_text(found)
        if not text or text.isspace():
            raise Unusable(f'it has no text{_columns(row)}; say which column is the text: text = "{{column}}"')
        locator = self._filled("locator", row)
        return Fragment(
            key=_cut(key, KEY_CHARACTERS_MAX),
            text=_cut(text, TEXT_CHARACTERS_MAX),
            value=value,
            is_estimate=self._is_estimate and isinstance(value, int | float) and not isinstance(value, bool),
            confidence=self._confidence(row),
            at=self._time("at", row) or at or now,
            valid_from=self._time("valid_from", row),
            valid_until=self._time("valid_until", row),
            source=self._source,
            locator=place if locator is NOTHING or locator is None else as_text(locator),
        )

    def _filled(self, name: str, row: SourceRecord) -> object:
        """Return the value for the fragment's field `name`: the template of this field, filled from a row.

        The row may lack a column that the template needs. If the template is the default, NOTHING is then returned. If
        the settings give another template, Unusable is raised.
        """
        columns = row.columns
        if (column := self._columns.get(name)) is not None and type(columns) is dict:
            found = columns.get(column, NOTHING)
            if type(found) in _PLAIN and "$ref" not in columns and (found is not NOTHING or name not in self.given):
                return found  # nearly always
        template = self._templates[name]
        if not isinstance(template, Template):
            return template
        found = template.filled(row)
        if found is NOTHING and name in self.given:
            lacking = next((each for each in template.names if row.look(each) is NOTHING), template.text)
            raise Unusable(f"it has no {lacking!r} for {name} = {template.text!r}{_columns(row)}")
        return found

    def _confidence(self, row: SourceRecord) -> float:
        found = self._filled("confidence", row)
        if found is NOTHING or found is None:
            return UNSTATED_CONFIDENCE
        if type(found) is float and 0 <= found <= 1:
            return found
        try:
            number = float(found)  # type: ignore[arg-type]  # raises for anything but a number
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= 1:
            raise Unusable(f"its confidence is {found!r}; it must be a number from 0 to 1")
        return number

    def _time(self, name: str, row: SourceRecord) -> datetime | None:
        found = self._filled(name, row)
        if type(found) is datetime and found.tzinfo is UTC:
            return found
        return None if found is NOTHING or found is None else as_time(found, name)


_MAPPED = ("key", "text", "value", "confidence", "at", "valid_from", "valid_until", "locator")
_DEFAULTS = {name: f"{{{name}}}" for name in _MAPPED}


def _template(name: str, template: object) -> object:
    if not isinstance(template, str):
        return template
    try:
        return Template(template)
    except ValueError as error:
        raise ValueError(f"{name} = {template!r}: {error}") from error


def _columns(row: SourceRecord) -> str:
    if isinstance(row.columns, Mapping):
        return f" (it has {', '.join(map(str, list(row.columns)[:12])) or 'nothing'})"
    return ""


def as_text(value: object) -> str:
    """Convert a value to a text to show; None and NOTHING become an empty text.

    Raises Unusable for bytes, and for values that cannot be written as text.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None or value is NOTHING:
        return ""
    if type(value) is float:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping | list | tuple):
        try:
            return msgspec.json.encode(value, order="deterministic", enc_hook=str).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(f"a value cannot be shown: {error}") from error
    if isinstance(value, bytes | bytearray | memoryview):
        raise Unusable("a value is bytes; let the query convert it to text")
    if isinstance(value, int) and not is_value(value):
        raise Unusable(LONG_NUMBER)
    return as_text(str(value))


def as_value(value: object) -> Value:
    """Convert a value to one that a fragment can have and that can be compared: a text, number, boolean or None.

    Values of other types become texts, and NOTHING becomes None. Raises Unusable for bytes, and for a number that is
    infinite, not a number (NaN) or too long.
    """
    if type(value) is str:
        return _cut(as_text(value), TEXT_CHARACTERS_MAX)
    if value is NOTHING or value is None or isinstance(value, bool):
        return None if value is NOTHING else value  # type: ignore[return-value]  # the rest of the union
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise Unusable(f"its value is {value}, which cannot be compared; give a finite number")
        if value.adjusted() > NUMBER_DIGITS_MAX:
            raise Unusable(LONG_NUMBER)
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int) and not is_value(value):
        raise Unusable(LONG_NUMBER)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unusable(f"its value is {value}, which cannot be compared; give a finite number")
        return value
    return value if isinstance(value, int) else _cut(as_text(value), TEXT_CHARACTERS_MAX)


def as_time(value: object, name: str) -> datetime:
    """Convert a value to a time in UTC. A time without a zone counts as UTC.

    The value may be an ISO 8601 text, a datetime, a date, or a number: the seconds or milliseconds since 1970. Raises
    Unusable if it is not a time; the message calls the value `name`.
    """
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            seconds = float(value)
            return datetime.fromtimestamp(seconds / 1_000 if abs(seconds) > SECONDS_MAX else seconds, UTC)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise Unusable(f"{name} is {value!r}, which is not a time; use ISO 8601, or seconds since 1970")


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
