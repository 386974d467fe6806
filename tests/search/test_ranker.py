"""What the ranker promises, on marks made up here: no store, no data files."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mica.model.event import EventId, Origin
from mica.model.hit import Hit
from mica.model.mark import Mark, Posting, Postings, Text
from mica.search.ranker import NEIGHBOURS, TERMS_MAX, length_factor, parse, rank, shortlist
from mica.store.query import rarity, with_statistics
from mica.words import terms, words

NOW = datetime(2025, 6, 18, 12, 0, tzinfo=UTC)  # a Wednesday


class Shelf:
    """Marks in memory, answering as a store does."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.marks = {mark.position or 0: mark for mark in marks}
        self.lengths = {position: len(words(mark.text)) for position, mark in self.marks.items()}
        self.sessions: dict[str, list[int]] = defaultdict(list)
        for position, mark in sorted(self.marks.items(), key=lambda pair: (pair[1].at, pair[0])):
            if mark.session is not None:
                self.sessions[mark.session].append(position)
        self.speakers = sorted({mark.agent for mark in marks if mark.agent})

    def postings(self, wanted: Sequence[str]) -> Postings:
        counts = {position: Counter(terms(mark.text)) for position, mark in self.marks.items()}
        by_term = {
            term: tuple(
                Posting(position, counts[position][term], self.lengths[position], mark.session)
                for position, mark in sorted(self.marks.items())
                if term in counts[position]
            )
            for term in wanted
        }
        return with_statistics(by_term, sorted(Counter(self.lengths.values()).items()))

    def texts(self, positions: Sequence[int], *, neighbours: int = NEIGHBOURS) -> list[Text]:
        near = set(positions)
        for session in self.sessions.values():
            for place, position in enumerate(session):
                if position in positions:
                    near.update(session[max(0, place - neighbours) : place + neighbours + 1])
        return [self.text(position) for position in sorted(near)]

    def text(self, position: int) -> Text:
        session = self.sessions.get(self.marks[position].session or "", [position])
        return Text(
            mark=self.marks[position],
            position=position,
            length=self.lengths[position],
            ordinal=session.index(position),
            session_length=sum(self.lengths[other] for other in session),
        )

    def search(self, query: str, *, limit: int = 200, now: datetime = NOW, learned: str = "") -> list[Hit]:
        asked = parse(query, now=now, speakers=self.speakers)
        asked = msgspec.structs.replace(asked, learned=parse(learned, now=now).terms)
        postings = self.postings(asked.all_terms)
        return rank(asked, self.texts(shortlist(asked, postings, limit=limit)), postings)


def mark(
    text: str,
    position: int,
    *,
    session: str | None = "s",
    agent: str | None = None,
    origin: Origin = "agent",
    at: datetime | None = None,
) -> Mark:
    return Mark(
        id=EventId(f"m{position}"),
        text=text,
        position=position,
        session=session,
        agent=agent,
        origin=origin,
        at=at or NOW - timedelta(days=30) + timedelta(minutes=position),
    )


def apart(*texts: str) -> list[Mark]:
    """Marks that are nobody's neighbour, not even the opening of their session."""
    return [mark(text, position, session=None) for position, text in enumerate(texts, start=1)]


def found(hits: Sequence[Hit]) -> list[int]:
    return [hit.mark.position or 0 for hit in hits]


# -- Words ----------------------------------------------------------------------------------------------------


def test_a_mark_with_more_of_the_words_comes_first() -> None:
    shelf = Shelf(apart("The cookie is set late", "The session cookie is lost", "Nothing of the kind"))

    assert found(shelf.search("session cookie")) == [2, 1]


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    shelf = Shelf(apart("test fails", "test passes", "test hangs", "deadlock hangs", "test starts"))

    assert found(shelf.search("test deadlock"))[0] == 4
    assert rarity(1, 100) > rarity(50, 100) > rarity(100, 100) > 0


def test_words_about_the_kind_of_answer_count_little() -> None:
    shelf = Shelf(apart("The kind name of a type", "A retriever called Toby", "Something else"))

    assert found(shelf.search("What kind of name has the retriever?"))[0] == 2


def test_other_forms_of_a_word_are_found() -> None:
    shelf = Shelf(apart("What breaks the build", "All is well"))

    assert found(shelf.search("who broke the builds?")) == [1]


