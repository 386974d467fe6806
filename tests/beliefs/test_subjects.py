"""Statements are linked by names and words."""

from __future__ import annotations

from mica.beliefs.subjects import KEYS_MAX, NAME, subject_of


def test_names_are_paths_code_identifiers_flags_and_issues() -> None:
    subject = subject_of("fix `make check` in src/app/login.py, see stripe_event_id, --since and #12")

    assert {"make check", "src/app/login.py", "stripe_event_id", "--since", "#12"} <= subject.names
    assert NAME + "src/app/login.py" in subject.keys


def test_the_same_in_other_filler_words_has_the_same_key() -> None:
    assert subject_of("no deploys on fridays").same == subject_of("and as I said, no deploys on Fridays please").same
    assert subject_of("deploy on fridays").same != subject_of("no deploys on fridays").same
    assert subject_of("timeout is 30").same != subject_of("timeout is 90").same


def test_numbers_weekdays_and_negations_are_not_words_of_the_subject() -> None:
    subject = subject_of("retries: three on Monday, never more")

    assert subject.values == {"3", "monday"}
    assert subject.is_negated
    assert subject.stems == {"retri"}


def test_the_number_of_keys_is_bounded() -> None:
    keys = subject_of(" ".join(f"word{chr(97 + number)}x `n{number}_m`" for number in range(26))).keys

    assert len(keys) <= KEYS_MAX
    assert list(keys) == sorted(keys)
