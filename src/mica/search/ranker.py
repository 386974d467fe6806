"""The ranker: orders marks by how well they match a query, in the same way for every store.

A store returns postings (which marks contain a term, and how often) and texts. Everything that decides the order is in
this module. docs/ranking.md has the formula in words, the values that were tried, and the cases in which it fails.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from operator import add

import msgspec

from mica.model.hit import Hit
from mica.model.mark import Posting, Postings, Text
from mica.search.dates import Period, find_periods
from mica.store.query import rarity
from mica.words import terms, terms_of, words

# Weights without another reason were measured on the development split; docs/ranking.md has the values tried.
QUERY_CHARACTERS_MAX = 10_000  # longer than any question; a pasted log must not use up the deadline
TERMS_MAX = 64  # a pasted prompt has hundreds of words; beyond this they cost time and add noise
GENERIC_WEIGHT = 0.3  # of words such as "kind" or "many", which do not name the subject of a query
SATURATION, LENGTH_SHARE = 0.9, 0.4  # BM25's k1 and b for marks; the length factor does the rest
SESSION_SATURATION, SESSION_LENGTH_SHARE = 1.2, 0.75  # the same for whole sessions: the textbook values
SESSION_WEIGHT = 0.6
NEIGHBOURS = 2  # marks before a mark, and as many after it, that lend it score; the store fetches them, too
NEIGHBOUR_SHARE, QUESTION_SHARE = (
    0.6,
    1.0,
)  # of its score that a mark lends to each neighbour; a question to the next mark
GATE_TOKENS = 80  # a mark of this length lends half as much; a long mark would lend its words to everything near it
LENDING_CUT = 0.8  # by this share, lending is reduced in a space whose marks differ most in length
TOKENS_PER_WORD = 1.3  # English prose
LENGTH_OFFSET_TOKENS = 100  # below this, length matters little
SPEAKER_FACTOR = 1.3
MEANING_WEIGHT = 0.3  # the highest score by meaning, as a share of the best score by words
ALIKE_MIN = 0.25  # a mark with at least this likeness is found even if it has no word of the query
MEANING_CUT = 0.5  # by this share, MEANING_WEIGHT is reduced where LENDING_CUT applies: vectors of long marks are vague
USER_FACTOR = 1.5
OPENING_FACTOR = 1.2  # the first mark of a session usually states its subject
QUESTION_FACTOR = 0.85  # a question is seldom the answer
COMPLETE_FACTOR = 1.5  # for a mark with every word of a bare list
DATE_FACTOR = 2.0
PERIOD_FACTOR = 1.0001  # for a mark within the named period: only breaks ties, because people report events later
MARKED_FACTOR = 20.0  # replaces PERIOD_FACTOR if the period is when the mark was made: outweighs almost everything
REMEMBERED = timedelta(days=8)  # people know the day of an event for about a week
ANNOUNCED = timedelta(days=2)  # how long before an event people mention it
REPORTED = timedelta(days=20)  # and how long after it

GENERIC = frozenset(
    terms(
        "kind type sort name many much first last time total number amount current currently recent recently long"
        " thing some any other give get got use happen mention remind remember previous previously conversation chat"
        " discuss talk tell told say said ask describe share follow wonder suggest suggestion recommend recommendation"
    )
)


# -- The query ------------------------------------------------------------------------------------------------


class QueryTerm(msgspec.Struct, frozen=True):
    """A term of a query. Its weight is 1 for an ordinary word."""

    term: str
    weight: float


class ParsedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query, split into terms, periods of time and names of speakers."""

    text: str
    terms: tuple[QueryTerm, ...] = ()
    learned: tuple[QueryTerm, ...] = ()  # added by the second query
    speakers: frozenset[str] = frozenset()  # the known speakers that the query names
    periods: tuple[Period, ...] = ()
    is_bare: bool = False  # a list of search words, not a sentence: marks with all of them are preferred
    wants_user: bool = False  # it is in the first person and not about the agent's words: the user's marks score higher
    speaker_factor: float = SPEAKER_FACTOR
    neighbour_share: float = NEIGHBOUR_SHARE
    period_factor: float = PERIOD_FACTOR

    @property
    def all_terms(self) -> list[str]:
        """The terms to look up in a store: those of the query, and the related words that were added to it."""
        return [term.term for term in (*self.terms, *self.learned)]


