"""The six MCP tools: their descriptions for a model, their arguments, and their calls into memory.

Clients send the descriptions to the model with every request, in the part that is cached. So the descriptions never
change while mica runs, and they contain nothing that mica has learned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from mica.brief.why import Why
from mica.errors import InvalidInput, StoreError
from mica.format.fence import OPENING, fence, neutralize
from mica.format.lines import one_line, plural
from mica.memory import Memory
from mica.model.belief import Belief
from mica.model.brief import Brief
from mica.model.event import MARK, EventId, EventQuery, Ref
from mica.model.hit import CrystalHit
from mica.model.mark import mark_of
from mica.model.walk import Outcome
from mica.redact import redact
from mica.search.search import collapse_repeats

TEXT_CHARACTERS_MAX = 600  # of one hit or source: enough to judge it; its number leads to the whole text
HITS_MAX = 50
EVIDENCE_MAX = 5  # of one line: a screen, not a log
AROUND = timedelta(hours=1)  # before and after an event, for `search` with `around`
RECALLED = OPENING.partition(" ")[0] + ' from="mica"'  # the beginning of the fence around recalled text
BRIEF_S = 2.0  # for a brief: an agent that asks for it waits longer than one that starts a session
OFF = "Briefs are switched off in this project, so nothing is shown; `mica briefs on` switches them on."
HELD_OUT = "This session gets no briefs, so that its results can be compared with others (setting brief.holdout)."
NOTHING = "Nothing is known from earlier sessions. mica records what agents do here and keeps what they mark."

Schema = dict[str, object]


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a tool, as text for the model and as structured content."""

    text: str
    content: dict[str, object]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP tool: its name, description and schemas for clients, and the function that runs it."""

    name: str
    title: str
    description: str
    takes: type[msgspec.Struct]  # the arguments are decoded into it
    inputs: dict[str, Schema]
    required: tuple[str, ...]
    outputs: dict[str, Schema]
    run: Callable[[Memory, Any], Awaitable[ToolResult]]
    writes: bool = False

    def listing(self) -> dict[str, object]:
        """Return the entry of this tool in the answer to `tools/list`."""
        hints = {"destructiveHint": False} if self.writes else {"readOnlyHint": True}
        required = {"required": list(self.required)} if self.required else {}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": self.inputs, **required},
            "outputSchema": {"type": "object", "properties": self.outputs, "required": list(self.outputs)},
            "annotations": {**hints, "openWorldHint": False},
        }

    async def call(self, memory: Memory, arguments: object) -> ToolResult:
        """Check the arguments and run the tool. Raises InvalidInput for wrong arguments, and every error of memory."""
        for name in arguments if isinstance(arguments, dict) else ():
            self._check_name(str(name))
        try:
            converted = msgspec.convert(arguments, self.takes, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{self.name}: {error}") from error
        return await self.run(memory, converted)

    def _check_name(self, name: str) -> None:
        if name in self.inputs:
            return
        near = get_close_matches(name.lower(), self.inputs, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(self.inputs)}"
        raise InvalidInput(f"{self.name} has no argument {name[:60]!r}; {hint}")


Count = Annotated[int, msgspec.Meta(ge=1)]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def with_description(schema: Schema, words: str) -> Schema:
    return {**schema, "description": words}


def array_of(**fields: Schema) -> Schema:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


def _quote(text: str, width: int = TEXT_CHARACTERS_MAX) -> str:
    """Return a text on one line, cut to `width` characters and with broken tags.

    It is used for texts in structured content, because some clients show only that to the model.
    """
    return neutralize(one_line(text, width))


def _neutral(reasons: dict[str, str]) -> dict[str, str]:
    return {neutralize(name): neutralize(reason) for name, reason in reasons.items()}


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _missing_lines(missing: dict[str, str]) -> list[str]:
    return [f"- missing: {name} ({_quote(reason)})" for name, reason in sorted(missing.items())]


# -- brief ------------------------------------------------------------------------------------------------------


class BriefArguments(msgspec.Struct):
    task: str = ""
    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


async def _brief(memory: Memory, arguments: BriefArguments) -> ToolResult:
    brief = await patient_brief(memory, arguments.task, budget_tokens=arguments.budget_tokens)
    empty = "" if brief.text else await describe_no_brief(memory, brief)
    content = {
        "text": brief.text,
        "tokens": brief.tokens,
        "receipt": brief.receipt or "",
        "missing": _neutral(brief.missing) | ({"brief": empty} if brief.is_off else {}),
    }
    return ToolResult(text=brief.text or empty, content=content)


async def patient_brief(memory: Memory, task: str, *, budget_tokens: int | None = None) -> Brief:
    """Make a brief that is complete or names what is missing, in at most BRIEF_S seconds or the configured deadline.

    The first brief of a server opens files and loads the embedding model, for which the time of a hook is too short.
    """
    deadline_s = max(BRIEF_S, memory.briefs.deadline_s)
    return await memory.brief(task, budget_tokens=budget_tokens, deadline_s=deadline_s)


async def describe_no_brief(memory: Memory, brief: Brief) -> str:
    """Return a sentence for an agent whose brief is empty.

    Either nothing is known, or no line fits into the budget, or briefs are switched off or withheld for comparison.
    """
    if brief.is_off:
        return HELD_OUT if await memory.briefs.is_on() else OFF
    if brief.needed_tokens is None:
        return NOTHING
    return f"No line fits {plural(brief.budget_tokens, 'token')}; the shortest needs {brief.needed_tokens:,}."


# -- search -----------------------------------------------------------------------------------------------------


class SearchArguments(msgspec.Struct):
    query: str = ""
    around: str | None = None
    limit: Count = 10
    since: str | None = None
    until: str | None = None
    tags: tuple[str, ...] = ()


class _SearchHit(msgspec.Struct, frozen=True):
    """A search hit as the tool `search` returns it."""

    number: str
    text: str
    tags: Sequence[str]
    at: str
    times: int

    def line(self) -> str:
        tags = f" [{', '.join(self.tags)}]" if self.tags else ""
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"- {self.number} {self.at[:16].replace('T', ' ')}{tags} {self.text}{times}"


async def _search(memory: Memory, arguments: SearchArguments) -> ToolResult:
    limit = min(arguments.limit, HITS_MAX)
    since: str | datetime | None = arguments.since
    until: str | datetime | None = arguments.until
    if arguments.around is not None:
        if since is not None or until is not None:
            raise InvalidInput("search: give `around`, or `since` and `until`, but not both")
        event = await memory.events.get(arguments.around)
        since, until = event.at - AROUND, event.at + AROUND
        if not arguments.query.strip():
            return _search_result(await _neighbours(memory, event.at, limit=limit))
    results = await memory.search(arguments.query, limit=4 * limit, since=since, until=until, tags=arguments.tags)
    return _search_result(
        [
            _SearchHit(
                f"#{hit.position}",
                _quote(hit.text),
                (hit.crystal.level,) if isinstance(hit, CrystalHit) else hit.mark.tags,
                hit.at.isoformat(timespec="seconds"),
                times,
            )
            for hit, times in collapse_repeats(results)[:limit]
        ]
    )


async def _neighbours(memory: Memory, at: datetime, *, limit: int) -> list[_SearchHit]:
    """Return at most `limit` marks that are nearest to `at` and at most an hour away (AROUND), in order of time."""
    events = await memory.events.query(EventQuery(names=(MARK,), since=at - AROUND, until=at + AROUND, limit=1_000))
    nearest = sorted(events, key=lambda event: abs(event.at - at))[:limit]
    return [
        _SearchHit(
            event.number,
            _quote(mark_of(event).text),
            mark_of(event).tags,
            event.at.isoformat(timespec="seconds"),
            1,
        )
        for event in sorted(nearest, key=lambda event: event.sort_key)
    ]


def _search_result(hits: Sequence[_SearchHit]) -> ToolResult:
    text = fence(hit.line() for hit in hits) if hits else "Nothing matches."
    return ToolResult(text=text, content={"hits": msgspec.to_builtins(hits)})


# -- mark -------------------------------------------------------------------------------------------------------


class MarkArguments(msgspec.Struct):
    text: str
    tags: tuple[str, ...] = ()
    why: str | None = None
    parent: str | None = None
    replaces: str | None = None
    ends: str | None = None
    steps: tuple[dict[str, object], ...] = ()
    outcome: Outcome = "unknown"
    workflow: str | None = None
    trail: str | None = None


async def _mark(memory: Memory, arguments: MarkArguments) -> ToolResult:
    if RECALLED in arguments.text:
        raise InvalidInput("this text was recalled from memory; mark what is new, in your own words")
    trail = None if arguments.trail is None else await memory.trails.show(arguments.trail)
    replaced, ended = await _endable(memory, arguments.replaces), await _endable(memory, arguments.ends)
    if arguments.steps:
        ref = await _record_walk(memory, arguments)
    else:
        ref = await _record_mark(memory, arguments, replaced, ended)
    if trail is not None:
        await memory.trails.track(trail, outcome=arguments.outcome)
    number = ""
    try:
        number = (await memory.events.get(ref.id)).number
    except StoreError:  # the store is unavailable: the mark waits on disk
        await memory.durable()
    stored = await asyncio.to_thread(_stored_form, arguments.text)
    where = f"Recorded as {number}" if number else f"Recorded as {ref.id}, to be stored later"
    lines = [f"{where}: {stored}"]
    lines += [f"It replaces: {_quote(each.text)}" for each in replaced]
    lines += [f"It ends: {_quote(each.text)}" for each in ended]
    beliefs = [{"id": each.id, "text": _quote(each.text)} for each in (*replaced, *ended)]
    content: dict[str, object] = {"id": ref.id, "number": number, "text": stored, "ended": beliefs}
    return ToolResult(text="\n".join(lines), content=content)


async def _endable(memory: Memory, reference: str | None) -> list[Belief]:
    return [] if reference is None else [await memory.beliefs.endable(reference, origin="agent")]


def _stored_form(text: str) -> str:
    return neutralize(redact(text))


async def _record_mark(
    memory: Memory, arguments: MarkArguments, replaced: Sequence[Belief], ended: Sequence[Belief]
) -> Ref:
    if arguments.workflow is not None or (arguments.outcome != "unknown" and arguments.trail is None):
        raise InvalidInput("`outcome` needs `steps` or `trail`, and `workflow` needs `steps`")
    parent = None if arguments.parent is None else await memory.events.get(arguments.parent)
    return await asyncio.to_thread(  # a megabyte takes seconds to redact
        memory.mark,
        arguments.text,
        tags=arguments.tags,
        why=arguments.why,
        parent=parent,
        replaces=replaced,
        ends=ended,
        origin="agent",
    )


async def _record_walk(memory: Memory, arguments: MarkArguments) -> Ref:
    if arguments.tags or arguments.why or arguments.parent or arguments.replaces or arguments.ends:
        raise InvalidInput("with `steps`, only text, outcome, workflow and trail are possible; make another mark")
    steps = [{"operation": "read", **step} for step in arguments.steps]
    return await asyncio.to_thread(
        memory.trails.record, arguments.text, steps, outcome=arguments.outcome, workflow=arguments.workflow
    )


# -- navigate ---------------------------------------------------------------------------------------------------


class NavigateArguments(msgspec.Struct):
    task: str
    limit: Count = 10


async def _navigate(memory: Memory, arguments: NavigateArguments) -> ToolResult:
    places = await memory.navigate(arguments.task, limit=min(arguments.limit, HITS_MAX))
    files: list[dict[str, object]] = [
        {
            "path": neutralize(place.path),
            "lines": " ".join(f"{lines.start}-{lines.end}" for lines in place.lines),
            "probability": round(place.probability, 2),
            "reason": neutralize("; ".join(place.reasons)),
        }
        for place in places
    ]
    lines = [
        f"- {each['path']}{':' if each['lines'] else ''}{each['lines']} ({each['probability']:.0%}) {each['reason']}"
        for each in files
    ] + _missing_lines(places.missing)
    text = fence(lines) if lines else "No file is known for this task yet; search the code."
    return ToolResult(text=text, content={"files": files, "missing": _neutral(places.missing)})


# -- handoff ----------------------------------------------------------------------------------------------------


class StatementArgument(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    marks: tuple[str, ...] = ()


class HandoffArguments(msgspec.Struct):
    statements: tuple[StatementArgument, ...]
    topics: tuple[str, ...] = ()


async def _handoff(memory: Memory, arguments: HandoffArguments) -> ToolResult:
    if any(RECALLED in statement.text for statement in arguments.statements):
        raise InvalidInput("a statement contains recalled text; write it in your own words")
    content: dict[str, object] = {"number": "", "marks": 0, "not_cited": 0}
    if arguments.statements:
        insight: list[tuple[str, list[EventId]]] = []
        for statement in arguments.statements:
            insight.append((statement.text, [(await memory.events.get(each)).id for each in statement.marks]))
        cited = [each for _, marks in insight for each in marks]
        here = memory.here.context
        with memory.context(agent=here.agent or dict(here.labels).get("client")):
            crystal = await memory.crystals.commit(insight, sources=cited, topics=arguments.topics)
        content = {
            "number": f"#{crystal.position}",
            "marks": len(crystal.sources),
            "not_cited": len(crystal.dropped),
        }
    made = await memory.handoff()
    return ToolResult(text=made.text or NOTHING, content={"text": made.text, **content})


# -- why --------------------------------------------------------------------------------------------------------


class WhyArguments(msgspec.Struct):
    id: str


async def _why(memory: Memory, arguments: WhyArguments) -> ToolResult:
    reasons = await memory.why(arguments.id)
    because = [
        {
            "text": _quote(line.text),
            "source": neutralize(line.source or each.name),
            "evidence": [
                {
                    "number": event.number,
                    "name": neutralize(event.name),
                    "at": event.at.isoformat(timespec="seconds"),
                    "session": neutralize(event.session or ""),
                    "text": _quote(event.text),
                }
                | _retraction(event.retracted)
                for event in line.evidence[:EVIDENCE_MAX]
            ],
        }
        | _retraction(each.retracted)
        for each in reasons
        for line in each.because
    ]
    lines = [line for each in reasons for line in _why_lines(each)]
    return ToolResult(text=fence(lines) if lines else "No evidence is recorded for it.", content={"because": because})


def _retraction(reason: str | None) -> dict[str, object]:
    return {} if reason is None else {"retracted": _quote(reason)}


def _why_lines(why: Why) -> list[str]:
    lines = [] if why.retracted is None else [f"Retracted: {_quote(why.retracted)}"]
    for line in why.because:
        lines.append(f"- {_quote(line.text)} ({line.source or why.name})")
        for event in line.evidence[:EVIDENCE_MAX]:
            session = f", session {event.session}" if event.session else ""
            retracted = "" if event.retracted is None else f" (retracted: {_quote(event.retracted, 200)})"
            text = _quote(event.text)
            lines.append(f"- from {event.number} {event.name}, {_minute(event.at)}{session}: {text}{retracted}")
    return lines


TOOLS = (
    Tool(
        name="brief",
        title="Brief",
        description="What earlier sessions in this project learned about a task: decisions, gotchas, open ends, files. "
        "Call it once when a task begins.",
        takes=BriefArguments,
        inputs={
            "task": with_description(TEXT, "the task, in its own words"),
            "budget_tokens": with_description(NUMBER, "the most tokens"),
        },
        required=(),
        outputs={
            "text": TEXT,
            "tokens": NUMBER,
            "receipt": with_description(TEXT, "id for `why`"),
            "missing": {"type": "object"},
        },
        run=_brief,
    ),
    Tool(
        name="search",
        title="Search",
        description="Find what was said, decided, asked or committed earlier in this project, best first.",
        takes=SearchArguments,
        inputs={
            "query": with_description(TEXT, "optional with `around`"),
            "around": with_description(TEXT, "number of an event: only the hour before and after it"),
            "limit": NUMBER,
            "since": with_description(TEXT, "a time or phrase: 2026-11-03, last Tuesday"),
            "until": TEXT,
            "tags": TEXTS,
        },
        required=(),
        outputs={"hits": array_of(number=TEXT, text=TEXT, tags=TEXTS, at=TEXT, times=NUMBER)},
        run=_search,
    ),
    Tool(
        name="mark",
        title="Mark",
        description="Record one observation that later sessions should know: a cause, a decision with its reason, "
        "a trap. Not what the code says by itself.",
        takes=MarkArguments,
        inputs={
            "text": with_description(TEXT, "one or two sentences"),
            "tags": with_description(TEXTS, "such as gotcha, decision, question, next"),
            "why": TEXT,
            "parent": with_description(TEXT, "number of the mark it follows from"),
            "replaces": with_description(TEXT, "number of what is wrong now"),
            "ends": with_description(TEXT, "of what is done or void"),
            "steps": with_description(
                {"type": "array", "items": {"type": "object"}},
                "of a workflow whose task is `text`: path, operation, start_line, end_line",
            ),
            "outcome": with_description(TEXT, "of steps or trail: success, failure"),
            "trail": TEXT,
            "workflow": TEXT,
        },
        required=("text",),
        outputs={"id": TEXT, "number": TEXT, "text": TEXT},
        run=_mark,
        writes=True,
    ),
    Tool(
        name="navigate",
        title="Navigate",
        description="Files and line ranges that a task will most likely need, learned from earlier sessions, best "
        "first. Call it before searching the code.",
        takes=NavigateArguments,
        inputs={"task": with_description(TEXT, "the task, in its own words"), "limit": NUMBER},
        required=("task",),
        outputs={
            "files": array_of(
                path=TEXT,
                lines=with_description(TEXT, "empty: the whole file"),
                probability={"type": "number"},
                reason=TEXT,
            ),
            "missing": {"type": "object"},
        },
        run=_navigate,
    ),
    Tool(
        name="handoff",
        title="Hand over",
        description="Call it when a session ends: a few statements of what it meant, each with the numbers of its "
        "marks, together shorter than these. Answers with the text for the next agent.",
        takes=HandoffArguments,
        inputs={
            "statements": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"text": TEXT, "marks": TEXTS},
                    "required": ["text", "marks"],
                },
            },
            "topics": TEXTS,
        },
        required=("statements",),
        outputs={
            "text": TEXT,
            "number": with_description(TEXT, "of the crystal"),
            "marks": NUMBER,
            "not_cited": NUMBER,
        },
        run=_handoff,
        writes=True,
    ),
    Tool(
        name="why",
        title="Why",
        description="Where something recalled comes from.",
        takes=WhyArguments,
        inputs={"id": with_description(TEXT, "a receipt, a number such as #12, or a line that ends in one")},
        required=("id",),
        outputs={"because": array_of(text=TEXT, source=TEXT, evidence={"type": "array", "items": {"type": "object"}})},
        run=_why,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
