"""Ask all sources at once under one deadline. A source that fails or hangs costs nothing but its own passages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from mica.brief.question import Question, QuickSource, Source, heed
from mica.errors import MicaError
from mica.model.event import Passage

COLLECT_SHARE = 0.8  # of the deadline; the rest is for choosing and rendering


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources said, in their order, and which could not say."""

    passages: tuple[Passage, ...]
    missing: dict[str, str]


async def gather(sources: Sequence[Source], question: Question, *, deadline_s: float) -> Gathered:
    """Every source's passages that arrive in time. Never raises for a source, whatever it does: `missing` says why."""
    within_s = max(0.0, deadline_s * COLLECT_SHARE)  # none is left when the deadline is over already
    tasks = {source.name: asyncio.ensure_future(source.passages(question)) for source in sources}
    passages: list[Passage] = []
    missing: dict[str, str] = {}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=within_s)
        by_name = {source.name: source for source in sources}
        for name, task in tasks.items():
            if not task.done():
                missing[name] = f"no answer within {within_s * 1000:.0f} ms"
                if isinstance(source := by_name[name], QuickSource) and (found := source.quick(question)):
                    passages += found
                    missing[name] += ", this is a quick look"
            elif (error := task.exception()) is None:
                passages += task.result()
            else:
                missing[name] = str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}"
    finally:
        for task in tasks.values():
            task.add_done_callback(heed)
            task.cancel()
        question.end()
    return Gathered(passages=tuple(passages), missing=missing)
