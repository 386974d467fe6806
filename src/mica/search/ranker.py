"""Which marks answer a question, best first: one pure ranker for every store.

A store returns postings and texts; whatever decides the order is here, so that all engines answer alike.
The formula in words, the values tried and where it loses are in docs/ranking.md.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from operator import add

import msgspec

from mica.model.event import EventId, Mark, Posting, Postings, Text
from mica.search.dates import Period, periods
from mica.store.protocol import rarity
from mica.words import terms, terms_of, words

# Weights without another reason were measured on the development split; docs/ranking.md has the values tried.
QUERY_CHARACTERS_MAX = 10_000  # longer than any question; a pasted log must not cost the deadline
TERMS_MAX = 64  # a pasted prompt has hundreds of words; beyond this they cost time and add noise
GENERIC_WEIGHT = 0.3  # words that say what kind of answer is wanted, not what it is about
SATURATION, LENGTH_SHARE = 0.9, 0.4  # BM25's k1 and b for marks; the length factor does the rest
SESSION_SATURATION, SESSION_LENGTH_SHARE = 1.2, 0.75  # the same for whole sessions, as in every textbook
SESSION_WEIGHT = 0.6
NEIGHBOURS = 2  # a mark is lent something by so many before it and after it; the store fetches as many
NEIGHBOUR_SHARE, QUESTION_SHARE = 0.6, 1.0  # of their own scores; all of it by a question that it follows
GATE_TOKENS = 80  # a neighbour of this length lends half: a long answer would lend its words to everything near it
LENDING_CUT = 0.8  # what of it is lost where lengths differ most: there, marks are long enough to speak for themselves
TOKENS_PER_WORD = 1.3  # English prose
LENGTH_OFFSET_TOKENS = 100  # among marks shorter than this, length says little
SPEAKER_FACTOR = 1.3
MEANING_WEIGHT = 0.3  # of the best score by words
ALIKE_MIN = 0.25  # how much nearer than most a mark must be to be found without a word of the question
MEANING_CUT = 0.5  # what of it is lost where lengths differ most: a vector of a long mark says less of it
USER_FACTOR = 1.5
OPENING_FACTOR = 1.2  # people say first what a session is about
QUESTION_FACTOR = 0.85  # a mark that asks seldom answers
COMPLETE_FACTOR = 1.5  # a mark that says all words of a bare list, beside one whose neighbours say the rest of them
DATE_FACTOR = 2.0
PERIOD_FACTOR = 1.0001  # besides, for what is of that time itself: between equals, as people tell of events later, too
MARKED_FACTOR = 20.0  # the same where the time says when it was marked: hardly anything else comes before it
REMEMBERED = timedelta(days=8)  # so long ago is a day of which people know that it was that day
ANNOUNCED = timedelta(days=2)  # so long before an event people speak of it
REPORTED = timedelta(days=20)  # and so long after

GENERIC = frozenset(
    terms(
        "kind type sort name many much first last time total number amount current currently recent recently long"
        " thing some any other give get got use happen mention remind remember previous previously conversation chat"
        " discuss talk tell told say said ask describe share follow wonder suggest suggestion recommend recommendation"
    )
)


# -- What is asked --------------------------------------------------------------------------------------------


class QueryTerm(msgspec.Struct, frozen=True):
    """A term to look for, and how much it says about what is wanted."""

    term: str
    weight: float


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question, read once."""

    text: str
    terms: tuple[QueryTerm, ...] = ()
    learned: tuple[QueryTerm, ...] = ()  # what nobody asked for, and a first answer made likely
    speakers: frozenset[str] = frozenset()  # those of the known ones whom it names
    periods: tuple[Period, ...] = ()
    is_bare: bool = False  # nothing but words to look for, no sentence: whoever writes so wants them together
    wants_user: bool = False  # asked in the first person, and not for what the agent said
    speaker_factor: float = SPEAKER_FACTOR
    neighbour_share: float = NEIGHBOUR_SHARE
    period_factor: float = PERIOD_FACTOR

    @property
    def wanted(self) -> list[str]:
        """The terms to ask a store for."""
        return [term.term for term in (*self.terms, *self.learned)]


