"""Rows become fragments: which column is what, as texts with places such as `{verdict}: {reasoning}`."""

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

TEXT_CHARACTERS_MAX = 2_000  # about 500 tokens, ten times what a fragment should cost; what is longer is cut
REFERENCES_MAX = 8  # from one `$ref` to the next; more are a circle, or no document for people
UNSTATED_CONFIDENCE = PHI_INV  # where a source states none: as much as a claim that nobody else makes may show
SECONDS_MAX = 100_000_000_000  # above it a number is taken for milliseconds: the year 5138
ROWS_TOLD_MAX = 3  # of those that cannot be used

LONG_NUMBER = "a value is a number of more than 300 digits, which no other can be compared with; make a text of it"

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SPECIAL = re.compile(r"concept$|@name$|.*\.", re.DOTALL)  # a place that is no column, or a path into one


class _Nothing:
    """There is no such column."""


NOTHING = _Nothing()
_PLAIN = frozenset([str, int, float, bool, type(None), datetime, Decimal, _Nothing])


class Unusable(ValueError):
    """A row that cannot become a fragment, and why."""


class Template:
    """A text with places in braces. One that is a single place keeps the type of what stands there."""

    def __init__(self, text: str) -> None:
        """Raises ValueError when braces do not pair."""
        self.text = text
        self._parts: list[tuple[bool, str]] = []  # is it a place, and its name or the text between
        at = 0
        for found in _PLACE.finditer(text):
            self._add(text[at : found.start()])
            at = found.end()
            if found[0] in {"{{", "}}"}:
                self._add(found[0][0])
            elif found[1] is None:
                raise ValueError(f"{found[0]!r} at character {found.start() + 1} stands alone; write it twice")
            elif not found[1].strip():
                raise ValueError(f"{{}} at character {found.start() + 1} names nothing; write {{column}}")
            else:
                self._parts.append((True, found[1].strip()))
        self._add(text[at:])
        is_column = len(self._parts) == 1 and self._parts[0][0] and not _SPECIAL.match(self._parts[0][1])
        self.column = self._parts[0][1] if is_column else None  # of a template that is one column and nothing else
        self.fixed = None if self.names else "".join(part for _, part in self._parts)  # of one without places

    def _add(self, text: str) -> None:
        if text:
            self._parts.append((False, text))

    @property
    def names(self) -> tuple[str, ...]:
        """What stands in the places, in order."""
        return tuple(name for is_place, name in self._parts if is_place)

    def filled(self, row: Row) -> object:
        """The text with what the row has in its places; NOTHING when it lacks one of them."""
        if len(self._parts) == 1 and self._parts[0][0]:
            return row.look(self._parts[0][1])
        said = []
        for is_place, part in self._parts:
            found = row.look(part) if is_place else part
            if found is NOTHING:
                return NOTHING
            said.append(as_text(found))
        return "".join(said)


class Row(NamedTuple):
    """One thing that a source knows: its columns, and what else its templates may name."""

    columns: object  # a mapping, or an object with attributes
    concept: Concept
    name: str = ""  # what it is called where it stands: the key of an object, the number in a list. `{@name}`
    path: str = ""  # where it stands, for a person who looks for it
    root: object = None  # the document that `$ref` points into

    def look(self, path: str) -> object:
        """What a place names: `concept.id`, `@name`, a column, or a path into it (`state.fatigue`, `tags.0`)."""
        if path == "concept":
            return str(self.concept)
        if path in {"concept.domain", "concept.type", "concept.id"}:
            return getattr(self.concept, path.partition(".")[2])
        if path == "@name":
            return self.name
        here = self._followed(self.columns)
        if isinstance(here, Mapping) and path in here:
            return self._followed(here[path])
        for step in path.split("."):
            here = self._followed(_step(here, step))
            if here is NOTHING:
                return NOTHING
        return here

    def _followed(self, value: object) -> object:
        """What a `$ref` into the same document points at. Raises Unusable for a circle and for other documents."""
        if type(value) in _PLAIN or (type(value) is dict and "$ref" not in value):
            return value  # nearly always, and asking for a Mapping costs more than all the rest
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
    """How a row is said. What is not given is the column of that name, where there is one."""

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
    is_estimate: Annotated[bool, msgspec.Meta(description="true where numbers of this source may be blended")] = False


class Told(NamedTuple):
    """What a source said, and what of it could not be used or was cut, in words."""

    fragments: tuple[Fragment, ...]
    missing: tuple[str, ...]


