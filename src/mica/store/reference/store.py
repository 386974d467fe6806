"""The reference store: one object per role over data in memory."""

from __future__ import annotations

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
from mica.store.reference.beliefs import ReferenceBeliefs
from mica.store.reference.chains import ReferenceChains
from mica.store.reference.crystals import ReferenceCrystals
from mica.store.reference.files import ReferenceFiles
from mica.store.reference.log import ReferenceLog
from mica.store.reference.purges import ReferencePurges
from mica.store.reference.replies import ReferenceReplies
from mica.store.reference.state import ReferenceState
from mica.store.reference.texts import ReferenceTexts
from mica.store.reference.trails import ReferenceTrails
from mica.store.reference.vectors import ReferenceVectors
from mica.store.reference.work import ReferenceWork


class EphemeralStore:
    """A store in memory. Its data is lost when the process ends."""

    def __init__(self) -> None:
        self.state = ReferenceState()
        self.log: EventLog = ReferenceLog(self.state)
        self.chains: ChainIndex = ReferenceChains(self.state)
        self.notices: AppendNotices = SilentNotices()
        self.texts: TextIndex = ReferenceTexts(self.state)
        self.vectors: VectorIndex = ReferenceVectors(self.state)
        self.crystals: CrystalIndex = ReferenceCrystals(self.state)
        self.trails: TrailTable = ReferenceTrails(self.state)
        self.beliefs: BeliefTable = ReferenceBeliefs(self.state)
        self.replies: ReplyTable = ReferenceReplies(self.state)
        self.work: WorkQueue = ReferenceWork(self.state)
        self.purges: PurgeLog = ReferencePurges(self.state)
        self.files: StoreFiles = ReferenceFiles(self.state)

    @property
    def space(self) -> str:
        return self.state.space

    @property
    def location(self) -> str:
        return ":memory:"

    @property
    def segments(self) -> None:
        return None

    async def close(self) -> None:
        self.state.is_closed = True
