"""Beliefs are learned from what is new in the log, in batches, by any number of processes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.beliefs.marks import mark, stored, texts

from mica.beliefs import library
from mica.beliefs.library import BeliefLibrary, replay
from mica.model.belief import BeliefQuery
from mica.store.reference.store import EphemeralStore


async def test_small_batches_give_the_same_beliefs_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    events = stored(
        mark(number, text, place, session=f"s{number // 3}")
        for number, (place, text) in enumerate(
            [
                ("prompt", "always run `make check`"),
                ("closing", "Still open: tests for the parser on leap years"),
                ("commit", "Add parser tests for leap years"),
                ("prompt", "always run `make check` please"),
            ],
            1,
        )
    )
    found = []
    for size in (1, 1_000):
        monkeypatch.setattr(library, "BATCH_EVENTS", size)
        store = EphemeralStore()
        await store.log.append(events)
        await BeliefLibrary(store.log, store.beliefs).refresh()
        found.append(await store.beliefs.query(BeliefQuery(limit=None)))

    assert found[0] == found[1]
    assert texts(found[0]) == ["always run `make check`"]


async def test_two_libraries_learn_each_event_once() -> None:
    store = EphemeralStore()
    await store.log.append(stored([mark(1, "always run `make check`")]))
    one, two = (BeliefLibrary(store.log, store.beliefs) for _ in range(2))

    assert await one.refresh()
    assert await two.refresh()

    [belief] = await store.beliefs.query(BeliefQuery())
    assert len(belief.evidence) == 1


async def test_learning_stops_after_the_given_time_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "BATCH_EVENTS", 1)
    store = EphemeralStore()
    await store.log.append(stored(mark(number, f"always check table{number}") for number in range(1, 4)))
    beliefs = BeliefLibrary(store.log, store.beliefs)

    assert not await beliefs.refresh(within_s=0)
    assert await beliefs.refresh()

    assert len(await store.beliefs.query(BeliefQuery())) == 3


async def test_a_replay_reads_only_what_had_happened() -> None:
    events = stored([mark(1, "always run `make check`"), mark(2, "never push to main without asking")])
    store = EphemeralStore()
    await store.log.append(events)

    assert texts(await replay(store.log, events[0].at)) == ["always run `make check`"]
    assert await replay(store.log, events[0].at - timedelta(days=1)) == []
