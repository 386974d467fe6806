"""The values mica is made of: frozen, plain, without I/O.

A context says where an event came from, an event says what happened, a mark is an event with an observation.
Whatever enters from outside is checked here once, at the edge.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Literal, NewType, TypeAlias, cast

import msgspec

from mica.errors import InvalidContext, InvalidEvent, InvalidInput

EventId = NewType("EventId", str)
ContextId = NewType("ContextId", str)
WriterId = NewType("WriterId", str)

Origin = Literal["user", "agent", "tool", "recalled", "imported"]  # who said it; recalled text is never evidence
ORIGINS: tuple[Origin, ...] = ("user", "agent", "tool", "recalled", "imported")
Clock: TypeAlias = Callable[[], datetime]

MARK = "mark"
REFUSED = "event.refused"  # stands in place of an event that could not be stored as it was
CRYSTAL = "crystal.made"  # the event that a crystal is
RETRACTED = "mark.retracted"  # says that a mark, or a crystal, does not hold any more, and why
SESSION_ENDED = "session.ended"  # without it, a session is over when nobody has written for a while
EPOCH_OPENED = "epoch.opened"  # says that a mark is a milestone, where it is found among many
MILESTONE = "milestone"  # the tag that ends an epoch and opens the next
PURGED = "event.purged"  # stands in place of an event whose content was purged
NAME_CHARACTERS_MAX = 200  # a name is a word for a kind of event; longer ones are data in the wrong place
KNOWN_MAX = 4_096  # labels and fields remembered as checked,
KNOWN_BYTES_MAX = 512  # of contexts up to this size: two megabytes in all
LABEL_CHARACTERS_MAX = 4_096  # a context is shared by many events and carried in headers; texts belong in events
REASON_CHARACTERS_MAX = 200  # of a purge: it stands in every tombstone
DEPTH_MAX = 1_000_000  # of a chain; a deeper one is a loop or an attack
NESTING_MAX = 400  # of data: readers decode it at any depth of their own, and Python stops at a thousand
PAYLOAD_BYTES_MAX = 256 * 2**20  # SQLite refuses rows near 1 GB, and a payload is held in memory a few times over
SEARCHABLE_CHARACTERS_MAX = 100_000  # of one text; a pasted log of megabytes is kept whole, but found by its beginning

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in lower case
_EVENT_ID = re.compile(r"([0-7][0-9a-hjkmnp-tv-z]{25})-([0-7][0-9a-f]{15})")
_EVENT_NAME = re.compile(r"[^\s*?\x00-\x1f\ud800-\udfff]+")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    return datetime.now(UTC)


def microseconds(at: datetime) -> int:
    """A time as it is stored: microseconds since 1970."""
    return (at - EPOCH) // MICROSECOND


def left_after(age: timedelta, *, half_life_days: float) -> float:
    """What age leaves of a worth: half of it after every half-life, all of what is yet to come."""
    return float(0.5 ** (max(age, timedelta(0)) / timedelta(days=half_life_days)))


# -- Ids ------------------------------------------------------------------------------------------------------


def new_writer() -> WriterId:
    """A new writer: 48 bits of time, so that ids sort by age, and 80 random bits."""
    return WriterId(_base32(time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)))


def writer_named(name: str) -> WriterId:
    """The writer of this name: the same everywhere, so that an import repeated elsewhere makes the same ids."""
    return WriterId(_base32(int.from_bytes(blake2b(name.encode(), digest_size=16).digest())))


def sequence_named(name: str) -> int:
    """The sequence of this name within a named writer, 63 bits of its hash."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1


def event_id(writer: WriterId, sequence: int) -> EventId:
    return EventId(f"{writer}-{sequence:016x}")


@lru_cache(maxsize=16_384)
def split_id(identifier: str) -> tuple[WriterId, int]:
    """The writer and the sequence that make this id. Raises InvalidEvent when it is not one."""
    match = _EVENT_ID.fullmatch(str(identifier))
    if match is None:
        raise InvalidEvent(f"{identifier!r} is not an event id; ids look like {event_id(new_writer(), 1)!r}")
    return WriterId(match[1]), int(match[2], 16)


def split_ids(identifiers: Iterable[str]) -> list[tuple[WriterId, int]]:
    """The same for ids that nobody will ask for again: in half the time, because none is remembered."""
    found = []
    for identifier in identifiers:
        match = _EVENT_ID.fullmatch(str(identifier))
        found.append(split_id(identifier) if match is None else (WriterId(match[1]), int(match[2], 16)))
    return found


