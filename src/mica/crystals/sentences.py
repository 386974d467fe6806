"""How a text becomes sentences: verbatim stretches of it that can stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

CLAUSE_WORDS_MIN = 4  # a shorter piece before or after a colon says nothing by itself
LONG_WORDS = 12  # a shorter sentence is one thought and stays whole
TAIL_CHARACTERS = 12  # what decides whether a line or a sentence has ended; never the whole of it, or time is squared

_LINE = re.compile(r"[^\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_BULLET = re.compile(r"(?:[-*•–—]{1,3}|\d{1,3}[.)]|\[[ xX]\])\s+")
_ENDED = re.compile(r"[.!?:;…。！？]['\")\]»”’`]*$")
_STOP = re.compile(r"(?<![.!?…])[.!?…]++['\")\]»”’`]*+(?=\s++[^\sa-z,;:)])|[。！？]++[」』”’）]*+")
_SHORT_FORM = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|resp|incl|nr|fig|mr|mrs|dr|[a-z])\.$", re.IGNORECASE
)
_BLANKS = re.compile(r"\s+")
_SOME_WORDS = re.compile(rf"\s*+(?:\S++\s++){{{CLAUSE_WORDS_MIN - 1}}}\S")
_CLAUSE = re.compile(r"(?<=\w['\")\]`])[:;](?=\s)|(?<=\w)[:;](?=\s)")


def split(text: str) -> Iterator[str]:
    """The sentences of a text in order, each exactly as it stands there, without the bullet before it.

    A line that goes on in small letters belongs to the line before it.
    """
    for start, end in _paragraphs(text):
        yield from (sentence for sentence in _sentences(text[start:end]) if sentence.strip(": "))


def parts(sentence: str) -> Iterator[str]:
    """A long sentence by its clauses: parted at colons and semicolons where both sides have something to say.

    The mark belongs to neither. A short one is its own only part.
    """
    start = 0
    if len(sentence.split(maxsplit=LONG_WORDS)) > LONG_WORDS:
        for mark in _CLAUSE.finditer(sentence):
            if _SOME_WORDS.match(sentence, start, mark.start()) and _SOME_WORDS.match(sentence, mark.end()):
                yield sentence[start : mark.start()]
                start = _after_blanks(sentence, mark.end())
    if rest := sentence[start:].rstrip(": "):
        yield rest


def tail(sentence: str) -> str:
    """What stands behind the last colon or semicolon of a long sentence and begins as one does; empty where none is."""
    last = list(parts(sentence))[1:][-1:]
    return last[0] if last and last[0][0].isupper() else ""


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where lines that belong together begin and end, without the blanks and bullets around them."""
    first, last = 0, 0
    ended = 0
    for line in _LINE.finditer(text):
        start = line.start() + len(line[0]) - len(line[0].lstrip())
        end = line.end() - (len(line[0]) - len(line[0].rstrip()))
        if start >= end:
            continue
        blank_between = text.count("\n", ended, start) > 1
        ended = end
        bullet = _BULLET.match(text, start, end)
        if first < last and not bullet and not blank_between and _goes_on(text, first, last, start):
            last = end
            continue
        if first < last:
            yield first, last
        first, last = (bullet.end() if bullet else start), end
    if first < last:
        yield first, last


def _goes_on(text: str, first: int, last: int, start: int) -> bool:
    """Whether the line that begins at `start` continues the paragraph before it."""
    tail = text[max(first, last - TAIL_CHARACTERS) : last]
    return (text[start].islower() or text[start] == "(") and not _ENDED.search(tail)


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for stop in _STOP.finditer(paragraph):
        if _SHORT_FORM.search(paragraph[max(start, stop.end() - TAIL_CHARACTERS) : stop.end()]):
            continue
        yield paragraph[start : stop.end()]
        start = _after_blanks(paragraph, stop.end())
    if start < len(paragraph):
        yield paragraph[start:]


def _after_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return found.end() if found else place
