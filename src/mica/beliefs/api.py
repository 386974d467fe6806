"""Beliefs: what holds now. Read, add, correct, confirm and end them; this is `memory.beliefs`."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from datetime import datetime

from mica.beliefs.certainty import as_of, relevance
from mica.beliefs.edit_file import BeliefEdit, parse, render
from mica.beliefs.library import BeliefLibrary, replay
from mica.beliefs.subjects import NAME, subject_of
from mica.errors import InvalidInput, ReservedForUser, UnknownBelief
from mica.events.log import Log
from mica.events.references import Reference
from mica.model.belief import (
    ADDED,
    CONFIRMED,
    ENDED,
    IN_FORCE,
    KINDS,
    STATES,
    Belief,
    BeliefId,
    BeliefKind,
    BeliefQuery,
    BeliefState,
    Ending,
    is_belief_id,
)
from mica.model.event import MARK, RETRACTED, Clock, Event, EventId, Origin, Ref
from mica.model.mark import decode_mark
from mica.redact import redact
from mica.search.mark_search import CORRECTION
from mica.store.protocol import BeliefTable, EventLog
from mica.words import words

LISTED_MAX = 200
IN_FORCE_MAX = 2_000  # more than a person or a brief can use
HISTORY_MAX = 100  # beliefs in a line of replacements
CURRENT: tuple[BeliefState, ...] = ("held", "settled", "forming")

MORE_WORDS_MAX = 2  # of a mark than of a statement in it, such as "please"; else it says something else, too


class Beliefs:
    """The beliefs of one space: rules, preferences, decisions, facts, gotchas, open tasks and open questions.

    They are learned from the log before every read, and only from what is new in it.
    """

    def __init__(self, log: Log, *, event_log: EventLog, table: BeliefTable, clock: Clock) -> None:
        self._log = log
        self._events = event_log
        self._table = table
        self._clock = clock
        self._library = BeliefLibrary(event_log, table)

    # -- Reading

    async def refresh(self, *, within_s: float | None = None) -> bool:
        """Learn from what is new in the log; returns True if everything in it was learned.

        With `within_s`, learning stops after about this time, and the next call continues. If the store is busy, events
        that are not stored yet are not learned.
        """
        await self._log.settle()
        return await self._library.refresh(within_s=within_s)

    async def list(
        self,
        kind: BeliefKind | None = None,
        state: BeliefState | None = None,
        *,
        limit: int | None = LISTED_MAX,
        at: datetime | None = None,
    ) -> builtins.list[Belief]:
        """Return the beliefs of a kind and state, those with the latest evidence first.

        Without `state`, these are the beliefs in force and those that are forming. With `at`, they are as of that time,
        learned again from the events up to then. Raises InvalidInput for an unknown kind or state.
        """
        _check_choice("kind", kind, KINDS)
        _check_choice("state", state, STATES)
        kinds = () if kind is None else (kind,)
        if at is not None:
            await self._log.settle()
            past = [as_of(each, at) for each in await replay(self._events, at)]
            fitting = [each for each in past if each.kind in (kinds or KINDS) and each.state in (_states(state))]
            return sorted(fitting, key=lambda each: (-each.last_at.timestamp(), each.id))[:limit]
        await self.refresh()
        # A forming belief may have expired since it was stored, so `forming` and `ended` are filtered here.
        stored: tuple[BeliefState, ...] = ("forming", "ended") if state == "ended" else _states(state)
        found = await self._table.query(BeliefQuery(kinds=kinds, states=stored, limit=None))
        now = self._clock()
        return [each for each in (as_of(belief, now) for belief in found) if each.state in _states(state)][:limit]

    async def in_force(self) -> builtins.list[Belief]:
        """Return the beliefs that a brief may state as facts, those with the latest evidence first."""
        await self.refresh()
        return await self._table.query(BeliefQuery(states=IN_FORCE, limit=IN_FORCE_MAX))

    async def latest(
        self, *, session: str | None = None, since: datetime | None = None, limit: int = LISTED_MAX
    ) -> builtins.list[Belief]:
        """Return the beliefs with the latest evidence, ended ones too, of a session or since a time."""
        await self.refresh()
        return await self._table.query(BeliefQuery(session=session, since=since, limit=limit))

    async def about(self, task: str, *, limit: int = 20) -> builtins.list[Belief]:
        """Return the beliefs in force that share words or names with a task, best first."""
        await self.refresh()
        subject = subject_of(task)
        keys = [NAME + each for each in sorted(subject.names)] + sorted(subject.stems | subject.names)
        related = await self._table.related(keys)
        now = self._clock()
        points: dict[BeliefId, float] = {}
        beliefs: dict[BeliefId, Belief] = {}
        for key, found in related.items():
            rarity = (3.0 if key.startswith(NAME) else 1.0) / math.log(2 + len(found))
            for belief in found:
                if belief.is_in_force:
                    beliefs[belief.id] = belief
                    points[belief.id] = points.get(belief.id, 0.0) + rarity
        ranked = sorted(beliefs.values(), key=lambda each: (-points[each.id] * relevance(each, now=now), each.id))
        return ranked[:limit]

    async def get(self, reference: Belief | Reference) -> Belief:
        """Return a belief by its id, or by the id or position of a mark that supports exactly one belief.

        Raises UnknownBelief or UnknownEvent if there is none, and InvalidInput if a mark supports several.
        """
        await self.refresh()
        if isinstance(reference, Belief):
            reference = reference.id
        if is_belief_id(reference):
            found = await self._table.query(BeliefQuery(ids=(BeliefId(str(reference)),)))
            if not found:
                raise UnknownBelief(str(reference))
            return found[0]
        event = await self._log.get(reference)
        found = await self.of_event(event.id)
        current = [each for each in found if each.state != "ended"] or found
        if not current:
            raise UnknownBelief(f"that event {event.number} supports")
        if len(current) > 1:
            listed = "; ".join(f"{each.id}: {each.text[:60]}" for each in current[:5])
            raise InvalidInput(f"event {event.number} supports {len(current)} beliefs, name one of them: {listed}")
        return current[0]

    async def select(self, ids: Sequence[BeliefId]) -> builtins.list[Belief]:
        """Return the beliefs with these ids, those with the latest evidence first. Unknown ids are left out."""
        await self.refresh()
        return await self._table.query(BeliefQuery(ids=tuple(ids), limit=None)) if ids else []

    async def evidence(self, belief: Belief) -> builtins.list[Event]:
        """Return the events that support a belief, and the event that ended it, in the order of the log."""
        wanted = [*belief.evidence, *([belief.ended_by] if belief.ended_by else [])]
        found = await self._events.get_many(builtins.list(dict.fromkeys(wanted)))
        return sorted(found, key=lambda each: each.sort_key)

    async def of_events(self, events: Sequence[EventId]) -> builtins.list[Belief]:
        """Return the beliefs that one of these events supports, those with the latest evidence first."""
        await self.refresh()
        return await self._table.query(BeliefQuery(evidence=tuple(events), limit=None)) if events else []

    async def of_event(self, event: EventId) -> builtins.list[Belief]:
        """Return the beliefs that an event supports, those with the latest evidence first."""
        return await self.of_events([event])

    async def endable(self, reference: Belief | Reference, *, origin: Origin) -> Belief:
        """Return the belief that a mark of this origin would end or replace if it named `reference`.

        Raises what `get` raises, InvalidInput if the belief has ended already, and ReservedForUser if only a user may
        end it.
        """
        belief = await self.get(reference)
        if belief.state == "ended":
            raise InvalidInput(_describe_end(belief))
        self._check_authority(belief, origin)
        return belief

    async def history(self, reference: Belief | Reference) -> builtins.list[Belief]:
        """Return a belief with all that it replaced and all that replaced it, oldest first."""
        first = await self.get(reference)
        found = {first.id: first}
        waiting = [first]
        while waiting and len(found) < HISTORY_MAX:
            belief = waiting.pop()
            links = [*belief.replaces, *([belief.replaced_by] if belief.replaced_by else [])]
            wanted = tuple([each for each in links if each not in found])
            for each in await self._table.query(BeliefQuery(ids=wanted, limit=None)) if wanted else ():
                found[each.id] = each
                waiting.append(each)
        return sorted(found.values(), key=lambda each: (each.at, each.position, each.id))

    # -- Changing

    async def add(self, kind: BeliefKind, text: str, *, origin: Origin = "user") -> Belief:
        """Record a statement as a belief; returns the belief. If it is known already, it is supported by the new event.

        Raises InvalidInput for an unknown kind or an empty text.
        """
        _check_choice("kind", kind, KINDS)
        data = {"kind": kind, "text": self._checked(text)}
        return await self._recorded(self._log.emit(ADDED, data, origin=origin))

    async def correct(self, reference: Belief | Reference, text: str, *, origin: Origin = "user") -> Belief:
        """Replace a belief by a statement of the same kind with this text; returns the new belief.

        A mark that says nothing else is retracted, so the old text stays in the history only. A longer mark stays, and
        only the belief is replaced.
        """
        belief = await self.get(reference)
        if belief.state == "ended":
            raise InvalidInput(_describe_end(belief))
        self._check_authority(belief, origin)
        checked = self._checked(text)
        stated_in = await self._events.get_many(builtins.list(belief.evidence))
        data = {"text": checked, "tags": [belief.kind, CORRECTION], "replaces": [belief.id]}
        parent = next((each for each in stated_in if each.name == MARK), None)
        ref = self._log.emit(MARK, data, parent=parent, origin=origin)
        for event in stated_in:
            if event.name == MARK and _says_only(decode_mark(event).text, belief.text):
                self._retract(event, by=ref)
        self._log.notify_withdrawn()
        return await self._recorded(ref)

    async def correct_mark(self, mark: Event, text: str, *, origin: Origin = "user") -> Ref:
        """Replace a mark by one with this text; returns its reference. What the old mark supported is replaced."""
        if mark.name != MARK:
            raise InvalidInput(f"event {mark.number} is a {mark.name}; only marks and beliefs are corrected")
        checked = self._checked(text)
        beliefs = [each for each in await self.of_event(mark.id) if each.state != "ended"]
        for belief in beliefs:
            self._check_authority(belief, origin)
        tags = dict.fromkeys([*decode_mark(mark).tags, CORRECTION])
        data = {"text": checked, "tags": builtins.list(tags), "replaces": [mark.id]}
        ref = self._log.emit(MARK, data, parent=mark, context=mark.context, origin=origin)
        self._retract(mark, by=ref)
        self._log.notify_withdrawn()
        await self._log.stored()
        await self.refresh()
        return ref

    async def confirm(self, reference: Belief | Reference) -> Belief:
        """Record that a person looked at a belief and it holds; returns it. A forming belief is held from then on."""
        belief = await self.get(reference)
        self._log.emit(CONFIRMED, self._naming(belief), origin="user")
        return await self._after(belief)

    async def end(
        self,
        reference: Belief | Reference,
        *,
        reason: str = "",
        ending: Ending = "withdrawn",
        origin: Origin = "user",
    ) -> Belief:
        """End a belief and return it; one that has ended already stays as it is.

        Raises InvalidInput for an unknown ending, and ReservedForUser if an agent tries to end a user's rule,
        preference or decision.
        """
        if ending not in ("withdrawn", "done", "answered", "expired", "replaced"):
            raise InvalidInput(f"there is no ending {ending!r}; use withdrawn, done, answered, expired or replaced")
        belief = await self.get(reference)
        if belief.state == "ended":
            return belief
        self._check_authority(belief, origin)
        if reason:
            self._log.check_asserted(reason)
        data = {**self._naming(belief), "ending": ending, "reason": redact(reason.strip())}
        self._log.emit(ENDED, data, origin=origin)
        self._log.notify_withdrawn()
        return await self._after(belief)

    # -- The file

    async def edit_text(self) -> str:
        """Return all beliefs in force as one Markdown file, one line each with its id, for a person to edit."""
        return render(await self.in_force())

    async def apply_edit(self, text: str, *, original: str, is_confirmed: bool = False) -> BeliefEdit:
        """Apply an edited file; returns what changed. `original` is the text that `edit_text` returned before.

        A changed line corrects its belief, a deleted line ends it, and a new line adds one. Beliefs that were learned
        while the file was edited stay. A belief that has ended since is not changed; `skipped` has its new text. Raises
        InvalidInput, and changes nothing, for a file that cannot be understood, or one that ends most beliefs without
        `is_confirmed`.
        """
        edit = parse(text, original=original, is_confirmed=is_confirmed)
        for _, new in (*edit.corrected, *edit.added):
            self._checked(new)
        await self.refresh()
        named = (*(each for each, _ in edit.corrected), *edit.ended)
        found = await self._table.query(BeliefQuery(ids=named, limit=None)) if named else []
        current = {each.id for each in found if each.state != "ended"}
        corrected = [(each, new) for each, new in edit.corrected if each in current]
        skipped = tuple((each, new) for each, new in edit.corrected if each not in current)
        ended = [each for each in edit.ended if each in current]
        for identifier, new in corrected:
            await self.correct(identifier, new)
        for identifier in ended:
            await self.end(identifier, reason="deleted from the file of beliefs")
        for kind, new in edit.added:
            await self.add(kind, new)
        return BeliefEdit(corrected=tuple(corrected), ended=tuple(ended), added=edit.added, skipped=skipped)

    # -- Parts

    def _checked(self, text: str) -> str:
        """Return a text with secrets redacted, on one line. Raises InvalidInput if it is empty or was purged."""
        flat = " ".join(text.split()) if isinstance(text, str) else ""
        if not flat:
            raise InvalidInput(f"a belief needs a text, not {text!r}")
        self._log.check_asserted(flat)
        return redact(flat)

    def _check_authority(self, belief: Belief, origin: Origin) -> None:
        if origin != "user" and belief.by == "user" and belief.kind in ("rule", "preference", "decision"):
            raise ReservedForUser(belief.id, belief.kind)

    def _retract(self, event: Event, *, by: Ref) -> None:
        data = {"mark": event.id, "reason": f"corrected by {by.id}"}
        self._log.emit(RETRACTED, data, parent=event, origin="user")

    def _naming(self, belief: Belief) -> dict[str, object]:
        return {"belief": belief.id, "kind": belief.kind, "evidence": builtins.list(belief.evidence)}

    async def _recorded(self, ref: Ref) -> Belief:
        """Return the belief that a new event supports."""
        await self._log.stored()
        found = [each for each in await self.of_event(ref.id) if each.state != "ended"]
        if not found:
            raise InvalidInput("this statement was not stored as a belief; it may contain a purged value")
        return found[0]

    async def _after(self, belief: Belief) -> Belief:
        await self._log.stored()
        return await self.get(belief.id)


def _says_only(text: str, statement: str) -> bool:
    """Return True if a text has hardly more words than a statement that was learned from it."""
    return len(words(text)) <= len(words(statement)) + MORE_WORDS_MAX


def _states(state: BeliefState | None) -> tuple[BeliefState, ...]:
    return CURRENT if state is None else (state,)


def _describe_end(belief: Belief) -> str:
    by = f" by {belief.replaced_by}" if belief.replaced_by else ""
    return f"belief {belief.id} has ended ({belief.ending}{by}); correct what replaced it, or add a new one"


def _check_choice(name: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise InvalidInput(f"there is no {name} {value!r}; use one of {', '.join(choices)}")
