"""Shells of made-up users, one for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.terminal import FIXTURES, EventShell, StoreTerminal, Terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return Terminal(tmp_path / "home")


@pytest.fixture
def transcripts(terminal: Terminal) -> Path:
    """The recorded sessions, in the folder of Claude Code."""
    folder = terminal.home / ".claude" / "projects" / "-home-dev-shop"
    folder.mkdir(parents=True)
    for path in FIXTURES.glob("*transcript*.jsonl"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder.parent


@pytest.fixture
def store_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreTerminal:
    monkeypatch.chdir(tmp_path)
    return StoreTerminal(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> EventShell:
    made = EventShell(tmp_path)
    made.fill()
    return made
