"""Notes of sessions: what was asked, decided, found, changed and left open, in whole sentences."""

from __future__ import annotations

import pytest

from mica.crystals.digest import DigestSource
from mica.crystals.session_note import SessionNote, read_note
from mica.model.event import EventId


def note(*marks: tuple[str, str] | tuple[str, str, str]) -> SessionNote:
    """Read the note of marks, each given as a tag, a text and perhaps a reason."""
    return read_note(
        [
            DigestSource(EventId(f"m{number}"), mark[1], tags=(mark[0],) if mark[0] else (), reason="".join(mark[2:]))
            for number, mark in enumerate(marks)
        ]
    )


def texts(read: SessionNote, *roles: str) -> list[str]:
    return [line.text for line in read.lines if not roles or line.role in roles]


def test_an_acknowledgement_is_no_line() -> None:
    """keeps: B-59"""
    read = note(
        ("prompt", "Fix the login"),
        ("closing", "The cookie is set after the redirect now."),
        ("prompt", "👍 nice, thanks!"),
        ("closing", "You're welcome!"),
        ("prompt", "go ahead"),
    )

    assert texts(read) == ["Fix the login", "The cookie is set after the redirect now."]


def test_a_short_answer_comes_with_the_proposal_that_it_answers() -> None:
    read = note(
        ("prompt", "Add an offline queue. SQLite or files?"),
        ("closing", "SQLite would add a C dependency. My vote is files."),
        ("prompt", "files. go"),
    )

    assert texts(read, "decided") == ["My vote is files. — user: files. go"]
    assert read.lines[-1].sources == ("m1", "m2")


def test_an_answer_to_a_list_of_proposals_names_all_of_them() -> None:
    read = note(
        ("prompt", "Die Seite ist langsam"),
        ("closing", "**Vorschläge**\n\n1. Das Foto in drei Breiten ausliefern\n2. Die Schrift selbst hosten"),
        ("prompt", "alle machen"),
    )

    assert texts(read, "decided") == [
        "Vorschläge: Das Foto in drei Breiten ausliefern; Die Schrift selbst hosten — user: alle machen"
    ]


def test_an_answer_that_repeats_a_word_comes_with_the_sentence_of_that_word() -> None:
    read = note(
        ("prompt", "Validate the form"),
        ("closing", "One test fails. Next: run the check with a debounce, or on blur. Nothing is pushed."),
        ("prompt", "on blur please"),
    )

    assert texts(read, "decided") == ["Next: run the check with a debounce, or on blur. — user: on blur please"]


def test_a_bare_consent_comes_with_the_last_sentence_before_it() -> None:
    read = note(
        ("prompt", "why does it reset?"),
        ("closing", "It is a brownout. What helps: refuse uploads under 2.7 V, and erase page by page."),
        ("prompt", "do both"),
    )

    assert texts(read, "decided") == ["What helps: refuse uploads under 2.7 V, and erase page by page. — user: do both"]


def test_remarks_of_a_user_are_not_joined_to_a_report() -> None:
    read = note(
        ("prompt", "Make the search faster"),
        ("closing", "The index takes 1.1 MB of memory and is built in 40 ms."),
        ("prompt", "feels instant"),
    )

    assert texts(read, "asked") == ["Make the search faster", "feels instant"]
    assert texts(read, "decided") == []


@pytest.mark.parametrize(
    "pasted",
    [
        "E/Runtime( 8812): FATAL EXCEPTION: GLThread 402\nE/Runtime( 8812): java.lang.OutOfMemoryError",
        "[solver] iter 1 residual 4.1e+02\n[solver] iter 2 residual nan\nterminate called after throwing 'Breakdown'",
        '[11/Jun/2026 13:12:44] "POST /form/ HTTP/1.1" 500 145',
        'Traceback (most recent call last):\n  File "a.py", line 61, in save\n    row.save()\nValueError: too long',
        "```\n$ make test\n3 failed\n```",
    ],
)
def test_pasted_logs_are_left_out_and_the_request_around_them_stays(pasted: str) -> None:
    read = note(("prompt", f"saving the form crashes on the tablet:\n{pasted}\nwhat now"))

    assert texts(read) == ["saving the form crashes on the tablet. what now"]


def test_list_items_keep_their_header_and_their_sentences() -> None:
    read = note(
        (
            "closing",
            "Upload works on a real cell.\n\nNot done yet:\n- Images are unsigned. Anything is taken\n- The rollback",
        ),
    )

    assert texts(read) == [
        "Upload works on a real cell.",
        "Not done yet: Images are unsigned. Anything is taken",
        "Not done yet: The rollback",
    ]
    assert [line.is_open for line in read.lines] == [False, True, True]


def test_a_sentence_before_a_list_becomes_the_header_of_its_items() -> None:
    read = note(
        ("closing", "The export is half done and writes both coordinates. Missing:\n\n- `scientificName`\n- a button")
    )

    assert texts(read)[1:] == ["Missing: `scientificName`", "Missing: a button"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("The printer moved the date: it is 29 October. Fine.", "The printer moved the date: it is 29 October."),
        ("Es ist der 30. September, nicht der 1. August.", "Es ist der 30. September, nicht der 1. August."),
        ("Hosts, e.g. Docs01, need it. Done.", "Hosts, e.g. Docs01, need it."),
        ("Files are an hour off. That means plots, too.", "Files are an hour off. That means plots, too."),
        ("May it run over four pages? No, three.", "May it run over four pages? No, three."),
        ("The test expects siblings first. What applies?", "The test expects siblings first. What applies?"),
    ],
)  # fmt: skip
def test_a_sentence_stays_whole(text: str, whole: str) -> None:
    """keeps: B-62. Values, dates, references and answers are not cut off."""
    assert texts(note(("finding", text)))[0] == whole


