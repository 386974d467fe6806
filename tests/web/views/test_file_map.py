"""The repository as a treemap."""

from __future__ import annotations

import mica
from mica.web.views import file_map as files


def _leaves(spots: tuple[files.Spot, ...]) -> list[files.Spot]:
    return [leaf for spot in spots for leaf in (_leaves(spot.children) if spot.children else [spot])]


async def test_the_map_counts_turns_by_folder_and_names_the_trails_through_a_file(memory: mica.Memory) -> None:
    found = await files.file_map(memory)
    leaves = list(_leaves(found.spots))

    assert sum(spot.value for spot in found.spots) == sum(leaf.value for leaf in leaves)
    session = next(leaf for leaf in leaves if leaf.path == "auth/session.py")
    assert {found.ways[number].name for number in session.trails} >= {"nav:fix-login-session"}


async def test_the_map_shades_the_files_of_the_chosen_trail_and_opens_folders(memory: mica.Memory) -> None:
    found = await files.file_map(memory)
    way = next(way for way in found.ways if way.name == "nav:fix-login-session")

    tiles = found.tiles(folder="auth", trail=way.key, link=lambda path: f"/{path}")
    top = found.tiles(folder="", trail="", link=lambda path: f"/{path}")

    shades = {tile.name: tile.shade for tile in tiles}
    assert shades["session.py"] == 0.8
    assert all(tile.shade is None for tile in tiles if f"auth/{tile.name}" not in way.paths)
    assert {tile.name for tile in top} > {"auth"}
    assert next(tile for tile in top if tile.name == "auth").href == "/auth"
    assert found.tiles(folder="no/such", trail="", link=str) == found.tiles(folder="", trail="", link=str)
