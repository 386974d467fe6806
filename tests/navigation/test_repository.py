"""Git: the files and the history of a working tree, and how failures are reported."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mica.errors import InvalidInput
from mica.navigation.repository import (
    COMMIT,
    COMMIT_FILES_MAX,
    commit_events,
    commit_of,
    git,
    list_files,
    read_commits,
)
from mica.testing.builders import build

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def commit(root: Path, subject: str, **files: str) -> None:
    for name, text in files.items():
        (root / f"{name}.py").write_text(text, encoding="utf-8")
    git(root, "add", "-A")
    git(root, *IDENTITY, "commit", "-q", "-m", subject)


def test_git_fails_with_an_error_and_never_waits_for_input(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "log")
    assert git(tmp_path, "hash-object", "--stdin") != b"", "stdin is empty, not a terminal"


def test_files_are_those_that_git_tracks_or_does_not_ignore(root: Path) -> None:
    commit(root, "begin", tracked="a = 1\n", deleted="b = 1\n")
    (root / "deleted.py").unlink()
    (root / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    (root / "ignored.py").touch()
    (root / "new.py").touch()
    (root / "link.py").symlink_to(root / "tracked.py")

    listing = list_files(root)

    assert [file.path for file in listing.files] == [".gitignore", "new.py", "tracked.py"]
    assert listing.files[2].size_bytes == len("a = 1\n")
    assert listing.missing == {}


def test_without_git_folders_that_tools_make_are_left_out_and_it_is_reported(tmp_path: Path) -> None:
    for path in ("src/a.py", "node_modules/b.js", ".venv/c.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()

    listing = list_files(tmp_path)

    assert [file.path for file in listing.files] == ["src/a.py"]
    assert "without git" in listing.missing["git"]


def test_commits_come_oldest_first_with_their_files_and_renames(root: Path) -> None:
    commit(root, "first", a="x = 1\n" * 20, b="y = 2\n")
    git(root, "mv", "a.py", "c.py")
    (root / "b.py").unlink()
    commit(root, "second")

    first, second = read_commits(root, limit=10)

    assert (first.subject, set(first.files), first.renamed) == ("first", {"a.py", "b.py"}, ())
    assert (second.subject, second.files, second.renamed) == ("second", ("c.py",), (("a.py", "c.py"),))
    assert [each.subject for each in read_commits(root, limit=1)] == ["second"]


def test_a_commit_with_very_many_files_is_read_without_them(root: Path) -> None:
    commit(root, "everything", **{f"file{number}": "x = 1\n" for number in range(COMMIT_FILES_MAX + 1)})

    [read] = read_commits(root, limit=1)

    assert (read.subject, read.files) == ("everything", ())


def test_a_folder_without_history_is_refused_with_the_reason(tmp_path: Path, root: Path) -> None:
    with pytest.raises(InvalidInput, match="has no git history to learn from"):
        read_commits(root, limit=1)


def test_the_same_commit_gives_the_same_event_and_secrets_are_redacted(root: Path) -> None:
    commit(root, "use key AKIAIOSFODNN7EXAMPLE", a="x = 1\n")
    commits = read_commits(root, limit=1)

    [event], [again] = commit_events(commits), commit_events(commits)

    assert event == again
    assert (event.name, event.origin) == (COMMIT, "imported")
    assert "AKIAIOSFODNN7EXAMPLE" not in str(event.data)
    read = commit_of(event)
    assert read is not None
    assert (read.sha, read.files, read.at) == (commits[0].sha, ("a.py",), commits[0].at)


def test_an_event_that_records_no_commit_is_none() -> None:
    assert commit_of(build(1, COMMIT, {"sha": 5})) is None