def is_id(text: str) -> bool:
    """Whether this is the id of some event."""
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
    """Where an event came from. Stored once, named by its content, shared by all events that have it."""

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
        """Raise InvalidContext when a field is not what a context holds."""
        try:
            _decode_context(_encode_context(self))  # the quickest way to check all of it
        except (TypeError, ValueError):
            for name in FIELDS:
                if (value := getattr(self, name)) is not None:
                    _check_label(name, value)
            for name, value in self.labels:
                _check_label(name, value)
            raise

    def with_(  # noqa: PLR0917 - by place: a block is opened for every few events
        self,
        labels: Mapping[str, str] | None = None,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        task: str | None = None,
        correlation: str | None = None,
    ) -> Context:
        """This context with some fields replaced and labels added. Raises InvalidContext on a bad value."""
        if self is not EMPTY:
            session = self.session if session is None else session
            agent = self.agent if agent is None else agent
            user = self.user if user is None else user
            task = self.task if task is None else task
            correlation = self.correlation if correlation is None else correlation
            labels = {**dict(self.labels), **labels} if labels else dict(self.labels)
        pairs = tuple(labels.items()) if labels else ()
        known = _known_values
        # Whether a correlation is a label by the quickest look at it; others may be one, too.
        if correlation is None or (
            type(correlation) is str and 0 < len(correlation) <= LABEL_CHARACTERS_MAX and correlation.isascii()
        ):
            try:
                return Context(
                    session=known[session],
                    agent=known[agent],
                    user=known[user],
                    task=known[task],
                    correlation=correlation,
                    labels=_known_labels[pairs],
                )
            except (KeyError, TypeError):  # it is new; or cannot be hashed, and is no text
                pass
        return _checked(pairs, (session, agent, user, task, correlation))


def _as_text(value: object) -> str:
    """A text that is more than a text, as text."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} is no text")


FIELDS = ("session", "agent", "user", "task", "correlation")
EMPTY = Context()
# What was checked before: of a new context, all but its correlation is known.
_Pairs: TypeAlias = tuple[tuple[str, str], ...]
_known_labels: dict[_Pairs, _Pairs] = {}  # as they were given: in order
_known_values: dict[str | None, str | None] = {}  # itself, as plain text
_encode_context = msgspec.msgpack.Encoder(enc_hook=_as_text).encode
_decode_context = msgspec.msgpack.Decoder(Context).decode


@lru_cache(maxsize=4_096)
def _context_id(context: Context) -> ContextId:
    return ContextId(blake2b(msgspec.json.encode(context), digest_size=16).hexdigest())


def _checked(labels: _Pairs, fields: tuple[str | None, ...]) -> Context:
    """A context of these labels and fields, as plain text. Raises InvalidContext on a bad value."""
    session, agent, user, task, correlation = fields
    given = Context(
        session=session, agent=agent, user=user, task=task, correlation=correlation, labels=tuple(sorted(labels))
    )
    try:
        encoded = _encode_context(given)
        context = _decode_context(encoded)
    except (TypeError, ValueError):
        given.check()  # says what is wrong
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
            raise InvalidContext(f"context {name}={value!r} is a mapping; give labels as keywords: context({keywords})")
        raise InvalidContext(f"context {name}={value!r} is a {type(value).__name__}; give it as text")
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
    """How an event descends; brothers have it in common."""

    depth: int = 0
    root_writer: WriterId | None = None  # None: the event itself is the root
    root_sequence: int = 0


ROOT = Descent()


class Ref(msgspec.Struct, frozen=True, gc=False):
    """Where an event stands in its chain: enough to be a parent, here or in another process."""

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
    """The place of an event of this id."""
    if root_id == identifier:
        return Ref(*split_id(identifier), Descent(depth) if depth else ROOT)
    return Ref(*split_id(identifier), Descent(depth, *split_id(root_id)))


def descent_from(parent: Ref) -> Descent:
    """How the children of an event descend."""
    above = parent.descent
    if above.root_writer is None:
        return Descent(above.depth + 1, parent.writer, parent.sequence)
    return Descent(above.depth + 1, above.root_writer, above.root_sequence)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Something that happened. Never changed. Made by `make_event`, which checks it."""

    id: EventId
    name: str
    at: datetime
    body: bytes  # its data as JSON, as it was when it happened
    context: Context
    root_id: EventId
    parent_id: EventId | None = None
    depth: int = 0
    origin: Origin = "agent"
    error: bool = False
    position: int | None = None  # its place in the store's log, in commit order; None until it is stored

    @property
    def data(self) -> dict[str, object]:
        """What is known of it. A new value each time: changing it changes no event."""
        return decode_data(self.body)

    @property
    def ref(self) -> Ref:
        return ref_of(self.id, self.root_id, self.depth)

    @property
    def place(self) -> tuple[datetime, bool, int, str]:
        """Where it stands among others: by time, then as it was stored; what is not stored yet comes last."""
        return self.at, self.position is None, self.position or 0, self.id

    @property
    def number(self) -> str:
        """Its position, for people."""
        return f"#{self.position or '…'}"

    @property
    def correlation(self) -> str:
        """What this event's chain is called: the correlation of its context, else the id of its root."""
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
    """A whole event, or InvalidEvent with what is wrong. Its data is a copy: what the caller does later is his."""
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


