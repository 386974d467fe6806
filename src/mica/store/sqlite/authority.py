"""The row without which the triggers of a file let nothing of its log change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import apsw

from mica.model.event import microseconds, utc_now


@contextmanager
def authority(connection: apsw.Connection, work: Literal["age", "purge", "rebuild"]) -> Iterator[None]:
    """Let this work's changes pass the triggers, in this transaction only."""
    connection.execute("INSERT INTO authority (work, at) VALUES (?, ?)", (work, microseconds(utc_now())))
    yield
    connection.execute("DELETE FROM authority WHERE work = ?", (work,))
