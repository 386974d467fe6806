"""Ask all sources at once under one deadline. A source that fails or hangs costs nothing but its own passages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from mica.errors import MicaError
from mica.model import Passage
from mica.select.sources import Question, Source

COLLECT_SHARE = 0.8  # of the deadline; the rest is for choosing and rendering


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources said, in their order, and which could not say."""

    passages: tuple[Passage, ...]
    missing: dict[str, str]


async def gather(sources: Sequence[Source], question: Question, *, deadline_s: float) -> Gathered:
    """Every source's passages that arrive in time. Never raises for a source; `missing` says why one is not there."""
    within_s = deadline_s * COLLECT_SHARE
    tasks = {source.name: asyncio.ensure_future(source.passages(question)) for source in sources}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=within_s)
    passages: list[Passage] = []
    missing: dict[str, str] = {}
    for name, task in tasks.items():
        if not task.done():
            task.cancel()
            missing[name] = f"no answer within {within_s * 1000:.0f} ms"
            continue
        try:
            passages += task.result()
        except MicaError as error:
            missing[name] = str(error)
    return Gathered(passages=tuple(passages), missing=missing)
