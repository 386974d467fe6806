"""The promises of `mica.store.protocol.Store`, as tests that run unchanged on every engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from mica.errors import ClaimLost, DuplicateEvent, InvalidEvent, InvalidInput, StoreUnavailable
from mica.model import RETRACTED, Appended, Context, Event, EventId, EventQuery, Tombstone, Vectors, Work, tombstone
from mica.store.protocol import Store
from mica.store.purging import Selection, find
from mica.testing.builders import START_AT, build
from mica.testing.crystals import CrystalContract
from mica.testing.replies import ReplyContract
from mica.testing.trails import TrailContract
from mica.words import terms

HOUR, NO_TIME = timedelta(hours=1), timedelta(0)  # a lease that outlasts a test, and one that is over at once
TOLD = Tombstone(purge=build(1_000).id, reason="leaked")


class StoreContract(CrystalContract, ReplyContract, TrailContract):
    """Inherit, and give a fixture `store` that yields a new, empty store."""

    async def test_many_events_are_read_at_once_in_the_order_asked(self, store: Store) -> None:
        """B-13: each once, those that are not there left out."""
        events = [build(number) for number in range(1, 5)]
        await store.append(events)

        found = await store.events_of([events[2].id, build(99).id, events[0].id, events[2].id])

        assert [event.id for event in found] == [events[2].id, events[0].id]
        assert await store.events_of([]) == []

    # -- Append -----------------------------------------------------------------------------------------------

    async def test_what_was_appended_reads_back_equal(self, store: Store) -> None:
        """E-02, E-05, TE-05: content, context, lineage and provenance survive, whatever the size."""
        context = Context(session="s1", agent="scout", user="ann", task="login", labels=(("branch", "main"),))
        root = build(1, "tool.ran", {"n": 1, "f": 0.5, "none": None, "nul": "a\0b", "list": [1, "x", {"y": []}]})
        child = build(
            2, "tool.done", {"text": "käse " * 50_000}, parent=root, context=context, origin="tool", error=True
        )

        appended = await store.append([root, child])

        assert appended == Appended(stored=2, repeated=0)
        assert await store.event(root.id) == msgspec.structs.replace(root, position=1)
        assert await store.event(child.id) == msgspec.structs.replace(child, position=2)
        assert await store.event_at(2) == await store.event(child.id)

    async def test_append_of_the_same_event_counts_as_repeated(self, store: Store) -> None:
        """TE-03: idempotent by id."""
        event = build(1, data={"text": "once"})
        await store.append([event])

        assert await store.append([event, build(2), event]) == Appended(stored=1, repeated=2)
        assert [found.id for found in await store.events(EventQuery())] == [event.id, build(2).id]

    async def test_append_of_other_content_under_a_known_id_is_refused(self, store: Store) -> None:
        """TE-03: nothing is ever replaced."""
        event = build(1, data={"n": 1})
        await store.append([event])

        with pytest.raises(DuplicateEvent, match=event.id):
            await store.append([build(1, data={"n": 2})])

        assert (await store.events(EventQuery()))[0].data == {"n": 1}

    async def test_append_is_all_or_nothing(self, store: Store) -> None:
        await store.append([build(1, data={"n": 1}, context=Context(session="s1"))])

        fresh = build(2, "mark", {"text": "unseen"}, context=Context(session="new"))
        with pytest.raises(DuplicateEvent):
            await store.append([fresh, build(1, data={"n": 2})])

        assert [event.data for event in await store.events(EventQuery())] == [{"n": 1}]
        assert (await store.postings(["unseen"])).by_term == {"unseen": ()}
        assert (await store.sizes()).contexts == 1
        await store.append([build(2, "mark", {"text": "seen"}, context=Context(session="new"))])
        assert (await store.event_at(2)) == await store.event(build(2).id)

    async def test_append_of_nothing_is_nothing(self, store: Store) -> None:
        assert await store.append([]) == Appended(stored=0, repeated=0)
        assert await store.events(EventQuery()) == []

    async def test_an_event_without_a_usable_id_is_refused(self, store: Store) -> None:
        """TE-04"""
        for identifier in ("None", "", "e1", None):
            broken = msgspec.structs.replace(build(1), id=identifier)
            with pytest.raises(InvalidEvent, match="not an event id"):
                await store.append([broken])
        assert await store.events(EventQuery()) == []

    async def test_an_event_is_never_its_own_ancestor(self, store: Store) -> None:
        """TE-02"""
        event = build(1)
        with pytest.raises(InvalidEvent):
            await store.append([msgspec.structs.replace(event, parent_id=event.id, depth=1)])

    async def test_a_known_parent_must_fit(self, store: Store) -> None:
        """TE-02: root and depth of a child follow from its parent."""
        root = build(1)
        child = build(2, parent=root)
        for wrong in ({"depth": 3}, {"root_id": build(9).id}, {"parent_id": None}):
            with pytest.raises(InvalidEvent):
                await store.append([root, msgspec.structs.replace(child, **wrong)])
        assert await store.append([root, child]) == Appended(stored=2)

    async def test_a_parent_may_be_stored_after_its_child(self, store: Store) -> None:
        root = build(1)
        child = build(2, parent=root)
        await store.append([child])
        assert len(await store.verify()) == 1

        await store.append([root])

        assert await store.verify() == []
        assert [event.id for event in await store.descendants(root.id)] == [child.id]

    async def test_a_mark_without_text_is_refused(self, store: Store) -> None:
        """U-01: what is stored as a mark can be read as one."""
        broken: list[dict[str, object]] = [{}, {"text": 3}, {"text": "x", "tags": 5}]
        for data in broken:
            with pytest.raises(InvalidEvent, match="not a mark"):
                await store.append([build(1, "mark", data)])

    async def test_equal_contexts_are_stored_once(self, store: Store) -> None:
        """E-02, E-25, TE-06, K-42: contexts are really shared."""
        contexts = [Context(session=f"s{number % 2}", agent="scout") for number in range(40)]

        await store.append([build(number, context=context) for number, context in enumerate(contexts)])

        assert (await store.sizes()).contexts == 2

    async def test_concurrent_appends_all_arrive_once(self, store: Store) -> None:
        events = [build(number) for number in range(200)]

        done = await asyncio.gather(*(store.append(events[start : start + 20]) for start in range(0, 200, 10)))

        assert sum(appended.stored for appended in done) == 200
        assert len(await store.events(EventQuery(limit=None))) == 200

    # -- Read -------------------------------------------------------------------------------------------------

    async def test_unknown_ids_and_positions_are_an_answer(self, store: Store) -> None:
        assert await store.event(build(1).id) is None
        assert await store.event_at(1) is None
        assert await store.event_at(0) is None
        assert await store.chain("nothing") == []
        assert await store.ancestors(build(1).id) == []
        assert await store.descendants(build(1).id) == []

    async def test_something_that_is_no_id_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidEvent, match="'nonsense' is not an event id"):
            await store.event(EventId("nonsense"))

    async def test_last_events_of_a_session_come_oldest_first(self, store: Store) -> None:
        """E-29"""
        one, two = Context(session="s1"), Context(session="s2", agent="smith")
        await store.append([build(n, context=one if n % 2 else two) for n in range(1, 9)])

        found = await store.events(EventQuery(session="s1", limit=2))

        assert [event.position for event in found] == [5, 7]
        assert await store.events(EventQuery(session="s3")) == []
        assert await store.events(EventQuery(session="s1", limit=0)) == []
        assert len(await store.events(EventQuery(agent="smith"))) == 4

    async def test_events_of_a_time_range_include_its_start_and_not_its_end(self, store: Store) -> None:
        """E-26, E-29"""
        await store.append([build(n) for n in range(1, 6)])

        query = EventQuery(since=START_AT + timedelta(seconds=2), until=START_AT + timedelta(seconds=4))

        assert [event.position for event in await store.events(query)] == [2, 3]

    async def test_events_are_ordered_by_time_and_then_by_position(self, store: Store) -> None:
        """A clock that jumps back loses nothing and breaks no chain."""
        first = build(1, after_s=100)
        await store.append([first, build(2, after_s=50, parent=first), build(3, after_s=50)])

        assert [event.position for event in await store.events(EventQuery())] == [2, 3, 1]
        assert [event.position for event in await store.descendants(first.id)] == [2]

    async def test_name_patterns_match_whole_names(self, store: Store) -> None:
        """E-29: wildcards; TE-18: an error is a field, not a name."""
        names = ["file.read", "file.read.again", "profile.read", "shell.run", "error_free"]
        await store.append([build(n, name, error=name == "shell.run") for n, name in enumerate(names, start=1)])

        async def found(*patterns: str) -> list[int | None]:
            return [event.position for event in await store.events(EventQuery(names=patterns))]

        assert await found("file.*") == [1, 2]
        assert await found("file.read") == [1]
        assert await found("*.read", "shell.ru?") == [1, 3, 4]
        assert await found("none*") == []
        assert [event.name for event in await store.events(EventQuery(errors=True))] == ["shell.run"]
        assert len(await store.events(EventQuery(errors=False))) == 4

    async def test_full_text_needs_every_word_in_any_form(self, store: Store) -> None:
        await store.append(
            [
                build(1, "mark", {"text": "Cookies are set before the redirect"}),
                build(2, "mark", {"text": "The redirect loses nothing"}),
                build(3, "tool.failed", {"text": "redirecting cookie failed"}, error=True),
                build(4, "brief", {"text": "cookie redirect"}, origin="recalled"),
                build(5, "other", {"note": "cookie redirect"}),
            ]
        )

        assert [e.position for e in await store.events(EventQuery(text="redirected cookie"))] == [1, 3]
        assert [e.position for e in await store.events(EventQuery(text="redirect", names=("mark",)))] == [1, 2]
        assert await store.events(EventQuery(text="unheard")) == []
        with pytest.raises(InvalidInput, match="nothing to look for in 'the'"):
            await store.events(EventQuery(text="the"))

    async def test_the_log_is_read_in_commit_order_from_any_place(self, store: Store) -> None:
        """TE-19: a reader that remembers its position misses nothing and sees nothing twice."""
        await store.append([build(n, after_s=-n) for n in range(1, 6)])

        assert [event.position for event in await store.log(0, limit=3)] == [1, 2, 3]
        assert [event.position for event in await store.log(3, limit=10)] == [4, 5]
        assert await store.log(5, limit=10) == []
        assert await store.log(0, limit=0) == []

    async def test_a_chain_is_what_shares_a_root_or_a_correlation(self, store: Store) -> None:
        """E-30: and nothing else, however far back."""
        root = build(1)
        child = build(2, parent=root)
        elsewhere = Context(correlation="req-1")
        await store.append([root, child, build(3), build(4, parent=child), build(5, context=elsewhere)])
        await store.append([build(6, context=elsewhere)])

        assert [event.position for event in await store.chain(root.id)] == [1, 2, 4]
        assert [event.position for event in await store.chain("req-1")] == [5, 6]
        assert [event.position for event in await store.chain(child.id)] == []

    async def test_ancestors_and_descendants_are_causal_only(self, store: Store) -> None:
        """TE-17, E-25, E-30, E-31: what came later in the same chain is no descendant."""
        root = build(1)
        left, right = build(2, parent=root), build(3, parent=root)
        leaf = build(4, parent=left)
        await store.append([root, left, right, leaf])

        assert [event.position for event in await store.ancestors(leaf.id)] == [2, 1]
        assert [event.position for event in await store.descendants(root.id)] == [2, 3, 4]
        assert [event.position for event in await store.descendants(root.id, depth=1)] == [2, 3]
        assert [event.position for event in await store.descendants(left.id)] == [4]
        assert [event.position for event in await store.descendants(left.id, depth=1)] == [4]
        assert await store.descendants(left.id, depth=0) == []

    # -- What a ranker needs ----------------------------------------------------------------------------------

    async def test_postings_count_terms_of_marks_only(self, store: Store) -> None:
        session = Context(session="s1")
        await store.append(
            [
                build(1, "mark", {"text": "cookie after cookie in the session"}, context=session),
                build(2, "mark", {"text": "a session"}),
                build(3, "tool.failed", {"text": "cookie"}),
            ]
        )

        found = await store.postings([*terms("cookie session"), "unheard"])

        cookie, session_term = terms("cookie session")
        assert [(p.position, p.count, p.length, p.session) for p in found.by_term[cookie]] == [(1, 2, 6, "s1")]
        assert [(p.position, p.count, p.session) for p in found.by_term[session_term]] == [(1, 1, "s1"), (2, 1, None)]
        assert found.by_term["unheard"] == ()
        assert (found.marks, found.mean_length) == (2, 4.0)
        assert found.length_spread > 0

    async def test_postings_of_an_empty_store(self, store: Store) -> None:
        found = await store.postings(["cooki"])
        assert (found.marks, found.mean_length, found.length_spread) == (0, 0.0, 0.0)

    async def test_texts_come_with_their_neighbours_in_the_session(self, store: Store) -> None:
        one, two = Context(session="s1"), Context(session="s2")
        marks = [build(n, "mark", {"text": f"mark number {n}"}, context=one) for n in range(1, 8)]
        other = [build(n, "mark", {"text": f"mark {n}"}, context=two) for n in range(8, 10)]
        await store.append([*marks, *other, build(10, "mark", {"text": "alone"}), build(11, "mark", {"text": "too"})])

        found = await store.texts([4, 9, 10], neighbours=2)

        assert [(text.mark.position, text.ordinal) for text in found] == [
            (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (8, 0), (9, 1), (10, 0),
        ]  # fmt: skip
        assert {text.session_length for text in found} == {21, 4, 1}
        assert await store.texts([]) == []
        assert await store.texts([99]) == []

    async def test_postings_with_a_limit_list_the_marks_that_say_most_and_count_all(self, store: Store) -> None:
        """C-24: however common a word is, a question costs no more than its limit; what is rare is worth more."""
        texts = ["common rare", *("common often" for _ in range(3)), *("common" for _ in range(6))]
        await store.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])
        wanted = [*terms("common often rare"), "unheard"]
        common, often, rare, _ = wanted

        whole = await store.postings(wanted)
        some = await store.postings(wanted, limit=4)
        least = await store.postings([common], limit=4)

        assert [len(whole.by_term[term]) for term in wanted] == [10, 3, 1, 0]
        assert whole.containing == some.containing == {common: 10, often: 3, rare: 1, "unheard": 0}
        assert [[posting.position for posting in some.by_term[term]] for term in wanted] == [
            [1, 2, 3, 4], [2, 3, 4], [1], [],
        ]  # fmt: skip
        assert [posting.position for posting in least.by_term[common]] == [7, 8, 9, 10]
        assert (some.marks, some.mean_length) == (whole.marks, whole.mean_length)

    async def test_of_equal_marks_the_latest_are_listed_and_weights_say_what_counts(self, store: Store) -> None:
        """C-24: where not all can be listed, it is the sum of what is asked for that chooses, then the time."""
        texts = ["one two three", "one three", "one two", *("one three" for _ in range(4)), *("one" for _ in range(5))]
        texts += ["two three" for _ in range(20)] + ["three"]
        await store.append([build(number, "mark", {"text": text}) for number, text in enumerate(texts, 1)])

        async def listed(limit: int, **weights: float) -> list[int]:
            found = await store.postings(["one", "two", "three"], weights=weights, limit=limit)
            return sorted({posting.position for postings in found.by_term.values() for posting in postings})

        assert [await listed(limit) for limit in (0, 1, 2, 4)] == [[], [1], [1, 3], [1, 3, 6, 7]]
        assert await listed(9) == [1, 2, 3, 4, 5, 6, 7, 11, 12]
        assert await listed(3, one=0.1) == [1, 31, 32]

    async def test_what_is_known_of_texts_follows_the_log(self, store: Store) -> None:
        """C-24: statistics and neighbours are those of now, after every kind of change."""

        async def told() -> tuple[int, int, list[tuple[int, int, int]]]:
            found = await store.postings(["cooki"])
            texts = await store.texts([1])
            places = [(text.position, text.ordinal, text.session_length) for text in texts]
            return found.marks, found.containing["cooki"], places

        def mark(number: int, text: str, after_s: float | None = None) -> Event:
            return build(number, "mark", {"text": text}, context=Context(session="s"), after_s=after_s)

        await store.append([mark(1, "a cookie"), mark(2, "a cookie jar")])
        assert await told() == (2, 2, [(1, 0, 5), (2, 1, 5)])
        await store.append([mark(3, "no"), build(4, "note", {"text": "cookie"})])
        assert await told() == (3, 2, [(1, 0, 6), (2, 1, 6), (3, 2, 6)])
        await store.append([mark(5, "an early cookie", after_s=-60)])
        assert await told() == (4, 3, [(1, 1, 9), (2, 2, 9), (3, 3, 9), (5, 0, 9)])
        await store.append([build(6, RETRACTED, {"mark": build(2).id, "reason": "wrong"})])
        assert await told() == (3, 2, [(1, 1, 6), (3, 2, 6), (5, 0, 6)])
        await store.bury([build(5).id], Tombstone(purge=build(1_000).id, reason="leaked"))
        assert await told() == (2, 1, [(1, 0, 3), (3, 1, 3)])
        await store.rebuild()
        assert await told() == (2, 1, [(1, 0, 3), (3, 1, 3)])

    async def test_postings_of_a_time_list_its_marks_and_count_all(self, store: Store) -> None:
        await store.append([build(number, "mark", {"text": "cookie"}) for number in range(1, 7)])
        since, until = build(3).at, build(5).at

        found = await store.postings(["cooki"], since=since, until=until)

        assert [posting.position for posting in found.by_term["cooki"]] == [3, 4]
        assert (found.containing, found.marks) == ({"cooki": 6}, 6)

    async def test_postings_at_positions_are_those_of_the_marks_there(self, store: Store) -> None:
        await store.append([build(number, "mark", {"text": "cookie"}) for number in (1, 2, 3)])
        await store.append([build(4, "tool.ran", {"text": "cookie"})])
        whole = (await store.postings(["cooki"])).by_term["cooki"]

        found = await store.postings_at(["cooki", "unheard"], [3, 1, 4, 99, -1])

        assert found == {"cooki": (whole[0], whole[2]), "unheard": ()}

    async def test_vectors_are_kept_for_marks_and_read_latest_first(self, store: Store) -> None:
        """K-34, K-59: what a model made of marks is kept with its name, and never mixed with another's."""
        await store.append([build(number, "mark", {"text": f"mark {number}"}) for number in (1, 2, 3)])
        await store.append([build(4, "tool.ran", {"text": "no mark"})])

        assert await store.without_vector("m", limit=2) == [(3, "mark 3"), (2, "mark 2")]
        await store.save_vectors("m", {3: b"three", 1: b"one", 4: b"four", 99: b"none"})

        assert await store.vectors("m", limit=9) == Vectors(2, ((1, b"one"), (3, b"three")))
        assert await store.vectors("m", limit=1) == Vectors(2, ((3, b"three"),))
        assert await store.vectors("m", after=1, limit=9) == Vectors(2, ((3, b"three"),))
        assert await store.vectors("other", limit=9) == Vectors(0, ())
        assert await store.without_vector("m", limit=9) == [(2, "mark 2")]
        await store.save_vectors("other", {1: b"ein"})
        assert await store.vectors("m", limit=9) == Vectors(1, ((3, b"three"),))
        assert await store.vectors("other", limit=9) == Vectors(1, ((1, b"ein"),))

    async def test_a_purge_takes_vectors_and_none_comes_back(self, store: Store) -> None:
        """U-08: also when a model is still reading what is purged meanwhile."""
        marks = [build(number, "mark", {"text": f"mark {number}"}) for number in (1, 2)]
        await store.append(marks)
        await store.save_vectors("m", {1: b"one", 2: b"two"})

        await store.bury([marks[0].id], TOLD)
        await store.save_vectors("m", {1: b"late"})

        assert await store.vectors("m", limit=9) == Vectors(1, ((2, b"two"),))
        assert await store.without_vector("m", limit=9) == []

    async def test_rebuild_forgets_vectors(self, store: Store) -> None:
        """They are derived: who made them makes them again."""
        await store.append([build(1, "mark", {"text": "one"})])
        await store.save_vectors("m", {1: b"one"})

        await store.rebuild()

        assert await store.vectors("m", limit=9) == Vectors(0, ())
        assert await store.without_vector("m", limit=9) == [(1, "one")]

    async def test_agents_are_listed_once(self, store: Store) -> None:
        names = ["smith", "scout", None, "smith"]
        await store.append([build(n, context=Context(agent=name, user=str(n))) for n, name in enumerate(names)])
        assert await store.agents() == ["scout", "smith"]

    # -- Work -------------------------------------------------------------------------------------------------

    async def test_work_is_claimed_by_one_when_it_is_due(self, store: Store) -> None:
        """K-56: several processes share background work and none of it is done twice."""
        await store.plan("age", due_at=START_AT)

        early = await store.claim(["age"], owner="a", due_by=START_AT - timedelta(seconds=1), lease=HOUR)
        claim = await store.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)

        assert early is None
        assert claim is not None
        assert (claim.kind, claim.about, claim.due_at, claim.owner) == ("age", "", START_AT, "a")
        assert await store.claim(["age"], owner="b", due_by=START_AT, lease=HOUR) is None
        assert await store.work() == [Work(kind="age", due_at=START_AT, owner="a", held_until=claim.held_until)]
        await store.finish(claim)
        assert await store.work() == []

    async def test_the_most_overdue_work_of_the_asked_kinds_comes_first(self, store: Store) -> None:
        """A process asks for what it can do: an older one does not take what it has never heard of."""
        for n, (kind, about) in enumerate([("age", ""), ("crystallize", "s2"), ("crystallize", "s1"), ("evolve", "")]):
            await store.plan(kind, about=about, due_at=START_AT - timedelta(minutes=n))

        kinds = ["crystallize", "age"]
        claims = [await store.claim(kinds, owner="a", due_by=START_AT, lease=HOUR) for _ in range(4)]

        assert [claim and (claim.kind, claim.about) for claim in claims] == [
            ("crystallize", "s1"), ("crystallize", "s2"), ("age", ""), None,
        ]  # fmt: skip
        assert await store.claim([], owner="a", due_by=START_AT, lease=HOUR) is None
        assert [work.kind for work in await store.work()] == ["evolve", "crystallize", "crystallize", "age"]

    async def test_of_two_plans_the_earlier_counts(self, store: Store) -> None:
        for minutes in (5, 3, 8):
            await store.plan("age", due_at=START_AT + timedelta(minutes=minutes))
        assert [work.due_at for work in await store.work()] == [START_AT + timedelta(minutes=3)]

    async def test_work_planned_while_it_is_held_is_done_once_more(self, store: Store) -> None:
        """What changed after the holder had looked is not forgotten."""
        await store.plan("age", due_at=START_AT)
        claim = await store.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert claim is not None
        await store.plan("age", due_at=START_AT + timedelta(minutes=9))
        await store.plan("age", due_at=START_AT + timedelta(minutes=2))

        await store.finish(claim, again_at=START_AT + timedelta(minutes=5))

        assert await store.work() == [Work(kind="age", due_at=START_AT + timedelta(minutes=2))]

    async def test_what_is_planned_already_is_not_planned_by_a_late_first_plan(self, store: Store) -> None:
        """K-56: who saw no plan, and was slow, does not have done again what another has planned and done since."""
        await store.plan("age", due_at=START_AT, only_new=True)
        claim = await store.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert claim is not None
        await store.plan("age", due_at=START_AT, only_new=True)
        await store.finish(claim, again_at=START_AT + HOUR)
        await store.plan("age", due_at=START_AT, only_new=True)

        assert await store.work() == [Work(kind="age", due_at=START_AT + HOUR)]

    async def test_a_lease_that_has_run_out_can_be_claimed_by_another(self, store: Store) -> None:
        """K-56: a holder that died holds nothing for ever, and one that slept too long is told."""
        await store.plan("age", due_at=START_AT)
        first = await store.claim(["age"], owner="a", due_by=START_AT, lease=NO_TIME)
        second = await store.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)  # the same owner, another claim
        assert first is not None
        assert second is not None
        assert first.due_at == second.due_at

        with pytest.raises(ClaimLost, match="'a' does not hold age any more"):
            await store.finish(first)
        with pytest.raises(ClaimLost):
            await store.renew(first, lease=HOUR)

        await store.finish(second, again_at=START_AT + HOUR)
        with pytest.raises(ClaimLost):
            await store.finish(second)
        assert await store.work() == [Work(kind="age", due_at=START_AT + HOUR)]

    async def test_a_lease_can_be_renewed_and_is_no_obstacle_to_finish(self, store: Store) -> None:
        await store.plan("age", due_at=START_AT)
        claim = await store.claim(["age"], owner="a", due_by=START_AT, lease=NO_TIME)
        assert claim is not None

        renewed = await store.renew(claim, lease=HOUR)
        assert await store.claim(["age"], owner="b", due_by=START_AT, lease=HOUR) is None
        assert renewed.held_until > claim.held_until
        await store.renew(renewed, lease=NO_TIME)
        await store.finish(claim)

        assert await store.work() == []

    async def test_work_that_cannot_be_named_or_held_is_refused(self, store: Store) -> None:
        for kind, about in [("", ""), ("x" * 501, ""), ("age", "a\0b"), ("age", "\ud800")]:
            with pytest.raises(InvalidInput, match="not usable"):
                await store.plan(kind, about=about, due_at=START_AT)
        with pytest.raises(InvalidInput, match="no time zone"):
            await store.plan("age", due_at=START_AT.replace(tzinfo=None))
        with pytest.raises(InvalidInput, match="no time zone"):
            await store.claim(["age"], owner="a", due_by=START_AT.replace(tzinfo=None), lease=HOUR)
        for lease in (-HOUR, timedelta(days=2)):
            with pytest.raises(InvalidInput, match="a lease of"):
                await store.claim(["age"], owner="a", due_by=START_AT, lease=lease)
        assert await store.work() == []

    async def test_many_who_claim_at_once_share_the_work(self, store: Store) -> None:
        """U-03: each piece goes to one of them."""
        for n in range(20):
            await store.plan("crystallize", about=f"s{n}", due_at=START_AT)

        async def work(owner: str) -> list[str]:
            done = []
            while claim := await store.claim(["crystallize"], owner=owner, due_by=START_AT, lease=HOUR):
                done.append(claim.about)
                await store.finish(claim)
            return done

        done = await asyncio.gather(*(work(f"worker {n}") for n in range(8)))

        assert sorted(about for part in done for about in part) == sorted(f"s{n}" for n in range(20))
        assert await store.work() == []

    async def test_the_last_position_is_that_of_the_last_event(self, store: Store) -> None:
        assert await store.last_position() == 0
        await store.append([build(n, after_s=-n) for n in range(1, 4)])
        await store.append([build(2, after_s=-2)])
        assert await store.last_position() == 3

    # -- Keep -------------------------------------------------------------------------------------------------

    async def test_rebuild_changes_no_answer(self, store: Store) -> None:
        """U-07: indexes are projections of the log."""
        events = [build(n, "mark", {"text": f"cookie {n}"}, context=Context(session="s1")) for n in range(1, 6)]
        await store.append(events)
        before = await store.postings(["cooki"]), await store.texts([3]), await store.events(EventQuery(text="cookie"))

        heard: list[int] = []
        assert await store.rebuild(on_progress=heard.append) == 5
        assert heard in ([], [5])  # nothing of a store behind a server

        assert before == (
            await store.postings(["cooki"]),
            await store.texts([3]),
            await store.events(EventQuery(text="cookie")),
        )
        assert await store.verify() == []

    async def test_ageing_changes_no_answer(self, store: Store) -> None:
        """E-03, E-30, K-43: rows or blocks, readers see one log; whatever arrives later meets what has aged."""
        here = Context(session="s1", agent="scout", correlation="req-1")
        root = build(1, "mark", {"text": "cookie"}, context=here)
        child = build(2, "tool.failed", {"text": "x" * 20_000}, parent=root, context=here, error=True)
        others = [
            build(n, "mark", {"text": f"session {n}"}, context=Context(session=f"s{n % 3}")) for n in range(3, 40)
        ]
        await store.append([root, child, *others])

        async def asked() -> list[object]:
            return [
                await store.events(EventQuery(limit=None)),
                await store.events(EventQuery(session="s1", limit=5)),
                await store.events(EventQuery(agent="scout", names=("tool.*",), errors=True)),
                await store.events(EventQuery(text="cookie")),
                await store.log(5, limit=7),
                await store.event(child.id),
                await store.event_at(3),
                await store.chain("req-1"),
                await store.chain(root.id),
                await store.ancestors(child.id),
                await store.descendants(root.id),
                await store.postings(["session"]),
                await store.texts([5, 9]),
                await store.agents(),
                await store.verify(),
            ]

        before = await asked()
        while await store.age(START_AT + timedelta(seconds=20), limit=10):
            pass

        assert await asked() == before
        assert await store.append([root, child, *others]) == Appended(repeated=39)
        with pytest.raises(DuplicateEvent, match=child.id):
            await store.append([msgspec.structs.replace(child, body=b"{}")])
        with pytest.raises(InvalidEvent):
            await store.append([msgspec.structs.replace(build(50, parent=child), depth=9)])
        late = build(51, parent=child, after_s=1)
        assert await store.append([late]) == Appended(stored=1)
        assert [event.id for event in await store.descendants(root.id)] == [late.id, child.id]
        assert [event.id for event in await store.ancestors(late.id)] == [child.id, root.id]

    async def test_ageing_waits_until_enough_is_due(self, store: Store) -> None:
        await store.append([build(n) for n in range(1, 9)])
        assert await store.age(START_AT + timedelta(days=1), at_least=9) == 0
        assert (await store.sizes()).aged == 0

    async def test_verify_names_a_missing_parent(self, store: Store) -> None:
        child = build(2, parent=build(1))
        await store.append([child])
        problems = await store.verify()
        assert len(problems) == 1
        assert child.id in problems[0]
        assert build(1).id in problems[0]

    async def test_sizes_count_what_is_there(self, store: Store) -> None:
        await store.append([build(1, "mark", {"text": "x"}), build(2), build(3, context=Context(agent="a"))])
        sizes = await store.sizes()
        assert (sizes.events, sizes.marks, sizes.contexts) == (3, 1, 2)

    # -- Purge ------------------------------------------------------------------------------------------------

    async def test_a_buried_event_leaves_its_place_and_nothing_else(self, store: Store) -> None:
        """K-53, U-08, TE-16: id, position, time and lineage stay, with the reason; content and all it alone used go."""
        context = Context(session="s1", agent="ann", user="u1", correlation="c1", labels=(("branch", "main"),))
        root = build(1, "mark", {"text": "secret plan"}, context=context, error=True)
        large = build(2, "tool.ran", {"x": "y" * 6_000}, parent=root, context=context, origin="tool")
        other = build(3, "mark", {"text": "open plan"}, parent=root, context=Context(session="s1"))
        await store.append([root, large, other])

        assert await store.bury([root.id, large.id, root.id, build(9).id], TOLD) == 2
        assert await store.bury([root.id], TOLD) == 0

        buried = [msgspec.structs.replace(tombstone(event, TOLD), position=n) for n, event in ((1, root), (2, large))]
        assert await store.log(0, limit=9) == [*buried, msgspec.structs.replace(other, position=3)]
        assert await store.event(root.id) == buried[0]
        assert (buried[0].root_id, buried[0].at, buried[0].context) == (root.id, root.at, Context())
        assert buried[0].data == {"purge": TOLD.purge, "reason": TOLD.reason}
        assert [event.id for event in await store.descendants(root.id)] == [large.id, other.id]
        assert (await store.postings(terms("secret plan"))).marks == 1
        assert await store.events(EventQuery(text="secret")) == []
        assert await store.agents() == []
        sizes = await store.sizes()
        assert (sizes.events, sizes.marks, sizes.contexts, sizes.payloads) == (3, 1, 2, 0)
        assert await store.rebuild() == 3
        assert await store.log(0, limit=2) == buried
        assert await store.verify() == []

    async def test_what_was_purged_never_comes_back(self, store: Store) -> None:
        """U-08: appending it again, as a second import or fold does, counts as repeated."""
        event, other = build(1, data={"n": 1}), build(2)
        await store.append([event, other])
        await store.bury([event.id], TOLD)

        assert await store.append([event, other]) == Appended(stored=0, repeated=2)
        assert await store.append([tombstone(other, TOLD)]) == Appended(stored=0, repeated=1)

        assert [found.name for found in await store.events(EventQuery())] == ["event.purged", other.name]

    async def test_a_tombstone_with_content_is_refused(self, store: Store) -> None:
        named = Context(session="s1")
        whole: dict[str, object] = {"purge": TOLD.purge, "reason": "x"}
        for broken in (
            build(1, "event.purged", {}),
            build(1, "event.purged", whole | {"text": "left"}),
            build(1, "event.purged", whole, context=named),
            build(1, "event.purged", whole | {"purge": "nobody"}),
        ):
            with pytest.raises(InvalidEvent):
                await store.append([broken])

    async def test_a_kept_purge_takes_what_arrives_later(self, store: Store) -> None:
        """U-08, K-53: whatever happened before it, in a segment elsewhere, is stored as a tombstone."""
        selection = Selection(value="sk-live-42")
        at = START_AT + timedelta(seconds=10)
        await store.append([build(1, data={"key": "sk-live-42"})])
        kept = selection.kept(at=at, told=TOLD)
        assert kept is not None
        await store.keep_purge(kept)
        await store.keep_purge(kept)

        leaked: dict[str, object] = {"deep": [{"text": "curl -u sk-live-42:"}]}
        events = [build(2, data=leaked), build(3, data={"key": "sk-live-4"}), build(11, data=leaked)]
        assert await store.append(events) == Appended(stored=3)
        assert await store.append(events) == Appended(stored=0, repeated=3)

        names = [event.name for event in await store.log(0, limit=9)]
        assert names == ["test.happened", "event.purged", "test.happened", "test.happened"]
        assert await store.purges() == [kept]
        assert await store.verify() == []

    async def test_what_a_purge_takes_on_arrival_leaves_no_context(self, store: Store) -> None:
        """U-08: who and where it was is content, too; neither a first nor a repeated append keeps it."""
        await store.append([build(1), build(2, "event.purged", {"purge": TOLD.purge, "reason": "x"})])
        before = await store.sizes()
        kept = Selection(session="s1").kept(at=START_AT + timedelta(seconds=10), told=TOLD)
        assert kept is not None
        await store.keep_purge(kept)

        late = [build(n, context=Context(session="s1", agent=f"agent {n}")) for n in (3, 4)]
        assert await store.append(late) == Appended(stored=2)
        assert await store.append(late) == Appended(repeated=2)

        assert ((await store.sizes()).contexts, await store.agents()) == (before.contexts, [])

    async def test_a_word_that_a_purge_took_can_be_used_again(self, store: Store) -> None:
        """Numbers of interned words are not taken for those of others."""
        context = Context(session="s1", agent="ann")
        first = build(1, "one.name", {"text": "first words"}, context=context)
        await store.append([build(5), first])
        await store.bury([first.id], TOLD)

        again = build(2, "other.name", {"text": "second words"}, context=Context(session="s2", agent="bob"))
        same = build(3, "one.name", {"text": "first words"}, context=context)
        await store.append([again, same])

        assert [event.name for event in await store.log(1, limit=9)] == ["event.purged", "other.name", "one.name"]
        assert await store.event(same.id) == msgspec.structs.replace(same, position=4)
        assert [event.id for event in await store.events(EventQuery(text="first", session="s1"))] == [same.id]
        assert await store.verify() == []

    async def test_selections_find_the_same_in_every_way(self, store: Store) -> None:
        """However an engine is asked, all that fits is found, once, also beyond one step."""
        contexts = [Context(session=f"s{n % 3}", agent=f"a{n % 2}", user="ann") for n in range(6)]
        events = [
            build(n, data={"n": f"key-{n}."}, context=contexts[n % 6], after_s=n // 2_000) for n in range(1, 2_501)
        ]
        await store.append(events)
        second = START_AT + timedelta(seconds=1)
        for selection in (
            Selection(user="ann"),
            Selection(session="s1", agent="a0"),
            Selection(until=second),
            Selection(since=second, agent="a1"),
            Selection(value="key-77."),
            Selection(value="key-7", user="ann", session="s2"),
            Selection(ids=frozenset([events[0].id, events[7].id, build(9_999).id])),
        ):
            found = await find(store, selection)
            assert len(set(found.ids)) == len(found.ids)
            assert set(found.ids) == {event.id for event in events if selection.fits(event)}
            assert found.ids

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.events(EventQuery())
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.append([build(1)])
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.age(START_AT)
