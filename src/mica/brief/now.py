"""A section of a status file, as NOW.md, proposed from crystals: shown as a diff, written when a person says so."""

from __future__ import annotations

import difflib
import os
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from mica.brief.markdown_sections import find, lines_of, plain, replaced
from mica.errors import InvalidInput
from mica.events.log_export import atomic_writer
from mica.format.lines import HANDLES_MAX
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import EventId
from mica.model.mark import Mark
from mica.store.protocol import Store

NOW = "NOW.md"
HAPPENED = "What Just Happened"
STATUS = "Session Status"
STATUS_SHARE = 0.8  # of the confidence of its crystal: how a session stands is less certain than what happened
LATELY = timedelta(hours=24)  # before the end of the latest crystal
LATEST_MAX = 100  # crystals among which the latest are looked for
SIZE_BYTES_MAX = 2**20  # a file that people read has some kilobytes; a larger one was named by mistake
TITLE_CHARACTERS_MAX = 200
QUOTED = "log.quoted"  # the event that records a status file written from crystals


class Quoted(msgspec.Struct, frozen=True):
    """The data of `log.quoted`: the file, the host it is on, and the crystals it quotes."""

    path: str = ""
    host: str = ""
    crystals: tuple[EventId, ...] = ()


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """What a section is made of."""

    crystals: tuple[Crystal, ...] = ()  # oldest first
    open: tuple[Mark, ...] = ()
    handles: dict[EventId, str] = {}  # of the marks that the crystals cite


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a section could say, beside what it says."""

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
    """Where a proposal was written, and where the file is kept as it was before; None when there was none."""

    file: str
    backup: str | None


async def collect_lately(store: Store, *, section: str) -> Lately:
    """What happened last: the days and sessions of the last hours, none beside what it is made of.

    How a session stands is told by the crystal of the latest one and by what it left open.
    """
    if is_status(section):
        latest = await store.crystals.query(CrystalQuery(level="session", is_stale=False, limit=LATEST_MAX))
        crystals = [crystal for crystal in latest if not crystal.is_tree][-1:]
    else:
        days = await store.crystals.query(CrystalQuery(level="day", is_stale=False, limit=LATEST_MAX))
        sessions = await store.crystals.query(
            CrystalQuery(level="session", is_sealed=False, is_stale=False, limit=LATEST_MAX)
        )
        found = sorted(
            [*days, *(each for each in sessions if not each.is_tree)], key=lambda crystal: (crystal.end_at, crystal.id)
        )
        crystals = [crystal for crystal in found if crystal.end_at > found[-1].end_at - LATELY]
    cited = [mark for crystal in crystals for statement in crystal.statements for mark in statement.sources]
    asked = [mark for crystal in crystals for mark in crystal.open] if is_status(section) else []
    events = [await store.log.get(identifier) for identifier in dict.fromkeys([*cited, *asked])]
    known = {event.id: event for event in events if event is not None}
    positions = [position for each in asked if each in known and (position := known[each].position) is not None]
    return Lately(
        crystals=tuple(crystals),
        open=tuple(text.mark for text in await store.texts.read(sorted(positions), neighbours=0)),
        handles={identifier: event.number for identifier, event in known.items()},
    )


def is_status(section: str) -> bool:
    return section.strip().casefold() == STATUS.casefold()


def content(lately: Lately) -> list[str]:
    """The lines of a section: each crystal and what it says, quoted, with where it comes from."""
    lines: list[str] = []
    for crystal in lately.crystals:
        name = plain(crystal.label or crystal.period)
        lines.append(f"- {crystal.end_at:%Y-%m-%d %H:%M} UTC, {name} (#{crystal.position})")
        for statement in crystal.statements:
            cited = [lately.handles[mark] for mark in statement.sources if mark in lately.handles]
            handles = " ".join(cited[:HANDLES_MAX]) or f"#{crystal.position}"
            lines.append(f"  - {plain(statement.text)} ({handles})")
    for mark in lately.open:
        lines.append(f"- {plain(next(iter(mark.tags), 'open'))}: {plain(mark.text)} (#{mark.position})")
    return lines


def propose(lately: Lately, *, file: Path, section: str, before: str | None) -> Proposal:
    """The file with its section made anew; as it is when there is nothing to say.

    Raises InvalidInput for a title that is none.
    """
    title = section.strip()
    if not title or len(title) > TITLE_CHARACTERS_MAX or not title.isprintable() or title != title.strip("# "):
        raise InvalidInput(f"{section!r} is no title of a section; give a short line of text, without # around it")
    lines = lines_of(before or "")
    there = find(lines, title)
    said = content(lately)
    confidences = [crystal.confidence for crystal in lately.crystals]
    confidence = sum(confidences) / len(confidences) if confidences else 0.0
    return Proposal(
        section=title,
        current_content="" if there is None else "".join(lines[there.body : there.end]).strip(),
        proposed_content="\n".join(said),
        source_crystals=tuple(crystal.id for crystal in lately.crystals),
        confidence=round(confidence * (STATUS_SHARE if is_status(title) else 1), 3),
        file=str(file),
        before=before,
        after=replaced(before or "", title, said) if said else before or "",
    )


# -- The file -----------------------------------------------------------------------------------------------------


def read_file(file: Path) -> str | None:
    """What a file says, to the letter; None when it is not there. Raises InvalidInput when it is no text."""
    try:
        if not file.exists():
            return None
        if not file.is_file():
            raise InvalidInput(f"{file} is no file; give one, such as {NOW}")
        if file.stat().st_size > SIZE_BYTES_MAX:
            raise InvalidInput(f"{file} has more than {SIZE_BYTES_MAX:,} bytes, and is no status file; give another")
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not written in UTF-8, see byte {error.start:,}; convert it first") from error
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}") from error


def apply_proposal(proposal: Proposal, *, at: datetime) -> Applied:
    """Write a proposal, whole or not at all, and keep what the file was before beside it.

    A link stays a link: the file behind it is written. Raises InvalidInput when the file has changed since then, or
    cannot be written.
    """
    file = Path(proposal.file).resolve()
    if read_file(file) != proposal.before:
        raise InvalidInput(f"{proposal.file} has changed since this was proposed; look at the new proposal first")
    try:
        if proposal.before is None:
            return _created(file, proposal.after)
        mode = file.stat().st_mode & 0o777
        if not mode & 0o222 or not os.access(file, os.W_OK):
            raise InvalidInput(f"{proposal.file} is read-only; make it writable, or give another file")
        backup = _kept(file, proposal.before, mode=mode, at=at)
        with atomic_writer(file) as stream:
            stream.write(proposal.after.encode())
    except OSError as error:
        raise InvalidInput(f"{proposal.file} cannot be written: {error.strerror or error}") from error
    return Applied(file=str(file), backup=str(backup))


def _created(file: Path, text: str) -> Applied:
    """A new file, with the permissions that new files have here."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        with atomic_writer(file) as stream:
            stream.write(text.encode())
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return Applied(file=str(file), backup=None)


def _kept(file: Path, text: str, *, mode: int, at: datetime) -> Path:
    """A copy beside the file, under a name that none has."""
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
            os.fsync(stream.fileno())
        return backup
