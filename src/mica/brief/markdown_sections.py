"""Finds and replaces a section of a Markdown text by its title, without changing any other character.

A section ends at the next heading of the same or a higher level. Headings inside code and comments are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_NO_PARAGRAPH = re.compile(r"\s*$| {4}|\t| {0,3}(?:[>|]|#{1,6}(?:\s|$)|[-+*](?:\s|$)|\d{1,9}[.)](?:\s|$)|`{3}|~{3}|<)")
_BEGINS_BLOCK = re.compile(r"[#>|~`=+*\\-]|\d{1,9}[.)](?:\s|$)")
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Section(msgspec.Struct, frozen=True):
    """The position of a section, as line indexes from 0."""

    heading: int
    body: int  # the first line after its heading
    end: int


def lines_of(text: str) -> list[str]:
    """Split a text into lines, each with its line ending."""
    return _LINE.findall(text)


def find(lines: Sequence[str], title: str) -> Section | None:
    """Return the first section with this title, ignoring case; None if there is none."""
    found: tuple[int, int, int] | None = None
    for start, body, level, name in _headings(lines):
        if found is None:
            if name.casefold() == title.casefold():
                found = start, body, level
        elif level <= found[2]:
            return Section(found[0], found[1], start)
    return None if found is None else Section(found[0], found[1], len(lines))


def replace_section(text: str, title: str, body: Sequence[str]) -> str:
    """Replace the lines below a section's heading by `body`; a missing section is added at the end.

    The new lines get the line endings that `text` uses.
    """
    lines = lines_of(text)
    ending = next((_ending(line) for line in lines if _ending(line)), "\n")
    content = "".join(f"{line}{ending}" for line in body)
    section = find(lines, title)
    if section is None:
        gap = "" if not text else ending if _ending(text) else 2 * ending
        return f"{text}{gap}## {title}{ending}{ending}{content}"
    head, tail = "".join(lines[: section.body]), "".join(lines[section.end :])
    if tail:
        return f"{head}{ending}{content}{ending}{tail}"
    whole = f"{head}{'' if _ending(head) else ending}{ending}{content}"
    return whole if _ending(text) else whole.removesuffix(ending)


def escape_line(text: str) -> str:
    """Flatten a text to one line that starts no heading, code or comment inside a list."""
    flat = " ".join(_HIDDEN.sub(" ", text).split()).replace("<!--", "&lt;!--")
    return f"\\{flat}" if _BEGINS_BLOCK.match(flat) else flat


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :] if not line.endswith("\r\n") else "\r\n"


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield each heading: its first line, the line after it, its level and its title."""
    fence = ""
    is_comment = False
    bare = [line.rstrip("\r\n").removeprefix("" if number else "\ufeff") for number, line in enumerate(lines)]
    for number, line in enumerate(bare):
        if is_comment:
            is_comment = "-->" not in line
        elif fence:
            fence = "" if _closes(line, fence) else fence
        elif (opened := _FENCE.fullmatch(line)) is not None and not (opened[1][0] == "`" and "`" in opened[2]):
            fence = opened[1]
        elif "<!--" in line:
            is_comment = "-->" not in line.rpartition("<!--")[2]
        elif (heading := _HEADING.fullmatch(line)) is not None:
            yield number, number + 1, len(heading[1]), (heading[2] or "").strip()
        elif number and (underline := _UNDERLINE.fullmatch(line)) and not _NO_PARAGRAPH.match(bare[number - 1]):
            first = _paragraph(bare, number - 1)
            title = " ".join(part.strip() for part in bare[first:number])
            yield first, number + 1, 1 if underline[1][0] == "=" else 2, title


def _closes(line: str, fence: str) -> bool:
    match = _FENCE.fullmatch(line)
    return match is not None and match[1].startswith(fence) and not match[2].strip()


def _paragraph(lines: Sequence[str], last: int) -> int:
    """Return the first line of the paragraph that ends with line `last`."""
    first = last
    while first and not _NO_PARAGRAPH.match(lines[first - 1]) and not _UNDERLINE.fullmatch(lines[first - 1]):
        first -= 1
    return first
