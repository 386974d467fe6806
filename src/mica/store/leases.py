"""What a piece of shared work may be called, and for how long it may be held. Every engine asks here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from mica.errors import InvalidInput
from mica.model.event import Claim, Work
from mica.store.codec import moment

WORD_CHARACTERS_MAX = 500  # a kind, a session or a day, a machine and its process
LEASE_MAX = timedelta(days=1)  # the work of a holder that died waits for so long: renew instead
# The columns of a piece of work in the order in which `work_of` and `claim_of` take them.
COLUMNS = "kind, about, due_at, owner, held_until"


def check_words(**words: str) -> None:
    """Raise InvalidInput when one of these cannot be a name."""
    for what, word in words.items():
        if not isinstance(word, str) or len(word) > WORD_CHARACTERS_MAX or not (word or what == "about"):
            raise InvalidInput(f"{what} {word!r:.60} is not usable; give 1 to {WORD_CHARACTERS_MAX} characters")
        if not word.isprintable():
            raise InvalidInput(f"{what} {word!r:.60} is not usable; give printable characters only")


def check_moment(what: str, at: datetime) -> None:
    """Raise InvalidInput when a time has no zone."""
    if at.tzinfo is None:
        raise InvalidInput(f"{what} {at.isoformat()} has no time zone; use an aware datetime")


def check_lease(lease: timedelta) -> None:
    """Raise InvalidInput when work cannot be held for so long."""
    if not timedelta(0) <= lease <= LEASE_MAX:
        raise InvalidInput(f"a lease of {lease} is not possible; give 0 to {LEASE_MAX}, and renew it while you work")


def work_of(row: Sequence[Any]) -> Work:
    """A row with COLUMNS as a piece of work."""
    kind, about, due_at, owner, held_until = row
    until = None if held_until is None else moment(held_until)
    return Work(kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=until)


def claim_of(identifier: str, row: Sequence[Any]) -> Claim:
    """A row with COLUMNS as a claim of it."""
    kind, about, due_at, owner, held_until = row
    return Claim(
        id=identifier, kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=moment(held_until)
    )


def nothing_to_hear(ring: Callable[[], None]) -> Callable[[], None]:
    """How an engine listens that is told nothing."""
    return lambda: None
