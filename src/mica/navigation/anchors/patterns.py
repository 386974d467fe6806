"""Symbols without a parser: lines that look like definitions, ended by their indentation.

Works for code that is indented as people and formatters indent it. Markdown has sections instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_MAX = 400  # characters; a longer line is data or minified, and defines nothing that could be named

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|virtual|override|"
    r"async|inline|extern|unsafe|const|partial|readonly|open|suspend|data|pub(?:\([\w ]+\))?)\s+)*"
)
_DEFINITION = re.compile(
    r"(?P<indent>[ \t]*)(?:@\w[\w.]*(?:\([^)]*\))?\s+)?" + _MODIFIERS + r"(?:"
    r"(?P<word>def|class|interface|struct|enum|union|trait|module|mod|namespace|impl|record|object|protocol|extension|"
    r"function\*?|func|fn|fun|sub|type|macro_rules!)(?:\s*<[^>]*>)?\s+"
    r"(?:\((?P<receiver>[^)]*)\)\s*)?(?P<name>[A-Za-z_$][\w$]*(?:(?:\.|::)[A-Za-z_$][\w$]*)*[?!]?)"
    r"|(?:const|let|var)\s+(?P<bound>[A-Za-z_$][\w$]*)\s*(?::[^=]*)?=\s*(?:async\s+)?(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|\w+\s*=>)"
    r"|(?P<bare>[A-Za-z_$][\w$-]*)\s*\([^()]*\)[^;=(){]*\{\s*$"
    r"|(?:[A-Za-z_][\w:<>,*&\[\]?]*\s+[*&]*){1,4}(?P<typed>[A-Za-z_~][\w:~]*)\s*\([^;=]*\)?[^;=]*\{?\s*$"
    r")"
)
_NO_NAMES = frozenset(
    "if for while switch catch return else elif do try new throw case when with until unless using lock not and or in "
    "await yield delete import from package goto print assert raise".split()
)
_KINDS = {
    "class": "class",
    "struct": "class",
    "union": "class",
    "record": "class",
    "object": "class",
    "interface": "interface",
    "trait": "interface",
    "protocol": "interface",
    "enum": "enum",
    "type": "type",
    "module": "module",
    "mod": "module",
    "namespace": "module",
    "impl": "implementation",
    "extension": "implementation",
    "macro_rules!": "macro",
}
_CLOSING = re.compile(r"\s*(?:[)\]}]|end\b|\{\s*$)")  # belongs to what it ends, or opens what came before
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_PROSE = frozenset({".md", ".markdown", ".mdx", ".qmd"})
_NO_CODE = frozenset(
    ".txt .rst .adoc .json .jsonl .yaml .yml .toml .ini .cfg .csv .tsv .lock .xml .html .htm .svg .css .log".split()
)


def patterned(suffix: str, text: str) -> list[tuple[str, str, int, int]]:
    """Qualified name, kind, first and last line of what a text seems to define; in order, outer first."""
    if suffix in _PROSE:
        return _sections(text)
    return [] if suffix in _NO_CODE else _definitions(text)


def _definitions(text: str) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = []
    open_ones: list[tuple[int, int]] = []  # indentation, index in found
    last = 0  # line that says something
    decorated: tuple[int, int] | None = None  # first line, indentation
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        indent = _width(line)
        closing = _CLOSING.match(line) is not None
        while open_ones and (indent < open_ones[-1][0] or (indent == open_ones[-1][0] and not closing)):
            _, index = open_ones.pop()
            found[index] = (*found[index][:3], max(found[index][2], last))
        last = number
        if stripped.startswith(("@", "#[")) and len(line) <= LINE_MAX and not _DEFINITION.match(line):
            decorated = decorated if decorated is not None and decorated[1] == indent else (number, indent)
            continue
        match = _DEFINITION.match(line) if len(line) <= LINE_MAX and not closing else None
        named = _named(match) if match is not None else None
        if named is not None:
            name, kind = named
            around = found[open_ones[-1][1]] if open_ones else None
            if around is not None:
                kind = (
                    "method" if kind == "function" and around[1] in ("class", "interface", "implementation") else kind
                )
                name = f"{around[0]}.{name}"
            first = decorated[0] if decorated is not None and decorated[1] == indent else number
            open_ones.append((indent, len(found)))
            found.append((name, kind, first, number))
        decorated = None
    for _, index in open_ones:
        found[index] = (*found[index][:3], max(found[index][2], last))
    return found


def _named(match: re.Match[str]) -> tuple[str, str] | None:
    name = match["name"] or match["bound"] or match["bare"] or match["typed"]
    first = match[0].split(None, 1)[0]
    if name in _NO_NAMES or ((match["typed"] or match["bare"]) and first.rstrip("(") in _NO_NAMES):
        return None
    kind = _KINDS.get(match["word"] or "", "function")
    name = name.replace("::", ".")
    if match["receiver"]:
        name, kind = f"{match['receiver'].split()[-1].lstrip('*')}.{name}", "method"
    return name, kind


def _width(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _sections(text: str) -> list[tuple[str, str, int, int]]:
    lines = text.split("\n")
    total = len(lines) - (lines[-1] == "")
    headings = list(_headings(lines))
    found: list[tuple[str, str, int, int]] = []
    path: list[tuple[int, str]] = []
    for index, (number, level, title) in enumerate(headings):
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, title))
        end = next((later - 1 for later, depth, _ in headings[index + 1 :] if depth <= level), total)
        found.append((" / ".join(title for _, title in path), "section", number, end))
    return found


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    fence = ""
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if fence:
            fence = "" if stripped.startswith(fence) and not stripped.strip(fence[0]) else fence
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif (match := _HEADING.match(line)) and match[2] and len(line) <= LINE_MAX:
            yield number, len(match[1]), match[2]
