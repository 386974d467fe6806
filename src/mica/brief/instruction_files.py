"""Reads the instruction files of a project, such as `CLAUDE.md`, which clients show to the agent anyway.

The files are read at most to a limit, and only if they are regular files inside the working tree.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from mica.model.brief import Passage
from mica.words import terms

NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md", ".github/copilot-instructions.md", ".cursorrules")
BYTES_MAX = 200_000  # of one file; nobody sends more than that with every prompt
SAID_SHARE = 0.85  # of a passage's words, which one line of a file has
TERMS_MIN = 2  # a passage with fewer words is not compared


def read_instructions(root: Path) -> list[str]:
    """Return the lines of the instruction files in a working tree; empty if there are none or none can be read."""
    lines: list[str] = []
    for name in NAMES:
        path = root / name
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                with path.open("rb") as file:
                    lines += file.read(BYTES_MAX).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
    return [line for line in lines if line.strip()]


def without_instructed(passages: Iterable[Passage], lines: Sequence[str]) -> list[Passage]:
    """Return the passages without those that one line of the instruction files says already.

    Statements of other systems always stay.
    """
    if not lines:
        return list(passages)
    said = [frozenset(terms(line)) for line in lines]
    return [each for each in passages if each.origins or not _is_said(frozenset(terms(each.text)), said)]


def _is_said(units: frozenset[str], said: Sequence[frozenset[str]]) -> bool:
    if len(units) < TERMS_MIN:
        return False
    return any(len(units & line) >= SAID_SHARE * len(units) for line in said)
