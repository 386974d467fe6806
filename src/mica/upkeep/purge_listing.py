"""Finds everything about a subject, given in words, so that a person sees what a purge would remove."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Protocol, TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.events.references import Reference
from mica.format.lines import one_line
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, JUDGED, MARK, Event, EventId, EventQuery, is_tombstone
from mica.search.mark_search import search
from mica.store.protocol import Store
from mica.store.purges import RECORDS, Because, ItemKind, PurgeItem
from mica.upkeep.quotations import find_quotations
from mica.words import terms

SIMILAR_MAX = 5  # marks shown that have only some of the words
RANKED_MAX = 1_000  # events that are ordered by how well they match; the others follow, latest first
TEXT_CHARACTERS = 160

# "everything about …": what people write before the subject; it names nothing.
_LEAD = re.compile(
    r"^\s*(?:(?:please\s+)?(?:forget|purge|remove|delete)\s+)?"
    r"(?:everything|anything|all|whatever|alles|todo|tout)\s+"
    r"(?:(?:that|which|was|is|we|you|i|know|known|said|about|on|of|regarding|concerning|related|to|with|über|zu|von|zum"
    r"|zur|sobre|acerca|de|sur)\s+)*",
    re.IGNORECASE,
)


class PurgeListing(msgspec.Struct, frozen=True, kw_only=True):
    """What a purge by words would remove, best first, and marks that have only some of the words and stay."""

    items: tuple[PurgeItem, ...] = ()
    similar: tuple[PurgeItem, ...] = ()


ListBeliefs: TypeAlias = Callable[[Collection[EventId]], Awaitable[Sequence[PurgeItem]]]


class Retract(Protocol):
    """`Memory.retract`, which retracts one event."""

    async def __call__(self, reference: Reference, *, reason: str) -> EventId: ...


async def list_no_beliefs(_: Collection[EventId]) -> Sequence[PurgeItem]:
    """Return nothing, for a space without beliefs. Beliefs come from marks and are removed with them."""
    return ()


async def list_matching(
    store: Store,
    subject: str,
    *,
    now: datetime,
    zone: tzinfo | None = None,
    keep: Collection[Event] = (),
    with_descendants: bool = True,
    fits: Callable[[Event], bool] = lambda _: True,
    list_beliefs: ListBeliefs = list_no_beliefs,
) -> PurgeListing:
    """Find the events with all words of `subject`, the events that descend from these, and crystals and beliefs that
    rest on any of them.

    The events in `keep` and events that descend only from them are left out, as are events that `fits` rejects. Raises
    InvalidInput if the subject has no word to search for, or if an event in `keep` was not found or cannot be kept.
    """
    words = subject_words(subject)
    if not terms(words):
        raise InvalidInput(
            f"{subject[:60]!r} has no word to search for; name what to purge, such as a host or a project"
        )
    left_out = {event.id for event in keep}
    matching = await _with_words(store, words, now=now, zone=zone)
    seen = {event.id for event in matching}
    crystals = [event for event in matching if event.name == CRYSTAL]
    chosen = [event for event in matching if event.name != CRYSTAL and event.id not in left_out and fits(event)]
    found = {event.id: _item(event, "matches") for event in chosen}
    for root in chosen if with_descendants else ():
        for event in sorted(await store.chains.descendants(root.id), key=lambda each: each.depth):
            seen.add(event.id)
            is_new = event.id not in left_out and event.id not in found
            if is_new and event.parent_id in found and _is_listed(event) and fits(event):
                found[event.id] = _item(event, "descends", of=root.number)
    quoting = await find_quotations(store, list(found))
    resting = {event.id: event for event in await store.log.get_many(quoting.ids) if event.name == CRYSTAL}
    rejected = [event.id for event in matching if event.name != CRYSTAL and event.id not in found]
    staying = {*left_out, *await store.crystals.citing(rejected), *resting}
    for event in crystals:
        if event.id not in staying and _has_statement(event, words) and fits(event):
            found[event.id] = _item(event, "matches")
    sources = {event.id: await _first_source(store, event, found) for event in resting.values()}
    rests = [_item(event, "rests", of=sources[event.id]) for event in resting.values()]
    beliefs = await list_beliefs(list(found))
    _check_keep(keep, seen=seen, resting=resting)
    hits = await search(words, log=store.log, chains=store.chains, texts=store.texts, limit=50, now=now, zone=zone)
    new = [hit.mark for hit in hits if hit.id not in seen and not set(terms(words)).isdisjoint(terms(hit.text))]
    others = [mark.id for mark in new[:SIMILAR_MAX]]
    similar = [_item(event, "matches") for event in await store.log.get_many(others)]
    return PurgeListing(items=(*_ordered(found.values()), *beliefs, *rests), similar=tuple(similar))


def selected_ids(items: Iterable[PurgeItem]) -> list[EventId]:
    """Return the ids of the events to purge. What rests on them, as crystals and beliefs do, goes with them."""
    return [item.id for item in items if item.is_selected and item.kind != "belief"]


async def retract_items(retract: Retract, items: Iterable[PurgeItem], *, reason: str) -> list[EventId]:
    """Retract the listed marks, crystals and beliefs; returns the ids of those that were not retracted before."""
    retracted: list[EventId] = []
    refusal: InvalidInput | None = None
    for item in items:
        if item.can_be_retracted:
            try:
                await retract(item.id, reason=reason)
                retracted.append(item.id)
            except InvalidInput as error:  # it is retracted already, or was removed since it was listed
                refusal = error
    if refusal is not None and not retracted:
        raise refusal
    return retracted


def subject_words(subject: str) -> str:
    """Return a subject without words such as "everything about"."""
    return _LEAD.sub("", subject).strip() or subject


async def _with_words(store: Store, words: str, *, now: datetime, zone: tzinfo | None) -> list[Event]:
    """Return the events that have all words, best first."""
    events = [event for event in await store.log.query(EventQuery(text=words, limit=None)) if _is_listed(event)]
    hits = await search(
        words, log=store.log, chains=store.chains, texts=store.texts, limit=RANKED_MAX, now=now, zone=zone
    )
    ranks = {hit.id: rank for rank, hit in enumerate(hits)}
    return sorted(events, key=lambda event: (ranks.get(event.id, RANKED_MAX), -(event.position or 0)))


def _has_statement(event: Event, words: str) -> bool:
    """Return True if one statement of a crystal, or its label, has all words; they may not be spread over several."""
    crystal = crystal_of(event)
    texts = (crystal.label or "", *(statement.text for statement in crystal.statements))
    return any(set(terms(words)) <= set(terms(text)) for text in texts)


async def _first_source(store: Store, crystal: Event, found: Mapping[EventId, PurgeItem]) -> str | None:
    """Return the number of an event in `found` on which a crystal rests, directly or through other crystals."""
    waiting = [crystal]
    while waiting:
        event = waiting.pop()
        sources = event.data.get("sources")
        ids = [EventId(each) for each in sources if isinstance(each, str)] if isinstance(sources, list) else []
        if first := next((found[each].number for each in ids if each in found), None):
            return first
        waiting += [each for each in await store.log.get_many(ids) if each.name == CRYSTAL]
    return None


def _check_keep(keep: Iterable[Event], *, seen: Collection[EventId], resting: Collection[EventId]) -> None:
    for event in keep:
        if event.id in resting:
            raise InvalidInput(
                f"{event.number} is a crystal that rests on what goes, so it is made again from what remains; keep its "
                "sources instead"
            )
        if event.id not in seen:
            raise InvalidInput(
                f"{event.number} is not among what was found, so it stays anyway; leave it out of --keep"
            )


def _ordered(items: Iterable[PurgeItem]) -> list[PurgeItem]:
    """Return the items with those first whose own words match. The order within each group stays."""
    return sorted(items, key=lambda item: item.because != "matches")


def _is_listed(event: Event) -> bool:
    return not is_tombstone(event) and event.name not in RECORDS


def _item(event: Event, because: Because, *, of: str | None = None) -> PurgeItem:
    kind: ItemKind = "mark" if event.name == MARK else "crystal" if event.name == CRYSTAL else "event"
    data = event.data
    texts = (data.get(key) for key in ("label", "text", "command", "path", "reason"))
    shown = ": ".join(text for text in texts if isinstance(text, str)) or event.body[:500].decode("utf-8", "replace")
    return PurgeItem(
        id=event.id,
        number=event.number,
        kind=kind,
        name=event.name,
        at=event.at,
        text=one_line(shown, TEXT_CHARACTERS),
        because=because,
        of=of,
        can_be_retracted=because != "rests" and event.name in (MARK, CRYSTAL, JUDGED),
    )
