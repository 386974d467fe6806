"""Following anchors through a project: edits, renames, deletions, and files that must not be read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mica.errors import InvalidInput
from mica.navigation.anchors.anchor import Anchor, anchor, content_hash
from mica.navigation.anchors.files import FILE_BYTES_MAX, Contents, Unread, read
from mica.navigation.anchors.followed import Followed, LeftOut, anchored, follow
from mica.navigation.anchors.renames import Deleted, Renamed, Untold, renamed

Git = Callable[..., str]
CODE = (
    "import os\n\n\ndef first():\n    return os.name\n\n\ndef second(value):\n    total = value + 1\n    return total\n"
)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    def run(*arguments: str, folder: Path = tmp_path) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(folder), *identity, "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q", "-b", "main")
    return run


def write(root: Path, path: str, text: str) -> Anchor:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
    return anchor(path, text, 8, 10)


def test_a_fresh_range_has_no_drift(tmp_path: Path) -> None:
    """K-02, TA-11"""
    was = write(tmp_path, "a.py", CODE)

    now = follow(was, root=tmp_path)

    assert isinstance(now, Followed)
    assert (now.now, now.drift) == (was, ())
    assert now.lines[0] == "def second(value):"


def test_drift_is_told_in_words(tmp_path: Path) -> None:
    """TA-11: a range that moved and grew is offered where it is, and both are said; the next version is fresh."""
    was = write(tmp_path, "a.py", CODE)
    (tmp_path / "a.py").write_text(
        "# new\n# lines\n" + CODE.replace("total = value + 1", "total = value\n    total += 1")
    )

    now = follow(was, root=tmp_path)

    assert isinstance(now, Followed)
    assert now.drift == ("moved 2 lines down", "1 line longer", "67% of its lines as they were")
    assert (now.now.start, now.now.end) == (10, 13)
    again = follow(now.now, root=tmp_path)
    assert isinstance(again, Followed)
    assert again.drift == ()


def test_renames_follow_git(tmp_path: Path, git: Git) -> None:
    """TA-11: through several renames, with edits in between."""
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

    assert isinstance(now, Followed)
    assert now.drift == ("file renamed from old.py", "moved 1 line down")
    assert renamed(tmp_path, "middle.py", git("rev-parse", "HEAD~1")) == Renamed(
        path="src/new.py", commit=git("rev-parse", "HEAD")
    )


def test_a_rename_that_is_only_staged_counts(tmp_path: Path, git: Git) -> None:
    """TA-11"""
    was = write(tmp_path, "old.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("mv", "old.py", "new.py")

    assert renamed(tmp_path, "old.py") == Renamed(path="new.py", commit=None)
    assert isinstance(follow(was, root=tmp_path), Followed)


def test_a_deleted_file_is_left_out_with_the_commit(tmp_path: Path, git: Git) -> None:
    """TA-11"""
    was = write(tmp_path, "old.py", CODE)
    git("add", ".")
    git("commit", "-qm", "one")
    git("rm", "-q", "old.py")
    git("commit", "-qm", "two")

    commit = git("rev-parse", "HEAD")
    assert renamed(tmp_path, "old.py") == Deleted(commit=commit)
    assert follow(was, root=tmp_path) == LeftOut(
        path="old.py", start=8, end=10, reason=f"the file was deleted in {commit[:10]}"
    )


def test_the_latest_life_of_a_path_counts(tmp_path: Path, git: Git) -> None:
    """TA-11: a path that was renamed away, used again and deleted is deleted."""
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

    assert renamed(tmp_path, "a.py") == Deleted(commit=git("rev-parse", "HEAD"))
    later = datetime.now(UTC) + timedelta(days=2)
    assert renamed(tmp_path, "a.py", later) == Untold(reason="git knows of no rename or deletion")


def test_a_submodule_has_its_own_history(tmp_path: Path, git: Git) -> None:
    """TA-11: a file of a submodule is asked for there."""
    part = tmp_path / "vendor" / "part"
    part.mkdir(parents=True)
    git("init", "-q", "-b", "main", folder=part)
    was = write(tmp_path, "vendor/part/old.py", CODE)
    git("add", ".", folder=part)
    git("commit", "-qm", "one", folder=part)
    git("mv", "old.py", "new.py", folder=part)
    git("commit", "-qm", "two", folder=part)

    now = follow(was, root=tmp_path)

    assert isinstance(now, Followed)
    assert now.now.path == "vendor/part/new.py"


def test_without_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TA-11: no repository and no git are reasons, not errors."""
    was = write(tmp_path, "a.py", CODE)
    (tmp_path / "a.py").unlink()

    left = follow(was, root=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert isinstance(left, LeftOut)
    assert left.reason == "the file is gone (this is no git repository)"
    assert renamed(tmp_path, "a.py") == Untold(reason="git is not installed, or the folder is gone")


@pytest.mark.parametrize("since", ["--output=x", "-p", "a b", "$(x)", ""])
def test_no_option_reaches_git_as_a_commit(tmp_path: Path, git: Git, since: str) -> None:
    git("commit", "-q", "--allow-empty", "-m", "one")
    with pytest.raises(InvalidInput, match="names no commit"):
        renamed(tmp_path, "a.py", since)


# -- Files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "~/x", "C:\\Windows\\x", "C:/x", "..", ".", "\\\\host\\x"]
)
def test_nothing_outside_the_project_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "project"
    root.mkdir()

    assert isinstance(read(root, path), Unread)


