"""Events and their contexts: frozen values without I/O.

An event is something that happened; its context is where it came from (session, agent, user …). An event id consists
of the id of its writer (a process or an import that records events) and a number that this writer counts up. Values
from outside of mica are checked in this module, once.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Literal, NewType, TypeAlias, cast

import msgspec

from mica.errors import InvalidContext, InvalidEvent, InvalidInput
from mica.model.text_cache import clear_on_forget, remember_texts
from mica.redact import redact, redact_data

EventId = NewType("EventId", str)
ContextId = NewType("ContextId", str)
WriterId = NewType("WriterId", str)

# The author of an event. `recalled` is text that mica itself gave to an agent, so it is never evidence.
Origin = Literal["user", "agent", "tool", "recalled", "imported"]
ORIGINS: tuple[Origin, ...] = ("user", "agent", "tool", "recalled", "imported")
Clock: TypeAlias = Callable[[], datetime]

MARK = "mark"
REFUSED = "event.refused"  # replaces an event that could not be stored as it was
CRYSTAL = "crystal.made"  # the event that records a crystal
RETRACTED = "mark.retracted"  # a mark or crystal no longer holds, and why
JUDGED = "judgment.made"  # an agent decided something about a concept
JUDGMENT_RETRACTED = "judgment.retracted"  # retracts a judgment, with the reason
# A hook showed a brief: {"receipt"}. Or it withheld the brief, for comparison: {"receipt", "held_out": true}.
BRIEFED = "session.briefed"
TRANSCRIPT_READ = "transcript.read"  # how far a transcript was imported
SESSION_ENDED = "session.ended"  # without it, a session ends after a while without events
EPOCH_OPENED = "epoch.opened"  # points to a mark that is a milestone, so that milestones are quick to find
MILESTONE = "milestone"  # the tag of a mark that ends an epoch (a phase of the work) and begins the next
PURGED = "event.purged"  # replaces an event whose content was purged
NAME_CHARACTERS_MAX = 200  # a name is a kind of event; a longer one is data in the wrong place
KNOWN_MAX = 4_096  # labels and fields that are cached as valid
KNOWN_BYTES_MAX = 512  # only contexts up to this size are cached, at most two megabytes in total
LABEL_CHARACTERS_MAX = 4_096  # a context is shared by many events and carried in headers; texts belong in events
REASON_CHARACTERS_MAX = 200  # of a purge; every tombstone contains it
DEPTH_MAX = 1_000_000  # of a chain; a deeper one is a loop or an attack
NESTING_MAX = 400  # levels of data; a reader may decode it deep in a call stack, which Python limits to 1,000
PAYLOAD_BYTES_MAX = 256 * 2**20  # SQLite refuses rows near 1 GB, and a payload is held in memory a few times over

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in lower case
_EVENT_ID = re.compile(r"([0-7][0-9a-hjkmnp-tv-z]{25})-([0-7][0-9a-f]{15})")
_EVENT_NAME = re.compile(r"[^\s*?\x00-\x1f\ud800-\udfff]+")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    return datetime.now(UTC)


def microseconds(at: datetime) -> int:
    """Return a time as the number of microseconds since 1970, as stores keep it."""
    return (at - EPOCH) // MICROSECOND


def decay(age: timedelta, *, half_life_days: float) -> float:
    """Return the decay factor for an age: 0.5 after one half-life, 0.25 after two; 1 for a negative age."""
    return float(0.5 ** (max(age, timedelta(0)) / timedelta(days=half_life_days)))


# -- Ids ------------------------------------------------------------------------------------------------------


def new_writer() -> WriterId:
    """Return a new writer id. It begins with 48 bits of time, so that ids sort by age; the other 80 bits are random."""
    return WriterId(_base32(time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)))


def writer_named(name: str) -> WriterId:
    """Return the writer id for a name. It is the same everywhere, so a repeated import makes the same event ids."""
    return WriterId(_base32(int.from_bytes(blake2b(name.encode(), digest_size=16).digest())))


def sequence_named(name: str) -> int:
    """Return a sequence number for a name: 63 bits of the hash of the name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1


def event_id(writer: WriterId, sequence: int) -> EventId:
    return EventId(f"{writer}-{sequence:016x}")