def parse(query: str, *, now: datetime, zone: tzinfo | None = None, speakers: Iterable[str] = ()) -> Query:
    """What a question asks for; of a long one only its beginning counts.

    `speakers` are the agents of marks: a name among its words asks for their marks. Times are read by the asker's
    clock and zone.
    """
    query = query[:QUERY_CHARACTERS_MAX]
    said = words(query)
    asked = " ".join(said)
    named = [name for name in speakers if (spoken := " ".join(words(name))) and f" {spoken} " in f" {asked} "]
    times = periods(query, now=now, zone=zone)
    is_bare = is_list(without_times(query, times)) if times else is_list(query)
    return Query(
        text=query,
        terms=weighted_terms(query, without=[name for name in named if name[0].isupper()], is_bare=is_bare),
        speakers=frozenset(named),
        periods=times,
        is_bare=is_bare,
        period_factor=MARKED_FACTOR if is_bare or all(is_remembered(each, now) for each in times) else PERIOD_FACTOR,
        wants_user=bool(_FIRST_PERSON.search(query)) and not _ABOUT_THE_AGENT.search(query),
    )


def is_remembered(period: Period, now: datetime) -> bool:
    """Whether it is a day of late: who says "yesterday" or "last Tuesday" asks for what was marked then."""
    is_day = period.end_at - period.start_at <= timedelta(hours=25)  # of which one has 25
    return is_day and now - REMEMBERED <= period.start_at <= now and bool(_OF_LATE.search(period.words))


_OF_LATE = re.compile(r"\b(?:today|yesterday|last|past|ago)\b", re.IGNORECASE)


def is_list(query: str) -> bool:
    """Whether it is nothing but words to look for."""
    said = words(query)
    return len(terms_of(said)) == len(said)


def without_times(query: str, times: Iterable[Period]) -> str:
    """A question without the words by which it names times."""
    for period in times:
        query = re.sub(re.escape(period.words), " ", query, count=1, flags=re.IGNORECASE)
    return query


def weighted_terms(query: str, *, without: Iterable[str] = (), is_bare: bool = False) -> tuple[QueryTerm, ...]:
    """The distinct terms of a question and their weights, at most TERMS_MAX, the most frequent first.

    The names of people are left out: who says "Thanks, Tim" is not Tim. A name alone is a term like any other. In a
    bare list of words none says what kind of answer is wanted.
    """
    generic = frozenset[str]() if is_bare else GENERIC
    counts = Counter(terms(query))
    names = {term for name in without for term in terms(name)}
    if not counts.keys() <= names:
        counts = Counter({term: count for term, count in counts.items() if term not in names})
    return tuple(
        QueryTerm(term, GENERIC_WEIGHT if term in generic else 1.0) for term, _ in counts.most_common(TERMS_MAX)
    )


_FIRST_PERSON = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_ABOUT_THE_AGENT = re.compile(
    r"\byou (?:\w+ )?(?:said|told|mentioned|suggested|recommended|gave|provided|explained|listed|wrote|were)\b"
    r"|\b(?:previous|last|earlier) (?:chat|conversation|discussion)\b",
    re.IGNORECASE,
)


# -- Candidates -----------------------------------------------------------------------------------------------


SHORTLIST = 200  # measured: 400 find nothing that 200 do not


def shortlist(query: Query, postings: Postings, *, limit: int = SHORTLIST) -> list[int]:
    """The positions worth reading, best first, by their own words and their length; of equal ones the latest.

    Linear in the postings.
    """
    factors: dict[int, float] = {}
    scores: dict[int, float] = defaultdict(float)
    for posting, score in scored((*query.terms, *query.learned), postings):
        if (factor := factors.get(posting.length)) is None:
            factor = factors[posting.length] = length_factor(posting.length, postings)
        scores[posting.position] += score * factor
    least = min(heapq.nlargest(limit, scores.values()), default=0.0)
    ordered = sorted((-score, -position) for position, score in scores.items() if score >= least)
    return [-position for _, position in ordered[:limit]]


