"""Which marks answer a question, best first: one pure ranker for every store.

A store returns postings and texts; whatever decides the order is here, so that all engines answer alike.
The formula in words, the values tried and where it loses are in docs/ranking.md.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from mica.model import Mark, Posting, Postings, Text
from mica.words import terms, words

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
USER_FACTOR = 1.5
OPENING_FACTOR = 1.2  # people say first what a session is about
QUESTION_FACTOR = 0.85  # a mark that asks seldom answers
DATE_FACTOR = 2.0
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


class Period(msgspec.Struct, frozen=True):
    """A stretch of time that a question names."""

    start_at: datetime
    end_at: datetime  # exclusive


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question, read once."""

    text: str
    terms: tuple[QueryTerm, ...] = ()
    speakers: frozenset[str] = frozenset()  # those of the known ones whom it names
    periods: tuple[Period, ...] = ()
    wants_user: bool = False  # asked in the first person, and not for what the agent said

    @property
    def wanted(self) -> list[str]:
        """The terms to ask a store for."""
        return [term.term for term in self.terms]


def parse(query: str, *, now: datetime, speakers: Iterable[str] = ()) -> Query:
    """What a question asks for; of a long one only its beginning counts.

    `speakers` are the agents of marks: a name among its words asks for their marks.
    """
    query = query[:QUERY_CHARACTERS_MAX]
    asked = " ".join(words(query))
    named = [name for name in speakers if (spoken := " ".join(words(name))) and f" {spoken} " in f" {asked} "]
    return Query(
        text=query,
        terms=weighted_terms(query, without=[name for name in named if name[0].isupper()]),
        speakers=frozenset(named),
        periods=periods(query, now=now),
        wants_user=bool(_FIRST_PERSON.search(query)) and not _ABOUT_THE_AGENT.search(query),
    )


def weighted_terms(query: str, *, without: Iterable[str] = ()) -> tuple[QueryTerm, ...]:
    """The distinct terms of a question and their weights, at most TERMS_MAX, the most frequent first.

    The names of people are left out: who says "Thanks, Tim" is not Tim. A name alone is a term like any other.
    """
    counts = Counter(terms(query))
    names = {term for name in without for term in terms(name)}
    if not counts.keys() <= names:
        counts = Counter({term: count for term, count in counts.items() if term not in names})
    return tuple(
        QueryTerm(term, GENERIC_WEIGHT if term in GENERIC else 1.0) for term, _ in counts.most_common(TERMS_MAX)
    )


_FIRST_PERSON = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_ABOUT_THE_AGENT = re.compile(
    r"\byou (?:\w+ )?(?:said|told|mentioned|suggested|recommended|gave|provided|explained|listed|wrote|were)\b"
    r"|\b(?:previous|last|earlier) (?:chat|conversation|discussion)\b",
    re.IGNORECASE,
)


# -- Dates that a question names ------------------------------------------------------------------------------

_MONTHS = "January February March April May June July August September October November December".split()
_NUMBERS = {word: number for number, word in enumerate("one two three four five six seven eight nine ten".split(), 1)}
_NUMBERS |= {"a": 1, "an": 1, "couple of": 2, "few": 3}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_UNIT_DAYS = {"day": 1.0, "week": 7.0, "weekend": 7.0, "month": 30.5, "year": 365.25}

_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})\b"  # with a capital: "may" and "march" are also verbs
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_COUNT = rf"(?:(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)}) )"
_CALENDAR = [  # the first that fits takes the words with it
    re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)-(?P<day>\d\d)\b"),
    re.compile(rf"\b{_DAY}(?: of)? {_MONTH}(?:,? ?{_YEAR})?"),
    re.compile(rf"\b{_MONTH} {_DAY}(?:,? ?{_YEAR})?"),
    re.compile(rf"\b{_MONTH}(?:,? ?{_YEAR})?"),
    re.compile(rf"\b{_YEAR}"),
]
_DAY_WORD = re.compile(rf"\b(?:{'|'.join(_DAYS_AGO)})\b", re.IGNORECASE)
_AGO = re.compile(rf"\b{_COUNT}(?P<unit>day|week|month|year)s? ago\b", re.IGNORECASE)
_LATELY = re.compile(rf"\b(?:last|past|this) {_COUNT}?(?P<unit>day|week|weekend|month|year)s?\b", re.IGNORECASE)