@remember_texts(16_384)
def split_id(identifier: str) -> tuple[WriterId, int]:
    """Split an event id into writer id and sequence number. Raises InvalidEvent if the id is not valid."""
    match = _EVENT_ID.fullmatch(str(identifier))
    if match is None:
        raise InvalidEvent(f"{identifier!r} is not an event id; ids look like {event_id(new_writer(), 1)!r}")
    return WriterId(match[1]), int(match[2], 16)


def split_ids(identifiers: Iterable[str]) -> list[tuple[WriterId, int]]:
    """Split each of many event ids into writer id and sequence number. Raises InvalidEvent if one is not valid.

    Unlike `split_id`, this function does not cache, so it is twice as fast for ids that are used only once.
    """
    parts = []
    for identifier in identifiers:
        match = _EVENT_ID.fullmatch(str(identifier))
        parts.append(split_id(identifier) if match is None else (WriterId(match[1]), int(match[2], 16)))
    return parts


def is_id(text: str) -> bool:
    """True if a text has the form of an event id."""
    return _EVENT_ID.fullmatch(text) is not None


def _base32(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))


# -- Context --------------------------------------------------------------------------------------------------


Label = Annotated[str, msgspec.Meta(min_length=1, max_length=LABEL_CHARACTERS_MAX)]


class Context(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
    cache_hash=True,
):
    """Where an event came from: session, agent, user, task, correlation and labels.

    A context is identified by a hash of its content, stored once and shared by many events.
    """

    session: Label | None = None
    agent: Label | None = None
    user: Label | None = None
    task: Label | None = None
    correlation: Label | None = None
    labels: tuple[tuple[str, Label], ...] = ()

    @property
    def id(self) -> ContextId:
        return _context_id(self)

    def check(self) -> None:
        """Raise InvalidContext if a field has a wrong type or length."""
        try:
            _decode_context(_encode_context(self))  # the fastest way to check all fields
        except (TypeError, ValueError):
            for name in FIELDS:
                if (value := getattr(self, name)) is not None:
                    _check_label(name, value)
            for name, value in self.labels:
                _check_label(name, value)
            raise

    def with_(  # noqa: PLR0917 - positional for speed
        self,
        labels: Mapping[str, str] | None = None,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        task: str | None = None,
        correlation: str | None = None,
    ) -> Context:
        """Return a copy of this context with the fields that are not None replaced, and with `labels` added.

        Raises InvalidContext for an invalid value, such as one that is not a string, is empty or is too long.
        """
        if self is not EMPTY:
            session = self.session if session is None else session
            agent = self.agent if agent is None else agent
            user = self.user if user is None else user
            task = self.task if task is None else task
            correlation = self.correlation if correlation is None else correlation
            labels = {**dict(self.labels), **labels} if labels else dict(self.labels)
        pairs = tuple(labels.items()) if labels else ()
        known = _known_values
        # A quick test that accepts the usual correlations; `_checked` decides about the others.
        if correlation is None or (type(correlation) is str and _CORRELATION.fullmatch(correlation) is not None):
            try:
                return Context(
                    session=known[session],
                    agent=known[agent],
                    user=known[user],
                    task=known[task],
                    correlation=correlation,
                    labels=_known_labels[pairs],
                )
            except (KeyError, TypeError):  # not cached, or not hashable and so not a string
                pass
        return _checked(pairs, (session, agent, user, task, correlation))


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} is not a string")


RANDOM = "[redacted:credential]"
FIELDS = ("session", "agent", "user", "task", "correlation")
# Ids as programs make them, which need no search for secrets: it would cost more than the rest of a context.
_CORRELATION = re.compile(
    r"[A-Za-z0-9_.:-]{1,15}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?!(?:[spr]k|sh[a-z]+|[a-z]*pat|gh[a-z]|dapi|api|key|tok[a-z]*|sec[a-z]*|pass[a-z]*)[_-])(?:[a-z]{1,12}[_-])?[0-9a-f]{16,64}"
)
EMPTY = Context()
# Values that were checked before; usually only the correlation of a context is new.
_Pairs: TypeAlias = tuple[tuple[str, str], ...]
_known_labels: dict[_Pairs, _Pairs] = {}  # sorted pairs, keyed by the pairs in any order
_known_values: dict[str | None, str | None] = {}  # the value as plain `str`, keyed by the value
clear_on_forget(_known_labels.clear)
clear_on_forget(_known_values.clear)
_encode_context = msgspec.msgpack.Encoder(enc_hook=_as_text).encode
_decode_context = msgspec.msgpack.Decoder(Context).decode


