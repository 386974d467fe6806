"""Read rows of events in a transaction, and convert them to events.

Rows refer to ids, names and contexts by number (see `words`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from mica.model.event import ORIGINS, Context, Event, EventId, EventQuery, WriterId, event_id, name_pattern, split_id
from mica.store.codec import READ_ROWS, expand, moment
from mica.store.postgres.server import Connection
from mica.store.postgres.statements import AT_FOUND, AT_KEYS, AT_POSITIONS, HERE
from mica.store.postgres.words import PostgresWords

R = TypeVar("R")
Row = Sequence[Any]  # columns have the types that their table declares

DECODE_ROWS_MAX = 200  # more rows, some milliseconds of work, are decoded in a thread
POSITION_MAX = 2**63 - 1

_COLUMNS = """events.position, events.writer, events.sequence, events.name, events.at, events.context,
    events.root_writer, events.root_sequence, events.parent_writer, events.parent_sequence, events.depth,
    events.origin, events.error, events.data, events.payload"""


class RowReader:
    """Reads events of a space in one transaction."""

    def __init__(self, connection: Connection, space: int, words: PostgresWords) -> None:
        self.connection = connection
        self.space = space  # its number
        self.words = words

    async def select(self, rest: str, *values: object) -> list[Event]:
        """Return the events that a SELECT statement finds. `rest` is the statement after the list of columns.

        In it, $1 is the number of the space, and `values` start at $2.
        """
        rows = await self.connection.fetch(f"SELECT {_COLUMNS} {rest}", self.space, *values)
        if not rows:
            return []
        writers = await self.words.words(
            self.connection,
            "writers",
            {number for row in rows for number in (row[1], row[6], row[8]) if number is not None},
        )
        names = await self.words.words(self.connection, "names", {row[3] for row in rows})
        contexts = await self.words.contexts(self.connection, {row[5] for row in rows})
        frames = await self.frames({row[14] for row in rows} - {None})
        return await offload(
            len(rows) + DECODE_ROWS_MAX * len(frames),
            lambda: [_event(row, writers=writers, names=names, contexts=contexts, frames=frames) for row in rows],
        )

    async def at(self, positions: Iterable[int]) -> list[Event]:
        """Return the events at these positions, in order of position."""
        return await self.select(
            f"FROM keys {AT_KEYS} WHERE keys.space = {HERE} AND keys.{AT_POSITIONS} ORDER BY keys.position",
            [position for position in positions if 0 < position <= POSITION_MAX],
        )

    async def positions(self, identifiers: Iterable[EventId]) -> list[int]:
        """Return the positions of the events with these ids; unknown ids are skipped."""
        keys = [split_id(identifier) for identifier in identifiers]
        writers = await self.words.known_numbers(self.connection, "writers", {writer for writer, _ in keys})
        known = [(writers[writer], sequence) for writer, sequence in keys if writer in writers]
        rows = await self.connection.fetch(
            f"""SELECT keys.position FROM unnest($2::integer[], $3::bigint[]) AS wanted (writer, sequence)
            CROSS JOIN LATERAL (
                SELECT * FROM keys WHERE space = {HERE}
                    AND writer = wanted.writer AND sequence = wanted.sequence OFFSET 0
            ) AS keys""",
            self.space,
            [writer for writer, _ in known],
            [sequence for _, sequence in known],
        )
        return [position for (position,) in rows]

    async def after(self, position: int, *, limit: int) -> list[Event]:
        return await self.select(
            f"""FROM (
                SELECT at, position FROM keys WHERE space = {HERE} AND position > $2 ORDER BY position LIMIT $3
            ) AS found {AT_FOUND} ORDER BY found.position""",
            position,
            limit,
        )

    async def whole_log(self) -> AsyncIterator[list[Event]]:
        last = 0
        while batch := await self.after(last, limit=READ_ROWS):
            yield batch
            last = batch[-1].position or 0

    async def frames(self, names: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the compressed payloads with these digests, by digest. Unknown digests are left out."""
        if not names:
            return {}
        rows = await self.connection.fetch(
            f"SELECT digest, body FROM payloads WHERE space = {HERE} AND digest = ANY ($2)", self.space, list(names)
        )
        return dict(rows)

    async def fitting_names(self, patterns: Iterable[str]) -> list[int]:
        """Return the row ids of the stored event names that match at least one of these patterns."""
        expressions = [name_pattern(pattern) for pattern in patterns]
        rows = await self.connection.fetch("SELECT id, name FROM names WHERE space = $1 ORDER BY id", self.space)
        return [number for number, name in rows if any(expression.fullmatch(name) for expression in expressions)]

    async def fitting_contexts(self, query: EventQuery) -> list[int] | None:
        """Return the row ids of the contexts that match a query; None if the query has no condition on contexts."""
        if query.session is query.agent is query.user is None:
            return None
        rows = await self.connection.fetch(
            # No join: for a space that has just grown, the planner assumes few sessions and compares all of them.
            """SELECT id FROM contexts WHERE space = $1
            AND ($2::bytea IS NULL OR session IN (SELECT id FROM sessions WHERE space = $1 AND name = $2))
            AND ($3::bytea IS NULL OR agent = $3) AND ($4::bytea IS NULL OR "user" = $4)""",
            self.space,
            *(None if word is None else word.encode() for word in (query.session, query.agent, query.user)),
        )
        return [number for (number,) in rows]


async def offload(rows: int, call: Callable[[], R]) -> R:
    """Return the result of `call`. It runs in a thread if it processes many rows, to keep the event loop free."""
    return await asyncio.to_thread(call) if rows > DECODE_ROWS_MAX else call()


def _event(
    row: Row,
    *,
    writers: Mapping[int, str],
    names: Mapping[int, str],
    contexts: Mapping[int, Context],
    frames: Mapping[bytes, bytes],
) -> Event:
    (position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer, parent_sequence,
     depth, origin, error, data, payload) = row  # fmt: skip

    def identifier(number: int, sequence: int) -> EventId:
        return event_id(WriterId(writers[number]), sequence)

    return Event(
        id=identifier(writer, sequence),
        name=names[name],
        at=moment(at),
        body=expand(frames[payload]) if data is None else data,
        context=contexts[context],
        root_id=identifier(root_writer, root_sequence),
        parent_id=None if parent_writer is None else identifier(parent_writer, parent_sequence),
        depth=depth,
        origin=ORIGINS[origin],
        error=error,
        position=position,
    )
