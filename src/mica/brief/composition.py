"""Composes a brief: decides which passages it shows.

The most valuable passages are chosen first, from any source. Rules take at most RULES_SHARE of the budget, and
statements about concepts at most 62 % (1/φ) of the tokens for passages. Repetitions are dropped, conflicts share one
line, and missing parts are listed. `mica.brief.budget` selects what fits, and `mica.brief.layout` makes the text.
Compression, on request, shortens passages to their most relevant sentences and states how many of the sentences are
shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from mica.brief.budget import BELIEFS, best_first, choose, line_of
from mica.brief.layout import GAP, HEADING_TOKENS, best_alone, cost_within, joined_cost_within, render, room, with_cost
from mica.brief.receipts import CONFLICTS
from mica.brief.worth import MATCH, prefer_newer
from mica.crystals.sentences import split
from mica.format.lines import plural
from mica.model.brief import Brief, Passage
from mica.model.event import EventId
from mica.sources.account import LINE_TOKENS, one_line, shortened
from mica.sources.answer import Collected
from mica.sources.cohere import Coherent, Conflict, Stated
from mica.sources.protocol import PHI_INV, Concept
from mica.tokens import estimate
from mica.words import terms, words

SOURCES_SHOWN = 3
SENTENCE_TOKENS_MIN = 5  # a shorter sentence means little without its neighbours
RULES_SHARE = 0.4  # of the budget at most; the number of the other rules is listed as missing
USED_SHARE = 0.96  # of the budget; if less is used although something was left out, more is tried
FILLING_MAX = 40  # passages that are tried then
FILES_SHARE = 0.2  # of the budget at most, for a list of files


class ConceptAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What sources answered about one concept: the fragments as the sources gave them, and the merged statements."""

    concept: Concept
    collected: Collected
    coherent: Coherent


def compose(
    query: str,
    passages: Sequence[Passage],
    accounts: Sequence[ConceptAccount],
    *,
    missing: Mapping[str, str],
    budget_tokens: int,
    is_compressed: bool = False,
    now: datetime | None = None,
) -> Brief:
    """Compose a brief within the budget from `passages` and from what sources answered about concepts (`accounts`).

    The brief also lists conflicts between sources, sources that did not answer, sources with an old answer, and the
    parts in `missing`, which maps their names to the reasons. `now` is the time of the brief.
    """
    gaps = dict(missing)
    for account in accounts:
        gaps |= account.collected.missing
        gaps |= {each.source: f"stale, {each.reason}" for each in account.collected.degraded}
    lost = [_lost(each) for account in accounts for each in account.coherent.conflicts]
    conflicts = [each.text for each in lost]
    notes = [shortened(f"- {CONFLICTS}: {'; '.join(conflicts)}", LINE_TOKENS)] if conflicts else []
    own = without_copies(passages)
    offered = [
        *(prefer_newer(own) if query.strip() else own),
        *(passage(account.concept, each) for account in accounts for each in account.coherent.fragments),
    ]
    whole, whole_notes = offered, notes
    left_tokens = room(budget_tokens, missing=gaps, notes=notes)
    if is_compressed:
        offered = [with_cost(each, budget_tokens=budget_tokens) for each in offered]
        longest = Coverage(sentences=99_999, of=99_999).describe()
        notes_room = room(budget_tokens, missing=gaps, notes=[*notes, f"- {longest}"])
        headings = HEADING_TOKENS * len({each.section for each in offered})
        best = sorted(offered, key=lambda each: -each.score)
        smaller, coverage = compress_passages(
            best,
            query=query,
            budget_tokens=max(0, notes_room - headings),
            cost=lambda each: with_cost(each, budget_tokens=budget_tokens),
        )
        if coverage is not None and smaller:  # if no sentence fits, passages stay whole
            offered, left_tokens = smaller, notes_room
            notes = [*notes, f"- {coverage.describe()}"]
    pick = partial(
        choose,
        offered,
        cost=partial(cost_within, now=now),
        joined_cost=joined_cost_within,
        heading_tokens=HEADING_TOKENS,
        section_tokens={"rules": int(budget_tokens * RULES_SHARE), "files": int(budget_tokens * FILES_SHARE)},
        fragment_tokens=int(left_tokens * PHI_INV),
    )
    choice = pick(budget_tokens=left_tokens)
    if choice.rules_left_out:
        gaps |= _more_rules(choice.rules_left_out)
        choice = pick(budget_tokens=min(left_tokens, room(budget_tokens, missing=gaps, notes=notes)))
        gaps |= _more_rules(choice.rules_left_out)
    chosen = list(choice.passages)
    left_out = choice.left_out + max(0, _lines(whole) - _lines(offered))  # and lines dropped by compression
    needed_tokens = None
    if not chosen:  # a small budget has no reserve: one line is shown if the estimate of the whole text fits
        gaps.pop("rules", None)
        alone = [each for each in sorted(whole, key=best_first) if not each.origins]
        one, needed_tokens = best_alone(alone, budget_tokens=budget_tokens, missing=gaps, notes=whole_notes, now=now)
        if one is not None:
            chosen, notes = [with_cost(one, budget_tokens=budget_tokens)], whole_notes
            left_out -= 1
    shares = [each.coherent.coherence for each in accounts if each.coherent.coherence is not None]
    show = partial(render, query, budget_tokens=budget_tokens, missing=gaps, notes=notes, now=now)
    brief = show(chosen, left_out=left_out)
    for each in choice.left[:FILLING_MAX] if choice.passages else ():
        if brief.tokens >= USED_SHARE * budget_tokens:
            break
        # The costs of lines are upper bounds, so their sum is more than the whole costs. The difference is used, too.
        if cost_within(each, budget_tokens - brief.tokens, now=now) is not None:
            fewer = left_out - (line_of(each) not in map(line_of, chosen))
            more = show([*chosen, each], left_out=fewer)
            if more.left_out == fewer:  # nothing had to be dropped for it
                brief, chosen, left_out = more, [*chosen, each], fewer
    return msgspec.structs.replace(
        brief,
        needed_tokens=needed_tokens,
        concepts=tuple(str(each.concept) for each in accounts),
        coherence=sum(shares) / len(shares) if shares else None,
        conflicts=tuple(conflicts),
        lost=tuple(lost),
        is_compressed=is_compressed,
    )