@remember_texts(4_096)
def _context_id(context: Context) -> ContextId:
    return ContextId(blake2b(msgspec.json.encode(context), digest_size=16).hexdigest())


def _redacted(context: Context) -> Context:
    """Return the context with the secrets in its fields and labels redacted."""
    values = [(name, value) for name in FIELDS if (value := getattr(context, name)) is not None]
    clean = {name: _redacted_field(value) for name, value in values}
    labels = tuple((name, _redacted_label(name, value)) for name, value in context.labels)
    return Context(**clean, labels=labels)


def _redacted_field(value: str) -> str:
    """Return a value with its secrets redacted. A random value that has no form of a known key is an id."""
    clean = redact(value)
    return value if clean == RANDOM else clean[:LABEL_CHARACTERS_MAX]


def _redacted_label(name: str, value: str) -> str:
    """Return the value of a label with its secrets redacted; a label called `token` has nothing else."""
    return str(redact_data(value, key=name))[:LABEL_CHARACTERS_MAX]


def _checked(labels: _Pairs, fields: tuple[str | None, ...]) -> Context:
    """Return the context with these labels and fields, and cache them as valid.

    `fields` are session, agent, user, task and correlation. Raises InvalidContext for an invalid value.
    """
    session, agent, user, task, correlation = fields
    unchecked = Context(
        session=session, agent=agent, user=user, task=task, correlation=correlation, labels=tuple(sorted(labels))
    )
    try:
        encoded = _encode_context(unchecked)
        context = _redacted(_decode_context(encoded))
    except (TypeError, ValueError):
        unchecked.check()  # raises with the details
        raise
    if len(encoded) <= KNOWN_BYTES_MAX:
        if max(len(_known_labels), len(_known_values)) > KNOWN_MAX:
            _known_labels.clear()
            _known_values.clear()
        _known_labels[labels] = context.labels
        _known_values.update({session: context.session, agent: context.agent, user: context.user, task: context.task})
    return context


def _check_label(name: str, value: object) -> None:
    if not isinstance(value, str) or not isinstance(name, str):
        if isinstance(value, Mapping):
            keywords = ", ".join(f"{key}={inner!r}" for key, inner in value.items())
            raise InvalidContext(f"context {name}={value!r} is a mapping; pass labels as keywords: context({keywords})")
        raise InvalidContext(f"context {name}={value!r} is a {type(value).__name__}; pass a string")
    if not value or len(value) > LABEL_CHARACTERS_MAX:
        raise InvalidContext(
            f"context {name} has {len(value):,} characters; 1 to {LABEL_CHARACTERS_MAX:,} are allowed, "
            "longer text belongs in an event"
        )
    try:
        if not (value.isascii() and name.isascii()):
            f"{name}{value}".encode()
    except UnicodeEncodeError as error:
        raise InvalidContext(f"context {ascii(name)[1:-1]}={value!r} is not valid Unicode: {error.reason}") from error


# -- Events ---------------------------------------------------------------------------------------------------


class Descent(msgspec.Struct, frozen=True, gc=False):
    """The depth and root of an event in its tree. Sibling events share one `Descent` object."""

    depth: int = 0  # number of ancestors
    root_writer: WriterId | None = None  # None if the event itself is the root
    root_sequence: int = 0


ROOT = Descent()


class Ref(msgspec.Struct, frozen=True, gc=False):
    """A reference to an event: its id, root and depth. It can be used as a parent in this or another process."""

    writer: WriterId
    sequence: int
    descent: Descent = ROOT

    @property
    def id(self) -> EventId:
        return event_id(self.writer, self.sequence)

    @property
    def root_id(self) -> EventId:
        root_writer = self.descent.root_writer
        return self.id if root_writer is None else event_id(root_writer, self.descent.root_sequence)

    @property
    def depth(self) -> int:
        return self.descent.depth

    @property
    def ref(self) -> Ref:
        return self


def ref_of(identifier: EventId, root_id: EventId, depth: int) -> Ref:
    """Build a reference from an event's id, root id and depth."""
    if root_id == identifier:
        return Ref(*split_id(identifier), Descent(depth) if depth else ROOT)
    return Ref(*split_id(identifier), Descent(depth, *split_id(root_id)))


