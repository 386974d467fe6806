"""Malformed events are refused, and damage in a stored log is named, alike in every engine."""

from __future__ import annotations

import msgspec
import pytest

from mica.errors import InvalidEvent
from mica.model.event import DEPTH_MAX, Event
from mica.store.checks import (
    LineageCheck,
    broken_lineage,
    check_event,
    expected_entry,
    missing_positions,
    orphaned_texts,
    stale_texts,
)
from mica.testing import build

ROOT = build(1)
CHILD = build(2, parent=ROOT)


def stored(*events: Event) -> list[Event]:
    return [msgspec.structs.replace(event, position=position) for position, event in enumerate(events, 1)]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (msgspec.structs.replace(ROOT, depth=1), "its depth 0"),
        (msgspec.structs.replace(CHILD, depth=2), "depth 2"),
        (msgspec.structs.replace(CHILD, depth=DEPTH_MAX + 1), "it must be 0 to"),
        (msgspec.structs.replace(CHILD, root_id=CHILD.id), "has root"),
        (build(3, "mark", {"words": "x"}), "text"),
    ],
)
def test_a_malformed_event_is_refused(event: Event, message: str) -> None:
    with pytest.raises(InvalidEvent, match=message):
        check_event(event, ROOT if event.parent_id else None)


def test_a_child_that_fits_its_parent_passes() -> None:
    check_event(CHILD, ROOT)


def test_a_child_before_its_parent_is_no_damage() -> None:
    assert broken_lineage(stored(CHILD, ROOT)) == []


def test_a_missing_parent_is_named_with_the_position_of_its_child() -> None:
    (problem,) = broken_lineage(stored(CHILD))

    assert f"{CHILD.id} (position 1)" in problem
    assert ROOT.id in problem


def test_lineage_can_be_checked_with_only_the_parents_in_memory() -> None:
    lineage = LineageCheck(parents={ROOT.id})

    lineage.add(stored(ROOT, CHILD, build(3)))

    assert lineage.broken() == []


def test_a_stale_index_entry_is_named_and_all_entries_are_used_up() -> None:
    right, wrong = stored(build(1, "mark", {"text": "the cookie"}), build(2, "mark", {"text": "session"}))
    length, counts = expected_entry(right)
    lengths, terms = {1: length or 0, 2: 9}, {1: counts, 2: counts}

    (problem,) = stale_texts([right, wrong], lengths, terms)

    assert wrong.id in problem
    assert (lengths, terms) == ({}, {})


def test_index_entries_without_an_event_and_gaps_are_named() -> None:
    assert ["position 3" in each for each in orphaned_texts({7, 3})] == [True, False]
    assert missing_positions([(2, 4)]) == ["the events at positions 2 to 4 are missing from the log"]
