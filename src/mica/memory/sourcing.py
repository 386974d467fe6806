"""Ask around: what an application knows elsewhere, in databases, files, servers and live objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mica.llm.embeddings import Encoder
from mica.memory.guiding import Guiding
from mica.model.event import Clock, utc_now
from mica.settings import Settings
from mica.store.protocol import Store

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.sources.registry import Sources


class Sourcing(Guiding):
    """A memory that knows whom to ask."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = utc_now,
        encoder: Encoder | None = None,
        hooks: Path | None = None,
    ) -> None:
        from mica.sources.registry import Sources

        self.sources: Sources = Sources(settings)  # first: what is wrong in the settings is said before anything begins
        super().__init__(store, settings=settings, clock=clock, encoder=encoder, hooks=hooks)

    def register(
        self,
        name: str,
        thing: object,
        *,
        concepts: str | Sequence[str] | None = None,
        fragment: Mapping[str, object] | None = None,
        where: Mapping[str, str] | None = None,
        **declared: object,
    ) -> None:
        """Let a live object, or a function of a concept, be a source under a name; `memory.sources` has them all.

        An object is read each time it is asked; a function returns rows, fragments or nothing, and runs in a thread
        unless it is a coroutine. `concepts` are patterns of what it knows (`judgment:*`), `fragment` says which column
        of a row is what, `where` which rows are meant, and `rank`, `ttl_s`, `is_live`, `fragments_max`,
        `characters_max`, `timeout_s`, `time_share` and `invalidated_by` are as in the settings. Raises InvalidInput for
        anything else.
        """
        self.sources.register(name, thing, concepts=concepts, fragment=fragment, where=where, **declared)
