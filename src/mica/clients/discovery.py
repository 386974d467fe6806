"""Finds transcripts on this machine and decides into which space each is imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mica.clients import claude_code
from mica.clients.installation import UserHome
from mica.clients.reader import find_files, is_broken
from mica.clients.registry import CLIENTS, READERS, reader_named, reader_of
from mica.errors import InvalidSettings
from mica.settings import Settings
from mica.store.space import file_of, space_of_transcript_directory


class TranscriptFolder(msgspec.Struct, frozen=True):
    """A folder or file with transcripts. If `client` is None, they may be of any client."""

    path: Path
    client: str | None = None


class ImportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The transcripts to import into one space, newest first."""

    target: Path | str
    roots: dict[Path, Path | None]  # for each file, the folder its paths are relative to: worktrees share a space
    size_bytes: int

    @property
    def files(self) -> list[Path]:
        """The transcripts to import, newest first."""
        return list(self.roots)


class ClientTranscripts(msgspec.Struct, kw_only=True):
    """Statistics of one client's transcripts: how many there are, their total size, and their folders."""

    transcripts: int = 0
    size_bytes: int = 0
    places: list[str] = []


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """All imports to make, the space with the newest transcript first, and the files that cannot be imported."""

    plans: list[ImportPlan] = []
    clients: dict[str, ClientTranscripts] = {}
    strange: list[Path] = []  # files that are not transcripts
    unreadable: dict[str, str] = {}  # by file or folder: why it cannot be read

    @property
    def files(self) -> int:
        """The number of transcripts in all plans."""
        return sum(len(plan.files) for plan in self.plans)

    @property
    def size_bytes(self) -> int:
        """The total size of the transcripts in all plans."""
        return sum(plan.size_bytes for plan in self.plans)


def usual_places(settings: Settings, user: UserHome) -> list[TranscriptFolder]:
    """Return the folder or database in which each client keeps its transcripts. It need not exist.

    Raises InvalidSettings if a setting names a client whose transcripts mica cannot read.
    """
    if unknown := settings.clients.keys() - READERS.keys():
        raise InvalidSettings(f"clients.{min(unknown)}: mica reads transcripts of {', '.join(READERS)} only")
    chosen = dict(settings.clients)
    if settings.transcripts is not None:
        chosen.setdefault(claude_code.CLIENT.name, settings.transcripts)
    usual = {name: client.transcripts(user) for name, client in CLIENTS.items() if client.transcripts is not None}
    return [TranscriptFolder(path, client) for client, path in (usual | chosen).items()]


def plan_imports(places: Iterable[TranscriptFolder], *, settings: Settings, into: Path | str | None) -> Plans:
    """Plan an import of all transcripts in `places`.

    Each transcript goes into the space of its working directory or, if it names none, into the space `unknown`. If
    `into` names a store, all go there instead. Files that cannot be read and files that are not transcripts are listed
    in the result.
    """
    strange: list[Path] = []
    unreadable: dict[str, str] = {}
    clients: dict[str, ClientTranscripts] = {}
    found: list[tuple[float, Path, Path | str, Path | None, int]] = []
    for source in places:
        for file in _files(source, unreadable):
            try:
                reader = reader_named(source.client) if source.client else reader_of(file)
                head, extent = reader.head(file), reader.extent(file)
                broken = head is None and is_broken(file)
            except OSError as error:
                unreadable[str(file)] = error.strerror or str(error)
                continue
            if head is None:
                if broken:
                    unreadable[str(file)] = "its first line is not a record"
                else:
                    strange.append(file)
                continue
            space = None if head.cwd is None else space_of_transcript_directory(head.cwd, home=settings.home)
            target = into or (space.file if space else file_of("unknown", home=settings.home))
            found.append((-extent.changed_at, file, target, space.root if space else None, extent.size_bytes))
            _count(clients.setdefault(reader.NAME, ClientTranscripts()), source.path, extent.size_bytes)
    roots: dict[Path | str, dict[Path, Path | None]] = defaultdict(dict)
    sizes: dict[Path | str, int] = defaultdict(int)
    for _, file, target, root, size_bytes in sorted(found, key=lambda one: one[:2]):
        roots[target][file] = root
        sizes[target] += size_bytes
    plans = [ImportPlan(target=target, roots=files, size_bytes=sizes[target]) for target, files in roots.items()]
    return Plans(plans=plans, clients=clients, strange=strange, unreadable=unreadable)


def _files(source: TranscriptFolder, unreadable: dict[str, str]) -> Iterator[Path]:
    if not source.path.exists():
        return
    if source.client is not None:
        yield from reader_named(source.client).find(source.path, unreadable=unreadable)
        return
    databases = [READERS[name] for name in READERS if CLIENTS[name].is_database]
    if source.path.is_dir() or source.path.suffix != ".db":
        yield from find_files(source.path, is_one=lambda name: name.endswith(".jsonl"), unreadable=unreadable)
    if source.path.is_dir() or source.path.suffix == ".db":
        for reader in databases:
            yield from reader.find(source.path, unreadable=unreadable)


def _count(found: ClientTranscripts, place: Path, size_bytes: int) -> None:
    found.transcripts += 1
    found.size_bytes += size_bytes
    if str(place) not in found.places:
        found.places.append(str(place))
