"""Which sentences to take: those that cover the most worth under a budget."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from mica.store.pace import Pause, paced, unhurried

LENGTH_POWER = 0.8  # of the tokens that a gain is divided by; at 1 short sentences win too often
SAID_SHARE = 0.85  # of the units that others have: then the same is said


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sentence that could be taken."""

    units: tuple[str, ...]  # each once
    tokens: int
    factor: float = 1.0  # how fit it is to be read by itself
    is_request: bool = False  # says what was wanted, not what was done
    thought: int | None = None  # of those that share one, only one is taken


def choose(
    candidates: Sequence[Candidate],
    worth: Mapping[str, float],
    *,
    budget_tokens: int,
    request_tokens: int,
    pause: Pause = unhurried,
) -> list[int]:
    """The numbers of the sentences to take, in their order. A unit is worth something once; its worth may be negative.

    Greedy: always the one of most worth for its tokens, until nothing that fits gains. Ties go to the earlier one, so
    the same candidates give the same choice. Work is about linear in all units of all candidates.
    """
    left, left_for_requests = budget_tokens, request_tokens
    covered: set[str] = set()
    taken: set[int] = set()
    told: set[int] = set()  # thoughts

    def fits(candidate: Candidate) -> bool:
        return candidate.tokens <= (min(left, left_for_requests) if candidate.is_request else left)

    def score(candidate: Candidate) -> float:
        gain = sum(worth.get(unit, 0.0) for unit in candidate.units if unit not in covered)
        return gain * candidate.factor / math.pow(candidate.tokens, LENGTH_POWER)

    scores = {number: score(each) for number, each in enumerate(paced(candidates, pause)) if fits(each)}
    naming: dict[str, list[int]] = defaultdict(list)
    for number in scores:
        for unit in candidates[number].units:
            naming[unit].append(number)
    queue = [(-gain, number) for number, gain in scores.items()]
    heapq.heapify(queue)
    while queue:
        pause()
        loss, number = heapq.heappop(queue)
        best = candidates[number]
        if number in taken or -loss != scores[number] or not fits(best) or best.thought in told:
            continue  # an older entry, or one that fitted when it was entered
        if loss >= 0:
            break
        if is_said(best.units, covered) and taken:
            continue
        taken.add(number)
        told |= set() if best.thought is None else {best.thought}
        left -= best.tokens
        left_for_requests -= best.tokens if best.is_request else 0
        new = [unit for unit in best.units if unit not in covered]
        covered.update(new)
        for other in dict.fromkeys(other for unit in new for other in naming[unit]):
            if other not in taken and fits(candidates[other]):
                scores[other] = score(candidates[other])
                heapq.heappush(queue, (-scores[other], other))
    return sorted(taken)


def is_said(units: Collection[str], covered: Collection[str]) -> bool:
    """Whether these units are said already; another number alone makes no other statement."""
    named = [unit for unit in units if not unit.isdigit()]
    return sum(unit in covered for unit in named) >= SAID_SHARE * len(named)
