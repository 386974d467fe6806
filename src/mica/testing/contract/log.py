"""The promises of `mica.store.protocol.Store`, as tests that run unchanged on every engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from mica.errors import DuplicateEvent, InvalidEvent, InvalidInput, StoreUnavailable
from mica.model.event import Appended, Context, EventId, EventQuery
from mica.store.protocol import Store
from mica.testing.builders import START_AT, build
from mica.testing.contract.crystals import CrystalContract
from mica.testing.contract.purges import PurgeContract
from mica.testing.contract.replies import ReplyContract
from mica.testing.contract.texts import TextContract
from mica.testing.contract.trails import TrailContract
from mica.testing.contract.work import WorkContract


class StoreContract(CrystalContract, PurgeContract, ReplyContract, TextContract, TrailContract, WorkContract):
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

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.events(EventQuery())
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.append([build(1)])
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.age(START_AT)
