"""Selects the passages of a brief that fit its token budget: the most valuable first, and none that repeats another.

A passage is worth its score, less the share of its words that the chosen passages say already. It is chosen by its
worth divided by the square root of its cost, so that a long passage must be worth more than a short one, but not in
proportion to its length.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

import msgspec

from mica.model.brief import SECTIONS, Passage, Section
from mica.model.event import EventId
from mica.words import terms, words

COST_POWER = 0.5  # of the tokens that the worth of a passage is divided by; 1 would prefer very short passages
REPEATED_SHARE = 0.85  # a passage with so many of its words in a chosen one only repeats it
BACKGROUND_SHARE = 0.7  # the same for a statement of a crystal, compared with all chosen ones together
OLD_WORTH = 0.3  # of the words that chosen passages have already; a repeated word still connects a sentence
TOKEN_CHARACTERS = 4  # roughly; the exact count is needed only for what is chosen
LINE_TOKENS = 8  # of a line besides its text: the date, the speaker, the number
REPEATED_WORDS_MIN = 3  # a passage with fewer words is dropped only if it is the same

BELIEFS = "beliefs"  # the name of the source of beliefs

Cost: TypeAlias = Callable[[Passage, int], int | None]  # (passage, limit) → its tokens; None if they exceed the limit


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The passages to show, best first, and how many lines were left out because of the budget."""

    passages: tuple[Passage, ...]
    left: tuple[
        Passage, ...
    ] = ()  # passages that had no room, best first; without sections that have a limit of their own
    left_out: int = 0
    rules_left_out: int = 0  # of these, rules; a reader should know that there are more


def own_tokens(passage: Passage, limit_tokens: int) -> int | None:
    """Return the token count stored in a passage, or None if it exceeds `limit_tokens`."""
    return passage.tokens if passage.tokens <= limit_tokens else None


def choose(
    passages: Iterable[Passage],
    *,
    budget_tokens: int,
    cost: Cost = own_tokens,
    joined_cost: Cost | None = None,
    section_tokens: Mapping[Section, int] | None = None,
    fragment_tokens: int | None = None,
    heading_tokens: int = 0,
) -> Choice:
    """Choose the passages to show within `budget_tokens`.

    The passage with the most worth for its cost is chosen repeatedly, until no other fits. A passage is dropped if a
    chosen one says nearly all of its words, or stands for one of the same events. A sentence of an event
    of which another sentence is chosen already costs `joined_cost`, because both share a line. The first passage of a
    section also costs `heading_tokens`. `section_tokens` limits what a section takes, and `fragment_tokens` what all
    passages from other systems take together; None sets no limit.
    """
    return _Chooser(
        budget_tokens,
        cost=cost,
        joined_cost=joined_cost or cost,
        section_tokens=section_tokens or {},
        fragment_tokens=fragment_tokens,
        heading_tokens=heading_tokens,
    ).choose(sorted(passages, key=best_first))


def best_first(passage: Passage) -> tuple[float, datetime, tuple[EventId, ...], int, int, str, str]:
    """Return the sort key of a passage: highest score first, then the section, then oldest."""
    section = SECTIONS.index(passage.section)
    return -passage.score, passage.at, passage.sources, section, passage.ordinal or 0, passage.text, passage.kind


def line_of(passage: Passage) -> tuple[Section, EventId | str, str]:
    """Return what the passages of one line have in common: the section, the event and the kind.

    All files share one line.
    """
    if passage.section == "files":
        return passage.section, "", passage.kind
    if passage.ordinal is None or not passage.sources:
        return passage.section, passage.text, passage.kind
    return passage.section, passage.sources[0], passage.kind


