"""Brief: what an agent should know now, and why it was told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.inject.receipts import receipt
from mica.inject.render import DAY_TOKENS, render, room, with_cost
from mica.llm.embeddings import Encoder
from mica.memory.gathering import Gathering
from mica.memory.wiring import check_budget
from mica.model import (
    Brief,
    Clock,
    EventId,
    utc_now,
)
from mica.select.budget import fit
from mica.select.gather import gather
from mica.select.references import Reference
from mica.select.sources import RECENCY_WEIGHT, Question, Source
from mica.select.sources.crystals import Crystals
from mica.select.sources.files import Files
from mica.select.sources.marks import Marks
from mica.select.sources.teachings import Teachings
from mica.settings import Settings
from mica.store.protocol import Store

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.inject.why import Why
    from mica.store.ingesting import Ingested


Preset = Literal["quick", "standard", "research", "coordinator"]
PRESETS: dict[Preset, int] = {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}  # tokens
MEANING_SHARE = 0.4  # of what is left of it, for a model to read the question
LATEST_SHARE = 0.2  # of a brief's deadline, for storing what was emitted just before


class Briefing(Gathering):
    """A memory that tells an agent what matters now."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = utc_now,
        sources: Sequence[Source] = (),
        encoder: Encoder | None = None,
        hooks: Path | None = None,
    ) -> None:
        super().__init__(store, settings=settings, clock=clock, encoder=encoder, hooks=hooks)
        self._sources: list[Source] = [Marks(store), Crystals(store), Files(store), Teachings(store), *sources]
        if len({source.name for source in self._sources}) < len(self._sources):
            raise InvalidInput(f"two sources have one name: {sorted(source.name for source in self._sources)}")

    async def brief(
        self,
        query: str = "",
        *,
        budget_tokens: int | None = None,
        preset: Preset | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        deadline_s: float | None = None,
        now: datetime | None = None,
        is_preview: bool = False,
    ) -> Brief:
        """What an agent should know now: never over the budget, never later than the deadline, its gaps named.

        Sources that fail or hang are named in `missing`; nothing of theirs is raised. The receipt is an event;
        a preview, which no agent is shown, has none. A `preset` is a budget by name. `recency_weight`, from 0 to 1, is
        how much being fresh counts among crystals, beside what they say of the query.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"a query is a text, not {query!r}; without one, leave it out")
        if preset is not None and preset not in PRESETS:
            raise InvalidInput(f"there is no preset {preset!r}; use one of {', '.join(PRESETS)}")
        if preset is not None and budget_tokens is not None:
            raise InvalidInput(f"a preset is a budget by name; give {preset!r} or {budget_tokens!r}, not both")
        if budget_tokens is None:
            budget_tokens = self._settings.brief.budget_tokens if preset is None else PRESETS[preset]
        check_budget("brief", budget_tokens)
        if not 0 <= recency_weight <= 1:
            raise InvalidInput(f"a recency weight of {recency_weight} is not possible; give 0 to 1")
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"a brief cannot be made within {deadline_s} seconds; give more than 0")
        deadline_s = self._settings.brief.deadline_s if deadline_s is None else deadline_s
        started = asyncio.get_running_loop().time()
        missing = await self._flushed_within(deadline_s * LATEST_SHARE)
        left_s = deadline_s - (asyncio.get_running_loop().time() - started)
        question = Question(
            query=query,
            now=now or self._clock(),
            zone=self._settings.zone(),
            store=self._store,
            meanings=self._meanings,
            meaning_s=left_s * MEANING_SHARE,
            recency_weight=recency_weight,
            budget_tokens=budget_tokens,
        )
        gathered = await gather(self._sources, question, deadline_s=left_s)
        missing |= gathered.missing | question.missing
        offered = [with_cost(passage, budget_tokens=budget_tokens) for passage in gathered.passages]
        left_tokens = room(budget_tokens, missing=missing)
        chosen, left_out = fit(offered, budget_tokens=left_tokens, day_tokens=DAY_TOKENS)
        brief = render(query, chosen, budget_tokens=budget_tokens, left_out=left_out, missing=missing)
        return brief if is_preview else msgspec.structs.replace(brief, receipt=self._receipt(brief))

    async def why(self, reference: Reference) -> list[Why]:
        """What a brief, a crystal or another event rests on: given its id, its position, or a line that ends in them.

        A line of a brief names one event or several, as in `… (#12 #14)`. Raises UnknownEvent when one is not there.
        """
        from mica.inject.why import handles, why

        asked: list[Reference] = [*handles(reference)] if isinstance(reference, str) else [reference]
        return [await why(self._store, await self.event(each)) for each in asked]

    async def _flushed_within(self, timeout_s: float) -> dict[str, str]:
        """Store what was emitted before; what a brief is told when that cannot be done in time."""
        try:
            await asyncio.wait_for(self._stored(), timeout_s)
        except TimeoutError:
            waiting = sum(last - first for _, first, last in self._folding.unfolded)
            late = f"the store did not answer within {timeout_s * 1000:.0f} ms"
            return {"latest": f"{waiting:,} events wait for the store" if waiting else late}
        except MicaError as error:
            return {"latest": str(error)}
        return {}

    def _receipt(self, brief: Brief) -> EventId | None:
        """Record what was shown, as recalled text: a brief is never evidence."""
        try:
            return self.emit("brief", receipt(brief), origin="recalled").id
        except MicaError:
            return None  # nothing can be written; the agent's turn goes on

    async def ingest(self) -> Ingested:
        """Store what hooks of coding agents spooled, and render what they answer next. Every reading stores it too."""
        if self._ingesting is None or self.spools is None:
            raise InvalidInput(f"no hooks write for {self.location}; they write beside the file of a space")
        done = await self._ingesting.ingest()
        if not done.is_busy:
            from mica.inject import answers

            await answers.render(self.spools, settings=self._settings, brief=self.brief, receipt=self._receipt)
            root = await self._worked_in()
            navigating = None if root is None else self._navigating(root)
            await answers.keep(self.spools, navigating, root=root, settings=self._settings, now=self._clock())
        return done
