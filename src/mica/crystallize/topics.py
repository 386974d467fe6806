"""What a stretch of work was about, in a few terms to find it by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mica.crystallize.salience import Said
from mica.crystallize.units import IDENTIFIER, spelled

TOPICS_MAX = 8
LEAD_SHARE_MAX = 0.34  # of its sentences that a term begins: above it, it is a verb like "add"
TERM_CHARACTERS_MIN = 3


def topics(lines: Sequence[Iterable[Said]], worth: Mapping[str, float]) -> tuple[str, ...]:
    """The terms of most worth, most first, each as it is written most often; numbers and leading verbs are none."""
    said, leading = Counter[str](), Counter[str]()
    for sentence in (sentence for line in lines for sentence in line):
        said.update(sentence.units)
        leading.update(sentence.units[:1])
    names = sorted(
        (unit for unit in said if not unit.isdigit() and leading[unit] <= LEAD_SHARE_MAX * said[unit]),
        key=lambda unit: (-worth.get(unit, 0.0) * (1 + (said[unit] > 1)), unit),
    )
    spellings: dict[str, Counter[str]] = {unit: Counter() for unit in names[: 2 * TOPICS_MAX] if worth.get(unit, 0) > 0}
    for sentence in (sentence for line in lines for sentence in line):
        if not spellings.keys().isdisjoint(sentence.units):
            for unit, spelling in spelled(sentence.text):
                if unit in spellings:
                    spellings[unit][spelling] += 1
    found: list[str] = []
    for unit, written in spellings.items():
        term = min(written, key=lambda spelling: (-written[spelling], spelling))
        is_part = not unit.startswith(IDENTIFIER) and any(term in longer.lower() for longer in found)
        if len(term) >= TERM_CHARACTERS_MIN and not is_part:
            found.append(term)
    return tuple(found[:TOPICS_MAX])
