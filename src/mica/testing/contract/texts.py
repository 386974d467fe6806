"""Tests of the promises of `TextIndex`, which run unchanged on every kind of store."""

from __future__ import annotations

from mica.model.event import RETRACTED, Context, Event, Tombstone
from mica.store.protocol import Store
from mica.testing.builders import build
from mica.words import terms


class TextContract:
    """Tests of `TextIndex`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_postings_count_terms_of_marks_only(self, store: Store) -> None:
        session = Context(session="s1")
        await store.log.append(
            [
                build(1, "mark", {"text": "cookie after cookie in the session"}, context=session),
                build(2, "mark", {"text": "a session"}),
                build(3, "tool.failed", {"text": "cookie"}),
            ]
        )

        found = await store.texts.postings([*terms("cookie session"), "unheard"])

        cookie, session_term = terms("cookie session")
        assert [(p.position, p.count, p.length, p.session) for p in found.by_term[cookie]] == [(1, 2, 6, "s1")]
        assert [(p.position, p.count, p.session) for p in found.by_term[session_term]] == [(1, 1, "s1"), (2, 1, None)]
        assert found.by_term["unheard"] == ()
        assert (found.marks, found.mean_length) == (2, 4.0)
        assert found.length_spread > 0

    async def test_postings_of_an_empty_store(self, store: Store) -> None:
        found = await store.texts.postings(["cooki"])
        assert (found.marks, found.mean_length, found.length_spread) == (0, 0.0, 0.0)

    async def test_texts_come_with_their_neighbours_in_the_session(self, store: Store) -> None:
        one, two = Context(session="s1"), Context(session="s2")
        marks = [build(n, "mark", {"text": f"mark number {n}"}, context=one) for n in range(1, 8)]
        other = [build(n, "mark", {"text": f"mark {n}"}, context=two) for n in range(8, 10)]
        await store.log.append(
            [*marks, *other, build(10, "mark", {"text": "alone"}), build(11, "mark", {"text": "too"})]
        )

        found = await store.texts.read([4, 9, 10], neighbours=2)

        assert [(text.mark.position, text.ordinal) for text in found] == [
            (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (8, 0), (9, 1), (10, 0),
        ]  # fmt: skip
        assert {text.session_length for text in found} == {21, 4, 1}
        assert await store.texts.read([]) == []
        assert await store.texts.read([99]) == []

    async def test_postings_with_a_limit_list_the_best_marks_and_count_all(self, store: Store) -> None:
        """Rare words count more than common ones. The statistics also count the marks beyond the limit."""
        texts = ["common rare", *("common often" for _ in range(3)), *("common" for _ in range(6))]
        await store.log.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])
        query_terms = [*terms("common often rare"), "unheard"]
        common, often, rare, _ = query_terms

        whole = await store.texts.postings(query_terms)
        some = await store.texts.postings(query_terms, limit=4)
        least = await store.texts.postings([common], limit=4)

        assert [len(whole.by_term[term]) for term in query_terms] == [10, 3, 1, 0]
        assert whole.containing == some.containing == {common: 10, often: 3, rare: 1, "unheard": 0}
        assert [[posting.position for posting in some.by_term[term]] for term in query_terms] == [
            [1, 2, 3, 4], [2, 3, 4], [1], [],
        ]  # fmt: skip
        assert [posting.position for posting in least.by_term[common]] == [7, 8, 9, 10]
        assert (some.marks, some.mean_length) == (whole.marks, whole.mean_length)

    async def test_a_limit_prefers_weighted_terms_and_then_the_latest_marks(self, store: Store) -> None:
        """Marks are ranked by the sum of the weights of the terms they contain, then by time."""
        texts = ["one two three", "one three", "one two", *("one three" for _ in range(4)), *("one" for _ in range(5))]
        texts += ["two three" for _ in range(20)] + ["three"]
        await store.log.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])

        async def listed(limit: int, **weights: float) -> list[int]:
            found = await store.texts.postings(["one", "two", "three"], weights=weights, limit=limit)
            return sorted({posting.position for postings in found.by_term.values() for posting in postings})

        assert [await listed(limit) for limit in (0, 1, 2, 4)] == [[], [1], [1, 3], [1, 3, 6, 7]]
        assert await listed(9) == [1, 2, 3, 4, 5, 6, 7, 11, 12]
        assert await listed(3, one=0.1) == [1, 31, 32]

    async def test_text_statistics_follow_the_log(self, store: Store) -> None:
        """Statistics and neighbours are up to date after every kind of change."""

        async def statistics() -> tuple[int, int, list[tuple[int, int, int]]]:
            found = await store.texts.postings(["cooki"])
            texts = await store.texts.read([1])
            places = [(text.position, text.ordinal, text.session_length) for text in texts]
            return found.marks, found.containing["cooki"], places

        def mark(number: int, text: str, after_s: float | None = None) -> Event:
            return build(number, "mark", {"text": text}, context=Context(session="s"), after_s=after_s)

        await store.log.append([mark(1, "a cookie"), mark(2, "a cookie jar")])
        assert await statistics() == (2, 2, [(1, 0, 5), (2, 1, 5)])
        await store.log.append([mark(3, "no"), build(4, "note", {"text": "cookie"})])
        assert await statistics() == (3, 2, [(1, 0, 6), (2, 1, 6), (3, 2, 6)])
        await store.log.append([mark(5, "an early cookie", after_s=-60)])
        assert await statistics() == (4, 3, [(1, 1, 9), (2, 2, 9), (3, 3, 9), (5, 0, 9)])
        await store.log.append([build(6, RETRACTED, {"mark": build(2).id, "reason": "wrong"})])
        assert await statistics() == (3, 2, [(1, 1, 6), (3, 2, 6), (5, 0, 6)])
        await store.purges.bury([build(5).id], Tombstone(purge=build(1_000).id, reason="leaked"))
        assert await statistics() == (2, 1, [(1, 0, 3), (3, 1, 3)])
        await store.files.rebuild()
        assert await statistics() == (2, 1, [(1, 0, 3), (3, 1, 3)])

    async def test_postings_of_a_time_list_its_marks_and_count_all(self, store: Store) -> None:
        await store.log.append([build(number, "mark", {"text": "cookie"}) for number in range(1, 7)])
        since, until = build(3).at, build(5).at

        found = await store.texts.postings(["cooki"], since=since, until=until)

        assert [posting.position for posting in found.by_term["cooki"]] == [3, 4]
        assert (found.containing, found.marks) == ({"cooki": 6}, 6)

    async def test_postings_at_positions_are_those_of_the_marks_there(self, store: Store) -> None:
        await store.log.append([build(number, "mark", {"text": "cookie"}) for number in (1, 2, 3)])
        await store.log.append([build(4, "tool.ran", {"text": "cookie"})])
        whole = (await store.texts.postings(["cooki"])).by_term["cooki"]

        found = await store.texts.postings_at(["cooki", "unheard"], [3, 1, 4, 99, -1])

        assert found == {"cooki": (whole[0], whole[2]), "unheard": ()}
