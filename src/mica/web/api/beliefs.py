"""`memory.beliefs` over HTTP: list, get, history, add, correct, confirm, end, edit_text, apply_edit."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mica.beliefs.edit_file import BeliefEdit
from mica.memory import Memory
from mica.model.belief import Belief, BeliefKind, BeliefState, Ending
from mica.model.event import Origin
from mica.web.api.fields import Limit, Moment, Reference, Words
from mica.web.operations import API

FILE_CHARACTERS_MAX = 1_000_000  # of the edited file; all beliefs in force are far shorter


class BeliefsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: BeliefKind | None = None
    state: BeliefState | None = None
    limit: Limit = 200
    at: Moment | None = None


class BeliefList(msgspec.Struct, frozen=True, kw_only=True):
    """Beliefs, those with the latest evidence first."""

    beliefs: list[Belief]


@API.get("beliefs.list", needs="read")
async def list_beliefs(memory: Memory, request: BeliefsRequest) -> BeliefList:
    """List what holds: the beliefs in force and those that are forming, or those of one state.

    With `at`, they are as of that time.
    """
    listed = await memory.beliefs.list(request.kind, request.state, limit=request.limit, at=request.at)
    return BeliefList(beliefs=listed)


class BeliefRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference  # the id of a belief, or of an event that states exactly one


@API.get("beliefs.get", needs="read")
async def get_belief(memory: Memory, request: BeliefRequest) -> Belief:
    """Get one belief by its id, or by an event that states it."""
    return await memory.beliefs.get(request.reference)


@API.get("beliefs.history", needs="read")
async def history(memory: Memory, request: BeliefRequest) -> BeliefList:
    """List a belief with all that it replaced and all that replaced it, oldest first."""
    return BeliefList(beliefs=await memory.beliefs.history(request.reference))


class AddBeliefRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: BeliefKind
    text: Words
    origin: Origin = "user"


@API.post("beliefs.add", needs="write")
async def add(memory: Memory, request: AddBeliefRequest) -> Belief:
    """Record a statement as a belief. If it is known already, it gets one more piece of evidence."""
    return await memory.beliefs.add(request.kind, request.text, origin=request.origin)


class CorrectBeliefRequest(BeliefRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Words
    origin: Origin = "user"


@API.post("beliefs.correct", needs="write")
async def correct_belief(memory: Memory, request: CorrectBeliefRequest) -> Belief:
    """Replace a belief by a statement of the same kind with this text, and return the new one."""
    return await memory.beliefs.correct(request.reference, request.text, origin=request.origin)


@API.post("beliefs.confirm", needs="write")
async def confirm(memory: Memory, request: BeliefRequest) -> Belief:
    """Record that a person looked at a belief and it holds."""
    return await memory.beliefs.confirm(request.reference)


class EndBeliefRequest(BeliefRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    ending: Ending = "withdrawn"
    origin: Origin = "user"


@API.post("beliefs.end", needs="write")
async def end(memory: Memory, request: EndBeliefRequest) -> Belief:
    """End a belief. One that has ended already stays as it is."""
    return await memory.beliefs.end(
        request.reference, reason=request.reason, ending=request.ending, origin=request.origin
    )


class BeliefFile(msgspec.Struct, frozen=True, kw_only=True):
    """All beliefs in force as one Markdown file."""

    text: str


@API.get("beliefs.edit_text", needs="read")
async def edit_text(memory: Memory) -> BeliefFile:
    """Get all beliefs in force as one Markdown file, one line each with its id, for a person to edit."""
    return BeliefFile(text=await memory.beliefs.edit_text())


FileText = Annotated[str, msgspec.Meta(max_length=FILE_CHARACTERS_MAX)]


class ApplyEditRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: FileText
    original: FileText  # as `edit_text` returned it
    is_confirmed: bool = False  # needed for an edit that ends most beliefs


@API.post("beliefs.apply_edit", needs="write")
async def apply_edit(memory: Memory, request: ApplyEditRequest) -> BeliefEdit:
    """Apply an edited file: a changed line corrects its belief, a deleted line ends it, a new line adds one."""
    return await memory.beliefs.apply_edit(request.text, original=request.original, is_confirmed=request.is_confirmed)
