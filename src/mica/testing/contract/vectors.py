"""Tests of the promises of `VectorIndex`, which run unchanged on every kind of store."""

from __future__ import annotations

from mica.model.mark import Vectors
from mica.store.protocol import Store
from mica.testing.builders import TOMBSTONE, build


class VectorContract:
    """Tests of `VectorIndex`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_vectors_are_kept_for_marks_and_read_latest_first(self, store: Store) -> None:
        """keeps: K-34, K-59. Vectors are stored with the name of their model, and read for one model at a time."""
        await store.log.append([build(number, "mark", {"text": f"mark {number}"}) for number in (1, 2, 3)])
        await store.log.append([build(4, "tool.ran", {"text": "no mark"})])

        assert await store.vectors.missing("m", limit=2) == [(3, "mark 3"), (2, "mark 2")]
        await store.vectors.save("m", {3: b"three", 1: b"one", 4: b"four", 99: b"none"})

        assert await store.vectors.read("m", limit=9) == Vectors(2, ((1, b"one"), (3, b"three")))
        assert await store.vectors.read("m", limit=1) == Vectors(2, ((3, b"three"),))
        assert await store.vectors.read("m", after=1, limit=9) == Vectors(2, ((3, b"three"),))
        assert await store.vectors.read("other", limit=9) == Vectors(0, ())
        assert await store.vectors.missing("m", limit=9) == [(2, "mark 2")]
        await store.vectors.save("other", {1: b"ein"})
        assert await store.vectors.read("m", limit=9) == Vectors(1, ((3, b"three"),))
        assert await store.vectors.read("other", limit=9) == Vectors(1, ((1, b"ein"),))

    async def test_a_purge_removes_vectors_for_good(self, store: Store) -> None:
        """keeps: U-08. A vector that is computed while its mark is purged is not stored afterwards."""
        marks = [build(number, "mark", {"text": f"mark {number}"}) for number in (1, 2)]
        await store.log.append(marks)
        await store.vectors.save("m", {1: b"one", 2: b"two"})

        await store.purges.bury([marks[0].id], TOMBSTONE)
        await store.vectors.save("m", {1: b"late"})

        assert await store.vectors.read("m", limit=9) == Vectors(1, ((2, b"two"),))
        assert await store.vectors.missing("m", limit=9) == []

    async def test_rebuild_removes_vectors(self, store: Store) -> None:
        """Vectors are derived from marks and can be computed again."""
        await store.log.append([build(1, "mark", {"text": "one"})])
        await store.vectors.save("m", {1: b"one"})

        await store.files.rebuild()

        assert await store.vectors.read("m", limit=9) == Vectors(0, ())
        assert await store.vectors.missing("m", limit=9) == [(1, "one")]
