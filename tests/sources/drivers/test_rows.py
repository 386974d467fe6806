"""Rows of sources become fragments, by templates, or are reported with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.scripted_sources import ABOUT, NOW

from mica.sources.drivers.rows import (
    NOTHING,
    REFERENCES_MAX,
    ROWS_TOLD_MAX,
    TEXT_CHARACTERS_MAX,
    UNSTATED_CONFIDENCE,
    FragmentTable,
    MappedRows,
    RowMapping,
    SourceRecord,
    Template,
    Unusable,
    as_text,
    as_time,
    as_value,
)
from mica.sources.protocol import KEY_CHARACTERS_MAX, NUMBER_BITS_MAX, Fragment

FACT: dict[str, object] = {"key": "verdict", "text": "It growls", "value": "GROWL", "confidence": 0.52}


def record(columns: object, *, root: object = None) -> SourceRecord:
    return SourceRecord(columns, ABOUT, name="7", path="$[7]", root=root)


def mapped(*rows: object, **table: object) -> MappedRows:
    """The fragments of rows that a source named "shop" returned, with these templates."""
    mapping = RowMapping("shop", FragmentTable(**table))  # type: ignore[arg-type]  # a test's own
    return mapping.fragments([SourceRecord(each, ABOUT) for each in rows], now=NOW, where="shop.db#")


def fragment_of(row: object, **table: object) -> Fragment:
    found = mapped(row, **table)
    assert found.missing == ()
    [fragment] = found.fragments
    return fragment


def reason(row: object, **table: object) -> str:
    """Why no fragment was made of a row."""
    found = mapped(row, **table)
    assert found.fragments == ()
    [missing] = found.missing
    return missing.removeprefix("shop.db#1: ")


# -- Templates


@given(text=st.text())
def test_a_doubled_brace_is_a_literal_one(text: str) -> None:
    template = Template(text.replace("{", "{{").replace("}", "}}"))

    assert template.fixed == text
    assert template.names == ()
    assert template.column is None


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a { b", "'{' at character 3 is unpaired"),
        ("} b", "'}' at character 1 is unpaired"),
        ("{{a}", "'}' at character 4 is unpaired"),
        ("a {} b", "{} at character 3 names nothing"),
        ("{ }", "{} at character 1 names nothing"),
    ],
)
def test_a_mistake_in_a_template_is_named_with_its_place(text: str, mistake: str) -> None:
    with pytest.raises(ValueError, match="character") as refused:
        Template(text)

    assert str(refused.value).startswith(mistake)
    with pytest.raises(ValueError, match=r"^locator = "):
        RowMapping("shop", FragmentTable(locator=text))


def test_a_single_placeholder_keeps_the_type_of_its_value() -> None:
    row = record({"score": 4, "none": None, "tags": ["a"]})

    assert Template("{score}").filled(row) == 4
    assert Template("{none}").filled(row) is None
    assert Template("{tags}").filled(row) == ["a"]
    assert Template("{score} of {tags}, {none}.").filled(row) == '4 of ["a"], .'
    assert Template("{score} {absent}").filled(row) is NOTHING
    assert Template(" { score } ").names == ("score",)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("concept", str(ABOUT)),
        ("concept.domain", ABOUT.domain),
        ("concept.type", ABOUT.type),
        ("concept.id", ABOUT.id),
        ("concept.owner", NOTHING),
        ("@name", "7"),
        ("state.fatigue", 0.42),
        ("state.absent", NOTHING),
        ("a.b", "a column with a dot in its name"),
        ("tags.1", "late"),
        ("tags.2", NOTHING),
        ("tags.-1", NOTHING),
        ("tags.one", NOTHING),
        ("object.public", "yes"),
        ("object._private", NOTHING),
        ("object.__class__", NOTHING),
        ("text.upper", NOTHING),  # a method of a text is no column
        ("none.deeper", NOTHING),
    ],
)
def test_a_placeholder_is_a_column_or_a_path_into_one(path: str, value: object) -> None:
    columns = {
        "state": {"fatigue": 0.42},
        "a.b": "a column with a dot in its name",
        "a": {"b": "inside of another"},
        "tags": ["night", "late"],
        "object": SimpleNamespace(public="yes", _private="no"),
        "text": "some",
        "none": None,
    }

    assert record(columns).look(path) == value


def test_a_row_may_be_an_object() -> None:
    assert record(SimpleNamespace(verdict="GROWL")).look("verdict") == "GROWL"


# -- References


def test_a_reference_leads_to_another_place_of_the_document() -> None:
    """A slash and a tilde in a name are written as `~1` and `~0`, as in JSON Pointer."""
    root = {"people": {"ann/lead": {"mail": "a@x"}}, "alias": {"$ref": "#/people/ann~1lead"}, "rows": [{"n~m": 1}]}
    row = record({"by": {"$ref": "#/people/ann~1lead"}, "twice": {"$ref": "#/alias"}}, root=root)

    assert row.look("by.mail") == "a@x"
    assert row.look("twice") == {"mail": "a@x"}
    assert record({"$ref": "#/people/ann~1lead"}, root=root).look("mail") == "a@x"
    assert record({"n": {"$ref": "#/rows/0/n~0m"}}, root=root).look("n") == 1
    assert record({"n": {"$ref": "#/nowhere"}}, root=root).look("n") is NOTHING


def test_a_reference_without_an_end_or_to_another_document_is_refused() -> None:
    """A chain has a limit, so that a document cannot keep its reader busy."""
    circle = {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}
    chain: dict[str, object] = {str(n): {"$ref": f"#/{n + 1}"} for n in range(REFERENCES_MAX + 1)}
    chain[str(REFERENCES_MAX + 1)] = "the end"

    with pytest.raises(Unusable, match="in a circle: #/b → #/a → #/b"):
        record(circle, root=circle).look("a")
    with pytest.raises(Unusable, match="in a circle"):
        record(chain, root=chain).look("0")
    assert record(chain, root=chain).look("1") == "the end"
    with pytest.raises(Unusable, match="another document, which is not followed"):
        record({"a": {"$ref": "https://example.org/x.json#/a"}}).look("a")


# -- Fragments


def test_columns_have_the_names_of_fields_by_default() -> None:
    times = {"at": "2026-11-03T10:00:00+01:00", "valid_from": "2026-11-01", "valid_until": 1_800_000_000}

    assert fragment_of({**FACT, **times, "locator": "row 4", "another": "ignored"}) == Fragment(
        key="verdict",
        text="It growls",
        value="GROWL",
        confidence=0.52,
        at=datetime(2026, 11, 3, 9, tzinfo=UTC),
        valid_from=datetime(2026, 11, 1, tzinfo=UTC),
        valid_until=datetime.fromtimestamp(1_800_000_000, UTC),
        source="shop",
        locator="row 4",
    )


def test_a_row_of_a_key_and_a_value_is_enough() -> None:
    fragment = fragment_of({"key": " mood ", "value": 0.5})

    assert (fragment.key, fragment.text, fragment.value) == ("mood", "mood: 0.5", 0.5)
    assert fragment.confidence == UNSTATED_CONFIDENCE
    assert (fragment.at, fragment.valid_from, fragment.valid_until) == (NOW, None, None)
    assert fragment.locator == "shop.db#1"


def test_templates_rename_join_and_replace_columns() -> None:
    fragment = fragment_of(
        {"v": "GROWL", "why": "no types", "sure": Decimal("0.25")},
        key="verdict of {concept.id}",
        text="{v}: {why}",
        value=1,
        confidence="{sure}",
        locator="tracker/{concept.id}",
    )

    assert (fragment.key, fragment.text, fragment.value) == (f"verdict of {ABOUT.id}", "GROWL: no types", 1)
    assert (fragment.confidence, fragment.locator) == (0.25, f"tracker/{ABOUT.id}")


def test_a_time_of_the_answer_is_that_of_rows_without_one() -> None:
    modified = NOW - timedelta(days=3)

    rows = [SourceRecord({**FACT, "at": at}, ABOUT) for at in (NOW - timedelta(days=9), None)]
    first, second = RowMapping("shop", FragmentTable()).fragments(rows, now=NOW, at=modified).fragments

    assert (first.at, second.at) == (NOW - timedelta(days=9), modified)


@pytest.mark.parametrize(("value", "is_estimate"), [(3, True), (0.5, True), (True, False), ("3", False), (None, False)])
def test_only_numbers_are_estimates(value: object, is_estimate: bool) -> None:
    """An estimate may be blended with others, and neither a text nor a truth can be."""
    assert fragment_of({**FACT, "value": value}, is_estimate=True).is_estimate == is_estimate
    assert not fragment_of({**FACT, "value": value}).is_estimate


def test_a_long_text_is_cut() -> None:
    fragment = fragment_of({"key": "k" * 10_000, "text": "t" * 10_000, "value": "v" * 10_000})

    assert fragment.key == "k" * (KEY_CHARACTERS_MAX - 1) + "…"
    assert fragment.text == "t" * (TEXT_CHARACTERS_MAX - 1) + "…"
    assert fragment.value == "v" * (TEXT_CHARACTERS_MAX - 1) + "…"


@pytest.mark.parametrize(
    ("row", "table", "words"),
    [
        ({"value": 1}, {}, 'it has no key (it has value); say which column is the key: key = "{column}"'),
        ({}, {}, "it has no key (it has nothing); say"),
        ({"key": "  ", "text": "x"}, {}, "it has no key"),
        ({"key": "a"}, {}, 'it has no text (it has key); say which column is the text: text = "{column}"'),
        ({"key": "a", "text": " \n"}, {}, "it has no text"),
        ({"key": "a", "b": 1}, {"text": "{b} {c}"}, "it has no 'c' for text = '{b} {c}' (it has key, b)"),
        ({**FACT, "sure": "very"}, {"confidence": "{sure}"}, "its confidence is 'very'; it must be a number from 0 to"),
        ({**FACT, "confidence": 1.01}, {}, "its confidence is 1.01;"),
        ({**FACT, "confidence": float("nan")}, {}, "its confidence is nan;"),
        ({**FACT, "at": "soon"}, {}, "at is 'soon', which is not a time; use ISO 8601, or seconds since 1970"),
        ({**FACT, "value": float("inf")}, {}, "its value is inf, which cannot be compared; give a finite number"),
        ({**FACT, "text": b"x"}, {}, "a value is bytes; let the query convert it to text"),
    ],
)
def test_a_row_that_is_no_fragment_is_reported_with_the_reason(
    row: dict[str, object], table: dict[str, object], words: str
) -> None:
    assert reason(row, **table).startswith(words)


def test_unusable_rows_cost_no_others_and_many_are_counted() -> None:
    found = mapped(FACT, *[{}] * (ROWS_TOLD_MAX + 2), FACT)

    assert len(found.fragments) == 2
    [missing] = found.missing
    assert missing.count("it has no key") == ROWS_TOLD_MAX
    assert missing.startswith("shop.db#2: ")
    assert missing.endswith(", and 2 more")


def test_a_place_is_the_path_or_the_name_or_the_number_of_a_row() -> None:
    mapping = RowMapping("shop", FragmentTable())
    rows = [
        SourceRecord(FACT, ABOUT, name="n", path="$.n"),
        SourceRecord(FACT, ABOUT, name="n"),
        SourceRecord(FACT, ABOUT),
    ]

    found = mapping.fragments(rows, now=NOW, where="file#").fragments

    assert [each.locator for each in found] == ["file#$.n", "file#n", "file#3"]


COLUMNS = st.dictionaries(
    st.sampled_from(["key", "text", "value", "confidence", "at", "valid_until", "locator", "other"]),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.decimals(allow_nan=False, places=2)
    | st.just(Decimal("NaN"))
    | st.datetimes(timezones=st.just(UTC) | st.none())
    | st.dates()
    | st.lists(st.integers(), max_size=2)
    | st.just({"$ref": "#/shared"}),
)


@given(rows=st.lists(COLUMNS, max_size=5), given_key=st.booleans())
def test_every_kind_of_mapping_gives_the_same_fragments(rows: list[dict[str, object]], given_key: bool) -> None:
    """Plain dicts are read by a shorter way, which must change nothing."""
    mapping = RowMapping("shop", FragmentTable(key="{other}" if given_key else "{key}", value="{value}"))

    def found(kind: type[Mapping[str, object]]) -> MappedRows:
        return mapping.fragments(
            [SourceRecord(kind(row), ABOUT, root={"shared": "s"}) for row in rows],  # type: ignore[call-arg]  # both take a dict
            now=NOW,
        )

    assert found(dict) == found(MappingProxyType)
    assert len(found(dict).fragments) <= len(rows)


# -- Values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("café", "café"),
        ("half \ud800 character", "half ? character"),
        (None, ""),
        (NOTHING, ""),
        (True, "true"),
        (0.1, "0.1"),
        (date(2026, 11, 3), "2026-11-03"),
        (datetime(2026, 11, 3, 10, tzinfo=UTC), "2026-11-03T10:00:00+00:00"),
        ({"b": [1, None], "a": "x"}, '{"a":"x","b":[1,null]}'),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_a_value_is_shown_as_a_reader_expects(value: object, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize(
    "value", [b"x", bytearray(b"x"), memoryview(b"x"), 1 << NUMBER_BITS_MAX, {"deep": {1, 2}, ("t",): 1}]
)
def test_a_value_that_cannot_be_shown_is_refused(value: object) -> None:
    with pytest.raises(Unusable):
        as_text(value)


@pytest.mark.parametrize(
    ("value", "compared"),
    [
        (NOTHING, None),
        (None, None),
        (False, False),
        (Decimal("3.00"), 3),
        (Decimal("0.5"), 0.5),
        (date(2026, 11, 3), "2026-11-03"),
        (["a"], '["a"]'),
    ],
)
def test_values_of_any_kind_can_be_compared(value: object, compared: object) -> None:
    found = as_value(value)

    assert found == compared
    assert type(found) is type(compared)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+999999999"), 1 << 2_000, b"x"],
)
def test_a_value_that_equals_nothing_is_refused(value: object) -> None:
    with pytest.raises(Unusable):
        as_value(value)


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (" 2026-11-03T10:00:00 ", datetime(2026, 11, 3, 10, tzinfo=UTC)),
        ("2026-11-03T10:00:00Z", datetime(2026, 11, 3, 10, tzinfo=UTC)),
        ("20261103", datetime(2026, 11, 3, tzinfo=UTC)),
        (datetime(2026, 11, 3, 10, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 11, 3, 8, tzinfo=UTC)),
        (datetime(2026, 11, 3, 10), datetime(2026, 11, 3, 10, tzinfo=UTC)),  # noqa: DTZ001 - a time without a zone
        (date(2026, 11, 3), datetime(2026, 11, 3, tzinfo=UTC)),
        (1_793_700_000, datetime.fromtimestamp(1_793_700_000, UTC)),
        (1_793_700_000_500, datetime.fromtimestamp(1_793_700_000.5, UTC)),  # in milliseconds
        (Decimal("1793700000.5"), datetime.fromtimestamp(1_793_700_000.5, UTC)),
    ],
)
def test_a_time_is_read_in_utc(value: object, at: datetime) -> None:
    found = as_time(value, "at")

    assert found == at
    assert found.tzinfo is UTC


@pytest.mark.parametrize("value", ["", "soon", True, None, [], float("nan"), 10**30, -(10**30)])
def test_what_is_no_time_is_named(value: object) -> None:
    with pytest.raises(Unusable, match=r"^valid_from is .* not a time"):
        as_time(value, "valid_from")
