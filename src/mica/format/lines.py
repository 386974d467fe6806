"""One-line texts, numbers, sizes and times for people, shared by all surfaces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime, tzinfo

HANDLES_MAX = 3  # event numbers cited in one line of a document

# Characters that control a terminal, or change the order in which it shows others.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: "1 task", "2 tasks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def alternatives(words: Iterable[str]) -> str:
    """Return words as a list with "or" before the last: "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def strip_control(text: str) -> str:
    """Return the text with each control character replaced by a blank. Tabs and newlines stay."""
    return CONTROL.sub(" ", text)


def one_line(text: str, width: int) -> str:
    """Return a text on one line, cut to `width` characters, without control characters."""
    flat = " ".join(strip_control(text[: 4 * width]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


ZONE: ContextVar[tzinfo | None] = ContextVar("mica_zone", default=None)  # of the times shown; None for this machine's


def to_user_zone(at: datetime) -> datetime:
    """Return a time in the user's time zone. A time at the limit of what can be represented is returned unchanged."""
    try:
        return at.astimezone(ZONE.get())
    except OverflowError:
        return at


def format_time(at: datetime) -> str:
    """Return a date and time in the user's time zone as text, such as "2026-11-03 09:30"."""
    return to_user_zone(at).strftime("%Y-%m-%d %H:%M")


def format_bytes(number_of_bytes: int) -> str:
    """Return a number of bytes as text with a unit, such as "1.5 MB"."""
    amount = float(number_of_bytes)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
