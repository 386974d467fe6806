"""Lines for people: sizes."""

from __future__ import annotations

import pytest

from mica.format.lines import format_bytes


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes_are_rounded_to_a_readable_unit(number: int, shown: str) -> None:
    assert format_bytes(number) == shown
