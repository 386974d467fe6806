"""Cleans a text of code, tables and logs, and splits the rest into whole sentences.

A sentence ends only at a full stop, an exclamation mark or a question mark. It is never split at a colon or semicolon,
because the value usually comes after it. List items keep the header above them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec

WRAPPED_CHARACTERS_MIN = 50  # a line that was wrapped is about this long or longer
SAME_SHAPE_MIN = 4  # lines of one shape are a log or a listing
SAME_PREFIX_MIN = 2  # lines that begin with the same name of a program
CODE_CHARACTERS = 300  # before the end of a sentence in which quoted code is looked for
SHAPE_CHARACTERS = 40  # of a line that are compared
LEAD_WORDS_MAX = 16  # of a sentence before a list that stands before each of its items
HEADER_WORDS_MAX = 8
SENTENCE_WORDS_MIN = 3  # a line of so many words that ends with a colon says something without its list
LOOK_AHEAD = 200  # lines after a colon in which its list is looked for
REMOVED = "\x00"  # a line in place of code that was removed
HEADER_CHARACTERS_MAX = 80


class ProseSentence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A whole sentence or list item, without list marks and emphasis."""

    text: str
    header: str = ""  # the heading or the line with a colon above it
    paragraph: int = 0  # sentences of one paragraph or list item have the same number
    is_item: bool = False


# -- Cleaning -------------------------------------------------------------------------------------------------


_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"<([a-z][\w-]{2,40})(?: [^<>\n]{0,200})?>.*?</\1>", re.DOTALL)
_LOG_LINE = re.compile(
    r"""^\s*(?:
      \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d         # a date with a time
    | \[?\d\d:\d\d:\d\d                        # a time
    | (?:\w{3}\ +\d{1,2}\ \d\d:\d\d:\d\d)      # syslog
    | \[?(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b[\]:\s-]
    | Traceback\ \(most\ recent
    | File\ "[^"]+",\ line\ \d+
    | at\ [\w$.<>/\[\]]+\ ?\(.*\)\s*$          # a frame of Java or JavaScript
    | (?:[\w.]+\.)?\w*(?:Error|Exception)(?::|\s*$)
    | (?:FAILED|PASSED|ERROR|E\ \ )\s+\S+
    | (?:\$|❯|>>>|\+\+\+|---|@@|diff\ --git)\s+\S
    | [+-]\s{2,}\S
    | \#\d+\s+0x[0-9a-f]+
    | npm\ (?:ERR!|WARN)
    | \[?\d{1,2}/\w{3}/\d{4}[:\ ]\d\d:\d\d      # the time of a web server
    | (?:terminate\ called|Aborted|Segmentation\ fault|thread\ '[^']*'\ panicked|note:\ run\ with)\b|Caused\ by:
    | \d[\d.,]*[KMGTB]{0,2}\s+\.{0,2}/\S+\s*$        # sizes of files
    | ={4,}|-{4,}|_{4,}|\*{4,}
    | \^+\s*$
    )""",
    re.VERBOSE,
)
_LOG_PREFIX = re.compile(  # [worker], cron[12]: or E/Runtime( 12):
    r"\s*(\[[\w.:/ -]{2,40}\]|(?:[VDIWEF]/)?[\w.-]{2,40}(?:\[\d+\]:|\(\s*\d+\):))\s"
)
_TABLE = re.compile(r"^\s*\|.*\|\s*$|^\s*[|+][-+=|: ]{3,}$")
_QUOTED_LINE = re.compile(r"^\s{0,3}>")
_CODE_LINE = re.compile(
    r"^\s*(?:(?:def|class|return|import|from|const|let|var|function|if|for|while|elif|else|try|except)\b.*[:;{(]\s*$"
    r"|[\w.\[\]\"']+\s*(?:=|\+=|:=)\s*\S.*[;)\]}]?\s*$|[{}()\[\];,]+\s*$|//|/\*|<\w+[^>]*>\s*$|.*[;{]\s*$)"
)
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_BULLET = re.compile(r"\s*(?:[-*•–—]|\d{1,3}[.)]|\(?[a-z]\)|\[[ xX]\])\s+(?:\[[ xX]\]\s+)?(?=\S)")