# -- The order ------------------------------------------------------------------------------------------------


class Hit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A mark that answers, and why.

    Of its parts `own`, `learned`, `neighbours`, `session` and `meaning` are added, the others multiply.
    """

    mark: Mark
    score: float
    parts: dict[str, float]
    corrected_by: EventId | None = None  # another of the hits, which says how it really is

    @property
    def id(self) -> EventId:
        return self.mark.id

    @property
    def text(self) -> str:
        return self.mark.text

    @property
    def at(self) -> datetime:
        return self.mark.at

    @property
    def position(self) -> int:
        assert self.mark.position is not None, "what is found is stored"
        return self.mark.position


def rank(
    query: Query,
    texts: Sequence[Text],
    postings: Postings,
    likeness: Mapping[int, float] | None = None,
    *,
    limit: int | None = None,
) -> list[Hit]:
    """The marks that contain a term of the question or stand beside one that does, best first; of equals the latest.

    The texts are in order of position. `likeness` says how much more a text is about the same as the question than
    most are, by position; where it is known, a mark may also be found by its meaning alone.
    """
    scoring = Scoring(query, texts, postings, likeness)
    return [
        Hit(mark=texts[place].mark, score=score, parts=scoring.parts(place)) for place, score in scoring.best(limit)
    ]


class Scoring:
    """What texts are worth for a question: computed for all of them, explained for those that are shown.

    Everything is kept by a text's place among the texts; scores of hundreds of texts are most of what a search costs.
    """

    def __init__(
        self, query: Query, texts: Sequence[Text], postings: Postings, likeness: Mapping[int, float] | None
    ) -> None:
        self._query = query
        self._texts = texts
        self._near = [likeness.get(text.position, 0.0) for text in texts] if likeness else []
        self._own, self._learned, sessions = spoken(query, texts, postings)
        self._sessions = [SESSION_WEIGHT * sessions.get(text.mark.session, 0.0) for text in texts]
        self._lent = borrowed(query, texts, list(map(add, self._own, self._learned)), postings)
        whole = complete(query, postings.by_term)
        said_all = [place for place, text in enumerate(texts) if text.position in whole] if whole else []
        for place in said_all:
            self._sessions[place], self._lent[place] = SESSION_WEIGHT * self._own[place], 0.0  # it is the whole of it
        best = max(map(add, map(add, self._own, self._learned), self._lent), default=0.0) or 1.0
        weight = best * MEANING_WEIGHT * (1 - MEANING_CUT * unevenness(postings) ** 2)
        self._meanings = [weight * score for score in meaning_scores(query, texts, self._near, postings)]
        lengths = {length: length_factor(length, postings) for length in {text.length for text in texts}}
        self._lengths = [lengths[text.length] for text in texts]
        self._besides: defaultdict[int, dict[str, float]] = defaultdict(dict)  # factors by name, where there are some
        for name, factor, places in (*raised(query, texts), ("complete", COMPLETE_FACTOR, said_all)):
            for place in places:
                self._besides[place][name] = factor

    def best(self, limit: int | None) -> list[tuple[int, float]]:
        """The places of the texts that answer, at most so many, with their scores; of equal ones the latest first."""
        factors = self._lengths[:]
        for place, besides in self._besides.items():
            for factor in besides.values():
                factors[place] *= factor
        meanings = self._meanings or [0.0] * len(self._texts)
        near = self._near or meanings
        columns = zip(self._own, self._learned, self._lent, self._sessions, meanings, near, factors, strict=True)
        scores = {
            place: (own + lent + session + learned + meaning) * factor
            for place, (own, learned, lent, session, meaning, alike, factor) in enumerate(columns)
            if own or learned or lent or alike >= ALIKE_MIN
        }
        times = [text.mark.at for text in self._texts]
        latest = sorted(scores, key=times.__getitem__)[::-1]  # of one time, first what was stored last
        return [(place, scores[place]) for place in sorted(latest, key=scores.__getitem__, reverse=True)[:limit]]

    def parts(self, place: int) -> dict[str, float]:
        """What is added up, and what it is multiplied by, by name."""
        parts = {"own": self._own[place], "neighbours": self._lent[place], "session": self._sessions[place]}
        if self._query.learned:
            parts["learned"] = self._learned[place]
        if self._meanings:
            parts["meaning"] = self._meanings[place]
        parts["length"] = self._lengths[place]
        return parts | self._besides[place] if place in self._besides else parts


# -- The parts of a score -------------------------------------------------------------------------------------


def scored(wanted: Iterable[QueryTerm], postings: Postings) -> Iterator[tuple[Posting, float]]:
    """Every posting with what it adds to its mark's own score: BM25."""
    constant = SATURATION * (1 - LENGTH_SHARE)
    slope = SATURATION * LENGTH_SHARE / (postings.mean_length or 1.0)
    for term in wanted:
        found = postings.by_term.get(term.term, ())
        weight = term.weight * rarity(postings.held(term.term), postings.marks) * (SATURATION + 1)
        for posting in found:
            count = posting.count
            yield posting, weight * count / (count + constant + slope * posting.length)


