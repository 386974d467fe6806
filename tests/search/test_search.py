"""Marks and crystals in one ranking, on every engine."""

from __future__ import annotations

from datetime import UTC

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

import mica
from mica.errors import InvalidInput
from mica.model.crystal import crystal_of
from mica.model.event import RETRACTED
from mica.model.hit import CrystalHit, Hit
from mica.model.mark import mark_of
from mica.search.mark_search import ALL, Filters
from mica.search.search import EVERYTHING, SearchResults, SearchScope, find, merge_rankings
from mica.store.protocol import Store
from mica.testing.builders import START_AT, build
from mica.testing.contract.crystals import build_crystal, build_mark, draft_of

TOGETHER = "the vault lost the secret and the deploy failed"


async def filled(store: Store) -> Store:
    """Two sessions with a crystal each, and a day over both: what the first says together its marks say apart."""
    marks = [
        build_mark(1, "the vault is empty since the night and nobody saw who emptied it or when"),
        build_mark(2, "the secret is gone from where it was kept for years by the people of operations"),
        build_mark(3, "the deploy failed on staging and was tried again three times without any luck"),
        build_mark(4, "unrelated words about lunch and the weather, which was fine all day long", session="s2"),
    ]
    first = build_crystal(5, draft_of(marks[:3], text=TOGETHER))
    second = build_crystal(6, draft_of(marks[3:], period="session:s2", text="lunch was fine"))
    await store.log.append([*marks, first, second])
    day = build_crystal(7, draft_of([first, second], level="day", period="day:x", text="the vault and lunch"))
    await store.log.append([day])
    return store


async def search_all(
    store: Store, query: str, *, limit: int, filters: Filters = ALL, scope: SearchScope = EVERYTHING
) -> SearchResults:
    return await find(
        query,
        log=store.log,
        chains=store.chains,
        texts=store.texts,
        crystals=store.crystals,
        limit=limit,
        now=START_AT,
        zone=UTC,
        filters=filters,
        scope=scope,
    )


async def found(store: Store, query: str, *, filters: Filters | None = None, **wanted: object) -> list[int]:
    hits = await search_all(
        store,
        query,
        limit=20,
        filters=filters or Filters(),
        scope=SearchScope(**wanted),  # type: ignore[arg-type]
    )
    return [hit.position for hit in hits]


async def test_the_best_answer_comes_first_whether_mark_or_crystal(store: Store) -> None:
    """A crystal that combines what its marks say separately replaces them; otherwise they are shown."""
    await filled(store)

    [best, *_] = await search_all(store, "vault secret deploy", limit=5)
    assert isinstance(best, CrystalHit)
    assert best.crystal.text == TOGETHER
    assert len(best.in_place_of) == 3
    [mark, *_] = await search_all(store, "who emptied it", limit=5)
    assert isinstance(mark, Hit)
    assert mark.position == 1


async def test_a_crystal_appears_beside_its_sources_only_on_request(store: Store) -> None:
    """keeps: TB-08. The rule is the same in a search and in a brief."""
    await filled(store)

    assert await found(store, "vault secret deploy") == [5]
    assert set(await found(store, "vault secret deploy", with_sources=True)) == {1, 2, 3, 5, 7}
    assert set(await found(store, "lunch weather")) == {4}


async def test_a_level_selects_marks_or_its_crystals(store: Store) -> None:
    await filled(store)

    assert set(await found(store, "vault secret deploy", level="mark")) == {1, 2, 3}
    assert set(await found(store, "vault lunch", level="session")) == {5, 6}
    assert await found(store, "vault lunch", level="day") == [7]
    assert await found(store, "vault lunch", level="epoch") == []


async def test_filters_apply_to_crystals_too(store: Store) -> None:
    """A crystal matches a period it overlaps, and an agent or tag if a matching mark beneath it answers."""
    await filled(store)
    await store.log.append([build(8, "mark", {"text": "a vault for lunch", "tags": ["odd"]})])

    assert await found(store, "vault secret deploy", filters=Filters(until=build(1).at)) == []
    assert await found(store, "vault secret deploy", filters=Filters(since=build(1).at)) == [5, 8]
    assert await found(store, "vault secret deploy", filters=Filters(agent="nobody")) == []
    assert await found(store, "vault lunch", filters=Filters(tags=("odd",))) == [8]


async def test_superseded_and_retracted_crystals_are_found_only_on_request(store: Store) -> None:
    """keeps: B-43, K-53. So are crystals that cite a retracted source."""
    await filled(store)
    await store.log.append([build(9, RETRACTED, {"mark": build(1).id, "reason": "wrong"})])

    assert await found(store, "vault secret deploy", level="session") == []
    assert await found(store, "vault secret deploy", level="session", with_superseded=True) == [5]
    await store.log.append([build(10, RETRACTED, {"mark": build(6).id, "reason": "wrong"})])
    assert await found(store, "lunch", level="session") == []
    assert await found(store, "lunch", level="session", with_superseded=True) == [6]


async def test_a_crystal_is_found_by_all_its_parts(memory: mica.Memory) -> None:
    """Principles and topics count like the insight; a mark is found by its significance too."""
    said = "The cookie is set before the redirect, so that the session is lost on every login of every user here"
    one = memory.mark(said, why="browsers forget it", principles=["redirect last"])
    await memory.crystals.commit(
        [("the cookie", [one.id])],
        sources=[one.id],
        period="session:s1",
        principles=[("send headers early", [one.id])],
        topics=["authentication"],
    )

    for asked in ("headers early", "authentication"):
        [hit] = await memory.search(asked, level="session")
        assert isinstance(hit, CrystalHit)
    for asked in ("browsers", "last"):
        [mark] = await memory.search(asked, level="mark")
        assert mark.id == one.id
    with pytest.raises(InvalidInput, match="limit of -1"):
        await memory.search("cookie", limit=-1)
    with pytest.raises(InvalidInput, match="no level 'century'"):
        await memory.search("cookie", level="century")  # type: ignore[arg-type]  # the point


@given(
    scores=some.lists(some.integers(1, 5), min_size=7, max_size=7),
    steps=some.lists(some.integers(0, 4), min_size=7, max_size=7),
)
def test_a_ranking_never_shows_a_crystal_beside_its_sources(scores: list[int], steps: list[int]) -> None:
    """keeps: TB-08. This holds for any scores; every omitted entry has a better one of its own lineage in its place."""

    def above(number: int) -> frozenset[int]:
        over = max(3, number + 1) + steps[number]  # 0 to 2 are marks, 3 to 6 crystals over what comes before them
        return frozenset() if over > 6 else above(over) | {over}

    event = build_mark(1)
    mark, crystal = mark_of(event), crystal_of(build_crystal(2, draft_of([event])))
    places = {number: above(number) for number in range(7)}
    marks = [Hit(mark=msgspec.structs.replace(mark, position=n), score=scores[n], parts={}) for n in range(3)]
    crystals = [
        CrystalHit(crystal=msgspec.structs.replace(crystal, position=n), score=scores[n], parts={}) for n in range(3, 7)
    ]

    shown = [hit.position for hit in merge_rankings(marks, crystals, places)]

    assert [scores[one] for one in shown] == sorted((scores[one] for one in shown), reverse=True)
    assert all(places[one].isdisjoint(shown) for one in shown)
    for number in set(range(7)).difference(shown):
        kin = {other for other in shown if other in places[number] or number in places[other]}
        assert any(scores[other] >= scores[number] for other in kin)