class _Chooser:
    """The state of one choice."""

    def __init__(
        self,
        budget_tokens: int,
        *,
        cost: Cost,
        joined_cost: Cost,
        section_tokens: Mapping[Section, int],
        fragment_tokens: int | None,
        heading_tokens: int,
    ) -> None:
        self._left = budget_tokens
        self._cost = cost
        self._joined_cost = joined_cost
        self._left_of = dict(section_tokens)
        self._left_fragments = budget_tokens if fragment_tokens is None else fragment_tokens
        self._heading_tokens = heading_tokens
        self._said: set[str] = set()
        self._chosen: list[tuple[frozenset[str], bool]] = []  # the words of each chosen passage; if it is a belief
        self._claims: set[tuple[str, ...]] = set()
        self._covered: set[EventId] = set()
        self._shown: set[EventId] = set()
        self._lines: set[tuple[Section, EventId | str, str]] = set()
        self._sections: set[Section] = set()

    def choose(self, passages: list[Passage]) -> Choice:
        """Choose from `passages`, which are best first."""
        units = [frozenset(terms(each.text)) for each in passages]
        chosen: list[Passage] = []
        left_out: set[int] = set()
        queue = [(-self._gain(each, units[number]), number) for number, each in enumerate(passages)]
        heapq.heapify(queue)
        while queue:
            loss, number = heapq.heappop(queue)
            passage = passages[number]
            if self._is_repeated(passage, units[number]):
                left_out.update([number] if passage.stands_for else ())  # a crystal that covers more than is shown
                continue
            if (now := -self._gain(passage, units[number])) > loss:  # others have said some of it meanwhile
                heapq.heappush(queue, (now, number))
                continue
            tokens = self._price(passage, self._room(passage))
            if tokens is None:
                left_out.add(number)
                if passage.section == "rules":  # a shorter rule that is worth less does not take its place, so that a
                    self._left_of["rules"] = 0  # larger budget shows every rule that a smaller one shows
                continue
            self._take(passage, units[number], tokens)
            chosen.append(msgspec.structs.replace(passage, tokens=tokens))
        lines = {line_of(passages[number]) for number in left_out} - self._lines
        return Choice(
            passages=tuple(sorted(chosen, key=best_first)),
            left=tuple(
                passages[number] for number in sorted(left_out) if passages[number].section not in self._left_of
            ),
            left_out=len(lines),
            rules_left_out=sum(section == "rules" for section, *_ in lines),
        )

    def _gain(self, passage: Passage, units: frozenset[str]) -> float:
        is_new = not units or passage.section == "rules"  # whose order must not depend on what else is shown
        new = 1.0 if is_new else sum(unit not in self._said for unit in units) / len(units)
        worth = max(passage.score, 0.0) * (OLD_WORTH + (1 - OLD_WORTH) * new)
        return worth / math.pow(len(passage.text) / TOKEN_CHARACTERS + LINE_TOKENS, COST_POWER)

    def _is_repeated(self, passage: Passage, units: frozenset[str]) -> bool:
        """Return True if a chosen passage shows the events of a passage already, or says nearly all of its words.

        A passage with a number that the other one lacks is not repeated: it may correct an earlier value.
        """
        stands_for = passage.stands_for or (passage.sources[:1] if passage.ordinal is None else ())
        if not self._covered.isdisjoint(stands_for):
            return True
        if tuple(words(passage.text)) in self._claims:
            return True
        if passage.origins and not (passage.sources and self._shown.issuperset(passage.sources)):
            return False  # another system says it, too, which is worth knowing
        if len(units) < REPEATED_WORDS_MIN:
            return False
        if passage.origins:  # its text has a key and a confidence besides
            return any(len(said & units) >= BACKGROUND_SHARE * len(units) for said, _ in self._chosen)
        if passage.section == "background" and len(units & self._said) >= BACKGROUND_SHARE * len(units):
            return True  # the background only adds what the lines above do not say
        is_belief = passage.source == BELIEFS  # an answer must not give way to the question that it answers
        least = REPEATED_SHARE * len(units)
        return any(
            len(said & units) >= least and said.issuperset(unit for unit in units if unit[0].isdigit())
            for said, from_beliefs in self._chosen
            if from_beliefs or not is_belief
        )

    def _room(self, passage: Passage) -> int:
        left = min(self._left, self._left_of.get(passage.section, self._left))
        return min(left, self._left_fragments) if passage.origins else left

    def _price(self, passage: Passage, limit: int) -> int | None:
        if line_of(passage) in self._lines:
            return self._joined_cost(passage, limit)
        heading = 0 if passage.section in self._sections else self._heading_tokens
        tokens = self._cost(passage, limit - heading)
        return None if tokens is None else tokens + heading

    def _take(self, passage: Passage, units: frozenset[str], tokens: int) -> None:
        self._said.update(units)
        self._chosen.append((units, passage.source == BELIEFS))
        self._shown.update(passage.sources[:1])
        self._claims.add(tuple(words(passage.text)))
        self._covered.update(passage.stands_for or (passage.sources[:1] if passage.ordinal is None else ()))
        self._lines.add(line_of(passage))
        self._sections.add(passage.section)
        self._left -= tokens
        if passage.section in self._left_of:
            self._left_of[passage.section] -= tokens
        self._left_fragments -= tokens if passage.origins else 0
