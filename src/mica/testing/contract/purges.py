"""Tests of the promises of `PurgeLog`, which run unchanged on every kind of store."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from mica.errors import InvalidEvent
from mica.model.event import Appended, Context, EventQuery, make_tombstone
from mica.store.protocol import Store
from mica.store.purges import Selection, find
from mica.testing.builders import START_AT, TOMBSTONE, build
from mica.words import terms


class PurgeContract:
    """Tests of `PurgeLog`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_a_buried_event_leaves_only_its_place_in_the_log(self, store: Store) -> None:
        """keeps: K-53, U-08, TE-16.

        Id, position, time and lineage remain, with the reason. The content is removed, and so is stored data that no
        other event uses.
        """
        context = Context(session="s1", agent="ann", user="u1", correlation="c1", labels=(("branch", "main"),))
        root = build(1, "mark", {"text": "secret plan"}, context=context, error=True)
        large = build(2, "tool.ran", {"x": "y" * 6_000}, parent=root, context=context, origin="tool")
        other = build(3, "mark", {"text": "open plan"}, parent=root, context=Context(session="s1"))
        await store.log.append([root, large, other])

        assert await store.purges.bury([root.id, large.id, root.id, build(9).id], TOMBSTONE) == 2
        assert await store.purges.bury([root.id], TOMBSTONE) == 0

        stones = [make_tombstone(event, TOMBSTONE) for event in (root, large)]
        buried = [msgspec.structs.replace(stone, position=n) for n, stone in enumerate(stones, start=1)]
        assert await store.log.read(0, limit=9) == [*buried, msgspec.structs.replace(other, position=3)]
        assert await store.log.get(root.id) == buried[0]
        assert (buried[0].root_id, buried[0].at, buried[0].context) == (root.id, root.at, Context())
        assert buried[0].data == {"purge": TOMBSTONE.purge, "reason": TOMBSTONE.reason}
        assert [event.id for event in await store.chains.descendants(root.id)] == [large.id, other.id]
        assert (await store.texts.postings(terms("secret plan"))).marks == 1
        assert await store.log.query(EventQuery(text="secret")) == []
        assert await store.chains.agents() == []
        sizes = await store.files.sizes()
        assert (sizes.events, sizes.marks, sizes.contexts, sizes.payloads) == (3, 1, 2, 0)
        assert await store.files.rebuild() == 3
        assert await store.log.read(0, limit=2) == buried
        assert await store.files.verify() == []

    async def test_a_purged_event_never_comes_back(self, store: Store) -> None:
        """keeps: U-08. Appending the event again, as a second import does, counts as repeated."""
        event, other = build(1, data={"n": 1}), build(2)
        await store.log.append([event, other])
        await store.purges.bury([event.id], TOMBSTONE)

        assert await store.log.append([event, other]) == Appended(stored=0, repeated=2)
        assert await store.log.append([make_tombstone(other, TOMBSTONE)]) == Appended(stored=0, repeated=1)

        assert [found.name for found in await store.log.query(EventQuery())] == ["event.purged", other.name]

    async def test_a_tombstone_with_content_is_refused(self, store: Store) -> None:
        named = Context(session="s1")
        valid: dict[str, object] = {"purge": TOMBSTONE.purge, "reason": "x"}
        for broken in (
            build(1, "event.purged", {}),
            build(1, "event.purged", valid | {"text": "left"}),
            build(1, "event.purged", valid, context=named),
            build(1, "event.purged", valid | {"purge": "no id"}),
        ):
            with pytest.raises(InvalidEvent):
                await store.log.append([broken])

    async def test_a_stored_purge_applies_to_events_that_arrive_later(self, store: Store) -> None:
        """keeps: U-08, K-53. A matching event that happened before the purge is stored as a tombstone."""
        selection = Selection(value="sk-live-42")
        at = START_AT + timedelta(seconds=10)
        await store.log.append([build(1, data={"key": "sk-live-42"})])
        purge = selection.to_purge(at=at, tombstone=TOMBSTONE)
        assert purge is not None
        await store.purges.add(purge)
        await store.purges.add(purge)

        leaked: dict[str, object] = {"deep": [{"text": "curl -u sk-live-42:"}]}
        events = [build(2, data=leaked), build(3, data={"key": "sk-live-4"}), build(11, data=leaked)]
        assert await store.log.append(events) == Appended(stored=3)
        assert await store.log.append(events) == Appended(stored=0, repeated=3)

        names = [event.name for event in await store.log.read(0, limit=9)]
        assert names == ["test.happened", "event.purged", "test.happened", "test.happened"]
        assert await store.purges.all() == [purge]
        assert await store.files.verify() == []

    @pytest.mark.parametrize("anywhere", [False, True])
    async def test_a_value_matches_whole_tokens_now_and_on_arrival(self, store: Store, *, anywhere: bool) -> None:
        """keeps: K-53, U-08. Issue 18: `prod-web-01` does not take `prod-web-01-backup`, in no block and no arrival."""
        selection = Selection(value="prod-web-01", anywhere=anywhere)
        whole = ["ssh prod-web-01.", '{"host": "PROD_WEB_1"}', "http://prod-web-01/x", "a=pröd-web-001;"]
        inside = ["prod-web-01-backup", "old.prod-web-01", "prod-web-012"]
        other = ["prod-web-1-2", "prod-web-02"]
        texts = [*whole, *inside, *other]
        await store.log.append([build(n, data={"text": text}) for n, text in enumerate(texts, start=1)])
        while await store.files.age(START_AT + timedelta(days=1), limit=50):
            pass

        found = await find(store.log, selection)
        purge = selection.to_purge(at=START_AT + timedelta(seconds=1_000), tombstone=TOMBSTONE)
        assert purge is not None
        await store.purges.add(purge)
        await store.log.append([build(n, data={"text": text}) for n, text in enumerate(texts, start=101)])

        taken = whole + (inside if anywhere else [])
        assert set(found.ids) == {build(n).id for n, text in enumerate(texts, start=1) if text in taken}
        assert {each.text for each in found.inside} == (set() if anywhere else set(inside))
        arrived = (await store.log.read(0, limit=99))[len(texts) :]
        assert [event.name == "event.purged" for event in arrived] == [text in taken for text in texts]
        assert await store.purges.all() == [purge]

    async def test_an_event_purged_on_arrival_leaves_no_context(self, store: Store) -> None:
        """keeps: U-08. The context may be private, too, so neither the first nor a repeated append stores it."""
        await store.log.append([build(1), build(2, "event.purged", {"purge": TOMBSTONE.purge, "reason": "x"})])
        before = await store.files.sizes()
        purge = Selection(session="s1").to_purge(at=START_AT + timedelta(seconds=10), tombstone=TOMBSTONE)
        assert purge is not None
        await store.purges.add(purge)

        late = [build(n, context=Context(session="s1", agent=f"agent {n}")) for n in (3, 4)]
        assert await store.log.append(late) == Appended(stored=2)
        assert await store.log.append(late) == Appended(repeated=2)

        assert ((await store.files.sizes()).contexts, await store.chains.agents()) == (before.contexts, [])

    async def test_a_purged_word_can_be_used_again(self, store: Store) -> None:
        """Each event is read with its own words, even if words are used again after a purge."""
        context = Context(session="s1", agent="ann")
        first = build(1, "one.name", {"text": "first words"}, context=context)
        await store.log.append([build(5), first])
        await store.purges.bury([first.id], TOMBSTONE)

        again = build(2, "other.name", {"text": "second words"}, context=Context(session="s2", agent="bob"))
        same = build(3, "one.name", {"text": "first words"}, context=context)
        await store.log.append([again, same])

        assert [event.name for event in await store.log.read(1, limit=9)] == ["event.purged", "other.name", "one.name"]
        assert await store.log.get(same.id) == msgspec.structs.replace(same, position=4)
        assert [event.id for event in await store.log.query(EventQuery(text="first", session="s1"))] == [same.id]
        assert await store.files.verify() == []

    async def test_a_selection_matches_alike_by_every_search_path(self, store: Store) -> None:
        """`find` returns each matching event once for every kind of condition, also with more than one batch."""
        contexts = [Context(session=f"s{n % 3}", agent=f"a{n % 2}", user="ann") for n in range(6)]
        events = [
            build(n, data={"n": f"key-{n}."}, context=contexts[n % 6], after_s=n // 2_000) for n in range(1, 2_501)
        ]
        await store.log.append(events)
        second = START_AT + timedelta(seconds=1)
        for selection in (
            Selection(user="ann"),
            Selection(session="s1", agent="a0"),
            Selection(until=second),
            Selection(since=second, agent="a1"),
            Selection(value="key-77"),
            Selection(value="key-7", anywhere=True),
            Selection(value="key-8", user="ann", session="s2"),
            Selection(ids=frozenset([events[0].id, events[7].id, build(9_999).id])),
        ):
            found = await find(store.log, selection)
            assert len(set(found.ids)) == len(found.ids)
            assert set(found.ids) == {event.id for event in events if selection.fits(event)}
            assert found.ids
