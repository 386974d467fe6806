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
from datetime import datetime, timedelta, tzinfo

import msgspec

from mica.model import EventId, Mark, Posting, Postings, Text
from mica.select.when import Period, periods
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
MEANING_WEIGHT = 0.3  # of the best score by words
ALIKE_MIN = 0.25  # how much nearer than most a mark must be to be found without a word of the question
MEANING_CUT = 0.5  # what of it is lost where lengths differ most: a vector of a long mark says less of it
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


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question, read once."""

    text: str
    terms: tuple[QueryTerm, ...] = ()
    learned: tuple[QueryTerm, ...] = ()  # what nobody asked for, and a first answer made likely
    speakers: frozenset[str] = frozenset()  # those of the known ones whom it names
    periods: tuple[Period, ...] = ()
    wants_user: bool = False  # asked in the first person, and not for what the agent said
    speaker_factor: float = SPEAKER_FACTOR
    neighbour_share: float = NEIGHBOUR_SHARE

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
    asked = " ".join(words(query))
    named = [name for name in speakers if (spoken := " ".join(words(name))) and f" {spoken} " in f" {asked} "]
    return Query(
        text=query,
        terms=weighted_terms(query, without=[name for name in named if name[0].isupper()]),
        speakers=frozenset(named),
        periods=periods(query, now=now, zone=zone),
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


# -- Candidates -----------------------------------------------------------------------------------------------


SHORTLIST = 200  # measured: 400 find nothing that 200 do not


def shortlist(query: Query, postings: Postings, *, limit: int = SHORTLIST) -> list[int]:
    """The positions worth reading, best first, by their own words and their length. Linear in the postings."""
    lengths = {posting.length for found in postings.by_term.values() for posting in found}
    factors = {length: length_factor(length, postings) for length in lengths}
    scores: dict[int, float] = defaultdict(float)
    for posting, score in scored((*query.terms, *query.learned), postings):
        scores[posting.position] += score * factors[posting.length]
    least = min(heapq.nlargest(limit, scores.values()), default=0.0)
    ordered = sorted((-score, position) for position, score in scores.items() if score >= least)
    return [position for _, position in ordered[:limit]]


# -- The order ------------------------------------------------------------------------------------------------


class Hit(msgspec.Struct, frozen=True, kw_only=True):
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
    query: Query, texts: Sequence[Text], postings: Postings, likeness: Mapping[int, float] | None = None
) -> list[Hit]:
    """The marks that contain a term of the question or stand beside one that does, best first, ties by position.

    `likeness` says how much more a text is about the same as the question than most are, by position; where it is
    known, a mark may also be found by its meaning alone.
    """
    own = own_scores(query.terms, texts, postings)
    learned = own_scores(query.learned, texts, postings)
    said = {position: own.get(position, 0.0) + learned.get(position, 0.0) for position in own.keys() | learned.keys()}
    sessions = session_scores(query, texts, postings)
    lent = borrowed(query, texts, said, postings)
    meanings = meaning_scores(query, texts, likeness or {}, postings)
    best = max((said.get(position, 0.0) + loan for position, loan in lent.items()), default=0.0) or 1.0
    weight = best * MEANING_WEIGHT * (1 - MEANING_CUT * unevenness(postings) ** 2)
    hits = []
    for text in texts:
        mark, position = text.mark, _position(text)
        if position in said or lent[position] or (likeness or {}).get(position, 0.0) >= ALIKE_MIN:
            parts = {
                "own": own.get(position, 0.0),
                "neighbours": lent[position],
                "session": SESSION_WEIGHT * sessions.get(mark.session, 0.0) if mark.session is not None else 0.0,
            }
            if query.learned:
                parts["learned"] = learned.get(position, 0.0)
            if likeness is not None:
                parts["meaning"] = weight * meanings.get(position, 0.0)
            factors = mark_factors(query, text) | {"length": length_factor(text.length, postings)}
            score = math.fsum(parts.values()) * math.prod(factors.values())
            hits.append(Hit(mark=mark, score=score, parts=parts | factors))
    return sorted(hits, key=lambda hit: (-hit.score, hit.mark.position))


def _position(text: Text) -> int:
    assert text.mark.position is not None, "texts come from a store"
    return text.mark.position


# -- The parts of a score -------------------------------------------------------------------------------------


def rarity(containing: int, total: float) -> float:
    """How much a term says that so many of all documents contain: BM25's weight, always above 0."""
    return math.log1p((max(total, containing) - containing + 0.5) / (containing + 0.5))


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


