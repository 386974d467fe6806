"""Recent activity: sessions, open sessions, the most used files and their token cost, model usage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from mica.format.titles import make_title
from mica.model.event import CRYSTAL, MARK, SESSION_ENDED, Event, EventId
from mica.redact import redact

STEP_NAMES = ("file.read", "file.edit", "file.create")  # the events that count as a visit to a file
REQUESTS_MAX = 5  # prompts of a session that are tried for its title


class SessionLine(msgspec.Struct, kw_only=True):
    """A summary of one session: its times, its first prompt, its closing words and the counts of its events."""

    session: str
    started_at: datetime
    ended_at: datetime
    title: str = ""  # what it was about: from its task, its first request or its first commit
    prompt: str = ""  # the first prompt or slash command
    closing: str = ""  # the text of the latest mark tagged `closing`
    prompts: int = 0
    reads: int = 0
    edits: int = 0
    commands: int = 0
    failures: int = 0
    tokens_read: int = 0


class SessionWords(msgspec.Struct):
    """What the title of a session is made of."""

    task: str = ""  # the latest
    requests: list[str] = []  # the first few prompts
    commit: str = ""  # the first

    def add(self, event: Event) -> None:
        """Take up an event of the session. Events must come in order of time."""
        self.task = event.context.task or self.task
        if event.name != MARK:
            return
        tags = event.data.get("tags")
        text = str(event.data.get("text", ""))
        if isinstance(tags, list) and "prompt" in tags and len(self.requests) < REQUESTS_MAX:
            self.requests.append(text)
        elif isinstance(tags, list) and "commit" in tags:
            self.commit = self.commit or text

    @property
    def title(self) -> str:
        return make_title(task=redact(self.task), requests=self.requests, commits=[self.commit])


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """How often one file was read and edited, and the tokens spent on reading it."""

    path: str
    sessions: int
    turns: int
    reads: int
    edits: int
    tokens: int


class Visit(msgspec.Struct, kw_only=True):
    """Counts of the accesses to one file, and the latest access event."""

    path: str
    votes: float = 0.0  # the sum of the weights of the turns; see `count_visits`
    turns: set[EventId] = msgspec.field(default_factory=set)  # the ids of their root events
    sessions: set[str] = msgspec.field(default_factory=set)
    tokens: int = 0
    reads: int = 0
    edits: int = 0
    last: Event | None = None


class UsageTotals(msgspec.Struct, kw_only=True):
    """The number of model answers, and the sums of their tokens."""

    answers: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of recent work: the latest sessions, the most used files and the token totals."""

    sessions: tuple[SessionLine, ...]  # the latest first
    files: tuple[FileLine, ...]  # files used by the most sessions first
    usage: UsageTotals
    events: int  # number of events summarized; mica's own records are not counted
    since: datetime | None  # the time of the first summarized event
    is_partial: bool = False  # True if there are older events


OURS = ("transcript.read", "brief", CRYSTAL)  # recorded by mica itself, not by an agent


def overview(everything: Sequence[Event], *, is_partial: bool = False, sessions: int = 8, files: int = 10) -> Overview:
    """Summarize events, which must be sorted by time. Events that mica itself recorded (OURS) are ignored.

    The result has at most `sessions` sessions and `files` files. `is_partial` is copied into the result.
    """
    events = [event for event in everything if event.name not in OURS]
    lines: dict[str, SessionLine] = {}
    words: defaultdict[str, SessionWords] = defaultdict(SessionWords)
    usage = UsageTotals()
    for event in events:
        if event.context.session is not None:
            _count(lines, event.context.session, event)
            words[event.context.session].add(event)
        if event.name == "model.answer":
            _add(usage, event)
    ranked = sorted(lines.values(), key=lambda line: (line.ended_at, line.session), reverse=True)[:sessions]
    for line in ranked:
        line.title = words[line.session].title
    return Overview(
        sessions=tuple(ranked),
        files=tuple(file_lines(event for event in events if event.name in STEP_NAMES)[:files]),
        usage=usage,
        events=len(events),
        since=events[0].at if events else None,
        is_partial=is_partial,
    )