def test_identifiers_are_found_by_their_words() -> None:
    shelf = Shelf(apart("Renamed SessionCookie in auth/session_store.py", "Bumped the version"))

    assert found(shelf.search("session store cookie")) == [1]


def test_a_pasted_prompt_is_limited_to_some_terms() -> None:
    asked = parse("deadlock " * 3 + " ".join(f"word{number}x{number}" for number in range(1_000)), now=NOW)

    assert len(asked.terms) == TERMS_MAX
    assert "deadlock" in asked.all_terms


# -- Neighbours, sessions, length -----------------------------------------------------------------------------


def test_an_answer_is_found_by_the_words_of_its_question() -> None:
    shelf = Shelf(
        [
            mark("Hello", 1),
            mark("Which database did you choose in the end?", 2),
            mark("SQLite, in the end.", 3),
            mark("Fine with me", 9, session="other"),
        ]
    )

    hits = shelf.search("database choice: which database")

    assert 3 in found(hits)
    assert 9 not in found(hits)
    assert {hit.mark.position: hit.parts["neighbours"] > 0 for hit in hits}[3]


def test_neighbours_do_not_reach_into_another_session() -> None:
    shelf = Shelf([mark("The deadlock is back", 1, session="one"), mark("Indeed", 2, session="two")])

    assert found(shelf.search("deadlock")) == [1]


def test_marks_without_a_session_have_no_neighbours() -> None:
    shelf = Shelf(apart("The deadlock is back", "Indeed"))

    assert found(shelf.search("deadlock")) == [1]


def test_a_long_mark_lends_little_to_its_neighbours() -> None:
    def lent(filler: int) -> float:
        shelf = Shelf([mark("deadlock " + "and so on " * filler, 1), mark("Indeed", 2)])
        return next(hit.parts["neighbours"] for hit in shelf.search("deadlock") if hit.mark.position == 2)

    assert lent(200) < lent(2) / 10


def test_a_session_about_the_question_raises_its_marks() -> None:
    about = [mark(f"The parser failed again, number {number}", number, session="parser") for number in range(1, 8)]
    other = [mark(f"Lunch was good, number {number}", number, session="lunch") for number in range(11, 18)]
    alike = [mark("It failed", 30, session="parser"), mark("It failed", 31, session="lunch")]

    order = found(Shelf([*about, *other, *alike]).search("parser failed"))

    assert order.index(30) < order.index(31)


def test_length_counts_only_where_lengths_differ() -> None:
    even = Postings(by_term={}, marks=10, mean_length=20.0, length_spread=0.0)
    uneven = msgspec.structs.replace(even, length_spread=1.5)

    assert length_factor(500, even) == 1.0
    assert length_factor(500, uneven) < length_factor(20, uneven) == 1.0 < length_factor(2, uneven)


# -- Who, when, where -----------------------------------------------------------------------------------------


def test_a_speaker_named_in_the_question_is_preferred_and_the_name_is_not_a_term() -> None:
    shelf = Shelf(
        [
            mark("Thanks, Tim! Basketball is fun", 1, session="a", agent="John"),
            mark("Basketball is fun", 2, session="b", agent="Tim"),
        ]
    )

    assert found(shelf.search("What does Tim say about basketball?")) == [2, 1]
    assert "tim" not in parse("Tim and basketball", now=NOW, speakers=["Tim"]).all_terms


def test_a_name_alone_is_a_search_term() -> None:
    assert parse("Tim", now=NOW, speakers=["Tim"]).all_terms == ["tim"]


def test_the_name_of_a_program_stays_a_search_term() -> None:
    asked = parse("why does the test hang", now=NOW, speakers=["test", "claude-code"])

    assert asked.all_terms == ["test", "hang"]
    assert asked.speakers == {"test"}


def test_a_name_of_several_words_needs_all_of_them() -> None:
    assert parse("what did claude-code do", now=NOW, speakers=["claude-code"]).speakers == {"claude-code"}
    assert parse("which code", now=NOW, speakers=["claude-code"]).speakers == frozenset()


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Which pasta recipe do I like?", 1),
        ("Which pasta recipe did you say is best?", 2),
        ("Which pasta recipe came up in our last conversation, which I forgot?", 2),
    ],
)
def test_a_question_about_oneself_prefers_ones_own_marks(question: str, first: int) -> None:
    same = "This pasta recipe with tomatoes is the best one"
    longer = mark(same + ", it seems to everyone here", 1, session=None, origin="user")
    shelf = Shelf([longer, mark(same, 2, session=None, origin="agent"), *apart("", "", "Some noise")[2:]])

    assert found(shelf.search(question))[0] == first


