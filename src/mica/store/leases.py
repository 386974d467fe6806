"""Shared work and claims on it, and the checks of names and leases that all engines use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mica.errors import InvalidInput
from mica.store.codec import moment

WORD_CHARACTERS_MAX = 500  # a kind, a session or a day, a machine and its process
LEASE_MAX = timedelta(days=1)  # the work of a crashed holder waits this long, so renew short leases instead
# The columns of a piece of work, in the order that `work_of` and `claim_of` expect.
COLUMNS = "kind, about, due_at, owner, held_until"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of planned background work, and the process that holds it."""

    kind: str
    about: str = ""  # which of this kind: a session, a day; empty when there is only one
    due_at: datetime
    owner: str | None = None  # the process that holds it, or last held it without finishing
    held_until: datetime | None = None  # by the store's clock; after that another process may claim it


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to do a piece of work until a time. Only this claim can finish it."""

    id: str
    kind: str
    about: str
    due_at: datetime
    owner: str
    held_until: datetime  # by the store's clock


def check_words(**words: str) -> None:
    """Raise InvalidInput when one of these texts cannot be a name."""
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
    """Raise InvalidInput when a lease is negative or too long."""
    if not timedelta(0) <= lease <= LEASE_MAX:
        raise InvalidInput(f"a lease of {lease} is not possible; give 0 to {LEASE_MAX}, and renew it while you work")


def work_of(row: Sequence[Any]) -> Work:
    """A row with COLUMNS as a piece of work."""
    kind, about, due_at, owner, held_until = row
    until = None if held_until is None else moment(held_until)
    return Work(kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=until)


def claim_of(identifier: str, row: Sequence[Any]) -> Claim:
    """A row with COLUMNS as a claim on the work."""
    kind, about, due_at, owner, held_until = row
    return Claim(
        id=identifier, kind=kind, about=about, due_at=moment(due_at), owner=owner, held_until=moment(held_until)
    )
