"""What a purge takes, and how it is remembered: what engines share, without a word of what was purged.

A purge chooses events by a `Selection`. Those that are stored become tombstones. Others may still be on their way, in
the segments of another process or on another machine; for them the store keeps the purge, and its append turns them
into tombstones when they arrive. What mica tells is made of what it read, maybe before the purge: a record of it that
says a purged value is taken whenever it was written. A kept `Purge` holds no text that it was asked by, only salted
digests.
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
from typing import Protocol

import msgspec

from mica.errors import InvalidInput
from mica.model.crystal import Crystal, Waiting
from mica.model.event import Event, EventId, EventQuery, Reply, Tombstone, check_unicode, is_tombstone, tombstone
from mica.model.trail import PUBLISHED
from mica.store.backwards import EVENTS_AT_ONCE, latest_first

PURGE = "log.purged"  # records a purge
EXPORTED = "log.exported"  # records a file that holds events
ALLOWED = "log.allowed"  # records that a purged value may be said again
RECORDS = (PURGE, EXPORTED, ALLOWED, PUBLISHED)
BY_HAND = "purged by hand"  # the reason when none is given
VALUE_CHARACTERS_MAX = 10_000  # a private key has some thousand; a longer text is an event, which has an id
SALT_BYTES = 16
SPELLED_LETTERS_MIN = 4  # a shorter value is looked for as it is written: other spellings would be other words
BURY_EVENTS = 500  # in one transaction: others wait for it for some tens of milliseconds
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)
FIRST_EVENTS = 5  # shown before a person agrees

# Where a text that was purged may begin in another: at a word, at a sign, at an underscore.
_BEGINNING = re.compile(r"(?<![^\W_])[^\W_]|[^\w\s]|_")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a purge takes: those that fit every given condition. Raises InvalidInput when none is given.

    A value is a text that occurs in a string or key of the data, in the name or in the context: as it is written, or
    as whole words in another spelling, with other case, accents' encoding, blanks, punctuation or separators.
    """

    ids: frozenset[EventId] = frozenset()  # any of these
    value: str | None = None
    session: str | None = None
    agent: str | None = None
    user: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # exclusive

    def __post_init__(self) -> None:
        if not self.conditions:
            raise InvalidInput(
                "nothing is selected, and a purge never takes everything; give ids, a value, a session, an agent, "
                "a user or a time"
            )
        for name in ("since", "until"):
            at = getattr(self, name)
            if not isinstance(at, datetime | None):
                raise InvalidInput(f"{name} is {at!r}, which is no time; give an aware datetime")
        EventQuery(since=self.since, until=self.until)  # refuses a time without a zone
        for name in ("value", "session", "agent", "user"):
            text = getattr(self, name)
            if not isinstance(text, str | None):
                raise InvalidInput(f"the {name} to purge is {text!r}, which is no text; give a text")
            if text is not None:
                check_unicode(f"the {name} to purge", text)
            if text is not None and not text.strip():
                raise InvalidInput(f"the {name} to purge is {text!r}, which would take nearly everything; give a text")
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
        """The kinds of conditions, without their values."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name) not in (None, frozenset()))

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that every event of this selection holds."""
        return tuple(text for text in (self.value, self.session, self.agent, self.user) if text is not None)

    def fits(self, event: Event) -> bool:
        context = event.context
        return (
            not is_tombstone(event)
            and (not self.ids or event.id in self.ids)
            and (self.session is None or context.session == self.session)
            and (self.agent is None or context.agent == self.agent)
            and (self.user is None or context.user == self.user)
            and _is_between(event, self.since, self.until)
            and (self.value is None or _contains(event, self.value))
            and (event.name not in RECORDS or bool(self.ids or self.texts))
        )

    def is_said(self, text: str) -> bool:
        """Whether a text says the value."""
        return self.value is not None and _says(text, self.value, Spelled(self.value).letters)

    def kept(self, *, at: datetime, told: Tombstone) -> Purge | None:
        """How a store keeps this purge; None when ids name all that it takes: their tombstones are enough."""
        if self.ids:
            return None
        salt = secrets.token_bytes(SALT_BYTES)
        value, is_spelled = (None, False) if self.value is None else _looked_for(self.value)
        return Purge(
            told=told,
            at=at,
            salt=salt,
            session=_sealed(self.session, salt),
            agent=_sealed(self.agent, salt),
            user=_sealed(self.user, salt),
            value=_sealed(value, salt),
            value_characters=len(value or ""),
            is_spelled=is_spelled,
            since=self.since,
            until=self.until,
        )