def clean(text: str) -> str:
    """Return a text without code blocks, tables, quoted lines, logs, traces and injected tags."""
    if "```" in text or "~~~" in text:
        text = _FENCE.sub(f"\n{REMOVED}\n", text)
    if "</" in text:
        text = _TAGGED.sub("\n", text)
    lines = text.splitlines()
    dropped = _logged(lines)
    dropped.update(number for number, line in enumerate(lines) if line.strip() == REMOVED)
    kept = ["" if number in dropped else line for number, line in enumerate(lines)]
    for number, line in enumerate(kept):
        if line.rstrip().endswith(":") and len(line.split()) >= SENTENCE_WORDS_MIN and not _BULLET.match(line):
            below = range(number + 1, min(len(lines), number + 1 + LOOK_AHEAD))
            if next((each for each in below if lines[each].strip()), number) in {number, *dropped}:
                kept[number] = f"{line.rstrip()[:-1]}."  # what it introduced is gone, so it is a sentence
    return "\n".join(kept)


def _logged(lines: list[str]) -> set[int]:
    """Return the numbers of the lines that are logs, tables, quotes or code."""
    dropped = {number for number, line in enumerate(lines) if line and (_TABLE.match(line) or _QUOTED_LINE.match(line))}
    logs = [number for number, line in enumerate(lines) if line and _LOG_LINE.match(line)]
    prefixes = [match[1] if (match := _LOG_PREFIX.match(line)) else "" for line in lines]
    repeated = {prefix for prefix, count in Counter(filter(None, prefixes)).items() if count >= SAME_PREFIX_MIN}
    logs += [number for number, prefix in enumerate(prefixes) if prefix in repeated]
    if len(lines) >= SAME_SHAPE_MIN:
        shapes = [_shape(line) for line in lines]
        often = {shape for shape, count in Counter(filter(None, shapes)).items() if count >= SAME_SHAPE_MIN}
        logs += [number for number, shape in enumerate(shapes) if shape in often]
    if len(logs) >= 2:
        logs.sort()
        for first, last in pairwise(logs):
            if last - first <= 12 and not any(_is_prose(line) for line in lines[first + 1 : last]):
                dropped.update(range(first, last + 1))
    dropped.update(logs)
    if len(lines) > 1:
        dropped.update(number for number, line in enumerate(lines) if _CODE_LINE.match(line) and not _is_prose(line))
    return dropped


def _shape(line: str) -> str:
    """Return the shape of a line's beginning; "" if the line may well be prose or a list item."""
    if len(line) < 8 or _BULLET.match(line):
        return ""
    if _is_prose(line) and line.lstrip()[:1].isalpha():
        return ""
    shape = _DIGITS.sub("0", _LETTERS.sub("a", line[:SHAPE_CHARACTERS]))
    return shape if "0" in shape or sum(not each.isalnum() and each != " " for each in shape) >= 4 else ""


def _is_prose(line: str) -> bool:
    """Return True for a line with a few words in a row that are not code."""
    return bool(re.search(r"(?:(?<=\s)|^)[^\W\d_]+[,;:]?(?: [^\W\d_]+[,;:]?){3,}", line)) and not _LOG_LINE.match(line)


# -- Splitting ------------------------------------------------------------------------------------------------


_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_BOLD_LINE = re.compile(r"\s*(?:\*\*|__)([^*_]{2,80})(?:\*\*|__):?\s*$")
_EMPHASIS = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w_])__(?=\S)(.+?)(?<=\S)__(?![\w_])")
_STOP = re.compile(r"(?<![.!?…])[.!?…]++['\")\]»”’`*]*+(?=\s++\S)|[。！？]++[」』”’）]*+")
_NEXT = re.compile(r"\s++(\S)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'„“])(?:e\.g|i\.e|etc|vs|cf|approx|resp|incl|excl|nr|no|fig|mr|mrs|ms|dr|prof|st|jr|max|min|ca|bzw|usw|z\.\s?b"
    r"|d\.\s?h|u\.\s?a|ggf|evtl|inkl|zzgl|vgl|str|tel|abs|sog|sr|sra|ud|uds|p\.\s?ej|pág|núm|aprox|av|mme|mlle|ex|env"
    r"|c\.-à-d|(?<!\d )[^\W\d_])\.$",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"(?:^|\s)\d{1,2}\.$")
_MONTH = re.compile(
    r"\s+(?:jan|feb|fév|mär|mar|maa|apr|abr|avr|mai|may|mei|maj|jun|jui|jul|aug|ago|aoû|sep|okt|oct|ott|nov|dez|dec|dic|"
    r"déc|ene|gen|quartal|woche|stock|etage|klasse|tag\b|version|mal\b|uhr)",
    re.IGNORECASE,
)
_LINE_ENDS = re.compile(r"[.!?:;…。！？]['\")\]»”’`*_]*$")


