"""The row without which the triggers of a space on a server let nothing of it change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from mica.model.event import microseconds, utc_now
from mica.store.postgres.server import Connection


@asynccontextmanager
async def authority(connection: Connection, space: int, work: Literal["purge", "rebuild"]) -> AsyncIterator[None]:
    """Let this work's changes pass the triggers, in this transaction only."""
    row = (space, work, microseconds(utc_now()))
    await connection.execute("INSERT INTO authority (space, work, at) VALUES ($1, $2, $3)", *row)
    yield
    await connection.execute("DELETE FROM authority WHERE space = $1 AND work = $2", space, work)