def _looked_for(value: str) -> tuple[str, bool]:
    """What is looked for in place of a value, and whether that is its letters, in any spelling."""
    letters = Spelled(value).letters
    return (letters, True) if len(letters) >= SPELLED_LETTERS_MIN else (value.strip(), False)


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """A purge as a store keeps it, for events that happened before it and arrive after it."""

    told: Tombstone
    at: datetime
    salt: bytes
    session: bytes | None = None  # digests
    agent: bytes | None = None
    user: bytes | None = None
    value: bytes | None = None
    value_characters: int = 0
    is_spelled: bool = False  # the digest is that of the letters, in any spelling
    since: datetime | None = None
    until: datetime | None = None
    lifts: EventId | None = None  # a purge whose value may be said again; then it takes nothing itself
    is_lifted: bool = False

    @property
    def is_of_value(self) -> bool:
        """Whether it takes a value wherever it stands, also when it is said again."""
        others = self.session, self.agent, self.user, self.since, self.until
        return self.value is not None and not self.is_lifted and all(other is None for other in others)

    def is_of(self, value: str) -> bool:
        """Whether it takes this value and no other, wherever it stands."""
        text, is_spelled = _looked_for(value)
        return self.is_of_value and self.is_spelled == is_spelled and _sealed(text, self.salt) == self.value

    def lifting(self, *, at: datetime, told: Tombstone) -> Purge:
        """What a store keeps beside it, so that its value may be said again. What happened before it stays taken."""
        return Purge(told=told, at=at, salt=b"", lifts=self.told.purge, until=BEFORE_ALL)

    def fits(self, event: Event, said: Iterable[Said] | None = None) -> bool:
        """Whether it takes this event. A value is recognised where a word or a sign begins, not inside of a word.

        `said` are the strings of the event, for whoever asks several purges.
        """
        if self.lifts is not None:
            return False
        is_late = event.at > self.at and not (self.is_of_value and is_recalled(event))
        if is_late or event.id == self.told.purge or not _is_between(event, self.since, self.until):
            return False
        named = [
            (wanted, getattr(event.context, name))
            for name in ("session", "agent", "user")
            if (wanted := getattr(self, name)) is not None
        ]
        if event.name in RECORDS and not named and self.value is None:
            return False
        if any(_sealed(text, self.salt) != wanted for wanted, text in named):
            return False
        return self.value is None or any(map(self.is_in, map(Said, _strings(event)) if said is None else said))

    def is_in(self, said: Said) -> bool:
        """Whether a text holds the value."""
        size, text = self.value_characters, said.text
        if len(text) < size:
            return False
        if self.is_spelled:
            return any(_sealed(part, self.salt) == self.value for part in said.spelled.parts(size))
        return any(_sealed(part, self.salt) == self.value for part in self._parts(text))

    def written_in(self, text: str) -> str | None:
        """How a text writes the value; None when it does not hold it."""
        if not self.is_spelled:
            return next((part for part in self._parts(text) if _sealed(part, self.salt) == self.value), None)
        written = unicodedata.normalize("NFKC", text)
        words = [(word.start(), word.end(), word[0].casefold()) for word in _LETTERS.finditer(written)]
        for number, (start, _, _) in enumerate(words):
            letters = ""
            for _, end, word in words[number:]:
                letters += word
                if len(letters) == self.value_characters and _sealed(letters, self.salt) == self.value:
                    return written[start:end]
                if len(letters) >= self.value_characters:
                    break
        return None

    def _parts(self, text: str) -> Iterator[str]:
        """Every part of a text that is as long as the value, from where a word or a sign begins."""
        size = self.value_characters
        starts = (found.start() for found in _BEGINNING.finditer(text, 0, max(0, len(text) - size + 1)))
        return (text[start : start + size] for start in starts)