def parse(query: str, *, now: datetime, zone: tzinfo | None = None, speakers: Iterable[str] = ()) -> ParsedQuery:
    """Parse a query. Only its first QUERY_CHARACTERS_MAX characters are used.

    `speakers` are the agents that have made marks. If the query mentions one, the marks of this agent score higher.
    Times such as "yesterday" are relative to `now` in the user's time zone.
    """
    query = query[:QUERY_CHARACTERS_MAX]
    query_text = " ".join(words(query))
    named = [name for name in speakers if (phrase := " ".join(words(name))) and f" {phrase} " in f" {query_text} "]
    times = find_periods(query, now=now, zone=zone)
    is_bare = is_bare_list(remove_times(query, times)) if times else is_bare_list(query)
    return ParsedQuery(
        text=query,
        terms=weigh_terms(query, without=[name for name in named if name[0].isupper()], is_bare=is_bare),
        speakers=frozenset(named),
        periods=times,
        is_bare=is_bare,
        period_factor=MARKED_FACTOR if is_bare or all(is_recent_day(each, now) for each in times) else PERIOD_FACTOR,
        wants_user=bool(_FIRST_PERSON.search(query)) and not _ABOUT_THE_AGENT.search(query),
    )


def is_recent_day(period: Period, now: datetime) -> bool:
    """Return True if a period is a recent day that is named relative to now, as in "yesterday" or "last Tuesday".

    A query with such a period asks for the marks that were made on that day.
    """
    is_day = period.end_at - period.start_at <= timedelta(hours=25)  # one day a year has 25
    return is_day and now - REMEMBERED <= period.start_at <= now and bool(_OF_LATE.search(period.words))


_OF_LATE = re.compile(r"\b(?:today|yesterday|last|past|ago)\b", re.IGNORECASE)


def is_bare_list(query: str) -> bool:
    """Return True if a query is just a list of words to search for: it has no stop word such as "the" or "of"."""
    query_words = words(query)
    return len(terms_of(query_words)) == len(query_words)


def remove_times(query: str, times: Iterable[Period]) -> str:
    """Return the query without the phrases that mention these periods."""
    for period in times:
        query = re.sub(re.escape(period.words), " ", query, count=1, flags=re.IGNORECASE)
    return query


def weigh_terms(query: str, *, without: Iterable[str] = (), is_bare: bool = False) -> tuple[QueryTerm, ...]:
    """Return the distinct terms of a query with their weights, at most TERMS_MAX, the most frequent first.

    `without` are names of speakers. They are left out if the query has other words, because speakers rarely write their
    own names. Generic words such as "kind" get a lower weight, unless the query is a bare list of words (`is_bare`).
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


def shortlist(query: ParsedQuery, postings: Postings, *, limit: int = SHORTLIST) -> list[int]:
    """Return the positions of the `limit` best marks, best first.

    A mark is scored by the terms of the query that it contains, and by its length. Of marks with equal scores, the
    latest comes first. The running time is linear in the number of postings.
    """
    factors: dict[int, float] = {}
    scores: dict[int, float] = defaultdict(float)
    for posting, score in score_postings((*query.terms, *query.learned), postings):
        if (factor := factors.get(posting.length)) is None:
            factor = factors[posting.length] = length_factor(posting.length, postings)
        scores[posting.position] += score * factor
    least = min(heapq.nlargest(limit, scores.values()), default=0.0)
    ordered = sorted((-score, -position) for position, score in scores.items() if score >= least)
    return [-position for _, position in ordered[:limit]]


# -- The order ------------------------------------------------------------------------------------------------


def rank(
    query: ParsedQuery,
    texts: Sequence[Text],
    postings: Postings,
    likeness: Mapping[int, float] | None = None,
    *,
    limit: int | None = None,
) -> list[Hit]:
    """Return hits for the texts that contain a term of the query or are next to such a text, best first.

    `texts` are marks with their lengths, and must be in order of position. `likeness` maps positions to similarities in
    meaning; with it, a mark can also be found by its meaning alone. Of marks with equal scores, the latest comes first.
    """
    scoring = Scoring(query, texts, postings, likeness)
    return [
        Hit(mark=texts[place].mark, score=score, parts=scoring.parts(place)) for place, score in scoring.best(limit)
    ]


class Scoring:
    """Computes the scores of texts for a query.

    Each list in this class has one entry for each text, in the order of `texts`. A "place" is an index into these
    lists. `best` returns the scores of the best texts, and `parts` explains the score of one text.
    """

    def __init__(
        self, query: ParsedQuery, texts: Sequence[Text], postings: Postings, likeness: Mapping[int, float] | None
    ) -> None:
        self._query = query
        self._texts = texts
        self._near = [likeness.get(text.position, 0.0) for text in texts] if likeness else []
        self._own, self._learned, sessions = score_terms(query, texts, postings)
        self._sessions = [SESSION_WEIGHT * sessions.get(text.mark.session, 0.0) for text in texts]
        self._lent = score_neighbours(query, texts, list(map(add, self._own, self._learned)), postings)
        complete_positions = find_complete(query, postings.by_term)
        complete = (
            [place for place, text in enumerate(texts) if text.position in complete_positions]
            if complete_positions
            else []
        )
        for place in complete:
            self._sessions[place], self._lent[place] = SESSION_WEIGHT * self._own[place], 0.0  # neighbours add nothing
        best = max(map(add, map(add, self._own, self._learned), self._lent), default=0.0) or 1.0
        weight = best * MEANING_WEIGHT * (1 - MEANING_CUT * unevenness(postings) ** 2)
        self._meanings = [weight * score for score in score_meaning(query, texts, self._near, postings)]
        lengths = {length: length_factor(length, postings) for length in {text.length for text in texts}}
        self._lengths = [lengths[text.length] for text in texts]
        self._besides: defaultdict[int, dict[str, float]] = defaultdict(dict)  # factors by name; most places have none
        for name, factor, places in (*find_boosts(query, texts), ("complete", COMPLETE_FACTOR, complete)):
            for place in places:
                self._besides[place][name] = factor

    def best(self, limit: int | None) -> list[tuple[int, float]]:
        """Return pairs (place, score) for the `limit` best texts, best first; None means all that match.

        Of texts with equal scores, the latest comes first.
        """
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
        latest = sorted(scores, key=times.__getitem__)[::-1]  # at the same time, the last stored first
        return [(place, scores[place]) for place in sorted(latest, key=scores.__getitem__, reverse=True)[:limit]]

    def parts(self, place: int) -> dict[str, float]:
        """Return the summands and factors of a text's score, by name. `place` is the index of the text."""
        parts = {"own": self._own[place], "neighbours": self._lent[place], "session": self._sessions[place]}
        if self._query.learned:
            parts["learned"] = self._learned[place]
        if self._meanings:
            parts["meaning"] = self._meanings[place]
        parts["length"] = self._lengths[place]
        return parts | self._besides[place] if place in self._besides else parts


