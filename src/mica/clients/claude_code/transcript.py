"""Claude Code transcripts, read into events.

`~/.claude/projects/<folder>/<session>.jsonl` has one record a line; subagents write files of their own beside
it. Every read, search, edit and command becomes an event in the order of access, with its lines, tokens and
hash (A-12, TA-02); prompts, commits and closing words become marks, verbatim but for secrets (U-01). Text
that hooks, memory or the host put before the model becomes nothing (TC-11).

An event's id follows from what the transcript calls the thing (a prompt, a call, an answer): reading a file
twice, in pieces, in another order or as a fork gives the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mica.clients import reader as reading
from mica.clients.claude_code.records import BEGINNING, CLIENT, IGNORED, RECORD, Record, is_ignored
from mica.clients.claude_code.turns import RECORDS, Transcript
from mica.clients.reader import Head
from mica.clients.records import Tally, lines
from mica.model.event import Event

__all__ = ["CLIENT", "Head", "Tally", "extent", "find", "head", "numbers", "read"]

HEAD_LINES_MAX = 200  # the host writes a few dozen records before the first that names the session's folder


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """Subagents' transcripts stand among the others."""
    return reading.find_files(root, is_one=lambda name: name.endswith(".jsonl"), unreadable=unreadable)


extent = reading.file_extent
numbers = reading.line_numbers


def head(path: Path) -> Head | None:
    """Whose transcript this is, from its first lines; None when it is none. Raises OSError."""
    first: Head | None = None
    tally = Tally()
    for line in lines(path):
        try:
            record = RECORD.read(line.text, tally)
        except ValueError:
            record = Record()
        if record.session_id and (record.type in RECORDS or record.type in IGNORED):
            first = first or Head(session=record.session_id, agent=record.agent_id)
            if record.cwd:
                facts = {"cwd": record.cwd, "version": record.version, "branch": record.git_branch}
                return Head(session=first.session, agent=first.agent or record.agent_id, **facts)
        if line.number >= HEAD_LINES_MAX:
            break
    return first


def read(
    path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: Tally
) -> Iterator[tuple[int, list[Event]]]:
    transcript = Transcript(path.stem, root)
    return reading.read_lines(
        path, RECORD, transcript, start=start, closed=closed, tally=tally, skip=is_ignored, rescue=_appended
    )


def _appended(text: bytes, tally: Tally) -> Record | None:
    """The whole record that a restarted program wrote behind a torn one, on the same line."""
    begin = text.rfind(BEGINNING)
    if begin < 1:
        return None
    try:
        return RECORD.read(text[begin:], tally)
    except ValueError:
        return None
