"""What a sentence speaks of: the terms of its words, and identifiers and file names whole.

`RemediationProgress` is a unit and so are "remediation" and "progress": whoever says either says something of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from mica.words import terms, terms_of, words

IDENTIFIER_CHARACTERS_MAX = 80  # longer ones are generated: nobody speaks of them
IDENTIFIER = "i:"  # begins the unit of an identifier, so that no word is mistaken for one

EMPTY_WORDS = frozenset(
    terms(
        "after all already any because been before being below between both by did doing done during each else etc few"
        " further get had having here hers him however if into itself let like may me might more most must my new no"
        " nor now of off on once one only onto or other our over own per please same see set should some still such"
        " sure than them there these they this those through to too two under until upon us use used using very via was"
        " we well were what when where which while who whom why will with within without would yes yet you your good"
        " look ok okay need make start first next actually current currently"
        " across along although among around behind beside beyond though toward towards whether"
    )
)  # beyond the stop words of every index: they are in every stretch of work and say nothing of this one

_NAME = re.compile(r"[A-Za-z_]\w*(?:[./:-]+\w+)*")
_CASE_CHANGE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_ENDING = re.compile(
    r"\.(?:py|pyi|jsx?|tsx?|rs|go|md|rst|txt|jsonl?|ya?ml|toml|cfg|ini|sh|sql|html|s?css|svg|lock|xml|java|kt|[ch]|cpp|"
    r"cs|rb|php|ipynb|csv|env|db|log|proto)$"
)


def units(text: str) -> list[str]:
    """The units of a text in order, with repeats."""
    return [unit for unit, _ in spelled(text)]


Spelled: TypeAlias = tuple[str, str]  # a unit, and how it is written


def spelled(text: str) -> Iterator[Spelled]:
    """The units of a text, each with how it is written there: words first, then identifiers."""
    for word in words(text):
        if unit := _unit(word):
            yield unit, word
    for name in _NAME.findall(text):
        if identifier := _identifier(name):
            yield IDENTIFIER + identifier.lower(), identifier


def is_file(unit: str) -> bool:
    return unit.startswith(IDENTIFIER) and bool(_ENDING.search(unit))


@lru_cache(maxsize=65_536)
def _unit(word: str) -> str:
    return next((term for term in terms_of([word]) if term not in EMPTY_WORDS), "")


@lru_cache(maxsize=65_536)
def _identifier(name: str) -> str:
    """`engine.ts` of `src/app/engine.ts`, `asdict_` of `attr.asdict_`; nothing for a plain word."""
    last = re.split(r"[/:]", name.rstrip(".:/-"))[-1]
    if "." in last and not _ENDING.search(last):
        last = last.rsplit(".", 1)[1]
    is_identifier = "." in last or "_" in last.strip("_") or _CASE_CHANGE.search(last)
    return last if is_identifier and 1 < len(last) <= IDENTIFIER_CHARACTERS_MAX else ""
