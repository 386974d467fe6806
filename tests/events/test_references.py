"""Events by reference: an id, the digits of a position, or an event itself."""

from __future__ import annotations

import pytest

from mica.errors import InvalidInput
from mica.events.references import REFERENCES_MAX, Reference, as_list, check_number, find_event, match_references
from mica.store.reference.store import EphemeralStore
from mica.testing.builders import build


async def no_flush() -> bool:
    """Store nothing: no event is waiting."""
    return True


@pytest.mark.parametrize("reference", [build(2).id, build(2), build(2).ref, 2, "2", "#2"])
async def test_every_kind_of_reference_resolves_to_the_event(reference: Reference) -> None:
    store = EphemeralStore()
    await store.log.append([build(1), build(2)])

    found = await find_event(reference, reads=store, stored=store.log, settle=no_flush)

    assert found is not None
    assert found.id == build(2).id


def test_a_single_reference_is_a_list_of_one() -> None:
    assert as_list("12") == ["12"]
    assert as_list(build(1).ref) == [build(1).ref]
    assert as_list(range(3)) == [0, 1, 2]


def test_too_many_references_are_refused() -> None:
    assert len(as_list(range(REFERENCES_MAX))) == REFERENCES_MAX
    with pytest.raises(InvalidInput, match="101 references"):
        as_list(range(REFERENCES_MAX + 1))


def test_a_missing_reference_is_named_as_it_was_given() -> None:
    answer = match_references(["#7", build(1).id], [None, build(1)])

    assert (answer.events, answer.missing) == ((build(1),), ("7",))


@pytest.mark.parametrize("number", [-1, 1.5, True, "1", None, 10**18])
def test_only_a_whole_number_is_a_position(number: object) -> None:
    with pytest.raises(InvalidInput, match="after is"):
        check_number("after", number)