def descent_from(parent: Ref) -> Descent:
    """Return the depth and root that the children of `parent` have."""
    above = parent.descent
    if above.root_writer is None:
        return Descent(above.depth + 1, parent.writer, parent.sequence)
    return Descent(above.depth + 1, above.root_writer, above.root_sequence)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Something that happened, recorded and never changed. Use `make_event`, which checks the fields."""

    id: EventId
    name: str
    at: datetime
    body: bytes  # its data as JSON
    context: Context
    root_id: EventId
    parent_id: EventId | None = None
    depth: int = 0
    origin: Origin = "agent"
    error: bool = False
    position: int | None = None  # its number in the store's log, in commit order; None until it is stored

    @property
    def data(self) -> dict[str, object]:
        """The decoded data, as a new dictionary on each access: changing it does not change the event."""
        return decode_data(self.body)

    @property
    def ref(self) -> Ref:
        return ref_of(self.id, self.root_id, self.depth)

    @property
    def sort_key(self) -> tuple[datetime, bool, int, str]:
        """A key for sorting events by time, then by position. At equal times, events not stored yet come last."""
        return self.at, self.position is None, self.position or 0, self.id

    @property
    def number(self) -> str:
        """The position as shown to people, such as `#12`. Until the event is stored, it is `#…`."""
        return f"#{self.position or '…'}"

    @property
    def correlation(self) -> str:
        """The name of the chain (the related events) that this event belongs to.

        It is the correlation of the context, or the id of the root event if the context has none.
        """
        return self.context.correlation or self.root_id


def make_event(
    identifier: EventId,
    name: str,
    data: Mapping[str, object],
    *,
    at: datetime,
    context: Context = EMPTY,
    parent: Event | Ref | None = None,
    origin: Origin = "agent",
    error: bool = False,
) -> Event:
    """Check the fields and build an event with a copy of the data. Raises InvalidEvent if a field is not valid."""
    split_id(identifier)
    check_name(name)
    check_time(name, at)
    origin_number(name, origin)
    if parent is not None and parent.id == identifier:
        raise InvalidEvent(f"event {identifier!r} cannot be its own parent")
    return Event(
        id=identifier,
        name=name,
        at=at.astimezone(UTC),
        body=encode_data(name, data),
        context=context,
        root_id=parent.root_id if parent else identifier,
        parent_id=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        origin=origin,
        error=error,
    )


def decode_data(encoded: bytes) -> dict[str, object]:
    return _decoder.decode(encoded)


@remember_texts(4_096)
def check_name(name: object) -> None:
    """Raise InvalidEvent if an event name is not valid."""
    if not isinstance(name, str):
        raise InvalidEvent(f"event name {name!r} is a {type(name).__name__}; pass a string")
    if len(name) > NAME_CHARACTERS_MAX or not _EVENT_NAME.fullmatch(name):
        raise InvalidEvent(
            f"event name {name[:60]!r} is not valid; use 1 to {NAME_CHARACTERS_MAX} characters without spaces, * or ?"
        )


def check_time(name: str, at: datetime) -> None:
    if not isinstance(at, datetime):
        raise InvalidEvent(f"event {name!r} is dated {at!r:.80}, which is not a time; use an aware datetime")
    if at.tzinfo is None:
        raise InvalidEvent(f"event {name!r} is dated {at.isoformat()} without a time zone; use an aware datetime")


def origin_number(name: str, origin: Origin) -> int:
    """Return the number under which an origin is stored. Raises InvalidEvent for an unknown origin.

    `name` is the name of the event, for the message.
    """
    try:
        return ORIGINS.index(origin)
    except ValueError:
        known = ", ".join(ORIGINS)
        raise InvalidEvent(f"event {name!r} has origin {origin!r}; use one of {known}") from None


def encode_data(name: str, data: Mapping[str, object]) -> bytes:
    """Return the data of an event as JSON. Raises InvalidEvent if JSON cannot represent the data without loss.

    `name` is the name of the event, for the message.
    """
    if type(data) is not dict and not isinstance(data, Mapping):
        raise InvalidEvent(f"data of event {name!r} is a {type(data).__name__}; pass a mapping with string keys")
    check_keys(name, data)
    try:
        encoded = msgspec.json.encode(data)
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"data of event {name!r} holds {_describe_bad_unicode(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"data of event {name!r} cannot be written as JSON: {error}; "
            "convert it to text, numbers, lists or mappings first"
        ) from error
    check_encoded(name, data, encoded)
    return encoded


def _describe_bad_unicode(error: UnicodeEncodeError) -> str:
    code = ord(error.object[error.start])
    byte = f"the byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"half of a character, U+{code:04X},"
    return f"a text with {byte} at character {error.start + 1:,}, which is not UTF-8; decode it correctly first"


def check_keys(name: str, data: Mapping[str, object]) -> None:
    """Raise InvalidEvent if a key is not a string."""
    for key in data:
        if not isinstance(key, str):
            raise InvalidEvent(f"data of event {name!r} has the key {key!r}; keys must be strings")


def check_encoded(name: str, data: Mapping[str, object], encoded: bytes) -> None:
    """Raise InvalidEvent if `data` has a NaN or infinity, or if it is too large or too deeply nested as JSON."""
    if b"null" in encoded and (path := not_a_number(data)):  # msgspec writes NaN and infinity as null
        raise InvalidEvent(
            f"data of event {name!r} has a number that JSON cannot hold at {path}; pass it as a string or leave it out"
        )
    if len(encoded) > NESTING_MAX:  # each level takes a byte at least
        check_nesting(name, data)
    if len(encoded) > PAYLOAD_BYTES_MAX:
        raise InvalidEvent(
            f"data of event {name!r} takes {len(encoded):,} bytes; {PAYLOAD_BYTES_MAX:,} are allowed: "
            "store a file and emit its path"
        )


_decoder = msgspec.json.Decoder(dict[str, object])


_MAPPINGS = (dict, Mapping)  # dict first: the test for Mapping takes ten times as long
_NESTED = (dict, list, tuple, Mapping)
_SCALARS = frozenset([str, int, float, bool, type(None)])


def check_nesting(name: str, data: Mapping[str, object]) -> None:
    """Raise InvalidEvent if the data of the event `name` is nested more than NESTING_MAX levels deep."""
    level: list[object] = [data]
    for _ in range(NESTING_MAX):
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, _MAPPINGS) else cast(Iterable[object], value))
            if type(child) not in _SCALARS and isinstance(child, _NESTED)
        ]
        if not level:
            return
    raise InvalidEvent(f"data of event {name!r} is nested over {NESTING_MAX} levels deep; flatten it, or pass a string")


def not_a_number(value: Mapping[str, object] | Sequence[object], path: str = "$") -> str | None:
    """Return the path of the first NaN or infinity in nested data, such as `$.a.0`; None if all numbers are finite."""
    for key, child in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(child, float):
            if child - child != 0:
                return f"{path}.{key}"
        elif isinstance(child, dict | list | tuple) and (found := not_a_number(child, f"{path}.{key}")):
            return found
    return None


@remember_texts(1_024)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for event names, in which `*` matches any characters and `?` a single one."""
    return re.compile(
        "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", pattern))
    )


