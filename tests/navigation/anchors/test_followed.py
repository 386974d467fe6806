"""Following anchors through a project: edits, renames, deletions, and files that must not be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.navigation.anchors.code_files import CODE, write

from mica.navigation.anchors.anchor import Anchor, anchor, content_hash
from mica.navigation.anchors.followed import (
    FILE_BYTES_MAX,
    Contents,
    FollowedRange,
    OmittedRange,
    UnreadFile,
    follow,
    make_anchor,
    read,
)
from mica.navigation.engine.file_blocks import read_text


def test_a_fresh_range_has_no_drift(tmp_path: Path) -> None:
    """keeps: K-02, TA-11"""
    was = write(tmp_path, "a.py", CODE)

    now = follow(was, root=tmp_path)

    assert isinstance(now, FollowedRange)
    assert (now.now, now.drift) == (was, ())
    assert now.lines[0] == "def second(value):"


def test_drift_is_described_in_words(tmp_path: Path) -> None:
    """keeps: TA-11.

    A range that moved and grew is found, and both changes are described; the next version is unchanged.
    """
    was = write(tmp_path, "a.py", CODE)
    (tmp_path / "a.py").write_text(
        "# new\n# lines\n" + CODE.replace("total = value + 1", "total = value\n    total += 1")
    )

    now = follow(was, root=tmp_path)

    assert isinstance(now, FollowedRange)
    assert now.drift == ("moved 2 lines down", "1 line longer", "67% of its lines unchanged")
    assert (now.now.start, now.now.end) == (10, 13)
    again = follow(now.now, root=tmp_path)
    assert isinstance(again, FollowedRange)
    assert again.drift == ()


# -- Files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "~/x", "C:\\Windows\\x", "C:/x", "..", ".", "\\\\host\\x"]
)
def test_nothing_outside_the_project_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "project"
    root.mkdir()

    assert isinstance(read(root, path), UnreadFile)


def test_a_symlink_that_leaves_the_project_is_refused(tmp_path: Path) -> None:
    """keeps: TA-11. Nothing outside is ever loaded, even if a repository links to it."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "project"
    root.mkdir()
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (root / "real").write_text("x\n")
    (root / "in").symlink_to(root / "real")

    assert read(root, "out") == UnreadFile(path="out", reason="a symbolic link leads out of the project")
    assert read(root, "folder/secret") == UnreadFile(
        path="folder/secret", reason="a symbolic link leads out of the project"
    )
    assert isinstance(read(root, "loop"), UnreadFile)
    assert isinstance(read(root, "in"), Contents)


@pytest.mark.parametrize("path", [".git/config", ".GIT/config", "sub/.git/config", "link"])
def test_files_of_git_are_never_read(tmp_path: Path, path: str) -> None:
    """They have the credentials of remotes."""
    for folder in (".git", ".GIT", "sub/.git"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "config").write_text("url = https://ann:hunter22@example.org/x.git\n")
    (tmp_path / "link").symlink_to(tmp_path / ".git" / "config")

    assert isinstance(read(tmp_path, path), UnreadFile)
    assert read_text(str(tmp_path), path) is None


def test_secrets_in_followed_lines_are_redacted(tmp_path: Path) -> None:
    """keeps: U-09. Also in the middle of a private key, and every line keeps its number."""
    key = [
        "-----BEGIN PRIVATE " + "KEY-----",
        *["aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 2] * 4,
        "-----END PRIVATE " + "KEY-----",
    ]
    text = "\n".join(["DB_PASSWORD=" + "hunter22", *key, "last line"])
    (tmp_path / "settings.ini").write_text(text)

    def lines(start: int, end: int) -> tuple[str, ...]:
        found = follow(anchor("settings.ini", text, start, end), root=tmp_path)
        assert isinstance(found, FollowedRange)
        return found.lines

    assert lines(1, 1) == ("DB_PASSWORD=[redacted:credential]",)
    assert lines(4, 5) == ("", "")
    assert lines(7, 8) == ("", "last line")
    assert len(lines(1, 8)) == 8


@pytest.mark.parametrize("path", [".env", "deploy/.env.local", "id_rsa", "settings.txt"])
def test_files_that_may_contain_keys_are_never_read(tmp_path: Path, path: str) -> None:
    """A symbolic link with another name to such a file is not read either."""
    (tmp_path / "deploy").mkdir()
    for name in (".env", "deploy/.env.local", "id_rsa"):
        (tmp_path / name).write_text("API_KEY=one\n")
    (tmp_path / "settings.txt").symlink_to(tmp_path / ".env")

    refused = read(tmp_path, path)

    assert isinstance(refused, UnreadFile)
    assert refused.reason == "it may contain keys"


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    """Binary, large and special files each have a reason."""
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0\0")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(FILE_BYTES_MAX + 1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    assert read(tmp_path, "binary") == UnreadFile(path="binary", reason="it is binary")
    assert read(tmp_path, "large") == UnreadFile(path="large", reason="it is larger than 16 MB")
    assert read(tmp_path, "pipe") == UnreadFile(path="pipe", reason="it is not a file")
    assert read(tmp_path, "folder") == UnreadFile(path="folder", reason="it is not a file")
    assert read(tmp_path, "none") == UnreadFile(path="none", reason="there is no such file", is_missing=True)
    assert read(tmp_path, "a\0b") == UnreadFile(path="a\0b", reason="the path is not valid")


def test_other_encodings_are_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("größer \ufffd\n".encode() + "größer\n".encode("latin-1"))
    (tmp_path / "wide").write_bytes("größer\n".encode("utf-16"))

    latin, wide = read(tmp_path, "latin"), read(tmp_path, "wide")

    assert isinstance(latin, Contents)
    assert latin.replaced == 2
    assert wide == Contents(path="wide", text="größer\n")


# -- Steps ------------------------------------------------------------------------------------------------


def test_a_step_is_anchored_to_the_lines_it_was_shown(tmp_path: Path) -> None:
    """keeps: TA-11. The hash of the shown text decides; other lines with the same numbers are refused."""
    write(tmp_path, "a.py", CODE)
    shown = content_hash(CODE.split("\n")[7:10])

    fresh = make_anchor(tmp_path, "a.py", 8, 10, shown_hash=shown)
    (tmp_path / "a.py").write_text("# new\n" + CODE)
    moved = make_anchor(tmp_path, "a.py", 8, 10, shown_hash=shown)
    (tmp_path / "a.py").write_text(CODE.replace("total", "sum"))
    changed = make_anchor(tmp_path, "a.py", 8, 10, shown_hash=shown)
    whole = make_anchor(tmp_path, str(tmp_path / "a.py"))

    assert isinstance(fresh, Anchor)
    assert isinstance(moved, Anchor)
    assert (moved.start, moved.end) == (9, 11)
    assert changed == OmittedRange(path="a.py", start=8, end=10, reason="its lines changed since they were shown")
    assert isinstance(whole, Anchor)
    assert whole.whole
    assert whole.path == "a.py"
    assert isinstance(make_anchor(tmp_path, "a.py", 80, 90), OmittedRange)


def test_a_range_after_the_end_is_reported_as_requested(tmp_path: Path) -> None:
    (tmp_path / "session.py").write_text("one\ntwo\n")

    omitted = make_anchor(tmp_path, "session.py", 10, 40)

    assert isinstance(omitted, OmittedRange)
    assert omitted.reason == "session.py has 2 lines, so there is no range 10-40 in it"
