"""Which functions, classes and sections a file has, and on which lines.

Parsed by tree-sitter where the extra `mica[code]` is installed and the file can be parsed safely, else read off line by
line with patterns: less exact, but good enough to name a place. `reading` says which of the two it would be.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple

from mica.navigation.anchors.grammars import GRAMMARS, LANGUAGES, Grammar
from mica.navigation.anchors.patterns import patterned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tree_sitter import Node, Parser, Query

PARSED_BYTES_MAX = 1_000_000  # a tenth of a second; larger files are generated, and nobody reads them by symbol
PARSED_S_MAX = 0.5  # text that is no code at all takes a parser quadratic time
NESTED_MAX = 300  # brackets; some grammars take minutes at 100,000, and 20,000 open `<` overflow the C stack of two
DECLARATORS_MAX = 8  # a function that returns a pointer to a function …
NAME_MAX = 200  # characters
TEXT_MAX = 16_000_000  # characters; beyond, a file has no symbols

Reading = Literal["tree-sitter", "patterns"]


class Symbol(NamedTuple):
    """A definition: its qualified name, what it is, and its first and last line, decorators included."""

    name: str
    kind: str
    start: int
    end: int


def symbols(path: str, text: str) -> list[Symbol]:
    """The definitions of a file in the order of their first lines, the outer before the inner.

    The path says which language it is; what has no rules of its own is read by patterns that fit most languages. Never
    raises: a file that is broken, hostile or no code has fewer symbols, or none.
    """
    if len(text) > TEXT_MAX:
        return []
    grammar = _grammar_of(path)
    parsed = None if grammar is None else _parsed(grammar, text)
    found = patterned(_suffix(path), text) if parsed is None else parsed
    return [Symbol(*one) for one in found]


def reading(path: str) -> Reading:
    """How the symbols of a file with this name are found here."""
    return "patterns" if _grammar_of(path) is None else "tree-sitter"


def enclosing(found: Iterable[Symbol], start: int, end: int) -> Symbol | None:
    """The innermost symbol that holds all of these lines."""
    around = [symbol for symbol in found if symbol.start <= start and end <= symbol.end]
    return min(around, key=lambda symbol: (symbol.end - symbol.start, -symbol.start), default=None)


# -- tree-sitter ----------------------------------------------------------------------------------------


class _Loaded(NamedTuple):
    parser: Parser
    query: Query


_ANGLES = b"<>"
_NO_BRACKETS = bytes(set(range(256)) - set(b"()[]{}<>;"))
_parsing = threading.Lock()  # a parser is no thread's own


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _grammar_of(path: str) -> str | None:
    name = LANGUAGES.get(_suffix(path))
    return name if name is not None and _is_installed(name) else None


@cache  # by grammar, of which there are few; names of files have no end
def _is_installed(name: str) -> bool:
    return find_spec("tree_sitter") is not None and find_spec(GRAMMARS[name].module) is not None


@cache
def _loaded(name: str) -> _Loaded | None:
    """A parser and the query for definitions; None where the wheels that are installed do not fit together."""
    from tree_sitter import Language, Parser, Query

    grammar = GRAMMARS[name]
    try:
        language = Language(getattr(import_module(grammar.module), grammar.function)())
        with warnings.catch_warnings():
            # The callback that is to replace it crashes the interpreter (tree-sitter 0.25 and 0.26).
            warnings.simplefilter("ignore", DeprecationWarning)
            parser = Parser(language, timeout_micros=int(PARSED_S_MAX * 1_000_000))
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    names = {language.node_kind_for_id(number) for number in range(language.node_kind_count)}
    query = Query(language, "[" + " ".join(f"({kind})" for kind in grammar.kinds if kind in names) + "] @found")
    return _Loaded(parser, query)


def _parsed(name: str, text: str) -> list[tuple[str, str, int, int]] | None:
    """The definitions that tree-sitter finds; None where it must not or cannot parse this text."""
    from tree_sitter import QueryCursor

    source = text.encode("utf-8", "replace")
    if len(source) > PARSED_BYTES_MAX or b"\0" in source:
        return None
    grammar = GRAMMARS[name]
    if not _shallow(source):
        return None
    with _parsing:
        loaded = _loaded(name)
        if loaded is None:
            return None
        try:
            tree = loaded.parser.parse(source)
        except ValueError:  # out of time
            loaded.parser.reset()
            return None
        nodes = QueryCursor(loaded.query).captures(tree.root_node).get("found", [])
        return _nested(grammar, sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte)), source)


def _shallow(source: bytes) -> bool:
    """Whether brackets are nested as people nest them; comparisons are no brackets, so a statement ends all `<`."""
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


def _nested(grammar: Grammar, nodes: Iterable[Node], source: bytes) -> list[tuple[str, str, int, int]]:
    """Names qualified by what stands around them. Decorators, exports and attributes belong to what they precede."""
    found: list[tuple[str, str, int, int]] = []
    around: list[tuple[int, str, str]] = []  # last byte, qualified name, kind
    lead: tuple[int, int, int] | None = None  # of what belongs to the next definition: first line, last byte, whole end
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
            first = lead[0]  # a wrapper, and nothing but this is in it
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
    """What a definition is called; None where it has no name, or is only mentioned."""
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
    name = _written(named, source)
    if node.type == "impl_item":
        name = name.split("<")[0]
    receiver = node.child_by_field_name("receiver") if node.type == "method_declaration" else None
    if receiver is not None:
        name = f"{_written(receiver, source).strip('()').split()[-1].lstrip('*').split('[')[0]}.{name}"
    return name or None


def _written(node: Node, source: bytes) -> str:
    text = source[node.start_byte : min(node.end_byte, node.start_byte + 4 * NAME_MAX)].decode("utf-8", "replace")
    return " ".join(text.split()).replace("::", ".")[:NAME_MAX]
