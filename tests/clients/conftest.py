"""Home folders for tests that install."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.machines import FILES, machine_of

from mica.clients.installation import Machine, UserHome


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    """A home in which every client was used."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


@pytest.fixture
def user(tmp_path: Path) -> UserHome:
    """A user without any variables set."""
    return UserHome(path=tmp_path, environment={})


@pytest.fixture
def machine(user_home: Path) -> Machine:
    return machine_of(user_home)
