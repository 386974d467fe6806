"""Updates a section of a status file such as NOW.md from crystals. The change is a proposal until it is applied.

A section ends at the next heading of the same or a higher level. Headings inside code and comments are ignored.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from mica.disk import sync
from mica.errors import InvalidInput
from mica.events.log_export import atomic_writer
from mica.format.fence import neutralize
from mica.format.lines import HANDLES_MAX
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import EventId
from mica.model.mark import Mark
from mica.store.protocol import CrystalIndex, EventLog, TextIndex

NOW = "NOW.md"
HAPPENED = "What Just Happened"
STATUS = "Session Status"
STATUS_SHARE = 0.8  # of the crystal's confidence: a session's status is less certain than past events
RECENT = timedelta(hours=24)  # before the end of the latest crystal
LATEST_MAX = 100  # crystals that are considered
SIZE_BYTES_MAX = 2**20  # status files have some kilobytes; a larger file was named by mistake
TITLE_CHARACTERS_MAX = 200
QUOTED = "log.quoted"  # the event that records a status file written from crystals


class Quoted(msgspec.Struct, frozen=True):
    """The data of the event `log.quoted`: a status file, the host it is on, and the crystals it quotes."""

    path: str = ""
    host: str = ""
    crystals: tuple[EventId, ...] = ()


class RecentWork(msgspec.Struct, frozen=True, kw_only=True):
    """The crystals and open marks that a section of a status file is made from."""

    crystals: tuple[Crystal, ...] = ()  # oldest first
    open: tuple[Mark, ...] = ()
    handles: dict[EventId, str] = {}  # numbers of the marks that the crystals cite


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """The proposed content of a section, and its current content."""

    section: str
    current_content: str  # of the section; empty when there is none
    proposed_content: str
    source_crystals: tuple[EventId, ...]
    confidence: float
    file: str
    before: str | None  # the whole file; None when there is none
    after: str

    @property
    def is_change(self) -> bool:
        return (self.before or "") != self.after

    @property
    def diff(self) -> str:
        """The change, as `diff -u` shows it."""
        name = Path(self.file).name
        old = "/dev/null" if self.before is None else name
        lines = difflib.unified_diff(lines_of(self.before or ""), lines_of(self.after), fromfile=old, tofile=name)
        return "".join(
            line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the written file and of its backup, which is None if the file is new."""

    file: str
    backup: str | None


async def collect_recent(*, log: EventLog, texts: TextIndex, crystals: CrystalIndex, section: str) -> RecentWork:
    """Collect the crystals that a section is made from, and for the status section also the open marks.

    The status section gets the latest session crystal and its open marks. For any other section, the period is the 24
    hours before the end of the latest crystal. Of the crystals that end in this period, the section gets the day
    crystals, and the session crystals that no other crystal covers.
    """
    if is_status(section):
        latest = await crystals.query(CrystalQuery(level="session", is_stale=False, limit=LATEST_MAX))
        recent = [crystal for crystal in latest if not crystal.is_tree][-1:]
    else:
        days = await crystals.query(CrystalQuery(level="day", is_stale=False, limit=LATEST_MAX))
        sessions = await crystals.query(
            CrystalQuery(level="session", is_sealed=False, is_stale=False, limit=LATEST_MAX)
        )
        latest = sorted(
            [*days, *(each for each in sessions if not each.is_tree)], key=lambda crystal: (crystal.end_at, crystal.id)
        )
        recent = [crystal for crystal in latest if crystal.end_at > latest[-1].end_at - RECENT]
    cited = [mark for crystal in recent for statement in crystal.statements for mark in statement.sources]
    open_ids = [mark for crystal in recent for mark in crystal.open] if is_status(section) else []
    events = [await log.get(identifier) for identifier in dict.fromkeys([*cited, *open_ids])]
    known = {event.id: event for event in events if event is not None}
    positions = [position for each in open_ids if each in known and (position := known[each].position) is not None]
    return RecentWork(
        crystals=tuple(recent),
        open=tuple(text.mark for text in await texts.read(sorted(positions), neighbours=0)),
        handles={identifier: event.number for identifier, event in known.items()},
    )