class Saying:
    """How the rows of one source become fragments. Raises ValueError when a template cannot be read."""

    def __init__(self, source: str, table: FragmentTable) -> None:
        self._source = source
        self._is_estimate = table.is_estimate
        self._templates = {name: _template(name, getattr(table, name)) for name in _MAPPED}
        self.given = {name for name in _MAPPED if getattr(table, name) != _DEFAULTS[name]}
        self._columns = {
            name: each.column for name, each in self._templates.items() if isinstance(each, Template) and each.column
        }

    def fragments(self, rows: Iterable[Row], *, now: datetime, at: datetime | None = None, where: str = "") -> Told:
        """The rows as fragments, in order; those that cannot be said are told of. `where` is how a locator begins."""
        said: list[Fragment] = []
        wrong: list[str] = []
        for number, row in enumerate(rows, start=1):
            place = f"{where}{row.path or row.name or number}"
            try:
                said.append(self._fragment(row, now=now, at=at, place=place))
            except (Unusable, InvalidInput) as error:
                wrong.append(f"{place}: {error}")
        more = f", and {len(wrong) - ROWS_TOLD_MAX} more" if len(wrong) > ROWS_TOLD_MAX else ""
        return Told(tuple(said), (f"{'; '.join(wrong[:ROWS_TOLD_MAX])}{more}",) if wrong else ())

    def _fragment(self, row: Row, *, now: datetime, at: datetime | None, place: str) -> Fragment:
        found = self._filled("key", row)
        key = "" if found is NOTHING else as_text(found).strip()
        if not key:
            raise Unusable(f'it has no key{_columns(row)}; say which column is one: key = "{{column}}"')
        value = as_value(self._filled("value", row))
        found = self._filled("text", row)
        if found is NOTHING or found is None:
            text = f"{key}: {as_text(value)}" if value is not None else ""
        else:
            text = as_text(found)
        if not text or text.isspace():
            raise Unusable(f'it has no text{_columns(row)}; say what is shown: text = "{{column}}"')
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

    def _filled(self, name: str, row: Row) -> object:
        """What a row has for a field. Raises Unusable when a column was named that is not there."""
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

    def _confidence(self, row: Row) -> float:
        found = self._filled("confidence", row)
        if found is NOTHING or found is None:
            return UNSTATED_CONFIDENCE
        if type(found) is float and 0 <= found <= 1:
            return found
        try:
            number = float(found)  # type: ignore[arg-type]  # whatever is no number raises
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= 1:
            raise Unusable(f"its confidence is {found!r}; it must be a number from 0 to 1")
        return number

    def _time(self, name: str, row: Row) -> datetime | None:
        found = self._filled(name, row)
        if type(found) is datetime and found.tzinfo is UTC:
            return found
        return None if found is NOTHING or found is None else as_time(found, name)


_MAPPED = ("key", "text", "value", "confidence", "at", "valid_from", "valid_until", "locator")
_DEFAULTS = {name: f"{{{name}}}" for name in _MAPPED}


def _template(name: str, given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return Template(given)
    except ValueError as error:
        raise ValueError(f"{name} = {given!r}: {error}") from error


def _columns(row: Row) -> str:
    if isinstance(row.columns, Mapping):
        return f" (it has {', '.join(map(str, list(row.columns)[:12])) or 'nothing'})"
    return ""


def as_text(value: object) -> str:
    """A value as a reader is shown it."""
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
        raise Unusable("a value is bytes; let the query make a text of it")
    if isinstance(value, int) and not is_value(value):
        raise Unusable(LONG_NUMBER)
    return as_text(str(value))


def as_value(value: object) -> Value:
    """A value as sources are compared by it. Raises Unusable for a number that is none."""
    if type(value) is str:
        return _cut(as_text(value), TEXT_CHARACTERS_MAX)
    if value is NOTHING or value is None or isinstance(value, bool):
        return None if value is NOTHING else value  # type: ignore[return-value]  # what is left of the union
    if isinstance(value, Decimal):
        value = int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, int) and not is_value(value):
        raise Unusable(LONG_NUMBER)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unusable(f"its value is {value}, which is no number to compare")
        return value
    return value if isinstance(value, int) else _cut(as_text(value), TEXT_CHARACTERS_MAX)


def as_time(value: object, name: str) -> datetime:
    """A time of any kind as an aware one; what has no zone is UTC. Raises Unusable."""
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
    raise Unusable(f"{name} is {value!r}, which is no time; use ISO 8601, or seconds since 1970")


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
