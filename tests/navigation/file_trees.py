"""File trees and their contents, as Hypothesis makes them up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from mica.navigation.engine.lookup_file import LookupFile, build_file
from mica.navigation.engine.tree import FileTree, IndexedFile

PATHS = ("auth/session.py", "auth/redirect.py", "billing/invoice.py", "docs/login.md", "tests/test_session.py")
WORDS = "cookie session redirect login invoice charge customer total renew".split()
counts = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 5), max_size=6)
some_words = st.lists(st.sampled_from([*WORDS, *PATHS]), max_size=8).map(" ".join)
some_paths = st.lists(st.sampled_from([*PATHS, "gone/old.py"]), max_size=4, unique=True).map(tuple)


def tree_of(contents: Sequence[dict[str, int]]) -> FileTree:
    tree = FileTree()
    for path, terms in zip(PATHS, contents, strict=False):
        tree.put(path, IndexedFile(terms=terms, size_bytes=100))
    return tree


def save(entries: Iterable[tuple[str, str, bytes]]) -> LookupFile:
    with tempfile.TemporaryFile() as file:
        file.write(build_file(entries))
        file.flush()
        return LookupFile(file.fileno())
