"""What other systems had stated: nobody can ask them about the past, but the receipts of gathers tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from mica.inject.composing import passage
from mica.model import EventId, EventQuery, Passage
from mica.select.cohere import Origin, Stated
from mica.select.fragments import GATHERED, Concept
from mica.store.protocol import Store

RECEIPTS_MAX = 2_000  # the latest before a time, among which one of a concept is looked for


class _Fragment(msgspec.Struct):
    key: str
    text: str
    confidence: float
    at: datetime
    source: str
    origins: tuple[tuple[str, str], ...] = ()
    sources: tuple[EventId, ...] = ()


class _Gathered(msgspec.Struct):
    concept: str
    fragments: tuple[_Fragment, ...]


async def gathered_before(past: Store, concept: Concept) -> tuple[list[Passage], str]:
    """What was stated of a concept when it was last gathered, and why that may be nothing."""
    for event in reversed(await past.events(EventQuery(names=(GATHERED,), limit=RECEIPTS_MAX))):
        try:
            told = msgspec.convert(event.data, _Gathered)
        except msgspec.ValidationError:
            continue  # somebody else's event of this name
        if told.concept == str(concept):
            return list(_passages(concept, told.fragments)), ""
    return [], "nobody had gathered it by then, and other systems cannot be asked about the past"


def _passages(concept: Concept, fragments: Iterable[_Fragment]) -> Iterable[Passage]:
    for each in fragments:
        origins = tuple(Origin(source, locator) for source, locator in each.origins)
        stated = Stated(
            key=each.key,
            text=each.text,
            confidence=each.confidence,
            at=each.at,
            source=each.source,
            origins=origins,
            sources=each.sources,
        )
        yield passage(concept, stated)
