"""Blocks read back equal, and a damaged block is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import StoreError
from mica.store.protocol import BLOCK_EVENTS
from mica.store.sqlite.block_format import (
    BLOCK_BYTES_MAX,
    CHAPTER_POSITIONS,
    EventBlock,
    Header,
    cuts,
    decode_chapter,
    encode,
    encode_chapter,
)

_SEQUENCES = st.one_of(st.integers(0, 5_000), st.integers(0, 2**63 - 1))  # counted, or hashes of names
_HEADERS = st.builds(
    Header,
    position=st.integers(1, 2**40),
    writer=st.integers(1, 300),
    sequence=_SEQUENCES,
    name=st.integers(1, 70_000),
    at=st.integers(-(2**55), 2**58),
    context=st.integers(1, 2**33),
    root_writer=st.integers(1, 300),
    root_sequence=_SEQUENCES,
    parent_writer=st.integers(0, 300),
    parent_sequence=_SEQUENCES,
    depth=st.integers(0, 1_000_000),
    origin=st.integers(0, 4),
    error=st.integers(0, 1),
    payload=st.integers(0, 2**20),
)


@given(
    st.lists(st.tuples(_HEADERS, st.binary(max_size=40)), min_size=1, max_size=30, unique_by=lambda e: e[0].position)
)
def test_a_block_reads_back_equal(events: list[tuple[Header, bytes]]) -> None:
    """keeps: TE-05. For any numbers, and for sequences that are counters or hashes."""
    headers, bodies = [header for header, _ in events], [body for _, body in events]

    block = EventBlock(*encode(headers, bodies))

    assert list(block.headers()) == headers
    assert [block.header(index) for index in range(len(block))] == headers
    assert [block.body(index) for index in range(len(block))] == bodies
    assert block.is_whole()


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    """Frames have checksums: damage is an error, never another event."""
    headers = [Header(n, 1, n, 2, n * 1_000, 3, 1, 1, 1, n - 1, n, 1, 0, 0) for n in range(1, 40)]
    header, bodies = encode(headers, [b'{"text":"%d"}' % n for n in range(1, 40)])
    index = data.draw(st.integers(0, len(header) - 1))
    damaged = header[:index] + bytes([header[index] ^ data.draw(st.integers(1, 255))]) + header[index + 1 :]
    try:
        block = EventBlock(damaged, bodies)
    except StoreError:
        return
    assert list(block.headers()) == headers  # a bit of the frame header that does not affect the content


def test_another_format_is_refused_with_the_remedy() -> None:
    header, bodies = encode([Header(*range(1, 15))], [b"{}"])
    with pytest.raises(StoreError, match=r"format 09.*upgrade"):
        EventBlock(b"\x09" + header[1:], bodies)


@given(st.lists(st.integers(0, BLOCK_BYTES_MAX * 2), max_size=50))
def test_cuts_leave_nothing_out_and_keep_the_limits(sizes: list[int]) -> None:
    parts = [sizes[start:end] for start, end in cuts(sizes)]
    assert [size for part in parts for size in part] == sizes
    assert all(part and (len(part) == 1 or sum(part) <= BLOCK_BYTES_MAX) for part in parts)


def test_cuts_keep_the_number_of_events() -> None:
    assert [end - start for start, end in cuts([1] * (2 * BLOCK_EVENTS + 5))] == [BLOCK_EVENTS, BLOCK_EVENTS, 5]


@given(st.lists(st.tuples(st.integers(0, CHAPTER_POSITIONS - 1), st.integers(0, 2**40)), max_size=60))
def test_a_chapter_reads_back_equal(places: list[tuple[int, int]]) -> None:
    chapter = [0] * CHAPTER_POSITIONS
    for index, block in places:
        chapter[index] = block
    assert list(decode_chapter(encode_chapter(chapter))) == chapter
