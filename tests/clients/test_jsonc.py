"""Files of other people: what is put in and taken out again leaves them as they were."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.clients.jsonc import MISSING, depth_of, parse, value_at, with_item, with_value, without_item, without_value
from mica.errors import InvalidInput

SETTINGS = """{
  // how I like it
  "model": "opus", /* for now */
  "enabledPlugins": {
    "other@shop": true // keep
  },
  "hooks": {},
  "list": [
    1,
    2, // two
  ],
}
"""
ENTRY = ("enabledPlugins", "nav@mica")


def test_an_entry_is_added_after_the_others_and_comments_stay() -> None:
    text = with_value(SETTINGS, ENTRY, True)

    assert text == SETTINGS.replace("true // keep", 'true, // keep\n    "nav@mica": true')
    assert without_value(text, ENTRY, known=1) == SETTINGS


def test_missing_parents_are_created_and_removed_again() -> None:
    keys = ("extra", "mica", "source")

    text = with_value(SETTINGS, keys, {"path": "/x"})

    assert value_at(text, keys) == {"path": "/x"}
    assert text.endswith(
        '],\n  "extra": {\n    "mica": {\n      "source": {\n        "path": "/x"\n      }\n    }\n  },\n}\n'
    )
    assert without_value(text, keys, known=depth_of(SETTINGS, keys)) == SETTINGS


def test_an_item_is_added_to_a_list_and_removed() -> None:
    text = with_item(SETTINGS, ("list",), {"a": 1})

    assert value_at(text, ("list",)) == [1, 2, {"a": 1}]
    assert "// two" in text
    assert without_item(text, ("list",), {"a": 1}, known=1) == SETTINGS


def test_removing_an_entry_keeps_those_added_after_it() -> None:
    ours = with_value(SETTINGS, ENTRY, True)
    later = with_value(ours, ("enabledPlugins", "third@shop"), False)

    assert without_value(later, ENTRY, known=1) == with_value(SETTINGS, ("enabledPlugins", "third@shop"), False)


@pytest.mark.parametrize("text", ["", " \n", "\ufeff{}", "{}", "{ }\n", "{\r\n}\r\n", '{"a": 1}', '{"a":1,}', "[1]"])
def test_small_files_are_changed_or_refused_as_a_whole(text: str) -> None:
    if text == "[1]":
        with pytest.raises(InvalidInput, match="another kind"):
            with_value(text, ("a", "b"), 1)
        return
    changed = with_value(text, ("b", "c"), [1, {"d": None}])

    assert value_at(changed, ("b", "c")) == [1, {"d": None}]
    assert value_at(changed, ("a",)) == (1 if "a" in text else MISSING)
    assert changed.count("\r\n") == (changed.count("\n") if "\r" in text else 0)


@pytest.mark.parametrize(
    "text",
    ["{", '{"a"}', '{"a":}', '{"a":1 "b":2}', "{'a':1}", "{} {}", '{"a":tru}', "nonsense", "[" * 1_000, '{"a":"\n"}'],
)
def test_invalid_json_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line [12] is not JSON"):
        parse(text)


scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8)
keys = st.sampled_from(["a", "b", "hooks", 'q"uote', "ü", "x/*y*/", "z//"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)
COMMENTS = ["", "", "", " ", "\n", "\n  ", " /* a, b } */ ", " // c ] ,\n", "\t"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, object]:
    """An object as somebody may have written it, and what it says."""
    value = draw(st.dictionaries(keys, values, max_size=4))
    indent = draw(st.sampled_from([None, 2, 4, "\t"]))
    text = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
    marks = [found.end() for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]', text)]
    for place in sorted(draw(st.lists(st.sampled_from(marks), max_size=4)) if marks else [], reverse=True):
        text = text[:place] + draw(st.sampled_from(COMMENTS)) + text[place:]
    return text, value


@given(documents(), st.lists(keys, min_size=1, max_size=3), values)
def test_adding_and_removing_a_value_keeps_every_other_value(
    document: tuple[str, object], path: list[str], value: object
) -> None:
    text, said = document
    assert parse(text).value == said
    if value_at(text, path) is not MISSING:
        return
    known = depth_of(text, path)
    try:
        changed = with_value(text, path, value)
    except InvalidInput:
        return  # a text stands where an object is wanted

    assert value_at(changed, path) == value
    back = without_value(changed, path, known=known)
    assert parse(back).value == said
    assert re.sub(r"\s", "", back) == re.sub(r"\s", "", text)


@given(documents(), keys, values, values)
def test_adding_and_removing_an_item_restores_the_list(
    document: tuple[str, object], key: str, first: object, value: object
) -> None:
    text, _ = document
    text = with_value(text, (key,), [first])

    changed = with_item(text, (key,), value)

    assert value_at(changed, (key,)) == [first, value]
    assert value_at(without_item(changed, (key,), value, known=1), (key,)) in ([first], [value])
