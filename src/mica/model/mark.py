"""Marks (observations in words), and the values that a store's text index and caches return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from mica.errors import InvalidEvent
from mica.model.event import CRYSTAL, MARK, Event, EventId, Origin

SEARCHABLE_CHARACTERS_MAX = 100_000  # of one text; a longer text is stored in full, but only its beginning is indexed

Relation = Literal["causes", "continues", "branches", "fulfills"]
RELATIONS: tuple[Relation, ...] = ("causes", "continues", "branches", "fulfills")  # the default first


class Mark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An observation in words, decoded from its event."""

    id: EventId
    text: str
    at: datetime
    tags: tuple[str, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation | None = None  # how the mark is related to its parent; None without a parent
    origin: Origin = "agent"
    session: str | None = None
    agent: str | None = None
    user: str | None = None
    parent_id: EventId | None = None
    position: int | None = None


def mark_of(event: Event) -> Mark:
    """Decode the mark that an event records, with its context. Raises InvalidEvent if the event is not a mark."""
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
        user=event.context.user,
        parent_id=event.parent_id,
        position=event.position,
    )


def decode_mark(event: Event) -> _MarkData:
    """Decode only the data of a mark's event, without its context. Raises InvalidEvent if the event is not a mark."""
    try:
        return _mark_decoder.decode(event.body)
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} is not a mark: {error}") from error


def check_mark(data: Mapping[str, object]) -> None:
    """Raise InvalidEvent if `data` is not valid as the data of a mark."""
    try:
        msgspec.convert(data, _MarkData)
    except msgspec.ValidationError as error:
        tags = data.get("tags")
        for tag in tags if isinstance(tags, list | tuple) else ():
            if isinstance(tag, str) and not re.search(TAG, tag):
                raise InvalidEvent(
                    f"{tag!r:.80} is not a tag; a tag is one word of 1 to {TAG_CHARACTERS_MAX} letters, digits and "
                    "signs among _ . : / + -"
                ) from error
        raise InvalidEvent(f"this is not a mark: {error}; `memory.mark(text)` makes one") from error


TAG_CHARACTERS_MAX = 60
TAG = rf"^[\w.:/+-]{{1,{TAG_CHARACTERS_MAX}}}$"
Tag = Annotated[str, msgspec.Meta(pattern=TAG)]  # one word: it is used in briefs and on command lines


class _MarkData(msgspec.Struct):
    text: str
    tags: tuple[Tag, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation | None = None


_mark_decoder = msgspec.json.Decoder(_MarkData)


def searchable_text(event: Event) -> str | None:
    """Return the text of an event for the full-text index, or None if the event is not indexed.

    The result is the `text` in the event's data, with the other texts of a mark or crystal, cut to
    SEARCHABLE_CHARACTERS_MAX. An event without `text` is not indexed, and neither is an event that only repeats text
    that mica itself gave to an agent.
    """
    if event.origin == "recalled" or b'"text":' not in event.body:
        return None
    data = _searchable_decoder.decode(event.body)
    if not isinstance(data.text, str):
        return None
    more = _additional_texts(event.name, data)
    return "\n".join([data.text, *more])[:SEARCHABLE_CHARACTERS_MAX] if more else data.text[:SEARCHABLE_CHARACTERS_MAX]


class _SearchableData(msgspec.Struct):
    text: object = None
    why: object = None
    principles: object = None
    significance: object = None
    topics: object = None
    label: object = None


_searchable_decoder = msgspec.json.Decoder(_SearchableData)


def _additional_texts(name: str, data: _SearchableData) -> list[str]:
    """Return the searchable texts besides `text`: a mark's reason and principles, or a crystal's other parts."""
    if name == MARK:
        if data.why is None and data.principles is None:
            return []
        texts = [data.why, *(data.principles if isinstance(data.principles, list) else ())]
    elif name == CRYSTAL:
        parts = [part for part in (data.significance, data.principles) if isinstance(part, list)]
        texts = [each[0] for part in parts for each in part if isinstance(each, list) and each]
        texts += [*(data.topics if isinstance(data.topics, list) else ()), data.label]
    else:
        return []
    return [each for each in texts if isinstance(each, str) and each]


class Posting(msgspec.Struct, frozen=True, gc=False):
    """An entry of the text index: one term in one mark, with the numbers that a first ranking needs."""

    position: int  # of the mark in the log
    count: int  # occurrences of the term in the mark
    length: int  # words in the mark
    session: str | None


class Postings(msgspec.Struct, frozen=True, kw_only=True):
    """The marks that contain a query's terms, and the statistics of all marks in the space."""

    by_term: dict[str, tuple[Posting, ...]]  # the marks with each requested term, in order of position
    marks: int  # number of all marks
    mean_length: float  # of all marks, in words
    length_spread: float  # variance of the natural logarithm of the lengths
    containing: dict[str, int] = {}  # number of marks with a term, for terms whose list in `by_term` is incomplete

    def count_marks(self, term: str) -> int:
        """Return the number of marks that contain a term."""
        return self.containing.get(term, len(self.by_term.get(term, ())))

    def with_postings(self, by_term: dict[str, tuple[Posting, ...]]) -> Postings:
        """Return a copy with the same statistics and with the postings in `by_term`."""
        return msgspec.structs.replace(self, by_term=by_term)


class Vectors(msgspec.Struct, frozen=True):
    """Some embedding vectors of marks as bytes, and how many vectors of the same model the store has in total."""

    count: int  # of all vectors of this model in the store
    rows: tuple[tuple[int, bytes], ...]  # (position of the mark, encoded vector), in order of position


class Text(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A mark with the numbers that the ranker needs: its length and its place in its session."""

    mark: Mark
    position: int
    length: int  # words in the mark
    ordinal: int  # the index of the mark among the marks of its session, from 0
    session_length: int  # words in all marks of its session


class Reply(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cached reply of a source to a question about a concept, as a store has it."""

    concept: str
    source: str
    at: datetime  # when the source was asked
    position: int  # the last position in the log that the process had read at that time
    declared: str  # a hash of the declaration (configuration) of the source at that time
    body: bytes  # the fragments of the reply as JSON