class Outstanding:
    """The purges that a store keeps, as its append applies them.

    Events newer than all of them cost one comparison, unless they record what was told.
    """

    def __init__(self, purges: Iterable[Purge] = ()) -> None:
        kept = {purge.told.purge: purge for purge in purges}
        for lifted in [each for purge in kept.values() if (each := purge.lifts) is not None and each in kept]:
            kept[lifted] = msgspec.structs.replace(kept[lifted], is_lifted=True)
        self.purges = tuple(sorted(kept.values(), key=lambda purge: (purge.at, purge.told.purge)))
        self.latest = self.purges[-1].at if self.purges else None
        self._values = [purge for purge in self.purges if purge.is_of_value]
        self._has_values = any(purge.value is not None for purge in self.purges)

    @property
    def takes_recalled(self) -> bool:
        """Whether records of what was told are looked through, however new they are."""
        return bool(self._values)

    def applied(self, event: Event) -> Event:
        """The event, or its tombstone when a purge took it before it arrived."""
        if self.latest is None or is_tombstone(event):
            return event
        if event.at > self.latest and not (self.takes_recalled and is_recalled(event)):
            return event
        said = [Said(text) for text in _strings(event)] if self._has_values else None
        taken = next((purge for purge in self.purges if purge.fits(event, said)), None)
        return event if taken is None else tombstone(event, taken.told)

    def without_purged(self, replies: Sequence[Reply]) -> list[Reply]:
        """The replies that say no purged value: a source may state it still, but it is not stored again."""
        return [each for each in replies if not self._values or not any(map(self.asserted, _said_by(each)))]

    def asserted(self, text: str) -> Purge | None:
        """The purge of a value that this text holds: what was taken away does not come back by being said again."""
        if not self._values:
            return None
        said = Said(text)
        return next((purge for purge in self._values if purge.is_in(said)), None)


def is_recalled(event: Event) -> bool:
    """Whether it records what was told again: its words were said, and read, before."""
    return event.origin == "recalled"


def may_stand_for(stored: Event, event: Event) -> bool:
    """Whether an event that is stored is the one given, to the letter, or one of the two is a tombstone of it."""
    if is_tombstone(stored) or is_tombstone(event):
        return True
    return msgspec.structs.replace(stored, position=None) == msgspec.structs.replace(event, position=None)


# -- What is stored and fits ------------------------------------------------------------------------------------


class Readable(Protocol):
    """What selecting needs of a store."""

    async def event(self, identifier: EventId) -> Event | None: ...

    async def events(self, query: EventQuery) -> list[Event]: ...

    async def log(self, after: int, *, limit: int) -> list[Event]: ...


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a selection takes, as a person is asked about it."""

    ids: tuple[EventId, ...]
    names: dict[str, int]  # how many of each name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # a few of them, oldest first
    spellings: dict[str, int] = {}  # how a value is written in them, and in how many, most first


async def find(store: Readable, selection: Selection) -> Found:
    """What of the stored events fits now."""
    ids: list[EventId] = []
    names: Counter[str] = Counter()
    sessions: set[str] = set()
    first: list[Event] = []
    spellings: Counter[str] = Counter()
    async for events in fitting(store, selection):
        for event in events if selection.value is not None else ():
            spellings.update(_spellings(event, selection.value or ""))
        ids += [event.id for event in events]
        names.update(event.name for event in events)
        sessions.update(event.context.session for event in events if event.context.session is not None)
        first = sorted([*first, *events], key=lambda event: (event.at, event.position or 0))[:FIRST_EVENTS]
    return Found(
        ids=tuple(ids),
        names=dict(sorted(names.items())),
        sessions=tuple(sorted(sessions)),
        first=tuple(first),
        spellings=dict(sorted(spellings.items(), key=lambda each: (-each[1], each[0]))),
    )


async def fitting(store: Readable, selection: Selection) -> AsyncIterator[list[Event]]:
    """The stored events that fit, some at a time, each once."""
    if selection.ids:
        found = [await store.event(identifier) for identifier in sorted(selection.ids)]
        read = _once([event for event in found if event is not None])
    elif selection.conditions == ("value",):
        read = _whole_log(store)
    else:
        read = latest_first(
            store,
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


async def _whole_log(store: Readable) -> AsyncIterator[list[Event]]:
    after = 0
    while events := await store.log(after, limit=EVENTS_AT_ONCE):
        yield events
        after = events[-1].position or 0


# -- What an event says -----------------------------------------------------------------------------------------


def _is_between(event: Event, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or event.at >= since) and (until is None or event.at < until)


class Spelled:
    """A text as its letters and digits, however it is spelled, and where its words begin and end among them."""

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
        """Every run of whole words with so many letters."""
        return (self.letters[begin : begin + size] for begin in self._begins if begin + size in self._ends)


class Said:
    """A text that is looked through for several values. Its letters are found once: that is most of the work."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def spelled(self) -> Spelled:
        return Spelled(self.text)


