"""Import logs of other programs and mica's own exports. All lines are verified first; either all or none are imported.

Every line of JSON is one event. The id of a foreign event is derived from its id in the log, so importing it again
changes nothing. Its parent is looked up in the file and in the space; root and depth are computed. Fields that mica's
events do not have are stored under `imported` in the data. If a line cannot be read, the error has its number, and
nothing is imported.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import IO, Literal, TypeAlias, get_args

import msgspec

from mica.errors import DuplicateEvent, InvalidContext, InvalidEvent, InvalidInput
from mica.events.json_lines import JsonLine, read_lines
from mica.format.documents import CHECKSUM, event_checksum
from mica.model.event import (
    EMPTY,
    EPOCH,
    LABEL_CHARACTERS_MAX,
    MARK,
    NAME_CHARACTERS_MAX,
    PURGED,
    Appended,
    Context,
    Event,
    EventId,
    EventQuery,
    Origin,
    Ref,
    WriterId,
    check_name,
    check_time,
    decode_data,
    descent_from,
    encode_data,
    event_id,
    is_tombstone,
    ref_of,
    sequence_named,
    split_id,
    writer_named,
)
from mica.model.mark import check_mark
from mica.redact import redact_data
from mica.store.checks import check_event
from mica.store.protocol import EventLog

Format: TypeAlias = Literal["mica", "ksi", "flat", "cloudevents"]
FORMATS: tuple[Format, ...] = get_args(Format)
Object: TypeAlias = dict[str, object]

EVENTS_MAX = 200_000  # a file is held in memory and stored in one step: about 0.4 GB and 15 s at this size
BYTES_MAX = 512 * 2**20
AMBIGUOUS = -1  # in place of an index: events of several sources have this id
PROBLEMS_SHOWN_MAX = 5  # lines named in one error message
SPLIT = "split it into parts and import them in order: a parent in an earlier part is found"

# Names with a meaning for mica. An event of another program must not pass for a person's statement or a record of mica.
_RESERVED = re.compile(
    r"(brief|crystal|epoch|event|judgment|log|mark|quality|teaching|trail|transcript)(\..*)?"
    r"|defrag|offer|source\.tested|sources\.gathered|session\.briefed|task\.outcome|model\.(reserved|spent)|(hook|job)\.failed"
)
_GZIP = b"\x1f\x8b"
_NAME_UNSAFE = re.compile(r"[\s*?\x00-\x1f]")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed line of a log: an event whose root and depth are not computed yet."""

    line: int
    key: str  # the event's id in the log
    parent: str | None  # the parent's id in the log
    writer: WriterId
    name: str
    at: datetime
    body: bytes
    context: Context
    origin: Origin = "imported"
    error: bool = False
    ref: Ref | None = None  # the recorded id, root and depth; only lines of mica's own exports have it
    is_undated: bool = False  # the log has no time for the event; `with_times` fills one in


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed entries of a file with their new event ids, and lookups of entries by their original ids."""

    path: str
    format: Format
    entries: tuple[LogEntry, ...]
    ids: tuple[EventId, ...]  # of the entries, in order
    by_key: Mapping[str, int]  # the index in `entries` of the first entry with each key
    by_last: Mapping[str, int]  # the same by id without the CloudEvents source; only ids that a single source has
    reused: int  # number of entries whose key belongs to an earlier entry with other content

    def parent_id(self, entry: LogEntry) -> EventId | None:
        """Return the event id of an entry's parent, even if no such event is known; None for a root."""
        if entry.parent is None:
            return None
        inside = self.by_key.get(entry.parent, self.by_last.get(_last(entry.parent)))
        if inside is not None:
            return self.ids[inside]
        return EventId(entry.parent) if entry.ref else event_id(entry.writer, sequence_named(_last(entry.parent)))

    def outside(self) -> set[EventId]:
        """Return the event ids of all parents that are not in this file."""
        own = set(self.ids)
        return {parent for entry in self.entries if (parent := self.parent_id(entry)) and parent not in own}

    def describe(self, identifier: EventId) -> str:
        """Describe an event for an error message, by its line number and its id in the file."""
        entry = self.entries[self.ids.index(identifier)]
        return f"line {entry.line}, event {_last(entry.key)!r},"


class VerifiedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The complete events of a log, in the order of its lines, and the number of entries with an unknown parent."""

    events: tuple[Event, ...]
    orphans: int


class LogImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of a file were stored, skipped or changed by an import."""

    format: Format | None  # None if the file is empty
    events: int  # newly stored
    repeated: int  # stored before
    orphans: int  # with an unknown parent; imported only with `allow_orphans`
    reused: int  # had the id of another event of the log, and got a new id
    undated: int  # without a time in the log: they get the time of the event before them, or the current time
    purged: int  # purged before or during the import; stored as tombstones


async def import_log(
    file: Path | IO[bytes],
    *,
    stored: EventLog,
    append: Callable[[Sequence[Event]], Awaitable[Appended]],
    now: datetime,
    format: Format | None,
    source: str,
    allow_orphans: bool,
) -> LogImportResult:
    """Store the events of a JSONL file, all or none. `Events.import_log` describes the parameters and errors."""
    path = name_of(file)
    try:
        log = await asyncio.to_thread(read_log, file, format=format, source=source)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    undated = {identifier for identifier, entry in zip(log.ids, log.entries, strict=True) if entry.is_undated}
    times = {each: event.at for each in undated if (event := await stored.get(each))}
    log = with_times(log, known=times, now=now)
    known = {parent: event.ref for parent in log.outside() if (event := await stored.get(parent))}
    read = await asyncio.to_thread(verify, log, known=known, allow_orphans=allow_orphans)
    try:
        before = {event.id for event in read.events} & await _tombstones(stored)
        appended = await append(read.events)
    except DuplicateEvent as error:
        other = "if it is from another log that uses the same ids, import it with a different --source"
        ours = "the file or that event was changed; import it into a separate store (--store) to compare them"
        raise InvalidInput(
            f"nothing of {path} was imported: {log.describe(EventId(error.event_id))} is in this space with other "
            f"content; {ours if log.format == 'mica' else other}"
        ) from error
    except InvalidEvent as error:
        refused = (entry.line for entry, event in zip(log.entries, read.events, strict=True) if _is_refused(event))
        where = f"line {line} cannot be stored: " if (line := next(refused, None)) else ""
        raise InvalidInput(f"nothing of {path} was imported: {where}{error}") from error
    purged = {event.id for event in read.events if not is_tombstone(event)} & await _tombstones(stored)
    return LogImportResult(
        format=log.format if log.entries else format,
        events=appended.stored,
        repeated=appended.repeated - len(before),
        orphans=read.orphans,
        reused=log.reused,
        undated=len(undated),
        purged=len(before | purged),
    )


async def _tombstones(stored: EventLog) -> set[EventId]:
    return {stone.id for stone in await stored.query(EventQuery(names=(PURGED,), limit=None))}


def _is_refused(event: Event) -> bool:
    try:
        check_event(event, None)
    except InvalidEvent:
        return True
    return False


# -- Reading lines --------------------------------------------------------------------------------------------


