"""What part a sentence can play: none by itself, a rule, a reason. By its looks alone, and when in doubt none."""

from __future__ import annotations

import re

_PRINCIPLE = re.compile(
    r"\b(?:always|never)\s+(?!mind\b|the\s+less\b|been\b|was\b|had\b)\w+"
    r"|\b(?:lessons?|learn(?:ed|t|ings?)|gotcha|rule of thumb|principle|takeaway|in future|from now on|best practice)\b"
    r"|\bmust\s+(?:always|never|not|only|remain|stay)\b|\bshould\s+(?:always|never)\b|^prefer\s",
    re.IGNORECASE,
)
_SIGNIFICANCE = re.compile(
    r"\b(?:because|so that|root cause|otherwise|therefore|as a result|which means|this means|that is why|this is why|"
    r"in order to|turned out|the reason|due to|prevents?|unblocks?)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"^(?:[$<>{}|=]|[#+]+\s|//|#!|\.\.\.)|[({\[=,<|\\]$|=>|&&|\|\||\);|</|/>")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_CUT = re.compile(
    r"(?:…|\.\.\.)['\")\]]*$|\b(?:from|to|of|with|and|or|the|an?|in|for|by|at|as|that|which|is|are)$", re.IGNORECASE
)
_LEADS_ON = re.compile(r":['\"*_)\]]*$")
_GOES_ON = re.compile(r"(?:[Aa]nd|[Oo]r|[Nn]or|[Ww]hich|but|only|because|so|then|than|that|while|whereas|yet)\b(?!-)")
_ANNOUNCED = re.compile(
    r"(?:(?:now|next|first|then|great|good|ok(?:ay)?|perfect|excellent|also|so)\b[,.!:]?\s+)*"
    r"(?:let me|let's|i'll|i will|i need to|i'm going to|i am going to)\b",
    re.IGNORECASE,
)
_INSTRUCTED = re.compile(
    r"(?:(?:and|but|then|also|yes|no|ok(?:ay)?)\b[,.]?\s+)*"
    r"(?:please|do not|don't|never|make sure|be sure|ensure|remember|find out|"
    r"write (?:a|the) tests?|let me know|tell me|show me)\b",
    re.IGNORECASE,
)
_ENDED = re.compile(r"[.!?…。！？]['\")\]»”’`*_]*$")
HEADING_WORDS_MAX = 3
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))
_QUOTES = '"`'
_ASKS = re.compile(r"\?\W*$")


def is_fragment(sentence: str) -> bool:
    """Whether it cannot be read by itself: code, a hash, a bracket left open, cut off, or a part of something said.

    "which" and "and" go on from words that are not here; a colon at the end leads to words that are not.
    """
    if _CODE.search(sentence) or _HASH.search(sentence) or _CUT.search(sentence):
        return True
    if _LEADS_ON.search(sentence) or _GOES_ON.match(sentence):
        return True
    if any(sentence.count(opening) != sentence.count(closing) for opening, closing in _PAIRS):
        return True
    return any(sentence.count(quote) % 2 for quote in _QUOTES)


def is_heading(sentence: str) -> bool:
    """Whether it stands above something: a few words that do not end as a sentence does, such as "Files to change"."""
    return len(sentence.split(maxsplit=HEADING_WORDS_MAX)) <= HEADING_WORDS_MAX and not _ENDED.search(sentence)


def is_announcement(sentence: str) -> bool:
    """Whether it says what its author is about to do: no word of what was done."""
    return bool(_ANNOUNCED.match(sentence))


def is_question(sentence: str) -> bool:
    """Whether it asks: whoever reads it later wants the answer."""
    return bool(_ASKS.search(sentence))


def is_instruction(sentence: str) -> bool:
    """Whether it tells somebody how to go about the work, as "Do not change anything yet." does."""
    return bool(_INSTRUCTED.match(sentence))


def is_principle(sentence: str) -> bool:
    """Whether it says what holds beyond this work; a question never does."""
    return bool(_PRINCIPLE.search(sentence)) and not is_question(sentence)


def is_significance(sentence: str) -> bool:
    """Whether it names a reason or a consequence; a question never does."""
    return bool(_SIGNIFICANCE.search(sentence)) and not is_question(sentence)
