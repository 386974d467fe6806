"""Renamed and deleted files in the git history."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.navigation.anchors.code_files import CODE, write

from mica.errors import InvalidInput
from mica.navigation.anchors.followed import (
    FollowedRange,
    OmittedRange,
    follow,
)
from mica.navigation.anchors.renames import Deleted, Renamed, UnknownFate, find_rename

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    def run(*arguments: str, folder: Path = tmp_path) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(folder), *identity, "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q", "-b", "main")
    return run


def test_renames_follow_git(tmp_path: Path, git: Git) -> None:
    """keeps: TA-11. Through several renames, with edits in between."""
    was = write(tmp_path, "old.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("mv", "old.py", "middle.py")
    git("commit", "-qm", "two")
    (tmp_path / "src").mkdir()
    git("mv", "middle.py", "src/new.py")
    (tmp_path / "src/new.py").write_text("# head\n" + CODE)
    git("commit", "-qam", "three")

    now = follow(was, root=tmp_path)

    assert isinstance(now, FollowedRange)
    assert now.drift == ("file renamed from old.py", "moved 1 line down")
    assert find_rename(tmp_path, "middle.py", git("rev-parse", "HEAD~1")) == Renamed(
        path="src/new.py", commit=git("rev-parse", "HEAD")
    )


def test_a_staged_rename_counts(tmp_path: Path, git: Git) -> None:
    """keeps: TA-11"""
    was = write(tmp_path, "old.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("mv", "old.py", "new.py")

    assert find_rename(tmp_path, "old.py") == Renamed(path="new.py", commit=None)
    assert isinstance(follow(was, root=tmp_path), FollowedRange)


def test_a_deleted_file_is_left_out_with_the_commit(tmp_path: Path, git: Git) -> None:
    """keeps: TA-11"""
    was = write(tmp_path, "old.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("rm", "-q", "old.py")
    git("commit", "-qm", "two")

    commit = git("rev-parse", "HEAD")
    assert find_rename(tmp_path, "old.py") == Deleted(commit=commit)
    assert follow(was, root=tmp_path) == OmittedRange(
        path="old.py", start=8, end=10, reason=f"the file was deleted in {commit[:10]}"
    )


def test_the_latest_file_of_a_path_counts(tmp_path: Path, git: Git) -> None:
    """keeps: TA-11. A path that was renamed away, used again and deleted is deleted."""
    write(tmp_path, "a.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("mv", "a.py", "b.py")
    git("commit", "-qm", "two")
    write(tmp_path, "a.py", "x = 1\n" * 20)
    git("add", ".")
    git("commit", "-qm", "three")
    git("rm", "-q", "a.py")
    git("commit", "-qm", "four")

    assert find_rename(tmp_path, "a.py") == Deleted(commit=git("rev-parse", "HEAD"))
    later = datetime.now(UTC) + timedelta(days=2)
    assert find_rename(tmp_path, "a.py", later) == UnknownFate(reason="git knows no rename or deletion of it")


def test_a_submodule_has_its_own_history(tmp_path: Path, git: Git) -> None:
    """keeps: TA-11. A file of a submodule is searched in the history of the submodule."""
    part = tmp_path / "vendor" / "part"
    part.mkdir(parents=True)
    git("init", "-q", "-b", "main", folder=part)
    was = write(tmp_path, "vendor/part/old.py", CODE)
    git("add", ".", folder=part)
    git("commit", "-qm", "one", folder=part)
    git("mv", "old.py", "new.py", folder=part)
    git("commit", "-qm", "two", folder=part)

    now = follow(was, root=tmp_path)

    assert isinstance(now, FollowedRange)
    assert now.now.path == "vendor/part/new.py"


def test_without_git_the_reason_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: TA-11. No repository and no git are reasons, not errors."""
    was = write(tmp_path, "a.py", CODE)
    (tmp_path / "a.py").unlink()

    omitted = follow(was, root=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert isinstance(omitted, OmittedRange)
    assert omitted.reason == "the file is gone (this is not a git repository)"
    assert find_rename(tmp_path, "a.py") == UnknownFate(reason="git is not installed, or the folder is gone")


@pytest.mark.parametrize("since", ["--output=x", "-p", "a b", "$(x)", ""])
def test_no_option_reaches_git_as_a_commit(tmp_path: Path, git: Git, since: str) -> None:
    git("commit", "-q", "--allow-empty", "-m", "one")
    with pytest.raises(InvalidInput, match="is not a commit"):
        find_rename(tmp_path, "a.py", since)
