"""What a sentence is worth in a brief: kinds, age, speakers, the words of a task, and what is newer."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from mica.brief.worth import (
    BY_AGENT,
    HALF_LIFE,
    LEAST_SHARE,
    OF_KIND,
    UNRELATED,
    of_age,
    of_belief,
    of_length,
    of_session,
    prefer_newer,
    relevance,
)
from mica.model.belief import KINDS, Belief, BeliefId, BeliefKind
from mica.model.brief import Passage, Section
from mica.testing.builders import START_AT, build

TEXT = "The upload of the shop waits for the proxy"


def belief(kind: BeliefKind = "rule", text: str = TEXT, **fields: object) -> Belief:
    made = Belief(
        id=BeliefId("baaaaaaaaaaaa"),
        kind=kind,
        text=text,
        state="held",
        certainty=0.9,
        by="user",
        place="prompt",
        at=START_AT,
        last_at=START_AT,
        evidence=(build(1).id,),
        position=1,
    )
    return msgspec.structs.replace(made, **fields)


def passage(text: str, number: int, *, score: float = 0.5, section: Section = "known") -> Passage:
    return Passage(
        text=text,
        sources=(build(number).id,),
        tokens=0,
        score=score,
        at=START_AT + timedelta(days=number),
        source="marks",
        section=section,
        ordinal=0,
    )


def test_every_kind_has_its_numbers_and_a_rule_is_worth_most() -> None:
    assert set(OF_KIND) == set(BY_AGENT) == set(HALF_LIFE) == set(KINDS)
    assert max(OF_KIND, key=OF_KIND.__getitem__) == "rule"
    assert all(0 < each <= 1 for each in (*OF_KIND.values(), *BY_AGENT.values(), *UNRELATED.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_only_rules_and_preferences_do_not_get_old(kind: BeliefKind) -> None:
    new, old = [of_belief(belief(kind), now=START_AT + timedelta(days=days)) for days in (0, 400)]

    assert (new == old) == (kind in ("rule", "preference"))
    assert old >= LEAST_SHARE * new
    assert of_belief(belief(kind), now=START_AT - timedelta(days=3)) == new, "a clock was wrong"


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_and_a_certain_belief_are_worth_more(kind: BeliefKind) -> None:
    by_user, by_agent, unsure = [
        of_belief(each, now=START_AT) for each in (belief(kind), belief(kind, by="agent"), belief(kind, certainty=0.5))
    ]

    assert by_user >= by_agent > 0
    assert by_user > unsure > 0


@given(some.text(max_size=80))
def test_a_sentence_of_few_words_is_worth_less(text: str) -> None:
    assert 0 <= of_length(text) <= 1
    assert of_length(f"{text} The upload of the shop waits for the proxy") >= of_length(text)


def test_one_word_says_nothing() -> None:
    assert of_length("Done.") == of_length("") == 0
    assert 0 < of_length("Cookie lost") < of_length(TEXT) == 1


@given(some.floats(-50, 1_000), some.floats(0, 1_000))
def test_a_newer_match_is_never_worth_less(days: float, more: float) -> None:
    newer, older = of_age(timedelta(days=days)), of_age(timedelta(days=days + more))

    assert 0 < older <= newer <= 1


def test_a_later_session_is_worth_more() -> None:
    factors = [of_session(rank) for rank in range(9)]

    assert factors[0] == 1
    assert factors == sorted(set(factors), reverse=True)


# -- The words of a task ---------------------------------------------------------------------------------------

WORDS = "proxy cookie ledger mailer upload shop invoice audit".split()
TEXTS = some.lists(some.lists(some.sampled_from(WORDS), max_size=6).map(" ".join), max_size=9)


@given(TEXTS, some.lists(some.sampled_from(WORDS), max_size=4).map(" ".join))
def test_relevance_is_a_share_and_nothing_without_a_common_word(texts: list[str], task: str) -> None:
    shares = relevance(task, texts)

    assert len(shares) == len(texts)
    for text, share in zip(texts, shares, strict=True):
        assert 0 <= share <= 1
        assert (share > 0) == bool(set(text.split()) & set(task.split()))
    assert relevance(task, texts[::-1]) == pytest.approx(shares[::-1])


def test_rare_words_of_a_task_count_more() -> None:
    proxy, cookie, *_ = relevance("proxy cookie", ["the proxy", "the cookie", "a cookie", "cookie jar", "cookies"])

    assert proxy > cookie > 0


def test_the_best_text_is_a_full_match_only_with_enough_words_of_the_task() -> None:
    whole, part = relevance("proxy cookie", ["the proxy drops the cookie", "the proxy"])
    [little] = relevance("proxy cookie ledger mailer upload shop", ["the proxy"])

    assert whole == 1 > part
    assert little < 1


# -- What is newer ---------------------------------------------------------------------------------------------


def test_a_newer_statement_about_the_same_thing_overtakes_the_older() -> None:
    """A reversal in other words than those of the task is shown, and before what it reversed."""
    old = passage("Sessions of the shop live in redis", 1, score=0.9)
    new = passage("Redis is gone, cookies keep the sessions instead", 5, score=0.1)
    other = passage("The mailer drops long attachments", 6, score=0.1)

    scores = [each.score for each in prefer_newer([old, new, other])]

    assert scores[1] > scores[0] > scores[2] == other.score


@pytest.mark.parametrize("section", ["rules", "files", "background"])
def test_rules_files_and_the_background_are_not_overtaken(section: Section) -> None:
    old = passage("Sessions of the shop live in redis", 1, score=0.9, section=section)
    new = passage("Redis is gone, cookies keep the sessions instead", 5, score=0.1)

    assert prefer_newer([old, new]) == [old, new]


def test_words_that_many_passages_have_say_nothing_about_their_subject() -> None:
    many = [passage(f"Sessions of redis in host{number}", number, score=0.2) for number in range(2, 9)]
    old = passage("Sessions of the shop live in redis", 1, score=0.9)

    assert prefer_newer([old, *many]) == [old, *many]


@given(some.lists(some.tuples(some.lists(some.sampled_from(WORDS), max_size=6), some.floats(0, 1)), max_size=9))
def test_only_scores_change_and_the_order_of_passages_does_not_matter(stated: list[tuple[list[str], float]]) -> None:
    passages = [passage(" ".join(each), number, score=score) for number, (each, score) in enumerate(stated, 1)]

    found = prefer_newer(passages)

    assert [msgspec.structs.replace(each, score=0.0) for each in found] == [
        msgspec.structs.replace(each, score=0.0) for each in passages
    ]
    assert all(0 <= each.score <= max(1.0, *(one.score for one in passages)) for each in found)
    by_text = {each.sources: each.score for each in prefer_newer(passages[::-1])}
    if len({each.score for each in passages}) == len(passages):
        assert {each.sources: each.score for each in found} == by_text