def file_lines(steps: Iterable[Event]) -> list[FileLine]:
    """Return one `FileLine` for each file that the events in `steps` accessed.

    Files used in more sessions come first; then those used in more turns, then those with more tokens.
    """
    lines = [
        FileLine(
            path=visit.path,
            sessions=len(visit.sessions),
            turns=len(visit.turns),
            reads=visit.reads,
            edits=visit.edits,
            tokens=visit.tokens,
        )
        for visit in count_visits(steps)
    ]
    return sorted(lines, key=lambda line: (-line.sessions, -line.turns, -line.tokens, line.path))


def count_visits(steps: Iterable[Event], weights: dict[EventId, float] | None = None) -> list[Visit]:
    """Count the accesses to each file, in order of first access. Failed accesses are ignored.

    `steps` are the events that accessed files. A turn is all events with the same root. `votes` of a file is the sum of
    the weights of the turns that used it. `weights` maps the id of a turn's root event to the weight of the turn; a
    turn that is not in it has weight 0. If `weights` is None or empty, every turn has weight 1.
    """
    visits: dict[str, Visit] = {}
    votes: dict[str, dict[EventId, float]] = defaultdict(dict)
    for step in steps:
        data = step.data
        path = data.get("path")
        if step.error or not isinstance(path, str):
            continue
        visit = visits.setdefault(path, Visit(path=path))
        votes[path][step.root_id] = (weights or {}).get(step.root_id, 0.0 if weights else 1.0)
        visit.turns.add(step.root_id)
        visit.sessions.add(step.context.session or "")
        tokens = data.get("tokens")
        visit.tokens += tokens if isinstance(tokens, int) and step.name == "file.read" else 0
        visit.reads += step.name == "file.read"
        visit.edits += step.name != "file.read"
        visit.last = step if visit.last is None or step.at >= visit.last.at else visit.last
    for path, visit in visits.items():
        visit.votes = math.fsum(votes[path].values())
    return list(visits.values())


def _count(lines: dict[str, SessionLine], session: str, event: Event) -> None:
    line = lines.get(session)
    if line is None:
        line = lines[session] = SessionLine(session=session, started_at=event.at, ended_at=event.at)
    line.ended_at = max(line.ended_at, event.at)
    line.failures += event.error
    if event.name == MARK:
        data = event.data
        text, tags = str(data.get("text", "")), data.get("tags")
        tags = tags if isinstance(tags, list) else []
        if "prompt" in tags:
            line.prompts += 1
            line.prompt = line.prompt or text
        elif "closing" in tags:
            line.closing = text
    elif event.name == "command.run":
        data = event.data
        line.prompts += 1
        line.prompt = line.prompt or f"/{str(data.get('name')).lstrip('/')} {data.get('args') or ''}"
    elif event.name == "shell.run":
        line.commands += 1
    elif event.name in STEP_NAMES and not event.error:
        line.reads += event.name == "file.read"
        line.edits += event.name != "file.read"
        tokens = event.data.get("tokens")
        line.tokens_read += tokens if event.name == "file.read" and isinstance(tokens, int) else 0


def _add(usage: UsageTotals, event: Event) -> None:
    usage.answers += 1
    data = event.data
    for field in ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens"):
        value = data.get(field)
        setattr(usage, field, getattr(usage, field) + (value if isinstance(value, int) else 0))


# -- Open sessions --------------------------------------------------------------------------------------------


IDLE = timedelta(minutes=30)


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session without an end event, with its latest event."""

    session: str
    agents: tuple[str, ...]  # recently active in the session
    last: Event
    title: str = ""  # what it is about, from its recent events

    @property
    def last_at(self) -> datetime:
        return self.last.at


def open_sessions(recent: Iterable[Event]) -> list[OpenSession]:
    """Return the sessions without an end event, the most recently active one last.

    `recent` must contain all events of the last 30 minutes (IDLE). A session whose events are all earlier is left out.
    """
    sessions: dict[str, OpenSession] = {}
    words: defaultdict[str, SessionWords] = defaultdict(SessionWords)
    for event in sorted(recent, key=lambda event: event.sort_key):
        session = event.context.session
        if session is None:
            continue
        words[session].add(event)
        before = sessions.pop(session, None)
        if event.name == SESSION_ENDED:
            continue
        agents = {*(before.agents if before else ()), *filter(None, [event.context.agent])}
        sessions[session] = OpenSession(session=session, agents=tuple(sorted(agents)), last=event)
    return [msgspec.structs.replace(each, title=words[each.session].title) for each in sessions.values()]
