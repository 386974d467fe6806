"""Lookup files return what was written into them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import save

from mica.navigation.engine.lookup_file import pack


@given(st.dictionaries(st.text(max_size=20), st.dictionaries(st.integers(0, 9), st.integers(0, 2**40)), max_size=50))
def test_tables_return_what_was_written(table: dict[str, dict[int, int]]) -> None:
    entries = [("one", key, pack(value)) for key, value in table.items()] + [("two", "key", pack("text"))]
    loaded = save(entries)

    assert {key: loaded.get("one", key, {5: 5}) for key in table} == table
    assert dict(loaded.raws("one")) == {key: pack(value) for key, value in table.items()}
    assert loaded.get("two", "key", "") == "text"
    assert loaded.get("two", "none", "nothing") == loaded.get("three", "key", "nothing") == "nothing"