def is_status(section: str) -> bool:
    return section.strip().casefold() == STATUS.casefold()


def section_lines(recent: RecentWork) -> list[str]:
    """Return the lines of a section: each crystal with its statements and their sources, then the open marks."""
    lines: list[str] = []
    for crystal in recent.crystals:
        name = escape_line(crystal.label or crystal.period)
        lines.append(f"- {crystal.end_at:%Y-%m-%d %H:%M} UTC, {name} (#{crystal.position})")
        for statement in crystal.statements:
            cited = [recent.handles[mark] for mark in statement.sources if mark in recent.handles]
            handles = " ".join(cited[:HANDLES_MAX]) or f"#{crystal.position}"
            lines.append(f"  - {escape_line(statement.text)} ({handles})")
    for mark in recent.open:
        lines.append(f"- {escape_line(next(iter(mark.tags), 'open'))}: {escape_line(mark.text)} (#{mark.position})")
    return lines


def propose(recent: RecentWork, *, file: Path, section: str, before: str | None) -> Proposal:
    """Propose new content for a section of `file`. If there is no recent work, the file stays the same.

    `before` is the current text of the whole file; None if it does not exist. Raises InvalidInput if `section` is not
    usable as a title.
    """
    title = section.strip()
    if not title or len(title) > TITLE_CHARACTERS_MAX or not title.isprintable() or title != title.strip("# "):
        raise InvalidInput(f"{section!r} is not a section title; give a short line of text without # around it")
    lines = lines_of(before or "")
    existing = find_section(lines, title)
    new_lines = section_lines(recent)
    confidences = [crystal.confidence for crystal in recent.crystals]
    confidence = sum(confidences) / len(confidences) if confidences else 0.0
    return Proposal(
        section=title,
        current_content="" if existing is None else "".join(lines[existing.body : existing.end]).strip(),
        proposed_content="\n".join(new_lines),
        source_crystals=tuple(crystal.id for crystal in recent.crystals),
        confidence=round(confidence * (STATUS_SHARE if is_status(title) else 1), 3),
        file=str(file),
        before=before,
        after=replace_section(before or "", title, new_lines) if new_lines else before or "",
    )


# -- The file -----------------------------------------------------------------------------------------------------


def read_file(file: Path) -> str | None:
    """Return the exact text of a file, or None if it does not exist.

    Raises InvalidInput if it is a folder, has more than SIZE_BYTES_MAX bytes, is not UTF-8, or cannot be read.
    """
    try:
        if not file.exists():
            return None
        if not file.is_file():
            raise InvalidInput(f"{file} is not a file; give one such as {NOW}")
        if file.stat().st_size > SIZE_BYTES_MAX:
            raise InvalidInput(f"{file} has more than {SIZE_BYTES_MAX:,} bytes, too many for a status file")
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8 at byte {error.start:,}; convert it first") from error
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error


def apply_proposal(proposal: Proposal, *, at: datetime) -> Applied:
    """Write a proposal atomically and back up the previous file next to it.

    Symbolic links are followed. Raises InvalidInput if the file has changed since the proposal, or cannot be written.
    """
    file = Path(proposal.file).resolve()
    if read_file(file) != proposal.before:
        raise InvalidInput(f"{proposal.file} has changed since the proposal was made; look at a new proposal first")
    try:
        if proposal.before is None:
            return _create(file, proposal.after)
        mode = file.stat().st_mode & 0o777
        if not mode & 0o222 or not os.access(file, os.W_OK):
            raise InvalidInput(f"{proposal.file} is read-only; make it writable, or give another file")
        backup = _write_backup(file, proposal.before, mode=mode, at=at)
        with atomic_writer(file) as stream:
            stream.write(proposal.after.encode())
    except OSError as error:
        raise InvalidInput(f"{proposal.file} cannot be written: {error.strerror or error}") from error
    return Applied(file=str(file), backup=str(backup))


def _create(file: Path, text: str) -> Applied:
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        with atomic_writer(file) as stream:
            stream.write(text.encode())
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Applied(file=str(file), backup=None)


