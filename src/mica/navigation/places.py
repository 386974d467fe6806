"""What `navigate` answers: files with the lines that matter, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Tier = Literal["named", "walked", "words"]  # how it was found: named in the prompt, by what was done, by words alone


class Lines(msgspec.Struct, frozen=True):
    """Lines of a file as it is now, the first and the last included."""

    start: int
    end: int


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a task will probably need."""

    path: str
    probability: float  # that it is read or changed for the task, 0 to 0.9
    tier: Tier
    reasons: tuple[str, ...] = ()
    lines: tuple[Lines, ...] = ()  # where to begin; empty for the whole file
    total_lines: int | None = None


class Places(list[Place]):
    """Places, best first, and what could not be looked at, by name with the reason."""

    missing: dict[str, str]

    def __init__(self, places: Iterable[Place] = (), *, missing: dict[str, str] | None = None) -> None:
        super().__init__(places)
        self.missing = missing or {}
