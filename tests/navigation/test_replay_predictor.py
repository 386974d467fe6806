"""Past trees contain the files committed up to a time, and nothing later."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mica.navigation.replay_predictor import PastTrees

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)


def git(root: Path, *args: str, at: datetime = BEGIN) -> None:
    stamp = at.isoformat()
    who = {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp, "HOME": str(root)}
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *names, *args], cwd=root, check=True, capture_output=True, env={**os.environ, **who})


def commit(root: Path, hours: int, **files: str | None) -> None:
    for name, text in files.items():
        path = root / name.replace("_", ".")
        path.write_text(text) if text is not None else path.unlink()
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change", at=BEGIN + timedelta(hours=hours))


def test_a_past_tree_has_the_files_committed_by_then(tmp_path: Path) -> None:
    """keeps: TA-01. Each move returns only the files that changed."""
    git(tmp_path, "init", "-q")
    commit(tmp_path, 0, a_py="one", b_py="two")
    commit(tmp_path, 2, a_py="three", b_py=None, c_py="four")
    with PastTrees(tmp_path) as trees:
        assert trees.move(BEGIN - timedelta(hours=1)).put == []
        first = trees.move(BEGIN + timedelta(hours=1))
        assert {file.path: file.text for file in first.put} == {"a.py": "one", "b.py": "two"}
        assert trees.move(BEGIN + timedelta(hours=1.5)).put == []
        then = trees.move(BEGIN + timedelta(hours=3))
        assert {file.path: file.text for file in then.put} == {"a.py": "three", "c.py": "four"}
        assert then.removed == ["b.py"]


def test_links_binaries_secrets_and_large_files_have_no_text(tmp_path: Path) -> None:
    """Files that must not be read are not read from the history either."""
    git(tmp_path, "init", "-q")
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    (tmp_path / "raw.bin").write_bytes(b"\0\1\2")
    (tmp_path / "data.txt").write_text("x" * 1_000_001)
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "naïve file.py").write_text("plain")
    commit(tmp_path, 0)
    with PastTrees(tmp_path) as trees:
        found = {file.path: file.text for file in trees.move(BEGIN).put}
    assert found == {"raw.bin": None, "data.txt": None, ".env": None, "naïve file.py": "plain"}


def test_a_folder_without_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        PastTrees(tmp_path)
    git(tmp_path, "init", "-q")
    with pytest.raises(subprocess.CalledProcessError):
        PastTrees(tmp_path)


def test_closing_past_trees_ends_the_git_process(tmp_path: Path) -> None:
    """Closing ends the git process, and may be repeated."""
    git(tmp_path, "init", "-q")
    commit(tmp_path, 0, a_py="one")
    trees = PastTrees(tmp_path)
    trees.move(BEGIN)
    process = trees._objects
    assert process is not None
    trees.close()
    trees.close()
    assert process.returncode is not None
