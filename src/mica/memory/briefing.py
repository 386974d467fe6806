"""Brief: what an agent should know now, and why it was told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from mica.brief.crystal_source import Crystals
from mica.brief.file_source import Files
from mica.brief.gather import gather
from mica.brief.mark_source import Marks
from mica.brief.question import RECENCY_WEIGHT, Question, Source
from mica.brief.receipts import BRIEF, receipt
from mica.brief.switch import SWITCHED, is_switched_on
from mica.brief.teaching_source import Teachings
from mica.errors import InvalidInput, MicaError, UnknownEvent
from mica.events.references import Reference
from mica.hook import BRIEFS, is_held_out
from mica.llm.embeddings import Encoder
from mica.memory.gathering import PURGED_MEANWHILE, Gathering
from mica.model.event import MICROSECOND, Brief, Clock, EventId, EventQuery, Passage, Ref, check_budget, utc_now
from mica.settings import Settings
from mica.sources.protocol import Concept
from mica.store.protocol import Store

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.brief.composition import Account
    from mica.brief.quality import Quality
    from mica.brief.why import Why
    from mica.clients.ingest import Ingested


Preset = Literal["quick", "standard", "research", "coordinator"]
PRESETS: dict[Preset, int] = {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}  # tokens
MEANING_SHARE = 0.4  # of what is left of it, for a model to read the question
PAST_S = 60.0  # for what would have been said at another time: nobody's turn waits for it
LATEST_SHARE = 0.2  # of a brief's deadline, for storing what was emitted just before


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a brief is asked for, checked."""

    query: str
    concepts: tuple[Concept, ...]
    budget_tokens: int
    recency_weight: float
    deadline_s: float
    is_compressed: bool
    is_preview: bool


def _composed(
    asked: _Asked, passages: Sequence[Passage], accounts: Sequence[Account], *, missing: dict[str, str]
) -> Brief:
    from mica.brief.composition import compose

    return compose(
        asked.query,
        passages,
        accounts,
        missing=missing,
        budget_tokens=asked.budget_tokens,
        is_compressed=asked.is_compressed,
    )


def _without_own(account: Account, reason: str, now: datetime) -> Account:
    """What other systems know of a concept, without what rests on events of this log."""
    from mica.sources.cohere import cohere
    from mica.sources.fan_out import without_own

    others = without_own(account.collected, reason)
    coherent = cohere(others.fragments, ranks=others.ranks, now=now)
    return msgspec.structs.replace(account, collected=others, coherent=coherent)


