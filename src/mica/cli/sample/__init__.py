"""A sample for a first look where there are no transcripts yet: six made-up files of an invented web shop.

They have the record format and the folders of Claude Code and tell of five sessions, one with a subagent, between 26
October and 6 November 2026: a login that forgets the session, orders charged twice, sessions that end too early.
Nobody worked on this shop. Whoever shows what was learned from these files says that they are a sample.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def transcripts() -> Path:
    """The folder that stands for `~/.claude/projects`, ready to be imported."""
    return Path(str(resources.files(__name__).joinpath("projects")))
