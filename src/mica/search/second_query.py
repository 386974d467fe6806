"""The second query: the query extended by words of its best hits and by related words (query expansion).

Related words are members of the kind that a question asks for: "dog" and "cat" for "which pets". The best hits of the
first query stay in front. If the query is a bare list of words, the hits that contain all words stay in front, too.
Hits of the second query follow.

A question for several things ("which cities", "how many pets") has its answer in many sessions. For such a question,
the second query gives more weight to a mentioned speaker and less to neighbouring marks, and lowers the score of a hit
for every better hit of the same session.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import chain

import msgspec

from mica.model.hit import Hit
from mica.search.ranker import GENERIC, ParsedQuery, QueryTerm
from mica.words import terms, terms_of, words

# Weights were measured on the development split; docs/ranking.md has the values tried.
PINNED = 5  # hits of the first query that keep their places
SECOND_FACTOR = 0.999  # the highest score of the other hits, relative to that of the last pinned hit
TEACHERS = 10  # the best hits, whose words are added to the query
CLASS = 50  # the best hits, among which a word is common or rare
WORDS_MAX = 100  # words that are used of a hit; a longer hit would contribute too much of its own vocabulary
CHARACTERS_MAX = 20 * WORDS_MAX  # characters that are used of a hit
LEARNED = 10  # words that are added from hits
LEARNED_WEIGHT = 0.2  # the weight of the best word that is added from hits
MEMBER_WEIGHT = 0.4  # the weight of a member of a kind
REACH = 4  # words after "which" or "how many" that may name the kind
SEVERAL_SPEAKER_FACTOR = 2.5
SEVERAL_NEIGHBOUR_SHARE = 0.3
SEVERAL_SPREAD = 0.85  # factor on a hit's score for every better hit of the same session

_ASKS_FOR = frozenset({"what", "which", "many"})
_SEVERAL = re.compile(
    r"\b(?:how many|(?:what|which)(?: \w+){0,3}? (?!is\b|was\b|does\b|has\b|this\b)\w+[^\Wus]s|both|in common)\b",
    re.IGNORECASE,
)


def asks_for_several(query: str) -> bool:
    """Return True if a question asks for several things: "how many …", "both …", or "which …" with a plural."""
    return _SEVERAL.search(query) is not None


def broaden(query: ParsedQuery, hits: Sequence[Hit]) -> ParsedQuery:
    """Return the second query: `query`, extended by terms of its best hits and by related words.

    `hits` are the hits of `query`, best first.
    """
    known = {term.term for term in query.terms} | {term for name in query.speakers for term in terms(name)}
    added = {term.term: term for term in (*learn_terms(hits, known), *member_terms(query, known))}
    several = asks_for_several(query.text)
    return msgspec.structs.replace(
        query,
        learned=tuple(added.values()),
        speaker_factor=SEVERAL_SPEAKER_FACTOR if several else query.speaker_factor,
        neighbour_share=SEVERAL_NEIGHBOUR_SHARE if several else query.neighbour_share,
    )


def learn_terms(hits: Sequence[Hit], known: set[str]) -> list[QueryTerm]:
    """Return terms of the best hits that are rare among the CLASS best hits, with weights, best first.

    Terms in `known`, names of speakers, generic words and numbers are left out.
    """
    speakers = {term for agent in {hit.mark.agent for hit in hits[:CLASS]} if agent for term in terms(agent)}
    hit_terms = [terms_of(words(hit.mark.text[:CHARACTERS_MAX])[:WORDS_MAX]) for hit in hits[:CLASS]]
    common = Counter(chain.from_iterable(map(set, hit_terms)))
    taught: dict[str, float] = {}
    for hit, terms_in_hit in zip(hits[:TEACHERS], hit_terms, strict=False):
        for term, count in Counter(terms_in_hit).items():
            if term not in known and term not in speakers and term not in GENERIC and not term.isdigit():
                share = hit.score / hits[0].score * count / (count + 1)
                taught[term] = taught.get(term, 0.0) + share
    weights = {term: share * math.log1p(len(hit_terms) / common[term]) for term, share in taught.items()}
    best = sorted(weights, key=lambda term: (-weights[term], term))[:LEARNED]
    return [QueryTerm(term, LEARNED_WEIGHT * weights[term] / weights[best[0]]) for term in best]


def member_terms(query: ParsedQuery, known: set[str]) -> list[QueryTerm]:
    """Return members of the kind that a question asks for, as terms: "dog", "cat" and others for "which pets".

    Terms in `known` are left out.
    """
    query_words = words(query.text)
    near = {
        word
        for place, word in enumerate(query_words)
        if word in _ASKS_FOR
        for word in query_words[place + 1 : place + 1 + REACH]
    }
    kind_terms = set(terms_of(near))
    weights = {
        member: term.weight
        for term in query.terms
        if term.term in kind_terms
        for member in members_by_kind().get(term.term, ())
        if member not in known
    }
    return [QueryTerm(term, MEMBER_WEIGHT * weight) for term, weight in weights.items()]


def select_pinned(first: Sequence[Hit]) -> list[Hit]:
    """Return the hits of the first query that stay in front: the best PINNED, and those with all words of a bare list.

    `first` are the hits of the first query, best first.
    """
    return [hit for place, hit in enumerate(first) if place < PINNED or "complete" in hit.parts]


def join_hits(query: ParsedQuery, first: Sequence[Hit], second: Sequence[Hit]) -> list[Hit]:
    """Return the hits of the first query that stay in front, then the other hits of the second query."""
    pinned = select_pinned(first)
    there = {hit.mark.position for hit in pinned}
    rest = [hit for hit in second if hit.mark.position not in there]
    if asks_for_several(query.text):
        rest = spread_over_sessions(rest, pinned)
    if not pinned or not rest:
        return pinned + rest
    factor = min(1.0, SECOND_FACTOR * pinned[-1].score / rest[0].score)  # scores of two queries are not comparable
    return pinned + [_multiply(hit, second=factor) for hit in rest]


def spread_over_sessions(hits: Sequence[Hit], before: Sequence[Hit]) -> list[Hit]:
    """Lower the score of each hit once for every better hit of the same session, and return the hits, best first.

    As a result, hits of different sessions alternate. All hits in `before` count as better.
    """
    better: Counter[str | None] = Counter(hit.mark.session for hit in before if hit.mark.session is not None)
    placed: list[Hit] = []
    for hit in hits:
        placed.append(_multiply(hit, spread=SEVERAL_SPREAD ** better[hit.mark.session]))
        if hit.mark.session is not None:
            better[hit.mark.session] += 1
    return sorted(placed, key=lambda hit: -hit.score)  # stable for equal scores


def _multiply(hit: Hit, **factor: float) -> Hit:
    (value,) = factor.values()
    return msgspec.structs.replace(hit, score=hit.score * value, parts=hit.parts | factor)


# -- Kinds and their members ----------------------------------------------------------------------------------


KINDS = """
pet animal: dog puppy cat kitten hamster rabbit bunny parrot bird fish turtle snake lizard horse duck
sport team: basketball football soccer baseball tennis golf hockey volleyball rugby cricket badminton boxing karate
 swimming cycling surfing skiing snowboarding climbing skating gymnastics marathon bowling rowing
