"""Selects the passages of a brief that fit its token budget: the best first, and none that repeats another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import TypeAlias

import msgspec

from mica.model.brief import Passage
from mica.model.event import EventId
from mica.words import words

CHEAP_SHARE = 0.1  # of the budget; a passage that costs no more than this leaves enough room for others
WORTH_SHARE = 0.5  # of the best score; a cheap passage with at least this score is chosen first


Cost: TypeAlias = Callable[[Passage, int], int | None]  # (passage, limit) → its tokens; None if they exceed the limit


def own_tokens(passage: Passage, limit_tokens: int) -> int | None:
    """Return the token count stored in a passage, or None if it exceeds `limit_tokens`."""
    return passage.tokens if passage.tokens <= limit_tokens else None


def fit(
    passages: Iterable[Passage],
    *,
    budget_tokens: int,
    cost: Cost = own_tokens,
    day_tokens: int = 0,
    fragment_tokens: int | None = None,
) -> tuple[list[Passage], int]:
    """Return a pair: the passages to show, best first, and the number of passages left out.

    Passages are tried in order of their scores, and those that do not fit are skipped. But the best passage of each
    source is tried before all others if it costs at most CHEAP_SHARE of the budget and has at least WORTH_SHARE of the
    highest score, so that long passages do not displace whole sources; `_cheap_first` names the exceptions. A passage
    is dropped if a chosen one has the same words, or stands for one of the same events. The first passage of each day
    also costs `day_tokens`, for the line with the date. All passages from other systems together take at most
    `fragment_tokens`; None sets no limit of their own.

    Two kinds of passages are counted as left out: those that do not fit, and crystals that are dropped because a chosen
    passage shows part of them.
    """
    chosen: list[Passage] = []
    claims: set[tuple[str, ...]] = set()
    covered: set[EventId] = set()
    days: set[date] = set()
    left_tokens = budget_tokens
    left_fragment_tokens = budget_tokens if fragment_tokens is None else fragment_tokens
    left_out = 0
    for passage in _cheap_first(sorted(passages, key=best_first), cost, cheap_tokens=int(budget_tokens * CHEAP_SHARE)):
        stands_for = passage.stands_for or passage.sources[:1]
        if not covered.isdisjoint(stands_for):
            left_out += bool(passage.stands_for)  # a crystal that covers more than is shown
            continue
        left = min(left_tokens, left_fragment_tokens) if passage.origins else left_tokens
        day = 0 if passage.at.date() in days else day_tokens
        if (tokens := cost(passage, left - day)) is None:
            left_out += 1
            continue
        claim = tuple(words(passage.text))
        if claim not in claims:
            claims.add(claim)
            covered.update(stands_for)
            chosen.append(msgspec.structs.replace(passage, tokens=tokens))
            days.add(passage.at.date())
            left_tokens -= tokens + day
            left_fragment_tokens -= tokens + day if passage.origins else 0
    return sorted(chosen, key=best_first), left_out


def best_first(passage: Passage) -> tuple[float, datetime, tuple[EventId, ...], str]:
    """Return the sort key of a passage: highest score first, then oldest."""
    return -passage.score, passage.at, passage.sources, passage.text


def _cheap_first(passages: Sequence[Passage], cost: Cost, *, cheap_tokens: int) -> list[Passage]:
    """Move the best passage of each source to the front if it is cheap and its score is high enough.

    `passages` are best first. Cheap means at most `cheap_tokens`; the score must be at least WORTH_SHARE of the highest
    one. Three kinds are never moved: crystals, because they replace passages with higher scores; passages that a
    crystal covers, because showing one excludes the crystal; and passages from other systems.
    """
    firsts: dict[str, Passage] = {}
    for passage in passages:
        firsts.setdefault(passage.source, passage)
    covered = frozenset[EventId]().union(*(passage.stands_for for passage in passages))
    ahead = [
        passage
        for passage in firsts.values()
        if not passage.stands_for
        and not passage.origins
        and covered.isdisjoint(passage.sources[:1])
        and passage.score >= passages[0].score * WORTH_SHARE
        and cost(passage, cheap_tokens) is not None
    ]
    return [*ahead, *(passage for passage in passages if passage not in ahead)]
