"""What hooks answer: a brief at the start of a session and paths at a prompt, rendered before anybody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from mica import hook
from mica.model import Brief, EventId, EventQuery
from mica.observe.spool import Hints, SessionAnswer, Spools
from mica.select.navigation.hinting import TASKS_MAX, hints
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.space import root_of
from mica.walks import WALKED, latest_directory, walks_of

TOKENS_MAX = 2_000  # of what a hook prints: Codex takes 2,500
DEADLINE_S = 10.0  # nobody waits for what is rendered beforehand
WALK_EVENTS = 25  # of one task, about


class Briefs(Protocol):
    """Makes a brief: what `Memory.brief` does."""

    async def __call__(self, *, budget_tokens: int, deadline_s: float, is_preview: bool) -> Brief: ...


async def render(
    spools: Spools, store: Store, *, settings: Settings, brief: Briefs, receipt: Callable[[Brief], EventId | None]
) -> None:
    """Write what hooks print; a brief that says the same as before stays the same, to the byte."""
    budget_tokens = min(settings.brief.budget_tokens, TOKENS_MAX)
    made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    while len(made.text) > hook.ANSWER_CHARACTERS_MAX:
        budget_tokens = budget_tokens * 4 // 5
        made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    before = spools.session_answer()
    if not made.text:
        spools.answer(hook.SESSION_ANSWER, None)
    elif before is None or before.text != made.text:
        spools.answer(hook.SESSION_ANSWER, SessionAnswer(text=made.text, receipt=receipt(made)))
    spools.answer(hook.PROMPT_ANSWER, await offered(store, settings=settings))


async def offered(store: Store, *, settings: Settings) -> Hints | None:
    """What hooks may offer at a prompt; nothing, unless the space's own history says that it pays."""
    if not settings.observe.offers:
        return None
    events = await store.events(EventQuery(names=WALKED, limit=TASKS_MAX * WALK_EVENTS))
    directory = latest_directory(events)
    if directory is None:
        return None
    root = root_of(directory)
    return await asyncio.to_thread(
        lambda: hints(walks_of(events), exists=lambda path: (root / path).is_file(), holdout=settings.observe.holdout)
    )


def take_back(spools: Spools) -> None:
    """Let hooks say nothing until answers are made anew: something that they may say does not hold any more."""
    spools.answer(hook.SESSION_ANSWER, None)
    spools.answer(hook.PROMPT_ANSWER, None)
