"""An index of the files of a working tree: their names, words and defined symbols."""

from __future__ import annotations

import re

from mica.navigation.engine.frozen_value import FrozenValue
from mica.navigation.engine.inverted_index import InvertedIndex, count_terms
from mica.navigation.engine.lookup_file import LookupFile, pack
from mica.navigation.engine.mentions import TreeNames
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PATH_WEIGHT = 5  # a word of the path counts as much as five words of the text

KINDS = {  # kinds of files, by their paths
    "test": r"(^|/)(tests?|__tests__|spec|e2e)/|(^|/)test_|[._-](test|spec)s?\.|_test\.",
    "prose": r"(?i)\.(md|mdx|rst|txt|adoc)$",
    "configuration": r"\.(json|ya?ml|toml|ini|cfg|lock|env|conf)$|(^|/)\.[^/]+$|(^|/)(Makefile|Dockerfile)",
    "changelog": r"(?i)(^|/)(change(s|log)|history|news|releases?)[^/]*$",
    # generated or binary files, which are rarely opened
    "listed": r"\.(lock|snap|svg|png|jpe?g|gif|ico|woff2?|pdf|min\.js|map)$|(^|/)package-lock\.json$",
}


NO_TERMS: Mapping[str, int] = {}


class IndexedFile(FrozenValue):
    """The index entry of a file: term counts, symbols and size, but not its text."""

    terms: Mapping[str, int] = NO_TERMS
    symbols: tuple[str, ...] = ()  # names that the file defines
    size_bytes: int = 0


def classify_path(path: str) -> tuple[float, ...]:
    """Return one number for each entry of KINDS, in order: 1.0 if the path is of this kind, else 0.0."""
    return tuple(float(re.search(pattern, path) is not None) for pattern in KINDS.values())


class FileTree:
    """The indexed files of a working tree. Only these files can be predicted and offered."""

    def __init__(self, saved: LookupFile | None = None, *, read_only: bool = False) -> None:
        """Make an empty tree; or, with `saved`, load the tree in this lookup file.

        To create such a file, write the entries that `entries` yields. A tree that is loaded with `read_only` loads
        faster, because each name is looked up in the file only when it is needed.
        """
        self.content = InvertedIndex(saved, "content")
        self.path_words = InvertedIndex(saved, "path_words")
        self.names = TreeNames(saved=saved if read_only else None)
        self._defines: dict[str, set[str]] = {}
        self._numbers: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._kinds: dict[str, tuple[float, ...]] = {}
        self._sizes: dict[str, int] = {}
        self._symbols: dict[str, tuple[str, ...]] = {}
        self._next = 0
        self._saved = saved if read_only else None
        if saved is not None:
            self._add(saved.get("tree", "files", []))
        if saved is not None and not read_only:
            symbols: dict[str, tuple[str, ...]] = saved.get("tree", "symbols", {})
            for path in self._numbers:
                self.names.add(path)
                self._define(path, symbols.get(path, ()))

    def _add(self, files: list[tuple[str, int, int, tuple[float, ...]]]) -> None:
        for path, number, size_bytes, kinds in files:
            self._numbers[path] = number
            self._paths[number] = path
            self._sizes[path] = size_bytes
            self._kinds[path] = kinds
            self._next = max(self._next, number + 1)

    def definers(self, name: str) -> Collection[str]:
        """Return the files that define the symbol `name`."""
        if self._saved is not None:
            return self._saved.get("defines", name, [])
        return self._defines.get(name, ())

    def entries(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the entries to save in a lookup file, as (table, key, value encoded by `pack`)."""
        files = [(path, number, self._sizes[path], self._kinds[path]) for path, number in self._numbers.items()]
        yield "tree", "files", pack(files)
        yield "tree", "symbols", pack(self._symbols)
        for name, paths in self._defines.items():
            yield "defines", name, pack(sorted(paths))
        yield from self.names.entries()
        yield from self.content.entries("content")
        yield from self.path_words.entries("path_words")

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, path: object) -> bool:
        return path in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def put(self, path: str, document: IndexedFile) -> None:
        """Add a file, or replace its entry."""
        self.remove(path)
        number = self._next
        self._add([(path, number, document.size_bytes, classify_path(path))])
        self.names.add(path)
        self._define(path, document.symbols)
        of_path = count_terms(terms(path.replace("/", " ")))
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
        """Remove a file if the tree contains it."""
        number = self._numbers.pop(path, None)
        if number is None:
            return
        del self._paths[number], self._kinds[path], self._sizes[path]
        self.names.remove(path)
        self.path_words.remove(number)
        self.content.remove(number)
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

    def restrict(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return the scores that are positive and belong to files in this tree."""
        return {path: score for path, score in scores.items() if path in self._numbers and score > 0}

    def siblings(self, paths: Collection[str]) -> dict[str, float]:
        """Return a score of 1.0 for each file whose name shows that it belongs to a file in `paths`.

        For example, `test_a.py` belongs to `a.py`, and `a.py` belongs to `test_a.py`.
        """
        scores: dict[str, float] = {}
        for path in paths:
            stem = path.rpartition("/")[2].removeprefix("test_").partition(".")[0].lower().removesuffix("_test")
            for other in (*self.names.with_stem(stem), *self.names.with_stem(f"test_{stem}")):
                if other != path:
                    scores[other] = 1.0
        return scores
