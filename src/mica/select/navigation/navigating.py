"""Navigation in a space: its log is the past, the working tree is what can be offered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from mica.errors import InvalidInput
from mica.model import Event, EventQuery
from mica.observe.worktree import files_of, text_of
from mica.select.navigation.fields import counted
from mica.select.navigation.mentions import mentions
from mica.select.navigation.navigator import Navigator
from mica.select.navigation.past import Past, Task
from mica.select.navigation.places import Place, Places
from mica.select.navigation.ranges import definitions, lines_for
from mica.select.navigation.signals import QUERY_CHARACTERS_MAX, Question
from mica.select.navigation.tree import Document, Tree
from mica.store.protocol import Store
from mica.walks import Walk, walks_of
from mica.words import terms

EVENTS_MAX = 50_000  # the latest of the log that are learned from: months of one person's work
LIMIT_MAX = 1_000
IDLE = timedelta(minutes=30)  # after which a task is over that nothing followed
NAMES = ("mark", "turn.started", "command.run", "file.*", "task.outcome")


class Navigating:
    """Answers for one space and one working tree."""

    def __init__(self, store: Store, root: Path) -> None:
        self._store = store
        self._root = root

    async def places(self, task: str, *, limit: int, session: str | None, now: datetime) -> Places:
        """Where a task will lead. Raises InvalidInput for a limit that is not possible."""
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidInput(f"{limit} places are not possible; give 0 to {LIMIT_MAX:,}")
        events = await self._store.events(EventQuery(names=NAMES, until=now, limit=EVENTS_MAX))
        return await asyncio.to_thread(self._answer, task, events, limit, session, now)

    def _answer(self, task: str, events: Sequence[Event], limit: int, session: str | None, now: datetime) -> Places:
        tree, missing = self._tree()
        walks = walks_of(events)
        past = past_of(walks, now=now)
        navigator = Navigator(tree, past)
        asked = Question(text=task, session=session_of(walks, session))
        places = navigator.rank(asked, limit=limit)
        return Places(self._with_lines(places, task, tree), missing=missing)

    def _tree(self) -> tuple[Tree, dict[str, str]]:
        listing = files_of(self._root)
        tree = Tree()
        for file in listing.files:
            tree.put(file.path, read(self._root, file.path, file.size_bytes))
        return tree, dict(listing.missing)

    def _with_lines(self, places: Sequence[Place], task: str, tree: Tree) -> list[Place]:
        asked = set(terms(task[:QUERY_CHARACTERS_MAX]))
        words = set(task.split())
        lines = mentions(task, tree.names).lines
        found = []
        for place in places:
            text = text_of(self._root, place.path)
            chosen, total = (
                ((), None) if text is None else lines_for(text, asked, named=words, at=lines.get(place.path, ()))
            )
            found.append(
                Place(
                    path=place.path,
                    probability=place.probability,
                    tier=place.tier,
                    reasons=place.reasons,
                    lines=chosen,
                    total_lines=total,
                )
            )
        return found


def read(root: Path, path: str, size_bytes: int) -> Document:
    """What an index keeps of a file as it is now."""
    return document(text_of(root, path), size_bytes=size_bytes)


def document(text: str | None, *, size_bytes: int) -> Document:
    """What an index keeps of a text; of what is no text, its size."""
    if text is None:
        return Document(size_bytes=size_bytes)
    return Document(
        terms=counted(terms(text)),
        symbols=tuple(dict.fromkeys(name for name, _ in definitions(text))),
        size_bytes=size_bytes,
    )


def past_of(walks: Sequence[Walk], *, now: datetime) -> Past:
    """What was learned until now: tasks in the order in which they ended, without those that still run."""
    past = Past()
    latest = {walk.session: walk.id for walk in walks}
    for walk in sorted(walks, key=lambda walk: (walk.ended_at, walk.id)):
        is_over = latest[walk.session] != walk.id or now - walk.ended_at > IDLE
        if is_over and walk.ended_at <= now:
            past.learn(Task(text=walk.prompt, files=walk.touched))
    return past


def session_of(walks: Sequence[Walk], session: str | None) -> tuple[tuple[str, ...], ...]:
    """The files of a session's prompts so far, in order."""
    if session is None:
        return ()
    return tuple(walk.touched for walk in walks if walk.session == session and walk.touched)
