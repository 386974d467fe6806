"""Journals of live and dead writers, and what is left in them."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import cast

from mica.events.context import Here
from mica.events.journal import Journal
from mica.events.leftovers import Leftover, leftovers
from mica.events.segment import SUFFIX
from mica.model.event import Event


def open_journal(folder: Path | None) -> Journal:
    return Journal(folder, space="test", base=Here(), clock=None, wake=lambda: None)


def drained(waiting: Journal | Leftover) -> list[Event]:
    """All waiting events, folded as by a store that accepts every batch."""
    found: list[Event] = []
    while (batch := waiting.batch(100)) is not None:
        found += batch.events
        waiting.stored(batch)
    return found


def leftover_events(folder: Path) -> list[Event]:
    """The events of dead writers in a folder; folding removes them."""
    found: list[Event] = []
    for leftover in leftovers(folder):
        leftover.confirm(leftover.unconfirmed, stored=leftover.unconfirmed)  # the store has what it was given
        found += drained(leftover)
        leftover.close()
    return found


def written(folder: Path, count: int = 50, *, synced: bool = True) -> Path:
    """The path of a segment of a dead writer."""
    journal = open_journal(folder)
    for number in range(count):
        journal.emit("step", {"n": number})
    if synced:
        journal.sync()
    journal.close()
    [path] = folder.rglob(f"*{SUFFIX}")
    return path


def change_version(path: Path, version: int) -> None:
    """Make a segment look as if another version of mica had written it."""
    body = bytearray(path.read_bytes())
    body[8] = body[136] = version
    path.write_bytes(body)


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Flip bits of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bits]))


def tokens_of(journal: Journal) -> list[bool]:
    """The list that serves as the lock of `emit`, so that a test can see how an interrupt leaves it."""
    emit = cast(FunctionType, journal.emit)
    named = dict(zip(emit.__code__.co_freevars, emit.__closure__ or (), strict=True))
    return cast(list[bool], named["tokens"].cell_contents)
