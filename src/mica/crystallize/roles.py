"""Which sentences state a rule, and which say why something matters: by their words alone, seldom and safely."""

from __future__ import annotations

import re

_PRINCIPLE = re.compile(
    r"\b(?:always|never)\s+(?!mind\b|the\s+less\b|been\b|was\b|had\b)\w+"
    r"|\b(?:lessons?|learn(?:ed|t|ings?)|gotcha|rule of thumb|principle|takeaway|in future|from now on|best practice)\b"
    r"|\b(?:must|should)\s+(?:always|never|not|only|remain|stay|be)\b"
    r"|^(?:prefer|do not|don't|avoid)\s",
    re.IGNORECASE,
)
_SIGNIFICANCE = re.compile(
    r"\b(?:because|so that|root cause|otherwise|therefore|as a result|which means|this means|that is why|this is why|"
    r"in order to|turned out|the reason|due to|prevents?|unblocks?|regression)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\?\W*$")


def is_principle(sentence: str) -> bool:
    """Whether it says what holds beyond this work; a question never does."""
    return bool(_PRINCIPLE.search(sentence)) and not _ASKS.search(sentence)


def is_significance(sentence: str) -> bool:
    """Whether it names a reason or a consequence; a question never does."""
    return bool(_SIGNIFICANCE.search(sentence)) and not _ASKS.search(sentence)