def _more_rules(count: int) -> dict[str, str]:
    """Return the entry of missing parts that says how many rules are not shown."""
    return {"rules": f"{plural(count, 'more rule')} without room; `mica beliefs` lists them"}


def _lines(passages: Iterable[Passage]) -> int:
    return len({line_of(each) for each in passages})


def _claim(passage: Passage) -> str:
    return " ".join(words(passage.text))


def without_copies(passages: Iterable[Passage]) -> list[Passage]:
    """Return the passages without those of which another source has the same text of the same event.

    Of the copies, a belief stays, else the one with the highest score; it gets the highest score of them. A note such
    as "corrected by #12" is kept.
    """
    listed = list(passages)
    believed = {_claim(each) for each in listed if each.source == BELIEFS}
    best: dict[tuple[EventId | str, str], Passage] = {}
    for each in listed:
        claim = _claim(each)
        key = ("" if claim in believed else next(iter(each.sources), ""), claim)
        known = best.get(key)
        if known is None:
            best[key] = each
            continue
        kept = max((known, each), key=lambda passage: (passage.source == BELIEFS, passage.score))
        noted = max((kept, known, each), key=lambda passage: passage.kind.count(","))
        best[key] = msgspec.structs.replace(kept, kind=noted.kind, score=max(known.score, each.score))
    return list(best.values())


def passage(concept: Concept, stated: Stated) -> Passage:
    """Convert a statement about a concept to a passage."""
    named = list(dict.fromkeys(origin.source for origin in stated.origins))
    more = f" +{len(named) - SOURCES_SHOWN}" if len(named) > SOURCES_SHOWN else ""
    key, text = one_line(stated.key), one_line(stated.text)
    about = "" if key.casefold() in text.casefold() else f"{shortened(key, LINE_TOKENS // 4)}: "
    return Passage(
        text=shortened(f"{about}{text}", LINE_TOKENS - 10) + f" ({stated.confidence:.0%})",
        sources=stated.sources,
        tokens=0,
        score=MATCH * stated.confidence,  # it is about what was asked
        section="known",
        at=stated.at,
        source=stated.source,
        kind=f"{shortened(one_line(str(concept)), LINE_TOKENS // 3)} [{', '.join(named[:SOURCES_SHOWN])}{more}]",
        origins=tuple((origin.source, origin.locator) for origin in stated.origins),
    )