hobby activity pastime interest: painting drawing reading cooking baking gardening photography dancing singing knitting
 camping fishing hiking running swimming yoga chess puzzle pottery writing cycling climbing kayaking surfing gaming
 sewing woodworking meditation volunteering picnic museum concert
exercise workout fitness: gym yoga running jogging cycling swimming weights pilates cardio hiking stretching
instrument: piano guitar violin drums flute cello saxophone trumpet ukulele clarinet harp keyboard bass
music genre: song band album concert jazz rock pop classical blues folk metal rap singer playlist orchestra
game: chess monopoly cards puzzle scrabble poker nintendo playstation xbox console
country nation abroad: france italy spain germany england scotland ireland portugal greece turkey norway sweden finland
 denmark poland switzerland austria japan china india thailand vietnam indonesia korea australia canada mexico brazil
 argentina peru chile egypt morocco kenya africa iceland netherlands belgium
city town: london paris rome milan berlin munich madrid barcelona lisbon amsterdam vienna prague athens istanbul tokyo
 kyoto beijing shanghai singapore bangkok sydney melbourne toronto vancouver montreal chicago boston seattle miami
 denver austin dallas houston atlanta york francisco angeles vegas diego dublin edinburgh
state: california texas florida oregon washington colorado arizona nevada michigan ohio georgia virginia minnesota
 alaska hawaii montana utah massachusetts pennsylvania illinois
