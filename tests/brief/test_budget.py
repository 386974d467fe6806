"""Selecting the passages that fit a budget."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from mica.brief.budget import choose
from mica.brief.layout import with_cost
from mica.model.brief import SECTIONS, Passage, Section
from mica.testing.builders import START_AT, build


def passage(
    text: str,
    *,
    score: float = 1.0,
    number: int = 1,
    section: Section = "known",
    ordinal: int | None = None,
    kind: str = "mark",
) -> Passage:
    made = Passage(
        text=text,
        sources=(build(number).id,),
        tokens=0,
        score=score,
        at=START_AT + timedelta(days=number),
        source="marks",
        kind=kind,
        section=section,
        ordinal=ordinal,
    )
    return with_cost(made, budget_tokens=100_000)


def test_a_claim_is_shown_once() -> None:
    """keeps: U-15"""
    same = [passage("The cookie is SET!", number=n, score=1 / n) for n in range(1, 6)]
    choice = choose([*same, passage("the port is wrong", number=9, score=0.1)], budget_tokens=1000)
    assert [p.sources for p in choice.passages] == [same[0].sources, (build(9).id,)]
    assert choice.left_out == 0


def test_a_passage_that_a_chosen_one_contains_is_not_repeated() -> None:
    """keeps: U-15. A new number may correct the earlier value, so it is shown."""
    whole = passage("The timeout of the slow upload is 90 s since Monday", score=2.0)
    part = passage("timeout of the slow upload is 90 s", score=0.9, number=2)
    other = passage("timeout of the slow upload is 30 s", score=0.8, number=3)

    choice = choose([whole, part, other], budget_tokens=1000)

    assert [each.text for each in choice.passages] == [whole.text, other.text]


def test_words_from_several_passages_do_not_make_another_one_a_repetition() -> None:
    first = passage("use nextest for the crates", number=1)
    second = passage("cargo test is slow here", number=2)
    rule = passage("run tests with cargo nextest not cargo test", number=3, score=0.5)
    assert rule.text in [each.text for each in choose([first, second, rule], budget_tokens=1000).passages]


def test_a_long_passage_is_skipped_and_shorter_ones_still_fit() -> None:
    """keeps: TC-13"""
    long = passage("word " * 500, score=1.0)
    short = passage("short and useful", score=0.5, number=2)
    choice = choose([long, short], budget_tokens=100)
    assert choice.passages == (short,)
    assert choice.left_out == 1


def test_a_long_passage_must_be_worth_more_than_short_ones() -> None:
    """Passages are compared by worth for their cost, so that one long mark does not take the whole budget."""
    long = passage(" ".join(f"word{n}" for n in range(200)), score=1.0)
    shorts = [passage(f"fact {n} about thing{n}", score=0.4, number=n) for n in range(2, 8)]

    choice = choose([long, *shorts], budget_tokens=long.tokens)

    assert set(choice.passages) == set(shorts)
    assert choice.left_out == 1


def test_rules_take_at_most_their_share_and_the_others_are_counted() -> None:
    rules = [passage(f"always rule{n} for thing{n}", number=n, section="rules") for n in range(1, 9)]
    fact = passage("the port is 8080", number=9, score=0.1)

    choice = choose([*rules, fact], budget_tokens=1_000, section_tokens={"rules": rules[0].tokens * 3})

    assert sum(each.section == "rules" for each in choice.passages) == 3
    assert choice.rules_left_out == choice.left_out == 5
    assert fact in choice.passages


def test_sentences_of_one_event_share_a_line_and_count_once_when_left_out() -> None:
    sentences = [passage(f"sentence number{n} of it", number=1, ordinal=n) for n in range(4)]
    line = sentences[0].tokens

    whole = choose(sentences, budget_tokens=line + 3 * 4, joined_cost=lambda each, limit: 4 if limit >= 4 else None)
    some_of_it = choose(sentences, budget_tokens=line, joined_cost=lambda each, limit: 4 if limit >= 4 else None)
    none = choose(sentences, budget_tokens=1)

    assert (len(whole.passages), whole.left_out) == (4, 0)
    assert (len(some_of_it.passages), some_of_it.left_out) == (1, 0)
    assert (len(none.passages), none.left_out) == (0, 1)


def test_a_teaching_stands_for_the_marks_that_it_quotes() -> None:
    quoted = passage("words", number=7, score=0.9)
    teaching = msgspec.structs.replace(
        passage("rule " * 60, score=50, number=6), source="teachings", stands_for=frozenset(quoted.sources)
    )
    assert choose([teaching, quoted], budget_tokens=10 * teaching.tokens).passages == (teaching,)


_PASSAGES = some.lists(
    some.builds(
        passage,
        some.lists(some.sampled_from("alpha beta gamma delta port cookie 90 30 never always".split()), min_size=1).map(
            " ".join
        ),
        score=some.floats(0, 2),
        number=some.integers(1, 12),
        section=some.sampled_from(SECTIONS),
        ordinal=some.none() | some.integers(0, 4),
    ),
    max_size=25,
)


@given(_PASSAGES, some.integers(0, 300))
def test_a_choice_keeps_its_budget_and_leaves_out_nothing_that_fits(passages: list[Passage], budget: int) -> None:
    """The same passages in any order give the same choice."""
    choice = choose(passages, budget_tokens=budget)

    used = sum(each.tokens for each in choice.passages)
    assert used <= budget
    assert choose(passages[::-1], budget_tokens=budget) == choice
    dearest = max((each.tokens for each in passages), default=0)
    assert not choice.left_out or used + dearest > budget
