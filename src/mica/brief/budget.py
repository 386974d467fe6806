"""Which passages fit: the best first, each claim once, never more than the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import TypeAlias

import msgspec

from mica.model.brief import Passage
from mica.model.event import EventId
from mica.words import words

CHEAP_SHARE = 0.1  # of the budget: what costs no more than that leaves room for all the others
WORTH_SHARE = 0.5  # of the best score, for a cheap line to go first


Cost: TypeAlias = Callable[[Passage, int], int | None]  # the tokens of a passage, None where it has more than so many


def told(passage: Passage, limit_tokens: int) -> int | None:
    """The tokens that a passage says it has."""
    return passage.tokens if passage.tokens <= limit_tokens else None


def fit(
    passages: Iterable[Passage],
    *,
    budget_tokens: int,
    cost: Cost = told,
    day_tokens: int = 0,
    fragment_tokens: int | None = None,
) -> tuple[list[Passage], int]:
    """The passages to show, best first, and how many others were found and left out.

    What does not fit is skipped and the next one tried. Long ones crowd no other source out: of each, what it says best
    goes first where it is cheap and nearly as good, as one line of files is. A passage that says what a better one
    says, or stands for it, is no second claim: it is not shown, and counted only where it stands for more. The first
    passage of a day pays for the line that names it. What other systems state takes at most `fragment_tokens` of the
    budget.
    """
    chosen: list[Passage] = []
    said: set[tuple[str, ...]] = set()
    covered: set[EventId] = set()
    days: set[date] = set()
    left_tokens = budget_tokens
    left_fragment_tokens = budget_tokens if fragment_tokens is None else fragment_tokens
    left_out = 0
    for passage in _cheap_first(sorted(passages, key=best_first), cost, cheap_tokens=int(budget_tokens * CHEAP_SHARE)):
        stands_for = passage.stands_for or passage.sources[:1]
        if not covered.isdisjoint(stands_for):
            left_out += bool(passage.stands_for)  # a crystal of more than what is shown
            continue
        left = min(left_tokens, left_fragment_tokens) if passage.origins else left_tokens
        day = 0 if passage.at.date() in days else day_tokens
        if (tokens := cost(passage, left - day)) is None:
            left_out += 1
            continue
        claim = tuple(words(passage.text))
        if claim not in said:
            said.add(claim)
            covered.update(stands_for)
            chosen.append(msgspec.structs.replace(passage, tokens=tokens))
            days.add(passage.at.date())
            left_tokens -= tokens + day
            left_fragment_tokens -= tokens + day if passage.origins else 0
    return sorted(chosen, key=best_first), left_out


def best_first(passage: Passage) -> tuple[float, datetime, tuple[EventId, ...], str]:
    """The key by which passages are sorted: the highest score first, of equal ones the oldest."""
    return -passage.score, passage.at, passage.sources, passage.text


def _cheap_first(passages: Sequence[Passage], cost: Cost, *, cheap_tokens: int) -> list[Passage]:
    """The same passages, which are given best first, with what each source says best in front where it is cheap.

    A crystal keeps its place, because it is told in place of what is better than it; so do what it stands for, which
    would keep it out, and what other systems state.
    """
    firsts: dict[str, Passage] = {}
    for passage in passages:
        firsts.setdefault(passage.source, passage)
    stood_for = frozenset[EventId]().union(*(passage.stands_for for passage in passages))
    ahead = [
        passage
        for passage in firsts.values()
        if not passage.stands_for
        and not passage.origins
        and stood_for.isdisjoint(passage.sources[:1])
        and passage.score >= passages[0].score * WORTH_SHARE
        and cost(passage, cheap_tokens) is not None
    ]
    return [*ahead, *(passage for passage in passages if passage not in ahead)]
