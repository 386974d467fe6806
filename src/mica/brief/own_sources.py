"""Lists mica's own sources: beliefs, recent work, marks, crystals, files, teachings and trails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo

from mica.brief.belief_source import BeliefSource
from mica.brief.crystal_source import CrystalSource, TeachingSource
from mica.brief.file_source import RankedFileSource, TrailSource
from mica.brief.mark_source import MarkSource, MentionSource, SharedSearch
from mica.brief.work_source import RecentWorkSource
from mica.navigation.places import RankFiles
from mica.search.vectors import MarkVectors
from mica.settings import TrailSettings
from mica.sources.protocol import Source
from mica.store.protocol import Store


def task_sources(
    store: Store,
    *,
    rank_files: RankFiles,
    zone: tzinfo | None,
    vectors: MarkVectors | None = None,
) -> list[Source]:
    """Return the sources that answer tasks. They share one search of marks."""
    shared = SharedSearch(log=store.log, chains=store.chains, texts=store.texts, vectors=vectors, zone=zone)
    return [
        BeliefSource(store.beliefs),
        RecentWorkSource(store.log, store.texts, store.beliefs),
        MarkSource(shared, store.texts, store.beliefs),
        CrystalSource(store.crystals, store.beliefs),
        RankedFileSource(store.log, store.chains, shared, rank_files),
    ]


def concept_sources(store: Store, *, stored: Callable[[], Awaitable[None]], gates: TrailSettings) -> list[Source]:
    """Return the sources that answer questions about concepts. One of them, for teachings, also answers tasks.

    Before answering about a concept, each source awaits `stored`, so that it sees all events emitted so far. The state
    and the confidence of a trail are computed with the settings in `gates`.
    """
    return [
        MentionSource(log=store.log, chains=store.chains, texts=store.texts, crystals=store.crystals, stored=stored),
        TeachingSource(store.log, store.crystals, stored=stored),
        TrailSource(store.log, store.trails, stored=stored, gates=gates),
    ]
