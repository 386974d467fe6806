"""The PostgreSQL store: the spaces of many machines in one database, each protected by row-level security.

Every call is one transaction, and reads see one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mica.model.event import Clock, utc_now
from mica.store.postgres.beliefs import PostgresBeliefs
from mica.store.postgres.chains import PostgresChains
from mica.store.postgres.crystals import PostgresCrystals
from mica.store.postgres.files import PostgresFiles
from mica.store.postgres.log import PostgresLog
from mica.store.postgres.notices import PostgresNotices
from mica.store.postgres.purges import PostgresPurges
from mica.store.postgres.replies import PostgresReplies
from mica.store.postgres.server import connect, parse_address
from mica.store.postgres.space import READ, WRITE, PostgresSpace
from mica.store.postgres.texts import PostgresTexts
from mica.store.postgres.trails import PostgresTrails
from mica.store.postgres.vectors import PostgresVectors
from mica.store.postgres.work import PostgresWork
from mica.store.protocol import (
    AppendNotices,
    BeliefTable,
    ChainIndex,
    CrystalIndex,
    EventLog,
    PurgeLog,
    ReplyTable,
    StoreFiles,
    TextIndex,
    TrailTable,
    VectorIndex,
    WorkQueue,
)


class PostgresStore:
    """A store in a PostgreSQL database. Open it with `await PostgresStore.open(address)`."""

    def __init__(self, space: PostgresSpace) -> None:
        self._space = space
        self._notices = PostgresNotices(space)
        self.log: EventLog = PostgresLog(space)
        self.chains: ChainIndex = PostgresChains(space)
        self.notices: AppendNotices = self._notices
        self.texts: TextIndex = PostgresTexts(space)
        self.vectors: VectorIndex = PostgresVectors(space)
        self.crystals: CrystalIndex = PostgresCrystals(space)
        self.trails: TrailTable = PostgresTrails(space)
        self.beliefs: BeliefTable = PostgresBeliefs(space)
        self.replies: ReplyTable = PostgresReplies(space)
        self.work: WorkQueue = PostgresWork(space)
        self.purges: PurgeLog = PostgresPurges(space)
        self.files: StoreFiles = PostgresFiles(space)

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        space: str = "main",
        home: Path | None = None,
        clock: Clock = utc_now,
        must_exist: bool = False,
    ) -> PostgresStore:
        """Open the space at `postgresql://user@host/database?space=NAME`, and create it if necessary.

        `space` is the name of the space for an address that contains none. While the server cannot be reached, new
        events wait in a folder in `home`. A space that was opened with this `home` before can then be opened, too, but
        its methods raise StoreUnavailable until the server is back. With `must_exist`, a missing space raises
        UnknownSpace.
        """
        return cls(await PostgresSpace.open(address, space=space, home=home, clock=clock, must_exist=must_exist))

    @property
    def space(self) -> str:
        return self._space.id

    @property
    def location(self) -> str:
        return self._space.location

    @property
    def segments(self) -> Path | None:
        return self._space.segments

    async def names(self) -> list[str]:
        """Return the names of all spaces that the user in the address may open, sorted."""

        async def once() -> list[str]:
            async with self._space.transaction(READ) as connection:
                return [row[0] for row in await connection.fetch("SELECT name FROM spaces ORDER BY name")]

        return await self._space.run_with_retries(once)

    async def close(self) -> None:
        await self._notices.close()
        await self._space.close()


async def prepare(address: str, *, admitted: Iterable[str] = (), clock: Clock = utc_now) -> None:
    """Create or migrate the schema at an address, and grant the `admitted` roles access to it.

    The user in `address` must own the schema, or have the right to create it. No space is created.
    """
    parsed = parse_address(address, space="none")
    space = PostgresSpace(parsed, await connect(parsed), clock=clock)
    try:
        await space.prepare_schema()
        async with space.transaction(WRITE) as connection:
            for role in admitted:
                await connection.execute("SELECT admit(quote_ident($1)::regrole)", role)
    finally:
        await space.close()
