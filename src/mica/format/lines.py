"""Texts on one line, numbers and times as people read them: what surfaces share."""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import datetime, tzinfo

HANDLES_MAX = 3  # of one line in a document that names its sources

# What drives a terminal, or makes it show characters in another order than they stand in.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def counted(number: int, noun: str) -> str:
    """A number with its noun, as people say it."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def harmless(text: str) -> str:
    """A text of the same length without characters that would drive a terminal."""
    return CONTROL.sub(" ", text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text on one line, without characters that would drive a terminal."""
    flat = " ".join(harmless(text[: 4 * width]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


ZONE: ContextVar[tzinfo | None] = ContextVar(
    "mica_zone", default=None
)  # by which times are shown; None: this machine's


def there(at: datetime) -> datetime:
    """A time by the clocks of the asker's zone, which a surface sets once; as it is where their calendar has ended."""
    try:
        return at.astimezone(ZONE.get())
    except OverflowError:
        return at


def local(at: datetime) -> str:
    """A time as people of the asker's zone read it."""
    return there(at).strftime("%Y-%m-%d %H:%M")


def size(number_of_bytes: int) -> str:
    """Bytes as people read them."""
    amount = float(number_of_bytes)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
