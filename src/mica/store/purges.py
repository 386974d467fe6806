"""Purges: which events they select, and how a store applies them to events that arrive later.

A `Selection` selects the events of a purge. Those that are stored become tombstones. Others may still wait in the files
of another process or on another machine, so the store also keeps a `Purge`, and its `append` turns matching events into
tombstones when they arrive. An event that records recalled text (text that mica gave to an agent) may repeat purged
text, so it becomes a tombstone even if it is newer than the purge. A stored `Purge` contains no purged text, only
salted digests.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from typing import Protocol, TypeVar

import msgspec

from mica.errors import InvalidInput
from mica.model.belief import Belief
from mica.model.crystal import Crystal, Waiting
from mica.model.event import Event, EventId, EventQuery, Tombstone, check_unicode, is_tombstone, make_tombstone
from mica.model.mark import Reply
from mica.model.trail import PUBLISHED
from mica.store.query import EVENTS_AT_ONCE, QueriedLog, latest_first

PURGE = "log.purged"  # the event that records a purge
EXPORTED = "log.exported"  # the event that records an export of events to a file
ALLOWED = "log.allowed"  # the event that records that a purged value is allowed again
RECORDS = (PURGE, EXPORTED, ALLOWED, PUBLISHED)
BY_HAND = "purged by hand"  # the reason when none is given
VALUE_CHARACTERS_MAX = 10_000  # a private key has a few thousand; a longer text is a whole event, purged by its id
SALT_BYTES = 16
SPELLED_LETTERS_MIN = 4  # a shorter value matches only literally, because other spellings would be other words
BURY_EVENTS = 500  # per transaction; other writers wait some tens of milliseconds for it
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)  # earlier than every event
FIRST_EVENTS = 5  # shown for confirmation

Quoting = TypeVar("Quoting", Reply, Belief)  # what was made from text, and may contain a purged value

# A value may match from the start of a word, from a punctuation mark or from an underscore.
_BEGINNING = re.compile(r"(?<![^\W_])[^\W_]|[^\w\s]|_")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a purge, which selects the events that meet all of them. Raises InvalidInput if none is set.

    `value` is a text to find in the name of an event, in its context, or in a string or key of its data. It matches
    literally, or as whole words that differ in case, Unicode normalization, spaces, punctuation or separators.
    """

    ids: frozenset[EventId] = frozenset()  # an event must have one of these ids
    value: str | None = None
    session: str | None = None
    agent: str | None = None
    user: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # exclusive

    def __post_init__(self) -> None:
        if not self.conditions:
            raise InvalidInput(
                "nothing is selected, and a purge never removes everything; give ids, a value, a session, an agent, "
                "a user or a time"
            )
        for name in ("since", "until"):
            at = getattr(self, name)
            if not isinstance(at, datetime | None):
                raise InvalidInput(f"{name} is {at!r}, which is not a time; give an aware datetime")
        EventQuery(since=self.since, until=self.until)  # raises for a time without a zone
        for name in ("value", "session", "agent", "user"):
            text = getattr(self, name)
            if not isinstance(text, str | None):
                raise InvalidInput(f"the {name} to purge is {text!r}, which is no text; give a text")
            if text is not None:
                check_unicode(f"the {name} to purge", text)
            if text is not None and not text.strip():
                raise InvalidInput(f"the {name} to purge is {text!r}, which would match nearly everything; give a text")
        if self.value is not None and len(self.value) > VALUE_CHARACTERS_MAX:
            raise InvalidInput(
                f"the value to purge has {len(self.value):,} characters; give {VALUE_CHARACTERS_MAX:,} or fewer, "
                "or the ids of the events"
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidInput(
                f"since {self.since.isoformat()} is not before until {self.until.isoformat()}; exchange them"
            )

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of the conditions that are set."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) not in (None, frozenset()))

    @property
    def texts(self) -> tuple[str, ...]:
        """The value, session, agent and user of the selection, without those that are not set."""
        return tuple(text for text in (self.value, self.session, self.agent, self.user) if text is not None)

    def fits(self, event: Event) -> bool:
        """Return True if the purge selects this event. Tombstones are never selected.

        Records of purges and exports are selected only by id, value, session, agent or user, not by time alone.
        """
        context = event.context
        return (
            not is_tombstone(event)
            and (not self.ids or event.id in self.ids)
            and (self.session is None or context.session == self.session)
            and (self.agent is None or context.agent == self.agent)
            and (self.user is None or context.user == self.user)
            and _is_between(event, self.since, self.until)
            and (self.value is None or _is_in_event(self.value, event))
            and (event.name not in RECORDS or bool(self.ids or self.texts))
        )

    def is_in(self, text: str) -> bool:
        """Return True if `text` contains `value`, literally or in another spelling."""
        return self.value is not None and _contains(text, self.value, FoldedText(self.value).letters)

    def to_purge(self, *, at: datetime, tombstone: Tombstone) -> Purge | None:
        """Return the record that applies this selection to events that arrive later.

        `at` is the time of the purge. `tombstone` has its id and reason. Returns None for a selection by ids, which
        needs no record.
        """
        if self.ids:
            return None
        salt = secrets.token_bytes(SALT_BYTES)
        value, is_spelled = (None, False) if self.value is None else _text_to_match(self.value)
        return Purge(
            tombstone=tombstone,
            at=at,
            salt=salt,
            session=_keyed_digest(self.session, salt),
            agent=_keyed_digest(self.agent, salt),
            user=_keyed_digest(self.user, salt),
            value=_keyed_digest(value, salt),
            value_characters=len(value or ""),
            is_spelled=is_spelled,
            since=self.since,
            until=self.until,
        )


def _text_to_match(value: str) -> tuple[str, bool]:
    """Return the text that a purge looks for, and whether it is found in every spelling of the value.

    It is the letters and digits of the value. If there are fewer than SPELLED_LETTERS_MIN of them, it is the value
    itself, which is then found only as it is spelled.
    """
    letters = FoldedText(value).letters
    return (letters, True) if len(letters) >= SPELLED_LETTERS_MIN else (value.strip(), False)


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """The stored record of a purge. `append` applies it to events that happened before the purge but arrive later."""

    tombstone: Tombstone = msgspec.field(name="told")
    at: datetime
    salt: bytes
    session: bytes | None = None  # session, agent, user and value are keyed digests
    agent: bytes | None = None
    user: bytes | None = None
    value: bytes | None = None
    value_characters: int = 0
    is_spelled: bool = False  # the digest covers only letters and digits, so that it matches any spelling
    since: datetime | None = None
    until: datetime | None = None
    lifts: EventId | None = None  # set if this record only allows the value of that purge again; it selects no events
    is_lifted: bool = False  # another record allows the value again

    @property
    def is_of_value(self) -> bool:
        """True if the only condition of this purge is a value, which was not allowed again since.

        Such a purge also selects events that are newer than the purge, if they record recalled text.
        """
        others = self.session, self.agent, self.user, self.since, self.until
        return self.value is not None and not self.is_lifted and all(other is None for other in others)

    def is_of(self, value: str) -> bool:
        """Return True if `value` is the only condition of the purge, and it was not allowed again since."""
        text, is_spelled = _text_to_match(value)
        return self.is_of_value and self.is_spelled == is_spelled and _keyed_digest(text, self.salt) == self.value

    def lift(self, *, at: datetime, tombstone: Tombstone) -> Purge:
        """Return a record that allows the value of this purge again. Events from before the purge stay purged.

        `at` is the time of the record, and `tombstone` has its id.
        """
        return Purge(tombstone=tombstone, at=at, salt=b"", lifts=self.tombstone.purge, until=BEFORE_ALL)

    def fits(self, event: Event, texts: Iterable[SearchedText] | None = None) -> bool:
        """Return True if this purge selects the event.

        A match begins at the start of a word or at a punctuation mark, never inside a word. `texts` are the strings of
        the event, which a caller that checks several purges can prepare once.
        """
        if self.lifts is not None:
            return False
        is_late = event.at > self.at and not (self.is_of_value and is_recalled(event))
        if is_late or event.id == self.tombstone.purge or not _is_between(event, self.since, self.until):
            return False
        named = [
            (wanted, getattr(event.context, name))
            for name in ("session", "agent", "user")
            if (wanted := getattr(self, name)) is not None
        ]
        if event.name in RECORDS and not named and self.value is None:
            return False
        if any(_keyed_digest(text, self.salt) != wanted for wanted, text in named):
            return False
        if texts is None:
            texts = map(SearchedText, _strings(event))
        return self.value is None or any(map(self.is_in, texts))

    def is_in(self, searched: SearchedText) -> bool:
        """Return True if `searched` contains the value of this purge."""
        size, text = self.value_characters, searched.text
        if len(text) < size:
            return False
        if self.is_spelled:
            return any(_keyed_digest(part, self.salt) == self.value for part in searched.folded.parts(size))
        return any(_keyed_digest(part, self.salt) == self.value for part in self._parts(text))

    def written_in(self, text: str) -> str | None:
        """Return the value as it is spelled in `text`; None if `text` does not contain it."""
        if not self.is_spelled:
            return next((part for part in self._parts(text) if _keyed_digest(part, self.salt) == self.value), None)
        written = unicodedata.normalize("NFKC", text)
        words = [(word.start(), word.end(), word[0].casefold()) for word in _LETTERS.finditer(written)]
        for number, (start, _, _) in enumerate(words):
            letters = ""
            for _, end, word in words[number:]:
                letters += word
                if len(letters) == self.value_characters and _keyed_digest(letters, self.salt) == self.value:
                    return written[start:end]
                if len(letters) >= self.value_characters:
                    break
        return None

    def _parts(self, text: str) -> Iterator[str]:
        """Yield every part of a text that has the length of the value and starts at a word or punctuation mark."""
        size = self.value_characters
        starts = (match.start() for match in _BEGINNING.finditer(text, 0, max(0, len(text) - size + 1)))
        return (text[start : start + size] for start in starts)


class PurgeFilter:
    """All stored purges of a space, which `append` applies to every new event.

    Checking an event that is newer than all purges costs one comparison, or more if the event records recalled text.
    """

    def __init__(self, purges: Iterable[Purge] = ()) -> None:
        by_id = {purge.tombstone.purge: purge for purge in purges}
        for lifted in [each for purge in by_id.values() if (each := purge.lifts) is not None and each in by_id]:
            by_id[lifted] = msgspec.structs.replace(by_id[lifted], is_lifted=True)
        self.purges = tuple(sorted(by_id.values(), key=lambda purge: (purge.at, purge.tombstone.purge)))
        self.latest = self.purges[-1].at if self.purges else None
        self._values = [purge for purge in self.purges if purge.is_of_value]
        self._has_values = any(purge.value is not None for purge in self.purges)

    @property
    def checks_recalled(self) -> bool:
        """True if events that record recalled text are checked for purged values, even those newer than all purges."""
        return bool(self._values)

    def apply(self, event: Event) -> Event:
        """Return the event, or its tombstone if a purge selects it."""
        if self.latest is None or is_tombstone(event):
            return event
        if event.at > self.latest and not (self.checks_recalled and is_recalled(event)):
            return event
        texts = [SearchedText(text) for text in _strings(event)] if self._has_values else None
        purge = next((purge for purge in self.purges if purge.fits(event, texts)), None)
        return event if purge is None else make_tombstone(event, purge.tombstone)

    def without_purged(self, quoting: Iterable[Quoting]) -> list[Quoting]:
        """Return the replies or beliefs that contain no purged value, so that none of them brings one back."""
        return [each for each in quoting if not self._values or not any(map(self.find_purge, _quoted_strings(each)))]

    def find_purge(self, text: str) -> Purge | None:
        """Return a purge whose value occurs in `text`, or None if no purged value does."""
        if not self._values:
            return None
        searched = SearchedText(text)
        return next((purge for purge in self._values if purge.is_in(searched)), None)


def is_recalled(event: Event) -> bool:
    """Return True if the event records recalled text, which repeats text that is already in the log."""
    return event.origin == "recalled"


def is_same_or_tombstone(stored: Event, event: Event) -> bool:
    """Return True if two events with the same id are equal apart from the position, or if either is a tombstone."""
    if is_tombstone(stored) or is_tombstone(event):
        return True
    return msgspec.structs.replace(stored, position=None) == msgspec.structs.replace(event, position=None)


# -- Stored events that match ------------------------------------------------------------------------------------


class SearchedLog(QueriedLog, Protocol):
    """The part of `EventLog` that `find` and `fitting` need."""

    async def get(self, identifier: EventId) -> Event | None: ...
    async def read(self, after: int, *, limit: int) -> list[Event]: ...


class PurgeMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of the stored events that a selection matches, which is shown before the purge is confirmed."""

    ids: tuple[EventId, ...]
    names: dict[str, int]  # the number of events with each name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # the oldest events, oldest first
    spellings: dict[str, int] = {}  # spellings of the value and their number of events, most frequent first


async def find(log: SearchedLog, selection: Selection) -> PurgeMatch:
    """Find the stored events that the selection matches now, and summarize them for confirmation."""
    ids: list[EventId] = []
    names: Counter[str] = Counter()
    sessions: set[str] = set()
    first: list[Event] = []
    spellings: Counter[str] = Counter()
    async for events in fitting(log, selection):
        for event in events if selection.value is not None else ():
            spellings.update(_spellings(event, selection.value or ""))
        ids += [event.id for event in events]
        names.update(event.name for event in events)
        sessions.update(event.context.session for event in events if event.context.session is not None)
        first = sorted([*first, *events], key=lambda event: (event.at, event.position or 0))[:FIRST_EVENTS]
    return PurgeMatch(
        ids=tuple(ids),
        names=dict(sorted(names.items())),
        sessions=tuple(sorted(sessions)),
        first=tuple(first),
        spellings=dict(sorted(spellings.items(), key=lambda each: (-each[1], each[0]))),
    )


async def fitting(log: SearchedLog, selection: Selection) -> AsyncIterator[list[Event]]:
    """Yield the stored events that the selection matches, in batches, each event once."""
    if selection.ids:
        found = [await log.get(identifier) for identifier in sorted(selection.ids)]
        read = _once([event for event in found if event is not None])
    elif selection.conditions == ("value",):
        read = _whole_log(log)
    else:
        read = latest_first(
            log,
            EventQuery(
                session=selection.session,
                agent=selection.agent,
                user=selection.user,
                since=selection.since,
                until=selection.until,
            ),
        )
    async for events in read:
        if fits := [event for event in events if selection.fits(event)]:
            yield fits


async def _once(events: list[Event]) -> AsyncIterator[list[Event]]:
    yield events


async def _whole_log(log: SearchedLog) -> AsyncIterator[list[Event]]:
    after = 0
    while events := await log.read(after, limit=EVENTS_AT_ONCE):
        yield events
        after = events[-1].position or 0


# -- The strings of an event -----------------------------------------------------------------------------------------


def _is_between(event: Event, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or event.at >= since) and (until is None or event.at < until)


class FoldedText:
    """The letters and digits of a text with upper and lower case made equal, and the bounds of its words."""

    def __init__(self, text: str) -> None:
        self.letters = ""
        self._begins: list[int] = []
        self._ends: set[int] = set()
        words = _LETTERS.findall(unicodedata.normalize("NFKC", text).casefold())
        length = 0
        for word in words:
            self._begins.append(length)
            length += len(word)
            self._ends.add(length)
        self.letters = "".join(words)

    def parts(self, size: int) -> Iterator[str]:
        """Yield every sequence of consecutive whole words that has exactly `size` letters and digits."""
        return (self.letters[begin : begin + size] for begin in self._begins if begin + size in self._ends)


class SearchedText:
    """A text that is searched for several values. Its `FoldedText`, which takes most of the time, is made only once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> FoldedText:
        return FoldedText(self.text)


_LETTERS = re.compile(r"[^\W_]+")


def _is_in_event(value: str, event: Event) -> bool:
    letters = FoldedText(value).letters
    if len(letters) < SPELLED_LETTERS_MIN:
        return any(value in text for text in _strings(event, needle=value.encode("utf-8", "surrogatepass")))
    return any(_contains(text, value, letters) for text in _strings(event))


def _contains(text: str, value: str, letters: str) -> bool:
    """Return True if a text contains a value literally, or, for a value that is not short, in another spelling."""
    return value in text or (len(letters) >= SPELLED_LETTERS_MIN and letters in FoldedText(text).parts(len(letters)))


def _spellings(event: Event, value: str) -> set[str]:
    """Return the spellings in which a value occurs in an event."""
    letters = FoldedText(value).letters
    found: set[str] = set()
    for text in _strings(event):
        if value in text:
            found.add(value)
        if len(letters) < SPELLED_LETTERS_MIN:
            continue
        written = unicodedata.normalize("NFKC", text)
        words = [(word.start(), word.end(), word[0].casefold()) for word in _LETTERS.finditer(written)]
        for number, (start, *_) in enumerate(words):
            length, last = 0, number
            while last < len(words) and length < len(letters) and letters.startswith(words[last][2], length):
                length += len(words[last][2])
                last += 1
            if length == len(letters):
                found.add(written[start : words[last - 1][1]])
    # Punctuation around a value belongs to no word, so the bare words are not another spelling.
    return {each for each in found if each == value or each not in value or value not in found}


def _strings(event: Event, needle: bytes = b"") -> Iterator[str]:
    """Yield every string of an event. The data is skipped if it cannot contain the bytes `needle`."""
    yield event.name
    context = event.context
    for name in context.__struct_fields__:
        if name != "labels" and (text := getattr(context, name)) is not None:
            yield text
    for label in context.labels:
        yield from label
    # Without a backslash, every string is in the JSON literally.
    if needle in event.body or b"\\" in event.body:
        yield from _texts(event.data)


def _quoted_strings(quoting: Reply | Belief) -> Iterator[str]:
    """Yield every string of a reply or a belief that may come from an event or from another system."""
    if isinstance(quoting, Belief):
        names = quoting.session, quoting.user, quoting.agent
        yield from (quoting.text, quoting.reason, *quoting.keys, *(name for name in names if name is not None))
        return
    yield quoting.concept
    try:
        yield from _texts(msgspec.json.decode(quoting.body))
    except msgspec.DecodeError:  # the body is not JSON
        yield quoting.body.decode("utf-8", "replace")


def _texts(value: object) -> Iterator[str]:
    """Yield every string and every key of a JSON document."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _keyed_digest(text: str | None, salt: bytes) -> bytes | None:
    if text is None:
        return None
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()


def steps(identifiers: Sequence[EventId]) -> Iterator[Sequence[EventId]]:
    """Yield `identifiers` in batches of BURY_EVENTS. Each batch is purged in a transaction of its own."""
    for start in range(0, len(identifiers), BURY_EVENTS):
        yield identifiers[start : start + BURY_EVENTS]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a purge or of its dry run."""

    events: int
    ids: tuple[EventId, ...]  # now tombstones
    names: dict[str, int]  # the number of events with each name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # the oldest events, to recognise them; empty after the purge
    spellings: dict[str, int] = {}  # spellings of the value and their number of events; empty after the purge
    record: EventId | None = None  # the event that records the purge; None for a dry run
    applies_later: bool = False  # the purge was recorded, so it also applies to matching events that arrive later
    exports: tuple[str, ...] = ()  # rewritten files, including command files
    removed: tuple[str, ...] = ()  # removed damaged segments, and command files of removed trails
    remade: tuple[Crystal, ...] = ()  # crystals that were made again from the remaining sources
    ended: tuple[Waiting, ...] = ()  # crystals of purged events that were not made again, with the reasons
    unreached: tuple[str, ...] = ()  # what is left for the person to do, one sentence each
