"""The repository as a map: how often each file was opened, and which trails lead through it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from mica.brief.file_source import STEP_NAMES, visits
from mica.memory import Memory
from mica.model.event import Event, EventQuery
from mica.model.trail import Trail, stands_for

STEPS_READ = 20_000  # the latest
FILES_MAX = 500  # that are drawn: smaller ones could not be seen
TRAILS_MAX = 20


class Spot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A folder or a file; a file has a value, a folder has what is in it."""

    name: str
    path: str
    value: int = 0  # turns in which it was opened; of a folder, of all in it
    tokens: int = 0
    trails: tuple[int, ...] = ()  # numbers of those that lead through it
    children: tuple[Spot, ...] = ()


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A trail on the map."""

    name: str
    key: str
    state: str
    paths: tuple[str, ...]


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """Folders and files that agents opened, and the trails through them."""

    spots: tuple[Spot, ...] = ()
    ways: tuple[Way, ...] = ()
    files: int = 0  # of which the most opened are drawn


async def drawn(memory: Memory) -> Map:
    """The map of a space, from its latest steps."""
    steps = await memory.events(EventQuery(names=STEP_NAMES, limit=STEPS_READ))
    trails = [trail for trail in await memory.trails.known() if trail.state != "archived"][:TRAILS_MAX]
    return await asyncio.to_thread(_drawn, steps, trails)


def _drawn(steps: Sequence[Event], trails: Sequence[Trail]) -> Map:
    opened = [visit for visit in visits(steps) if not visit.path.startswith(("/", ".."))]
    chosen = sorted(opened, key=lambda visit: (-len(visit.turns), -visit.tokens, visit.path))[:FILES_MAX]
    through: dict[str, list[int]] = {visit.path: [] for visit in chosen}
    ways = []
    for number, trail in enumerate(trails):
        paths = [path for path in through if any(stands_for(step, path) for step in trail.paths)]
        for path in paths:
            through[path].append(number)
        ways.append(Way(name=trail.name, key=trail.key, state=trail.state, paths=tuple(paths)))
    tree: dict[str, object] = {}
    for visit in chosen:
        *folders, name = visit.path.split("/")
        here = tree
        for folder in folders:
            inner = here.setdefault(folder, {})
            here = inner if isinstance(inner, dict) else here  # a file where a folder was: both are drawn
        here[name] = Spot(
            name=name,
            path=visit.path,
            value=len(visit.turns),
            tokens=visit.tokens,
            trails=tuple(through[visit.path]),
        )
    return Map(spots=_spots(tree, ""), ways=tuple(ways), files=len(opened))


def _spots(tree: Mapping[str, object], above: str) -> tuple[Spot, ...]:
    found = [each if isinstance(each, Spot) else _folder(name, each, above) for name, each in tree.items()]
    return tuple(sorted(found, key=lambda spot: (-spot.value, spot.name)))


def _folder(name: str, inside: object, above: str) -> Spot:
    """A folder; one that holds nothing but another folder is drawn as one with it."""
    assert isinstance(inside, dict)
    if len(inside) == 1 and isinstance(only := next(iter(inside.values())), dict):
        return _folder(f"{name}/{next(iter(inside))}", only, above)
    below = _spots(inside, f"{above}{name}/")
    return Spot(
        name=name,
        path=f"{above}{name}",
        value=sum(each.value for each in below),
        tokens=sum(each.tokens for each in below),
        children=below,
    )
