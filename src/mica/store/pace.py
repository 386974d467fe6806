"""Work that looks up: it calls `pause` every few microseconds, and is kept there while somebody else asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Pause: TypeAlias = Callable[[], None]


def unhurried() -> None:
    """For work that nobody stands behind."""


def paced(things: Iterable[T], pause: Pause) -> Iterator[T]:
    """The same things, with a pause before each."""
    for thing in things:
        pause()
        yield thing