# -- The parts of a score -------------------------------------------------------------------------------------


def score_postings(query_terms: Iterable[QueryTerm], postings: Postings) -> Iterator[tuple[Posting, float]]:
    """Yield every posting (one term in one mark) of these terms, with its BM25 score."""
    constant = SATURATION * (1 - LENGTH_SHARE)
    slope = SATURATION * LENGTH_SHARE / (postings.mean_length or 1.0)
    for term in query_terms:
        entries = postings.by_term.get(term.term, ())
        weight = term.weight * rarity(postings.count_marks(term.term), postings.marks) * (SATURATION + 1)
        for posting in entries:
            count = posting.count
            yield posting, weight * count / (count + constant + slope * posting.length)


def find_complete(query: ParsedQuery, by_term: Mapping[str, Iterable[Posting]]) -> frozenset[int]:
    """Return the positions of the marks that contain every term of a bare list of words, except generic terms.

    The result is empty if the query is not a bare list, or has fewer than two terms that are not generic.
    """
    if not query.is_bare:
        return frozenset()
    places = [
        {posting.position for posting in by_term.get(term.term, ())}
        for term in query.terms
        if term.weight > GENERIC_WEIGHT
    ]
    return frozenset(set.intersection(*places)) if len(places) > 1 else frozenset()


def score_terms(
    query: ParsedQuery, texts: Sequence[Text], postings: Postings
) -> tuple[list[float], list[float], dict[str | None, float]]:
    """Return three BM25 scores as a tuple: two lists with an entry for each text, and a mapping from session to score.

    The first list has the scores by the terms of the query, the second one those by the related terms that were added
    to the query. For the score of a session, all its marks count as one text.
    """
    place_of = {text.position: place for place, text in enumerate(texts)}
    own, learned = [0.0] * len(texts), [0.0] * len(texts)
    lengths: dict[str | None, int] = {
        text.mark.session: text.session_length for text in texts if text.mark.session is not None
    }
    mean_length = sum(lengths.values()) / len(lengths) if lengths else 1.0
    total = postings.marks * postings.mean_length / (mean_length or 1.0)  # estimated, because sessions are not counted
    session_constant = SESSION_SATURATION * (1 - SESSION_LENGTH_SHARE)
    session_slope = SESSION_SATURATION * SESSION_LENGTH_SHARE / (mean_length or 1.0)
    sessions: dict[str | None, float] = defaultdict(float)
    for into, query_terms in ((own, query.terms), (learned, query.learned)):
        for term in query_terms:
            counts: dict[str | None, int] = defaultdict(int)
            total_postings = 0
            for posting, score in score_postings([term], postings):
                if (place := place_of.get(posting.position)) is not None:
                    into[place] += score
                counts[posting.session] += posting.count
                total_postings += 1
            containing = round(len(counts) * postings.count_marks(term.term) / total_postings) if total_postings else 0
            weight = term.weight * rarity(containing, max(total, containing)) * (SESSION_SATURATION + 1)
            for session, count in counts.items():
                if (length := lengths.get(session)) is not None:
                    sessions[session] += weight * count / (count + session_constant + session_slope * length)
    return own, learned, sessions


