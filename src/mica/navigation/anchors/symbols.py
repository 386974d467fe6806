"""Find the functions, classes and sections of a file, with their lines.

tree-sitter parses the file if the extra `mica[code]` is installed and parsing is safe. Otherwise patterns recognize
definitions line by line, and indentation shows where they end. That is less exact, but good enough to name a place. The
symbols of a Markdown file are its sections.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple

from mica.navigation.anchors.grammars import GRAMMARS, LANGUAGES, Grammar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tree_sitter import Node, Parser, Query


PARSED_BYTES_MAX = 1_000_000  # parsing takes a tenth of a second; larger files are usually generated
PARSED_S_MAX = 0.5  # a parser needs quadratic time for text that is not code
NESTED_MAX = 300  # brackets; some grammars take minutes at 100,000, and 20,000 open `<` overflow the C stack of two
DECLARATORS_MAX = 8  # for a function that returns a pointer to a function, and so on
NAME_MAX = 200  # characters
TEXT_MAX = 16_000_000  # characters; a larger file has no symbols

SymbolMethod = Literal["tree-sitter", "patterns"]

LINE_MAX = 400  # characters; longer lines are data or minified code

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
_CLOSING = re.compile(r"\s*(?:[)\]}]|end\b|\{\s*$)")  # a line that ends a definition, or opens the one before
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_PROSE = frozenset({".md", ".markdown", ".mdx", ".qmd"})
_NO_CODE = frozenset(
    ".txt .rst .adoc .json .jsonl .yaml .yml .toml .ini .cfg .csv .tsv .lock .xml .html .htm .svg .css .log".split()
)


class Symbol(NamedTuple):
    """A definition in a file: its qualified name, its kind, and its first and last line, with its decorators."""

    name: str
    kind: str
    start: int
    end: int


def find_symbols(path: str, text: str) -> list[Symbol]:
    """Find the definitions of a file, ordered by their first lines. An outer definition precedes those inside it.

    The suffix of the path selects the language; for a language without a grammar, patterns that fit most languages are
    used. Never raises: for a file that is broken, hostile or not code, the result has fewer symbols, or none.
    """
    if len(text) > TEXT_MAX:
        return []
    grammar = _grammar_of(path)
    parsed = None if grammar is None else _parse(grammar, text)
    found = find_by_patterns(_suffix(path), text) if parsed is None else parsed
    return [Symbol(*one) for one in found]


def method_for(path: str) -> SymbolMethod:
    """Return the method that `find_symbols` tries first for a file with this name, given the installed packages."""
    return "patterns" if _grammar_of(path) is None else "tree-sitter"


def find_enclosing(symbols: Iterable[Symbol], start: int, end: int) -> Symbol | None:
    """Return the innermost symbol that contains all lines from `start` to `end`; None if there is no such symbol."""
    around = [symbol for symbol in symbols if symbol.start <= start and end <= symbol.end]
    return min(around, key=lambda symbol: (symbol.end - symbol.start, -symbol.start), default=None)


# -- tree-sitter ----------------------------------------------------------------------------------------
class LoadedGrammar(NamedTuple):
    """The parser of a language, and the query that finds its definitions."""

    parser: Parser
    query: Query


_ANGLES = b"<>"


_NO_BRACKETS = bytes(set(range(256)) - set(b"()[]{}<>;"))


_parsing = threading.Lock()  # parsers are shared by all threads


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _grammar_of(path: str) -> str | None:
    name = LANGUAGES.get(_suffix(path))
    return name if name is not None and _is_installed(name) else None


@cache  # by grammar, of which there are few
def _is_installed(name: str) -> bool:
    return find_spec("tree_sitter") is not None and find_spec(GRAMMARS[name].module) is not None


@cache
def _load(name: str) -> LoadedGrammar | None:
    """Load the parser of a language and the query for its definitions.

    Return None if the installed versions of tree-sitter and of the grammar do not fit together.
    """
    from tree_sitter import Language, Parser, Query

    grammar = GRAMMARS[name]
    try:
        language = Language(getattr(import_module(grammar.module), grammar.function)())
        with warnings.catch_warnings():
            # The callback that replaces `timeout_micros` crashes the interpreter (tree-sitter 0.25 and 0.26).
            warnings.simplefilter("ignore", DeprecationWarning)
            parser = Parser(language, timeout_micros=int(PARSED_S_MAX * 1_000_000))
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    names = {language.node_kind_for_id(number) for number in range(language.node_kind_count)}
    query = Query(language, "[" + " ".join(f"({kind})" for kind in grammar.kinds if kind in names) + "] @found")
    return LoadedGrammar(parser, query)


def _parse(name: str, text: str) -> list[tuple[str, str, int, int]] | None:
    """Return the definitions that tree-sitter finds, as (qualified name, kind, first line, last line).

    `name` is the name of the grammar. Return None if the text is too long, binary, nested too deeply, or takes too long
    to parse.
    """
    from tree_sitter import QueryCursor

    source = text.encode("utf-8", "replace")
    if len(source) > PARSED_BYTES_MAX or b"\0" in source:
        return None
    grammar = GRAMMARS[name]
    if not _is_shallow(source):
        return None
    with _parsing:
        loaded = _load(name)
        if loaded is None:
            return None
        try:
            tree = loaded.parser.parse(source)
        except ValueError:  # out of time
            loaded.parser.reset()
            return None
        nodes = QueryCursor(loaded.query).captures(tree.root_node).get("found", [])
        return _nest(grammar, sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte)), source)


def _is_shallow(source: bytes) -> bool:
    """Return True if no bracket is nested more than NESTED_MAX deep, so that parsing is safe.

    `<` is counted separately, because it may also mean "less than": after `;`, `{` or `}`, its count starts at 0 again.
    """
    depth = generics = 0
    for byte in source.translate(None, delete=_NO_BRACKETS):
        if byte in _ANGLES:
            generics = generics + 1 if byte == _ANGLES[0] else max(0, generics - 1)
        elif byte in b"([{":
            depth += 1
        elif byte in b")]}":
            depth = max(0, depth - 1)
        if byte in b";{}":
            generics = 0
        if depth > NESTED_MAX or generics > NESTED_MAX:
            return False
    return True


def _nest(grammar: Grammar, nodes: Iterable[Node], source: bytes) -> list[tuple[str, str, int, int]]:
    """Convert syntax nodes to definitions (qualified name, kind, first line, last line).

    The lines of a definition include its decorators, its attributes and the `export` before it.
    """
    found: list[tuple[str, str, int, int]] = []
    around: list[tuple[int, str, str]] = []  # last byte, qualified name, kind
    lead: tuple[int, int, int] | None = None  # decorators: first line, last byte, whole end
    for node in nodes:
        kind = grammar.kinds[node.type]
        start, end = node.start_byte, node.end_byte
        if kind in ("wrapper", "attribute"):
            attached = lead is not None and (start <= lead[1] or not source[lead[1] : start].strip())
            first = lead[0] if attached and lead is not None else node.start_point[0]
            lead = (first, start if kind == "wrapper" else end, end)
            continue
        name = _name(grammar, node, source)
        if name is None:
            continue
        while around and around[-1][0] <= start:
            around.pop()
        first, last = node.start_point[0], _last_row(node, start)
        if lead is not None and start < lead[2] and not source[end : lead[2]].strip(b"; \t\r\n"):
            first = lead[0]  # a wrapper that contains only this definition
        elif lead is not None and lead[1] <= start and not source[lead[1] : start].strip():
            first = lead[0]
        lead = None
        if around and around[-1][2] in ("class", "interface") and kind == "function":
            kind = "method"
        qualified = f"{around[-1][1]}.{name}" if around else name
        around.append((end, qualified, "class" if kind == "implementation" else kind))
        found.append((qualified, kind, first + 1, last + 1))
    return found


def _last_row(node: Node, start: int) -> int:
    row, column = node.end_point
    return row - 1 if column == 0 and node.end_byte > start and row > node.start_point[0] else row


def _name(grammar: Grammar, node: Node, source: bytes) -> str | None:
    """Return the name that a syntax node defines; None if the node is not a definition.

    A node without a name is not a definition, nor is one without the body or function that its type requires.
    """
    if node.type in grammar.with_body and node.child_by_field_name("body") is None:
        return None
    if node.type in grammar.with_function:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if value is None or value.type not in grammar.with_function[node.type]:
            return None
    named = None
    for field in grammar.names:
        if (named := node.child_by_field_name(field)) is not None:
            break
    for _ in range(DECLARATORS_MAX):
        inner = named.child_by_field_name("declarator") if named is not None else None
        if inner is None:
            break
        named = inner
    if named is None:
        return None
    name = _text_of(named, source)
    if node.type == "impl_item":
        name = name.split("<")[0]
    receiver = node.child_by_field_name("receiver") if node.type == "method_declaration" else None
    if receiver is not None:
        name = f"{_text_of(receiver, source).strip('()').split()[-1].lstrip('*').split('[')[0]}.{name}"
    return name or None


def _text_of(node: Node, source: bytes) -> str:
    text = source[node.start_byte : min(node.end_byte, node.start_byte + 4 * NAME_MAX)].decode("utf-8", "replace")
    return " ".join(text.split()).replace("::", ".")[:NAME_MAX]


def find_by_patterns(suffix: str, text: str) -> list[tuple[str, str, int, int]]:
    """Return the definitions that line patterns recognize, as (qualified name, kind, first line, last line).

    `suffix` is the suffix of the file's name, such as `.py`. An outer definition precedes those inside it.
    """
    if suffix in _PROSE:
        return _sections(text)
    return [] if suffix in _NO_CODE else _definitions(text)


def _definitions(text: str) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = []
    open_definitions: list[tuple[int, int]] = []  # indentation, index in `found`
    last = 0  # the last line that is not blank
    decorated: tuple[int, int] | None = None  # first line, indentation
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        indent = _width(line)
        closing = _CLOSING.match(line) is not None
        while open_definitions and (
            indent < open_definitions[-1][0] or (indent == open_definitions[-1][0] and not closing)
        ):
            _, index = open_definitions.pop()
            found[index] = (*found[index][:3], max(found[index][2], last))
        last = number
        if stripped.startswith(("@", "#[")) and len(line) <= LINE_MAX and not _DEFINITION.match(line):
            decorated = decorated if decorated is not None and decorated[1] == indent else (number, indent)
            continue
        match = _DEFINITION.match(line) if len(line) <= LINE_MAX and not closing else None
        named = _name_and_kind(match) if match is not None else None
        if named is not None:
            name, kind = named
            around = found[open_definitions[-1][1]] if open_definitions else None
            if around is not None:
                kind = (
                    "method" if kind == "function" and around[1] in ("class", "interface", "implementation") else kind
                )
                name = f"{around[0]}.{name}"
            first = decorated[0] if decorated is not None and decorated[1] == indent else number
            open_definitions.append((indent, len(found)))
            found.append((name, kind, first, number))
        decorated = None
    for _, index in open_definitions:
        found[index] = (*found[index][:3], max(found[index][2], last))
    return found


def _name_and_kind(match: re.Match[str]) -> tuple[str, str] | None:
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