@lru_cache(maxsize=4_096)
def check_name(name: object) -> None:
    """Raise InvalidEvent when nobody could ask for an event of this name."""
    if not isinstance(name, str):
        raise InvalidEvent(f"event name {name!r} is a {type(name).__name__}; give a text")
    if len(name) > NAME_CHARACTERS_MAX or not _EVENT_NAME.fullmatch(name):
        raise InvalidEvent(
            f"event name {name[:60]!r} is not usable; give 1 to {NAME_CHARACTERS_MAX} characters without blanks, * or ?"
        )


def check_time(name: str, at: datetime) -> None:
    if not isinstance(at, datetime):
        raise InvalidEvent(f"event {name!r} is dated {at!r:.80}, which is no time; give an aware datetime")
    if at.tzinfo is None:
        raise InvalidEvent(f"event {name!r} is dated {at.isoformat()} without a time zone; use an aware datetime")


def origin_number(name: str, origin: Origin) -> int:
    """The number by which an origin is stored."""
    try:
        return ORIGINS.index(origin)
    except ValueError:
        known = ", ".join(ORIGINS)
        raise InvalidEvent(f"event {name!r} has origin {origin!r}; use one of {known}") from None


def encode_data(name: str, data: Mapping[str, object]) -> bytes:
    """The data of an event as JSON. Raises InvalidEvent where JSON would lose or change it."""
    if type(data) is not dict and not isinstance(data, Mapping):
        raise InvalidEvent(f"data of event {name!r} is a {type(data).__name__}; give a mapping with text keys")
    check_keys(name, data)
    try:
        encoded = msgspec.json.encode(data)
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"data of event {name!r} holds {_no_unicode(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            f"data of event {name!r} cannot be written as JSON: {error}; "
            "convert it to text, numbers, lists or mappings first"
        ) from error
    check_encoded(name, data, encoded)
    return encoded


def _no_unicode(error: UnicodeEncodeError) -> str:
    """What is wrong with a text that cannot be written, and what to do."""
    found = ord(error.object[error.start])
    byte = f"the byte 0x{found - 0xDC00:02x}" if 0xDC80 <= found <= 0xDCFF else f"half of a character, U+{found:04X},"
    return (
        f"a text with {byte} at character {error.start + 1:,}, which is not UTF-8; decode it by its own encoding first"
    )


def check_keys(name: str, data: Mapping[str, object]) -> None:
    """Raise InvalidEvent when a key of data is no text."""
    for key in data:
        if not isinstance(key, str):
            raise InvalidEvent(f"data of event {name!r} has the key {key!r}; keys are texts")


def check_encoded(name: str, data: Mapping[str, object], encoded: bytes) -> None:
    """Raise InvalidEvent when the data of an event, as JSON, is not what it was, or more than everyone can read."""
    if b"null" in encoded and (path := not_a_number(data)):  # msgspec writes NaN and infinity as null
        raise InvalidEvent(
            f"data of event {name!r} has a number that JSON cannot hold at {path}; give it as text or leave it out"
        )
    if len(encoded) > NESTING_MAX:  # each level takes a byte at least
        check_nesting(name, data)
    if len(encoded) > PAYLOAD_BYTES_MAX:
        raise InvalidEvent(
            f"data of event {name!r} takes {len(encoded):,} bytes; {PAYLOAD_BYTES_MAX:,} are allowed: "
            "store a file and emit its path"
        )


