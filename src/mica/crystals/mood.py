"""The mood of a stretch of work: seven numbers from 0 to 1, computed from words, tags and errors, without a model.

A number without evidence is 0.5. Brightness, texture, weight and warmth change only with marks about success, failure,
tests or commits. Only English words are recognized.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from mica.crystals.digest import DigestSource
from mica.model.crystal import NEUTRAL, Mood

SWING, SHARE_SWING = 0.3, 0.4  # how far words of success or failure, and tests or commits, can move a number
TEMPO_MARKS, SATURATION_MARKS, KINDS_MAX = 50, 30, 5  # marks (twice) and kinds of marks at which the number reaches 1

_FAILED = re.compile(
    r"(?<!\bno )(?<!\b0 )(?<!\bzero )(?<!\bwithout )\b(?:fail(?:s|ed|ing|ures?)?|errors?)\b", re.IGNORECASE
)
_PASSED = re.compile(
    r"(?<!\bnot )(?<!\b0 )\b(?:pass(?:es|ed|ing)?|success(?:es|ful|fully)?|succeed(?:s|ed)?)\b", re.IGNORECASE
)
_FAILED_TAGS = frozenset({"error", "fail", "failed", "evidence:fail"})
_PASSED_TAGS = frozenset({"pass", "passed", "success", "evidence:pass"})
_TEST_TAGS = frozenset({"test", "tests", "evidence:test"})
_COMMIT_TAGS = frozenset({"commit"})


def mood(sources: Sequence[DigestSource]) -> Mood:
    """Return the mood of the marks in `sources`. Without sources, all its numbers are neutral (0.5)."""
    total = sum(source.weight for source in sources)
    if total <= 0:
        return Mood()

    def share(tags: frozenset[str], words: re.Pattern[str] | None = None) -> float:
        having = (each for each in sources if tags.intersection(each.tags) or (words and words.search(each.text)))
        return sum(source.weight for source in having) / total

    failed, passed = share(_FAILED_TAGS, _FAILED), share(_PASSED_TAGS, _PASSED)
    kinds = {source.tags[0] for source in sources if source.tags}
    return Mood(
        warmth=_clamped(NEUTRAL + SHARE_SWING * share(_COMMIT_TAGS)),
        weight=_clamped(NEUTRAL + SHARE_SWING * share(_TEST_TAGS)),
        tempo=_clamped(total / TEMPO_MARKS),
        texture=_clamped(NEUTRAL + SWING * failed),
        brightness=_clamped(NEUTRAL + SWING * (passed - failed)),
        saturation=_clamped(total / SATURATION_MARKS),
        complexity=_clamped(len(kinds) / KINDS_MAX) if kinds else NEUTRAL,
    )


def blend(moods: Iterable[tuple[Mood, float]]) -> Mood:
    """Return the weighted mean of moods; a neutral mood if all weights are 0."""
    weighted = [(each.parts, weight) for each, weight in moods if weight > 0]
    total = sum(weight for _, weight in weighted)
    if not weighted:
        return Mood()
    means = (sum(parts[number] * weight for parts, weight in weighted) / total for number in range(len(weighted[0][0])))
    return Mood(**dict(zip(Mood.__struct_fields__, map(_clamped, means), strict=True)))


def similarity(one: Mood, other: Mood) -> float:
    """Return the cosine similarity of two moods; 0 if one of them is all zeros."""
    lengths = math.hypot(*one.parts) * math.hypot(*other.parts)
    return sum(a * b for a, b in zip(one.parts, other.parts, strict=True)) / lengths if lengths else 0.0


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))
