"""Events of tool calls, for every client."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clients.hook_payloads import (
    RECORDED,
    ROOT,
    navigation,
)

from mica.clients import tool_effects
from mica.clients.cursor import tools as cursor_tools
from mica.clients.records import ImportTally
from mica.clients.tool_effects import ClientCall, FileNames


def test_a_hunk_ends_where_its_counts_say() -> None:
    """Lines that look like headers may stand in a file."""
    diff = (
        "--- a\n+++ b\n@@ -1,2 +1,3 @@\n a\n+@@ -9,9 +9,9 @@\n b\n@@ -10,1 +11,0 @@\n-x\n\\ No newline at end of file\n"
    )

    assert tool_effects.hunks(diff) == [tool_effects.Hunk(1, (2, 2)), tool_effects.Hunk(-1, (10, 10))]
    assert tool_effects.hunks("no diff") == []


@pytest.mark.parametrize("client", [*RECORDED, "cursor"])
@settings(max_examples=40)
@given(data=st.data())
def test_a_damaged_payload_of_any_client_raises_nothing(client: str, data: st.DataObject) -> None:
    """Keys removed, unknown ones added, arguments and results of other types."""
    drafts, made = RECORDED.get(client, (cursor_tools.drafts, RECORDED["claude-code"][1]))
    call = made[data.draw(st.sampled_from(sorted(made)))]
    odd = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just("\ud800\0"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )

    def spoil(value: object) -> object:
        chance = data.draw(st.integers(0, 6))
        if chance == 0:
            return data.draw(odd)
        if isinstance(value, dict):
            kept = {key: spoil(child) for key, child in value.items() if data.draw(st.integers(0, 6))}
            return kept | ({"from_the_future": 1} if chance == 1 else {})
        return value

    spoiled = ClientCall(
        id="c",
        tool=data.draw(st.sampled_from([call.tool, "", "view", "Shell", "apply_patch"])),
        arguments=spoil(call.arguments),
        result=spoil(call.result),
        failed=data.draw(st.booleans()),
        denied=data.draw(st.booleans()),
        cwd=data.draw(st.sampled_from([None, ROOT, "C:\\shop"])),
    )

    found = drafts(spoiled, FileNames(data.draw(st.sampled_from([None, ROOT]))), ImportTally())

    assert found
    if spoiled.denied:
        assert not navigation(found)


def test_secrets_in_paths_are_redacted() -> None:
    """keeps: U-09"""
    secret = "gh" + "p_" + "a1B2" * 9
    names = FileNames("/home/ann/shop")

    assert names.name(f"/home/ann/shop/tmp/{secret}/a.py", None) == "tmp/[redacted:github]/a.py"
    assert names.absolute(f"/tmp/{secret}", None) == "/tmp/[redacted:github]"
