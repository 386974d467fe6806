"""The cache of interned words is bounded and follows a rebuild."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.model.event import Context, EventQuery, writer_named
from mica.store import codec as encoding
from mica.store.sqlite import log as sqlite_log
from mica.store.sqlite import words as sqlite_words
from mica.testing import build
from mica.testing.builders import START_AT


def test_caches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: TE-12. Memory does not grow with the log, however many names, sessions and contexts there are."""
    monkeypatch.setattr(encoding, "CACHE_ENTRIES_MAX", 100)
    monkeypatch.setattr(sqlite_log, "CACHE_ENTRIES_MAX", 100)
    monkeypatch.setattr(sqlite_words, "CACHE_ENTRIES_MAX", 100)
    core = DirectStore(tmp_path / "space.db")
    for first in range(0, 1_000, 20):
        events = [
            build(n, f"name.{n}", {"text": f"word{n}"}, context=Context(session=f"s{n}"), writer=writer_named(str(n)))
            for n in range(first, first + 20)
        ]
        core.log.append(events)
        assert [core.log.get(event.id) for event in events] == core.log.read(first, limit=20)
        core.files.age(START_AT + timedelta(seconds=first))

    words = core.core.words
    sizes = [len(cache) for cache in (core.core.places, words._context_numbers, words._contexts, words._words)]
    sizes += [len(cache) for cache in words.numbers.values()]
    assert 0 < min(sizes) <= max(sizes) <= 100
    core.close()


def test_cached_words_are_right_after_a_rebuild_by_another_process(tmp_path: Path) -> None:
    one, two = DirectStore(tmp_path / "space.db"), DirectStore(tmp_path / "space.db")
    one.log.append([build(1, "mark", {"text": "alpha beta"})])
    two.files.rebuild()
    two.log.append([build(2, "mark", {"text": "gamma"})])
    one.log.append([build(3, "mark", {"text": "beta alpha"})])
    assert [event.position for event in one.log.query(EventQuery(text="alpha"))] == [1, 3]
    assert two.files.verify() == []
    one.close()
    two.close()
