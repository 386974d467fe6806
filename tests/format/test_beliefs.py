"""Words for people about beliefs."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from mica.format.beliefs import certainty_words, count_words, ending_words, speaker, summarize
from mica.model.belief import Belief, BeliefId, BeliefKind

AT = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


def belief(text: str = "Always use uv run", kind: BeliefKind = "rule") -> Belief:
    return Belief(
        id=BeliefId("bqkxwzyabcdef"),
        kind=kind,
        text=text,
        state="held",
        certainty=0.9,
        by="user",
        place="prompt",
        at=AT,
        last_at=AT,
        evidence=(),
        position=1,
    )


def test_counts_are_grammatical_and_leave_out_zeros() -> None:
    assert count_words({"rule": 2, "decision": 1, "task": 1, "fact": 0}) == "2 rules, 1 decision, 1 open task"
    assert count_words({}) == ""


def test_the_speaker_is_the_name_that_is_known() -> None:
    said = belief()

    assert speaker(said) == "user"
    assert speaker(msgspec.structs.replace(said, user="ann")) == "ann"
    assert speaker(msgspec.structs.replace(said, by="agent", agent="claude", user="ann")) == "claude"
    assert speaker(msgspec.structs.replace(said, by="tool")) == "tool"


def test_certainty_is_one_of_three_words() -> None:
    words = [certainty_words(msgspec.structs.replace(belief(), certainty=each)) for each in (0.3, 0.6, 0.9)]

    assert words == ["unsure", "likely", "certain"]


def test_an_ending_names_how_when_and_why() -> None:
    ended = msgspec.structs.replace(
        belief(), state="ended", ending="withdrawn", ended_at=AT, reason="we use pip", replaced_by=None
    )

    assert ending_words(belief()) == ""
    assert ending_words(ended).startswith("withdrawn 2026-11-03")
    assert ending_words(ended).endswith(": we use pip")


def test_a_summary_has_the_newest_of_each_heading_and_counts_all() -> None:
    rules = [belief(f"rule {number}") for number in range(9)]

    found = summarize([*rules, belief("Ship it", "task")])

    assert found.words == "9 rules, 1 open task"
    assert [(name, len(listed)) for name, listed in found.newest] == [("Rules", 4), ("Open ends", 1)]
    assert found.newest[0][1][0].text == "rule 0"
