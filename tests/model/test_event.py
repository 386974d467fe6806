"""Events and their ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import (
    InvalidEvent,
)
from mica.model.event import new_writer, split_id, split_ids


@given(count=st.integers(1, 2_000))
def test_ids_are_unique_and_sort_by_age(count: int) -> None:
    """keeps: TE-13. 80 random bits for each writer, a counter within it."""
    writers = [new_writer() for _ in range(count)]
    assert len(set(writers)) == count
    assert [writer[:10] for writer in writers] == sorted(writer[:10] for writer in writers)


def test_a_writer_id_has_eighty_random_bits() -> None:
    """keeps: TE-13. Every bit below the time takes both values."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    numbers = [sum(alphabet.index(c) << 5 * (25 - n) for n, c in enumerate(new_writer())) for _ in range(200)]
    ones, zeros = 0, 0
    for number in numbers:
        ones |= number
        zeros |= ~number
    assert (ones & zeros) % 2**80 == 2**80 - 1


def test_ids_are_parsed_alike_one_by_one_and_in_batches() -> None:
    identifiers = [f"{new_writer()}-{sequence:016x}" for sequence in (0, 1, 2**63 - 1)]

    assert split_ids(identifiers) == [split_id(identifier) for identifier in identifiers]
    for wrong in ("", identifiers[0].upper(), identifiers[0] + "0", identifiers[2].replace("-7", "-8")):
        with pytest.raises(InvalidEvent, match="is not an event id"):
            split_ids([*identifiers, wrong])