def find_boosts(query: ParsedQuery, texts: Sequence[Text]) -> Iterator[tuple[str, float, Iterable[int]]]:
    """Yield the factors on scores that do not depend on terms, as tuples: the name, the value, and indexes of texts.

    The indexes are those of the texts that get the factor.
    """
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


def score_neighbours(
    query: ParsedQuery, texts: Sequence[Text], own: Sequence[float], postings: Postings
) -> list[float]:
    """Return, for each text, the part of its score that it receives from the marks next to it in its session.

    `own` has the scores of the texts without this part. The longer a mark is, the less it gives to the marks next to
    it. A question gives more to the mark after it than to the others.
    """
    cut = 1 - LENDING_CUT * unevenness(postings) ** 2
    share, gate = query.neighbour_share, TOKENS_PER_WORD / GATE_TOKENS
    lending: dict[
        str | None, tuple[dict[int, float], dict[int, float]]
    ] = {}  # by session: to any mark, to the next one
    for text, score in zip(texts, own, strict=True):
        if score and (session := text.mark.session) is not None:
            has = score * cut / (1 + (gate * text.length) ** 2)
            if (loans := lending.get(session)) is None:
                loans = lending[session] = {}, {}
            loans[0][text.ordinal] = has * share
            loans[1][text.ordinal] = has * (QUESTION_SHARE if "?" in text.mark.text else share)
    steps = *range(-NEIGHBOURS, -1), *range(1, NEIGHBOURS + 1)
    lent: list[float] = []
    for text in texts:
        loan = 0.0
        if (loans := lending.get(text.mark.session)) is not None:
            lends, to_next = loans
            ordinal = text.ordinal
            loan = to_next.get(ordinal - 1, 0.0)
            for step in steps:
                loan += lends.get(ordinal + step, 0.0)
        lent.append(loan)
    return lent


def score_meaning(query: ParsedQuery, texts: Sequence[Text], near: Sequence[float], postings: Postings) -> list[float]:
    """Return, for each text, how similar in meaning it is to the query, from 0 to 1. The most similar text has 1.

    `near` has the similarity of each text alone. In the result, the similarity of the marks next to a text counts, too.
    """
    own = [max(0.0, each) for each in near]
    scores = list(map(add, own, score_neighbours(query, texts, own, postings))) if near else []
    nearest = max(scores, default=0.0) or 1.0
    return [score / nearest for score in scores]


def time_factors(query: ParsedQuery, start_at: datetime, end_at: datetime) -> dict[str, float]:
    """Return the factors, by name, for a text that covers the time from `start_at` to `end_at`.

    The factor `date` applies if this time is near a period that the query mentions, and `period` if it is within one.
    "Near" means from ANNOUNCED before the period to REPORTED after it.
    """
    near = any(
        start_at < period.end_at + REPORTED and end_at >= period.start_at - ANNOUNCED for period in query.periods
    )
    factors = {"date": DATE_FACTOR} if near else {}
    if any(period.start_at <= start_at and end_at < period.end_at for period in query.periods):
        factors["period"] = query.period_factor
    return factors


def unevenness(postings: Postings) -> float:
    """Return how much the lengths of marks in a space differ, from 0 to 1.

    It is about 0.4 if people chat, and 1 with the long answers of assistants.
    """
    return min(1.0, postings.length_spread)


def length_factor(length: int, postings: Postings) -> float:
    """Return the factor for a mark of `length` words: below 1 if it is longer than the mean, else above 1.

    The more the lengths of marks in a space differ, the further the factor is from 1.
    """
    tokens, mean_tokens = TOKENS_PER_WORD * length, TOKENS_PER_WORD * postings.mean_length
    return float(((mean_tokens + LENGTH_OFFSET_TOKENS) / (tokens + LENGTH_OFFSET_TOKENS)) ** unevenness(postings))
