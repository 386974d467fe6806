"""Whether a sentence says only what its sources say: its words, numbers and names must stand there.

It cannot see that a sentence turned the meaning round; it sees what was invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mica.words import terms, words

CHARACTERS_MIN = 20  # a statement below is a label
FOREIGN_SHARE = 0.2  # of the content words; a sentence about several sources needs words of its own to join them

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_IDENTIFIER = re.compile(r"\w*[\w)][._/:\-]\w[\w./:\-]*|\w+_\w+|\b\w*[a-z][A-Z]\w*|\w+\(\)")
_NAME = re.compile(r"(?<![.!?:;]\s)(?<!^)\b[A-Z]\w+")


def ungrounded(text: str, sources: Iterable[str]) -> str | None:
    """Why a sentence does not follow from these texts; None if nothing speaks against it."""
    if len(text) < CHARACTERS_MIN:
        return f"shorter than {CHARACTERS_MIN} characters"
    if text.lstrip()[:1] in "{[":
        return "raw JSON and no sentence"
    whole = " ".join(sources)
    numbers, told = set(_NUMBER.findall(whole)), set(words(whole))
    for number in _NUMBER.findall(text):
        if number not in numbers and number.rstrip("0").rstrip(".") not in numbers:
            return f"the number {number} is not in the cited sources"
    for name in [*_IDENTIFIER.findall(text), *_NAME.findall(text)]:
        if not set(words(name)) <= told and not set(terms(name)) <= set(terms(whole)):
            return f"{name!r} is not in the cited sources"
    said, known = set(terms(text)), set(terms(whole))
    foreign = sorted(said - known)
    if len(said) < 2 or len(foreign) > max(1, int(FOREIGN_SHARE * len(said))):
        return f"{len(foreign)} of {len(said)} content words are not in the cited sources: {', '.join(foreign[:5])}"
    return None


def supporting(text: str, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Of the cited sources those that are needed: together they have every word of the sentence that all of them have.

    Models cite generously; a citation that adds nothing would be provenance in name only.
    """
    left = set(terms(text))
    found = {name: left & set(terms(source)) for name, source in sources.items()}
    needed = set()
    while found and (best := max(found, key=lambda name: len(found[name] & left))) and found[best] & left:
        needed.add(best)
        left -= found.pop(best)
    return tuple(name for name in sources if name in needed)
