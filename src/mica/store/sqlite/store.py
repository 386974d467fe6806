"""The SQLite store: one object per role, which share a file and its worker thread."""

from __future__ import annotations

from pathlib import Path

from mica.store.listener import SilentNotices
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
from mica.store.sqlite.beliefs import SqliteBeliefs
from mica.store.sqlite.chains import SqliteChains
from mica.store.sqlite.crystals import SqliteCrystals
from mica.store.sqlite.files import SqliteFiles
from mica.store.sqlite.log import SqliteLog
from mica.store.sqlite.purges import SqlitePurges
from mica.store.sqlite.replies import SqliteReplies
from mica.store.sqlite.texts import SqliteTexts
from mica.store.sqlite.trails import SqliteTrails
from mica.store.sqlite.vectors import SqliteVectors
from mica.store.sqlite.work import SqliteWork
from mica.store.sqlite.worker import SqliteWorker


class SqliteStore:
    """A store in a SQLite file. Open it with `await SqliteStore.open(path)`."""

    def __init__(self, worker: SqliteWorker) -> None:
        self._worker = worker
        self.log: EventLog = SqliteLog(worker)
        self.chains: ChainIndex = SqliteChains(worker)
        self.notices: AppendNotices = SilentNotices()
        self.texts: TextIndex = SqliteTexts(worker)
        self.vectors: VectorIndex = SqliteVectors(worker)
        self.crystals: CrystalIndex = SqliteCrystals(worker)
        self.trails: TrailTable = SqliteTrails(worker)
        self.beliefs: BeliefTable = SqliteBeliefs(worker)
        self.replies: ReplyTable = SqliteReplies(worker)
        self.work: WorkQueue = SqliteWork(worker)
        self.purges: PurgeLog = SqlitePurges(worker)
        self.files: StoreFiles = SqliteFiles(worker)

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """Open the store in this file. The file is created or migrated if necessary."""
        return cls(await SqliteWorker.open(path))

    @property
    def space(self) -> str:
        return self._worker.space

    @property
    def location(self) -> str:
        return str(self._worker.path)

    @property
    def segments(self) -> Path:
        path = self._worker.path
        return path.with_name(path.name + "-segments")

    async def close(self) -> None:
        await self._worker.close()
