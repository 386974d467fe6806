"""Sets of places as whole numbers, one bit a place: adding up what thousands of texts are worth takes a few operations.

A million places are 125 kB; `&`, `|` and `^` of two such sets take some 10 µs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SOMETHING = re.compile(rb"[^\0]")
_PLACES = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
_BIT = tuple(1 << bit for bit in range(8))


def packed(places: Iterable[int], size_bytes: int) -> bytes:
    """These places as bytes, the lowest first."""
    into = bytearray(size_bytes)
    put(into, places)
    return bytes(into)


def put(into: bytearray, places: Iterable[int], *, start: int = 0) -> None:
    """Add these places, counted from a start that is a multiple of 8."""
    first = start >> 3
    for place in places:
        into[first + (place >> 3)] |= _BIT[place & 7]


def unpacked(bits: int) -> list[int]:
    """The places of a set, in order."""
    packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    found: list[int] = []
    for match in _SOMETHING.finditer(packed):
        at = match.start()
        first = at * 8
        found += [first + bit for bit in _PLACES[packed[at]]]
    return found


def heaviest(weighed: Iterable[tuple[int, int]], *, limit: int | None) -> int:
    """Of sets, each with a weight above 0, the places that weigh most together; of equal ones the highest.

    The weights of all places are added up at once, a set for every binary digit of the sums.
    """
    digits: list[int] = []
    every = 0
    for places, weight in weighed:
        every |= places
        for digit in range(weight.bit_length()):
            if weight >> digit & 1:
                _add(digits, digit, places)
    if limit is None or every.bit_count() <= limit:
        return every
    chosen, room = 0, limit
    for digit in reversed(digits):
        more = every & digit
        if (count := more.bit_count()) <= room:  # all that have this digit weigh more than all that do not
            chosen |= more
            room -= count
            every ^= more
        else:
            every = more
    return chosen | _highest(every, room)


def _add(digits: list[int], digit: int, places: int) -> None:
    """Add one to a digit of the sums at these places, and carry."""
    carry = places
    while carry:
        if digit >= len(digits):
            digits += [0] * (digit - len(digits)) + [carry]
            return
        digits[digit], carry = digits[digit] ^ carry, digits[digit] & carry
        digit += 1


def _highest(places: int, count: int) -> int:
    """So many of the highest places of a set that has as many or more."""
    low, high = 0, places.bit_length()  # from `low` on there are enough, from `high` on too few or just enough
    while low < high:
        middle = (low + high) // 2
        if (places >> middle).bit_count() <= count:
            high = middle
        else:
            low = middle + 1
    return places >> low << low
