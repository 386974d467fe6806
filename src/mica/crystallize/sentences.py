"""How a text becomes sentences: verbatim stretches that can stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"[^\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_BULLET = re.compile(r"(?:[-*+•–—>#]+|\d{1,3}[.)]|[a-z][.)]|\[[ xX]\])\s+")
_ENDED = re.compile(r"[.!?:;…。！？]['\")\]»”’`]*$")
_GOES_ON = re.compile(r"[a-zß-öø-ÿа-я(,;]")
_STOP = re.compile(r"(?:[.!?…]+['\")\]»”’`]*(?=\s+[^\sa-z,;:)])|[。！？]+[」』”’）]*)\s*")
_SHORT = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|resp|incl|no|nr|fig|eq|mr|mrs|dr|st|v|[A-Z])\.$", re.IGNORECASE)


def split(text: str) -> Iterator[str]:
    """The sentences of a text in order, each exactly as it stands there, without the bullet before it.

    A line that goes on in small letters belongs to the line before it.
    """
    for start, end in _paragraphs(text):
        yield from _sentences(text[start:end])


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where lines that belong together begin and end, without blanks and bullets around them."""
    open_at, open_to = 0, 0
    for line in _LINE.finditer(text):
        start, end = line.span()
        content = line[0]
        start += len(content) - len(content.lstrip())
        end -= len(content) - len(content.rstrip())
        if start >= end:
            if open_to > open_at:
                yield open_at, open_to
            open_at = open_to = end
            continue
        bullet = _BULLET.match(text, start, end)
        goes_on = not bullet and _GOES_ON.match(text, start) and not _ENDED.search(text, open_at, open_to)
        if open_to > open_at and goes_on:
            open_to = end
            continue
        if open_to > open_at:
            yield open_at, open_to
        open_at, open_to = (bullet.end() if bullet else start), end
    if open_to > open_at:
        yield open_at, open_to


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for stop in _STOP.finditer(paragraph):
        sentence = paragraph[start : stop.end()].rstrip()
        if _SHORT.search(sentence):
            continue
        yield sentence
        start = stop.end()
    if rest := paragraph[start:].strip():
        yield rest
