"""Stored encodings read back equal, and damage is an error."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mica.errors import StoreError
from mica.model.event import Context, microseconds
from mica.store.codec import (
    SessionMarks,
    compress,
    compress_small,
    digest,
    expand,
    labels_of,
    labels_text,
    moment,
    remember,
)

AT = datetime(2026, 11, 1, 9, 0, 0, 123_456, tzinfo=UTC)


def test_a_time_reads_back_to_the_microsecond() -> None:
    assert moment(microseconds(AT)) == AT


def test_both_compressions_read_back_equal() -> None:
    body = b"cookie " * 1_000

    assert expand(compress(body)) == expand(compress_small(body)) == body
    assert len(compress(body)) < len(body)


def test_a_damaged_frame_is_an_error_not_an_empty_answer() -> None:
    frame = bytearray(compress(b"cookie " * 1_000))
    frame[-1] ^= 1  # in the checksum

    with pytest.raises(StoreError, match="damaged"):
        expand(bytes(frame))


def test_equal_bodies_have_one_digest() -> None:
    assert digest(b"a") == digest(b"a") != digest(b"b")


def test_labels_read_back_equal() -> None:
    context = Context(labels=(("branch", "main"), ("réseau", "数据")))

    assert labels_of(labels_text(context)) == context.labels


def test_a_full_cache_is_emptied_before_the_next_entry() -> None:
    cache = {"a": 1, "b": 2}

    remember(cache, "c", 3, limit=2)

    assert cache == {"c": 3}


def test_neighbours_are_those_of_the_session_around_each_mark() -> None:
    session = SessionMarks([10, 20, 30, 40], [1, 2, 3, 4])

    assert session.near([10], neighbours=1) == {10: (1, 0, 10), 20: (2, 1, 10)}
    assert session.near([30], neighbours=0) == {30: (3, 2, 10)}
    assert session.near([99], neighbours=2) == {}
