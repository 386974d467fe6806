"""A later statement ends an earlier one only with good reason."""

from __future__ import annotations

import pytest
from tests.beliefs.marks import learned, mark, texts

from mica.model.belief import Belief


def after(first: tuple[str, str], then: tuple[str, str], *, kind: str = "") -> Belief:
    """Return what became of the first belief. A statement is a place and a text."""
    one = mark(1, first[1], first[0], by="user" if first[0] == "prompt" else "agent", tags=[kind or first[0]])
    two = mark(90_000, then[1], then[0], session="s2")
    beliefs = {belief.evidence[0]: belief for belief in reversed(learned([one, two]))}
    return beliefs[one.id]


@pytest.mark.parametrize(
    ("kind", "first", "then", "ending"),
    [
        ("rule", "merge with squash only", ("prompt", "rebase merges from here on, squash hides too much"), "replaced"),
        ("rule", "never push to main without asking", ("prompt", "you can push to main directly again"), "withdrawn"),
        ("fact", "the proxy timeout is 30 s", ("prompt", "the proxy timeout goes up to 90 s"), "replaced"),
        ("fact", "the importer is called harbor-sync", ("prompt", "harbor-sync goes by tidepool now"), "replaced"),
        ("task", "write docs for the `--since` flag", ("commit", "docs: describe the --since flag"), "done"),
        ("decision", "sessions go into redis", ("prompt", "no redis sessions any more"), "replaced"),
        ("rule", "use npm for the frontend", ("prompt", "pnpm not npm in the frontend please"), "replaced"),
        ("rule", "commits in german please", ("prompt", "commits in english please"), "replaced"),
        ("fact", "anna does the invoices", ("prompt", "ben does the invoices now, anna left"), "replaced"),
        ("task", "call the bank on monday", ("prompt", "called the bank, all good"), "done"),
        ("gotcha", "the import drops empty rows silently", ("commit", "Fix import dropping empty rows"), "done"),
        ("question", "who may delete club members?", ("prompt", "only the board may delete members"), "answered"),
    ],
)
def test_reversal_withdrawal_value_rename_completion_and_answer_end(
    kind: str, first: str, then: tuple[str, str], ending: str
) -> None:
    assert after(("prompt", first), then, kind=kind).ending == ending


@pytest.mark.parametrize(
    ("kind", "first", "then"),
    [
        ("fact", "the connect timeout is 5 s", ("prompt", "the read timeout goes up to 30 s")),
        (
            "fact",
            "staging expires sessions after 5 minutes",
            ("prompt", "production now expires sessions after 8 hours"),
        ),
        ("rule", "never run terraform apply", ("prompt", "Do not cancel the plans for the summer")),
        ("rule", "never commit straight to main", ("prompt", "just this once commit it to main, the ci is down")),
        ("rule", "never commit straight to main", ("closing", "From now on I commit straight to main.")),
        ("rule", "no emojis in docs", ("prompt", "should we allow emojis in docs again?")),
        ("decision", "sessions go into redis", ("closing", "You could move the sessions to Postgres instead.")),
        ("task", "finish the seating plan, tables 6 to 9", ("closing", "Tables 6 and 7 are filled.")),
        ("task", "rotate the signing key", ("prompt", "I rotated the tyres today")),
        ("decision", "use a unique index", ("prompt", "a unique index instead of the redis lock")),
        ("task", "write number 0 of the series", ("closing", "Number 1 of the series is written.")),
        ("fact", "Step 0 builds 3 files", ("closing", "Step 4 now builds 9 files.")),
        ("gotcha", "the scanner has to be docked after flashing", ("closing", "I docked the scanner after flashing.")),
        ("rule", "no deploys on fridays", ("prompt", "as I said, no deploys on fridays please")),
    ],
)
def test_hard_pairs_do_not_end(kind: str, first: str, then: tuple[str, str]) -> None:
    """keeps: C-33. What is negated and what is affirmed is kept apart, and a user's rule is ended by a user only."""
    assert after(("prompt", first), then, kind=kind).ending is None


def test_a_rule_that_was_withdrawn_and_said_again_is_in_force() -> None:
    events = [
        mark(1, "never push to main without asking"),
        mark(2, "you can push to main directly again", session="s2"),
        mark(3, "never push to main without asking", session="s3"),
    ]

    assert texts(learned(events[:2])) == []
    assert "never push to main without asking" in texts(learned(events))


def test_a_commit_that_repeats_a_reversal_does_not_end_the_prompt_that_ordered_it() -> None:
    events = [
        mark(1, "let's drop the redis lock and use a unique index instead"),
        mark(2, "Replace the Redis lock with a unique index", "commit"),
        mark(3, "Done: the unique index replaces the Redis lock.", "closing"),
    ]

    assert "let's drop the redis lock and use a unique index instead" in texts(learned(events))


def test_opposite_statements_without_a_cue_are_both_kept_as_a_conflict() -> None:
    events = [
        mark(1, "webhook retries run on mondays", "note", by="user", tags=["fact"]),
        mark(2, "webhook retries run on tuesdays", "note", by="user", session="s2", tags=["fact"]),
    ]

    one, two = learned(events)

    assert one.is_in_force
    assert two.is_in_force
    assert (one.conflicts, two.conflicts) == ((two.id,), (one.id,))
