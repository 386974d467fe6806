"""git, asked: one way to run it, bounded in time, which never waits for anybody at a keyboard."""

from __future__ import annotations

import subprocess
from pathlib import Path

TIMEOUT_S = 20.0


def git(root: Path, *words: str, timeout_s: float = TIMEOUT_S) -> bytes:
    """What git prints. Raises OSError where there is none, and SubprocessError where it fails or takes too long."""
    command = ["git", "-C", str(root), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    return subprocess.run(command, capture_output=True, check=True, timeout=timeout_s, stdin=subprocess.DEVNULL).stdout
