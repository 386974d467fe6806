"""Which transcripts there are, whose they are, and into which space each goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mica.clients.registry import CLAUDE_CODE, OPENCODE, reader_named, reader_of
from mica.settings import Settings
from mica.store.space import file_of, space_spoken_of


class Place(msgspec.Struct, frozen=True):
    """Where to look for transcripts: a folder or a file, of one client or of whoever wrote what is there."""

    path: Path
    client: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The transcripts that go into one space, newest first."""

    target: Path | str
    roots: dict[Path, Path | None]  # each file, and the folder that its paths are relative to: worktrees share a space
    size_bytes: int

    @property
    def files(self) -> list[Path]:
        return list(self.roots)


class Found(msgspec.Struct, kw_only=True):
    """What there is of one client."""

    transcripts: int = 0
    size_bytes: int = 0
    places: list[str] = []


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be imported, the space of the newest transcript first, and what cannot be."""

    plans: list[Plan] = []
    clients: dict[str, Found] = {}
    strange: list[Path] = []  # files that are no transcripts
    unreadable: dict[str, str] = {}  # files and folders, and why

    @property
    def files(self) -> int:
        return sum(len(plan.files) for plan in self.plans)

    @property
    def size_bytes(self) -> int:
        return sum(plan.size_bytes for plan in self.plans)


def usual_places(settings: Settings) -> list[Place]:
    """Where each client keeps its transcripts on this machine, whether they are there or not."""
    known = {CLAUDE_CODE: settings.transcripts} | msgspec.structs.asdict(settings.clients)
    return [Place(path, client) for client, path in known.items() if path is not None]


def planned(places: Iterable[Place], *, settings: Settings, into: Path | str | None) -> Plans:
    """Which transcript goes where: into the space of the directory it speaks of, or all into one store."""
    strange: list[Path] = []
    unreadable: dict[str, str] = {}
    clients: dict[str, Found] = {}
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
            space = None if head.cwd is None else space_spoken_of(head.cwd, home=settings.home)
            target = into or (space.file if space else file_of("unknown", home=settings.home))
            found.append((-extent.changed_at, file, target, space.root if space else None, extent.size_bytes))
            _count(clients.setdefault(reader.CLIENT, Found()), place.path, extent.size_bytes)
    roots: dict[Path | str, dict[Path, Path | None]] = defaultdict(dict)
    sizes: dict[Path | str, int] = defaultdict(int)
    for _, file, target, root, size_bytes in sorted(found, key=lambda one: one[:2]):
        roots[target][file] = root
        sizes[target] += size_bytes
    plans = [Plan(target=target, roots=files, size_bytes=sizes[target]) for target, files in roots.items()]
    return Plans(plans=plans, clients=clients, strange=strange, unreadable=unreadable)


def _files(place: Place, unreadable: dict[str, str]) -> Iterator[Path]:
    if not place.path.exists():
        return
    if place.client is not None:
        yield from reader_named(place.client).find(place.path, unreadable=unreadable)
        return
    # Claude Code's reader takes every file of lines, OpenCode's the databases: together all that a client writes.
    clients = [CLAUDE_CODE, OPENCODE]
    if place.path.is_file():
        clients = [OPENCODE] if place.path.suffix == ".db" else [CLAUDE_CODE]
    for client in clients:
        yield from reader_named(client).find(place.path, unreadable=unreadable)


def _count(found: Found, place: Path, size_bytes: int) -> None:
    found.transcripts += 1
    found.size_bytes += size_bytes
    if str(place) not in found.places:
        found.places.append(str(place))