def _lost(conflict: Conflict) -> Passage:
    """Convert a conflict to a passage that shows the statement that lost, with its origins."""
    return Passage(
        text=describe_conflict(conflict),
        sources=conflict.sources,
        tokens=0,
        score=conflict.confidence,
        at=conflict.at,
        source=conflict.source,
        kind=CONFLICTS,
        origins=tuple((origin.source, origin.locator) for origin in conflict.origins),
    )


def describe_conflict(conflict: Conflict) -> str:
    """Describe a conflict in one short line."""
    key = shortened(one_line(conflict.key), 8)
    text = shortened(one_line(conflict.text), 12)
    return f"{key}: [{conflict.source}] says {text}, loses to [{conflict.against}] ({conflict.reason})"


# -- Compression ---------------------------------------------------------------------------------------------------


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The number of sentences that a compressed brief shows, and the number that its passages had."""

    sentences: int = 0
    of: int = 0

    def describe(self) -> str:
        return f"compressed: {self.sentences} of {self.of} sentences are shown, in their own words"


def compress_passages(
    passages: Sequence[Passage],
    *,
    query: str,
    budget_tokens: int,
    cost: Callable[[Passage], Passage],
) -> tuple[list[Passage], Coverage | None]:
    """Shorten passages so that together they fit the budget. Return them, and how many sentences they still show.

    If all passages fit as they are, the second value is None. `cost` returns a passage with its token count set. A
    sentence scores higher if it contains more terms of the query, if its terms are rare, and if its passage has a
    higher score. The best sentences are chosen, and keep their order; a passage without a chosen sentence is dropped.
    """
    priced = [cost(each) for each in passages]
    if sum(each.tokens for each in priced) <= budget_tokens:
        return priced, None
    pieces = [_pieces(each.text) for each in passages]
    scores = _scores(passages, pieces, query)
    chosen: list[set[int]] = [set() for _ in passages]
    shown: list[Passage | None] = [None] * len(passages)
    left = budget_tokens
    for _, place, number in sorted((-score, place, number) for (place, number), score in scores.items()):
        candidate = cost(_join(passages[place], pieces[place], chosen[place] | {number}))
        before = shown[place]
        more = candidate.tokens - (0 if before is None else before.tokens)
        if more <= left:
            chosen[place].add(number)
            shown[place] = candidate
            left -= more
    coverage = Coverage(sentences=sum(map(len, chosen)), of=sum(map(len, pieces)))
    return [each for each in shown if each is not None], coverage


def _pieces(text: str) -> list[str]:
    return list(split(text)) or [text]


def _scores(passages: Sequence[Passage], pieces: Sequence[Sequence[str]], query: str) -> dict[tuple[int, int], float]:
    """Return the score of each sentence, by the index of its passage and its own index in the passage.

    `pieces` has the sentences of each passage. A sentence with fewer than SENTENCE_TOKENS_MIN tokens gets no score,
    unless it is the whole passage.
    """
    counts_of = {
        (place, number): Counter(terms(sentence))
        for place, sentences in enumerate(pieces)
        for number, sentence in enumerate(sentences)
        if len(sentences) == 1 or estimate(sentence) >= SENTENCE_TOKENS_MIN
    }
    spread = Counter(term for counts in counts_of.values() for term in counts)
    query_terms = set(terms(query))
    scores = {}
    for (place, number), counts in counts_of.items():
        rarity = {term: math.log(1 + len(counts_of) / spread[term]) for term in counts}
        relevance = math.fsum(rarity[term] for term in counts if term in query_terms)
        own = math.fsum(rarity.values()) / (1 + len(rarity))
        scores[place, number] = (relevance + 0.1 * own) * (0.5 + passages[place].score)
    return scores


def _join(passage: Passage, sentences: Sequence[str], chosen: set[int]) -> Passage:
    if len(chosen) == len(sentences):
        return passage
    text = ""
    last = -1
    for number in sorted(chosen):
        between = ("" if number == 0 else GAP.lstrip()) if last < 0 else (" " if number == last + 1 else GAP)
        text += between + sentences[number]
        last = number
    return msgspec.structs.replace(passage, text=text + (GAP.rstrip() if last + 1 < len(sentences) else ""))
