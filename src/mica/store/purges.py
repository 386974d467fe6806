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
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from mica.errors import InvalidInput
from mica.model.belief import Belief
from mica.model.crystal import Crystal, Waiting
from mica.model.event import Event, EventId, EventQuery, Tombstone, check_unicode, is_tombstone, make_tombstone
from mica.model.mark import Reply
from mica.model.trail import PUBLISHED
from mica.store import purged_values_earlier as earlier
from mica.store.purged_values import Form, Match, PurgedValue, SearchedText
from mica.store.query import EVENTS_AT_ONCE, QueriedLog, latest_first

PURGE = "log.purged"  # the event that records a purge
EXPORTED = "log.exported"  # the event that records an export of events to a file
ALLOWED = "log.allowed"  # the event that records that a purged value is allowed again
RECORDS = (PURGE, EXPORTED, ALLOWED, PUBLISHED)
BY_HAND = "purged by hand"  # the reason when none is given
VALUE_CHARACTERS_MAX = 10_000  # a private key has a few thousand; a longer text is a whole event, purged by its id
SALT_BYTES = 16
BURY_EVENTS = 500  # per transaction; other writers wait some tens of milliseconds for it
BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)  # earlier than every event
FIRST_EVENTS = 5  # shown for confirmation
AROUND_MAX = 3  # places shown of each spelling of a value

Quoting = TypeVar("Quoting", Reply, Belief)  # what was made from text, and may contain a purged value

# The lengths of strings in files of encoded events (MessagePack), which may look like letters before a string.
_PACKED_LENGTH = re.compile(rb"\xd9.|\xda..|\xdb....", re.DOTALL)


class ValueMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Where the value of a purge occurs in an event."""

    matches: Sequence[Match] = ()
    inside: Sequence[Match] = ()  # longer words with the value, of an event that is not selected


class Selection(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The conditions of a purge, which selects the events that meet all of them. Raises InvalidInput if none is set.

    `value` is a text to find in the name of an event, in its context, or in a string or key of its data. It matches
    whole tokens, in any spelling; with `anywhere`, it also matches inside of words. See `purged_values`.
    """

    ids: frozenset[EventId] = frozenset()  # an event must have one of these ids
    matching: str | None = None  # a subject in words; `fits` ignores it, because a search finds the events
    value: str | None = None
    anywhere: bool = False
    session: str | None = None
    agent: str | None = None
    user: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # exclusive

    def __post_init__(self) -> None:
        if not self.conditions:
            raise InvalidInput(
                "nothing is selected, and a purge never removes everything; give ids, words, a value, a session, an "
                "agent, a user or a time"
            )
        for name in ("since", "until"):
            at = getattr(self, name)
            if not isinstance(at, datetime | None):
                raise InvalidInput(f"{name} is {at!r}, which is not a time; give an aware datetime")
        EventQuery(since=self.since, until=self.until)  # raises for a time without a zone
        for name in ("matching", "value", "session", "agent", "user"):
            text = getattr(self, name)
            if not isinstance(text, str | None):
                raise InvalidInput(f"the {name} to purge is {text!r}, which is no text; give a text")
            if text is not None:
                check_unicode(f"the {name} to purge", text)
            if text is not None and not text.strip():
                raise InvalidInput(f"the {name} to purge is {text!r}, which would match nearly everything; give a text")
        if self.ids and self.matching is not None:
            raise InvalidInput("give ids or words that the events match, not both")
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
        fields = (name for name in self.__struct_fields__ if name != "anywhere")
        return tuple(name for name in fields if getattr(self, name) not in (None, frozenset()))

    @cached_property
    def searched_value(self) -> PurgedValue | None:
        """The value, prepared for a search."""
        return None if self.value is None else PurgedValue(self.value, anywhere=self.anywhere)

    @property
    def names(self) -> tuple[str, ...]:
        """The session, agent and user of the selection, without those that are not set."""
        return tuple(text for text in (self.session, self.agent, self.user) if text is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The value and the names of the selection, without those that are not set."""
        return self.names if self.value is None else (self.value, *self.names)

    def fits(self, event: Event) -> bool:
        """Return True if the purge selects this event. Tombstones are never selected.

        Records of purges and exports are selected only by id, value, session, agent or user, not by time alone.
        """
        value = self.searched_value
        return self._fits_otherwise(event) and (value is None or any(map(value.is_in, _strings(event))))

    def _fits_otherwise(self, event: Event) -> bool:
        """Return True if an event meets all conditions apart from the value."""
        context = event.context
        return (
            not is_tombstone(event)
            and (not self.ids or event.id in self.ids)
            and (self.session is None or context.session == self.session)
            and (self.agent is None or context.agent == self.agent)
            and (self.user is None or context.user == self.user)
            and _is_between(event, self.since, self.until)
            and (event.name not in RECORDS or bool(self.ids or self.texts))
        )

    def find_in(self, event: Event) -> ValueMatches | None:
        """Return where the value occurs in an event, or None if the purge does not select the event.

        The event is not selected either if the value occurs only inside of longer words; these are in the result.
        """
        if not self._fits_otherwise(event):
            return None
        value = self.searched_value
        if value is None:
            return ValueMatches()
        texts = list(filter(value.may_be_in, map(SearchedText, _strings(event))))
        if matches := [match for text in texts for match in value.matches(text)]:
            return ValueMatches(matches=matches)
        inside = [match for text in texts for match in value.words_with(text)]
        return ValueMatches(inside=inside) if inside else None

    def is_in(self, text: str) -> bool:
        """Return True if `text` contains `value`."""
        return self.searched_value is not None and self.searched_value.is_in(text)

    def is_in_bytes(self, content: bytes) -> bool:
        """Return True if a file of encoded events with this content may contain `value`."""
        decoded = content.decode("utf-8", "replace")
        return self.is_in(decoded) or self.is_in(
            _PACKED_LENGTH.sub(lambda found: b" " * len(found[0]), content).decode("utf-8", "replace")
        )

    def to_purge(self, *, at: datetime, tombstone: Tombstone) -> Purge | None:
        """Return the record that applies this selection to events that arrive later.

        `at` is the time of the purge. `tombstone` has its id and reason. Returns None for a selection by ids, which
        needs no record.
        """
        if self.ids:
            return None
        salt = secrets.token_bytes(SALT_BYTES)
        value = self.searched_value
        inside = None if value is None else value.inside
        return Purge(
            tombstone=tombstone,
            at=at,
            salt=salt,
            session=_keyed_digest(self.session, salt),
            agent=_keyed_digest(self.agent, salt),
            user=_keyed_digest(self.user, salt),
            form=None if value is None else value.form,
            value=None if value is None else _keyed_digest(value.normal, salt),
            value_characters=0 if value is None else len(value.normal),
            inside=_keyed_digest(inside, salt),
            inside_characters=len(inside or ""),
            since=self.since,
            until=self.until,
        )


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
    form: Form | None = None  # of the value; None in the purges of earlier versions, which match as they did
    inside: bytes | None = None  # the digest of the folded value, if it also matches inside of words
    inside_characters: int = 0
    is_spelled: bool = (
        False  # in a purge of an earlier version: the digest covers the letters and digits of whole words
    )
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
        if not self.is_of_value:
            return False
        if self.form is None:
            return earlier.is_value(value, is_spelled=self.is_spelled, matches=self._is_value)
        asked = PurgedValue(value)
        return asked.form == self.form and self._is_value(asked.normal)

    def lift(self, *, at: datetime, tombstone: Tombstone) -> Purge:
        """Return a record that allows the value of this purge again. Events from before the purge stay purged.

        `at` is the time of the record, and `tombstone` has its id.
        """
        return Purge(tombstone=tombstone, at=at, salt=b"", lifts=self.tombstone.purge, until=BEFORE_ALL)

    def fits(self, event: Event, texts: Iterable[SearchedText] | None = None) -> bool:
        """Return True if this purge selects the event.

        `texts` are the strings of the event, which a caller that checks several purges can prepare once.
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
        if self.form is None:
            parts = earlier.parts(searched, self.value_characters, is_spelled=self.is_spelled)
            return any(map(self._is_value, parts))
        if any(map(self._is_value, searched.parts(self.form, self.value_characters))):
            return True
        return self.inside is not None and any(map(self._is_inside, searched.parts_inside(self.inside_characters)))

    def written_in(self, text: str) -> str | None:
        """Return the value as it is spelled in `text`; None if `text` does not contain it."""
        if self.form is None:
            return earlier.written_in(text, self.value_characters, is_spelled=self.is_spelled, matches=self._is_value)
        searched = SearchedText(text)
        part = next(filter(self._is_value, searched.parts(self.form, self.value_characters)), None)
        if part is None and self.inside is not None:
            part = next(filter(self._is_inside, searched.parts_inside(self.inside_characters)), None)
        if part is None:
            return None
        value = PurgedValue(part, anywhere=self.inside is not None)
        return next((match.text for match in value.matches(searched)), part)

    def _is_value(self, part: str) -> bool:
        return _keyed_digest(part, self.salt) == self.value

    def _is_inside(self, part: str) -> bool:
        return _keyed_digest(part, self.salt) == self.inside


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
    """The part of `EventLog` that `find` needs."""

    async def get(self, identifier: EventId) -> Event | None: ...
    async def read(self, after: int, *, limit: int) -> list[Event]: ...


class ValueMatch(msgspec.Struct, frozen=True, kw_only=True):
    """One spelling of a purged value that was found, or one longer word that contains the value."""

    text: str
    events: int  # the number of events with it
    around: tuple[str, ...]  # it with the characters around it, as it was found first; at most AROUND_MAX places


class PurgeMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of the stored events that a selection matches, which is shown before the purge is confirmed."""

    ids: tuple[EventId, ...]
    names: dict[str, int]  # the number of events with each name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # the oldest events, oldest first
    matches: tuple[ValueMatch, ...] = ()  # every different spelling of the value, most frequent first
    inside: tuple[ValueMatch, ...] = ()  # longer words with the value in events that are not selected


class _Tally:
    """Counts the different matches in events, and collects what is around them."""

    def __init__(self) -> None:
        self._events: Counter[str] = Counter()
        self._around: dict[str, dict[str, None]] = {}

    def add(self, matches: Iterable[Match]) -> None:
        """Count the matches in one event."""
        found = list(matches)
        self._events.update({match.text for match in found})
        for match in found:
            around = self._around.setdefault(match.text, {})
            if len(around) < AROUND_MAX:
                around.setdefault(f"{match.before}{match.text}{match.after}")

    @property
    def matches(self) -> tuple[ValueMatch, ...]:
        """All different matches, most frequent first."""
        counts = sorted(self._events.items(), key=lambda each: (-each[1], each[0]))
        return tuple(ValueMatch(text=text, events=count, around=tuple(self._around[text])) for text, count in counts)


async def find(log: SearchedLog, selection: Selection) -> PurgeMatch:
    """Find the stored events that the selection matches now, and summarize them for confirmation."""
    ids: list[EventId] = []
    names: Counter[str] = Counter()
    sessions: set[str] = set()
    first: list[Event] = []
    matches, inside = _Tally(), _Tally()
    async for batch in _candidates(log, selection):
        events = []
        for event in batch:
            found = selection.find_in(event)
            if found is None:
                continue
            matches.add(found.matches)
            inside.add(found.inside)
            if not found.inside:
                events.append(event)
        ids += [event.id for event in events]
        names.update(event.name for event in events)
        sessions.update(event.context.session for event in events if event.context.session is not None)
        first = sorted([*first, *events], key=lambda event: (event.at, event.position or 0))[:FIRST_EVENTS]
    return PurgeMatch(
        ids=tuple(ids),
        names=dict(sorted(names.items())),
        sessions=tuple(sorted(sessions)),
        first=tuple(first),
        matches=matches.matches,
        inside=inside.matches,
    )


def _candidates(log: SearchedLog, selection: Selection) -> AsyncIterator[list[Event]]:
    """Yield the stored events that the selection may match, in batches, each event once."""
    if selection.ids:
        return _with_ids(log, selection.ids)
    if selection.conditions == ("value",):
        return _whole_log(log)
    return latest_first(
        log,
        EventQuery(
            session=selection.session,
            agent=selection.agent,
            user=selection.user,
            since=selection.since,
            until=selection.until,
        ),
    )


async def _with_ids(log: SearchedLog, ids: frozenset[EventId]) -> AsyncIterator[list[Event]]:
    found = [await log.get(identifier) for identifier in sorted(ids)]
    yield [event for event in found if event is not None]


async def _whole_log(log: SearchedLog) -> AsyncIterator[list[Event]]:
    after = 0
    while events := await log.read(after, limit=EVENTS_AT_ONCE):
        yield events
        after = events[-1].position or 0


# -- The strings of an event -----------------------------------------------------------------------------------------


def _is_between(event: Event, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or event.at >= since) and (until is None or event.at < until)


def _strings(event: Event) -> Iterator[str]:
    """Yield every string of an event."""
    yield event.name
    context = event.context
    for name in context.__struct_fields__:
        if name != "labels" and (text := getattr(context, name)) is not None:
            yield text
    for label in context.labels:
        yield from label
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


ItemKind: TypeAlias = Literal["mark", "crystal", "belief", "event"]
Because: TypeAlias = Literal["matches", "descends", "rests"]


class PurgeItem(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a purge by words would remove."""

    id: EventId
    number: str  # like #12
    kind: ItemKind
    name: str  # the name of the event
    at: datetime
    text: str  # short
    because: Because  # its own words match; it descends from the event `of`; or it rests on it, as a crystal does
    of: str | None = None  # the number of that event
    can_be_retracted: bool = False  # retracting keeps it in the history

    @property
    def is_selected(self) -> bool:
        """True if the purge selects this event itself. What rests on such events goes with them."""
        return self.because != "rests"


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a purge or of its dry run."""

    events: int
    ids: tuple[EventId, ...]  # now tombstones
    names: dict[str, int]  # the number of events with each name
    sessions: tuple[str, ...]
    first: tuple[Event, ...]  # the oldest events, to recognise them; empty after the purge
    spellings: dict[str, int] = {}  # spellings of the value and their number of events; empty after the purge
    matches: tuple[ValueMatch, ...] = ()  # the same spellings with the text around them; empty after the purge
    inside: tuple[ValueMatch, ...] = ()  # longer words with the value in events that stay; empty after the purge
    record: EventId | None = None  # the event that records the purge; None for a dry run
    applies_later: bool = False  # the purge was recorded, so it also applies to matching events that arrive later
    exports: tuple[str, ...] = ()  # rewritten files, including command files
    removed: tuple[str, ...] = ()  # removed damaged segments, and command files of removed trails
    remade: tuple[Crystal, ...] = ()  # crystals that were made again from the remaining sources
    ended: tuple[Waiting, ...] = ()  # crystals of purged events that were not made again, with the reasons
    unreached: tuple[str, ...] = ()  # what is left for the person to do, one sentence each
    items: tuple[PurgeItem, ...] = ()  # what a purge by words would remove, best first; empty after the purge
    similar: tuple[PurgeItem, ...] = ()  # events with only some of the words, which stay
