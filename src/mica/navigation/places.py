"""The results of `navigate`: files with the lines to read first, a probability and reasons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from mica.model.event import EventId

Tier = Literal["named", "walked", "words"]  # evidence: named in the prompt, earlier work, or words alone


class Lines(msgspec.Struct, frozen=True):
    """A range of lines in the current file, counted from 1; both ends are included."""

    start: int
    end: int


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task will probably need, with the lines to read first."""

    path: str
    probability: float  # that the file is read or changed for the task, 0 to 0.9
    tier: Tier
    reasons: tuple[str, ...] = ()
    lines: tuple[Lines, ...] = ()  # the ranges to read first; empty for the whole file
    total_lines: int | None = None  # the number of lines of the file; None if it was not read


class Places(list[Place]):
    """A list of places, best first. `missing` maps each data source that could not be used to the reason."""

    missing: dict[str, str]

    def __init__(self, places: Iterable[Place] = (), *, missing: dict[str, str] | None = None) -> None:
        super().__init__(places)
        self.missing = missing or {}


class RankedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted file that was opened before, with the lines to read first and the reason for the prediction."""

    path: str
    lines: tuple[tuple[int, int], ...]
    reason: str
    last: EventId  # the event of the last access to the file
    at: datetime  # the time of the last access
    probability: float = 0.0  # that the task needs the file


RankFiles = Callable[[str, float | None], Awaitable[Sequence[RankedFile] | None]]  # for a task, within so many seconds