def check_several(field: str, value: object) -> None:
    """Raise InvalidInput if `value` is a string instead of a list, because each letter would become an element."""
    if isinstance(value, str | bytes):
        raise InvalidInput(f"{field} is {value!r:.80}, a single string; pass a list: {field}=[{value!r:.80}]")


def check_unicode(field: str, text: str) -> None:
    """Raise InvalidInput if a text cannot be encoded as UTF-8, for example an argument in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{field} is {text!r:.80}: {_describe_bad_unicode(error)}") from error


def check_reason(reason: str) -> None:
    """Raise InvalidInput if the reason for a retraction is empty."""
    if not reason.strip():
        raise InvalidInput("the reason is empty; say why it no longer holds")


def check_budget(what: str, budget_tokens: object) -> None:
    """Raise InvalidInput unless a token budget is a whole number, 1 or more.

    `what` is the text that the budget is for, such as "loaded trail"; it is used in the message.
    """
    if not isinstance(budget_tokens, int) or isinstance(budget_tokens, bool) or budget_tokens < 1:
        raise InvalidInput(f"a {what} cannot have {budget_tokens!r} tokens; use a whole number, 1 or more")


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for events. All fields that are not None must match.

    Of the events that match, the `limit` latest are returned, oldest first. Raises InvalidInput for a field of the
    wrong type, a negative limit, or a time without a time zone.
    """

    session: str | None = None
    agent: str | None = None
    user: str | None = None
    names: tuple[str, ...] = ()  # patterns, one of which must match; empty for all names
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    text: str | None = None  # every word must occur in the event's text
    errors: bool | None = None  # True for failures only, False for all other events
    limit: int | None = 100

    def __post_init__(self) -> None:
        check_several("names", self.names)
        for pattern in self.names:
            if not isinstance(pattern, str):
                raise InvalidInput(f"names has {pattern!r:.80}, which is not a pattern; use strings such as 'file.*'")
        for field, text in (("session", self.session), ("agent", self.agent), ("user", self.user), ("text", self.text)):
            if text is not None and not isinstance(text, str):
                raise InvalidInput(f"{field} is {text!r:.80}, which is not a string")
            if text is not None and not text.isascii():
                check_unicode(field, text)
        for field, at in (("since", self.since), ("until", self.until)):
            if at is not None and not isinstance(at, datetime):
                raise InvalidInput(f"{field} is {at!r:.80}, which is not a time; use an aware datetime")
            if at is not None and at.tzinfo is None:
                raise InvalidInput(f"{at.isoformat()} has no time zone; use an aware datetime")
        if self.limit is not None and (not isinstance(self.limit, int) or self.limit < 0):
            raise InvalidInput(f"a limit of {self.limit!r:.80} is not possible; use 0 or more, or None for all")


