"""A line that was copied from a brief is recognized by its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.brief.pasted_line import WORDS_MIN, PastedLine, join_words, parse_handles
from mica.model.event import CRYSTAL, Event
from mica.testing.builders import build
from mica.words import words

TEXT = "The retry hides the real error"
PROSE = st.lists(st.sampled_from([*TEXT.lower().split(), "Ünïcode", "café", "404"]), min_size=1, max_size=9).map(
    " ".join
)


DRESSED = ["- ", "* ", "2026-11-03 ", "2026-11-03 10:00:\n- ", "- 9 Nov ", "- 9 Nov 2025 ", "9 Nov "]


def mark(text: str = TEXT, *tags: str) -> Event:
    return build(1, "mark", {"text": text, "tags": list(tags)})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#12", ["#12"]),
        ("12", ["12"]),
        ("- mark: see issue (#3) first (#12 #14)", ["#12", "#14"]),
        ("- gotcha: told (#12, #14)  ", ["#12", "#14"]),
        ("  01m7gsn9dz-00  ", ["01m7gsn9dz-00"]),
    ],
)
def test_a_reference_is_an_id_a_number_or_a_line_that_ends_in_numbers(text: str, named: list[str]) -> None:
    assert parse_handles(text) == named


@given(text=PROSE, end=st.integers(1, 9), dressed=st.sampled_from(DRESSED))
def test_the_first_words_of_a_line_begin_it_without_its_bullet_and_date(text: str, end: int, dressed: str) -> None:
    first = " ".join(text.split()[:end])

    for pasted in (first, dressed + first, f"{dressed}{first} (#3 #12)", first.upper()):
        line = PastedLine(pasted)
        assert line.begins(text) == (len(words(first)) >= WORDS_MIN)
        assert line.begins("something else", text) == line.begins(text)


@given(text=PROSE, pasted=PROSE)
def test_only_whole_words_from_the_start_of_a_line_begin_it(text: str, pasted: str) -> None:
    line = PastedLine(pasted)
    count = len(words(pasted))

    assert line.begins(text) == (count >= WORDS_MIN and words(text)[:count] == words(pasted))


@pytest.mark.parametrize("text", ["", "…", "The", "- The", "2026-11-03 The", "The (#12)", "2026-11-03\n- "])
def test_a_line_of_a_single_word_begins_nothing(text: str) -> None:
    """Too many lines begin with the same word. A number of an event is no second word."""
    line = PastedLine(text)

    assert not line.begins(TEXT, f"gotcha: {TEXT}")


def test_blanks_case_and_punctuation_are_not_compared() -> None:
    assert join_words("  The RETRY,\n hides — it!") == "the retry hides it"


@pytest.mark.parametrize(
    ("pasted", "is_shown"),
    [
        ("The retry", True),
        ("gotcha: The", True),
        ("gotcha, corrected by #7: The retry", True),
        ("- gotcha: The retry hides the real error (#1)", True),
        ("decision: The retry", False),
        ("retry hides", False),
        ("The retry hides the real error of the proxy", False),
    ],
)
def test_a_mark_is_shown_with_its_label(pasted: str, is_shown: bool) -> None:
    assert PastedLine(pasted).begins_excerpt(mark(TEXT, "gotcha")) == is_shown


LONG = "The proxy drops headers. The retry hides the real error. The mailer waits for the vault."


@pytest.mark.parametrize(
    ("pasted", "is_shown"),
    [
        ("- 9 Nov gotcha: The proxy drops headers. … The mailer waits for the vault. (#1)", True),
        ("- 9 Nov 2025 agent: The retry hides the real error. The mailer waits", True),
        ("The mailer waits for the vault.", True),
        ("agent, conflicts with #12 #14: The proxy drops", True),
        ("gotcha, corrected by #7: The mailer", True),
        ("- 9 Nov user: The proxy drops headers.", False),  # an agent said it
        ("The proxy drops … The mailer", False),  # a sentence is whole, unless the line ends
        ("the real error. The mailer waits", False),
    ],
)
def test_a_line_has_some_of_the_sentences_of_a_mark(pasted: str, is_shown: bool) -> None:
    assert PastedLine(pasted).begins_excerpt(mark(LONG, "gotcha")) == is_shown


def test_a_belief_that_a_person_added_is_recognized() -> None:
    added = build(1, "belief.added", {"kind": "rule", "text": TEXT}, origin="user")

    assert PastedLine(f"- 9 Nov user: {TEXT}").begins_excerpt(added)
    assert PastedLine("The retry hides").begins_excerpt(added)
    assert not PastedLine(f"agent: {TEXT}").begins_excerpt(added)


def test_a_text_that_no_event_has_may_have_the_label_of_one() -> None:
    said = build(1, "mark", {"text": "Yes, do it", "tags": ["prompt"]}, origin="user")

    for pasted in ("user: Yes, do it: Should I add", "Yes, do it: Should I"):
        assert PastedLine(pasted).begins_labelled("Yes, do it: Should I add an index", said)
    assert not PastedLine("agent: Yes, do it: Should I").begins_labelled("Yes, do it: Should I add an index", said)


@pytest.mark.parametrize(
    ("pasted", "is_part"),
    [
        ("… hides the real … error", True),
        ("The retry … error", True),
        ("hides the … error", False),  # without an ellipsis before it, the line must be the beginning
        ("… error … the retry", False),  # in another order
        ("… error", False),  # too short
        ("… retried the", False),
    ],
)
def test_a_compressed_line_has_parts_of_the_text_in_their_order(pasted: str, is_part: bool) -> None:
    line = PastedLine(pasted)

    assert line.begins_excerpt(mark(), is_compressed=True) == is_part
    assert not line.begins_excerpt(mark())


def test_a_further_line_of_a_text_continues_it() -> None:
    event = mark("Two findings:\n- the proxy drops headers\n- the retry hides the error")

    assert PastedLine("the retry hides").continues_excerpt(event)
    assert PastedLine("  - the proxy drops headers").continues_excerpt(event)
    assert not PastedLine("Two findings").continues_excerpt(event)
    assert not PastedLine("the retry hides").continues_excerpt(mark("one line"))


@pytest.mark.parametrize(
    "event",
    [
        build(1, "file.read", {"path": TEXT}),
        build(1, "mark", {"text": 7}),
        build(1, CRYSTAL, {"insight": TEXT}),
        build(1, "teaching.promoted", {"text": TEXT}),
    ],
)
def test_an_event_that_a_brief_cannot_show_has_no_line(event: Event) -> None:
    assert not PastedLine(TEXT).begins_excerpt(event, is_compressed=True)
    assert not PastedLine(TEXT).continues_excerpt(event)


def test_the_label_alone_is_the_beginning_of_a_list_of_files() -> None:
    """A list for a task has another label than the list without one."""
    steps = [build(1, "file.read", {"path": "auth/session.py"})]

    assert PastedLine("files for such").names_files(steps, has_query=True)
    assert PastedLine("files used most: auth").names_files(steps, has_query=False)
    assert not PastedLine("files used most: auth/session.py (1 turn)").names_files(steps, has_query=True)
    assert not PastedLine("auth").names_files(steps, has_query=True)
    assert not PastedLine("").names_files(steps, has_query=True)


def test_a_list_of_files_is_found_by_the_reasons_of_a_ranking_too() -> None:
    """A reason quotes another task, and so may look like the next file."""
    steps = [build(number, "file.read", {"path": path}) for number, path in enumerate(("a/one.py", "a/two.py"))]
    line = "files for such a task: a/one.py:3-9,12-14 (similar task: “Fix it (now), please”), a/two.py (used recently)"

    assert PastedLine(line).names_files(steps, has_query=True)
    assert PastedLine(line[:70]).names_files(steps, has_query=True)
    assert PastedLine(line).names_files([steps[0], None], has_query=True)
    assert not PastedLine(line).names_files(steps[::-1], has_query=True)
    assert not PastedLine(line).names_files(steps[:1], has_query=True)
    assert not PastedLine(line).names_files(steps, has_query=False)
