"""The working tree of a space: found by its latest session, and read only where that is allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mica.events.working_tree import WorkingTrees
from mica.model.event import Event
from mica.model.walk import STARTED
from mica.testing.builders import build


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
