"""The space of a directory: one per repository, shared by worktrees, stored outside the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mica.model.event import Event
from mica.model.walk import STARTED
from mica.store.space import WorkingTrees, file_of, space_of, space_of_transcript_directory, spaces
from mica.testing.builders import build


def git(*arguments: str, folder: Path) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_every_folder_of_a_repository_is_one_space(tmp_path: Path) -> None:
    home, shop = tmp_path / "home", tmp_path / "shop"
    (shop / "src" / "deep").mkdir(parents=True)
    git("init", folder=shop)
    files = {space_of(folder, home=home).file for folder in (shop, shop / "src", shop / "src" / "deep")}
    [file] = files
    assert file.parent == home / "spaces"
    assert file.name.startswith("shop-")
    assert space_of(shop / "src", home=home).root == shop


def test_worktrees_share_their_space(tmp_path: Path) -> None:
    home, shop = tmp_path / "home", tmp_path / "shop"
    shop.mkdir()
    git("init", folder=shop)
    git("commit", "--allow-empty", "-m", "first", folder=shop)
    git("worktree", "add", str(tmp_path / "tree"), folder=shop)

    main, tree = space_of(shop, home=home), space_of(tmp_path / "tree", home=home)

    assert main.file == tree.file
    assert tree.root == tmp_path / "tree"


def test_two_repositories_of_one_name_are_two_spaces(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "shop" / ".git").mkdir(parents=True)
    one, two = (space_of(tmp_path / parent / "shop", home=tmp_path) for parent in ("a", "b"))
    assert one.name != two.name


def test_a_folder_without_a_repository_is_its_own_space(tmp_path: Path) -> None:
    (tmp_path / "plain" / "sub").mkdir(parents=True)
    assert space_of(tmp_path / "plain", home=tmp_path) != space_of(tmp_path / "plain" / "sub", home=tmp_path)


def test_a_folder_that_is_gone_still_has_a_space(tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "Ünïcode folder"
    assert space_of(gone, home=tmp_path).name.startswith("n-code-folder-")


@pytest.mark.parametrize(
    "directory",
    [r"C:\Users\ann\shop", "shop", "", ".", "~", "~nobodyx/shop", "/home/a\0b", "/" + "a" * 300, "/" + "a/" * 4_000],
)
def test_a_path_of_another_machine_has_no_space_here(directory: str, tmp_path: Path) -> None:
    assert space_of_transcript_directory(directory, home=tmp_path) is None


def test_a_directory_in_a_transcript_has_the_space_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "shop" / "src", tmp_path / "gone", tmp_path / "file" / "below"):
        assert space_of_transcript_directory(str(folder), home=tmp_path) == space_of(folder, home=tmp_path)


def test_a_broken_git_file_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".git").write_bytes(b"\xff\xfe")
    assert space_of(tmp_path / "x", home=tmp_path).root == tmp_path / "x"


def test_spaces_are_listed_by_use(tmp_path: Path) -> None:
    assert spaces(tmp_path) == []
    for name in ("old", "new"):
        file = file_of(name, home=tmp_path)
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert {file.stem for file in spaces(tmp_path)} == {"old", "new"}


def started(*folders: Path) -> list[Event]:
    return [build(number, STARTED, {"cwd": str(folder)}) for number, folder in enumerate(folders, start=1)]


def checkout(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "src").mkdir()
    return folder


def test_the_latest_sessions_tree_is_found_from_a_subfolder(tmp_path: Path) -> None:
    shop, other = checkout(tmp_path / "shop"), checkout(tmp_path / "other")
    trees = WorkingTrees(tmp_path / "home")

    assert trees.latest_directory(started(other, shop / "src")) == shop / "src"
    assert trees.latest(started(other, shop / "src")) == shop
    assert trees.around(shop / "src") == shop


def test_there_is_no_tree_without_a_session(tmp_path: Path) -> None:
    trees = WorkingTrees(tmp_path / "home")

    assert trees.latest([]) is None
    assert trees.latest([build(1)]) is None


def test_a_directory_that_is_gone_is_none(tmp_path: Path) -> None:
    trees = WorkingTrees(tmp_path / "home")

    assert trees.latest_directory(started(tmp_path / "gone")) is None
    assert trees.latest(started(tmp_path / "gone")) is None


def test_a_directory_outside_the_space_is_not_read(tmp_path: Path) -> None:
    """keeps: U-09. A server decides which directories belong to a space."""
    shop, other = checkout(tmp_path / "shop"), checkout(tmp_path / "other")
    trees = WorkingTrees(tmp_path / "home", is_ours=lambda folder: folder.is_relative_to(shop))

    assert trees.latest(started(shop)) == shop
    assert trees.latest(started(other)) is None
    assert not trees.is_readable(other)
    assert trees.is_readable(shop / "src")
