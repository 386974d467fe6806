"""Asking a second time: what is learned, what is asked for, and that the best answers keep their places."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from mica.model.event import EventId, Mark
from mica.search import kinds
from mica.search.ranker import Hit, parse
from mica.search.second_query import (
    KEPT,
    LEARNED,
    LEARNED_WEIGHT,
    asks_for_several,
    broader,
    joined,
    learned,
    members,
    spread,
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


def test_the_words_of_the_best_hits_that_others_do_not_say_are_learned() -> None:
    taught = [hit(1, "The kayak tour on the lake"), hit(2, "kayak again")]
    others = [hit(number, "a tour and some other thing", score=0.1) for number in range(3, 30)]

    found = learned([*taught, *others], known={"lake"})

    assert found[0].term == "kayak"
    assert found[0].weight == LEARNED_WEIGHT
    assert len(found) <= LEARNED
    assert "lake" not in {term.term for term in found}


def test_names_of_speakers_are_not_learned() -> None:
    assert learned([hit(1, "Thanks, Tim", agent="Tim")], known=set()) == [learned([hit(1, "Thanks")], known=set())[0]]


def test_nothing_is_learned_from_nothing() -> None:
    assert learned([], known=set()) == []


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
def test_a_question_for_several_things_is_known_by_its_words(question: str, several: bool) -> None:
    assert asks_for_several(question) is several


def test_the_members_of_the_kind_that_is_asked_for_are_looked_for() -> None:
    asked = parse("Which pets does Ann have?", now=NOW)
    told = parse("Ann said that pets are allowed", now=NOW)

    assert set(terms("dog cat")) <= {term.term for term in members(asked, set())}
    assert members(told, set()) == []


def test_every_kind_has_members_that_are_not_itself() -> None:
    assert all(found and kind not in found for kind, found in kinds.members().items())


def test_a_broader_question_keeps_what_was_asked() -> None:
    asked = parse("Which pets does Tim have?", now=NOW, speakers=["Tim"])

    again = broader(asked, [hit(1, "the pet shop sold a ferret")])

    assert again.terms == asked.terms
    assert "ferret" in {term.term for term in again.learned}
    assert len(set(again.wanted)) == len(again.wanted)
    assert again.speaker_factor > asked.speaker_factor
    assert again.neighbour_share < asked.neighbour_share


def test_the_best_of_the_first_asking_stay_in_front_and_none_comes_twice() -> None:
    first = [hit(number, score=100.0 - number) for number in range(1, 20)]
    second = [hit(number, score=float(number)) for number in range(40, 0, -1)]

    hits = joined(parse("why", now=NOW), first, second)

    found = [one.mark.position or 0 for one in hits]
    assert found[:KEPT] == list(range(1, KEPT + 1))
    assert sorted(found) == list(range(1, 41))
    assert hits == sorted(hits, key=lambda one: -one.score)


def test_a_list_is_taken_from_every_session_in_turn() -> None:
    close = [hit(1, score=1.0), hit(2, score=0.99), hit(3, score=0.98), hit(4, score=0.97, session="other")]
    alone = [hit(number, score=1.0 - number / 100, session=None) for number in range(4)]

    assert [one.mark.position for one in spread(close, [])] == [1, 4, 2, 3]
    assert [one.score for one in spread(alone, [])] == [one.score for one in alone]


def test_whatever_says_all_words_of_a_list_stays_before_the_second_asking() -> None:
    """Words that were learned from others say nothing against a mark that has all that was asked for."""
    first = [hit(number, score=20.0 - number) for number in range(1, 11)]
    whole = [msgspec.structs.replace(each, parts={"own": 1.0, "complete": 1.5}) for each in first[6:8]]
    second = [hit(99, score=100.0), *first]

    order = [each.mark.position for each in joined(parse("parser deadlock", now=NOW), [*first[:6], *whole], second)]

    assert order == [1, 2, 3, 4, 5, 7, 8, 99, 6, 9, 10]