def complete(query: Query, by_term: Mapping[str, Iterable[Posting]]) -> frozenset[int]:
    """Where all the words are said that somebody looks for, and nothing but them."""
    if not query.is_bare:
        return frozenset()
    places = [
        {posting.position for posting in by_term.get(term.term, ())}
        for term in query.terms
        if term.weight > GENERIC_WEIGHT
    ]
    return frozenset(set.intersection(*places)) if len(places) > 1 else frozenset()


def spoken(
    query: Query, texts: Sequence[Text], postings: Postings
) -> tuple[list[float], list[float], dict[str | None, float]]:
    """What the texts' own words are worth, by the terms asked for and by those learned, and their sessions' words.

    Both are BM25; a session is taken as one document.
    """
    place_of = {text.position: place for place, text in enumerate(texts)}
    own, learned = [0.0] * len(texts), [0.0] * len(texts)
    lengths: dict[str | None, int] = {
        text.mark.session: text.session_length for text in texts if text.mark.session is not None
    }
    mean_length = sum(lengths.values()) / len(lengths) if lengths else 1.0
    total = postings.marks * postings.mean_length / (mean_length or 1.0)  # nobody counts sessions; words are counted
    session_constant = SESSION_SATURATION * (1 - SESSION_LENGTH_SHARE)
    session_slope = SESSION_SATURATION * SESSION_LENGTH_SHARE / (mean_length or 1.0)
    sessions: dict[str | None, float] = defaultdict(float)
    for into, wanted in ((own, query.terms), (learned, query.learned)):
        for term in wanted:
            counts: dict[str | None, int] = defaultdict(int)
            found = 0
            for posting, score in scored([term], postings):
                if (place := place_of.get(posting.position)) is not None:
                    into[place] += score
                counts[posting.session] += posting.count
                found += 1
            containing = round(len(counts) * postings.held(term.term) / found) if found else 0
            weight = term.weight * rarity(containing, max(total, containing)) * (SESSION_SATURATION + 1)
            for session, count in counts.items():
                if (length := lengths.get(session)) is not None:
                    sessions[session] += weight * count / (count + session_constant + session_slope * length)
    return own, learned, sessions


