"""Tests of the promises of `EventLog`, which run unchanged on every kind of store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from mica.errors import DuplicateEvent, InvalidEvent, InvalidInput
from mica.model.event import Appended, Context, EventId, EventQuery
from mica.store.protocol import Store
from mica.testing.builders import START_AT, build


class LogContract:
    """Tests of `EventLog`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_many_events_are_read_at_once_in_the_requested_order(self, store: Store) -> None:
        """Each event is returned once, and unknown ids are skipped."""
        events = [build(number) for number in range(1, 5)]
        await store.log.append(events)

        found = await store.log.get_many([events[2].id, build(99).id, events[0].id, events[2].id])

        assert [event.id for event in found] == [events[2].id, events[0].id]
        assert await store.log.get_many([]) == []

    async def test_appended_events_read_back_equal(self, store: Store) -> None:
        """keeps: E-02, E-05, E-17, TE-05. Content of any size, context, lineage and origin are stored unchanged."""
        context = Context(session="s1", agent="scout", user="ann", task="login", labels=(("branch", "main"),))
        root = build(1, "tool.ran", {"n": 1, "f": 0.5, "none": None, "nul": "a\0b", "list": [1, "x", {"y": []}]})
        child = build(
            2, "tool.done", {"text": "käse " * 50_000}, parent=root, context=context, origin="tool", error=True
        )

        appended = await store.log.append([root, child])

        assert appended == Appended(stored=2, repeated=0)
        assert await store.log.get(root.id) == msgspec.structs.replace(root, position=1)
        assert await store.log.get(child.id) == msgspec.structs.replace(child, position=2)
        assert await store.log.at(2) == await store.log.get(child.id)

    async def test_append_of_the_same_event_counts_as_repeated(self, store: Store) -> None:
        """keeps: TE-03. An append is idempotent: a known id with equal content changes nothing."""
        event = build(1, data={"text": "once"})
        await store.log.append([event])

        assert await store.log.append([event, build(2), event]) == Appended(stored=1, repeated=2)
        assert [found.id for found in await store.log.query(EventQuery())] == [event.id, build(2).id]

    async def test_append_of_other_content_under_a_known_id_is_refused(self, store: Store) -> None:
        """keeps: TE-03. A stored event is never replaced."""
        event = build(1, data={"n": 1})
        await store.log.append([event])

        with pytest.raises(DuplicateEvent, match=event.id):
            await store.log.append([build(1, data={"n": 2})])

        assert (await store.log.query(EventQuery()))[0].data == {"n": 1}

    async def test_append_is_all_or_nothing(self, store: Store) -> None:
        await store.log.append([build(1, data={"n": 1}, context=Context(session="s1"))])

        fresh = build(2, "mark", {"text": "unseen"}, context=Context(session="new"))
        with pytest.raises(DuplicateEvent):
            await store.log.append([fresh, build(1, data={"n": 2})])

        assert [event.data for event in await store.log.query(EventQuery())] == [{"n": 1}]
        assert (await store.texts.postings(["unseen"])).by_term == {"unseen": ()}
        assert (await store.files.sizes()).contexts == 1
        await store.log.append([build(2, "mark", {"text": "seen"}, context=Context(session="new"))])
        assert (await store.log.at(2)) == await store.log.get(build(2).id)

    async def test_an_empty_append_stores_nothing(self, store: Store) -> None:
        assert await store.log.append([]) == Appended(stored=0, repeated=0)
        assert await store.log.query(EventQuery()) == []

    async def test_an_event_without_a_usable_id_is_refused(self, store: Store) -> None:
        """keeps: TE-04"""
        for identifier in ("None", "", "e1", None):
            broken = msgspec.structs.replace(build(1), id=identifier)
            with pytest.raises(InvalidEvent, match="not an event id"):
                await store.log.append([broken])
        assert await store.log.query(EventQuery()) == []

    async def test_a_known_parent_must_fit(self, store: Store) -> None:
        """keeps: TE-02. Root and depth of a child follow from its parent."""
        root = build(1)
        child = build(2, parent=root)
        for wrong in ({"depth": 3}, {"root_id": build(9).id}, {"parent_id": None}):
            with pytest.raises(InvalidEvent):
                await store.log.append([root, msgspec.structs.replace(child, **wrong)])
        assert await store.log.append([root, child]) == Appended(stored=2)

    async def test_a_parent_may_be_stored_after_its_child(self, store: Store) -> None:
        root = build(1)
        child = build(2, parent=root)
        await store.log.append([child])
        assert len(await store.files.verify()) == 1

        await store.log.append([root])

        assert await store.files.verify() == []
        assert [event.id for event in await store.chains.descendants(root.id)] == [child.id]

    async def test_a_mark_without_text_is_refused(self, store: Store) -> None:
        """keeps: U-01. Every stored event that is named "mark" can be decoded as a mark."""
        broken: list[dict[str, object]] = [{}, {"text": 3}, {"text": "x", "tags": 5}]
        for data in broken:
            with pytest.raises(InvalidEvent, match="not a mark"):
                await store.log.append([build(1, "mark", data)])

    async def test_equal_contexts_are_stored_once(self, store: Store) -> None:
        """keeps: E-02, E-25, K-42. Forty events with two different contexts store two contexts, in several appends."""
        contexts = [Context(session=f"s{number % 2}", agent="scout") for number in range(40)]
        events = [build(number, context=context) for number, context in enumerate(contexts)]

        await store.log.append(events[:20])
        await store.log.append(events[20:30])
        await store.log.append(events[30:])

        assert (await store.files.sizes()).contexts == 2

    async def test_concurrent_appends_all_arrive_once(self, store: Store) -> None:
        events = [build(number) for number in range(200)]

        done = await asyncio.gather(*(store.log.append(events[start : start + 20]) for start in range(0, 200, 10)))

        assert sum(appended.stored for appended in done) == 200
        assert len(await store.log.query(EventQuery(limit=None))) == 200

    async def test_unknown_ids_and_positions_give_an_empty_answer(self, store: Store) -> None:
        assert await store.log.get(build(1).id) is None
        assert await store.log.at(1) is None
        assert await store.log.at(0) is None
        assert await store.chains.chain("nothing") == []
        assert await store.chains.ancestors(build(1).id) == []
        assert await store.chains.descendants(build(1).id) == []

    async def test_an_invalid_id_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidEvent, match="'nonsense' is not an event id"):
            await store.log.get(EventId("nonsense"))

    async def test_last_events_of_a_session_come_oldest_first(self, store: Store) -> None:
        """keeps: E-29"""
        one, two = Context(session="s1"), Context(session="s2", agent="smith")
        await store.log.append([build(n, context=one if n % 2 else two) for n in range(1, 9)])

        found = await store.log.query(EventQuery(session="s1", limit=2))

        assert [event.position for event in found] == [5, 7]
        assert await store.log.query(EventQuery(session="s3")) == []
        assert await store.log.query(EventQuery(session="s1", limit=0)) == []
        assert len(await store.log.query(EventQuery(agent="smith"))) == 4

    async def test_events_of_a_time_range_include_its_start_and_not_its_end(self, store: Store) -> None:
        """keeps: E-26, E-29"""
        await store.log.append([build(n) for n in range(1, 6)])

        query = EventQuery(since=START_AT + timedelta(seconds=2), until=START_AT + timedelta(seconds=4))

        assert [event.position for event in await store.log.query(query)] == [2, 3]

    async def test_events_are_ordered_by_time_and_then_by_position(self, store: Store) -> None:
        """A clock that jumps back loses no events and breaks no links between parents and children."""
        first = build(1, after_s=100)
        await store.log.append([first, build(2, after_s=50, parent=first), build(3, after_s=50)])

        assert [event.position for event in await store.log.query(EventQuery())] == [2, 3, 1]
        assert [event.position for event in await store.chains.descendants(first.id)] == [2]

    async def test_name_patterns_match_whole_names(self, store: Store) -> None:
        """keeps: E-29, TE-18. Patterns may contain wildcards. Errors are selected by a field, not by their name."""
        names = ["file.read", "file.read.again", "profile.read", "shell.run", "error_free"]
        await store.log.append([build(n, name, error=name == "shell.run") for n, name in enumerate(names, start=1)])

        async def found(*patterns: str) -> list[int | None]:
            return [event.position for event in await store.log.query(EventQuery(names=patterns))]

        assert await found("file.*") == [1, 2]
        assert await found("file.read") == [1]
        assert await found("*.read", "shell.ru?") == [1, 3, 4]
        assert await found("none*") == []
        assert [event.name for event in await store.log.query(EventQuery(errors=True))] == ["shell.run"]
        assert len(await store.log.query(EventQuery(errors=False))) == 4

    async def test_full_text_needs_every_word_in_any_form(self, store: Store) -> None:
        await store.log.append(
            [
                build(1, "mark", {"text": "Cookies are set before the redirect"}),
                build(2, "mark", {"text": "The redirect loses nothing"}),
                build(3, "tool.failed", {"text": "redirecting cookie failed"}, error=True),
                build(4, "brief", {"text": "cookie redirect"}, origin="recalled"),
                build(5, "other", {"note": "cookie redirect"}),
            ]
        )

        assert [e.position for e in await store.log.query(EventQuery(text="redirected cookie"))] == [1, 3]
        assert [e.position for e in await store.log.query(EventQuery(text="redirect", names=("mark",)))] == [1, 2]
        assert await store.log.query(EventQuery(text="unheard")) == []
        with pytest.raises(InvalidInput, match="nothing to search for in 'the'"):
            await store.log.query(EventQuery(text="the"))

    async def test_the_log_is_read_in_commit_order_from_any_place(self, store: Store) -> None:
        """keeps: TE-19. A reader that remembers its position misses no event and sees none twice."""
        await store.log.append([build(n, after_s=-n) for n in range(1, 6)])

        assert [event.position for event in await store.log.read(0, limit=3)] == [1, 2, 3]
        assert [event.position for event in await store.log.read(3, limit=10)] == [4, 5]
        assert await store.log.read(5, limit=10) == []
        assert await store.log.read(0, limit=0) == []

    async def test_the_last_position_is_that_of_the_last_event(self, store: Store) -> None:
        assert await store.log.last_position() == 0
        await store.log.append([build(n, after_s=-n) for n in range(1, 4)])
        await store.log.append([build(2, after_s=-2)])
        assert await store.log.last_position() == 3
