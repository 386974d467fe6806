"""What hooks answer: a brief at the start of a session and paths at a prompt, rendered before anybody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from mica import hook
from mica.clients.spool import PromptAnswer, SessionAnswer, Spools
from mica.model.brief import Brief
from mica.model.event import EventId
from mica.navigation.engine_copy import ENTRY, find_stemmer, write_engine
from mica.navigation.navigator import Navigator
from mica.settings import Settings

TOKENS_MAX = 2_000  # of what a hook prints: Codex takes 2,500
DEADLINE_S = 10.0  # nobody waits for what is rendered beforehand
TREES_MAX = 8  # working trees of one space whose prompts are answered: those that were worked in last


class MakeBrief(Protocol):
    """Makes a brief: what `Memory.brief` does."""

    async def __call__(self, *, budget_tokens: int, deadline_s: float, is_preview: bool) -> Brief: ...


async def render(
    spools: Spools, *, settings: Settings, brief: MakeBrief, receipt: Callable[[Brief], EventId | None]
) -> None:
    """Write what the start of a session is told; a brief that says the same as before stays the same, to the byte."""
    budget_tokens = min(settings.brief.budget_tokens, TOKENS_MAX)
    made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    while len(made.text) > hook.ANSWER_CHARACTERS_MAX:
        budget_tokens = budget_tokens * 4 // 5
        made = await brief(budget_tokens=budget_tokens, deadline_s=DEADLINE_S, is_preview=True)
    before, holdout = spools.session_answer(), settings.brief.holdout
    if not made.text:
        spools.write_answer(hook.SESSION_ANSWER, None)
    elif before is None or before.text != made.text:
        told = SessionAnswer(text=made.text, receipt=receipt(made), holdout=holdout)
        spools.write_answer(hook.SESSION_ANSWER, told)
    elif before.holdout != holdout:
        spools.write_answer(hook.SESSION_ANSWER, msgspec.structs.replace(before, holdout=holdout))


async def keep(
    spools: Spools, navigating: Navigator | None, *, root: Path | None, settings: Settings, now: datetime
) -> None:
    """Write what hooks answer prompts with: this space's past, the tree that was worked in last, and what ranks."""
    library = find_stemmer()
    if not settings.observe.offers or navigating is None or root is None or library is None:
        forget(spools)
        return
    tree = await navigating.save(spools.past, now=now)
    if tree is None:
        return
    before = spools.prompt_answer()
    others = {} if before is None else before.trees
    trees = {str(root): str(tree), **{each: file for each, file in others.items() if each != str(root)}}
    made = PromptAnswer(
        engine=str(await asyncio.to_thread(write_engine, settings.home)),
        entry=ENTRY,
        library=str(library),
        past=str(spools.past),
        trees=dict(list(trees.items())[:TREES_MAX]),
        holdout=settings.observe.holdout,
    )
    if made != before:
        spools.write_answer(hook.PROMPT_ANSWER, made)


def take_back(spools: Spools) -> None:
    """Let hooks say nothing until answers are made anew: something that they may say does not hold any more."""
    spools.write_answer(hook.SESSION_ANSWER, None)
    forget(spools)


def forget(spools: Spools) -> None:
    """Let hooks answer no prompt, and keep nothing of the past for them."""
    spools.write_answer(hook.PROMPT_ANSWER, None)
    spools.past.unlink(missing_ok=True)