def read_log(file: Path | IO[bytes], *, format: Format | None = None, source: str = "") -> LogFile:
    """Parse a log file or an open file. Raises InvalidInput with the numbers of unreadable lines, or OSError.

    All lines must have the same format: `format` or, by default, that of the first event.
    """
    entries: list[LogEntry] = []
    problems: list[tuple[int, str]] = []
    size = 0
    path = name_of(file)
    for line in read_lines(file):
        size += len(line.text)
        text = line.text.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.text
        if line.number == 1 and text.startswith(_GZIP):
            raise InvalidInput(f"{path} is compressed; use `zcat {path} | mica events import-log -`")
        if not text.strip():
            continue
        if len(entries) >= EVENTS_MAX or size > BYTES_MAX or line.cut:
            raise InvalidInput(
                f"{path} has more than {EVENTS_MAX:,} events or {BYTES_MAX:,} bytes, the most that can be stored "
                f"in one step; {SPLIT}"
            )
        try:
            format = format or _format_of(_object(text))
            entries.append(_READERS[format](line, text, source))
        except RecursionError:
            problems.append((line.number, "is nested too deeply"))
        except (ValueError, TypeError, InvalidEvent, InvalidContext) as error:
            problems.append((line.number, str(error) or type(error).__name__))
    _raise(path, problems)
    return _with_ids(path, format or "mica", entries)


def name_of(file: Path | IO[bytes]) -> str:
    """Return the name of a file or open file, for messages."""
    name = str(file if isinstance(file, Path) else getattr(file, "name", "the open file"))
    return "standard input" if name == "<stdin>" else name


def _with_ids(path: str, format: Format, entries: Sequence[LogEntry]) -> LogFile:
    ids: list[EventId] = []
    by_key: dict[str, int] = {}
    problems: list[tuple[int, str]] = []
    reused = 0
    for number, entry in enumerate(entries):
        first = entries[by_key.setdefault(entry.key, number)]
        identifier = EventId(entry.key) if entry.ref else event_id(entry.writer, sequence_named(_last(entry.key)))
        if msgspec.structs.replace(first, line=entry.line) != entry:
            if entry.ref:
                problems.append((entry.line, f"event {entry.key!r} is on line {first.line} with other content"))
            content = blake2b(msgspec.json.encode([entry.name, entry.at, entry.context]) + entry.body, digest_size=16)
            identifier = event_id(entry.writer, sequence_named(f"{_last(entry.key)} {content.hexdigest()}"))
            reused += 1
        ids.append(identifier)
    _raise(path, problems)
    by_last: dict[str, int] = {}
    for key, number in by_key.items():
        by_last[_last(key)] = number if _last(key) not in by_last else AMBIGUOUS
    return LogFile(
        path=path,
        format=format,
        entries=tuple(entries),
        ids=tuple(ids),
        by_key=by_key,
        by_last={last: number for last, number in by_last.items() if number != AMBIGUOUS},
        reused=reused,
    )


def with_times(log: LogFile, *, known: Mapping[EventId, datetime], now: datetime) -> LogFile:
    """Fill in the missing times of a log's entries.

    An entry without a time gets the time of the entry before it, else of the next entry with a time, else `now`. If the
    event is already stored, it gets its stored time from `known`, so that importing again changes nothing.
    """
    times: dict[EventId, datetime] = {}
    last = next((entry.at for entry in log.entries if not entry.is_undated), now)
    entries: list[LogEntry] = []
    for identifier, entry in zip(log.ids, log.entries, strict=True):
        last = times.setdefault(identifier, known.get(identifier, last)) if entry.is_undated else entry.at
        entries.append(msgspec.structs.replace(entry, at=last))
    return msgspec.structs.replace(log, entries=tuple(entries))


_JSON_TYPES = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}  # for error messages


def _object(text: bytes) -> Object:
    try:
        record = json.loads(text.decode(), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.pos + 1}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"is not in UTF-8: byte {error.start + 1} is {text[error.start]:#04x}") from error
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise ValueError(f"holds a number of more than {sys.get_int_max_str_digits():,} digits") from error
    if not isinstance(record, dict):
        raise ValueError(f"holds {_json_type(record)}, not an object")
    return record


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "a number")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"holds {name}, which is not JSON")