def _nothing(asked: _Asked) -> Brief:
    """A brief that tells nothing, to compare."""
    return Brief(query=asked.query, text="", passages=(), tokens=0, budget_tokens=asked.budget_tokens, is_off=True)


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
        self._sources: list[Source] = [
            Marks(store),
            Crystals(store),
            Files(store, self._ranked),
            Teachings(store),
            *sources,
        ]
        if len({source.name for source in self._sources}) < len(self._sources):
            raise InvalidInput(f"two sources have one name: {sorted(source.name for source in self._sources)}")

    async def brief(
        self,
        query: str = "",
        *,
        concept: Concept | str | Sequence[Concept | str] = (),
        budget_tokens: int | None = None,
        preset: Preset | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        deadline_s: float | None = None,
        now: datetime | None = None,
        at: datetime | str | None = None,
        compress: bool = False,
        off: bool = False,
        is_preview: bool = False,
    ) -> Brief:
        """What an agent should know now: never over the budget, never later than the deadline, its gaps named.

        With a `concept`, and for those that `[brief] concepts` sets, it also tells what other systems state, at most
        1/φ of the budget. Sources that fail or hang are named in `missing`; nothing of theirs is raised. The receipt is
        an event; a preview, which no agent is shown, has none. A `preset` is a budget by name. `recency_weight`, from 0
        to 1, is how much being fresh counts among crystals, beside what they say of the query. With `compress`, what is
        too long is told by its most telling sentences, and how much of it is left. With `off`, as for a space that is
        switched off and a session that is held out, nothing is told, and the receipt says so.

        With `at` it is what would have been said then, however long that takes to find out: by what was recorded until
        then, and what other systems had stated when they were last asked before.
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
        given = [concept] if isinstance(concept, str | Concept) else concept
        concepts = [
            each if isinstance(each, Concept) else Concept.parse(each)
            for each in (*self._settings.brief.concepts, *given)
        ]
        asked = _Asked(
            query=query,
            concepts=tuple(dict.fromkeys(concepts)),
            budget_tokens=budget_tokens,
            recency_weight=recency_weight,
            deadline_s=self._settings.brief.deadline_s if deadline_s is None else deadline_s,
            is_compressed=compress,
            is_preview=is_preview,
        )
        await self._load(asked.concepts)
        began = asyncio.get_running_loop().time()
        if at is not None:
            past = self._moment(at, now or self._clock())
            assert past is not None
            brief = await self._brief_at(asked, past)
        elif off or is_held_out(self.here.context.session or "", self._settings.brief.holdout, what=BRIEFS):
            past, brief = None, _nothing(asked)
        else:
            with self._turns.asking():
                past, brief = None, await self._brief_now(asked, now or self._clock())
        if is_preview:
            return brief
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        return msgspec.structs.replace(brief, receipt=self._receipt(brief, latency_ms=took_ms, as_of=past))

    async def prepare_brief(self, concept: Concept | str | Sequence[Concept | str] = ()) -> None:
        """Load what a brief is made with: as `prepare`, what ranks files, the statistics of words, and the model.

        Briefs work without this, but the first of a process may name what was not ready in time.
        """
        await self.prepare(concept)
        with suppress(MicaError):
            await self._store.postings([""], limit=1)
            if self._meanings is not None:
                await self._meanings.prepare()

    async def _load(self, concepts: Sequence[Concept]) -> None:
        from mica.navigation import precomputed as ranking  # noqa: F401  # for what it loads

        await super()._load(concepts)

    async def _brief_now(self, asked: _Asked, now: datetime) -> Brief:
        """What there is to tell, and nothing that was purged before it is told."""
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.deadline_s
        is_again = False
        while True:
            generation, left_s = self._generation_known(), max(0.0, until - loop.time())
            brief, accounts = await self._brief_once(msgspec.structs.replace(asked, deadline_s=left_s), now)
            if not any(each.sources for each in (*brief.passages, *brief.lost)):
                return brief  # nothing of it was in this log
            doubt = await self._doubt_since(generation, within_s=until - loop.time())
            if not doubt:
                return brief
            if is_again or doubt != PURGED_MEANWHILE:
                others = [_without_own(each, doubt, now) for each in accounts]
                return _composed(asked, (), others, missing=brief.missing | {"log": doubt})
            is_again = True

    async def _brief_once(self, asked: _Asked, now: datetime) -> tuple[Brief, Sequence[Account]]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        missing = await self._flushed_within(asked.deadline_s * LATEST_SHARE)
        if not missing and not await self._is_on(asked.deadline_s * LATEST_SHARE):
            return _nothing(asked), ()
        left_s = asked.deadline_s - (loop.time() - started)
        question = self._question(asked, now, store=self._store, meaning_s=left_s * MEANING_SHARE)
        gathered, accounts = await asyncio.gather(
            gather(self._sources, question, deadline_s=left_s),
            asyncio.gather(*(self._account(each, asked, deadline_s=left_s, now=now) for each in asked.concepts)),
        )
        missing |= gathered.missing | question.missing
        return _composed(asked, gathered.passages, accounts, missing=missing), accounts

    async def _account(self, concept: Concept, asked: _Asked, *, deadline_s: float, now: datetime) -> Account:
        from mica.brief.composition import Account

        answer, collected, coherent = await self._gathered(
            concept, budget_tokens=asked.budget_tokens, deadline_s=deadline_s, now=now
        )
        if not asked.is_preview:
            await self._record_gathered(answer, deadline_s=deadline_s)
        return Account(concept=concept, collected=collected, coherent=coherent)

    async def _brief_at(self, asked: _Asked, at: datetime) -> Brief:
        """What would have been said at a time."""
        from mica.brief.earlier_statements import gathered_before
        from mica.brief.snapshot import as_it_was

        await self._stored()
        if not await is_switched_on(past := await as_it_was(self._store, at)):
            return _nothing(asked)
        question = self._question(asked, at, store=past, meaning_s=None)
        async with self._ranking_at(past, at) as ranked:
            sources: list[Source] = [Marks(past), Crystals(past), Files(past, ranked), Teachings(past)]
            gathered = await gather(sources, question, deadline_s=PAST_S)
        accounts = [await gathered_before(past, concept) for concept in asked.concepts]
        return _composed(asked, gathered.passages, accounts, missing=gathered.missing | question.missing)

    def _question(self, asked: _Asked, now: datetime, *, store: Store, meaning_s: float | None) -> Question:
        return Question(
            query=asked.query,
            now=now,
            zone=self._settings.zone(),
            store=store,
            meanings=self._meanings if store is self._store else None,
            meaning_s=meaning_s,
            recency_weight=asked.recency_weight,
            budget_tokens=asked.budget_tokens,
        )

    async def _is_on(self, timeout_s: float) -> bool:
        """Whether this space tells briefs; a store that cannot say does not keep them back."""
        with suppress(MicaError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await is_switched_on(self._store)
        return True

    async def switch_briefs(self, *, on: bool) -> Ref:
        """Tell briefs in this space, or none until it is switched on again, by hooks neither."""
        ref = self.emit(SWITCHED, {"on": on}, origin="user")
        await self._stored()
        self._take_back_answers()
        return ref

    async def quality(self, *, weeks: int = 8, until: datetime | str | None = None) -> Quality:
        """Whether briefs helped, by the outcomes of tasks with and without them, and what gathering cost."""
        from mica.brief.quality import WEEK, quality

        if not isinstance(weeks, int) or weeks < 1:
            raise InvalidInput(f"{weeks!r} weeks cannot be looked at; give 1 or more")
        now = self._clock()
        end = self._moment(until, now) or now
        events = await self.events(EventQuery(until=end + MICROSECOND, limit=None))
        return await asyncio.to_thread(quality, events, since=end - weeks * WEEK, until=end)

    async def briefs_are_on(self) -> bool:
        """Whether this space tells briefs."""
        await self._stored()
        return await is_switched_on(self._store)

    async def why(self, reference: Reference) -> list[Why]:
        """What a brief, a crystal or another event rests on: given its id, its position, or a line that ends in them.

        A line of a brief names one event or several, as in `… (#12 #14)`. A line that other systems stated names none:
        it, or its beginning, is looked for in the latest receipts, and the rows and files are told that it came from.
        What was retracted or withdrawn since says so, with the reason. Raises UnknownEvent when an event is not there,
        InvalidInput when a line is not.
        """
        from mica.brief.why import with_retractions

        return await with_retractions(self._store, await self._why(reference))

    async def _why(self, reference: Reference) -> list[Why]:
        from mica.brief.why import RECEIPTS_MAX, handles, of_line, why

        asked: list[Reference] = [*handles(reference)] if isinstance(reference, str) else [reference]
        try:
            return [await why(self._store, await self.event(each)) for each in asked]
        except (UnknownEvent, InvalidInput) as error:
            found = await of_line(self._store, reference) if isinstance(reference, str) else []
            if not found and isinstance(error, InvalidInput):
                raise InvalidInput(
                    f"{reference!r:.80} is no id, no number such as 12, and no line of the latest {RECEIPTS_MAX} "
                    "briefs and gathers begins like that; give two words or more of a line from its beginning"
                ) from error
            if not found:
                raise
            return found

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

    def _receipt(
        self, brief: Brief, *, latency_ms: float | None = None, as_of: datetime | None = None
    ) -> EventId | None:
        """Record what was shown, as recalled text: a brief is never evidence."""
        try:
            return self.emit(BRIEF, receipt(brief, latency_ms=latency_ms, as_of=as_of), origin="recalled").id
        except MicaError:
            return None  # nothing can be written; the agent's turn goes on

    async def ingest(self) -> Ingested:
        """Store what hooks of coding agents spooled, and render what they answer next. Every reading stores it too."""
        if self._ingesting is None or self.spools is None:
            raise InvalidInput(f"no hooks write for {self.location}; they write beside the file of a space")
        done = await self._ingesting.ingest()
        if not done.is_busy:
            from mica.brief import hook_answers as answers

            await answers.render(self.spools, settings=self._settings, brief=self.brief, receipt=self._receipt)
            await self._stored()
            root = await self._worked_in()
            navigating = None if root is None else self._navigating(root)
            await answers.keep(self.spools, navigating, root=root, settings=self._settings, now=self._clock())
        return done
