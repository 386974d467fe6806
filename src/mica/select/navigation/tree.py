"""The files as they are now: their names, their words and what they define."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

from mica.select.navigation.fields import Field, Packed, counted
from mica.select.navigation.mentions import Names
from mica.words import terms

PATH_WEIGHT = 5  # how often the words of its path count among those of a file

_TEST = re.compile(r"(^|/)(tests?|__tests__|spec|e2e)/|(^|/)test_|[._-](test|spec)s?\.|_test\.")
_PROSE = re.compile(r"\.(md|mdx|rst|txt|adoc)$", re.IGNORECASE)
_CONFIGURATION = re.compile(r"\.(json|ya?ml|toml|ini|cfg|lock|env|conf)$|(^|/)\.[^/]+$|(^|/)(Makefile|Dockerfile)")
_CHANGELOG = re.compile(r"(^|/)(change(s|log)|history|news|releases?)[^/]*$", re.IGNORECASE)
_LISTED = re.compile(r"\.(lock|snap|svg|png|jpe?g|gif|ico|woff2?|pdf|min\.js|map)$|(^|/)package-lock\.json$")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What an index keeps of a file; never its text."""

    terms: dict[str, int] = {}
    symbols: tuple[str, ...] = ()  # that it defines
    size_bytes: int = 0


class Kinds(msgspec.Struct, frozen=True):
    """What a path says of a file."""

    test: bool
    prose: bool
    configuration: bool
    changelog: bool
    listed: bool  # made by machines or no text: rarely opened


def kinds_of(path: str) -> Kinds:
    return Kinds(
        test=_TEST.search(path) is not None,
        prose=_PROSE.search(path) is not None,
        configuration=_CONFIGURATION.search(path) is not None,
        changelog=_CHANGELOG.search(path) is not None,
        listed=_LISTED.search(path) is not None,
    )


class PackedTree(msgspec.Struct, frozen=True):
    """A tree as it is written to a file."""

    files: list[tuple[str, int, int, tuple[str, ...]]]  # path, number, size, symbols
    content: Packed
    path_words: Packed


class Tree:
    """The files that can be offered. A path that is not in it is never an answer."""

    def __init__(self, packed: PackedTree | None = None) -> None:
        self.names = Names()
        self.content = Field(packed.content if packed else None)
        self.path_words = Field(packed.path_words if packed else None)
        self.symbols: dict[str, set[str]] = {}  # who defines a name
        self._numbers: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._documents: dict[str, Document] = {}
        self._kinds: dict[str, Kinds] = {}
        self._next = 0
        for path, number, size_bytes, symbols in packed.files if packed else ():
            self._enter(path, number, Document(symbols=symbols, size_bytes=size_bytes))

    def packed(self) -> PackedTree:
        """What the constructor takes, small enough to be written to a file."""
        files = [
            (path, number, self._documents[path].size_bytes, self._documents[path].symbols)
            for path, number in self._numbers.items()
        ]
        return PackedTree(files, self.content.packed(), self.path_words.packed())

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, path: object) -> bool:
        return path in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def put(self, path: str, document: Document) -> None:
        """Add a file, or what it has become."""
        self.remove(path)
        number = self._next
        self._enter(path, number, msgspec.structs.replace(document, terms={}))
        of_path = counted(terms(path.replace("/", " ")))
        self.path_words.put(number, of_path)
        words = dict(document.terms)
        for term, count in of_path.items():
            words[term] = words.get(term, 0) + PATH_WEIGHT * count
        self.content.put(number, words)

    def _enter(self, path: str, number: int, document: Document) -> None:
        self._next = max(self._next, number + 1)
        self._numbers[path] = number
        self._paths[number] = path
        self._kinds[path] = kinds_of(path)
        self._documents[path] = document
        self.names.add(path)
        for symbol in document.symbols:
            self.symbols.setdefault(symbol, set()).add(path)

    def remove(self, path: str) -> None:
        """Take a file out, if it is there."""
        number = self._numbers.pop(path, None)
        if number is None:
            return
        del self._paths[number], self._kinds[path]
        self.names.remove(path)
        self.path_words.drop(number)
        self.content.drop(number)
        for symbol in self._documents.pop(path).symbols:
            definers = self.symbols[symbol]
            definers.discard(path)
            if not definers:
                del self.symbols[symbol]

    def kinds(self, path: str) -> Kinds:
        return self._kinds[path]

    def size_bytes(self, path: str) -> int:
        return self._documents[path].size_bytes

    def by_path(self, scores: Mapping[int, float]) -> dict[str, float]:
        return {self._paths[number]: score for number, score in scores.items()}

    def only(self, scores: Mapping[str, float]) -> dict[str, float]:
        """The scores of files that are here."""
        return {path: score for path, score in scores.items() if path in self._numbers and score > 0}

    def siblings(self, paths: Collection[str]) -> dict[str, float]:
        """Tests of these files, and what these tests are for: files of the same stem."""
        found: dict[str, float] = {}
        for path in paths:
            stem = path.rpartition("/")[2].removeprefix("test_").partition(".")[0].lower().removesuffix("_test")
            for other in (*self.names.with_stem(stem), *self.names.with_stem(f"test_{stem}")):
                if other != path:
                    found[other] = 1.0
        return found