def periods(query: str, *, now: datetime) -> tuple[Period, ...]:
    """The stretches of time that a question names; a date without a year is the latest that has begun."""
    found: list[Period] = []
    rest = query
    for pattern in _CALENDAR:
        dates = [_calendar_period(match.groupdict(), now) for match in pattern.finditer(rest)]
        found += [period for period in dates if period is not None]
        rest = pattern.sub(" ", rest)
    found += [_around(now - timedelta(_DAYS_AGO[match[0].lower()]), "day") for match in _DAY_WORD.finditer(rest)]
    found += [_around(now - _days(match), match["unit"]) for match in _AGO.finditer(rest)]
    found += [Period(_around(now - _days(match), match["unit"]).start_at, now) for match in _LATELY.finditer(rest)]
    return tuple(found)


def _calendar_period(parts: Mapping[str, str | None], now: datetime) -> Period | None:
    """The day, month or year of these parts, or None when there is no such date."""
    day, year = int(parts.get("day") or 0), int(parts.get("year") or 0)
    month = _MONTHS.index(name) + 1 if (name := parts.get("month")) else int(parts.get("number") or 0)
    try:
        start = datetime(year or now.year, month or 1, day or 1, tzinfo=UTC)
        if not year and start > now:
            start = start.replace(year=now.year - 1)
        if day:
            return Period(start, start + timedelta(days=1))
        if month:
            return Period(start, start.replace(year=start.year + month // 12, month=month % 12 + 1))
        return Period(start, start.replace(year=start.year + 1))
    except ValueError:  # 31 April
        return None


def _days(match: re.Match[str]) -> timedelta:
    """How long "three weeks" are; a unit alone counts once."""
    count = match["count"] or "one"
    number = int(count) if count.isdigit() else _NUMBERS[count.lower()]
    return timedelta(days=number * _UNIT_DAYS[match["unit"].lower()])


def _around(middle: datetime, unit: str) -> Period:
    half = timedelta(days=_UNIT_DAYS[unit.lower()] / 2)
    return Period(middle - half, middle + half)


# -- Candidates -----------------------------------------------------------------------------------------------


def shortlist(query: Query, postings: Postings, *, limit: int = 200) -> list[int]:
    """The positions worth reading, best first, by their own words and their length. Linear in the postings."""
    lengths = {posting.length for found in postings.by_term.values() for posting in found}
    factors = {length: length_factor(length, postings) for length in lengths}
    scores: dict[int, float] = defaultdict(float)
    for posting, score in scored(query, postings):
        scores[posting.position] += score * factors[posting.length]
    least = min(heapq.nlargest(limit, scores.values()), default=0.0)
    ordered = sorted((-score, position) for position, score in scores.items() if score >= least)
    return [position for _, position in ordered[:limit]]


# -- The order ------------------------------------------------------------------------------------------------


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that answers, and why. Of its parts `own`, `neighbours` and `session` are added, the others multiply."""

    mark: Mark
    score: float
    parts: dict[str, float]


def rank(query: Query, texts: Sequence[Text], postings: Postings) -> list[Hit]:
    """The marks that contain a term of the question or stand beside one that does, best first, ties by position."""
    own = own_scores(query, texts, postings)
    sessions = session_scores(query, texts, postings)
    lent = loans(texts, own, postings)
    hits = []
    for text in texts:
        mark = text.mark
        from_itself = own.get(_position(text), 0.0)
        from_neighbours = neighbour_score(text, lent)
        if from_itself or from_neighbours:
            from_session = SESSION_WEIGHT * sessions.get(mark.session, 0.0) if mark.session is not None else 0.0
            factors = mark_factors(query, text) | {"length": length_factor(text.length, postings)}
            score = (from_itself + from_neighbours + from_session) * math.prod(factors.values())
            parts = {"own": from_itself, "neighbours": from_neighbours, "session": from_session, **factors}
            hits.append(Hit(mark=mark, score=score, parts=parts))
    return sorted(hits, key=lambda hit: (-hit.score, hit.mark.position))


def _position(text: Text) -> int:
    assert text.mark.position is not None, "texts come from a store"
    return text.mark.position


# -- The parts of a score -------------------------------------------------------------------------------------


def rarity(containing: int, total: float) -> float:
    """How much a term says that so many of all documents contain: BM25's weight, always above 0."""
    return math.log1p((max(total, containing) - containing + 0.5) / (containing + 0.5))


def scored(query: Query, postings: Postings) -> Iterator[tuple[Posting, float]]:
    """Every posting with what it adds to its mark's own score: BM25."""
    constant = SATURATION * (1 - LENGTH_SHARE)
    slope = SATURATION * LENGTH_SHARE / (postings.mean_length or 1.0)
    for term in query.terms:
        found = postings.by_term.get(term.term, ())
        weight = term.weight * rarity(len(found), postings.marks) * (SATURATION + 1)
        for posting in found:
            count = posting.count
            yield posting, weight * count / (count + constant + slope * posting.length)


def own_scores(query: Query, texts: Iterable[Text], postings: Postings) -> dict[int, float]:
    """What the texts' own words are worth, by position; only of those that contain a term."""
    scores = {_position(text): 0.0 for text in texts}
    for posting, score in scored(query, postings):
        if posting.position in scores:
            scores[posting.position] += score
    return {position: score for position, score in scores.items() if score}


def session_scores(query: Query, texts: Iterable[Text], postings: Postings) -> dict[str, float]:
    """BM25 of the texts' sessions, each taken as one document."""
    lengths = {text.mark.session: text.session_length for text in texts if text.mark.session is not None}
    mean_length = sum(lengths.values()) / len(lengths) if lengths else 1.0
    total = postings.marks * postings.mean_length / (mean_length or 1.0)  # nobody counts sessions; words are counted
    constant = SESSION_SATURATION * (1 - SESSION_LENGTH_SHARE)
    slope = SESSION_SATURATION * SESSION_LENGTH_SHARE / (mean_length or 1.0)
    scores: dict[str, float] = defaultdict(float)
    for term in query.terms:
        found = postings.by_term.get(term.term, ())
        counts: dict[str, int] = defaultdict(int)
        for posting in found:
            if (session := posting.session) in lengths:
                counts[session] += posting.count
        containing = len({posting.session for posting in found})
        weight = term.weight * rarity(containing, total) * (SESSION_SATURATION + 1)
        for session, count in counts.items():
            scores[session] += weight * count / (count + constant + slope * lengths[session])
    return dict(scores)


class Loan(msgspec.Struct, frozen=True):
    """What a mark lends to those around it."""

    score: float
    asks: bool


Place = tuple[str, int]  # session and number in it


def loans(texts: Iterable[Text], own: Mapping[int, float], postings: Postings) -> dict[Place, Loan]:
    """What every text lends: less the longer it is, because a short one depends on what stands beside it."""
    lent: dict[Place, Loan] = {}
    share = 1 - LENDING_CUT * unevenness(postings) ** 2
    for text in texts:
        score = own.get(_position(text), 0.0)
        if score and text.mark.session is not None:
            gate = share / (1 + (TOKENS_PER_WORD * text.length / GATE_TOKENS) ** 2)
            lent[text.mark.session, text.ordinal] = Loan(score * gate, asks="?" in text.mark.text)
    return lent


def neighbour_score(text: Text, lent: Mapping[Place, Loan]) -> float:
    """What a text is lent by the marks around it in its session."""
    session = text.mark.session
    if session is None:
        return 0.0
    score = 0.0
    for distance in range(-NEIGHBOURS, NEIGHBOURS + 1):
        if distance and (loan := lent.get((session, text.ordinal + distance))):
            score += loan.score * (QUESTION_SHARE if distance == -1 and loan.asks else NEIGHBOUR_SHARE)
    return score


def mark_factors(query: Query, text: Text) -> dict[str, float]:
    """What raises or lowers a mark besides its words, by name."""
    mark = text.mark
    factors: dict[str, float] = {}
    if mark.agent in query.speakers:
        factors["speaker"] = SPEAKER_FACTOR
    if query.wants_user and mark.origin == "user":
        factors["user"] = USER_FACTOR
    if mark.session is not None and text.ordinal == 0:
        factors["opening"] = OPENING_FACTOR
    if mark.text.rstrip().endswith("?"):
        factors["question"] = QUESTION_FACTOR
    if any(period.start_at - ANNOUNCED <= mark.at < period.end_at + REPORTED for period in query.periods):
        factors["date"] = DATE_FACTOR
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
