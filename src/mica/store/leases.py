"""Background work and claims on it, with the input checks that all engines share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mica.errors import InvalidInput
from mica.store.codec import moment

WORD_CHARACTERS_MAX = 500  # enough for the name of a kind, a session, or a machine and its process
LEASE_MAX = timedelta(days=1)  # work of a crashed process waits until its lease ends, so renew short leases instead
# The columns of the work table, in the order that `work_of` and `claim_of` expect.
COLUMNS = "kind, about, due_at, owner, held_until"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of planned background work, and the process that holds it, if any."""

    kind: str
    about: str = ""  # which work of this kind: a session or a day; empty if the kind has only one
    due_at: datetime
    owner: str | None = None  # the process that holds it, or last held it without finishing
    held_until: datetime | None = None  # by the store's clock; after that another process may claim it


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one process to do a piece of work until `held_until`. Only the latest claim can finish the work."""

    id: str
    kind: str
    about: str
    due_at: datetime
    owner: str
    held_until: datetime  # by the store's clock


def check_words(**words: str) -> None:
    """Raise InvalidInput if an argument is too long, not printable or, except for `about`, empty."""
    for what, word in words.items():
        if not isinstance(word, str) or len(word) > WORD_CHARACTERS_MAX or not (word or what == "about"):
            raise InvalidInput(f"{what} {word!r:.60} is not usable; give 1 to {WORD_CHARACTERS_MAX} characters")
        if not word.isprintable():
            raise InvalidInput(f"{what} {word!r:.60} is not usable; give printable characters only")


def check_moment(what: str, at: datetime) -> None:
    """Raise InvalidInput for a time without a time zone."""
    if at.tzinfo is None:
        raise InvalidInput(f"{what} {at.isoformat()} has no time zone; use an aware datetime")


def check_lease(lease: timedelta) -> None:
    """Raise InvalidInput for a lease that is negative or longer than LEASE_MAX."""
    if not timedelta(0) <= lease <= LEASE_MAX:
        raise InvalidInput(f"a lease of {lease} is not possible; give 0 to {LEASE_MAX}, and renew it while you work")


def work_of(row: Sequence[Any]) -> Work:
    """Convert a row of the work table, with the columns in COLUMNS, to a piece of work."""
    kind, about, due_at, owner, held_until = row
    until = None if held_until is None else moment(held_until)
    return Work(kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=until)


def claim_of(identifier: str, row: Sequence[Any]) -> Claim:
    """Convert a row of the work table, with the columns in COLUMNS, to the claim with the id `identifier`."""
    kind, about, due_at, owner, held_until = row
    return Claim(
        id=identifier, kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=moment(held_until)
    )
