"""Decoding records that other programs wrote."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from mica.clients.records import (
    COMPLAINTS_MAX,
    KINDS_MAX,
    Count,
    ImportTally,
    Shape,
    TextPart,
    text_of,
    value_of,
)


class Inner(msgspec.Struct):
    count: Count = 0


class Outer(msgspec.Struct):
    name: str | None = None
    at: datetime | None = None
    inner: Inner | None = None
    names: list[str] = []
    raw: msgspec.Raw = msgspec.Raw()


OUTER = Shape(Outer)


def test_a_valid_record_is_decoded_without_a_count() -> None:
    tally = ImportTally()

    record = OUTER.read(b'{"name":"a","at":"2026-11-15T11:00:00Z","inner":{"count":3}}', tally)

    assert record == Outer(name="a", at=datetime(2026, 11, 15, 11, tzinfo=UTC), inner=Inner(3), raw=record.raw)
    assert tally == ImportTally()


def test_fields_that_do_not_fit_are_left_out_and_counted() -> None:
    """Their neighbours stay, also inside of lists and nested records."""
    tally = ImportTally()

    record = OUTER.read(b'{"name":5,"at":"yesterday","inner":{"count":-1},"names":["a",1,"b"],"raw":[1]}', tally)

    assert (record.name, record.at, record.inner, record.names) == (None, None, Inner(0), ["a", "b"])
    assert bytes(record.raw) == b"[1]"
    assert tally.misfits == 4


def test_a_value_that_is_decoded_already_is_fitted_in_the_same_way() -> None:
    tally = ImportTally()

    assert OUTER.fit({"name": "a", "inner": {"count": "many"}}, tally) == Outer(name="a", inner=Inner(0))
    assert OUTER.fit(["no", "record"], tally) is None
    assert tally.misfits == 1


@pytest.mark.parametrize("encoded", [b"", b"not json", b"[1]", b"{", b"[" * 100_000])
def test_a_record_that_cannot_be_read_raises(encoded: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        OUTER.read(encoded, ImportTally())


def test_damaged_text_is_repaired() -> None:
    """NULs around a record, control characters inside a text and halves of a character are no reason to lose it."""
    tally = ImportTally()

    assert OUTER.read(b'\0\0{"name":"a\tb"}\0', tally).name == "a\tb"
    assert OUTER.read(b'{"name":"\\ud83d\\ude00"}', tally).name == "\U0001f600"
    assert OUTER.read(b'{"name":"a\\ud83d","at":0}', tally).name == "a\ufffd"


def test_any_json_value_is_read_or_none() -> None:
    assert value_of(b'{"a": [1]}') == {"a": [1]}
    assert value_of(b'"a\tb"') == "a\tb"
    assert value_of(b"{") is None


def test_the_texts_of_a_message_are_lines() -> None:
    assert text_of([TextPart(text="a"), TextPart(type="image"), TextPart(text="b")]) == "a\nb"
    assert text_of("plain") == "plain"
    assert text_of(None) == ""


def test_complaints_and_unknown_types_are_counted_without_limit_and_listed_up_to_one() -> None:
    tally = ImportTally()
    for number in range(COMPLAINTS_MAX + 5):
        tally.complain(number, "x" * 1_000)
        tally.count_unknown(f"kind-{number}")

    assert (tally.broken, len(tally.complaints)) == (COMPLAINTS_MAX + 5, COMPLAINTS_MAX)
    assert len(tally.complaints[0][1]) == 200
    assert len(tally.unknown) == KINDS_MAX + 1
    assert sum(tally.unknown.values()) == COMPLAINTS_MAX + 5


def test_the_counts_of_a_file_are_added_under_its_name() -> None:
    total, file = ImportTally(lines=1), ImportTally(lines=2, misfits=1, torn=1, unsettled=1, unknown={"a": 2})
    file.complain(7, "no time")
    total.count_unknown("a")

    total.add(file, name="s1.jsonl")

    assert total == ImportTally(
        lines=3,
        broken=1,
        complaints=[(7, "s1.jsonl: no time")],
        unknown={"a": 3},
        misfits=1,
        torn=1,
        unsettled=1,
    )