def test_the_opening_of_a_session_is_ranked_higher() -> None:
    shelf = Shelf([mark("Fix the parser", position, session="s") for position in (1, 2, 3, 4, 5, 6, 7)])

    opening = next(hit for hit in shelf.search("parser") if hit.mark.position == 1)

    assert "opening" in opening.parts
    assert all("opening" not in hit.parts for hit in shelf.search("parser") if hit.mark.position != 1)


def test_a_question_ranks_below_a_statement() -> None:
    shelf = Shelf(apart("Is the parser slow?", "Parser is so slow"))

    assert found(shelf.search("slow parser")) == [2, 1]


def test_a_date_in_the_question_raises_marks_of_that_period() -> None:
    march, may = datetime(2025, 3, 12, tzinfo=UTC), datetime(2025, 5, 30, tzinfo=UTC)
    shelf = Shelf(
        [
            mark("The release failed", 1, session=None, at=may),
            mark("The release failed", 2, session=None, at=march),
        ]
    )

    assert found(shelf.search("Why did the release fail in March?")) == [2, 1]
    assert found(shelf.search("Why did the release fail?")) == [1, 2]


# -- Nothing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "  ", "\n", "the", "what did you do?", "quaternion"])
def test_an_empty_question_or_no_match_gives_no_hit(query: str) -> None:
    assert Shelf(apart("The parser is slow")).search(query) == []
    assert Shelf([]).search(query) == []


def test_of_equal_marks_the_latest_comes_first() -> None:
    shelf = Shelf(apart("same words", "same words", "same words"))

    assert found(shelf.search("words")) == [3, 2, 1]


def test_a_shortlist_is_limited_and_keeps_the_best() -> None:
    shelf = Shelf(apart(*("parser" for _ in range(50)), "parser deadlock"))
    asked = parse("parser deadlock", now=NOW)

    assert shortlist(asked, shelf.postings(asked.all_terms), limit=3) == [51, 50, 49]
    assert shortlist(asked, shelf.postings(asked.all_terms), limit=0) == []


# -- Laws -----------------------------------------------------------------------------------------------------

WORDS = [
    "parser",
    "deadlock",
    "cookie",
    "session",
    "slow",
    "Tim",
    "the",
    "and",
    "March",
    "2024",
    "lunch",
    "broke?",
    "我",
]
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
QUERIES = SENTENCES | st.text(max_size=40)


@st.composite
def histories(draw: st.DrawFn) -> list[Mark]:
    """Up to 25 marks of a few sessions, agents and months."""
    return [
        mark(
            draw(SENTENCES),
            position,
            session=draw(st.sampled_from(["a", "b", None])),
            agent=draw(st.sampled_from(["Tim", "claude-code", None])),
            origin=draw(st.sampled_from(["user", "agent"])),
            at=NOW - timedelta(days=draw(st.integers(0, 800))),
        )
        for position in range(1, draw(st.integers(1, 25)) + 1)
    ]


def test_a_mark_with_all_words_comes_before_one_that_needs_its_neighbours() -> None:
    """A question with two words wants them together."""
    shelf = Shelf(
        [
            mark("something else altogether", 1, session="around"),
            mark("the parser again", 2, session="around"),
            mark("a deadlock", 3, session="around"),
            mark("the parser once more", 4, session="around"),
            *(mark("something else altogether", place, session="other") for place in (5, 6, 7)),
            mark("a deadlock in the parser of the old reader", 8, session="other"),
            *(mark("lunch", place, session="other") for place in (9, 10, 11)),
        ]
    )

    [best, *_] = shelf.search("parser deadlock")

    assert best.position == 8
    assert [term.weight for term in parse("current name", now=NOW).terms] == [1.0, 1.0]
    assert {term.weight for term in parse("what is the current name", now=NOW).terms} == {0.3}
    assert "complete" in best.parts
    assert all("complete" not in hit.parts for hit in shelf.search("parser"))


