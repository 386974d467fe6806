"""Sources for tests: declared in the text of a settings file, or scripted with a few facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mica.model.event import utc_now
from mica.settings import load_settings
from mica.sources.api import Sources
from mica.sources.changes import Changes
from mica.sources.drivers import declarations
from mica.sources.fan_out import FanOut
from mica.sources.protocol import Concept, Fragment, Question, Source, SourceDeclaration, Value
from mica.sources.registry import SourceRegistry
from mica.sources.replies import Replies
from mica.sources.threads import Pool
from mica.store.reference.store import EphemeralStore

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ABOUT = Concept("judgment", "code_review", "abc123")


def declared(text: str, *, folder: Path, **variables: str) -> SourceRegistry:
    """Return the sources that a settings file with this text declares.

    The file is written to `folder`, and relative paths in it start there. `variables` are environment variables.
    """
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return SourceRegistry(
        load_settings({"HOME": str(folder), "MICA_CONFIG": str(file), **variables}), lambda: declarations
    )


async def ask(sources: SourceRegistry | Sources, name: str, concept: Concept = ABOUT) -> Sequence[Fragment]:
    """Ask the source with this name about a concept, and return its fragments."""
    return await sources[name].fragments(Question(concept=concept, now=NOW))


class ScriptedSource:
    """A source that answers every question with the same facts. If `error` is set, it raises this error.

    `requests` holds the concepts that it was asked about.
    """

    def __init__(self, name: str, facts: dict[str, Value], **declared: object) -> None:
        self.declared = SourceDeclaration(**({"name": name, "rank": 20} | declared))  # type: ignore[arg-type]  # a test's own
        self.facts = facts
        self.error: Exception | None = None
        self.requests: list[str] = []

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        self.requests.append(str(question.concept))
        if self.error is not None:
            raise self.error
        return [
            Fragment(
                key=key,
                text=f"{key} is {value}",
                value=value,
                confidence=0.8,
                at=question.now,
                source="",
                locator=f"row {key}",
            )
            for key, value in self.facts.items()
        ]

    async def close(self) -> None:
        """Do nothing: this source holds no resources."""


def task_fan_out(sources: Iterable[Source]) -> FanOut:
    """Return a fan-out that asks these sources, with an empty store."""
    store = EphemeralStore()
    replies = Replies(store.replies, store.purges, own=lambda: "")
    changes = Changes(
        store.log, unfolded=list, is_wanted=lambda name: False, tell=lambda change: None, lost=lambda: None
    )
    fan_out = FanOut(store.purges, replies=replies, changes=changes, pool=Pool(), clock=utc_now)
    fan_out.use(sources)
    return fan_out
