"""Which sentences to take: those that cover the most worth under a budget."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

LENGTH_POWER = 0.8  # of the tokens that a gain is divided by; at 1 short sentences win too often
SWAP_PASSES = 2
SWAP_RIVALS = 60  # sentences that are tried in place of a chosen one: keeps the work linear
SWAP_GAIN = 1.002  # less is a tie


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that could be taken."""

    units: tuple[str, ...]  # each once
    tokens: int
    factor: float = 1.0  # how fit it is to be read by itself
    is_request: bool = False  # says what was wanted, not what was done


class Budget(msgspec.Struct):
    """What is left to spend, and how much of it on requests."""

    tokens: int
    request_tokens: int

    def allows(self, candidate: Candidate) -> bool:
        return candidate.tokens <= (min(self.tokens, self.request_tokens) if candidate.is_request else self.tokens)

    def spend(self, candidate: Candidate, sign: int = 1) -> None:
        self.tokens -= sign * candidate.tokens
        if candidate.is_request:
            self.request_tokens -= sign * candidate.tokens


def choose(
    candidates: Sequence[Candidate], worth: Mapping[str, float], *, budget_tokens: int, request_tokens: int
) -> list[int]:
    """The numbers of the sentences to take, in their order. A unit is worth something once; its worth may be negative.

    Greedy by worth for its tokens, then each taken sentence is exchanged where another covers more. Ties go to the
    earlier one: the same candidates give the same choice. Work is about linear in all units of all candidates.
    """
    budget = Budget(budget_tokens, request_tokens)
    covered: Counter[str] = Counter()
    taken: dict[int, None] = {}
    _fill(candidates, worth, budget, covered, taken)
    for _ in range(SWAP_PASSES):
        if not _swap(candidates, worth, budget, covered, taken):
            break
        _fill(candidates, worth, budget, covered, taken)
    return sorted(taken)


def _gain(candidate: Candidate, worth: Mapping[str, float], covered: Mapping[str, int]) -> float:
    return sum(worth[unit] for unit in candidate.units if not covered.get(unit)) * candidate.factor


def _fill(
    candidates: Sequence[Candidate],
    worth: Mapping[str, float],
    budget: Budget,
    covered: Counter[str],
    taken: dict[int, None],
) -> None:
    """Take the best that fits until nothing gains."""
    fits = [number for number, each in enumerate(candidates) if number not in taken and budget.allows(each)]
    naming: dict[str, list[int]] = defaultdict(list)
    scores: dict[int, float] = {}
    for number in fits:
        for unit in candidates[number].units:
            if not covered[unit]:
                naming[unit].append(number)
        scores[number] = _gain(candidates[number], worth, covered) / candidates[number].tokens ** LENGTH_POWER
    queue = [(-score, number) for number, score in scores.items()]
    heapq.heapify(queue)
    while queue:
        score, number = heapq.heappop(queue)
        if number in taken or -score != scores[number] or not budget.allows(candidates[number]):
            continue
        if score >= 0:
            break
        taken[number] = None
        budget.spend(candidates[number])
        changed = dict.fromkeys(
            other for unit in candidates[number].units if not covered[unit] for other in naming[unit] if other != number
        )
        covered.update(candidates[number].units)
        for other in changed:
            if other not in taken and budget.allows(candidates[other]):
                gain = _gain(candidates[other], worth, covered)
                scores[other] = gain / candidates[other].tokens ** LENGTH_POWER
                heapq.heappush(queue, (-scores[other], other))


def _swap(
    candidates: Sequence[Candidate],
    worth: Mapping[str, float],
    budget: Budget,
    covered: Counter[str],
    taken: dict[int, None],
) -> bool:
    """Put a rival in the place of each taken sentence that covers less. Says whether there was one."""
    whole = Budget(budget.tokens, budget.request_tokens)
    for number in taken:
        whole.spend(candidates[number], -1)
    rivals = heapq.nsmallest(
        SWAP_RIVALS,
        (number for number, each in enumerate(candidates) if number not in taken and whole.allows(each)),
        key=lambda number: (-_gain(candidates[number], worth, {}) / candidates[number].tokens ** LENGTH_POWER, number),
    )
    swapped = False
    for number in list(taken):
        mine = candidates[number]
        covered.subtract(mine.units)
        budget.spend(mine, -1)
        bar = max(0.0, _gain(mine, worth, covered)) * SWAP_GAIN + 1e-9
        best = number
        for rival in rivals:
            if rival not in taken and budget.allows(candidates[rival]):
                gain = _gain(candidates[rival], worth, covered)
                if gain > bar:
                    bar, best = gain, rival
        covered.update(candidates[best].units)
        budget.spend(candidates[best])
        if best != number:
            del taken[number]
            taken[best] = None
            swapped = True
    return swapped
