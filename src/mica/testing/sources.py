"""Sources as a user declares them, by the text of a settings file and its variables, or made here of a few facts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mica.settings import load_settings
from mica.sources.protocol import Concept, Declared, Fragment, Value
from mica.sources.registry import Sources

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


class State:
    """A source of a few facts, or of an error. `asked` holds the concepts that it was asked about."""

    def __init__(self, name: str, facts: dict[str, Value], **declared: object) -> None:
        self.declared = Declared(**({"name": name, "rank": 20} | declared))  # type: ignore[arg-type]  # a test's own
        self.facts = facts
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        self.asked.append(str(concept))
        if self.error is not None:
            raise self.error
        return [
            Fragment(
                key=key, text=f"{key} is {value}", value=value, confidence=0.8, at=now, source="", locator=f"row {key}"
            )
            for key, value in self.facts.items()
        ]

    async def close(self) -> None:
        """Nothing is held."""
