"""Asking a second time: what is learned, what is asked for, and that the best answers keep their places."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from mica.model.event import EventId
from mica.model.hit import Hit
from mica.model.mark import Mark
from mica.search import second_query
from mica.search.ranker import parse
from mica.search.second_query import (
    LEARNED,
    LEARNED_WEIGHT,
    PINNED,
    asks_for_several,
    broaden,
    join_hits,
    learn_terms,
    member_terms,
    spread_over_sessions,
)
from mica.words import terms

NOW = datetime(2025, 6, 18, tzinfo=UTC)


def hit(position: int, text: str = "", *, score: float = 1.0, session: str | None = "s", agent: str = "") -> Hit:
    mark = Mark(
        id=EventId(f"m{position}"),
        text=text,
        at=NOW,
        tags=(),
        session=session,
        agent=agent or None,
        origin="agent",
        position=position,
    )
    return Hit(mark=mark, score=score, parts={"own": score})


def test_distinctive_words_of_the_best_hits_are_added_to_the_second_query() -> None:
    taught = [hit(1, "The kayak tour on the lake"), hit(2, "kayak again")]
    others = [hit(number, "a tour and some other thing", score=0.1) for number in range(3, 30)]

    found = learn_terms([*taught, *others], known={"lake"})

    assert found[0].term == "kayak"
    assert found[0].weight == LEARNED_WEIGHT
    assert len(found) <= LEARNED
    assert "lake" not in {term.term for term in found}


def test_names_of_speakers_are_not_added() -> None:
    assert learn_terms([hit(1, "Thanks, Tim", agent="Tim")], known=set()) == [
        learn_terms([hit(1, "Thanks")], known=set())[0]
    ]


def test_no_hits_add_no_words() -> None:
    assert learn_terms([], known=set()) == []


@pytest.mark.parametrize(
    ("question", "several"),
    [
        ("How many pets does Tim have?", True),
        ("Which cities did Ann visit?", True),
        ("What kinds of sports does Ben like?", True),
        ("What do Ann and Ben have in common?", True),
        ("What is the name of the dog?", False),
        ("When was the release?", False),
        ("Which bus went there?", False),
    ],
)
def test_a_question_for_a_list_is_recognized_by_its_words(question: str, several: bool) -> None:
    assert asks_for_several(question) is several


def test_a_question_for_a_kind_searches_for_its_members() -> None:
    asked = parse("Which pets does Ann have?", now=NOW)
    told = parse("Ann said that pets are allowed", now=NOW)

    assert set(terms("dog cat")) <= {term.term for term in member_terms(asked, set())}
    assert member_terms(told, set()) == []


def test_every_kind_has_members_other_than_itself() -> None:
    assert all(found and kind not in found for kind, found in second_query.members_by_kind().items())


def test_a_broader_query_keeps_the_original_words() -> None:
    asked = parse("Which pets does Tim have?", now=NOW, speakers=["Tim"])

    again = broaden(asked, [hit(1, "the pet shop sold a ferret")])

    assert again.terms == asked.terms
    assert "ferret" in {term.term for term in again.learned}
    assert len(set(again.all_terms)) == len(again.all_terms)
    assert again.speaker_factor > asked.speaker_factor
    assert again.neighbour_share < asked.neighbour_share


def test_the_best_first_hits_stay_in_front_and_none_appears_twice() -> None:
    first = [hit(number, score=100.0 - number) for number in range(1, 20)]
    second = [hit(number, score=float(number)) for number in range(40, 0, -1)]

    hits = join_hits(parse("why", now=NOW), first, second)

    found = [one.mark.position or 0 for one in hits]
    assert found[:PINNED] == list(range(1, PINNED + 1))
    assert sorted(found) == list(range(1, 41))
    assert hits == sorted(hits, key=lambda one: -one.score)


def test_a_list_takes_hits_from_every_session_in_turn() -> None:
    close = [hit(1, score=1.0), hit(2, score=0.99), hit(3, score=0.98), hit(4, score=0.97, session="other")]
    alone = [hit(number, score=1.0 - number / 100, session=None) for number in range(4)]

    assert [one.mark.position for one in spread_over_sessions(close, [])] == [1, 4, 2, 3]
    assert [one.score for one in spread_over_sessions(alone, [])] == [one.score for one in alone]


def test_a_mark_with_all_words_of_a_list_stays_before_the_second_query() -> None:
    """Learned words do not lower a mark that contains everything in the question."""
    first = [hit(number, score=20.0 - number) for number in range(1, 11)]
    whole = [msgspec.structs.replace(each, parts={"own": 1.0, "complete": 1.5}) for each in first[6:8]]
    second = [hit(99, score=100.0), *first]

    order = [each.mark.position for each in join_hits(parse("parser deadlock", now=NOW), [*first[:6], *whole], second)]

    assert order == [1, 2, 3, 4, 5, 7, 8, 99, 6, 9, 10]
