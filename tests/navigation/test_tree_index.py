"""The index of a working tree: updated as files change, saved, and rebuilt if it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mica.navigation import tree_index
from mica.navigation.engine.inverted_index import count_terms
from mica.navigation.tree_index import TreeIndex, index_file, index_text, replace_file
from mica.words import terms


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "cart.py").write_text("def total():\n    return discount\n", encoding="utf-8")
    (folder / "mail.py").write_text("def send():\n    return letter\n", encoding="utf-8")
    return folder


def about(index: TreeIndex, text: str) -> set[str]:
    """The files that contain words of a text."""
    return set(index.tree.by_path(index.tree.content.scores(count_terms(terms(text)))))


def test_new_changed_and_deleted_files_are_seen(root: Path) -> None:
    index = TreeIndex(root, None)
    index.refresh()
    assert about(index, "discount") == {"cart.py"}
    assert list(index.tree.definers("send")) == ["mail.py"]

    (root / "cart.py").write_text("def total():\n    return voucher_of_the_customer\n", encoding="utf-8")
    (root / "mail.py").unlink()
    (root / "new.py").write_text("letter = 1\n", encoding="utf-8")
    index.refresh()

    assert about(index, "discount") == set()
    assert about(index, "voucher") == {"cart.py"}
    assert about(index, "letter") == {"new.py"}
    assert list(index.tree.definers("send")) == []


def test_a_saved_index_is_loaded_without_reading_the_files_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = index_file(tmp_path / "home", space="shop", root=root)
    TreeIndex(root, file).refresh()
    read: list[str] = []
    monkeypatch.setattr(tree_index, "read_text", lambda root, path: read.append(path))

    index = TreeIndex(root, file)
    index.refresh()

    assert about(index, "discount") == {"cart.py"}
    assert read == []


@pytest.mark.parametrize("content", [b"", b"something else", b"mica kept 1\n\xff\xff\xff\x00"])
def test_an_index_that_cannot_be_read_is_made_again(root: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "saved.index"
    file.write_bytes(content)

    index = TreeIndex(root, file)
    index.refresh()

    assert about(index, "letter") == {"mail.py"}
    assert len(file.read_bytes()) > len(content)


def test_files_that_were_not_read_in_time_are_offered_by_name_and_reported(root: Path) -> None:
    index = TreeIndex(root, None)

    missing = index.refresh(within_s=-1.0)

    assert set(index.tree) == {"cart.py", "mail.py"}
    assert "2 of 2 files are not read yet" in missing["index"]
    assert about(index, "discount") == set()
    assert "index" not in index.refresh()
    assert about(index, "discount") == {"cart.py"}


def test_a_file_that_is_not_text_is_indexed_by_its_size_only() -> None:
    entry = index_text(None, size_bytes=7)
    assert (dict(entry.terms), entry.symbols, entry.size_bytes) == ({}, (), 7)


def test_two_working_trees_of_a_space_have_two_index_files(tmp_path: Path) -> None:
    one, other = (index_file(tmp_path, space="shop", root=tmp_path / name) for name in ("a", "b"))
    assert one != other
    assert one.parent == tmp_path / "navigation"


def test_a_file_is_not_replaced_if_its_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    replace_file(tmp_path / "file" / "saved.index", b"content")
    replace_file(tmp_path / "folder" / "saved.index", b"content")

    assert (tmp_path / "folder" / "saved.index").read_bytes() == b"content"
    assert (tmp_path / "folder" / "saved.index").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in (tmp_path / "folder").iterdir()] == ["saved.index"]
