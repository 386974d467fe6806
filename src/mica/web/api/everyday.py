"""The everyday verbs of `Memory` over HTTP: emit, mark, search, brief, navigate, handoff, why, retract, purge."""

from __future__ import annotations

import asyncio
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from mica.brief.why import Why
from mica.errors import InvalidInput
from mica.events.context import Here
from mica.format.documents import crystal_document, event_documents
from mica.memory import Memory
from mica.model.brief import RECENCY_WEIGHT, Brief, Preset
from mica.model.crystal import Waiting
from mica.model.event import Context, EventQuery, Origin, Ref
from mica.model.hit import CrystalHit, Hit
from mica.model.mark import Relation
from mica.navigation.places import Place
from mica.search.search import Depth
from mica.store.protocol import Sizes
from mica.store.purges import BY_HAND, PurgeItem, ValueMatch
from mica.upkeep.purge_listing import retract_items, selected_ids
from mica.web.api.fields import Budget, CrystalOut, Deadline, EventOut, Limit, Moment, Name, Reason, Reference, Words
from mica.web.operations import API

TEXT_CHARACTERS_MAX = 1_000_000  # of one mark over HTTP; anything larger is a file
FAILED_SHOWN = 20


# -- Recording: an answer means that the event is on disk ----------------------------------------------------------


class RequestContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an event came from. A field that is not sent is taken from the headers of the request."""

    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    task: Name | None = None
    correlation: Name | None = None
    labels: dict[Name, Name] = {}
    parent: Reference | None = None  # the event that caused it
    origin: Origin = "agent"
    at: Moment | None = None


class NewEvent(RequestContext, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to record."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    data: dict[str, Any] = {}
    error: bool = False


class EmitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events to record, oldest first."""

    events: Annotated[tuple[NewEvent, ...], msgspec.Meta(min_length=1, max_length=1_000)]


