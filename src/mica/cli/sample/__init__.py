"""Sample transcripts for a first look on a machine without transcripts: six files about an invented web shop.

They have the record format and the folders of Claude Code. They show five sessions, one with a subagent, between 26
October and 6 November 2026: a login that forgets the session, orders charged twice, sessions that end too early.
The shop does not exist, so everything that is shown from these files must be labelled as a sample.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def transcripts() -> Path:
    """Return the folder with the sample, laid out like `~/.claude/projects`."""
    return Path(str(resources.files(__name__).joinpath("projects")))