def test_neighbours_do_not_decide_between_marks_with_all_words() -> None:
    """Both contain all words by themselves; the shorter one ranks higher."""
    shelf = Shelf(
        [
            mark("the parser again and a deadlock", 1, session="around"),
            mark("a deadlock in the parser of the old reader and of the new writer", 2, session="around"),
            mark("the deadlock of the parser", 3, session="around"),
            mark("lunch", 4, session="alone"),
            mark("parser deadlock", 5, session="alone"),
            *(mark("something else altogether", place, session="other") for place in range(6, 40)),
        ]
    )

    hits = shelf.search("parser deadlock")

    assert found(hits)[0] == 5
    assert [hit.position for hit in hits if "complete" in hit.parts][-1] == 2
    assert all(hit.parts["neighbours"] == 0 for hit in hits if "complete" in hit.parts)


@given(histories(), QUERIES)
def test_the_same_question_gets_the_same_answer(history: list[Mark], query: str) -> None:
    assert Shelf(history).search(query) == Shelf(history).search(query)


@given(histories(), QUERIES, st.data())
def test_the_order_of_the_texts_does_not_matter(history: list[Mark], query: str, data: st.DataObject) -> None:
    shelf = Shelf(history)
    asked = parse(query, now=NOW, speakers=shelf.speakers)
    postings = shelf.postings(asked.all_terms)
    texts = shelf.texts(list(shelf.marks))

    shuffled = data.draw(st.permutations(texts))

    assert rank(asked, shuffled, postings) == rank(asked, texts, postings)


@given(histories(), QUERIES, QUERIES)
def test_scores_are_finite_positive_and_explained_by_their_parts(history: list[Mark], query: str, learned: str) -> None:
    for hit in Shelf(history).search(query, learned=learned):
        summands = {"own", "learned", "neighbours", "session"}
        added = sum(value for name, value in hit.parts.items() if name in summands)
        factors = math.prod(value for name, value in hit.parts.items() if name not in summands)
        assert math.isfinite(hit.score)
        assert hit.score > 0
        assert hit.score == pytest.approx(added * factors)


@given(histories(), QUERIES, st.integers(0, 8))
def test_the_best_few_are_a_prefix_of_the_full_ranking(history: list[Mark], query: str, limit: int) -> None:
    shelf = Shelf(history)
    asked = parse(query, now=NOW, speakers=shelf.speakers)
    postings, texts = shelf.postings(asked.all_terms), shelf.texts(list(shelf.marks))

    assert rank(asked, texts, postings, limit=limit) == rank(asked, texts, postings)[:limit]


@given(histories(), QUERIES)
def test_hits_are_ordered_and_unique(history: list[Mark], query: str) -> None:
    hits = Shelf(history).search(query)

    assert hits == sorted(hits, key=lambda hit: (-hit.score, -hit.at.timestamp(), -hit.position))
    assert len(set(found(hits))) == len(hits)


@given(histories(), QUERIES)
@example([mark("Tim", 1, agent="claude-code")], "parser Tim")  # no mark is Tim's, so his name is a word
def test_a_mark_without_a_word_of_the_question_or_a_neighbour_with_one_is_never_returned(
    history: list[Mark], query: str
) -> None:
    shelf = Shelf(history)
    wanted = set(parse(query, now=NOW, speakers=shelf.speakers).all_terms)
    direct = [position for position, each in shelf.marks.items() if wanted & set(terms(each.text))]

    assert set(found(shelf.search(query))) <= {text.mark.position for text in shelf.texts(direct)}


@given(histories(), SENTENCES)
def test_every_mark_with_a_word_of_the_question_is_returned(history: list[Mark], query: str) -> None:
    shelf = Shelf(history)
    wanted = set(parse(query, now=NOW, speakers=shelf.speakers).all_terms)

    direct = {position for position, each in shelf.marks.items() if wanted & set(terms(each.text))}

    assert direct <= set(found(shelf.search(query)))


@given(histories(), SENTENCES)
def test_an_unrelated_mark_in_another_session_never_removes_the_best_hit(history: list[Mark], query: str) -> None:
    unrelated = mark("umbrella", len(history) + 1, session="elsewhere")

    before, after = Shelf(history).search(query), Shelf([*history, unrelated]).search(query)

    assert set(found(after)) == set(found(before))


@given(QUERIES | st.text("0123456789 -agodyewklst", max_size=40), st.integers(0, 100 * 365))
def test_any_text_can_be_searched_at_any_time(query: str, days: int) -> None:
    parse(query, now=datetime.fromtimestamp(0, UTC) + timedelta(days=days), speakers=["Tim", "", "  ", "?"])
