"""Matching one event with a query gives the same result as a store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from tests.store.sqlite.direct_store import DirectStore

from mica.model.event import EventQuery
from mica.store.query import matcher
from mica.testing.builders import START_AT
from mica.testing.histories import History, histories

MOMENTS = st.none() | st.integers(-6, 21).map(lambda seconds: START_AT + timedelta(seconds=seconds))
QUERIES = st.builds(
    EventQuery,
    session=st.sampled_from([None, None, "s1"]),
    agent=st.sampled_from([None, None, "scout"]),
    user=st.sampled_from([None, None, "ann"]),
    names=st.sampled_from([(), (), ("file.*",), ("mark", "shell.ru?")]),
    since=MOMENTS,
    until=MOMENTS,
    text=st.sampled_from([None, None, "cookies", "session redirected"]),
    errors=st.sampled_from([None, None, True, False]),
    limit=st.none(),
)


@given(histories(), st.lists(QUERIES, min_size=1, max_size=8))
def test_the_matcher_agrees_with_the_store(history: History, queries: list[EventQuery]) -> None:
    """keeps: E-29, TE-18"""
    with TemporaryDirectory() as folder:
        store = DirectStore(Path(folder) / "space.db")
        store.log.append(history)
        log = store.log.read(0, limit=100)
        found = [{event.id for event in store.log.query(query)} for query in queries]
        store.close()

    assert found == [{event.id for event in log if matcher(query)(event)} for query in queries]
