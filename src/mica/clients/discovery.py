"""Finds transcripts on this machine and plans into which space each is imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mica.clients import claude_code
from mica.clients.installation import UserHome
from mica.clients.reader import find_files
from mica.clients.registry import CLIENTS, READERS, reader_named, reader_of
from mica.errors import InvalidSettings
from mica.settings import Settings
from mica.store.space import file_of, space_of_transcript_directory


class TranscriptFolder(msgspec.Struct, frozen=True):
    """A folder or file with transcripts, of one client or of any."""

    path: Path
    client: str | None = None


class ImportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The transcripts to import into one space, newest first."""

    target: Path | str
    roots: dict[Path, Path | None]  # by file: the folder that its paths are relative to, since worktrees share a space
    size_bytes: int

    @property
    def files(self) -> list[Path]:
        """The transcripts."""
        return list(self.roots)


class ClientTranscripts(msgspec.Struct, kw_only=True):
    """The number, size and places of one client's transcripts."""

    transcripts: int = 0
    size_bytes: int = 0
    places: list[str] = []


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """The imports to make, the space of the newest transcript first, and the files that cannot be imported."""

    plans: list[ImportPlan] = []
    clients: dict[str, ClientTranscripts] = {}
    strange: list[Path] = []  # files that are not transcripts
    unreadable: dict[str, str] = {}  # by file or folder: why it cannot be read

    @property
    def files(self) -> int:
        """The number of transcripts."""
        return sum(len(plan.files) for plan in self.plans)

    @property
    def size_bytes(self) -> int:
        """The size of all transcripts."""
        return sum(plan.size_bytes for plan in self.plans)


def usual_places(settings: Settings, user: UserHome) -> list[TranscriptFolder]:
    """Where each client keeps its transcripts on this machine, whether or not any exist.

    Raises InvalidSettings when a setting names a client that mica does not know.
    """
    if unknown := settings.clients.keys() - READERS.keys():
        raise InvalidSettings(f"clients.{min(unknown)}: mica reads transcripts of {', '.join(READERS)} only")
    chosen = dict(settings.clients)
    if settings.transcripts is not None:
        chosen.setdefault(claude_code.CLIENT.name, settings.transcripts)
    usual = {name: client.transcripts(user) for name, client in CLIENTS.items() if client.transcripts is not None}
    return [TranscriptFolder(path, client) for client, path in (usual | chosen).items()]


def plan_imports(places: Iterable[TranscriptFolder], *, settings: Settings, into: Path | str | None) -> Plans:
    """Plans the import of each transcript into the space of its own directory, or of all into one store."""
    strange: list[Path] = []
    unreadable: dict[str, str] = {}
    clients: dict[str, ClientTranscripts] = {}
    found: list[tuple[float, Path, Path | str, Path | None, int]] = []
    for place in places:
        for file in _files(place, unreadable):
            try:
                reader = reader_named(place.client) if place.client else reader_of(file)
                head, extent = reader.head(file), reader.extent(file)
            except OSError as error:
                unreadable[str(file)] = error.strerror or str(error)
                continue
            if head is None:
                strange.append(file)
                continue
            space = None if head.cwd is None else space_of_transcript_directory(head.cwd, home=settings.home)
            target = into or (space.file if space else file_of("unknown", home=settings.home))
            found.append((-extent.changed_at, file, target, space.root if space else None, extent.size_bytes))
            _count(clients.setdefault(reader.NAME, ClientTranscripts()), place.path, extent.size_bytes)
    roots: dict[Path | str, dict[Path, Path | None]] = defaultdict(dict)
    sizes: dict[Path | str, int] = defaultdict(int)
    for _, file, target, root, size_bytes in sorted(found, key=lambda one: one[:2]):
        roots[target][file] = root
        sizes[target] += size_bytes
    plans = [ImportPlan(target=target, roots=files, size_bytes=sizes[target]) for target, files in roots.items()]
    return Plans(plans=plans, clients=clients, strange=strange, unreadable=unreadable)


def _files(place: TranscriptFolder, unreadable: dict[str, str]) -> Iterator[Path]:
    if not place.path.exists():
        return
    if place.client is not None:
        yield from reader_named(place.client).find(place.path, unreadable=unreadable)
        return
    databases = [READERS[name] for name in READERS if CLIENTS[name].is_database]
    if place.path.is_dir() or place.path.suffix != ".db":
        yield from find_files(place.path, is_one=lambda name: name.endswith(".jsonl"), unreadable=unreadable)
    if place.path.is_dir() or place.path.suffix == ".db":
        for reader in databases:
            yield from reader.find(place.path, unreadable=unreadable)


def _count(found: ClientTranscripts, place: Path, size_bytes: int) -> None:
    found.transcripts += 1
    found.size_bytes += size_bytes
    if str(place) not in found.places:
        found.places.append(str(place))
