"""Observe: where we are, what happened, and what others have recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from mica.errors import InvalidEvent, InvalidInput
from mica.events.context import Here, Scope, age_s, carrier, environment, narrowed, received
from mica.events.sessions import IDLE
from mica.memory.wiring import Wired
from mica.model.event import (
    EPOCH_OPENED,
    MARK,
    MILESTONE,
    RELATIONS,
    Appended,
    Context,
    Event,
    Origin,
    Ref,
    Relation,
    WriterId,
    check_mark,
    encode_data,
    split_id,
)
from mica.model.walk import OUTCOME, OUTCOMES, Outcome, Step, fields_of, workflow_task
from mica.redact import redact
from mica.store.codec import remember

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.clients.importer import Imported, Importing, LogImported, Progress
    from mica.events import log_import as logs


OBSERVED_FIRST = datetime(1970, 1, 1, tzinfo=UTC)  # what is older comes from a clock that was never set
AHEAD = timedelta(days=3_653)  # clocks of machines differ, and simulations have their own; none by ten years
_SPACE_OF: dict[WriterId, str] = {}  # who made marks in this process, and in which space


class Observing(Wired):
    """A memory that can be told things."""

    @property
    def age_s(self) -> float | None:
        """How many seconds ago the current block was opened; None outside of every block."""
        return age_s(self._store.space)

    def context(
        self,
        /,
        *,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        task: str | None = None,
        correlation: str | None = None,
        parent: Event | Ref | None = None,
        **labels: str,
    ) -> Scope:
        """A `with` block, or a decorator, in which events come from here. What is not given is inherited."""
        space = self._space
        return Scope(space, narrowed, (space, self._base, parent, labels, session, agent, user, task, correlation))

    def received(self, fields: Mapping[str, str]) -> Scope:
        """A `with` block that goes on where the sender of these headers, `_meta` fields or variables was."""
        return Scope(self._space, lambda: received(fields, space=self._space))

    def carrier(self) -> dict[str, str]:
        """Where we are, for HTTP headers and MCP `_meta`."""
        return carrier(self.here, space=self._store.space)

    def environment(self) -> dict[str, str]:
        """Where we are, for the environment of a child process: `env=os.environ | memory.environment()`."""
        return environment(self.here, space=self._store.space)

    def mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
        parent: Event | Ref | None = None,
        relation: Relation = "causes",
        context: Context | Here | None = None,
        origin: Origin = "agent",
        at: datetime | None = None,
    ) -> Ref:
        """Record an observation; returns where it stands. Secrets are redacted on the way in.

        `relation` says what the parent is to it: it causes it, or the mark continues it, branches off or fulfills it.
        `at` is when it was observed, where that was not now. Raises InvalidInput for a time that cannot be meant.
        """
        if at is not None:
            _check_observed(at, now=self._clock())
        if relation not in RELATIONS:
            raise InvalidInput(f"there is no relation {relation!r}; use one of {', '.join(RELATIONS)}")
        data = self._mark_data(text, tags, why, principles)
        self._check_parent(parent)
        stands_at = at or self._clock()
        led_at = parent.at if isinstance(parent, Event) else None
        if isinstance(parent, Ref):
            led_at = self._marked_at.get((parent.writer, parent.sequence))
        if parent is not None and led_at is not None and stands_at < led_at:
            raise InvalidInput(f"a mark cannot come before what led to it: {parent.id} is of {led_at.isoformat()}")
        if relation != "causes":
            if parent is None and self.here.parent is None:
                raise InvalidInput(f"a mark that {relation} something needs a parent; give what it {relation}")
            data["relation"] = relation
        ref = self.emit(MARK, data, parent=parent, context=context, origin=origin, at=at)
        remember(self._marked_at, (ref.writer, ref.sequence), stands_at)  # making its id would take longer
        remember(_SPACE_OF, ref.writer, self._space)
        if MILESTONE in cast(list[str], data["tags"]):
            self.emit(EPOCH_OPENED, {"mark": ref.id}, parent=ref, context=context, origin=origin, at=at)
        return ref

    def check_mark(
        self,
        text: str,
        *,
        tags: str | Sequence[str] = (),
        why: str | None = None,
        principles: str | Sequence[str] = (),
    ) -> None:
        """Raise as `mark` would for what it says, and record nothing: for whoever marks several things or none."""
        data = self._mark_data(text, tags, why, principles)
        check_mark(data)
        encode_data(MARK, data)

    def _mark_data(
        self, text: str, tags: str | Sequence[str], why: str | None, principles: str | Sequence[str]
    ) -> dict[str, object]:
        """What a mark holds, without secrets. Raises InvalidInput when it is no text, or says what was purged."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"a mark needs a text, not {text!r}")
        given = [tags] if isinstance(tags, str) else tags
        principles = [principles] if isinstance(principles, str) else principles
        self._check_asserted(text, why or "", *principles, *given)
        data: dict[str, object] = {"text": redact(text), "tags": [tag.lstrip("#") for tag in given]}
        if why is not None:
            data["why"] = redact(why)
        if principles:
            data["principles"] = [redact(principle) for principle in principles]
        return data

    def _check_parent(self, parent: Event | Ref | None) -> None:
        """Raise InvalidInput where it is known that the parent is of another space: nothing crosses the wall."""
        if parent is None:
            return
        if not isinstance(parent, Event | Ref):
            raise InvalidEvent(f"parent {parent!r} of a mark is no event; give what emit, mark or event returned")
        writer = parent.writer if isinstance(parent, Ref) else split_id(parent.id)[0]
        if _SPACE_OF.get(writer, self._space) != self._space:
            raise InvalidInput(
                f"{parent.id} belongs to another space, and nothing leads from one to another; "
                "leave out the parent, or mark it in its own space"
            )

    async def durable(self) -> None:
        """Return when every event emitted before is on disk, power loss or not."""
        if self._journal.is_forked:  # whose loop and threads are the parent's
            self._journal.sync()
        else:
            await asyncio.to_thread(self._journal.sync)

    def walk(
        self,
        task: str,
        steps: Iterable[Step | Mapping[str, object]],
        *,
        outcome: Outcome = "unknown",
        reason: str = "",
        workflow: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        at: datetime | None = None,
    ) -> Ref:
        """Record what was opened and changed for a task, in order, as hooks of coding agents do; returns the walk.

        For orchestrators and build workflows that see the work of an agent themselves. A step is a mapping with the
        fields of `mica.model.walk.Step`: `path`, `operation`, and where known `start_line`, `end_line`, `total_lines`,
        `tokens`, `content_hash`, `failed`. `workflow` is the kind of task (`adw_build`). Raises InvalidInput for
        anything else, before anything is recorded.
        """
        if outcome not in OUTCOMES:
            raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
        told = [fields_of(step) for step in steps]
        kind = None if workflow is None else workflow_task(workflow)
        here = self.here.context.with_(session=session, agent=agent, task=kind)
        with Scope(self._space, lambda: Here(here, None)):  # a walk is a chain of its own
            walk = self.mark(task, tags=("prompt",), origin="user", at=at)
            for name, fields, failed in told:
                self.emit(name, fields, parent=walk, origin="tool", error=failed, at=at)
            if outcome != "unknown":
                self.outcome(walk, outcome, reason=reason)
        return walk

    def outcome(self, walk: Event | Ref, outcome: Outcome, *, reason: str = "") -> Ref:
        """Say how a task ended. The last word counts; without one it is unknown."""
        if outcome not in OUTCOMES:
            raise InvalidInput(f"there is no outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
        data: dict[str, object] = {"outcome": outcome}
        if reason:
            data["reason"] = redact(reason)
        return self.emit(OUTCOME, data, parent=walk, origin="user")

    async def import_transcripts(
        self,
        paths: Iterable[Path],
        *,
        root: Path | Mapping[Path, Path | None] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Imported:
        """Read coding agents' transcripts into this space, in the order given. What was read before is not read twice.

        `root` is the folder that paths of files are relative to, one for all or one for each transcript; where it is
        None, the folder the session worked in first. A file that cannot be read is named in the result; the others go
        on. The last turn of a session that may still run is not taken as ended; an import half an hour later does.
        """
        await self._stored()
        return await self._importing.transcripts(paths, root=root, on_progress=on_progress)

    async def import_log(
        self,
        path: Path | IO[bytes],
        *,
        format: logs.Format | None = None,
        source: str = "",
        allow_orphans: bool = False,
    ) -> LogImported:
        """Store the events of a JSONL file: our own export, KSI's or flat embedded contexts, or CloudEvents.

        A file that is open, as standard input, is read from where it is. All or nothing; importing again changes
        nothing. Tombstones stand for events that a purge took before they came, which are counted. `source` tells logs
        apart that use the same ids. Raises InvalidInput naming the lines that cannot be read or whose parent is neither
        in the file nor in this space.
        """
        await self._stored()
        return await self._importing.log(path, format=format, source=source, allow_orphans=allow_orphans)

    async def import_walks(self, lines: Iterable[bytes]) -> Appended:
        """Store walks that an orchestrator or build workflow wrote down, a JSON object on each line, all or nothing.

        The keys are the arguments of `walk` with `task` and `steps`, and an `id` of one's own. A line that is told
        again changes nothing. Raises InvalidInput naming the lines that are no walk.
        """
        from mica.navigation.walk_reports import reported

        events = await asyncio.to_thread(reported, list(lines), now=self._clock())
        await self._stored()
        return await self._importing.told(events)

    async def unread(self, paths: Iterable[Path]) -> list[Path]:
        """Which of these transcripts have something that is not in this space yet. One that is gone has nothing."""
        return await self._importing.unread(paths)

    @cached_property
    def _importing(self) -> Importing:
        from mica.clients.importer import Importing

        return Importing(self._store, append=self._append, ids=self._ids, clock=self._clock, idle=IDLE)


def _check_observed(at: object, *, now: datetime) -> None:
    """Raise InvalidInput when nobody can have observed something then."""
    if not isinstance(at, datetime):
        raise InvalidInput(f"a mark of {at!r} has no time; give an aware datetime")
    if at.tzinfo is None:
        raise InvalidInput(f"a mark of {at.isoformat()} has no time zone; use an aware datetime")
    if at < OBSERVED_FIRST:
        raise InvalidInput(f"a mark of {at.isoformat()} is older than {OBSERVED_FIRST.year}; give when it was observed")
    if at > now + AHEAD:
        raise InvalidInput(f"a mark of {at.isoformat()} is still to come; give when it was observed")
