"""The file tree gives the same answers after changes and after it was saved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import PATHS, WORDS, counts, save, tree_of

from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.predictor import Predictor


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
