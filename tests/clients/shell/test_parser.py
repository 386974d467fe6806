"""Commits in shell commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.clients.shell.parser import ShellCommit, commits


@pytest.mark.parametrize(
    ("command", "output", "found"),
    [
        ("git commit -m 'Fix it'", "[main 1a2b3c4] Fix it\n 1 file changed", [ShellCommit("Fix it", "1a2b3c4")]),
        ('git commit -am "Fix it" -m "Why"', "[main 1a2b3c4] Fix it", [ShellCommit("Fix it\n\nWhy", "1a2b3c4")]),
        ("git commit --message='Fix it'", "[x/y 1a2b3c4] Fix it", [ShellCommit("Fix it", "1a2b3c4")]),
        ("git commit --message 'Fix it'", "[x/y 1a2b3c4] Fix it", [ShellCommit("Fix it", "1a2b3c4")]),
        ("git commit -m'Fix it'", "[x/y 1a2b3c4] Fix it", [ShellCommit("Fix it", "1a2b3c4")]),
        ("git commit -m 'a'", "[main (root-commit) 1a2b3c4] a", [ShellCommit("a", "1a2b3c4")]),
        ("git commit -m 'a'", "[detached HEAD 1a2b3c4] a", [ShellCommit("a", "1a2b3c4")]),
        ("git commit --amend --no-edit", "[main 1a2b3c4] Old words", [ShellCommit("Old words", "1a2b3c4")]),
        ('git commit -m "$MESSAGE"', "[main 1a2b3c4] From outside", [ShellCommit("From outside", "1a2b3c4")]),
        ('git commit -m "It\'s \\"fixed\\""', '[m 1a2b3c4] It\'s "fixed"', [ShellCommit('It\'s "fixed"', "1a2b3c4")]),
        (
            "cd x && git -C y -c user.name=z commit -F - <<'EOF'\nSubject\n\nBody\nEOF\ngit push",
            "[main 1a2b3c4] Subject",
            [ShellCommit("Subject\n\nBody", "1a2b3c4")],
        ),
        (
            "git commit -m 'a' && git commit -m 'b'",
            "[main 1111111] a\n[main 2222222] b",
            [ShellCommit("a", "1111111"), ShellCommit("b", "2222222")],
        ),
        ("git commit -m 'a' && cat > f <<E\nx\nE", "[main 1a2b3c4] a", [ShellCommit("a", "1a2b3c4")]),
        ("git commit -q -m 'Fix it'", "", [ShellCommit("Fix it")]),
        ("git commit -qam 'Fix it'", "", [ShellCommit("Fix it")]),
        ("git commit -m 'Fix it' | tail -1", " 1 file changed", [ShellCommit("Fix it")]),
        ("git commit -m 'Fix it' >/dev/null", "", [ShellCommit("Fix it")]),
        ("git commit -m 'Fix it'", "nothing to commit, working tree clean", []),
        ("git commit -q --dry-run -m 'Fix it'", "", []),
        ("git commit -q", "", []),
        ("git commit", "", []),
        ("git commit -m", "", []),
        ("echo 'git commit -q -m x'", "git commit -q -m x", []),
        ("git log --grep commit", "[main 1a2b3c4] a", []),
        ("git commit-tree x", "[main 1a2b3c4] a", []),
        ("git commit -m 'unclosed", "", []),
        ("ls", "", []),
    ],
)
def test_commits_are_those_that_git_printed(command: str, output: str, found: list[ShellCommit]) -> None:
    assert commits(command, output=output, ok=True) == found


def test_a_commit_counts_although_the_rest_of_the_command_failed() -> None:
    made = commits("git commit -m a && git push", output="[main 1a2b3c4] a\nerror: failed to push", ok=False)

    assert made == [ShellCommit("a", "1a2b3c4")]


def test_a_silent_commit_that_failed_does_not_count() -> None:
    assert commits("git commit -q -m a", output="", ok=False) == []


def test_trailers_are_left_out() -> None:
    command = "git commit -m 'Fix it\n\nWhy.\n\n🤖 Generated with X\n\nCo-Authored-By: X <x@example.com>'"

    assert commits(command, output="[main 1a2b3c4] Fix it", ok=True) == [ShellCommit("Fix it\n\nWhy.", "1a2b3c4")]


@given(
    parts=st.lists(
        st.sampled_from(["git commit", " -m", " -q", " ", "'", '"', "\\", "$x", "<<E", "\n", "E", ";", "|", "a"])
    )
)
def test_no_command_raises(parts: list[str]) -> None:
    command = "".join(parts)

    assert len(commits(command, output="", ok=True)) <= command.count("commit")


@pytest.mark.parametrize("tail", [" -c" * 5_000, " \t" * 5_000, " -m '" * 5_000, ' -m "x' * 5_000, " x=" * 5_000])
def test_unusual_commands_take_no_longer(tail: str) -> None:
    """A backtracking pattern would not end here."""
    assert commits(f"git{tail}", output="", ok=True) == []
    assert len(commits(f"git commit{tail}", output="", ok=True)) <= 1
    assert len(commits(f"{tail} git commit", output="[" * 10_000, ok=True)) <= 1