_decoder = msgspec.json.Decoder(dict[str, object])


_MAPPINGS = (dict, Mapping)  # the usual one first: asking for a Mapping takes ten times as long
_NESTED = (dict, list, tuple, Mapping)
_SCALARS = frozenset([str, int, float, bool, type(None)])


def check_nesting(name: str, data: Mapping[str, object]) -> None:
    """Raise InvalidEvent when data is nested so deeply that not everyone could read it."""
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
    raise InvalidEvent(f"data of event {name!r} is nested more than {NESTING_MAX} deep; flatten it, or give it as text")


def not_a_number(value: Mapping[str, object] | Sequence[object], path: str = "$") -> str | None:
    """Where the first number stands that JSON cannot hold."""
    for key, child in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(child, float):
            if child - child != 0:
                return f"{path}.{key}"
        elif isinstance(child, dict | list | tuple) and (found := not_a_number(child, f"{path}.{key}")):
            return found
    return None


@lru_cache(maxsize=1_024)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """What an event name must match: `*` stands for any characters, `?` for one, everything else for itself."""
    return re.compile(
        "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", pattern))
    )


def check_several(field: str, given: object) -> None:
    """Raise InvalidInput when one text is given where several things are asked for: its letters would be taken."""
    if isinstance(given, str | bytes):
        raise InvalidInput(f"{field} is {given!r:.80}, one text; give several, as {field}=[{given!r:.80}]")


def check_unicode(field: str, text: str) -> None:
    """Raise InvalidInput when a text cannot be written in UTF-8, as bytes of another encoding on a command line."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{field} is {text!r:.80}: {_no_unicode(error)}") from error


def check_budget(what: str, budget_tokens: object) -> None:
    """Raise InvalidInput when this is no number of tokens."""
    if not isinstance(budget_tokens, int) or isinstance(budget_tokens, bool) or budget_tokens < 1:
        raise InvalidInput(f"a {what} cannot have {budget_tokens!r} tokens; give a whole number, 1 or more")


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read. Every given field must hold; the latest `limit` are returned, oldest first.

    Raises InvalidInput for what is no text, no list of patterns, no time with a zone, or no limit.
    """

    session: str | None = None
    agent: str | None = None
    user: str | None = None
    names: tuple[str, ...] = ()  # patterns, any of which may match
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    text: str | None = None  # every word must occur in the event's text
    errors: bool | None = None
    limit: int | None = 100

    def __post_init__(self) -> None:
        check_several("names", self.names)
        for pattern in self.names:
            if not isinstance(pattern, str):
                raise InvalidInput(f"names hold {pattern!r:.80}, which is no pattern; give texts, as 'file.*'")
        for field, text in (("session", self.session), ("agent", self.agent), ("user", self.user), ("text", self.text)):
            if text is not None and not isinstance(text, str):
                raise InvalidInput(f"{field} is {text!r:.80}, which is no text")
            if text is not None and not text.isascii():
                check_unicode(field, text)
        for field, at in (("since", self.since), ("until", self.until)):
            if at is not None and not isinstance(at, datetime):
                raise InvalidInput(f"{field} is {at!r:.80}, which is no time; give an aware datetime")
            if at is not None and at.tzinfo is None:
                raise InvalidInput(f"{at.isoformat()} has no time zone; use an aware datetime")
        if self.limit is not None and (not isinstance(self.limit, int) or self.limit < 0):
            raise InvalidInput(f"a limit of {self.limit!r:.80} is not possible; give 0 or more, or None for all")


class Appended(msgspec.Struct, frozen=True):
    """What one append did. Repeated events were there already, the same to the letter."""

    stored: int = 0
    repeated: int = 0


# -- Work that several processes share -------------------------------------------------------------------------


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of background work that is to be done, and who does it."""

    kind: str
    about: str = ""  # which of this kind: a session, a day; empty when there is only one
    due_at: datetime
    owner: str | None = None  # who holds it, or held it last without finishing; None: nobody
    held_until: datetime | None = None  # by the store's clock; then another may have it


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to do a piece of work, until a time. Only this very claim can finish it."""

    id: str
    kind: str
    about: str
    due_at: datetime
    owner: str
    held_until: datetime  # by the store's clock