def test_a_symlink_that_leaves_the_project_is_refused(tmp_path: Path) -> None:
    """TA-11: nothing outside is ever loaded, whatever a repository links to."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "project"
    root.mkdir()
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (root / "real").write_text("x\n")
    (root / "in").symlink_to(root / "real")

    assert read(root, "out") == Unread(path="out", reason="a symlink leads out of the project")
    assert read(root, "folder/secret") == Unread(path="folder/secret", reason="a symlink leads out of the project")
    assert isinstance(read(root, "loop"), Unread)
    assert isinstance(read(root, "in"), Contents)


@pytest.mark.parametrize("path", [".env", "deploy/.env.local", "id_rsa", "settings.txt"])
def test_a_file_that_people_keep_keys_in_is_never_read(tmp_path: Path, path: str) -> None:
    """A-40: a trail through it names it, and shows nothing of it; a link of another name leads nowhere either."""
    (tmp_path / "deploy").mkdir()
    for name in (".env", "deploy/.env.local", "id_rsa"):
        (tmp_path / name).write_text("API_KEY=one\n")
    (tmp_path / "settings.txt").symlink_to(tmp_path / ".env")

    refused = read(tmp_path, path)

    assert isinstance(refused, Unread)
    assert refused.reason == "it may hold keys"


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """A-40: binary, large and special files have a reason each."""
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0\0")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(FILE_BYTES_MAX + 1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    assert read(tmp_path, "binary") == Unread(path="binary", reason="it is binary")
    assert read(tmp_path, "large") == Unread(path="large", reason="it has more than 16 MB")
    assert read(tmp_path, "pipe") == Unread(path="pipe", reason="it is no file")
    assert read(tmp_path, "folder") == Unread(path="folder", reason="it is no file")
    assert read(tmp_path, "none") == Unread(path="none", reason="there is no such file", gone=True)
    assert read(tmp_path, "a\0b") == Unread(path="a\0b", reason="there can be no such file")


def test_other_encodings_are_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("größer \ufffd\n".encode() + "größer\n".encode("latin-1"))
    (tmp_path / "wide").write_bytes("größer\n".encode("utf-16"))

    latin, wide = read(tmp_path, "latin"), read(tmp_path, "wide")

    assert isinstance(latin, Contents)
    assert latin.replaced == 2
    assert wide == Contents(path="wide", text="größer\n")


# -- Steps ------------------------------------------------------------------------------------------------


def test_a_step_is_anchored_to_the_lines_it_was_shown(tmp_path: Path) -> None:
    """TA-11: by the hash of what was shown; lines that only have the same numbers are refused."""
    write(tmp_path, "a.py", CODE)
    shown = content_hash(CODE.split("\n")[7:10])

    fresh = anchored(tmp_path, "a.py", 8, 10, shown_hash=shown)
    (tmp_path / "a.py").write_text("# new\n" + CODE)
    moved = anchored(tmp_path, "a.py", 8, 10, shown_hash=shown)
    (tmp_path / "a.py").write_text(CODE.replace("total", "sum"))
    changed = anchored(tmp_path, "a.py", 8, 10, shown_hash=shown)
    whole = anchored(tmp_path, str(tmp_path / "a.py"))

    assert isinstance(fresh, Anchor)
    assert isinstance(moved, Anchor)
    assert (moved.start, moved.end) == (9, 11)
    assert changed == LeftOut(path="a.py", start=8, end=10, reason="its lines changed since they were shown")
    assert isinstance(whole, Anchor)
    assert whole.whole
    assert whole.path == "a.py"
    assert isinstance(anchored(tmp_path, "a.py", 80, 90), LeftOut)


def test_a_range_behind_the_end_is_told_as_it_was_asked(tmp_path: Path) -> None:
    (tmp_path / "session.py").write_text("one\ntwo\n")

    left_out = anchored(tmp_path, "session.py", 10, 40)

    assert isinstance(left_out, LeftOut)
    assert left_out.reason == "session.py has 2 lines, so there is no range 10-40 in it"
