"""How it went, from what marks say: counted, never asked of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mica.crystallize.digest import Source
from mica.crystals import Mood

_FAILED = re.compile(r"\b(?:fail\w*|errors?|broken?|crash\w*)\b", re.IGNORECASE)
_PASSED = re.compile(r"\b(?:pass(?:es|ed)?|success\w*|fixed|works)\b", re.IGNORECASE)
MANY, FULL = 50, 30  # marks at which tempo and saturation are at their highest


def mood(sources: Sequence[Source]) -> Mood:
    """The mood of marks; where they say nothing of it, 0.5."""
    count = len(sources)
    if not count:
        return Mood()
    failed = sum(bool(_FAILED.search(source.text)) or "error" in source.tags for source in sources)
    passed = sum(bool(_PASSED.search(source.text)) for source in sources)
    tests, commits = (sum(tag in source.tags for source in sources) for tag in ("test", "commit"))
    kinds = len({tag for source in sources for tag in source.tags})
    return Mood(
        brightness=_within(0.5 + 0.3 * (passed - failed) / count),
        tempo=_within(count / MANY),
        weight=_within(0.3 + 0.4 * tests / count),
        complexity=_within(kinds / 5),
        saturation=_within(count / FULL),
        texture=_within(0.5 + 0.3 * failed / count),
        warmth=_within(0.4 + 0.4 * commits / count),
    )


def mixed(moods: Sequence[tuple[Mood, int]]) -> Mood:
    """The mean of moods, each with the number of marks it stands for."""
    whole = sum(max(1, count) for _, count in moods)
    if not whole:
        return Mood()
    return Mood(
        **{
            name: _within(sum(getattr(each, name) * max(1, count) for each, count in moods) / whole)
            for name in Mood.__struct_fields__
        }
    )


def _within(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)
