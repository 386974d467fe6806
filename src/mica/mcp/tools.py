"""The six tools: what a model is told of each, and what each asks of memory.

Their texts never change while mica runs and hold nothing that was learned: they stand in every request of a client, in
the part of it that is cached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from mica.brief.layout import OPENING
from mica.errors import InvalidInput, StoreError
from mica.format.lines import one_line
from mica.memory import Memory
from mica.model.event import EventId, Ref
from mica.model.walk import Outcome
from mica.redact import redact
from mica.search.search import CrystalHit, collapsed

TEXT_CHARACTERS_MAX = 600  # of one hit or source: enough to judge it, and its number leads to the whole
HITS_MAX = 50
EVIDENCE_MAX = 5  # of one line; a screen, not a log
RECALLED = OPENING.partition(" ")[0] + ' from="mica"'  # how the fence around recalled text begins

Schema = dict[str, object]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, as it is listed and as it is called."""

    name: str
    title: str
    description: str
    takes: type[msgspec.Struct]
    inputs: dict[str, Schema]
    required: tuple[str, ...]
    outputs: dict[str, Schema]
    run: Callable[[Memory, Any], Awaitable[dict[str, object]]]
    writes: bool = False

    def listed(self) -> dict[str, object]:
        """What `tools/list` says of it."""
        hints = {"destructiveHint": False} if self.writes else {"readOnlyHint": True}
        takes = {"required": list(self.required)} if self.required else {}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": self.inputs, **takes},
            "outputSchema": {"type": "object", "properties": self.outputs, "required": list(self.outputs)},
            "annotations": {**hints, "openWorldHint": False},
        }

    async def call(self, memory: Memory, arguments: object) -> dict[str, object]:
        """What it answers. Raises InvalidInput when the arguments are not its own, and what memory raises."""
        try:
            taken = msgspec.convert(arguments, self.takes, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{self.name}: {error}") from error
        return await self.run(memory, taken)


Count = Annotated[int, msgspec.Meta(ge=1)]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def described(schema: Schema, words: str) -> Schema:
    return {**schema, "description": words}


def listing(**fields: Schema) -> Schema:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


# -- brief ------------------------------------------------------------------------------------------------------


class BriefAsked(msgspec.Struct):
    query: str = ""
    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


async def _brief(memory: Memory, asked: BriefAsked) -> dict[str, object]:
    brief = await memory.brief(asked.query, budget_tokens=asked.budget_tokens)
    return {"text": brief.text, "tokens": brief.tokens, "receipt": brief.receipt or "", "missing": brief.missing}


# -- search -----------------------------------------------------------------------------------------------------


class SearchAsked(msgspec.Struct):
    query: str
    limit: Count = 10
    since: str | None = None
    until: str | None = None
    tags: tuple[str, ...] = ()


async def _search(memory: Memory, asked: SearchAsked) -> dict[str, object]:
    limit = min(asked.limit, HITS_MAX)
    found = await memory.search(asked.query, limit=4 * limit, since=asked.since, until=asked.until, tags=asked.tags)
    hits = [
        {
            "number": f"#{hit.position}",
            "text": one_line(hit.text, TEXT_CHARACTERS_MAX),
            "tags": (hit.crystal.level,) if isinstance(hit, CrystalHit) else hit.mark.tags,
            "at": hit.at.isoformat(timespec="seconds"),
            "times": times,
        }
        for hit, times in collapsed(found)[:limit]
    ]
    return {"hits": hits}


# -- mark -------------------------------------------------------------------------------------------------------


class MarkAsked(msgspec.Struct):
    text: str
    tags: tuple[str, ...] = ()
    why: str | None = None
    parent: str | None = None
    steps: tuple[dict[str, object], ...] = ()
    outcome: Outcome = "unknown"
    workflow: str | None = None
    trail: str | None = None


async def _mark(memory: Memory, asked: MarkAsked) -> dict[str, object]:
    if RECALLED in asked.text:
        raise InvalidInput("this text was recalled from memory; mark what is new, in your own words")
    followed = None if asked.trail is None else await memory.trails.show(asked.trail)
    ref = await _walked(memory, asked) if asked.steps else await _marked(memory, asked)
    if followed is not None:
        await memory.trails.track(followed, outcome=asked.outcome)
    number = ""
    try:
        number = (await memory.event(ref.id)).number
    except StoreError:  # the store is away: it is kept here, and stored later
        await memory.durable()
    return {"id": ref.id, "number": number, "text": redact(asked.text)}


async def _marked(memory: Memory, asked: MarkAsked) -> Ref:
    if asked.workflow is not None or (asked.outcome != "unknown" and asked.trail is None):
        raise InvalidInput("an outcome is of a walk or a trail, a workflow of a walk; give its steps too")
    parent = None if asked.parent is None else await memory.event(asked.parent)
    return memory.mark(asked.text, tags=asked.tags, why=asked.why, parent=parent, origin="agent")


async def _walked(memory: Memory, asked: MarkAsked) -> Ref:
    """What an orchestrator saw of a task: a walk, which trails are learned from."""
    if asked.tags or asked.why or asked.parent:
        raise InvalidInput("a walk has a text, steps, an outcome and a workflow; mark the rest by itself")
    steps = [{"operation": "read", **step} for step in asked.steps]
    return memory.walk(asked.text, steps, outcome=asked.outcome, workflow=asked.workflow)


# -- navigate ---------------------------------------------------------------------------------------------------


class NavigateAsked(msgspec.Struct):
    task: str
    limit: Count = 10


async def _navigate(memory: Memory, asked: NavigateAsked) -> dict[str, object]:
    found = await memory.navigate(asked.task, limit=min(asked.limit, HITS_MAX))
    files = [
        {
            "path": place.path,
            "lines": " ".join(f"{lines.start}-{lines.end}" for lines in place.lines),
            "probability": round(place.probability, 2),
            "reason": "; ".join(place.reasons),
        }
        for place in found
    ]
    return {"files": files, "missing": found.missing}


# -- crystal_commit ---------------------------------------------------------------------------------------------


class StatementGiven(msgspec.Struct):
    text: str
    marks: tuple[str, ...] = ()


class CommitAsked(msgspec.Struct):
    statements: tuple[StatementGiven, ...]
    topics: tuple[str, ...] = ()


async def _commit(memory: Memory, asked: CommitAsked) -> dict[str, object]:
    if any(RECALLED in statement.text for statement in asked.statements):
        raise InvalidInput("a statement holds recalled text; say it in your own words")
    insight: list[tuple[str, list[EventId]]] = []
    for statement in asked.statements:
        insight.append((statement.text, [(await memory.event(each)).id for each in statement.marks]))
    cited = [each for _, marks in insight for each in marks]
    here = memory.here.context
    with memory.context(agent=here.agent or dict(here.labels).get("client")):  # who said it
        crystal = await memory.commit_crystal(insight, sources=cited, topics=asked.topics)
    return {
        "id": crystal.id,
        "number": f"#{crystal.position}",
        "period": crystal.period,
        "marks": len(crystal.sources),
        "not_taken_up": len(crystal.dropped),
    }


# -- why --------------------------------------------------------------------------------------------------------


class WhyAsked(msgspec.Struct):
    id: str


async def _why(memory: Memory, asked: WhyAsked) -> dict[str, object]:
    because = [
        {
            "text": one_line(line.text, TEXT_CHARACTERS_MAX),
            "source": line.source or found.name,
            "evidence": [
                {
                    "number": each.number,
                    "name": each.name,
                    "at": each.at.isoformat(timespec="seconds"),
                    "session": each.session or "",
                    "text": one_line(each.text, TEXT_CHARACTERS_MAX),
                }
                | ({} if each.retracted is None else {"retracted": one_line(each.retracted, TEXT_CHARACTERS_MAX)})
                for each in line.evidence[:EVIDENCE_MAX]
            ],
        }
        | ({} if found.retracted is None else {"retracted": one_line(found.retracted, TEXT_CHARACTERS_MAX)})
        for found in await memory.why(asked.id)
        for line in found.because
    ]
    return {"because": because}


TOOLS = (
    Tool(
        name="brief",
        title="Brief",
        description="What earlier sessions in this project learned about a task: decisions, gotchas, open ends, files. "
        "Call it once when a task begins.",
        takes=BriefAsked,
        inputs={
            "query": described(TEXT, "the task, in its own words"),
            "budget_tokens": described(NUMBER, "tokens at the most"),
        },
        required=(),
        outputs={
            "text": TEXT,
            "tokens": NUMBER,
            "receipt": described(TEXT, "id for `why`"),
            "missing": {"type": "object"},
        },
        run=_brief,
    ),
    Tool(
        name="search",
        title="Search",
        description="Find what was said, decided, asked or committed earlier in this project, best first.",
        takes=SearchAsked,
        inputs={
            "query": TEXT,
            "limit": NUMBER,
            "since": described(TEXT, "a time or phrase: 2026-11-03, last Tuesday"),
            "until": TEXT,
            "tags": TEXTS,
        },
        required=("query",),
        outputs={"hits": listing(number=TEXT, text=TEXT, tags=TEXTS, at=TEXT, times=NUMBER)},
        run=_search,
    ),
    Tool(
        name="mark",
        title="Mark",
        description="Record one observation that later sessions should know: a cause found, a decision with its "
        "reason, a trap. Not what the code says by itself. Answers with what was stored.",
        takes=MarkAsked,
        inputs={
            "text": described(TEXT, "one or two sentences that stand alone"),
            "tags": described(TEXTS, "such as gotcha, decision, question, next"),
            "why": described(TEXT, "why it matters"),
            "parent": described(TEXT, "number of the mark it follows from"),
            "steps": described(
                {"type": "array", "items": {"type": "object"}},
                "of a workflow's task, told by `text`: path, operation, start_line, end_line",
            ),
            "outcome": described(TEXT, "of steps or trail: success, failure"),
            "trail": described(TEXT, "the one that was followed"),
            "workflow": described(TEXT, "such as adw_build"),
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
        takes=NavigateAsked,
        inputs={"task": described(TEXT, "the task, in its own words"), "limit": NUMBER},
        required=("task",),
        outputs={
            "files": listing(
                path=TEXT,
                lines=described(TEXT, "where to begin; empty: the whole file"),
                probability={"type": "number"},
                reason=TEXT,
            ),
            "missing": {"type": "object"},
        },
        run=_navigate,
    ),
    Tool(
        name="crystal_commit",
        title="Commit crystal",
        description="Say what this session meant, when it ends or is handed over: a few statements, each with the "
        "numbers of the marks it rests on. Shorter than those marks together.",
        takes=CommitAsked,
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
        outputs={"id": TEXT, "number": TEXT, "period": TEXT, "marks": NUMBER, "not_taken_up": NUMBER},
        run=_commit,
        writes=True,
    ),
    Tool(
        name="why",
        title="Why",
        description="Where something recalled comes from.",
        takes=WhyAsked,
        inputs={"id": described(TEXT, "a brief's receipt, a number such as #12, or a line that ends in one")},
        required=("id",),
        outputs={"because": listing(text=TEXT, source=TEXT, evidence={"type": "array", "items": {"type": "object"}})},
        run=_why,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
