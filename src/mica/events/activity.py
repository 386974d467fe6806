"""What agents did lately: sessions, the files they keep coming back to and what reading them cost, model usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from mica.brief.file_source import STEP_NAMES, visits
from mica.model.event import MARK, Event


class SessionLine(msgspec.Struct, kw_only=True):
    """One session in a line: what was asked, what was done, how it ended."""

    session: str
    started_at: datetime
    ended_at: datetime
    prompt: str = ""  # the first
    closing: str = ""  # the last words
    prompts: int = 0
    reads: int = 0
    edits: int = 0
    commands: int = 0
    failures: int = 0
    tokens_read: int = 0


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """One file in a line: how often it was used and what reading it cost."""

    path: str
    sessions: int
    turns: int
    reads: int
    edits: int
    tokens: int


class Usage(msgspec.Struct, kw_only=True):
    """What models were given and gave, each answer counted once."""

    answers: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees first."""

    sessions: tuple[SessionLine, ...]  # the latest first
    files: tuple[FileLine, ...]  # those that most sessions came back to first
    usage: Usage
    events: int  # that were looked at
    since: datetime | None  # the first of them
    is_partial: bool = False  # there are older ones


OURS = ("transcript.read", "brief")  # what mica itself records; nothing that an agent did


def overview(everything: Sequence[Event], *, is_partial: bool = False, sessions: int = 8, files: int = 10) -> Overview:
    """The lines to show, from events in order of time."""
    events = [event for event in everything if event.name not in OURS]
    lines: dict[str, SessionLine] = {}
    usage = Usage()
    for event in events:
        if event.context.session is not None:
            _count(lines, event.context.session, event)
        if event.name == "model.answer":
            _add(usage, event)
    ranked = sorted(lines.values(), key=lambda line: (line.ended_at, line.session), reverse=True)
    return Overview(
        sessions=tuple(ranked[:sessions]),
        files=tuple(file_lines(event for event in events if event.name in STEP_NAMES)[:files]),
        usage=usage,
        events=len(events),
        since=events[0].at if events else None,
        is_partial=is_partial,
    )


def file_lines(steps: Iterable[Event]) -> list[FileLine]:
    """Files by how many sessions and turns used them."""
    found = [
        FileLine(
            path=visit.path,
            sessions=len(visit.sessions),
            turns=len(visit.turns),
            reads=visit.reads,
            edits=visit.edits,
            tokens=visit.tokens,
        )
        for visit in visits(steps)
    ]
    return sorted(found, key=lambda line: (-line.sessions, -line.turns, -line.tokens, line.path))


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


def _add(usage: Usage, event: Event) -> None:
    usage.answers += 1
    data = event.data
    for field in ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens"):
        value = data.get(field)
        setattr(usage, field, getattr(usage, field) + (value if isinstance(value, int) else 0))
