"""The PostgreSQL implementation of `StoreFiles`: sizes, verification and rebuilding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from mica.model.event import Event
from mica.store.postgres import beliefs, crystals, replies, trails
from mica.store.postgres.append import IndexEntry, index_entry
from mica.store.postgres.crystals import CrystalRowWriter
from mica.store.postgres.server import LONG_S, Connection
from mica.store.postgres.space import READ, WRITE, PostgresRole, reading
from mica.store.postgres.verify import broken
from mica.store.protocol import Sizes, no_progress


class PostgresFiles(PostgresRole):
    """Implements `StoreFiles` in PostgreSQL."""

    @reading
    async def sizes(self, connection: Connection) -> Sizes:
        """Count the rows of the space. The size in bytes is that of the whole schema, which all spaces share."""
        events, marks, contexts, payloads, size, has_checksums = await connection.fetchrow(
            """SELECT (SELECT count(*) FROM keys WHERE space = $1),
            (SELECT count(*) FROM texts WHERE space = $1 AND is_mark),
            (SELECT count(*) FROM contexts WHERE space = $1),
            (SELECT count(*) FROM payloads WHERE space = $1),
            (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'),
            current_setting('data_checksums') = 'on'""",
            self._space.number,
        )
        return Sizes(
            events=events,
            marks=marks,
            contexts=contexts,
            payloads=payloads,
            size_bytes=size,
            page_checksums=has_checksums,
        )

    async def verify(self, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
        async def once() -> list[str]:
            async with self._space.transaction(READ, patience_s=LONG_S) as connection:
                return await broken(self._space.reads(connection), on_progress)

        return await self._space.run_with_retries(once)

    async def rebuild(self, *, on_progress: Callable[[int], None] = no_progress) -> int:
        async with self._space.appending:
            return await self._space.run_with_retries(partial(self._rebuild, on_progress))

    async def _rebuild(self, on_progress: Callable[[int], None]) -> int:
        count = 0
        async with self._space.transaction(WRITE, patience_s=LONG_S) as connection:
            writing = await self._space.lock(connection)
            for table in ("postings", "texts", "vectors"):
                await connection.execute(f"DELETE FROM {table} WHERE space = $1", self._space.number, timeout=LONG_S)
            await crystals.clear(connection, self._space.number)
            await trails.clear(connection, self._space.number)
            await beliefs.clear(connection, self._space.number)
            await replies.clear(connection, self._space.number)
            reads = self._space.reads(connection)
            crystal_rows = CrystalRowWriter(writing, reads)
            async for batch in reads.whole_log():
                await writing.index(await asyncio.to_thread(_index_entries, batch))
                await crystal_rows.index_stored((event.position or 0, event) for event in batch)
                count += len(batch)
                on_progress(count)
        self._space.words.keep()
        return count

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Return 0: the log is partitioned by month, and old partitions are not compressed.

        The server manages the size of its tables, and a role that does not own them cannot compact them.
        """
        self._space.pool()
        return 0


def _index_entries(events: Iterable[Event]) -> list[tuple[int, Event, IndexEntry]]:
    return [(event.position or 0, event, entry) for event in events if (entry := index_entry(event)) is not None]
