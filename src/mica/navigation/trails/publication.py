"""Track where commands and skills were published, by a person or by the daily evolution after an install.

Publications are recorded, so that a purge updates the published texts and an uninstall removes them. Files that the
evolution writes into a project are excluded from git by `.git/info/exclude`, never by a file of the project.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from mica.model.event import MARK, Event
from mica.model.trail import CREATED, CRYSTALLIZED, Trail
from mica.navigation.repository import git
from mica.navigation.trails.commands import AGENTS_SKILLS, COMMANDS, SKILL, Destination, refresh, remove_all
from mica.private_files import replace_private
from mica.store.purges import Purged

CLAUDE = "claude-code"
INSTALLED = "published.json"  # in the data folder
BEGIN, END = "# mica: commands of learned trails", "# mica: end"
NAMING = frozenset((MARK, CREATED, CRYSTALLIZED))  # events whose words are used in commands


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded destination of commands and skills, with the name of its machine."""

    host: str
    destination: Destination


class RepublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of updating published files."""

    written: tuple[str, ...] = ()  # the paths of the files that were written
    removed: tuple[str, ...] = ()  # the paths of the files that were removed
    unreached: tuple[str, ...] = ()  # one sentence about each file or folder that a person must check


class InstalledDestinations(msgspec.Struct, frozen=True, kw_only=True):
    """The destinations that the daily evolution has published to, saved in the data folder for an uninstall."""

    destinations: tuple[Destination, ...] = ()


def destination_of(root: Path, clients: Collection[str]) -> Destination | None:
    """Return the folders of a project from which the coding agents in `clients` read commands and skills.

    The result is None if `clients` is empty.
    """
    skills = (AGENTS_SKILLS,) if any(client != CLAUDE for client in clients) else ()
    commands = COMMANDS if CLAUDE in clients else None
    return Destination(root=root, commands=commands, skills=skills) if clients else None


def remember(destination: Destination, *, home: Path) -> None:
    """Save a destination to which the daily evolution publishes, for a later uninstall. Exclude its files from git."""
    known = _installed(home)
    if destination not in known:
        _write(home, (*known, destination))
    _exclude(destination.root, [f"/{COMMANDS}/", f"/{AGENTS_SKILLS}/{SKILL}*/"])


def withdraw(home: Path) -> list[str]:
    """Remove every file that the daily evolution has published, except those that a person has edited.

    Returns a message for each file or folder that could not be removed.
    """
    kept_files: list[str] = []
    for each in _installed(home):
        try:
            outcomes = remove_all(each) if each.root.is_dir() else []
        except OSError as error:
            kept_files.append(f"commands in {each.root} were not removed: {error.strerror or error}")
            continue
        kept_files += [
            f"{each.root / file.path} was not removed: {file.reason}" for file in outcomes if file.fate == "kept"
        ]
        _exclude(each.root, [])
        for folder in filter(None, (each.commands, *each.skills)):
            _remove_empty(each.root, folder)
    (home / INSTALLED).unlink(missing_ok=True)
    return kept_files


def _installed(home: Path) -> tuple[Destination, ...]:
    try:
        raw = (home / INSTALLED).read_bytes()
        return msgspec.json.decode(
            raw, type=InstalledDestinations, dec_hook=lambda kind, value: Path(value)
        ).destinations
    except (OSError, msgspec.DecodeError):
        return ()


def _write(home: Path, destinations: tuple[Destination, ...]) -> None:
    content = msgspec.json.encode(InstalledDestinations(destinations=destinations), enc_hook=str)
    replace_private(home / INSTALLED, content)


def _exclude(root: Path, lines: Sequence[str]) -> None:
    """Replace mica's lines in the file `info/exclude` of git by `lines`.

    Without git, or if the file cannot be written, nothing happens.
    """
    try:
        place = root / git(root, "rev-parse", "--git-path", "info/exclude").decode().strip()
        before = place.read_text(encoding="utf-8") if place.exists() else ""
        head, _, rest = before.partition(f"{BEGIN}\n")
        after = head + (rest.partition(f"{END}\n")[2] if rest else "")
        if lines:
            after += ("" if not after or after.endswith("\n") else "\n") + "\n".join([BEGIN, *lines, END, ""])
        if after != before:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(after, encoding="utf-8")
    except (OSError, ValueError, subprocess.SubprocessError):
        return


def _remove_empty(root: Path, folder: str) -> None:
    place = root / folder
    while place != root:
        try:
            place.rmdir()
        except OSError:  # not empty, or never made
            return
        place = place.parent


def publications_in(events: Iterable[Event]) -> list[Publication]:
    """Return the publications that these events record, each once. Invalid events are ignored."""
    found: list[Publication] = []
    for event in events:
        with suppress(msgspec.ValidationError):
            each = msgspec.convert(event.data, Publication, dec_hook=lambda kind, value: Path(value))
            if each not in found:
                found.append(each)
    return found


def republish(trails: Sequence[Trail], publications: Iterable[Publication]) -> RepublishResult:
    """Rewrite or remove the files of these publications, according to the current trails.

    Files on other machines, and files that a person has edited, are not changed; the result lists them.
    """
    written: list[str] = []
    removed: list[str] = []
    unreached: list[str] = []
    for each in publications:
        root = each.destination.root
        if each.host != platform.node():
            unreached.append(f"commands in {root} on {each.host} may contain purged text: publish there again")
            continue
        try:
            outcomes = refresh(trails, each.destination)
        except OSError as error:
            unreached.append(f"commands in {root} were not written again: {error.strerror or error}; check them")
            continue
        for outcome in outcomes:
            path = str(root / outcome.path)
            if outcome.fate == "written":
                written.append(path)
            elif outcome.fate == "removed":
                removed.append(path)
            elif outcome.fate == "kept":
                unreached.append(f"{path} may contain purged text ({outcome.reason}): check it")
    return RepublishResult(written=tuple(written), removed=tuple(removed), unreached=tuple(unreached))


def add_published_files(purged: Purged, done: RepublishResult) -> Purged:
    """Add the result of updating published files (`done`) to the result of a purge.

    Files that could not be updated are listed only if the purge removed events whose words may be in commands.
    """
    return msgspec.structs.replace(
        purged,
        exports=(*purged.exports, *done.written),
        removed=(*purged.removed, *done.removed),
        unreached=(*purged.unreached, *(() if NAMING.isdisjoint(purged.names) else done.unreached)),
    )