def _write_backup(file: Path, text: str, *, mode: int, at: datetime) -> Path:
    """Write `text` into a new file next to `file`, with the permissions `mode`, and return the path of the new file."""
    name = f"{file.name}.bak-{at:%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        backup = file.with_name(name if number == 1 else f"{name}-{number}")
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            sync(stream.fileno())
        return backup


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_NO_PARAGRAPH = re.compile(r"\s*$| {4}|\t| {0,3}(?:[>|]|#{1,6}(?:\s|$)|[-+*](?:\s|$)|\d{1,9}[.)](?:\s|$)|`{3}|~{3}|<)")
_BEGINS_BLOCK = re.compile(r"[#>|~`=+*\\-]|\d{1,9}[.)](?:\s|$)")
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Section(msgspec.Struct, frozen=True):
    """The position of a section, as line indexes from 0."""

    heading: int
    body: int  # the first line after its heading
    end: int


def lines_of(text: str) -> list[str]:
    """Split a text into lines, each with its line ending."""
    return _LINE.findall(text)


def find_section(lines: Sequence[str], title: str) -> Section | None:
    """Return the first section with this title, ignoring case; None if there is none."""
    found: tuple[int, int, int] | None = None
    for start, body, level, name in _headings(lines):
        if found is None:
            if name.casefold() == title.casefold():
                found = start, body, level
        elif level <= found[2]:
            return Section(found[0], found[1], start)
    return None if found is None else Section(found[0], found[1], len(lines))


def replace_section(text: str, title: str, body: Sequence[str]) -> str:
    """Replace the lines below a section's heading by `body`; a missing section is added at the end.

    The new lines get the line endings that `text` uses.
    """
    lines = lines_of(text)
    ending = next((_ending(line) for line in lines if _ending(line)), "\n")
    content = "".join(f"{line}{ending}" for line in body)
    section = find_section(lines, title)
    if section is None:
        gap = "" if not text else ending if _ending(text) else 2 * ending
        return f"{text}{gap}## {title}{ending}{ending}{content}"
    head, tail = "".join(lines[: section.body]), "".join(lines[section.end :])
    if tail:
        return f"{head}{ending}{content}{ending}{tail}"
    whole = f"{head}{'' if _ending(head) else ending}{ending}{content}"
    return whole if _ending(text) else whole.removesuffix(ending)


def escape_line(text: str) -> str:
    """Return a text as one neutral line for a Markdown list, in which it cannot begin a heading, code or a comment."""
    flat = " ".join(_HIDDEN.sub(" ", neutralize(text)).split()).replace("<!--", "&lt;!--")
    return f"\\{flat}" if _BEGINS_BLOCK.match(flat) else flat


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :] if not line.endswith("\r\n") else "\r\n"


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield for each heading: the index of its first line, the index of the line after it, its level, its title."""
    fence = ""
    is_comment = False
    bare = [line.rstrip("\r\n").removeprefix("" if number else "\ufeff") for number, line in enumerate(lines)]
    for number, line in enumerate(bare):
        if is_comment:
            is_comment = "-->" not in line
        elif fence:
            fence = "" if _closes(line, fence) else fence
        elif (opened := _FENCE.fullmatch(line)) is not None and not (opened[1][0] == "`" and "`" in opened[2]):
            fence = opened[1]
        elif "<!--" in line:
            is_comment = "-->" not in line.rpartition("<!--")[2]
        elif (heading := _HEADING.fullmatch(line)) is not None:
            yield number, number + 1, len(heading[1]), (heading[2] or "").strip()
        elif number and (underline := _UNDERLINE.fullmatch(line)) and not _NO_PARAGRAPH.match(bare[number - 1]):
            first = _paragraph(bare, number - 1)
            title = " ".join(part.strip() for part in bare[first:number])
            yield first, number + 1, 1 if underline[1][0] == "=" else 2, title


def _closes(line: str, fence: str) -> bool:
    match = _FENCE.fullmatch(line)
    return match is not None and match[1].startswith(fence) and not match[2].strip()


def _paragraph(lines: Sequence[str], last: int) -> int:
    """Return the index of the first line of the paragraph whose last line has the index `last`."""
    first = last
    while first and not _NO_PARAGRAPH.match(lines[first - 1]) and not _UNDERLINE.fullmatch(lines[first - 1]):
        first -= 1
    return first