class Appended(msgspec.Struct, frozen=True):
    """The result of an append: how many events were new, and how many the store already had with the same content."""

    stored: int = 0
    repeated: int = 0


# -- Tombstones -----------------------------------------------------------------------------------------------


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The data of a tombstone, which is the event that replaces a purged one.

    It has the id of the purge, its reason, and the ids of the events that the purged event superseded or retracted.
    """

    purge: EventId  # the event that records the purge
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)]
    supersedes: tuple[EventId, ...] = ()
    retracts: EventId | None = None


def is_tombstone(event: Event) -> bool:
    return event.name == PURGED


def make_tombstone(event: Event, tombstone: Tombstone) -> Event:
    """Return the event that replaces a purged one: it has the same id, time and position, but no content or context.

    `tombstone` has the id of the purge and its reason.
    """
    body = msgspec.json.encode(_without_content(event, tombstone))
    return msgspec.structs.replace(event, name=PURGED, body=body, context=EMPTY, error=False)


def _without_content(event: Event, tombstone: Tombstone) -> Tombstone:
    """Return `tombstone` with the ids of the events that `event` superseded or retracted."""
    ended = EndedData()
    if event.name in (CRYSTAL, RETRACTED, PURGED):
        with suppress(msgspec.DecodeError):  # an invalid event supersedes nothing
            ended = _ended_decoder.decode(event.body)
    retracts = {RETRACTED: ended.mark, PURGED: ended.retracts}.get(event.name)
    return msgspec.structs.replace(
        tombstone,
        supersedes=tuple(filter(is_id, ended.supersedes)),
        retracts=retracts if retracts is not None and is_id(retracts) else None,
    )


def tombstone_of(event: Event) -> Tombstone:
    """Decode the data of a tombstone.

    Raises InvalidEvent if the event is not a tombstone, or if it still has a context or content.
    """
    try:
        tombstone = _tombstone_decoder.decode(event.body)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} is not a tombstone: {error}") from error
    for identifier in (tombstone.purge, *tombstone.supersedes, *([tombstone.retracts] if tombstone.retracts else ())):
        split_id(identifier)
    if event.context != EMPTY:
        raise InvalidEvent(f"event {event.id!r} is a tombstone with a context; a tombstone must not have one")
    return tombstone


class EndedData(msgspec.Struct):
    """The ids of the events that an event supersedes or retracts, decoded from its data."""

    supersedes: tuple[EventId, ...] = ()
    mark: EventId | None = None  # the mark or crystal that a retraction ends
    retracts: EventId | None = None  # the same, in the tombstone of a retraction


_tombstone_decoder = msgspec.json.Decoder(Tombstone)
_ended_decoder = msgspec.json.Decoder(EndedData)
