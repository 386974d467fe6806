"""The judge of bench/anchors.py is correct, so its numbers can be trusted."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("anchors")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), min_size=2, max_size=4))
def test_lines_are_followed_through_every_commit(
    tmp_path_factory: pytest.TempPathFactory, versions: list[list[str]]
) -> None:
    """A line that comes from an earlier one has its text."""
    pytest.MonkeyPatch().syspath_prepend(str(BENCH))
    bench = importlib.import_module("anchors")
    repo = tmp_path_factory.mktemp("repo")
    git(repo, "init", "-q")
    for version in versions:
        (repo / "a b.py").write_text("".join(f"{line}\n" for line in version))
        git(repo, "add", ".")
        git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    commits = bench.history(repo)

    path, origins = bench.track_lines("a b.py", len(versions[0]), commits[1:])

    assert path == "a b.py"
    assert len(origins) == len(versions[-1])
    assert all(
        origin is None or versions[0][origin - 1] == line for line, origin in zip(versions[-1], origins, strict=True)
    )


def test_lines_from_elsewhere_are_wrong(bench: ModuleType) -> None:
    """Surviving lines count as covered, lines from outside the range as wrong, new lines within it as neither."""
    one = bench.DrawnRange("window", "a", "a\nb\nc\nd\n", 2, 3, "a", "a\nb\nx\nc\nd\n", [1, 2, None, 3, 4])

    right, number = bench.score_range(one, (2, 4)), bench.score_range(one, (4, 5))

    assert (right.survived, right.covered, right.offered, right.wrong) == (2, 2, 3, 0)
    assert (number.covered, number.wrong) == (1, 1)
    removed = bench.DrawnRange("window", "a", "a\nb\n", 2, 2, "a", "a\nx\n", [1, None])
    assert bench.score_range(removed, (2, 2)).invented == 1
    assert bench.score_range(removed, None).invented == 0


def test_a_repository_without_history_is_reported(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    monkeypatch.setattr("sys.argv", ["anchors.py", "--repo", str(tmp_path), "--quick"])

    with pytest.raises(SystemExit, match="has 1 commits here, and a range needs two"):
        bench.main()
