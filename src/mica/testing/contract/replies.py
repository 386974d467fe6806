"""Tests of the promises of `ReplyTable`, which run unchanged on every kind of store."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from mica.model.mark import Reply
from mica.store.postgres import replies as postgres_replies
from mica.store.protocol import Store
from mica.store.purges import Selection
from mica.store.reference import replies as reference_replies
from mica.store.sqlite import replies as sqlite_replies
from mica.testing.builders import START_AT, TOMBSTONE, build


def build_reply(concept: str = "judgment:code_review:ä 1", source: str = "app", *, after_s: float = 0) -> Reply:
    """Return a reply with all fields set."""
    at = START_AT + timedelta(seconds=after_s)
    return Reply(concept=concept, source=source, at=at, position=7, declared="1", body=b'[{"text":"z\xc3\xbcrich"}]')


class ReplyContract:
    """Tests of `ReplyTable`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_replies_read_back_by_their_concept(self, store: Store) -> None:
        assert await store.replies.read("judgment:code_review:ä 1") == []

        replies = [build_reply(), build_reply(source="another"), build_reply("judgment:code_review:2")]
        assert await store.replies.save(replies, generation=store.purges.generation)

        assert await store.replies.read("judgment:code_review:ä 1") == [replies[1], replies[0]]
        assert await store.replies.read("judgment:code_review:2") == [replies[2]]
        assert await store.replies.concepts() == ["judgment:code_review:2", "judgment:code_review:ä 1"]

    async def test_replies_are_replaced_only_by_later_ones(self, store: Store) -> None:
        await store.replies.save([build_reply(after_s=1)], generation=store.purges.generation)
        await store.replies.save([build_reply(after_s=2)], generation=store.purges.generation)
        await store.replies.save([build_reply(after_s=0)], generation=store.purges.generation)

        assert await store.replies.read(build_reply().concept) == [build_reply(after_s=2)]

    async def test_only_the_latest_replies_are_kept(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for engine in (reference_replies, sqlite_replies, postgres_replies):
            monkeypatch.setattr(engine, "REPLIES_MAX", 2)

        for number in range(4):
            await store.replies.save([build_reply(f"a:b:{number}", after_s=number)], generation=store.purges.generation)

        assert [len(await store.replies.read(f"a:b:{number}")) for number in range(4)] == [0, 0, 1, 1]

    async def test_a_purge_removes_replies_for_good(self, store: Store) -> None:
        """keeps: U-08. A reply that arrives during the purge is not stored, because it may quote purged text."""
        secret = build(1, "test.happened", {"text": "secret"})
        await store.log.append([secret, build(2)])
        before = store.purges.generation
        await store.replies.save([build_reply()], generation=before)

        await store.purges.bury([secret.id], TOMBSTONE)

        assert await store.replies.read(build_reply().concept) == []
        assert not await store.replies.save([build_reply()], generation=before)
        assert await store.replies.read(build_reply().concept) == []
        assert await store.replies.save([build_reply()], generation=store.purges.generation)

    async def test_a_reply_with_a_purged_value_is_not_stored(self, store: Store) -> None:
        """keeps: U-08, K-53. The purge empties the cache; a new reply with the value, in any spelling, is skipped."""
        leaked = msgspec.structs.replace(build_reply(), body=b'{"fragments":[{"text":"in\\nZ\\u00fcrich"}]}')
        other = build_reply("a:b:2")
        other = msgspec.structs.replace(other, body=b'{"fragments":[{"text":"in Basel"}]}')
        await store.log.append([build(1)])
        await store.replies.save([leaked, other], generation=store.purges.generation)

        purge = Selection(value="zürich").to_purge(at=START_AT, tombstone=TOMBSTONE)
        assert purge is not None
        await store.purges.add(purge)
        assert await store.replies.concepts() == []
        await store.log.append([build(2)])  # this append makes the purge known
        assert await store.replies.save([leaked, other], generation=store.purges.generation)

        assert await store.replies.concepts() == ["a:b:2"]

    async def test_rebuild_removes_replies(self, store: Store) -> None:
        await store.log.append([build(1)])
        await store.replies.save([build_reply()], generation=store.purges.generation)

        await store.files.rebuild()

        assert await store.replies.read(build_reply().concept) == []