def own_scores(wanted: Iterable[QueryTerm], texts: Iterable[Text], postings: Postings) -> dict[int, float]:
    """What the texts' own words are worth, by position; only of those that contain a term."""
    scores = {_position(text): 0.0 for text in texts}
    for posting, score in scored(wanted, postings):
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
    for term in (*query.terms, *query.learned):
        found = postings.by_term.get(term.term, ())
        counts: dict[str, int] = defaultdict(int)
        for posting in found:
            if (session := posting.session) in lengths:
                counts[session] += posting.count
        listed = len({posting.session for posting in found})
        containing = round(listed * postings.held(term.term) / len(found)) if found else 0
        weight = term.weight * rarity(containing, max(total, containing)) * (SESSION_SATURATION + 1)
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


def borrowed(query: Query, texts: Sequence[Text], own: Mapping[int, float], postings: Postings) -> dict[int, float]:
    """What every text is lent by the marks around it in its session, by position."""
    lent = loans(texts, own, postings)
    return {_position(text): neighbour_score(text, lent, query.neighbour_share) for text in texts}


def neighbour_score(text: Text, lent: Mapping[Place, Loan], share: float) -> float:
    """What a text is lent by the marks around it in its session."""
    session = text.mark.session
    if session is None:
        return 0.0
    score = 0.0
    for distance in range(-NEIGHBOURS, NEIGHBOURS + 1):
        if distance and (loan := lent.get((session, text.ordinal + distance))):
            score += loan.score * (QUESTION_SHARE if distance == -1 and loan.asks else share)
    return score


def meaning_scores(
    query: Query, texts: Sequence[Text], likeness: Mapping[int, float], postings: Postings
) -> dict[int, float]:
    """How near every text and its neighbours are to the question in meaning, 1 for the nearest."""
    if not likeness:
        return {}
    own = {position: near for text in texts if (near := likeness.get(position := _position(text), 0.0)) > 0}
    scores = {
        position: own.get(position, 0.0) + lent for position, lent in borrowed(query, texts, own, postings).items()
    }
    nearest = max(scores.values(), default=0.0) or 1.0
    return {position: score / nearest for position, score in scores.items()}


def mark_factors(query: Query, text: Text) -> dict[str, float]:
    """What raises or lowers a mark besides its words, by name."""
    mark = text.mark
    factors: dict[str, float] = {}
    if mark.agent in query.speakers:
        factors["speaker"] = query.speaker_factor
    if query.wants_user and mark.origin == "user":
        factors["user"] = USER_FACTOR
    if mark.session is not None and text.ordinal == 0:
        factors["opening"] = OPENING_FACTOR
    if mark.text.rstrip().endswith("?"):
        factors["question"] = QUESTION_FACTOR
    return factors | time_factors(query, mark.at, mark.at)


def time_factors(query: Query, start_at: datetime, end_at: datetime) -> dict[str, float]:
    """What raises something of this time, by name: a question may name the time that it is about."""
    near = any(
        start_at < period.end_at + REPORTED and end_at >= period.start_at - ANNOUNCED for period in query.periods
    )
    return {"date": DATE_FACTOR} if near else {}


def unevenness(postings: Postings) -> float:
    """How much the lengths of a space's marks differ, 0 to 1: near 0.4 where people chat, 1 with assistants."""
    return min(1.0, postings.length_spread)


def length_factor(length: int, postings: Postings) -> float:
    """Less for long marks where lengths differ much; 1 for a mark of mean length.

    In a chat of short turns length means nothing, beside answers of many pages it means everything.
    """
    tokens, mean_tokens = TOKENS_PER_WORD * length, TOKENS_PER_WORD * postings.mean_length
    return float(((mean_tokens + LENGTH_OFFSET_TOKENS) / (tokens + LENGTH_OFFSET_TOKENS)) ** unevenness(postings))
