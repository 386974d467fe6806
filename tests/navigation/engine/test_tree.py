"""The file tree gives the same answers after changes and after it was saved."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.engine.lookup_file import LookupFile, build_file
from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.predictor import Predictor

PATHS = ("auth/session.py", "auth/redirect.py", "billing/invoice.py", "docs/login.md", "tests/test_session.py")
WORDS = "cookie session redirect login invoice charge customer total renew".split()
counts = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 5), max_size=6)


def tree_of(contents: Sequence[dict[str, int]]) -> FileTree:
    tree = FileTree()
    for path, terms in zip(PATHS, contents, strict=False):
        tree.put(path, IndexedFile(terms=terms, size_bytes=100))
    return tree


@given(st.lists(counts, min_size=5, max_size=5), st.lists(counts, max_size=5), st.data())
def test_a_changed_or_saved_tree_answers_like_a_new_one(
    before: list[dict[str, int]], after: list[dict[str, int]], data: st.DataObject
) -> None:
    tree = tree_of(before)
    for path in PATHS[len(after) :]:
        tree.remove(path)
    for path, terms in data.draw(st.permutations(list(zip(PATHS, after, strict=False)))):
        tree.put(path, IndexedFile(terms=terms, size_bytes=100))
    question = PromptQuestion(text=" ".join(WORDS))

    expected = [(place.path, place.probability) for place in Predictor(tree_of(after)).rank(question)]
    assert [(place.path, place.probability) for place in Predictor(tree).rank(question)] == expected
    for read_only in (True, False):
        loaded = Predictor(FileTree(save(tree.entries()), read_only=read_only)).rank(question)
        assert [(place.path, place.probability) for place in loaded] == expected


def save(entries: Iterable[tuple[str, str, bytes]]) -> LookupFile:
    with tempfile.TemporaryFile() as file:
        file.write(build_file(entries))
        file.flush()
        return LookupFile(file.fileno())
