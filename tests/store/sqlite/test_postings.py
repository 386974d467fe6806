"""The inverted index gives the same results whether texts are in volumes or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.sqlite.direct_store import DirectStore

from mica.model.event import RETRACTED, Context, Event, EventQuery, Tombstone
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite import postings as sqlite_postings
from mica.store.sqlite.bits import heaviest, pack, unpack
from mica.testing import build

TEXTS = 64  # of a volume here
WORDS = "alpha beta gamma delta epsilon zeta eta theta".split()


@pytest.fixture(autouse=True)
def small_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_postings, "VOLUME_TEXTS", TEXTS)
    monkeypatch.setattr(sqlite_postings, "VOLUME_BYTES", TEXTS // 8)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[DirectStore]:
    core = DirectStore(tmp_path / "space.db")
    yield core
    core.close()


def text(number: int) -> str:
    """A text in which some words are common, some rare, and some repeated."""
    chosen = [word for place, word in enumerate(WORDS) if number % (place * place + 1) == 0]
    return " ".join([*chosen, *chosen[: number % 3], f"only{number}"])


def mark(number: int) -> Event:
    name = "note" if number % 7 == 0 else "mark"
    context = Context(session=f"s{number % 5}") if number % 3 else Context()
    return build(number, name, {"text": text(number)}, context=context, after_s=(number * 37) % 200)


def counts(core: DirectStore, table: str) -> int:
    return int(next(iter(core.connection.execute(f"SELECT count(*) FROM {table}")))[0])


async def assert_alike(core: DirectStore, reference: EphemeralStore) -> None:
    start = mark(1).at
    for limit in (None, 0, 1, 10, 100):
        for since, until in ((None, None), (start, None), (None, start + timedelta(seconds=60))):
            found = core.texts.postings(WORDS, weights={"beta": 0.2}, limit=limit, since=since, until=until)
            expected = await reference.texts.postings(
                WORDS, weights={"beta": 0.2}, limit=limit, since=since, until=until
            )
            assert found == expected
    at = [-1, 0, 1, 5, 64, 65, 128, 149, 150, 9_999]
    assert core.texts.postings_at(WORDS, at) == await reference.texts.postings_at(WORDS, at)
    for wanted in ("alpha", "beta delta", "eta theta gamma", "only33", "alpha unheard"):
        query = EventQuery(text=wanted, limit=None)
        assert [each.id for each in core.log.query(query)] == [each.id for each in await reference.log.query(query)]
    assert core.files.verify() == []


@pytest.mark.parametrize("batch", [1, 50, 150])
async def test_searches_give_the_same_results_with_and_without_volumes(core: DirectStore, batch: int) -> None:
    """keeps: K-55.

    Texts by one and one or together, in volumes or not, marks or not, retracted, purged or rebuilt.
    """
    reference = EphemeralStore()
    events = [mark(number) for number in range(1, 151)]
    for start in range(0, len(events), batch):
        core.log.append(events[start : start + batch])
        await reference.log.append(events[start : start + batch])
        if start % 50 == 0:
            core.texts.postings(["alpha"])  # the cache must see new texts
    assert (counts(core, "volumes"), counts(core, "unfiled")) == (2, 22)
    await assert_alike(core, reference)

    for number in (3, 148):  # inside and outside a volume
        retraction = build(1_000 + number, RETRACTED, {"mark": mark(number).id, "reason": "wrong"})
        core.log.append([retraction])
        await reference.log.append([retraction])
    await assert_alike(core, reference)

    for number in (4, 64, 65, 149):
        buried = Tombstone(purge=build(2_000).id, reason="leaked")
        assert (
            core.purges.bury([mark(number).id], buried) == await reference.purges.bury([mark(number).id], buried) == 1
        )
    await assert_alike(core, reference)
    for number in (4, 64, 65, 149):
        assert not list(core.connection.execute("SELECT 1 FROM terms WHERE term LIKE ?", (f"only{number}",)))

    core.files.rebuild()
    await assert_alike(core, reference)


def test_a_purge_writes_a_row_of_postings_once_for_all_of_its_texts(core: DirectStore) -> None:
    """keeps: U-08. Not once for each text with the word, which would take minutes in a large space."""
    events = [build(number, "mark", {"text": "alpha beta"}) for number in range(1, 2 * TEXTS + 1)]
    core.log.append(events)
    statements: list[str] = []

    def trace(_: object, text: str, __: object) -> bool:
        statements.append(text)
        return True

    core.connection.exec_trace = trace

    core.purges.bury([event.id for event in events[1::2]], Tombstone(purge=build(2_000).id, reason="leaked"))

    core.connection.exec_trace = None
    assert sum("UPDATE postings" in text for text in statements) == 2 * 2  # two words in two volumes
    assert core.texts.postings(["alpha"]).count_marks("alpha") == TEXTS
    assert core.files.verify() == []


async def test_volumes_of_another_process_are_read(core: DirectStore, tmp_path: Path) -> None:
    """keeps: K-55. A cache never contains removed texts."""
    reference = EphemeralStore()
    other = DirectStore(tmp_path / "space.db")
    for start in range(1, 201, 40):
        some = [mark(number) for number in range(start, start + 40)]
        other.log.append(some)
        await reference.log.append(some)
        await assert_alike(core, reference)
    other.purges.bury([mark(2).id], Tombstone(purge=build(2_000).id, reason="leaked"))
    await reference.purges.bury([mark(2).id], Tombstone(purge=build(2_000).id, reason="leaked"))
    other.files.rebuild()
    other.close()

    await assert_alike(core, reference)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM postings WHERE (volume, term) IN (SELECT volume, term FROM postings LIMIT 1)",
        "UPDATE postings SET more = NULL WHERE more IS NOT NULL",
        "UPDATE postings SET places = x'0000' WHERE count = 1 AND places <> x'0000'",
        "DELETE FROM texts WHERE position = 3",
    ],
)
def test_verify_finds_a_damaged_volume(core: DirectStore, damage: str) -> None:
    """keeps: TE-14"""
    core.log.append([mark(number) for number in range(1, 100)])
    core.connection.execute(damage)

    assert core.files.verify() != []

    core.files.rebuild()
    assert core.files.verify() == []


@given(st.lists(st.tuples(st.sets(st.integers(0, 90)), st.integers(1, 70)), max_size=6), st.none() | st.integers(0, 40))
@settings(max_examples=200)
def test_the_heaviest_places_are_those_of_the_greatest_sums(
    weighed: list[tuple[set[int], int]], limit: int | None
) -> None:
    sums: Counter[int] = Counter()
    for places, weight in weighed:
        sums.update(dict.fromkeys(places, weight))
    expected = sorted(sums, key=lambda place: (-sums[place], -place))[:limit]

    sets = [(int.from_bytes(pack(places, 12), "little"), weight) for places, weight in weighed]

    assert unpack(heaviest(sets, limit=limit)) == sorted(expected)
