"""Tests of the promises of `TrailTable`, which run unchanged on every kind of store."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from mica.model.trail import Figures, LearnedUpTo, Measurement, Trail, TrailQuery, exact_key, key_of
from mica.model.walk import Step
from mica.store.protocol import Store
from mica.testing.builders import START_AT, TOMBSTONE, build


def build_trail(slug: str, *paths: str, shape: str = "fix-login", runs: int = 1, after_s: float = 0) -> Trail:
    """Build a complete trail through these files."""
    steps = tuple(
        Step(path=path, operation="read", start_line=1, end_line=9, tokens=90, at=START_AT, event=build(1).id)
        for path in paths or (f"{slug}.py", "zürich.py")
    )
    return Trail(
        key=key_of(step.path for step in steps),
        exact=exact_key(steps),
        slug=slug,
        shape=shape,
        description=f"Where {slug} is",
        steps=steps,
        words=(("login", 0.75), ("cooki", 0.25)),
        runs=runs,
        agents={"scout": Figures(runs=1, successes=1)},
        first_at=START_AT,
        last_at=START_AT + timedelta(seconds=after_s),
        measured=Measurement(method="replay", sample=3, baseline_tokens=900, tokens=950),
    )


class TrailContract:
    """Tests of `TrailTable`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_trails_read_back_as_they_were_learned(self, store: Store) -> None:
        """keeps: A-05. This includes steps with line ranges, figures and measurements."""
        assert await store.trails.query(TrailQuery()) == []
        assert (await store.trails.learned_up_to()).position == 0
        lesson = msgspec.structs.replace(await store.trails.learned_up_to(), position=7)

        assert await store.trails.save([build_trail("login")], lesson)

        assert await store.trails.query(TrailQuery()) == [build_trail("login")]
        assert await store.trails.learned_up_to() == lesson

    async def test_trails_are_found_by_shape_and_name_in_the_order_of_runs_or_use(self, store: Store) -> None:
        """keeps: A-06, A-02, A-09"""
        trails = [
            build_trail("one", shape="fix-login", runs=2, after_s=3),
            build_trail("two", shape="add-käse", runs=5, after_s=1),
            build_trail("three", shape="fix-login", runs=9, after_s=2),
        ]
        await store.trails.save(trails, await store.trails.learned_up_to())

        async def slugs(query: TrailQuery) -> list[str]:
            return [trail.slug for trail in await store.trails.query(query)]

        assert await slugs(TrailQuery()) == ["three", "two", "one"]
        assert await slugs(TrailQuery(order="last_at")) == ["one", "three", "two"]
        assert await slugs(TrailQuery(shape="fix-login")) == ["three", "one"]
        assert await slugs(TrailQuery(shape="add-käse", slug="two")) == ["two"]
        assert await slugs(TrailQuery(slug="four")) == []
        assert await slugs(TrailQuery(limit=1)) == ["three"]
        assert await slugs(TrailQuery(limit=None)) == ["three", "two", "one"]

    async def test_trails_are_replaced_only_by_later_ones(self, store: Store) -> None:
        """If two processes learn at once, the trails learned from more of the log are stored."""
        now = await store.trails.learned_up_to()
        await store.trails.save([build_trail("old")], msgspec.structs.replace(now, position=1))
        assert await store.trails.save([build_trail("new")], msgspec.structs.replace(now, position=2))
        assert not await store.trails.save([build_trail("old")], msgspec.structs.replace(now, position=1))
        assert [trail.slug for trail in await store.trails.query(TrailQuery())] == ["new"]

    async def test_a_purge_removes_trails_for_good(self, store: Store) -> None:
        """keeps: U-08. Trails that another process was learning during the purge are not stored either."""
        secret = build(1, "file.read", {"path": "secret.py"})
        await store.log.append([secret, build(2)])
        begun = msgspec.structs.replace(await store.trails.learned_up_to(), position=2)
        await store.trails.save([build_trail("login", "secret.py")], begun)

        await store.purges.bury([secret.id], TOMBSTONE)

        assert await store.trails.query(TrailQuery()) == []
        assert not await store.trails.save([build_trail("login", "secret.py")], begun)
        assert await store.trails.query(TrailQuery()) == []
        assert await store.trails.save([build_trail("other")], await store.trails.learned_up_to())

    async def test_rebuild_removes_trails(self, store: Store) -> None:
        """Trails are derived from the log and can be learned again."""
        await store.log.append([build(1)])
        await store.trails.save(
            [build_trail("login")], msgspec.structs.replace(await store.trails.learned_up_to(), position=1)
        )

        await store.files.rebuild()

        assert await store.trails.query(TrailQuery()) == []
        assert (await store.trails.learned_up_to()).position == 0
        assert isinstance(await store.trails.learned_up_to(), LearnedUpTo)
