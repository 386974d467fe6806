"""The files as they are now: their names, their words and what they define."""

from __future__ import annotations

import re

from mica.navigation.engine.fields import Field, counted
from mica.navigation.engine.lookup_file import Kept, packed
from mica.navigation.engine.mentions import Names
from mica.navigation.engine.plain import Plain
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PATH_WEIGHT = 5  # how often the words of its path count among those of a file

KINDS = {  # what a path says of a file
    "test": r"(^|/)(tests?|__tests__|spec|e2e)/|(^|/)test_|[._-](test|spec)s?\.|_test\.",
    "prose": r"(?i)\.(md|mdx|rst|txt|adoc)$",
    "configuration": r"\.(json|ya?ml|toml|ini|cfg|lock|env|conf)$|(^|/)\.[^/]+$|(^|/)(Makefile|Dockerfile)",
    "changelog": r"(?i)(^|/)(change(s|log)|history|news|releases?)[^/]*$",
    # made by machines or no text: rarely opened
    "listed": r"\.(lock|snap|svg|png|jpe?g|gif|ico|woff2?|pdf|min\.js|map)$|(^|/)package-lock\.json$",
}


NO_TERMS: Mapping[str, int] = {}


class Document(Plain):
    """What an index keeps of a file; never its text."""

    terms: Mapping[str, int] = NO_TERMS
    symbols: tuple[str, ...] = ()  # that it defines
    size_bytes: int = 0


def kinds_of(path: str) -> tuple[float, ...]:
    """For each of KINDS, 1 if the path is of that kind."""
    return tuple(float(re.search(pattern, path) is not None) for pattern in KINDS.values())


class Tree:
    """The files that can be offered. A path that is not in it is never an answer."""

    def __init__(self, kept: Kept | None = None, *, read_only: bool = False) -> None:
        """With `kept`, what `entries` wrote there; one that is only read looks up what it is asked for."""
        self.content = Field(kept, "content")
        self.path_words = Field(kept, "path_words")
        self.names = Names(kept=kept if read_only else None)
        self._defines: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._kinds: dict[str, tuple[float, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._symbols: dict[str, tuple[str, ...]] = {}
        self._next = 0
        self._kept = kept if read_only else None
        if kept is not None:
            self._take(kept.get("tree", "files", []))
        if kept is not None and not read_only:
            symbols: dict[str, tuple[str, ...]] = kept.get("tree", "symbols", {})
            for path in self._numbers:
                self.names.add(path)
                self._define(path, symbols.get(path, ()))

    def _take(self, files: list[tuple[str, int, int, tuple[float, ...]]]) -> None:
        for path, number, size_bytes, kinds in files:
            self._numbers[path] = number
            self._paths[number] = path
            self._sizes[path] = size_bytes
            self._kinds[path] = kinds
            self._next = max(self._next, number + 1)

    def definers(self, name: str) -> Collection[str]:
        """The files that define a name."""
        if self._kept is not None:
            return self._kept.get("defines", name, [])
        return self._defines.get(name, ())

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """What a file keeps of it."""
        files = [(path, number, self._sizes[path], self._kinds[path]) for path, number in self._numbers.items()]
        yield "tree", "files", packed(files)
        yield "tree", "symbols", packed(self._symbols)
        for name, paths in self._defines.items():
            yield "defines", name, packed(sorted(paths))
        yield from self.names.entries()
        yield from self.content.entries("content")
        yield from self.path_words.entries("path_words")

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
        self._take([(path, number, document.size_bytes, kinds_of(path))])
        self.names.add(path)
        self._define(path, document.symbols)
        of_path = counted(terms(path.replace("/", " ")))
        self.path_words.put(number, of_path)
        words = dict(document.terms)
        for term, count in of_path.items():
            words[term] = words.get(term, 0) + PATH_WEIGHT * count
        self.content.put(number, words)

    def _define(self, path: str, symbols: tuple[str, ...]) -> None:
        if symbols:
            self._symbols[path] = symbols
        for symbol in symbols:
            self._defines.setdefault(symbol, set()).add(path)

    def remove(self, path: str) -> None:
        """Take a file out, if it is there."""
        number = self._numbers.pop(path, None)
        if number is None:
            return
        del self._paths[number], self._kinds[path], self._sizes[path]
        self.names.remove(path)
        self.path_words.drop(number)
        self.content.drop(number)
        for symbol in self._symbols.pop(path, ()):
            definers = self._defines[symbol]
            definers.discard(path)
            if not definers:
                del self._defines[symbol]

    def kinds(self, path: str) -> tuple[float, ...]:
        return self._kinds[path]

    def size_bytes(self, path: str) -> int:
        return self._sizes[path]

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
