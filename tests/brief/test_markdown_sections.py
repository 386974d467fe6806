"""Replacing a section of a Markdown text without any other change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.brief.markdown_sections import escape_line, find, lines_of, replace_section

BODY = ["- one", "- two"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "## Now\n\n- one\n- two\n"),
        ("# T\n\ntext", "# T\n\ntext\n\n## Now\n\n- one\n- two\n"),
        ("# T\n", "# T\n\n## Now\n\n- one\n- two\n"),
        ("# T\r\n## now ##\r\nold\r\n## B\r\nb", "# T\r\n## now ##\r\n\r\n- one\r\n- two\r\n\r\n## B\r\nb"),
        ("## Now\nold\n### sub\nx\n# B\n", "## Now\n\n- one\n- two\n\n# B\n"),
        ("## Now", "## Now\n\n- one\n- two"),
        ("## Now\nold", "## Now\n\n- one\n- two"),
        ("```\n## Now\n```\n\n## Now\nold\n", "```\n## Now\n```\n\n## Now\n\n- one\n- two\n"),
        ("## Now\n~~~\n# code\n~~~\nold\n", "## Now\n\n- one\n- two\n"),
        ("Now\n---\nold\n\nNext\nthing\n---\nkept\n", "Now\n---\n\n- one\n- two\n\nNext\nthing\n---\nkept\n"),
        ("## Now\n- item\n---\nold\n", "## Now\n\n- one\n- two\n"),
        ("<!--\n## Now\n-->\n## Now\n", "<!--\n## Now\n-->\n## Now\n\n- one\n- two\n"),
        ("\ufeff## Now\nold\n", "\ufeff## Now\n\n- one\n- two\n"),
        ("#Now\n#### Now\nold\n##### deeper\n## B\n", "#Now\n#### Now\n\n- one\n- two\n\n## B\n"),
    ],
)
def test_only_the_section_changes(before: str, after: str) -> None:
    """keeps: B-29"""
    assert replace_section(before, "Now", BODY) == after


LINES = st.sampled_from(
    [
        "# A",
        "## Now",
        "## now ##",
        "### C",
        "text",
        "Now",
        "---",
        "===",
        "```",
        "~~~~",
        "- item",
        "",
        "<!--",
        "-->",
        "    # x",
    ]
)


@given(lines=st.lists(LINES, max_size=12), ending=st.sampled_from(["\n", "\r\n", "\r"]), is_ended=st.booleans())
def test_text_around_a_section_stays_unchanged(lines: list[str], ending: str, is_ended: bool) -> None:
    """keeps: B-29"""
    before = ending.join(lines) + (ending if is_ended and lines else "")
    section = find(lines_of(before), "Now")

    after = replace_section(before, "Now", BODY)

    if section is None:
        assert after.startswith(before)
    else:
        assert after.startswith("".join(lines_of(before)[: section.body]))
        assert after.endswith("".join(lines_of(before)[section.end :]))
        assert replace_section(after, "Now", BODY) == after


@given(st.text(st.sampled_from("ab#>-*`~|=+<!>1.)\\ \n\r\u2028\x1b"), max_size=40))
def test_a_quote_does_not_begin_a_section(text: str) -> None:
    after = replace_section("## Now\n\n## B\n", "Now", [f"- {escape_line(text)}"])

    assert len(lines_of(after)) == len(lines_of("## Now\n\n- x\n\n## B\n"))
    section = find(lines_of(after), "Now")
    assert section is not None
    assert lines_of(after)[section.end] == "## B\n"
