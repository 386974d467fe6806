"""Tests of the promises of `WorkQueue`, which run unchanged on every kind of store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mica.errors import ClaimLost, InvalidInput
from mica.store.leases import Work
from mica.store.protocol import Store
from mica.testing.builders import START_AT

HOUR, NO_TIME = timedelta(hours=1), timedelta(0)  # a lease longer than a test, and one that expires at once


class WorkContract:
    """Tests of `WorkQueue`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_due_work_is_claimed_by_one_owner(self, store: Store) -> None:
        """keeps: K-56. Several processes share background work, and none of it is done twice."""
        await store.work.plan("age", due_at=START_AT)

        early = await store.work.claim(["age"], owner="a", due_by=START_AT - timedelta(seconds=1), lease=HOUR)
        claim = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)

        assert early is None
        assert claim is not None
        assert (claim.kind, claim.about, claim.due_at, claim.owner) == ("age", "", START_AT, "a")
        assert await store.work.claim(["age"], owner="b", due_by=START_AT, lease=HOUR) is None
        assert await store.work.all() == [Work(kind="age", due_at=START_AT, owner="a", held_until=claim.held_until)]
        await store.work.finish(claim)
        assert await store.work.all() == []

    async def test_the_most_overdue_work_of_the_requested_kinds_comes_first(self, store: Store) -> None:
        """A process requests only the kinds that it can do, so an older version of mica claims no unknown work."""
        for n, (kind, about) in enumerate([("age", ""), ("crystallize", "s2"), ("crystallize", "s1"), ("evolve", "")]):
            await store.work.plan(kind, about=about, due_at=START_AT - timedelta(minutes=n))

        kinds = ["crystallize", "age"]
        claims = [await store.work.claim(kinds, owner="a", due_by=START_AT, lease=HOUR) for _ in range(4)]

        assert [claim and (claim.kind, claim.about) for claim in claims] == [
            ("crystallize", "s1"), ("crystallize", "s2"), ("age", ""), None,
        ]  # fmt: skip
        assert await store.work.claim([], owner="a", due_by=START_AT, lease=HOUR) is None
        assert [work.kind for work in await store.work.all()] == ["evolve", "crystallize", "crystallize", "age"]

    async def test_of_two_plans_the_earlier_counts(self, store: Store) -> None:
        for minutes in (5, 3, 8):
            await store.work.plan("age", due_at=START_AT + timedelta(minutes=minutes))
        assert [work.due_at for work in await store.work.all()] == [START_AT + timedelta(minutes=3)]

    async def test_work_planned_while_it_is_held_is_done_once_more(self, store: Store) -> None:
        """Otherwise, changes would be missed that came after the holder had read its input."""
        await store.work.plan("age", due_at=START_AT)
        claim = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert claim is not None
        await store.work.plan("age", due_at=START_AT + timedelta(minutes=9))
        await store.work.plan("age", due_at=START_AT + timedelta(minutes=2))

        await store.work.finish(claim, again_at=START_AT + timedelta(minutes=5))

        assert await store.work.all() == [Work(kind="age", due_at=START_AT + timedelta(minutes=2))]

    async def test_a_late_first_plan_does_not_change_planned_work(self, store: Store) -> None:
        """keeps: K-56.

        A process may read the queue before work is planned, and plan the same work after another process has done it.
        The work is not done again.
        """
        await store.work.plan("age", due_at=START_AT, only_new=True)
        claim = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert claim is not None
        await store.work.plan("age", due_at=START_AT, only_new=True)
        await store.work.finish(claim, again_at=START_AT + HOUR)
        await store.work.plan("age", due_at=START_AT, only_new=True)

        assert await store.work.all() == [Work(kind="age", due_at=START_AT + HOUR)]

    async def test_a_lease_that_has_run_out_can_be_claimed_by_another(self, store: Store) -> None:
        """keeps: K-56. Work whose holder crashed can be claimed again. A holder that is late gets an error."""
        await store.work.plan("age", due_at=START_AT)
        first = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=NO_TIME)
        # The same owner makes another claim.
        second = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert first is not None
        assert second is not None
        assert first.due_at == second.due_at

        with pytest.raises(ClaimLost, match="'a' no longer holds age"):
            await store.work.finish(first)
        with pytest.raises(ClaimLost):
            await store.work.renew(first, lease=HOUR)

        await store.work.finish(second, again_at=START_AT + HOUR)
        with pytest.raises(ClaimLost):
            await store.work.finish(second)
        assert await store.work.all() == [Work(kind="age", due_at=START_AT + HOUR)]

    async def test_a_lease_can_be_renewed_and_finished(self, store: Store) -> None:
        await store.work.plan("age", due_at=START_AT)
        claim = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=NO_TIME)
        assert claim is not None

        renewed = await store.work.renew(claim, lease=HOUR)
        assert await store.work.claim(["age"], owner="b", due_by=START_AT, lease=HOUR) is None
        assert renewed.held_until > claim.held_until
        await store.work.renew(renewed, lease=NO_TIME)
        await store.work.finish(claim)

        assert await store.work.all() == []

    async def test_work_that_cannot_be_named_or_held_is_refused(self, store: Store) -> None:
        for kind, about in [("", ""), ("x" * 501, ""), ("age", "a\0b"), ("age", "\ud800")]:
            with pytest.raises(InvalidInput, match="not usable"):
                await store.work.plan(kind, about=about, due_at=START_AT)
        with pytest.raises(InvalidInput, match="no time zone"):
            await store.work.plan("age", due_at=START_AT.replace(tzinfo=None))
        with pytest.raises(InvalidInput, match="no time zone"):
            await store.work.claim(["age"], owner="a", due_by=START_AT.replace(tzinfo=None), lease=HOUR)
        for lease in (-HOUR, timedelta(days=2)):
            with pytest.raises(InvalidInput, match="a lease of"):
                await store.work.claim(["age"], owner="a", due_by=START_AT, lease=lease)
        assert await store.work.all() == []

    async def test_concurrent_claims_share_the_work(self, store: Store) -> None:
        """keeps: U-03. Each piece of work is claimed once."""
        for n in range(20):
            await store.work.plan("crystallize", about=f"s{n}", due_at=START_AT)

        async def work(owner: str) -> list[str]:
            done = []
            while claim := await store.work.claim(["crystallize"], owner=owner, due_by=START_AT, lease=HOUR):
                done.append(claim.about)
                await store.work.finish(claim)
            return done

        done = await asyncio.gather(*(work(f"worker {n}") for n in range(8)))

        assert sorted(about for part in done for about in part) == sorted(f"s{n}" for n in range(20))
        assert await store.work.all() == []
