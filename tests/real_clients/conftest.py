"""Real coding agents against scripted models. `make test-clients` fetches and runs them; `make test` does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

if not os.environ.get("MICA_TEST_CLIENTS"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    for name, count in (("auth", 120), ("db", 60)):
        (folder / f"src/{name}.py").write_text("".join(f"# {name} line {line}\n" for line in range(1, count + 1)))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@e", "commit", "-qm", "All"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder
