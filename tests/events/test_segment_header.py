"""The header of a segment: no flipped bit is read as something else."""

from __future__ import annotations

import contextlib

import pytest

from mica.events.segment_header import (
    HEADER_BYTES,
    VERSION,
    Cover,
    UnknownVersion,
    counter_record,
    cover_record,
    identity_page,
    read_counter,
    read_covers,
    read_identity,
)
from mica.model.event import new_writer

WRITER = new_writer()
IDENTITY = VERSION, 4_096, 7, WRITER
COVERS = Cover(100, 90_000, 12, 13), Cover(200, 99_000, 14, 15)


def header() -> bytes:
    page = bytearray(identity_page(4_096, 7, WRITER).ljust(HEADER_BYTES, b"\0"))
    for record in (
        cover_record(COVERS[0], 0),
        cover_record(COVERS[1], 1),
        counter_record(40, 0, VERSION),
        counter_record(50, 1, VERSION),
    ):
        page[record.at : record.at + len(record.content)] = record.content
    return bytes(page)


def test_a_header_is_read_as_it_was_written() -> None:
    page = header()
    assert read_identity(page, base=7) == (*IDENTITY, False)
    assert read_covers(page, VERSION) == list(COVERS)
    assert read_counter(page, VERSION)[0] == 50


def test_no_flipped_bit_of_a_header_is_read_as_something_else() -> None:
    """keeps: U-04. Each record has a second copy or an earlier one, which is used instead."""
    page = header()
    for bit in range(8 * 1_100):
        flipped = bytearray(page)
        flipped[bit // 8] ^= 1 << bit % 8
        *identity, is_damaged = read_identity(bytes(flipped), base=7)
        assert tuple(identity) == IDENTITY
        assert is_damaged or flipped[:256] == page[:256] or not any(page[bit // 8 : bit // 8 + 1])
        assert set(read_covers(bytes(flipped), VERSION)) <= set(COVERS)
        assert read_counter(bytes(flipped), VERSION)[0] in (40, 50)


def test_a_torn_record_leaves_the_one_before_it() -> None:
    page = bytearray(header())
    _, turn = read_counter(bytes(page), VERSION)
    record = counter_record(60, turn, VERSION)
    page[record.at : record.at + 4] = record.content[:4]
    assert read_counter(bytes(page), VERSION)[0] == 50
    page[record.at : record.at + len(record.content)] = record.content
    assert read_counter(bytes(page), VERSION) == (60, 1)


@pytest.mark.parametrize("first", [0, 128])
def test_two_damaged_copies_of_an_identity_are_refused(first: int) -> None:
    """No guess is better than a wrong one."""
    for at in range(54):
        page = bytearray(header())
        page[first + at] ^= 0xFF
        page[128 - first + 20] ^= 0xFF
        with pytest.raises(ValueError, match=r"damaged|begins with|has version"):
            read_identity(bytes(page), base=7)


def test_a_later_version_is_not_read() -> None:
    page = bytearray(header())
    page[8], page[136] = 99, 99
    with pytest.raises(UnknownVersion, match="has version 99, this mica knows 3 and 2; upgrade mica"):
        read_identity(bytes(page), base=7)


def test_random_bytes_are_no_header() -> None:
    for byte in range(256):
        with contextlib.suppress(ValueError):
            read_identity(bytes([byte]) * HEADER_BYTES, base=7)
            raise AssertionError(byte)
