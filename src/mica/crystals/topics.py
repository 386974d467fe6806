"""What a stretch of work was about, in a few terms to find it by."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from mica.crystals.salience import Said
from mica.crystals.units import IDENTIFIER, Spelled, spelled
from mica.store.pace import Pause, paced, unhurried

TOPICS_MAX = 8
LEAD_SHARE_MAX = 0.34  # of its sentences that a term begins: above it, it is a verb like "add"
TERM_CHARACTERS_MIN = 3


def topics(
    lines: Sequence[Iterable[Said]],
    worth: Mapping[str, float],
    *,
    spelled: Callable[[str], Iterable[Spelled]] = spelled,
    pause: Pause = unhurried,
) -> tuple[str, ...]:
    """The terms of most worth, most first, each as it is written most often; numbers and leading verbs are none."""
    sentences = [sentence for line in lines for sentence in line]
    said = Counter(unit for sentence in sentences for unit in sentence.units)
    able = (unit for unit in said if not unit.isdigit() and worth.get(unit, 0.0) > 0)
    best = heapq.nsmallest(4 * TOPICS_MAX, able, key=lambda unit: (-worth[unit] * min(2, said[unit]), unit))
    spellings: dict[str, Counter[str]] = {unit: Counter() for unit in best}
    leading = Counter[str]()
    for sentence in paced(sentences, pause):
        if spellings.keys().isdisjoint(sentence.units):
            continue
        for unit, spelling in spelled(sentence.text):
            if unit in spellings:
                spellings[unit][spelling] += 1
                leading[unit] += sentence.text[: len(spelling)].lower() == spelling
    found: list[str] = []
    for unit, written in spellings.items():
        term = min(written, key=lambda spelling: (-written[spelling], spelling))
        is_verb = leading[unit] > LEAD_SHARE_MAX * said[unit]
        is_part = not unit.startswith(IDENTIFIER) and any(term in longer.lower() for longer in found)
        if len(term) >= TERM_CHARACTERS_MIN and not is_verb and not is_part:
            found.append(term)
    return tuple(found[:TOPICS_MAX])