def _format_of(record: Object) -> Format:
    inner = record.get("data")
    names = {*record, *(inner if isinstance(inner, dict) else ())}
    if "specversion" in record:
        return "cloudevents"
    if "_ksi_context" in names:
        return "ksi"
    if "_event_id" in names or "event_name" in record:
        return "flat"
    if {"id", "name", "at"} <= record.keys():
        return "mica"
    if record and record.keys() <= {*_Exported.__struct_fields__}:
        raise ValueError(
            f"is only a part of an event, {', '.join(sorted(record))}; an export can be imported if it was made "
            "without --bundle and --fields"
        )
    raise ValueError(f"is in none of the formats {', '.join(FORMATS)}; it has {', '.join(sorted(record)[:8])}")


def _raise(path: str, problems: Sequence[tuple[int, str]]) -> None:
    if problems:
        shown = "; ".join(f"line {line} {reason}" for line, reason in problems[:PROBLEMS_SHOWN_MAX])
        more = f"; and {len(problems) - PROBLEMS_SHOWN_MAX:,} more lines" if len(problems) > PROBLEMS_SHOWN_MAX else ""
        raise InvalidInput(f"nothing of {path} was imported: {shown}{more}")


# -- Our own exports ------------------------------------------------------------------------------------------


class ExportedContext(msgspec.Struct):
    """The context in a line of an export; fields that were not exported are None or empty."""

    session: str | None = None
    agent: str | None = None
    user: str | None = None
    task: str | None = None
    correlation: str | None = None
    labels: dict[str, str] = {}


class StrictExportedContext(ExportedContext, forbid_unknown_fields=True):
    """The context in a line to import. Unknown fields are an error, because they would be lost."""


