"""Search on every engine: filters, phrases for times, bounds, and the same answer everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import mica
from mica.errors import InvalidInput
from mica.model.event import Context, EventQuery
from mica.search import mark_search as searching
from mica.search.mark_search import ALL, Filters, Hits, search
from mica.search.search import SearchResults, collapse_repeats, find
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT, build

TUESDAY = datetime(2026, 11, 10, 9, tzinfo=UTC)  # the last one, when asked on Sunday the 15th
SUNDAY = datetime(2026, 11, 15, 9, tzinfo=UTC)


async def filled(store: Store) -> Store:
    await store.log.append(
        [
            build(
                number,
                "mark",
                {"text": f"The parser failed {number}", "tags": ["gotcha"] if number % 2 else []},
                context=Context(session=f"s{number // 3}", agent="scout" if number % 3 else "judge"),
            )
            for number in range(1, 13)
        ]
    )
    return store


async def search_marks(store: Store, query: str, *, limit: int, filters: Filters = ALL) -> Hits:
    return await search(
        query,
        log=store.log,
        chains=store.chains,
        texts=store.texts,
        limit=limit,
        now=START_AT,
        zone=UTC,
        filters=filters,
    )


async def search_all(store: Store, query: str, *, limit: int) -> SearchResults:
    return await find(
        query,
        log=store.log,
        chains=store.chains,
        texts=store.texts,
        crystals=store.crystals,
        limit=limit,
        now=START_AT,
        zone=UTC,
    )


async def found(store: Store, query: str = "parser", **filters: object) -> list[int]:
    hits = await search_marks(store, query, limit=100, filters=Filters(**filters))  # type: ignore[arg-type]
    return sorted(hit.mark.position or 0 for hit in hits)


async def test_only_marks_that_match_the_filters_are_found(store: Store) -> None:
    """Filters are time, agent and tag; neighbours lend their words, but are not returned."""
    await filled(store)

    assert await found(store) == list(range(1, 13))
    assert await found(store, since=build(4).at, until=build(7).at) == [4, 5, 6]
    assert await found(store, agent="judge") == [3, 6, 9, 12]
    assert await found(store, tags=("gotcha",)) == [1, 3, 5, 7, 9, 11]
    assert await found(store, tags=("gotcha",), agent="judge", since=build(4).at) == [9]
    assert await found(store, tags=("gotcha", "joy")) == []
    assert await found(store, agent="nobody") == []


async def test_filters_look_beyond_the_best_candidates(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matching mark is found even if many better ones do not match."""
    monkeypatch.setattr(searching, "CHOOSING", 3)
    await filled(store)
    await store.log.append([build(99, "mark", {"text": "parser " + "long " * 80, "tags": ["rare"]})])

    assert await found(store, tags=("rare",)) == [13]