def sentences(text: str, *, is_wrapped: bool = False) -> Iterator[ProseSentence]:
    """Yield the sentences of a text in order. With `is_wrapped`, each line continues the line before it.

    A blank line, a list mark or a heading always begins a new paragraph.
    """
    for number, (paragraph, header, is_item) in enumerate(_paragraphs(text, is_wrapped=is_wrapped)):
        for each in split(paragraph):
            if stripped := _EMPHASIS.sub(lambda match: match[1] or match[2], each).strip(" *\t"):
                yield ProseSentence(text=stripped, header=header, paragraph=number, is_item=is_item)


def split(paragraph: str) -> Iterator[str]:
    """Yield the sentences of one paragraph. Abbreviations and day numbers do not end a sentence."""
    start = 0
    for stop in _STOP.finditer(paragraph):
        before = paragraph[max(start, stop.end() - 14) : stop.end()]
        if stop[0].startswith(".") and (
            _ABBREVIATION.search(before) or (_ORDINAL.search(before) and _MONTH.match(paragraph, stop.end()))
        ):
            continue
        if stop[0].endswith(")") and paragraph.count("(", start, stop.end()) < paragraph.count(")", start, stop.end()):
            continue
        if paragraph.count("`", max(start, stop.end() - CODE_CHARACTERS), stop.end()) % 2:
            continue  # inside a piece of code
        after = _NEXT.match(paragraph, stop.end()) if stop[0].startswith(("…", "..")) else None
        if after is not None and after[1].islower():
            continue
        yield paragraph[start : stop.end()].strip()
        start = stop.end()
    if rest := paragraph[start:].strip():
        yield rest


def _paragraphs(text: str, *, is_wrapped: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield each paragraph or list item on one line, with its header, and True for a list item."""
    section = header = ""
    has_content = True  # below the current header
    lines: list[str] = []
    is_item = was_blank = False

    def flush() -> Iterator[tuple[str, str, bool]]:
        if lines:
            yield " ".join(lines), header or section, is_item
            lines.clear()

    for raw in text.splitlines():
        line = raw.strip()
        bullet = _BULLET.match(raw)
        heading = _HEADING.match(raw) or _BOLD_LINE.match(raw)
        if not line:
            if is_item or not (lines and lines[-1].endswith(":")):  # what ends with a colon may lead to a list
                yield from flush()
            was_blank = True
            continue
        if heading is not None:
            yield from flush()
            section, header, is_item = _header(heading[1]), "", False
        elif bullet is not None:
            if len(lines) == 1 and not is_item and _is_header(lines[0]):
                header = _header(lines.pop())
            elif lines and not is_item and lines[-1].endswith(":"):
                *before, lead = split(" ".join(lines))
                if len(lead.split()) <= LEAD_WORDS_MAX:
                    lines[:] = [" ".join(before)] if before else []
                    yield from flush()
                    header = _header(lead)
            yield from flush()
            is_item = has_content = True
            if "[ ]" in bullet[0]:
                header = header or "To do"
            lines.append(raw[bullet.end() :].strip())
        elif line.endswith(":") and _is_header(line) and not (lines and _continues(lines[-1], line)):
            yield from flush()
            header, has_content, is_item = _header(line), False, False
        elif lines and not (was_blank and lines[-1].endswith(":")) and (is_wrapped or _continues(lines[-1], line)):
            lines.append(line)
        else:
            yield from flush()
            if has_content and (was_blank or not is_item) and raw[:1] not in " \t":
                header = ""
            is_item, has_content = False, True
            lines.append(line)
        was_blank = False
    yield from flush()


def _header(line: str) -> str:
    return line.strip(" *_#:\t")[:HEADER_CHARACTERS_MAX]


def _is_header(line: str) -> bool:
    bare = line.rstrip("*_ ")
    return len(bare.split()) <= HEADER_WORDS_MAX and (bare.endswith(":") or not _LINE_ENDS.search(bare))


def _continues(previous: str, line: str) -> bool:
    """Return True if a line continues the line before it, which was wrapped."""
    return (len(previous) >= WRAPPED_CHARACTERS_MIN and not _LINE_ENDS.search(previous)) or line[:1] == "("
