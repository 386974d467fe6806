"""A file of beliefs, edited by a person, says what changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.beliefs.marks import learned, mark

from mica.beliefs.edit_file import parse, render
from mica.errors import InvalidInput
from mica.model.belief import Belief


def several(count: int = 5) -> list[Belief]:
    return learned([mark(number, f"always check table{number} first") for number in range(1, count + 1)])


def test_an_unchanged_file_changes_nothing() -> None:
    text = render(several())

    assert parse(text, original=text).is_empty


def test_changed_deleted_and_new_lines_correct_end_and_add() -> None:
    beliefs = several()
    text = render(beliefs)
    lines = text.replace("always check table1 first", "always check table1 last").splitlines()
    edited = [line for line in lines if "table2" not in line]
    edited.insert(edited.index("## Rules") + 1, "- never on Fridays")

    edit = parse("\n".join(edited), original=text)

    assert edit.corrected == ((beliefs[0].id, "always check table1 last"),)
    assert edit.ended == (beliefs[1].id,)
    assert edit.added == (("rule", "never on Fridays"),)


def test_an_edit_that_deletes_everything_is_refused_unless_confirmed() -> None:
    text = render(several())

    for emptied in ("", "# Beliefs\n"):
        with pytest.raises(InvalidInput, match="would end"):
            parse(emptied, original=text)
    assert len(parse("", original=text, is_confirmed=True).ended) == 5
    with pytest.raises(InvalidInput, match="would end 1 of 1"):
        parse("", original=render(several(1)))


def test_a_belief_that_was_added_while_the_file_was_edited_does_not_end() -> None:
    before = several(4)

    edit = parse(render(before), original=render(before))

    assert several(5)[-1].id not in edit.ended


def test_a_line_under_an_unknown_heading_is_refused() -> None:
    text = render(several(1))

    with pytest.raises(InvalidInput, match="heading 'Wishes'"):
        parse(text + "\n## Wishes\n- a pony\n", original=text)


@given(st.lists(st.text(alphabet="ab <!->\n#*", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=5))
def test_no_text_breaks_the_file(texts: list[str]) -> None:
    events = [mark(n, f"x {text}", "note", by="user", tags=["rule"]) for n, text in enumerate(texts, 1)]
    text = render(learned(events))

    assert parse(text, original=text).is_empty
