"""A table of ours in a TOML file of somebody else."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.clients.toml_tables import MISSING, table_at, with_table, without_table
from mica.errors import InvalidInput

CONFIG = """# mine
model = "gpt-5.5"  # the good one

[mcp_servers.docs]
command = "docs"
args = [
  "[not a header]",
]

# at the end
"""
KEYS = ("plugins", "nav@mica")


def test_a_table_is_added_at_the_end_and_removed_again() -> None:
    text = with_table(CONFIG, KEYS, {"enabled": True, "source": "C:\\x"})

    assert text == CONFIG + '\n[plugins."nav@mica"]\nenabled = true\nsource = "C:\\\\x"\n'
    assert table_at(text, KEYS) == {"enabled": True, "source": "C:\\x"}
    assert table_at(CONFIG, KEYS) is MISSING
    assert without_table(text, KEYS) == CONFIG


def test_removing_a_table_keeps_what_follows_it() -> None:
    later = '# mine too\n[tui]\ntheme = "dark"\n'
    text = with_table(CONFIG, KEYS, {"enabled": True}) + later

    assert without_table(text, KEYS) == CONFIG + later


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"not TOML|taken"):
        with_table('plugins = {"a" = 1}\n', KEYS, {"enabled": True})
    with pytest.raises(InvalidInput, match="not TOML"):
        with_table("this is no TOML", KEYS, {"enabled": True})
    with pytest.raises(InvalidInput, match="by hand"):
        without_table('[plugins]\n"nav@mica" = {enabled = true}\n', KEYS)


@given(
    st.dictionaries(st.text("abc.", min_size=1, max_size=4), st.booleans() | st.text(max_size=5), max_size=4),
    st.lists(st.text("ab@ü.", min_size=1, max_size=4), min_size=1, max_size=3, unique=True),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_table_can_be_added_and_removed(table: dict[str, str | bool], names: list[str], end: str) -> None:
    text = CONFIG.replace("\n", end)

    changed = text
    for name in names:
        changed = with_table(changed, ("ours", name), table)
    assert tomllib.loads(changed.replace("\r\n", "\n"))["ours"] == dict.fromkeys(names, table)
    for name in names:
        changed = without_table(changed, ("ours", name))

    assert changed == text