# -- Tombstones -----------------------------------------------------------------------------------------------


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is left to say of a purged event, apart from its place: what it ended stays ended."""

    purge: EventId  # the event that records the purge
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)]
    supersedes: tuple[EventId, ...] = ()
    retracts: EventId | None = None


def is_tombstone(event: Event) -> bool:
    return event.name == PURGED


def tombstone(event: Event, told: Tombstone) -> Event:
    """What stands in place of a purged event: its id, its time and its place, nothing of its content."""
    body = msgspec.json.encode(_left(event, told))
    return msgspec.structs.replace(event, name=PURGED, body=body, context=EMPTY, error=False)


def _left(event: Event, told: Tombstone) -> Tombstone:
    """What a tombstone says: ids and nothing else of the content."""
    ended = _Ended()
    if event.name in (CRYSTAL, RETRACTED, PURGED):
        with suppress(msgspec.DecodeError):  # one that no store takes ends nothing
            ended = _ended_decoder.decode(event.body)
    retracts = {RETRACTED: ended.mark, PURGED: ended.retracts}.get(event.name)
    return msgspec.structs.replace(
        told,
        supersedes=tuple(filter(is_id, ended.supersedes)),
        retracts=retracts if retracts is not None and is_id(retracts) else None,
    )


def tombstone_of(event: Event) -> Tombstone:
    """Why an event is gone. Raises InvalidEvent when it is no tombstone, or one with content."""
    try:
        told = _tombstone_decoder.decode(event.body)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} is no tombstone: {error}") from error
    for identifier in (told.purge, *told.supersedes, *([told.retracts] if told.retracts else ())):
        split_id(identifier)
    if event.context != EMPTY:
        raise InvalidEvent(f"event {event.id!r} is a tombstone with a context; a tombstone has no content")
    return told


class _Ended(msgspec.Struct):
    """What an event says that others are no more."""

    supersedes: tuple[EventId, ...] = ()
    mark: EventId | None = None
    retracts: EventId | None = None


_tombstone_decoder = msgspec.json.Decoder(Tombstone)
_ended_decoder = msgspec.json.Decoder(_Ended)


# -- Marks and what a ranker sees of them ----------------------------------------------------------------------


Relation = Literal["causes", "continues", "branches", "fulfills"]
RELATIONS: tuple[Relation, ...] = ("causes", "continues", "branches", "fulfills")  # what led to a mark: the first


class Mark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that carries an observation with intent."""

    id: EventId
    text: str
    at: datetime
    tags: tuple[str, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation | None = None  # what it is to its parent
    origin: Origin = "agent"
    session: str | None = None
    agent: str | None = None
    parent_id: EventId | None = None
    position: int | None = None


def mark_of(event: Event) -> Mark:
    """The mark that this event carries. Raises InvalidEvent when it carries none."""
    body = decode_mark(event)
    return Mark(
        id=event.id,
        text=body.text,
        at=event.at,
        tags=body.tags,
        why=body.why,
        principles=body.principles,
        relation=body.relation or (None if event.parent_id is None else "causes"),
        origin=event.origin,
        session=event.context.session,
        agent=event.context.agent,
        parent_id=event.parent_id,
        position=event.position,
    )


def decode_mark(event: Event) -> _MarkData:
    """What a mark holds. Raises InvalidEvent when the event is none."""
    try:
        return _mark_decoder.decode(event.body)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} is not a mark: {error}") from error


def check_mark(data: Mapping[str, object]) -> None:
    """Raise InvalidEvent when this is not what a mark holds."""
    try:
        msgspec.convert(data, _MarkData)
    except msgspec.ValidationError as error:
        tags = data.get("tags")
        for tag in tags if isinstance(tags, list | tuple) else ():
            if isinstance(tag, str) and not re.search(TAG, tag):
                raise InvalidEvent(
                    f"{tag!r:.80} is no tag; a tag is one word of 1 to {TAG_CHARACTERS_MAX} letters, digits and signs "
                    "among _ . : / + -"
                ) from error
        raise InvalidEvent(f"this is not a mark: {error}; `memory.mark(text)` makes one") from error


TAG_CHARACTERS_MAX = 60
TAG = rf"^[\w.:/+-]{{1,{TAG_CHARACTERS_MAX}}}$"
Tag = Annotated[str, msgspec.Meta(pattern=TAG)]  # a word: it stands in briefs and on command lines