class _Exported(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    name: str
    at: datetime
    data: msgspec.Raw
    context: StrictExportedContext
    root_id: str
    depth: int
    origin: Origin
    error: bool
    parent_id: str | None = None
    position: int | None = None  # ignored: the importing store assigns its own
    correlation: str | None = None  # ignored: it follows from context and root
    checksum: str | None = None  # earlier exports have none


_export_decoder = msgspec.json.Decoder(_Exported)


def _read_mica(line: JsonLine, text: bytes, source: str) -> LogEntry:
    try:
        record = _export_decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ValueError(f"is not an event of an export with the bundle full: {error}") from error
    for identifier in (record.id, record.root_id, *([record.parent_id] if record.parent_id else ())):
        split_id(identifier)
    check_name(record.name)
    check_time(record.name, record.at)
    data = decode_data(record.data)
    body = encode_data(record.name, data)  # normalized, because a tool may have rewritten the line
    if record.name == MARK:
        check_mark(data)
    context = record.context
    fields = {name: getattr(context, name) for name in ("session", "agent", "user", "task", "correlation")}
    EMPTY.with_(labels=context.labels, **fields)  # raises if a value is not valid
    writer, _ = split_id(record.id)
    whole = Context(labels=tuple(context.labels.items()), **fields)
    event = _exported_event(record, body, whole)
    if record.checksum is not None and record.checksum != event_checksum(event):
        raise ValueError(
            f"does not match its checksum: it is damaged or was changed; if you changed it, remove its {CHECKSUM!r}"
        )
    return LogEntry(
        line=line.number,
        key=record.id,
        parent=record.parent_id,
        writer=writer,
        name=record.name,
        at=event.at,
        body=body,
        context=whole,
        origin=record.origin,
        error=record.error,
        ref=ref_of(EventId(record.id), EventId(record.root_id), record.depth),
    )


def _exported_event(record: _Exported, body: bytes, context: Context) -> Event:
    return Event(
        id=EventId(record.id),
        name=record.name,
        at=record.at.astimezone(UTC),
        body=body,
        context=context,
        root_id=EventId(record.root_id),
        parent_id=None if record.parent_id is None else EventId(record.parent_id),
        depth=record.depth,
        origin=record.origin,
        error=record.error,
    )


# -- Embedded contexts: KSI and flat fields -------------------------------------------------------------------

_KSI = "_ksi_context"
_ENVELOPE = (
    "_event_id _event_name _event_timestamp _correlation_id _parent_event_id _root_event_id _event_depth _agent_id "
    "_session_id _session _user_id _task_id _error _error_type _error_message _handler_start _handler_duration"
).split()
_OUTER = {"event_id": "_event_id", "correlation_id": "_correlation_id"}  # beside the data, as KSI writes them
_NAMES = ("event_name", "event", "name", "type")
_DATA = {
    "_error_type": "error_type",
    "_error_message": "error_message",
    "_handler_start": "started_at",
    "_handler_duration": "duration_s",
}
_CONTEXT = {
    "_session_id": "session",
    "_agent_id": "agent",
    "_user_id": "user",
    "_task_id": "task",
    "_correlation_id": "correlation",
}


def _read_embedded(line: JsonLine, text: bytes, source: str, *, format: Format) -> LogEntry:
    outer = _object(text)
    payload = outer.pop("data", None)
    inner: Object = dict(payload) if isinstance(payload, dict) else {}
    envelope = _envelope(outer, inner)
    if "specversion" in outer and "_event_id" not in envelope:
        raise ValueError(f"is a CloudEvent, and those before are {format}; put each format into a separate file")
    name = next((str(outer.pop(field)) for field in _NAMES if isinstance(outer.get(field), str)), None)
    name = name or _text(envelope, "_event_name") or ""
    times = ((envelope, "_event_timestamp"), (outer, "timestamp"), (outer, "time"))
    at = _moment(next((place.pop(field) for place, field in times if place.get(field) is not None), None))
    key = _text(envelope, "_event_id") or blake2b(text.strip(), digest_size=16).hexdigest()
    parent = _text(envelope, "_parent_event_id")
    session = envelope.get("_session")
    if isinstance(session, dict) and "_session_id" not in envelope:
        envelope["_session_id"] = session.get("id")
    context = {ours: _text(envelope, theirs, label=True) for theirs, ours in _CONTEXT.items()}
    is_error = bool(envelope.get("_error")) or outer.get("error") is True
    data, rest = (inner, outer) if isinstance(payload, dict) else (outer, {})
    if payload is not None and not isinstance(payload, dict):
        data["data"] = payload
    for theirs, ours in _DATA.items():
        if theirs in envelope and ours not in data:
            data[ours] = envelope.pop(theirs)
    return _entry(
        line,
        format=format,
        writer=writer_named(f"embedded {source}"),
        key=key,
        parent=parent,
        name=name,
        at=at,
        data=data,
        context=EMPTY.with_(labels=None, **context),
        error=is_error,
        remaining=rest | envelope,
    )


def _envelope(outer: Object, inner: Object) -> Object:
    """Remove the system fields of KSI (a foreign log format) from a record, and return them.

    They may be fields of `inner` or `outer`, or of a context nested in one of them.
    """
    envelope: Object = {}
    for place in (inner, outer):
        context = place.pop(_KSI, None)
        if isinstance(context, str):
            raise ValueError(f"names its context {context!r}, which is not in the file; export with embedded contexts")
        if context is not None and not isinstance(context, dict):
            raise ValueError(f"has {_json_type(context)} as its {_KSI}, not an object")
        envelope |= context or {}
    for place in (inner, outer):
        for field in _ENVELOPE:
            if field in place and envelope.setdefault(field, place[field]) == place[field]:
                del place[field]
    for field, name in _OUTER.items():
        if field in outer and envelope.setdefault(name, outer[field]) == outer[field]:
            del outer[field]
    return envelope


# -- CloudEvents ----------------------------------------------------------------------------------------------


def _read_cloudevent(line: JsonLine, text: bytes, source: str) -> LogEntry:
    remaining = _object(text)
    for field in ("id", "source", "type"):
        if not isinstance(remaining.get(field), str) or not remaining[field]:
            raise ValueError(f"is not a CloudEvent: {field} is missing or not a string")
    if not str(remaining.pop("specversion", "")).startswith("1."):
        raise ValueError("is not a CloudEvent of version 1")
    made_by = str(remaining.pop("source"))
    trace = _TRACE.fullmatch(str(remaining.get("traceparent", "")))
    correlation = _text(remaining, "correlationid", label=True) or (trace[1] if trace else None)
    payload = remaining.pop("data", None)
    data: Object = payload if isinstance(payload, dict) else {} if payload is None else {"data": payload}
    if "data_base64" in remaining:
        data = {"data_base64": remaining.pop("data_base64")}
    cause = _text(remaining, "causationid")
    return _entry(
        line,
        format="cloudevents",
        writer=writer_named(f"cloudevents {made_by}"),
        key=f"{made_by}\n{remaining.pop('id')}",
        parent=None if cause is None else f"{made_by}\n{cause}",
        name=str(remaining.pop("type")),
        at=None if remaining.get("time") is None else _moment(remaining.pop("time")),
        data=data,
        context=EMPTY.with_(correlation=correlation, labels={"source": made_by}),
        remaining=remaining | {"source": made_by},
    )


def _last(key: str) -> str:
    """Return the id of a record. `key` is the id, or for a CloudEvent its source and its id."""
    return key.rpartition("\n")[2]


# -- Parts of all foreign formats -------------------------------------------------------------------------------


def _entry(
    line: JsonLine,
    *,
    format: Format,
    writer: WriterId,
    key: str,
    parent: str | None,
    name: str,
    at: datetime | None,
    data: Object,
    context: Context,
    remaining: Object,
    error: bool = False,
) -> LogEntry:
    """Build an entry. The remaining fields of the record are added to its data, with secrets redacted."""
    if not name:
        raise ValueError("has no name: an event, event_name, name or type")
    usable = _NAME_UNSAFE.sub("_", name)[:NAME_CHARACTERS_MAX]
    usable = f"imported.{usable}"[:NAME_CHARACTERS_MAX] if _RESERVED.fullmatch(usable) else usable
    fields = {field: value for field, value in remaining.items() if value is not None}
    imported: Object = {"format": format, "id": _last(key)}
    imported |= {"parent": _last(parent)} if parent else {}
    imported |= {"name": name} if usable != name else {}
    imported |= {"fields": fields} if fields else {}
    imported |= {"undated": True} if at is None else {}
    own = "imported"
    while own in data:
        own += "_"
    body = encode_data(usable, {**_redacted(data), own: _redacted(imported)})
    check_name(usable)
    return LogEntry(
        line=line.number,
        key=key,
        parent=parent,
        writer=writer,
        name=usable,
        at=EPOCH if at is None else at,
        body=body,
        context=context,
        error=error,
        is_undated=at is None,
    )


def _redacted(record: Object) -> Object:
    return {name: redact_data(value, key=name) for name, value in record.items()}


def _text(record: Object, field: str, *, label: bool = False) -> str | None:
    """Remove a field from a record and return it as text.

    Returns None, and removes nothing, if the field is missing, empty, or neither a text nor an integer. The same
    applies to a text that is too long for a label if `label` is True.
    """
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value or (label and len(value) > LABEL_CHARACTERS_MAX):
        return None
    del record[field]
    return value


def _moment(value: object) -> datetime:
    """Parse a time: ISO 8601 text (UTC by default), or a Unix time in seconds, milliseconds or microseconds."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"has the time {value[:60]!r}, which is not a time; use ISO 8601 or seconds") from error
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("has no time: a timestamp, time or _event_timestamp")
    unit_s = 1 if abs(value) < 1e11 else 1e-3 if abs(value) < 1e14 else 1e-6
    try:
        return EPOCH + timedelta(seconds=value * unit_s)
    except OverflowError as error:
        raise ValueError(f"has the time {value}, which is out of range") from error


_Reader: TypeAlias = Callable[[JsonLine, bytes, str], LogEntry]
_READERS: Mapping[Format, _Reader] = {
    "mica": _read_mica,
    "ksi": lambda line, text, source: _read_embedded(line, text, source, format="ksi"),
    "flat": lambda line, text, source: _read_embedded(line, text, source, format="flat"),
    "cloudevents": _read_cloudevent,
}


# -- Parents, roots and depths -----------------------------------------------------------------------------------


def verify(log: LogFile, *, known: Mapping[EventId, Ref], allow_orphans: bool = False) -> VerifiedLog:
    """Compute root and depth of every entry, and return the complete events.

    `known` has the references of the parents that are in the space. Raises InvalidInput with the numbers of the lines
    whose parent is unknown or a descendant of the event itself, or whose exported root or depth contradicts the parent.

    With `allow_orphans`, an unknown parent is accepted. A foreign event then becomes a root, with the parent's id in
    its data; an event of mica's own export stays unchanged.
    """
    places = dict(known) | {
        identifier: entry.ref for identifier, entry in zip(log.ids, log.entries, strict=True) if entry.ref
    }
    cut = _place_all(log, places)
    if not allow_orphans:
        inside = set(log.ids)
        _raise(log.path, [(log.entries[number].line, _describe_orphan(log, number, inside)) for number in sorted(cut)])
    events = [_event(log, number, places, is_cut=number in cut) for number in range(len(log.entries))]
    pairs = zip(log.entries, events, strict=True)
    _raise(log.path, [(entry.line, problem) for entry, event in pairs if (problem := _describe_misfit(event, places))])
    return VerifiedLog(events=tuple(events), orphans=len(cut))


def _place_all(log: LogFile, places: dict[EventId, Ref]) -> set[int]:
    """Add a reference with root and depth for each entry to `places`, by event id.

    Returns the indexes of the entries whose parent is missing or is one of their own descendants.
    """
    numbers = {identifier: number for number, identifier in reversed(list(enumerate(log.ids)))}
    cut: set[int] = set()
    for start, entry in enumerate(log.entries):
        if entry.ref is not None:
            if entry.parent is not None and EventId(entry.parent) not in places:
                cut.add(start)
            continue
        path: dict[EventId, int] = {}
        identifier = log.ids[start]
        while identifier not in places:
            number = numbers[identifier]
            parent = log.parent_id(log.entries[number])
            path[identifier] = number
            if parent is None or parent in path or (parent not in places and parent not in numbers):
                if parent is not None:
                    cut.add(number)
                places[identifier] = ref_of(identifier, identifier, 0)
            else:
                identifier = parent
        for below, number in reversed(path.items()):
            if below not in places and (parent := log.parent_id(log.entries[number])):
                places[below] = Ref(*split_id(below), descent_from(places[parent]))
    return cut


def _describe_orphan(log: LogFile, number: int, inside: Collection[EventId]) -> str:
    entry = log.entries[number]
    why = "descends from it" if log.parent_id(entry) in inside else "is neither in the file nor in this space"
    return f"names the parent {_last(entry.parent or '')!r}, which {why} (--allow-orphans imports it anyway)"


def _event(log: LogFile, number: int, places: Mapping[EventId, Ref], *, is_cut: bool) -> Event:
    entry, identifier = log.entries[number], log.ids[number]
    place = places[identifier]
    return Event(
        id=identifier,
        name=entry.name,
        at=entry.at,
        body=entry.body,
        context=entry.context,
        root_id=place.root_id,
        parent_id=None if is_cut and entry.ref is None else log.parent_id(entry),
        depth=place.depth,
        origin=entry.origin,
        error=entry.error,
    )


def _describe_misfit(event: Event, places: Mapping[EventId, Ref]) -> str | None:
    if event.parent_id is None:
        fits = event.root_id == event.id and event.depth == 0
    else:
        parent = places.get(event.parent_id)
        fits = parent is None or (event.root_id == parent.root_id and event.depth == parent.depth + 1)
    return None if fits else f"has a root or a depth that does not match its parent {event.parent_id}"