def test_a_commit_is_its_subject_and_the_first_sentence_of_its_unwrapped_body() -> None:
    body = "Browsers drop a cookie that is set on a response\nwhich redirects. All is well.\n\nCo-Authored-By: A <a@b>"

    [line] = note(("commit", f"Set the cookie later\n\n{body}")).lines

    assert line.role == "changed"
    assert line.text == (
        "Set the cookie later. Browsers drop a cookie that is set on a response which redirects."
    )  # fmt: skip


def test_the_last_closing_words_are_how_a_session_ended() -> None:
    read = note(
        ("prompt", "Fix the cutoff date"),
        ("closing", "I looked at the form, and it takes the first of August as the cutoff date for every child."),
        ("prompt", "use the 30th of September"),
        ("closing", "The cutoff date is the 30th of September now; the age check and its four tests follow it."),
    )

    assert texts(read, "ended") == [
        "The cutoff date is the 30th of September now; the age check and its four tests follow it."
    ]
    assert "found" in {line.role for line in read.lines}


def test_very_short_last_words_are_read_with_the_ones_before() -> None:
    read = note(
        ("closing", "Half of the queue is there and has five tests. Missing: the flush command, and a lock."),
        ("prompt", "ok, tomorrow"),
        ("closing", "Fine, tomorrow then."),
    )

    assert texts(read, "ended") == [
        "Half of the queue is there and has five tests.",
        "Missing: the flush command, and a lock.",
        "Fine, tomorrow then.",
    ]


def test_a_summary_that_the_agent_wrote_last_is_how_the_session_ended() -> None:
    read = note(
        ("prompt", "Add bounces"),
        ("narration", "Reading the schema."),
        ("summary", "## Pending\n- Write the migration for Sunday at 4:00 UTC"),
    )

    assert [(line.role, line.text, line.is_open) for line in read.lines[1:]] == [
        ("ended", "Pending: Write the migration for Sunday at 4:00 UTC", True)
    ]


def test_running_commentary_counts_only_if_there_are_no_other_words() -> None:
    commentary = ("narration", "The proxy strips the header of every redirect.")

    assert texts(note(commentary, ("closing", "The header stays now."))) == ["The header stays now."]
    assert texts(note(("prompt", "Why?"), commentary))[-1] == commentary[1]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (("closing", "2 tests fail in checkout."), ("closing", "All green after the second run of the suite.")),
        (("closing", "The build is red since noon."), ("closing", "The build passes again, with all 40 tests.")),
        (("closing", "Nothing of it is committed."), ("commit", "Add the queue")),
        (("closing", "It is on feat/queue, not merged yet."), ("closing", "Merged, and the branch is deleted.")),
        (("closing", "Retention is 15 days on the volume."), ("closing", "Retention is 30 days now, as asked for.")),
    ],
)
def test_a_later_statement_voids_an_earlier_status(earlier: tuple[str, str], later: tuple[str, str]) -> None:
    """keeps: B-59"""
    read = note(("prompt", "Continue with the queue"), earlier, later)
    alone = note(("prompt", "Continue with the queue"), earlier)

    assert earlier[1] not in texts(read)
    assert [line.text for line in read.overtaken] == [earlier[1]]
    assert earlier[1] in texts(alone)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2 tests fail in checkout.", "Still 1 test fails, the others pass."),
        ("2 tests fail in checkout.", "I'd rerun them until all tests pass."),
        ("It is on feat/queue, not merged yet.", "The other branch is not merged either."),
        ("Retention is 15 days on the volume.", "The volume is 100 GB now."),
        ("No tests fail.", "All tests pass."),
    ],
)
def test_a_status_that_still_holds_stays(earlier: str, later: str) -> None:
    read = note(("prompt", "Continue with the queue"), ("closing", earlier), ("closing", later))

    assert earlier in texts(read)


def test_a_request_to_mend_a_failure_is_not_voided_by_its_success() -> None:
    read = note(("prompt", "2 tests fail since the upgrade, mend them"), ("closing", "All tests pass again."))

    assert "2 tests fail since the upgrade, mend them" in texts(read, "asked")


def test_finished_work_is_not_open_any_more() -> None:
    read = note(
        ("closing", "The parser is in. Still open: the lock in `flush_queue()`, so that two runs never meet."),
        ("prompt", "Do that now, and write a test that starts two of them at the same time"),
        ("commit", "Lock the queue in flush_queue()"),
        ("closing", "A second run waits for the first one now, and a test starts two of them at the same time."),
    )

    assert not any(line.is_open for line in read.lines)


def test_a_stated_reason_stays_with_its_mark() -> None:
    """keeps: B-56"""
    [line] = note(("decision", "Use the unique index", "row locks made bookings wait")).lines

    assert line.text == "Use the unique index — why: row locks made bookings wait"
    assert (line.role, line.is_key) == ("decided", True)
