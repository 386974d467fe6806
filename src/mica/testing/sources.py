"""Sources as a user declares them: the text of a settings file, its variables, and one concept to ask about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mica.select.fragments import Concept, Fragment
from mica.select.sources.registry import Sources
from mica.settings import load_settings

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ABOUT = Concept("judgment", "code_review", "abc123")


def declared(text: str, *, folder: Path, **variables: str) -> Sources:
    """The sources of a settings file with this text, in a folder that its relative paths start from."""
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return Sources(load_settings({"HOME": str(folder), "MICA_CONFIG": str(file), **variables}))


async def ask(sources: Sources, name: str, concept: Concept = ABOUT) -> Sequence[Fragment]:
    """What one source says of a concept."""
    return await sources[name].fragments(concept, now=NOW)
