"""Splits texts into sentences, classifies them, and chooses those that fit a budget best."""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from mica.format import prose
from mica.store.priority import Pause, never_pause, with_pauses

# -- Splitting ------------------------------------------------------------------------------------------------


CLAUSE_WORDS_MIN = 4  # a shorter piece before or after a colon means little by itself
LONG_WORDS = 12  # a shorter sentence is one thought and stays whole
TAIL_CHARACTERS = 12  # last ones, in which the end of a line or sentence is looked for; all would take quadratic time

_LINE = re.compile(r"[^\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_BULLET = re.compile(r"(?:[-*•–—]{1,3}|\d{1,3}[.)]|\[[ xX]\])\s+")
_LINE_END = re.compile(r"[.!?:;…。！？]['\")\]»”’`]*$")
_BLANKS = re.compile(r"\s+")
_SOME_WORDS = re.compile(rf"\s*+(?:\S++\s++){{{CLAUSE_WORDS_MIN - 1}}}\S")
_CLAUSE = re.compile(r"(?<=\w['\")\]`])[:;](?=\s)|(?<=\w)[:;](?=\s)")


def split(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, verbatim and without bullets.

    A line that begins with a small letter continues the line before it.
    """
    for start, end in _paragraphs(text):
        yield from (sentence for sentence in prose.split(text[start:end]) if sentence.strip(": "))


def parts(sentence: str) -> Iterator[str]:
    """Yield the clauses of a long sentence; yield a short sentence whole.

    A long sentence is split at each colon or semicolon that has at least CLAUSE_WORDS_MIN words on both sides. The
    clauses do not contain these colons and semicolons.
    """
    start = 0
    if len(sentence.split(maxsplit=LONG_WORDS)) > LONG_WORDS:
        for mark in _CLAUSE.finditer(sentence):
            if _SOME_WORDS.match(sentence, start, mark.start()) and _SOME_WORDS.match(sentence, mark.end()):
                yield sentence[start : mark.start()]
                start = _after_blanks(sentence, mark.end())
    if rest := sentence[start:].rstrip(": "):
        yield rest


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offset of each paragraph, without the blanks and the bullet around it."""
    first, last = 0, 0
    ended = 0
    for line in _LINE.finditer(text):
        start = line.start() + len(line[0]) - len(line[0].lstrip())
        end = line.end() - (len(line[0]) - len(line[0].rstrip()))
        if start >= end:
            continue
        blank_between = text.count("\n", ended, start) > 1
        ended = end
        bullet = _BULLET.match(text, start, end)
        if first < last and not bullet and not blank_between and _continues(text, first, last, start):
            last = end
            continue
        if first < last:
            yield first, last
        first, last = (bullet.end() if bullet else start), end
    if first < last:
        yield first, last


def _continues(text: str, first: int, last: int, start: int) -> bool:
    tail = text[max(first, last - TAIL_CHARACTERS) : last]
    return (text[start].islower() or text[start] == "(") and not _LINE_END.search(tail)


def _after_blanks(text: str, place: int) -> int:
    blanks = _BLANKS.match(text, place)
    return blanks.end() if blanks else place


# -- Roles ----------------------------------------------------------------------------------------------------


_PRINCIPLE = re.compile(
    r"\b(?:always|never)\s+(?!mind\b|the\s+less\b|been\b|was\b|had\b)\w+"
    r"|\b(?:lessons?|learn(?:ed|t|ings?)|gotcha|rule of thumb|principle|takeaway|in future|from now on|best practice)\b"
    r"|\bmust\s+(?:always|never|not|only|remain|stay)\b|\bshould\s+(?:always|never)\b|^prefer\s",
    re.IGNORECASE,
)
_SIGNIFICANCE = re.compile(
    r"\b(?:because|so that|root cause|otherwise|therefore|as a result|which means|this means|that is why|this is why|"
    r"in order to|turned out|the reason|due to|prevents?|unblocks?)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"^(?:[$<>{}|=]|[#+]+\s|//|#!|\.\.\.)|[({\[=,<|\\]$|=>|&&|\|\||\);|</|/>")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_CUT = re.compile(
    r"(?:…|\.\.\.)['\")\]]*$|\b(?:from|to|of|with|and|or|the|an?|in|for|by|at|as|that|which|is|are)$", re.IGNORECASE
)
_LEADS_ON = re.compile(r":['\"*_)\]]*$")
_CONTINUES = re.compile(r"(?:[Aa]nd|[Oo]r|[Nn]or|[Ww]hich|but|only|because|so|then|than|that|while|whereas|yet)\b(?!-)")
_ANNOUNCED = re.compile(
    r"(?:(?:now|next|first|then|great|good|ok(?:ay)?|perfect|excellent|also|so)\b[,.!:]?\s+)*"
    r"(?:let me|let's|i'll|i will|i need to|i'm going to|i am going to)\b",
    re.IGNORECASE,
)
_INSTRUCTED = re.compile(
    r"(?:(?:and|but|then|also|yes|no|ok(?:ay)?)\b[,.]?\s+)*"
    r"(?:please|do not|don't|never|make sure|be sure|ensure|remember|find out|"
    r"write (?:a|the) tests?|let me know|tell me|show me)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？]['\")\]»”’`*_]*$")
HEADING_WORDS_MAX = 3
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))
_QUOTES = '"`'
_ASKS = re.compile(r"\?\W*$")


def is_fragment(sentence: str) -> bool:
    """True for text that cannot be read by itself: code, a hash, unbalanced brackets, or a part of a sentence.

    A sentence that begins with "which" or "and", or ends with a colon, counts as a part.
    """
    if _CODE.search(sentence) or _HASH.search(sentence) or _CUT.search(sentence):
        return True
    if _LEADS_ON.search(sentence) or _CONTINUES.match(sentence):
        return True
    if any(sentence.count(opening) != sentence.count(closing) for opening, closing in _PAIRS):
        return True
    return any(sentence.count(quote) % 2 for quote in _QUOTES)


def is_heading(sentence: str) -> bool:
    """True for a heading such as "Files to change": a few words without punctuation at the end."""
    return len(sentence.split(maxsplit=HEADING_WORDS_MAX)) <= HEADING_WORDS_MAX and not _SENTENCE_END.search(sentence)


def is_announcement(sentence: str) -> bool:
    """True if a sentence announces what its author is about to do."""
    return bool(_ANNOUNCED.match(sentence))


def is_question(sentence: str) -> bool:
    """True if a sentence is a question."""
    return bool(_ASKS.search(sentence))


def is_instruction(sentence: str) -> bool:
    """True if a sentence is an instruction such as "Do not change anything yet."."""
    return bool(_INSTRUCTED.match(sentence))


def is_principle(sentence: str) -> bool:
    """True if a sentence states a general rule. A question is never a principle."""
    return bool(_PRINCIPLE.search(sentence)) and not is_question(sentence)


def is_significance(sentence: str) -> bool:
    """True if a sentence states a reason or a consequence. A question never does."""
    return bool(_SIGNIFICANCE.search(sentence)) and not is_question(sentence)


# -- Choice under a budget ------------------------------------------------------------------------------------


LENGTH_POWER = 0.8  # of the tokens that a gain is divided by; at 1 short sentences win too often
COVERED_SHARE = 0.85  # of a sentence's units; if other sentences have so many of them, the sentence is redundant


class SentenceCandidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sentence that could be part of a digest."""

    units: tuple[str, ...]  # each once
    tokens: int
    factor: float = 1.0  # by kind of mark and place in it
    is_request: bool = False  # states what was requested, not what was done


def choose(
    candidates: Sequence[SentenceCandidate],
    worth: Mapping[str, float],
    *,
    budget_tokens: int,
    request_tokens: int,
    pause: Pause = never_pause,
) -> list[int]:
    """Choose the candidates with the most worth that fit the budget; returns their indexes in order.

    `worth` maps a unit (term or identifier) to its worth, which may be negative and counts only once. The choice is
    greedy: it takes the sentence with the most worth per token, until no sentence that fits adds worth. Of two equal
    sentences the earlier one is taken. Requests take at most `request_tokens`. The running time is about linear in the
    total number of units.
    """
    left, left_for_requests = budget_tokens, request_tokens
    covered: set[str] = set()
    chosen: set[int] = set()

    def fits(candidate: SentenceCandidate) -> bool:
        return candidate.tokens <= (min(left, left_for_requests) if candidate.is_request else left)

    def score(candidate: SentenceCandidate) -> float:
        gain = sum(worth.get(unit, 0.0) for unit in candidate.units if unit not in covered)
        return gain * candidate.factor / math.pow(candidate.tokens, LENGTH_POWER)

    scores = {number: score(each) for number, each in enumerate(with_pauses(candidates, pause)) if fits(each)}
    naming: dict[str, list[int]] = defaultdict(list)
    for number in scores:
        for unit in candidates[number].units:
            naming[unit].append(number)
    queue = [(-gain, number) for number, gain in scores.items()]
    heapq.heapify(queue)
    while queue:
        pause()
        loss, number = heapq.heappop(queue)
        best = candidates[number]
        if number in chosen or -loss != scores[number] or not fits(best):
            continue  # outdated: chosen, rescored, or too long by now
        if loss >= 0:
            break
        if is_covered(best.units, covered) and chosen:
            continue
        chosen.add(number)
        left -= best.tokens
        left_for_requests -= best.tokens if best.is_request else 0
        new = [unit for unit in best.units if unit not in covered]
        covered.update(new)
        for other in dict.fromkeys(other for unit in new for other in naming[unit]):
            if other not in chosen and fits(candidates[other]):
                scores[other] = score(candidates[other])
                heapq.heappush(queue, (-scores[other], other))
    return sorted(chosen)


def is_covered(units: Collection[str], covered: Collection[str]) -> bool:
    """True if nearly all of `units` are in `covered`. Numbers are ignored."""
    named = [unit for unit in units if not unit.isdigit()]
    return sum(unit in covered for unit in named) >= COVERED_SHARE * len(named)
