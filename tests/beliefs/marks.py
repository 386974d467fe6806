"""Marks for tests of beliefs, and beliefs learned from them without a store."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mica.beliefs.learner import KnownBeliefs, learn
from mica.beliefs.testimony import read_testimony
from mica.model.belief import Belief
from mica.model.event import EMPTY, MARK, Event, Origin
from mica.testing import build


def mark(
    number: int,
    text: str,
    place: str = "prompt",
    *,
    session: str = "s1",
    by: Origin | None = None,
    after_s: float | None = None,
    **data: object,
) -> Event:
    """Return a mark; a prompt is a user's, everything else an agent's. `number` is its position and its time."""
    tags = [place] if place != "note" else []
    origin = by or ("user" if place == "prompt" else "agent")
    context = EMPTY.with_(session=session, agent="claude-code")
    fields: dict[str, object] = {"text": text, "tags": tags, **data}
    event = build(number, MARK, fields, context=context, origin=origin, after_s=after_s)
    return msgspec.structs.replace(event, position=number)


def stored(events: Iterable[Event]) -> list[Event]:
    """Return events with positions in this order, from 1 on."""
    return [msgspec.structs.replace(event, position=number) for number, event in enumerate(events, 1)]


def learned(events: Iterable[Event], known: KnownBeliefs | None = None, *, answered: str = "") -> list[Belief]:
    """Return all beliefs after these events."""
    beliefs = known if known is not None else KnownBeliefs()
    testimonies = [each for event in events if (each := read_testimony(event, answered=answered)) is not None]
    learn(testimonies, beliefs)
    return beliefs.all


def in_force(beliefs: Iterable[Belief]) -> list[tuple[str, str]]:
    """Return kind and text of the beliefs in force, sorted."""
    return sorted((belief.kind, belief.text) for belief in beliefs if belief.is_in_force)


def texts(beliefs: Iterable[Belief]) -> list[str]:
    """Return the texts of the beliefs in force, sorted."""
    return sorted(belief.text for belief in beliefs if belief.is_in_force)