async def test_a_limit_on_postings_loses_no_answer_with_a_rarer_word(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A common word still helps to rank the marks that a rarer one finds."""
    texts = [*("parser note" for _ in range(29)), *("unrelated note" for _ in range(60)), "deadlock", "parser deadlock"]
    await store.log.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])
    monkeypatch.setattr(searching, "CANDIDATES", 5)

    hits = await search_marks(store, "parser deadlock", limit=2)

    assert [hit.mark.position for hit in hits] == [91, 90]


async def test_every_engine_gives_the_same_answer(store: Store) -> None:
    """keeps: K-55. There is one ranker; engines only fetch candidates."""
    reference = await filled(EphemeralStore())
    await filled(store)

    for query in ("parser", "which parsers failed", "parser 7", "how many failures did scout see yesterday"):
        ours = await search_marks(store, query, limit=50)
        theirs = await search_marks(reference, query, limit=50)
        assert [(hit.mark.position, hit.score) for hit in ours] == [(hit.mark.position, hit.score) for hit in theirs]


async def test_a_date_in_the_query_raises_its_marks_and_is_reported(home: Settings) -> None:
    clock = HandClock(SUNDAY)
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.mark("The release failed", at=SUNDAY - timedelta(days=40))
        memory.mark("The release failed again", at=TUESDAY)

        hits = await memory.search("why did the release fail last Tuesday")

        assert hits[0].at == TUESDAY
        assert [period.words for period in hits.periods] == ["last Tuesday"]
        assert (await memory.search("release")).periods == ()


@pytest.mark.parametrize(
    "asked",
    [
        "proxy cookie last Tuesday",
        "cookie on Tuesday",
        "what did the proxy do to the cookie last Tuesday?",
        "proxy cookie 2026-11-10",
    ],
)
async def test_marks_of_the_named_period_come_first(
    home: Settings, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come before better matches of another day, however many there are."""
    monkeypatch.setattr(searching, "CANDIDATES", 10)
    monkeypatch.setattr(searching, "SHORTLIST_OF_FEW", 10)
    async with mica.open(":memory:", settings=home, clock=HandClock(SUNDAY)) as memory:
        for day in range(21):
            for each in range(3):
                memory.mark("The proxy dropped the cookie again", at=SUNDAY - timedelta(days=day, minutes=each))
        memory.mark("The cookie is gone", at=TUESDAY - timedelta(minutes=5))

        said = await memory.search(asked, limit=10)

        assert [hit.at.date() for hit in said[:4]] == [TUESDAY.date()] * 4
        assert next(hit.at for hit in said if "proxy" in hit.text) == TUESDAY  # the latest of that day


async def test_the_latest_of_duplicate_marks_is_shown(home: Settings) -> None:
    """This holds even if an older one opened its session; a brief shows the latest time too."""
    async with mica.open(":memory:", settings=home, clock=HandClock(SUNDAY)) as memory:
        for day in range(20, -1, -1):
            with memory.context(session=f"day {day}"):
                if day < 10:
                    memory.mark("Good morning", at=SUNDAY - timedelta(days=day, minutes=1))
                memory.mark("The proxy dropped the cookie again", at=SUNDAY - timedelta(days=day))

        hits = await memory.search("proxy cookie", limit=50)
        [(first, times), *_] = collapse_repeats(hits)
        brief = await memory.brief("proxy cookie", budget_tokens=300)

        assert (first.at, times) == (SUNDAY, 21)
        assert hits[0].parts["again"] > 1
        assert [passage.at for passage in brief.passages if "proxy" in passage.text] == [SUNDAY]


async def test_times_of_a_filter_may_be_phrases(home: Settings) -> None:
    async with mica.open(":memory:", settings=home, clock=HandClock(SUNDAY)) as memory:
        memory.mark("The release failed", at=SUNDAY - timedelta(days=40), tags="gotcha")
        memory.mark("The release failed again", at=TUESDAY, tags="gotcha")

        late = await memory.search("release", since="last Tuesday", tags="#gotcha")
        early = await memory.search("release", until="2026-W45")

        assert [hit.at for hit in late] == [TUESDAY]
        assert [hit.at for hit in early] == [SUNDAY - timedelta(days=40)]
        with pytest.raises(InvalidInput, match="not a time"):
            await memory.search("release", since="soon")
        with pytest.raises(InvalidInput, match="no time zone"):
            await memory.search("release", since=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"names": "file.*"}, r"names is 'file\.\*', a single string; pass a list: names=\['file\.\*'\]"),
        ({"names": [5]}, "names has 5, which is not a pattern"),
        ({"since": "yesterday"}, "since is 'yesterday', which is not a time; use an aware datetime"),
        ({"until": 5}, "until is 5, which is not a time"),
        ({"session": 5}, "session is 5, which is not a string"),
        ({"limit": "10"}, "a limit of '10' is not possible"),
        ({"limit": -1}, "a limit of -1 is not possible"),
    ],
)
def test_an_invalid_query_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        EventQuery(**asked)  # type: ignore[arg-type]  # the fault itself


async def test_a_single_text_is_not_treated_as_a_list(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        with pytest.raises(InvalidInput, match="kinds is 'age', a single string"):
            await memory.upkeep.tick("age")


async def test_a_space_in_a_file_answers_after_it_was_reopened(home: Settings, tmp_path: Path) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.mark("The parser failed", tags="gotcha")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert len(await memory.search("which parsers failed", tags="gotcha")) == 1


async def test_spelling_variants_match(store: Store) -> None:
    """keeps: C-46. Ligatures, full-width letters, composed accents and case are equal, in texts and in questions."""
    written = ["The oﬃce réseau broke", "Ｔｈｅ ＯＦＦＩＣＥ re\u0301seau broke", "the office réseau BROKE"]
    await store.log.append([build(number, "mark", {"text": text}) for number, text in enumerate(written, 1)])

    for query in ("office réseau", "oﬃce re\u0301seau", "ＯＦＦＩＣＥ"):
        assert await found(store, query) == [1, 2, 3]
    hits = await search_all(store, "office", limit=9)
    assert [times for _, times in collapse_repeats(hits)] == [3]


async def test_a_small_limit_returns_the_first_of_a_large_one(store: Store) -> None:
    """A small limit needs only one query and shows the same first hits."""
    await filled(store)
    many = await search_all(store, "which parsers failed", limit=20)

    for limit in (0, 1, 5):
        few = await search_all(store, "which parsers failed", limit=limit)
        assert [hit.id for hit in few] == [hit.id for hit in many][:limit]
