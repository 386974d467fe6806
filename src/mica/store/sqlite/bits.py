"""Sets of places (numbers from 0) as integers with one bit per place, also called bit sets.

With them, the weights of thousands of texts are added in a few operations. A set of a million places takes 125 kB;
`&`, `|` and `^` of two such sets take about 10 µs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NONZERO = re.compile(rb"[^\0]")
_PLACES = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
_BIT = tuple(1 << bit for bit in range(8))


def pack(places: Iterable[int], size_bytes: int) -> bytes:
    """Return the bit set of these places as bytes, the lowest place first."""
    into = bytearray(size_bytes)
    set_bits(into, places)
    return bytes(into)


def set_bits(into: bytearray, places: Iterable[int], *, start: int = 0) -> None:
    """Set the bits of these places. Place 0 is bit `start`, which must be a multiple of 8."""
    first = start >> 3
    for place in places:
        into[first + (place >> 3)] |= _BIT[place & 7]


def unpack(bits: int) -> list[int]:
    """Return the places of a bit set, in order."""
    packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    places: list[int] = []
    for match in _NONZERO.finditer(packed):
        at = match.start()
        first = at * 8
        places += [first + bit for bit in _PLACES[packed[at]]]
    return places


def heaviest(weighted: Iterable[tuple[int, int]], *, limit: int | None) -> int:
    """Return the bit set of the `limit` places with the highest sum of weights. Among equal sums, higher places win.

    If `limit` is None, all places are returned. `weighted` are pairs of a bit set and its weight, which must be above
    0. The sums of all places are computed together, with one bit set for each binary digit of the sums.
    """
    digits: list[int] = []
    every = 0
    for places, weight in weighted:
        every |= places
        for digit in range(weight.bit_length()):
            if weight >> digit & 1:
                _add(digits, digit, places)
    if limit is None or every.bit_count() <= limit:
        return every
    chosen, room = 0, limit
    for digit in reversed(digits):
        more = every & digit
        if (count := more.bit_count()) <= room:  # every place with this digit weighs more than every place without it
            chosen |= more
            room -= count
            every ^= more
        else:
            every = more
    return chosen | _highest(every, room)


def _add(digits: list[int], digit: int, places: int) -> None:
    """Add 2**`digit` to the sum of each place in the bit set `places`.

    The sums are stored as bit sets, one per binary digit: `digits[n]` contains the places whose sum has digit n set.
    """
    carry = places
    while carry:
        if digit >= len(digits):
            digits += [0] * (digit - len(digits)) + [carry]
            return
        digits[digit], carry = digits[digit] ^ carry, digits[digit] & carry
        digit += 1


def _highest(places: int, count: int) -> int:
    """Return the `count` highest places of a bit set that has at least `count` places."""
    low, high = 0, places.bit_length()  # binary search: at most `count` places are at or above `high`
    while low < high:
        middle = (low + high) // 2
        if (places >> middle).bit_count() <= count:
            high = middle
        else:
            low = middle + 1
    return places >> low << low
