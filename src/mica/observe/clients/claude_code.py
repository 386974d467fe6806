"""Claude Code transcripts, read into events.

`~/.claude/projects/<folder>/<session>.jsonl` has one record a line; subagents write files of their own beside
it. Every read, search, edit and command becomes an event in the order of access, with its lines, tokens and
hash (A-12, TA-02); prompts, commits and closing words become marks, verbatim but for secrets (U-01). Text
that hooks, memory or the host put before the model becomes nothing (TC-11).

An event's id follows from what the transcript calls the thing (a prompt, a call, an answer): reading a file
twice, in pieces, in another order or as a fork gives the same ids.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mica.model import Event
from mica.observe.clients.claude_records import BEGINNING, CLIENT, IGNORED, RECORD, Record, is_ignored
from mica.observe.clients.claude_turns import RECORDS, Transcript
from mica.observe.clients.records import Tally, lines

__all__ = ["CLIENT", "Head", "Tally", "find", "head", "read", "status"]

HEAD_LINES_MAX = 200  # the host writes a few dozen records before the first that names the session's folder


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the first lines of a transcript say."""

    session: str
    agent: str | None = None
    cwd: str | None = None
    version: str | None = None
    branch: str | None = None


def find(root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
    """The transcripts in a folder, subagents' included, or the one file; the newest first.

    Folders that cannot be read, and files that are not regular ones, are named in `unreadable`; without it, the first
    of them raises OSError.
    """
    if root.is_file():
        return [root]
    found: list[tuple[int, Path]] = []

    def complain(error: OSError) -> None:
        if unreadable is None:
            raise error
        unreadable[str(error.filename)] = error.strerror or str(error)

    for folder, _, names in os.walk(root, onerror=complain):
        for path in [Path(folder, name) for name in names if name.endswith(".jsonl")]:
            try:
                found.append((-status(path).st_mtime_ns, path))
            except FileNotFoundError:
                pass  # it was there a moment ago
            except OSError as error:
                complain(error)
    return [path for _, path in sorted(found)]


def status(path: Path) -> os.stat_result:
    """The size and times of a regular file. Raises OSError for any other: reading a pipe would never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return found


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
    """The events of each line that ends after `start`, with the offset after that line. Raises OSError.

    Lines before `start` are read too, for what later ones refer to. The last pair stands at the end of the
    last line that was read, even without events; a torn line is left for the next time. `root` is the folder
    that paths are relative to; without it, the first folder the session worked in. `closed` says that nobody
    writes the file any more: then its end ends the turn, where old records do not say so themselves. Else such a
    turn is counted as unsettled; to settle it later, read again from the offset reached.
    """
    transcript = Transcript(path.stem, root)
    done = end = 0
    for line in lines(path):
        heard = tally if line.end > start else Tally()
        heard.lines += 1
        if line.whole and (is_ignored(line.text) or line.text.isspace()):
            end = line.end
            continue
        record: Record | None
        try:
            record = RECORD.read(b"" if line.cut else line.text, heard)
        except ValueError as error:
            if not line.whole:
                heard.torn += 1
                break
            heard.complain(line.number, "longer than a record can be" if line.cut else str(error))
            record = _appended(line.text, heard)
        end = line.end
        events = transcript.take(record, number=line.number, tally=heard) if record is not None else []
        if events and end > start:
            done = end
            yield end, events
    events = transcript.settle() if closed else []
    tally.unsettled += not transcript.is_settled
    if events or end > max(start, done):
        yield end, events


def _appended(text: bytes, tally: Tally) -> Record | None:
    """The whole record that a restarted program wrote behind a torn one, on the same line."""
    begin = text.rfind(BEGINNING)
    if begin < 1:
        return None
    try:
        return RECORD.read(text[begin:], tally)
    except ValueError:
        return None
