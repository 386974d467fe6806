"""Selecting the passages that fit a budget."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from mica.brief.budget import fit
from mica.brief.layout import with_cost
from mica.model.brief import Passage
from mica.testing.builders import START_AT, build


def passage(text: str, *, score: float = 1.0, number: int = 1, kind: str = "mark") -> Passage:
    at = START_AT + timedelta(days=number)
    made = Passage(text=text, sources=(build(number).id,), tokens=0, score=score, at=at, source="marks", kind=kind)
    return with_cost(made, budget_tokens=100_000)


def test_a_claim_is_shown_once() -> None:
    """keeps: U-15"""
    same = [passage("The cookie is SET!", number=n, score=1 / n) for n in range(1, 6)]
    chosen, left_out = fit([*same, passage("the cookie is set early", number=9, score=0.1)], budget_tokens=1000)
    assert [p.sources for p in chosen] == [same[0].sources, (build(9).id,)]
    assert left_out == 0


def test_a_long_passage_is_skipped_and_shorter_ones_still_fit() -> None:
    """keeps: TC-13"""
    long = passage("word " * 500, score=1.0)
    short = passage("short and useful", score=0.5, number=2)
    chosen, left_out = fit([long, short], budget_tokens=100)
    assert chosen == [short]
    assert left_out == 1


def test_long_passages_leave_room_for_a_cheap_line_of_another_source() -> None:
    """Passages are compared by value per token, so that one long mark does not take the whole budget."""
    files = msgspec.structs.replace(passage("a.py, b.py", number=9), source="files")
    long = passage("word " * 300, score=1.0)
    taught = [
        msgspec.structs.replace(
            passage(f"rule {n} " * 80, score=1.5, number=n), source="teachings", stands_for=frozenset([build(n).id])
        )
        for n in (2, 3)
    ]
    short = passage("short and useful", score=0.4, number=4)

    assert fit([long, files, short], budget_tokens=long.tokens) == ([files, short], 1)
    assert fit([*taught, files], budget_tokens=sum(each.tokens for each in taught)) == ([taught[0], files], 1)


def test_a_cheap_line_goes_first_only_if_it_scores_well() -> None:
    """Neither a poor line nor a crystal moves in front of marks that answer better."""
    long = passage("word " * 60, score=1.0)
    poor = msgspec.structs.replace(passage("c.py", number=9, score=0.4), source="files")
    crystal = msgspec.structs.replace(
        passage("words", number=8, score=0.8), source="crystals", stands_for=frozenset(long.sources)
    )

    assert fit([long, poor], budget_tokens=long.tokens) == ([long], 1)
    assert fit([long, crystal], budget_tokens=10 * long.tokens) == ([long], 1)
    quoted = passage("words", number=7, score=0.9)
    teaching = msgspec.structs.replace(
        passage("rule " * 60, score=1.5, number=6), source="teachings", stands_for=frozenset(quoted.sources)
    )
    assert fit([teaching, quoted], budget_tokens=10 * teaching.tokens) == ([teaching], 0)