def raised(query: Query, texts: Sequence[Text]) -> Iterator[tuple[str, float, Iterable[int]]]:
    """What raises or lowers marks besides their words: its name, the factor, and the places of these texts."""
    marks = [text.mark for text in texts]
    if query.speakers and query.speaker_factor != 1:
        yield "speaker", query.speaker_factor, [at for at, mark in enumerate(marks) if mark.agent in query.speakers]
    if query.wants_user:
        yield "user", USER_FACTOR, [at for at, mark in enumerate(marks) if mark.origin == "user"]
    first = [at for at, text in enumerate(texts) if not text.ordinal and text.mark.session is not None]
    yield "opening", OPENING_FACTOR, first
    asking = [at for at, mark in enumerate(marks) if "?" in mark.text and mark.text.rstrip().endswith("?")]
    yield "question", QUESTION_FACTOR, asking
    if query.periods:
        of_time = [time_factors(query, mark.at, mark.at) for mark in marks]
        yield "date", DATE_FACTOR, [at for at, factors in enumerate(of_time) if "date" in factors]
        yield "period", query.period_factor, [at for at, factors in enumerate(of_time) if "period" in factors]


def borrowed(query: Query, texts: Sequence[Text], own: Sequence[float], postings: Postings) -> list[float]:
    """What every text is lent by the marks around it in its session.

    A mark lends less the longer it is, because a short one depends on what stands beside it, and all of it to the next
    when it asks.
    """
    cut = 1 - LENDING_CUT * unevenness(postings) ** 2
    share, gate = query.neighbour_share, TOKENS_PER_WORD / GATE_TOKENS
    lending: dict[str | None, tuple[dict[int, float], dict[int, float]]] = {}  # of a session: to any, to the next
    for text, score in zip(texts, own, strict=True):
        if score and (session := text.mark.session) is not None:
            has = score * cut / (1 + (gate * text.length) ** 2)
            if (found := lending.get(session)) is None:
                found = lending[session] = {}, {}
            found[0][text.ordinal] = has * share
            found[1][text.ordinal] = has * (QUESTION_SHARE if "?" in text.mark.text else share)
    steps = *range(-NEIGHBOURS, -1), *range(1, NEIGHBOURS + 1)
    lent: list[float] = []
    for text in texts:
        loan = 0.0
        if (found := lending.get(text.mark.session)) is not None:
            lends, to_next = found
            ordinal = text.ordinal
            loan = to_next.get(ordinal - 1, 0.0)
            for step in steps:
                loan += lends.get(ordinal + step, 0.0)
        lent.append(loan)
    return lent


def meaning_scores(query: Query, texts: Sequence[Text], near: Sequence[float], postings: Postings) -> list[float]:
    """How near every text and its neighbours are to the question in meaning, 1 for the nearest."""
    own = [max(0.0, each) for each in near]
    scores = list(map(add, own, borrowed(query, texts, own, postings))) if near else []
    nearest = max(scores, default=0.0) or 1.0
    return [score / nearest for score in scores]


def time_factors(query: Query, start_at: datetime, end_at: datetime) -> dict[str, float]:
    """What raises something of this time, by name: a question may name the time that it is about."""
    near = any(
        start_at < period.end_at + REPORTED and end_at >= period.start_at - ANNOUNCED for period in query.periods
    )
    factors = {"date": DATE_FACTOR} if near else {}
    if any(period.start_at <= start_at and end_at < period.end_at for period in query.periods):
        factors["period"] = query.period_factor
    return factors


def unevenness(postings: Postings) -> float:
    """How much the lengths of a space's marks differ, 0 to 1: near 0.4 where people chat, 1 with assistants."""
    return min(1.0, postings.length_spread)


def length_factor(length: int, postings: Postings) -> float:
    """Less for long marks where lengths differ much; 1 for a mark of mean length.

    In a chat of short turns length means nothing, beside answers of many pages it means everything.
    """
    tokens, mean_tokens = TOKENS_PER_WORD * length, TOKENS_PER_WORD * postings.mean_length
    return float(((mean_tokens + LENGTH_OFFSET_TOKENS) / (tokens + LENGTH_OFFSET_TOKENS)) ** unevenness(postings))
