"""Cues: words that show what kind of statement a sentence is, or that it ends an earlier one.

The cues are in `cues.toml`, one table for each meaning, with the weight of each cue. The cues of all languages are
tried together, because people mix languages, and a short sentence does not reveal its own. They are compiled at first
use.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache, cached_property
from importlib import resources
from typing import NamedTuple

_CLAUSE_START = (
    r"(?:^|[,;:.!–—(-]\s*|\b(?:and|but|so|also|please|pls|bitte|und|also|por favor|y|pero|et|mais|stp|en|e)\s+)"
)

_LETTER_OR_ESCAPE = re.compile(r"\\.|[A-ZÀ-Ý]")


class Cue(NamedTuple):
    """A pattern and how much it counts."""

    weight: float
    pattern: re.Pattern[str]


class CueFamily:
    """The cues of one meaning in all languages."""

    def __init__(self, name: str) -> None:
        self._name = name

    def weigh(self, text: str) -> float:
        """Return the sum of the weights of the cues in a text; 0 if no cue matches."""
        lowered = text.lower()
        if self._any.search(lowered) is None:
            return 0.0
        return sum(cue.weight for cue in self._cues if cue.pattern.search(lowered))

    def matches(self, text: str) -> bool:
        """True if at least one cue occurs in a text."""
        return self._any.search(text.lower()) is not None

    @property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that matches every cue in a text in lower case."""
        return self._any

    @cached_property
    def _cues(self) -> list[Cue]:
        return [Cue(weight, _compile(pattern)) for weight, pattern in _patterns()[self._name]]

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return _compile("|".join(f"(?:{pattern})" for _, pattern in _patterns()[self._name]))


@cache
def _patterns() -> dict[str, list[tuple[float, str]]]:
    """Return the weight and the pattern of each cue, by the name of its family, and lists of words."""
    return tomllib.loads(resources.files("mica.beliefs").joinpath("cues.toml").read_text("utf-8"))


def word_list(name: str) -> frozenset[str]:
    """Return the words of a list in `cues.toml`."""
    return frozenset(str(_patterns()[name]).split())


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for texts in lower case, which is twice as fast as to ignore the case in each search."""
    lowered = _LETTER_OR_ESCAPE.sub(lambda match: match[0] if match[0][0] == "\\" else match[0].lower(), pattern)
    return re.compile(lowered.replace("{start}", _CLAUSE_START))


# -- Kinds

RULE = CueFamily("rule")
PREFERENCE = CueFamily("preference")
DECISION = CueFamily("decision")
FACT = CueFamily("fact")
GOTCHA = CueFamily("gotcha")
TASK = CueFamily("task")
QUESTION = CueFamily("question")

# -- What speaks against a kind

ASKS = CueFamily("asks")
ONCE = CueFamily("once")
MOCKERY = CueFamily("mockery")
CHATTER = CueFamily("chatter")
PROPOSAL = CueFamily("proposal")

# -- What ends an earlier statement

REVERSAL = CueFamily("reversal")
WITHDRAWAL = CueFamily("withdrawal")
DONE = CueFamily("done")
NOT_DONE = CueFamily("not_done")
RENAME = CueFamily("rename")
CHANGE = CueFamily("change")

_KNOWN_WORDS = frozenset(
    "the a is are to of and in it for you that with this not on we i do be or as at "
    "der die das ist und ein eine nicht mit auf wir ich für den dem zu im von es bitte "
    "el la los las es de que y en un una no con para por se lo "
    "le les est et une des pas dans pour sur que qui on je du au ce avec "
    "het een van niet voor ik met wij il di che non per sono".split()
)


def is_known_language(words: Iterable[str]) -> bool:
    """True if at least one word of a text is a frequent word of a language that has cues."""
    return not _KNOWN_WORDS.isdisjoint(words)
