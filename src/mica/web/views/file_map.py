"""The repository as a treemap: how often each file was opened, and the trails that contain it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from mica.events.activity import STEP_NAMES, count_visits
from mica.format.charts import Tile
from mica.format.lines import plural
from mica.memory import Memory
from mica.model.event import Event, EventQuery
from mica.model.trail import Trail, matches_step

STEPS_READ = 20_000  # the latest
FILES_MAX = 500  # in the map; smaller ones could not be seen
TRAILS_MAX = 20
NAMED_MAX = 5  # trails in a tooltip


class Spot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, or a folder with its contents."""

    name: str
    path: str
    value: int = 0  # turns in which it was opened; for a folder, the sum of its contents
    tokens: int = 0
    trails: tuple[int, ...] = ()  # indexes of the trails that lead through it
    children: tuple[Spot, ...] = ()


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A trail on the map, with those of its files that are on the map."""

    name: str
    key: str
    state: str
    paths: tuple[str, ...]


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """Folders and files that agents opened, and the trails that contain them."""

    spots: tuple[Spot, ...] = ()
    ways: tuple[Way, ...] = ()
    files: int = 0  # in total; the map shows those opened most

    def within(self, folder: str) -> tuple[Spot, ...]:
        """Return the contents of a folder, or the whole map if it has no such folder."""
        spot = _find(self.spots, folder) if folder else None
        return self.spots if spot is None else spot.children

    def tiles(self, *, folder: str, trail: str, link: Callable[[str], str]) -> tuple[Tile, ...]:
        """Return the tiles to draw for a folder. `link` makes the address that shows a folder, from its path.

        `trail` is the key of a trail, whose files are shaded. If there is no such trail, the files of all trails are
        shaded, more strongly the more trails contain them.
        """
        chosen = next((number for number, way in enumerate(self.ways) if way.key == trail), None)
        most = max((len(spot.trails) for spot in _files(self.spots)), default=0)

        def tile(spot: Spot) -> Tile:
            if spot.children:
                children = tuple(map(tile, spot.children))
                return Tile(name=spot.name, value=spot.value, href=link(spot.path), children=children)
            is_on = bool(spot.trails) if chosen is None else chosen in spot.trails
            shade = (0.2 + 0.6 * len(spot.trails) / most if chosen is None else 0.8) if is_on else None
            return Tile(name=spot.name, value=spot.value, title=self._title(spot), shade=shade)

        return tuple(map(tile, self.within(folder)))

    def _title(self, spot: Spot) -> str:
        lines = [spot.path, f"opened in {plural(spot.value, 'turn')}"]
        lines += [f"{plural(spot.tokens, 'token')} read"] if spot.tokens else []
        return "\n".join(lines + [self.ways[number].name for number in spot.trails[:NAMED_MAX]])


def _files(spots: Iterable[Spot]) -> Iterator[Spot]:
    for spot in spots:
        yield from _files(spot.children) if spot.children else (spot,)


def _find(spots: Iterable[Spot], path: str) -> Spot | None:
    for spot in spots:
        if spot.children and spot.path == path:
            return spot
        if path.startswith(f"{spot.path}/") and (found := _find(spot.children, path)) is not None:
            return found
    return None


async def file_map(memory: Memory) -> Map:
    """Build the map of a space from the latest STEPS_READ reads and edits of files."""
    steps = await memory.events.query(EventQuery(names=STEP_NAMES, limit=STEPS_READ))
    trails = [trail for trail in await memory.trails.known() if trail.state != "archived"][:TRAILS_MAX]
    return await asyncio.to_thread(_build, steps, trails)


def _build(steps: Sequence[Event], trails: Sequence[Trail]) -> Map:
    opened = [visit for visit in count_visits(steps) if not visit.path.startswith(("/", ".."))]
    chosen = sorted(opened, key=lambda visit: (-len(visit.turns), -visit.tokens, visit.path))[:FILES_MAX]
    through: dict[str, list[int]] = {visit.path: [] for visit in chosen}
    ways = []
    for number, trail in enumerate(trails):
        paths = [path for path in through if any(matches_step(step, path) for step in trail.paths)]
        for path in paths:
            through[path].append(number)
        ways.append(Way(name=trail.name, key=trail.key, state=trail.state, paths=tuple(paths)))
    tree: dict[str, object] = {}
    for visit in chosen:
        *folders, name = visit.path.split("/")
        here = tree
        for folder in folders:
            inner = here.setdefault(folder, {})
            here = inner if isinstance(inner, dict) else here  # a file that was a folder before: both are on the map
        here[name] = Spot(
            name=name,
            path=visit.path,
            value=len(visit.turns),
            tokens=visit.tokens,
            trails=tuple(through[visit.path]),
        )
    return Map(spots=_spots(tree, ""), ways=tuple(ways), files=len(opened))


def _spots(tree: Mapping[str, object], above: str) -> tuple[Spot, ...]:
    spots = [each if isinstance(each, Spot) else _folder(name, each, above) for name, each in tree.items()]
    return tuple(sorted(spots, key=lambda spot: (-spot.value, spot.name)))


def _folder(name: str, inside: object, above: str) -> Spot:
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
