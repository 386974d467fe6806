"""What is kept for hooks, ranked for a brief."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from mica.brief.file_source import Ranked
from mica.model.event import EventId
from mica.navigation.engine import mentions
from mica.navigation.engine.lookup_file import Kept
from mica.navigation.engine.mentions import Names
from mica.navigation.engine.prompt import Prompted


def ranked(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]] = ()
) -> list[Ranked] | None:
    """The files of a task that somebody has opened before, best first; None where what is kept cannot be read."""
    asked = _prompted(task, session, root=root, tree=tree, past=past, walked=walked)
    if asked is None:
        return None
    known = [(place, *asked.last(place.path)) for place in asked.places]
    return [
        Ranked(
            path=place.path,
            lines=asked.lines(place.path),
            reason=place.reasons[0],
            last=EventId(event),
            at=datetime.fromtimestamp(at, UTC),
            probability=place.probability,
        )
        for place, event, at in known
        if event
    ]


def is_any_named(texts: Iterable[str], *, tree: str) -> bool:
    """Whether one of these texts names a file of a tree; not where what is kept cannot be read."""
    try:
        with Path(tree).open("rb") as files:
            names = Names(kept=Kept(files.fileno()))
    except (OSError, ValueError):
        return False
    return any(mentions.is_any_named(text, names) for text in texts)


def likely(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]] = ()
) -> dict[str, float] | None:
    """The files that a task will need, with their probabilities; None where what is kept cannot be read."""
    asked = _prompted(task, session, root=root, tree=tree, past=past, walked=walked)
    return None if asked is None else dict(asked.likely)


def _prompted(
    task: str, session: str, *, root: str, tree: str, past: str, walked: Sequence[Sequence[str]]
) -> Prompted | None:
    try:
        with Path(tree).open("rb") as files, Path(past).open("rb") as before:
            return Prompted(task, session, root=root, tree=files.fileno(), past=before.fileno(), walked=walked)
    except (OSError, ValueError):
        return None