_LETTERS = re.compile(r"[^\W_]+")


def _contains(event: Event, value: str) -> bool:
    spelled = Spelled(value).letters
    if len(spelled) < SPELLED_LETTERS_MIN:
        return any(value in text for text in _strings(event, unless_without=value.encode("utf-8", "surrogatepass")))
    return any(_says(text, value, spelled) for text in _strings(event))


def _says(text: str, value: str, spelled: str) -> bool:
    """Whether a text holds a value, given its letters: as it is written or, unless it is short, in another spelling."""
    return value in text or (len(spelled) >= SPELLED_LETTERS_MIN and spelled in Spelled(text).parts(len(spelled)))


def _spellings(event: Event, value: str) -> set[str]:
    """How a value is written in an event that holds it."""
    letters = Spelled(value).letters
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
    # Signs around a value belong to no word, so its own words are not another spelling of it.
    return {each for each in found if each == value or each not in value or value not in found}


def _strings(event: Event, unless_without: bytes = b"") -> Iterator[str]:
    """Every string of an event. Its data is left out when it cannot contain these bytes."""
    yield event.name
    context = event.context
    for name in context.__struct_fields__:
        if name != "labels" and (text := getattr(context, name)) is not None:
            yield text
    for label in context.labels:
        yield from label
    # Without an escape, a string stands in the JSON as it is.
    if unless_without in event.body or b"\\" in event.body:
        yield from _texts(event.data)


def _said_by(reply: Reply) -> Iterator[str]:
    """Every string of a reply."""
    yield reply.concept
    try:
        yield from _texts(msgspec.json.decode(reply.body))
    except msgspec.DecodeError:  # of a program of its own
        yield reply.body.decode("utf-8", "replace")


def _texts(value: object) -> Iterator[str]:
    """Every string and key of a document."""
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


def _sealed(text: str | None, salt: bytes) -> bytes | None:
    if text is None:
        return None
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()


def steps(identifiers: Sequence[EventId]) -> Iterator[Sequence[EventId]]:
    """Identifiers in the portions of one transaction each."""
    for start in range(0, len(identifiers), BURY_EVENTS):
        yield identifiers[start : start + BURY_EVENTS]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What a purge did, or would do."""

    events: int
    ids: tuple[EventId, ...]  # now tombstones
    names: dict[str, int]  # how many events had which name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # the oldest, for a person to recognise them; empty when they are gone
    spellings: dict[str, int] = {}  # how the value is written in them, and in how many; empty when they are gone
    record: EventId | None = None  # the event that records the purge; None when it was only tried
    stands: bool = False  # it is kept, for what happened before it and arrives later
    exports: tuple[str, ...] = ()  # files that were rewritten, also those of commands
    removed: tuple[str, ...] = ()  # damaged segments that were removed, and commands of trails that are gone
    remade: tuple[Crystal, ...] = ()  # crystals that were made anew of what is left
    ended: tuple[Waiting, ...] = ()  # crystals that stood on what was purged and were not made anew, and why
    unreached: tuple[str, ...] = ()  # what a person must see to, one sentence each
