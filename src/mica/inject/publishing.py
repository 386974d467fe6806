"""Where commands and skills were published, so that a purge reaches what they say."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from mica.inject.commands import Destination, refresh
from mica.model import MARK, Event
from mica.store.purging import Purged
from mica.trails import CREATED, CRYSTALLIZED, Trail

NAMING = frozenset((MARK, CREATED, CRYSTALLIZED))  # whose words commands are made of


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were written on a machine."""

    host: str
    destination: Destination


class Republished(msgspec.Struct, frozen=True, kw_only=True):
    """What became of published files."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()  # what a person must see to, one sentence each


def publications_in(events: Iterable[Event]) -> list[Publication]:
    """Each place once, as these events record it; what cannot be read records nothing."""
    found: list[Publication] = []
    for event in events:
        with suppress(msgspec.ValidationError):
            each = msgspec.convert(event.data, Publication, dec_hook=lambda kind, value: Path(value))
            if each not in found:
                found.append(each)
    return found


def republished(trails: Sequence[Trail], publications: Iterable[Publication]) -> Republished:
    """Bring files that mica wrote up to date with these trails; what cannot be reached, or was edited, is named."""
    written: list[str] = []
    removed: list[str] = []
    unreached: list[str] = []
    for each in publications:
        root = each.destination.root
        if each.host != platform.node():
            unreached.append(f"commands in {root} on {each.host} may say what was purged: publish there again")
            continue
        try:
            outcomes = refresh(trails, each.destination)
        except OSError as error:
            unreached.append(f"commands in {root} were not written again: {error.strerror or error}; look at them")
            continue
        for outcome in outcomes:
            path = str(root / outcome.path)
            if outcome.fate == "written":
                written.append(path)
            elif outcome.fate == "removed":
                removed.append(path)
            elif outcome.fate == "kept":
                unreached.append(f"{path} may say what was purged ({outcome.reason}): look at it")
    return Republished(written=tuple(written), removed=tuple(removed), unreached=tuple(unreached))


def with_files(purged: Purged, done: Republished) -> Purged:
    """A purge with what became of published files; a person need not look at them where it took no words of theirs."""
    return msgspec.structs.replace(
        purged,
        exports=(*purged.exports, *done.written),
        removed=(*purged.removed, *done.removed),
        unreached=(*purged.unreached, *(() if NAMING.isdisjoint(purged.names) else done.unreached)),
    )
