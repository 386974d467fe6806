"""Events, crystals and trails as JSON documents, whole or with selected fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, cast
from zlib import crc32

import msgspec

from mica.errors import InvalidInput
from mica.model.crystal import Crystal
from mica.model.event import Event
from mica.model.trail import Choice, Trail

Document: TypeAlias = dict[str, object]  # ready for JSON; the whole `data` is a msgspec.Raw with the stored bytes
Fields: TypeAlias = tuple[str, ...]

OWN = ("id", "name", "at", "context", "root_id", "parent_id", "depth", "origin", "error", "position")
DERIVED = ("correlation", "data")
CONTEXT = ("session", "agent", "user", "task", "correlation", "labels")
OPEN = ("data.", "context.labels.")  # any name may follow

CHECKSUM = "checksum"  # in a line of an export, beside all fields

FULL: Fields = (*OWN, *DERIVED)
_MINIMAL: Fields = ("id", "name", "correlation")
_MONITORING: Fields = (*_MINIMAL, "depth", "context.agent")
Bundle = Literal["minimal", "monitoring", "debugging", "timing", "errors", "full"]
BUNDLES: Mapping[Bundle, Fields] = {
    "minimal": _MINIMAL,
    "monitoring": _MONITORING,
    "debugging": (*_MONITORING, "parent_id", "root_id"),
    "timing": ("id", "name", "at", "data.started_at", "data.duration_s"),
    "errors": (*_MINIMAL, "error", "data.error_type", "data.error_message", "data.text"),
    "full": FULL,
}


EVENTS = "text/event-stream"
QUIET = b": quiet\n\n"  # keeps a connection alive


def server_sent(data: bytes, *, id: str | int | None = None, event: str | None = None) -> bytes:
    """Encode one server-sent event: a message of the protocol `text/event-stream`. The data must be a single line."""
    named = b"" if event is None else b"event: %b\n" % event.encode()
    numbered = b"" if id is None else b"id: %b\n" % str(id).encode()
    return b"%b%bdata: %b\n\n" % (named, numbered, data)


def select_fields(*, bundle: str | None = None, fields: Iterable[str] = ()) -> Fields:
    """Return the names of the fields in a bundle (a named list of fields) and in `fields`, without repetitions.

    If both are omitted, return the names of all fields. Raises InvalidInput for an unknown bundle or field.
    """
    if bundle is not None and bundle not in BUNDLES:
        raise InvalidInput(f"there is no bundle {bundle!r}; the bundles are {', '.join(BUNDLES)}")
    bundled = () if bundle is None else BUNDLES[cast(Bundle, bundle)]
    selected = tuple(dict.fromkeys([*bundled, *fields]))
    for field in selected:
        _check(field)
    return selected or FULL


def event_document(event: Event, fields: Fields = FULL) -> Document:
    """Return the selected fields of an event as a document. Fields that the event does not have are left out.

    From a document with all fields, `mica events import-log` restores an equal event.
    """
    whole: Document = {name: getattr(event, name) for name in OWN}
    whole["context"] = _context(event)
    whole["correlation"] = event.correlation
    whole["data"] = msgspec.Raw(event.body)
    document: Document = {}
    inside = event.data if any(field.startswith("data.") for field in fields) else {}
    for field in fields:
        if field in whole:
            document[field] = whole[field]
    for field in fields:
        if "." in field and field.partition(".")[0] not in fields:
            _pick({**whole, "data": inside}, field, into=document)
    return document


def exported_line(event: Event, fields: Fields = FULL) -> bytes:
    """Encode an event as one line of an export. A line with all fields ends with its checksum, which imports compare.

    The checksum is of the content and not of the text, so that a tool may write the line in another way.
    """
    document = event_document(event, fields)
    if set(fields) >= set(FULL):
        document[CHECKSUM] = event_checksum(event)
    return msgspec.json.encode(document)


def event_checksum(event: Event) -> str:
    """Return the checksum of an event, without its position."""
    head = [getattr(event, name) for name in OWN if name not in ("context", "position")]
    context = [getattr(event.context, name) for name in CONTEXT if name != "labels"]
    raw = msgspec.json.encode([head, context, sorted(event.context.labels)])
    return f"{crc32(event.body, crc32(raw)):08x}"


def event_documents(events: Sequence[Event], fields: Fields = FULL) -> list[Document]:
    return [event_document(event, fields) for event in events]


def event_line(event: Event, fields: Fields = FULL) -> bytes:
    """Encode an event as one line of JSON, without a line break."""
    return msgspec.json.encode(event_document(event, fields))


def crystal_document(crystal: Crystal) -> Document:
    """Return a crystal as a document. The field `text` repeats the statements of the insight as one text."""
    document: Document = msgspec.to_builtins(crystal)
    return {"id": crystal.id, "level": crystal.level, "period": crystal.period, "text": crystal.text, **document}


def trail_document(trail: Trail) -> Document:
    """Return a trail as a document, which also has computed fields: name, entry, tokens, success and saving."""
    document: Document = msgspec.to_builtins(trail)
    return document | {
        "name": trail.name,
        "entry": trail.entry,
        "tokens": trail.tokens,
        "success": trail.success,
        "saving": None if trail.measured is None else trail.measured.saving,
    }


def choice_document(choice: Choice) -> Document:
    """Return a trail that was chosen for a task as a document, with the kind of match, the score and the reason."""
    return {
        "match": choice.match,
        "score": choice.score,
        "reason": choice.reason,
        "trail": trail_document(choice.trail),
    }


def _context(event: Event) -> dict[str, object]:
    named = ((name, getattr(event.context, name)) for name in CONTEXT if name != "labels")
    labels: dict[str, object] = {"labels": dict(event.context.labels)} if event.context.labels else {}
    return {name: value for name, value in named if value is not None} | labels


def _check(field: str) -> None:
    known = {*OWN, *DERIVED, *(f"context.{name}" for name in CONTEXT)}
    if field not in known and not any(field.startswith(start) and field != start for start in OPEN):
        listed = ", ".join((*OWN, *DERIVED))
        below = ", ".join(f"context.{name}" for name in CONTEXT)
        raise InvalidInput(f"there is no field {field!r}; use {listed}, {below}, context.labels.NAME or data.NAME")


def _pick(value: Mapping[str, object], field: str, *, into: Document) -> None:
    """Copy the value at the path `field`, such as `data.path`, from `value` into a document, at the same path.

    A key in the path may itself contain dots. Nothing is copied if there is no value at the path.
    """
    if field in value:
        into[field] = value[field]
        return
    name, _, rest = field.partition(".")
    inner = value.get(name)
    if rest and isinstance(inner, Mapping):
        picked: Document = {}
        _pick(inner, rest, into=picked)
        if picked:
            _merge(into, {name: picked})


def _merge(into: Document, picked: Document) -> None:
    for name, value in picked.items():
        present = into.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
        else:
            into[name] = value