class MarkRequest(RequestContext, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An observation to record."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]
    tags: tuple[str, ...] = ()
    why: str | None = None
    principles: tuple[str, ...] = ()
    relation: Relation = "causes"
    replaces: tuple[Reference, ...] = ()  # beliefs that it replaces, or events that state them
    ends: tuple[Reference, ...] = ()


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a recorded event, the id of the first event of its chain, and its depth below that."""

    id: str
    root_id: str
    depth: int

    @classmethod
    def of(cls, ref: Ref) -> RecordedEvent:
        return cls(id=ref.id, root_id=ref.root_id, depth=ref.depth)


class EmitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded events, in the order of the request."""

    events: tuple[RecordedEvent, ...]


@API.post("emit", needs="write")
async def emit(memory: Memory, request: EmitRequest) -> EmitAnswer:
    """Record up to 1,000 events. They are on disk before the answer is sent."""
    refs = []
    for event in request.events:
        context, parent = await _context(memory, event)
        refs.append(
            memory.emit(
                event.name,
                event.data,
                parent=parent,
                context=context,
                origin=event.origin,
                error=event.error,
                at=event.at,
            )
        )
    await memory.durable()
    return EmitAnswer(events=tuple(map(RecordedEvent.of, refs)))


@API.post("mark", needs="write")
async def mark(memory: Memory, request: MarkRequest) -> RecordedEvent:
    """Record an observation in words. Secrets in it are redacted.

    A user's rule, preference or decision is replaced or ended only by a mark of the origin `user`.
    """
    context, parent = await _context(memory, request)
    replaces = [await memory.beliefs.endable(each, origin=request.origin) for each in request.replaces]
    ends = [await memory.beliefs.endable(each, origin=request.origin) for each in request.ends]
    ref = await asyncio.to_thread(  # a megabyte takes seconds to redact
        memory.mark,
        request.text,
        tags=request.tags,
        why=request.why,
        principles=request.principles,
        parent=parent,
        relation=request.relation,
        context=context,
        origin=request.origin,
        at=request.at,
        replaces=replaces,
        ends=ends,
    )
    await memory.durable()
    return RecordedEvent.of(ref)


async def _context(memory: Memory, request: RequestContext) -> tuple[Context | Here, Ref | None]:
    here = memory.here
    context = here.context.with_(
        labels=request.labels,
        session=request.session,
        agent=request.agent,
        user=request.user,
        task=request.task,
        correlation=request.correlation,
    )
    if request.parent is not None:
        return context, (await memory.events.get(request.parent)).ref
    return Here(context, here.parent), None


# -- Recall -------------------------------------------------------------------------------------------------------


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words
    limit: Limit = 10
    since: Moment | None = None
    until: Moment | None = None
    agent: Name | None = None
    tags: tuple[Name, ...] = ()
    level: Depth | None = None
    with_sources: bool = False
    with_superseded: bool = False


class SearchPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Words of the query that name a time, and the period that mica took them to mean."""

    words: str
    start_at: datetime
    end_at: datetime


class SearchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mark or crystal that matches, with the parts of its score."""

    id: str
    text: str
    at: datetime
    position: int | None
    score: float
    parts: dict[str, float]
    mark: dict[str, Any] | None = None
    crystal: dict[str, Any] | None = None

    @classmethod
    def of(cls, hit: Hit | CrystalHit) -> SearchResult:
        return cls(
            id=hit.id,
            text=hit.text,
            at=hit.at,
            position=hit.position,
            score=hit.score,
            parts=hit.parts,
            mark=msgspec.to_builtins(hit.mark) if isinstance(hit, Hit) else None,
            crystal=crystal_document(hit.crystal) if isinstance(hit, CrystalHit) else None,
        )


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The marks and crystals that match, best first, and the periods that the query names."""

    query: str
    periods: list[SearchPeriod]
    hits: list[SearchResult]


@API.get("search", needs="read")
async def search(memory: Memory, request: SearchRequest) -> SearchAnswer:
    """Find the marks and crystals that match a query, best first."""
    results = await memory.search(
        request.query,
        limit=request.limit,
        since=request.since,
        until=request.until,
        agent=request.agent,
        tags=request.tags,
        level=request.level,
        with_sources=request.with_sources,
        with_superseded=request.with_superseded,
    )
    periods = [SearchPeriod(words=each.words, start_at=each.start_at, end_at=each.end_at) for each in results.periods]
    return SearchAnswer(query=request.query, periods=periods, hits=list(map(SearchResult.of, results)))


class NewBriefRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Words = ""
    budget_tokens: Budget | None = None
    preset: Preset | None = None
    recency_weight: Annotated[float, msgspec.Meta(ge=0, le=1)] = RECENCY_WEIGHT
    deadline_s: Deadline | None = None
    is_preview: bool = False  # no agent sees it, so it gets no receipt


@API.post("brief", needs="read")
async def brief(memory: Memory, request: NewBriefRequest) -> Brief:
    """Make a brief within a budget and a deadline; `missing` lists sources that did not answer."""
    return await memory.brief(
        request.query,
        budget_tokens=request.budget_tokens,
        preset=request.preset,
        deadline_s=request.deadline_s,
        is_preview=request.is_preview,
        recency_weight=request.recency_weight,
    )


class WhyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence for each event that the request is about."""

    why: list[Why]


@API.get("why", needs="read")
async def why(memory: Memory, request: WhyRequest) -> WhyAnswer:
    """Get the evidence for a brief, a crystal or an event. `reference` is an id, a position, or a line of a brief."""
    return WhyAnswer(why=await memory.why(request.reference))


class NavigateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: Words
    limit: Limit = 10
    session: Name | None = None


class NavigateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a task will probably need, best first, and in `missing` what could not be read."""

    task: str
    places: list[Place]
    missing: dict[str, str]


@API.get("navigate", needs="read")
async def navigate(memory: Memory, request: NavigateRequest) -> NavigateAnswer:
    """List the files that a task will probably need, best first, each with lines, a probability and reasons."""
    places = await memory.navigate(request.task, limit=request.limit, session=request.session)
    return NavigateAnswer(task=request.task, places=list(places), missing=places.missing)


class HandoffRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: Name | None = None
    budget_tokens: Budget | None = None


class HandoffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The text for the next agent, within the budget, and the source of each line."""

    session: str | None
    text: str
    lines: list[dict[str, Any]]
    new_crystals: list[dict[str, Any]]
    recent_crystals: list[dict[str, Any]]
    tokens_used: int
    budget_tokens: int
    left_out: int
    errors: tuple[str, ...]


@API.post("handoff", needs="write")
async def handoff(memory: Memory, request: HandoffRequest) -> HandoffAnswer:
    """Summarize a session in crystals, and return the text that the next agent needs to start."""
    made = await memory.handoff(session=request.session, budget_tokens=request.budget_tokens)
    return HandoffAnswer(
        session=made.session,
        text=made.text,
        lines=msgspec.to_builtins(made.lines),
        new_crystals=[crystal_document(each) for each in made.new_crystals],
        recent_crystals=[crystal_document(each) for each in made.recent_crystals],
        tokens_used=made.tokens_used,
        budget_tokens=made.budget_tokens,
        left_out=made.left_out,
        errors=made.errors,
    )


# -- Correction, retraction and purge -------------------------------------------------------------------------------


class CorrectRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference  # a mark or a belief
    text: Words


class CorrectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the mark with the new text."""

    event: str


@API.post("correct", needs="write")
async def correct(memory: Memory, request: CorrectRequest) -> CorrectAnswer:
    """Replace the text of a mark or a belief. The old text stays in the history only."""
    return CorrectAnswer(event=await memory.correct(request.reference, request.text))


class RetractRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference
    reason: Reason


class RetractAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the retracted event, and of the event that retracts it."""

    retracted: str
    event: str


@API.post("retract", needs="write")
async def retract(memory: Memory, request: RetractRequest) -> RetractAnswer:
    """Retract a mark, crystal or judgment: it stays in the log, but is no longer used."""
    event = await memory.events.get(request.reference)
    return RetractAnswer(retracted=event.id, event=await memory.retract(event.id, reason=request.reason))


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events to purge. Without `confirm`, the answer is a preview with the word to send as `confirm`."""

    ids: Annotated[tuple[Reference, ...], msgspec.Meta(max_length=1_000)] = ()
    matching: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)] | None = None  # a subject in words
    keep: Annotated[tuple[Reference, ...], msgspec.Meta(max_length=1_000)] = ()  # events of what matches that stay
    with_descendants: bool = True  # also the events that descend from those that match the words
    retract: bool = False  # only retract what matches the words, which keeps it in the log
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)] | None = None
    anywhere: bool = False  # the value matches inside of longer words, too
    really: bool = False  # needed for a value with fewer than 4 characters
    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    reason: Annotated[str, msgspec.Meta(max_length=200)] = BY_HAND
    confirm: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class PurgeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The events that were purged, or would be."""

    events: int
    ids: tuple[str, ...]
    names: dict[str, int]
    sessions: tuple[str, ...]
    spellings: dict[str, int]  # each spelling of the value and the number of events with it; empty once they are purged
    matches: tuple[ValueMatch, ...]  # the same with the text around it
    inside: tuple[ValueMatch, ...]  # longer words that contain the value, in events that stay
    items: tuple[PurgeItem, ...]  # what matches the words, best first; empty once it is purged
    similar: tuple[PurgeItem, ...]  # events with only some of the words, which stay
    retracted: tuple[str, ...]  # ids of events that were retracted instead of purged
    first: list[EventOut]
    record: str | None
    applies_later: bool  # the purge also applies to matching events that arrive later
    exports: tuple[str, ...]
    removed: tuple[str, ...]
    remade: list[CrystalOut]  # crystals that were made again from the remaining marks
    ended: tuple[Waiting, ...]  # crystals that could not be made again, and why
    unreached: tuple[str, ...]
    confirm: str | None  # send the same request with this word to purge for good; None once it is done


@API.post("purge", needs="admin")
async def purge(memory: Memory, request: PurgeRequest) -> PurgeAnswer:
    """Remove the content of every event that matches all fields; a tombstone remains in its place.

    It takes two requests. Without `confirm`, the answer is a preview that contains a word. The same request with that
    word as `confirm` purges the events. This second request is refused if other events match by then. `matching` finds
    everything about a subject: `items` of the preview lists the events, and `keep` leaves some of them out.
    """
    conditions = msgspec.structs.asdict(request)
    confirm = conditions.pop("confirm")
    retract = conditions.pop("retract")
    if retract and request.matching is None:
        raise InvalidInput("`retract` belongs to `matching`; to retract one event, use the endpoint `retract`")
    preview = await memory.purge(**conditions, dry_run=True)
    content = [memory.space, conditions, retract, sorted(preview.ids)]
    word = blake2b(msgspec.json.encode(content), digest_size=12).hexdigest()
    if confirm is not None and confirm != word:
        raise InvalidInput(f"{confirm!r} confirms another selection; send the request without it to see this one")
    done, retracted = preview, []
    if confirm is not None and retract:
        retracted = await retract_items(memory.retract, preview.items, reason=request.reason)
    elif confirm is not None and request.matching is not None:
        done = await memory.purge(ids=selected_ids(preview.items), reason=request.reason) if preview.items else preview
    elif confirm is not None:
        done = await memory.purge(**conditions)
    fields = {name: getattr(done, name) for name in done.__struct_fields__}
    fields |= {"first": event_documents(done.first), "remade": list(map(crystal_document, done.remade))}
    return PurgeAnswer(**fields, retracted=tuple(retracted), confirm=word if confirm is None else None)


# -- Health -------------------------------------------------------------------------------------------------------


class DoctorRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verify: bool = False  # also check all stored data, which takes seconds for each million events


class DoctorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a space: its size, its backlog, failed jobs, and problems in the stored data."""

    healthy: bool
    verified: bool  # all stored data was checked
    location: str
    position: int
    sizes: Sizes
    backlog_events: int
    backlog_bytes: int
    marks_without_vector: int | None
    problems: list[str]
    work: list[dict[str, Any]]  # scheduled jobs, and the process that holds each
    failed_work: list[EventOut]


@API.get("doctor", needs="read")
async def doctor(memory: Memory, request: DoctorRequest) -> DoctorAnswer:
    """Report the health of a space: its location, size, backlog, failed jobs, and problems in the stored data."""
    events, size_bytes = await memory.upkeep.backlog()
    problems = [*memory.upkeep.damaged, *(await memory.upkeep.verify() if request.verify else ())]
    failed = await memory.events.query(EventQuery(names=("job.failed",), limit=FAILED_SHOWN))
    return DoctorAnswer(
        healthy=not problems,
        verified=request.verify,
        location=memory.location,
        position=await memory.events.position(),
        sizes=await memory.upkeep.sizes(),
        backlog_events=events,
        backlog_bytes=size_bytes,
        marks_without_vector=await memory.upkeep.without_vector(),
        problems=problems,
        work=[msgspec.to_builtins(each) for each in await memory.upkeep.planned()],
        failed_work=event_documents(failed),
    )
