"""Learns the beliefs of one log into a table, in batches and only what is new; and replays a log up to a past time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from time import monotonic

import msgspec

from mica.beliefs.classification import classify
from mica.beliefs.learner import KnownBeliefs, learn
from mica.beliefs.statements import is_short_answer, statements
from mica.beliefs.subjects import lookup_keys, subject_of
from mica.beliefs.testimony import NAMES, Testimony, place_of, read_testimony
from mica.errors import AccessDenied, InvalidEvent, StoreUnavailable
from mica.model.belief import Belief, BeliefId, BeliefQuery
from mica.model.event import MARK, MICROSECOND, RETRACTED, Event, EventId, EventQuery
from mica.model.mark import decode_mark
from mica.store.protocol import BeliefTable, EventLog

LOG = logging.getLogger("mica")

BATCH_EVENTS = 1_000  # one batch is one transaction, and takes well under a second
RETRIES_MAX = 5  # of one batch, if other processes learn or purge at the same time
CLOSINGS_LOOKED_MAX = 50  # latest marks of a session that are searched for the words that a short answer answers


@cache
def warm_up() -> None:
    """Compile the patterns that learning needs, which takes longer than to learn a few marks. Done once."""
    for text in (
        "Always use uv run, not pip. Should I?",
        "Done: it works now. Still open: the docs, 30 s after 9 Nov.",
    ):
        for statement in statements(text, place="closing", by="agent", answered="Should I do it?"):
            classify(statement)
            subject_of(statement.text)
    statements("yes, do it", place="prompt", by="user", answered="Should I do it?")


class BeliefLibrary:
    """Learns the beliefs of one log. Several processes may learn into one table; each event counts once."""

    def __init__(self, log: EventLog, table: BeliefTable) -> None:
        self._log = log
        self._table = table
        self._learning = asyncio.Lock()

    async def refresh(self, within_s: float | None = None) -> bool:
        """Learn from every event that is stored and not learned yet; returns True if nothing is left to learn.

        With `within_s`, no further batch begins after this time. If nothing is new, this costs two small reads. If the
        store cannot be written, for example with a token that may only read, what others learned is used.
        """
        began = monotonic()
        try:
            async with self._learning:
                while not await self._learn_batch():
                    if within_s is not None and monotonic() - began >= within_s:
                        return False
        except (AccessDenied, StoreUnavailable) as error:  # what is learned already can still be read
            LOG.warning("the latest events are not in this answer of beliefs: %s", error)
            return False
        return True

    async def _learn_batch(self) -> bool:
        """Learn from the next events; returns True if no events are left after them."""
        for _ in range(RETRIES_MAX):
            learned = await self._table.learned_up_to()
            events = await self._log.read(learned.position, limit=BATCH_EVENTS)
            if not events:
                return True
            testimonies = await read_all(self._log, events)
            known = await self._known(testimonies)
            changed = await asyncio.to_thread(learn, testimonies, known)
            position = events[-1].position or learned.position + len(events)
            lesson = msgspec.structs.replace(learned, position=position)
            if await self._table.save(changed, lesson, after=learned.position):
                return len(events) < BATCH_EVENTS
        return False

    async def _known(self, testimonies: Sequence[Testimony]) -> KnownBeliefs:
        """Return the stored beliefs that these testimonies may change."""
        if not testimonies:
            return KnownBeliefs()
        keys = lookup_keys(subject_of(each.text) for testimony in testimonies for each in testimony.stated)
        found = {belief.id: belief for listed in (await self._table.related(keys)).values() for belief in listed}
        targets = list(dict.fromkeys(target for testimony in testimonies for target in testimony.targets))
        found |= await self._select(BeliefQuery(ids=tuple(map(BeliefId, targets)), limit=None), targets)
        found |= await self._select(BeliefQuery(evidence=tuple(map(EventId, targets)), limit=None), targets)
        links = [link for belief in found.values() for link in belief.replaces if link not in found]
        found |= await self._select(BeliefQuery(ids=tuple(links), limit=None), links)
        return KnownBeliefs(found.values())

    async def _select(self, query: BeliefQuery, wanted: Sequence[str]) -> dict[BeliefId, Belief]:
        return {belief.id: belief for belief in await self._table.query(query)} if wanted else {}


async def replay(log: EventLog, at: datetime) -> list[Belief]:
    """Return all beliefs as of a past time, learned again from the events up to that time. Reads the whole log."""
    known = KnownBeliefs()
    position = 0
    while events := await log.read(position, limit=BATCH_EVENTS):
        testimonies = await read_all(log, [event for event in events if event.at <= at])
        await asyncio.to_thread(learn, testimonies, known)
        position = events[-1].position or position + len(events)
    return known.all


async def read_all(log: EventLog, events: Iterable[Event]) -> list[Testimony]:
    """Return what events say about beliefs, in order. Marks that were retracted before they were stored say nothing."""
    relevant = [event for event in events if event.name in NAMES]
    if not relevant:
        return []
    retracted = await _retracted(log, relevant)
    closings: dict[str, str] = {}
    found = []
    for event in relevant:
        if retracted.get(event.id, event.position or 0) < (event.position or 0):
            continue
        answered = ""
        if event.name == MARK and (session := event.context.session) is not None:
            place, text = _place_and_text(event)
            if place == "closing":
                closings[session] = text
            elif place == "prompt" and event.origin == "user" and is_short_answer(text):
                answered = closings.get(session) or await _closing_before(log, event, session)
        testimony = read_testimony(event, answered=answered)
        if testimony is not None:
            found.append(testimony)
    return found


async def _retracted(log: EventLog, events: Sequence[Event]) -> dict[str, int]:
    """Return the positions of the retractions before these events, by the id of what they retract."""
    first = min((event.position or 0 for event in events if event.name == MARK), default=0)
    if first <= 1:
        return {}
    stored = await log.query(EventQuery(names=(RETRACTED,), limit=None))
    return {str(each.data.get("mark")): each.position or 0 for each in stored}


def _place_and_text(event: Event) -> tuple[str, str]:
    try:
        mark = decode_mark(event)
    except InvalidEvent:
        return "", ""
    return place_of(mark.tags), mark.text


async def _closing_before(log: EventLog, prompt: Event, session: str) -> str:
    """Return the latest closing words of a session before a prompt; "" if there are none."""
    query = EventQuery(session=session, names=(MARK,), until=prompt.at + MICROSECOND, limit=CLOSINGS_LOOKED_MAX)
    for event in reversed(await log.query(query)):
        if (event.position or 0) < (prompt.position or 0):
            place, text = _place_and_text(event)
            if place == "closing":
                return text
    return ""