class _MarkData(msgspec.Struct):
    text: str
    tags: tuple[Tag, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation | None = None


_mark_decoder = msgspec.json.Decoder(_MarkData)


def searchable_text(event: Event) -> str | None:
    """The text by which full text finds an event: the beginning of its `text`, and what a mark or crystal says besides.

    Recalled text is never evidence.
    """
    if event.origin == "recalled" or b'"text":' not in event.body:
        return None
    said = _texted_decoder.decode(event.body)
    if not isinstance(said.text, str):
        return None
    more = _said_besides(event.name, said)
    return "\n".join([said.text, *more])[:SEARCHABLE_CHARACTERS_MAX] if more else said.text[:SEARCHABLE_CHARACTERS_MAX]


class _Texted(msgspec.Struct):
    """What may be searched of an event."""

    text: object = None
    why: object = None
    principles: object = None
    significance: object = None
    topics: object = None
    label: object = None


_texted_decoder = msgspec.json.Decoder(_Texted)


def _said_besides(name: str, told: _Texted) -> list[str]:
    """Why a mark matters and what follows from it; of a crystal all that is not its insight."""
    if name == MARK:
        if told.why is None and told.principles is None:
            return []
        said = [told.why, *(told.principles if isinstance(told.principles, list) else ())]
    elif name == CRYSTAL:
        parts = [part for part in (told.significance, told.principles) if isinstance(part, list)]
        said = [each[0] for part in parts for each in part if isinstance(each, list) and each]
        said += [*(told.topics if isinstance(told.topics, list) else ()), told.label]
    else:
        return []
    return [each for each in said if isinstance(each, str) and each]


class Posting(msgspec.Struct, frozen=True, gc=False):
    """One term in one mark, with what a first ranking needs to know of the mark."""

    position: int
    count: int
    length: int  # words in the mark
    session: str | None


class Postings(msgspec.Struct, frozen=True, kw_only=True):
    """The marks that contain a query's terms, and the statistics of all marks in the space."""

    by_term: dict[str, tuple[Posting, ...]]  # every term asked for, in order of position
    marks: int
    mean_length: float
    length_spread: float  # variance of the natural logarithm of the lengths
    containing: dict[str, int] = {}  # how many marks contain a term, where not all of them are listed

    def held(self, term: str) -> int:
        """How many marks contain a term."""
        return self.containing.get(term, len(self.by_term.get(term, ())))

    def with_postings(self, by_term: dict[str, tuple[Posting, ...]]) -> Postings:
        """The same statistics with these postings."""
        return msgspec.structs.replace(self, by_term=by_term)


class Vectors(msgspec.Struct, frozen=True):
    """What a model made of marks: a vector for each, as the model wrote it."""

    count: int  # of all that the store has of this model
    rows: tuple[tuple[int, bytes], ...]  # in order of position


class Text(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A mark as a ranker sees it: its words and its place in its session."""

    mark: Mark
    position: int
    length: int
    ordinal: int  # its number in its session, from 0; neighbours differ by one
    session_length: int  # words in all marks of its session


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a source replied when it was asked about a concept, as a store keeps it for whoever asks next."""

    concept: str
    source: str
    at: datetime  # when it was asked
    position: int  # of the log then
    declared: str  # how the source was declared then
    body: bytes  # its fragments as JSON


# -- Briefs ---------------------------------------------------------------------------------------------------


class Passage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of a brief: a text, what it comes from, and what it costs."""

    text: str
    sources: tuple[EventId, ...]
    tokens: int
    score: float
    at: datetime
    source: str  # the name of the source that offered it
    kind: str = MARK  # what the reader is told it is: prompt, commit, files …
    handle: str = ""  # by which a person can ask for it again
    stands_for: frozenset[EventId] = frozenset()  # what is not shown beside it; the first of `sources` when it is empty
    origins: tuple[tuple[str, str], ...] = ()  # of what other systems state: each source, and where in it


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent is shown now, within a budget, and what is missing from it."""

    query: str
    text: str
    passages: tuple[Passage, ...]
    tokens: int  # of the text, by the estimator of `mica.tokens`
    budget_tokens: int
    left_out: int = 0  # passages that were found and did not fit
    missing: dict[str, str] = {}  # sources that could not answer, and why
    receipt: EventId | None = None  # the event that records this brief
    concepts: tuple[str, ...] = ()  # of which it tells what other systems state
    coherence: float | None = None  # how far those agree, from 0 to 1
    conflicts: tuple[str, ...] = ()  # what lost against something else, in words
    lost: tuple[Passage, ...] = ()  # the same, with what each comes from
    is_compressed: bool = False
    is_off: bool = False  # nothing was told, to compare