place location spot: park beach mountain lake forest museum gallery restaurant cafe city town trail river island garden
 zoo library theater stadium market hotel castle
book novel: author read series fantasy mystery story chapter library fiction memoir biography
movie film: cinema watch trilogy thriller comedy documentary actor theater director drama
show: series episode season sitcom
food snack cuisine ingredient: pizza pasta sushi salad soup burger bread cheese chicken beef fish curry rice noodle taco
 sandwich cake chocolate cookie steak egg
dish meal recipe: breakfast lunch dinner brunch pizza pasta sushi salad soup burger curry rice taco sandwich roast stew
dessert treat: cake cookie pie chocolate brownie pudding tart cupcake
drink beverage: coffee tea wine beer juice water cocktail smoothie soda
fruit: apple banana orange grape strawberry blueberry mango peach pear lemon
vegetable: carrot tomato potato onion pepper broccoli spinach lettuce cucumber
job profession occupation career: teacher nurse engineer doctor lawyer designer developer manager chef writer artist
 accountant intern hired promotion salary boss
family relative: mother father mom dad sister brother aunt uncle cousin grandma grandpa grandmother grandfather wife
 husband son daughter parent child
sibling: sister brother
parent: mother father mom dad
partner: girlfriend boyfriend wife husband fiance fiancee spouse
friend: buddy pal neighbor roommate colleague
color colour: red blue green yellow orange purple pink black white brown grey
vehicle transport: car bike bicycle truck bus motorcycle van scooter boat train plane subway taxi
trip travel vacation: trip travel vacation holiday journey visit flight tour cruise
health illness injury symptom: doctor hospital sick flu fever cough infection surgery pain hurt broke knee headache
 allergy medicine diet stress
emotion feeling mood: happy sad excited proud nervous anxious scared grateful stressed angry lonely
clothes clothing outfit: shirt dress jacket shoes boots jeans coat sweater hat
furniture: sofa couch table chair desk bed shelf lamp
device gadget: phone laptop tablet computer camera headphones watch speaker monitor console
education study: school college university degree class course graduate exam
language: english spanish french german italian japanese chinese portuguese korean russian arabic
holiday celebration: christmas easter thanksgiving halloween birthday anniversary wedding
art craft: painting drawing sculpture pottery gallery sketch canvas
plant flower: rose tulip orchid lily sunflower herb seed cactus tree
award achievement: prize trophy medal winner won champion certificate promotion
event: party concert festival wedding conference meeting ceremony workshop fundraiser tournament
error failure problem issue: exception traceback crash bug broken timeout refused
database store: sqlite postgres postgresql mysql redis mongodb
editor client agent: claude codex cursor copilot gemini opencode vim emacs vscode
"""


@cache
def members_by_kind() -> dict[str, tuple[str, ...]]:
    """Return the terms that belong to each kind: "dog", "cat" and others for the kind "pet"."""
    by_kind: dict[str, dict[str, None]] = defaultdict(dict)
    for line in KINDS.strip().replace("\n ", " ").splitlines():
        heads, _, member_terms = line.partition(":")
        for head in terms(heads):
            by_kind[head].update(dict.fromkeys(term for term in terms(member_terms) if term != head))
    return {head: tuple(member_terms) for head, member_terms in by_kind.items()}
