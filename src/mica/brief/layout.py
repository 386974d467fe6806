"""Renders the text of a brief: lines in sections, between two lines that mark it as data.

The order is stable, so that the prompt caches of model providers can be used: sections come in the order of SECTIONS,
and the lines of a section are in order of time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise

import msgspec

from mica.brief.budget import line_of
from mica.format.fence import CLOSING, OPENING, neutralize_entry, strip_remedy, truncate_reason
from mica.model.brief import SECTIONS, Brief, Passage
from mica.tokens import estimate

CHARACTERS_MAX = 20  # per token, on average; a longer text cannot fit
WORD_TOKENS_LEAST = 0.8  # the fewest tokens that are estimated for a word between blanks: those of a punctuation mark
HEADING_TOKENS = 4  # upper bound of the line that names a section
GAP = " … "  # marks omitted sentences
MONTHS = tuple("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())
DATED_DAYS = 300  # an older date is shown with its year
UNDATED = ("files",)  # sections whose lines have no date


def line(passage: Passage, *, now: datetime | None = None) -> str:
    """Render a passage as one line: its date, its kind, its text, and the event number by which it can be looked up.

    `now` is the time of the brief; without it, the date has its year.
    """
    handle = f" ({passage.handle})" if passage.handle else ""
    date = "" if passage.section in UNDATED else f"{date_of(passage.at, now)} "
    return f"- {date}{neutralize_entry(passage.kind)}: {neutralize_entry(passage.text)}{handle}"


def date_of(at: datetime, now: datetime | None) -> str:
    """Return a date in a few characters: the day and the month, and the year if it is not obvious."""
    day = f"{at.day} {MONTHS[at.month - 1]}"  # not `%b`, which follows the locale of the program
    return day if now is not None and abs((now - at).days) < DATED_DAYS else f"{day} {at.year}"


def with_cost(passage: Passage, *, budget_tokens: int) -> Passage:
    """Return the passage with `tokens` set to an upper bound of the cost of its line.

    If the text is far longer than the budget, `tokens` is simply the number of its characters, which is quicker.
    """
    if len(passage.text) > budget_tokens * CHARACTERS_MAX:
        return msgspec.structs.replace(passage, tokens=len(passage.text))
    return msgspec.structs.replace(passage, tokens=estimate(line(passage) + "\n"))


def cost_within(passage: Passage, limit_tokens: int, *, now: datetime | None = None) -> int | None:
    """Return an upper bound of the tokens of a passage's line, or None if it exceeds `limit_tokens`."""
    return None if _is_too_long(passage.text, limit_tokens) else _within(line(passage, now=now) + "\n", limit_tokens)


def joined_cost_within(passage: Passage, limit_tokens: int) -> int | None:
    """Return an upper bound of the tokens that a sentence adds to its line, or None if it exceeds `limit_tokens`."""
    if _is_too_long(passage.text, limit_tokens):
        return None
    return _within(GAP + neutralize_entry(passage.text), limit_tokens)


def _is_too_long(text: str, limit_tokens: int) -> bool:
    return len(text) > limit_tokens * CHARACTERS_MAX or len(text.split()) * WORD_TOKENS_LEAST > limit_tokens


def _within(text: str, limit_tokens: int) -> int | None:
    tokens = estimate(text)
    return tokens if tokens <= limit_tokens else None


def room(budget_tokens: int, *, missing: Mapping[str, str], notes: Sequence[str] = ()) -> int:
    """Return the tokens that remain for passages after the opening, closing, `notes` and `missing` lines of a brief."""
    return max(0, budget_tokens - estimate("\n".join([OPENING, *notes, *_notes(missing), CLOSING])) - 1)


def best_alone(
    passages: Sequence[Passage],
    *,
    budget_tokens: int,
    missing: Mapping[str, str],
    notes: Sequence[str] = (),
    now: datetime | None = None,
) -> tuple[Passage | None, int | None]:
    """Return the first passage that fits the budget in a brief without other passages, and None.

    If no passage fits, return None and the smallest budget, in tokens, in which one of them would fit. Without
    passages, both values are None.
    """

    def tokens(passage: Passage) -> int:
        return estimate(_frame([*_lines([passage], now), *notes], missing))

    for passage in passages:
        if _visible_characters(passage) <= budget_tokens * CHARACTERS_MAX and tokens(passage) <= budget_tokens:
            return passage, None
    least: int | None = None
    for passage in sorted(passages, key=_visible_characters):
        if least is not None and _visible_characters(passage) > least * CHARACTERS_MAX:
            break
        least = min(tokens(passage), least or sys.maxsize)
    return None, least


def _visible_characters(passage: Passage) -> int:
    return len(passage.text) - sum(map(passage.text.count, " \t\n"))  # runs of blanks cost almost nothing


def render(
    query: str,
    passages: Sequence[Passage],
    *,
    budget_tokens: int,
    left_out: int,
    missing: Mapping[str, str],
    notes: Sequence[str] = (),
    now: datetime | None = None,
    measure: Callable[[str], int] = estimate,
) -> Brief:
    """Render a brief within the budget. The text is empty if there is nothing to show or if nothing fits.

    `passages` are sorted best first but shown by section and time. Sentences of one event share a line. `notes` are
    whole lines, shown after the passages. `measure` counts the tokens that must fit the budget. Passages that do not
    fit are dropped, the worst first. `left_out` is the number of passages that were dropped before this call; the brief
    states the total. `now` is the time of the brief.
    """
    shown = list(passages)
    while True:
        in_order = join_sentences(shown)
        text = _frame([*_lines(in_order, now), *notes], missing)
        if measure(text) <= budget_tokens:
            break
        if not shown:
            text = ""
            break
        shown.pop()
    return Brief(
        query=query,
        text=text,
        passages=tuple(in_order),
        tokens=estimate(text),
        budget_tokens=budget_tokens,
        left_out=left_out + len(passages) - len(shown),
        missing=dict(missing),
    )


def join_sentences(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages in the order of a brief, with the sentences of one event joined to one passage.

    GAP stands for sentences between them that are not shown.
    """

    def place(passage: Passage) -> tuple[object, ...]:
        ordinal = passage.ordinal or 0
        if passage.section == "files":  # in the order of their ranking
            return SECTIONS.index(passage.section), passage.kind, ordinal
        first = passage.sources[0] if passage.sources and passage.ordinal is not None else ""
        return SECTIONS.index(passage.section), passage.at, first, passage.kind, ordinal, passage.sources

    ordered = sorted(passages, key=lambda passage: (*place(passage), passage.text))
    return [_join(list(group)) for _, group in groupby(ordered, key=line_of)]


def _join(sentences: Sequence[Passage]) -> Passage:
    first = sentences[0]
    if len(sentences) == 1:
        return first
    text = first.text
    for before, sentence in pairwise(sentences):
        text = _appended(text, before, sentence)
    return msgspec.structs.replace(
        first,
        text=text,
        sources=tuple(dict.fromkeys(each for sentence in sentences for each in sentence.sources)),
        tokens=sum(each.tokens for each in sentences),
        score=max(each.score for each in sentences),
        stands_for=frozenset().union(*(each.stands_for for each in sentences)),
    )


def _appended(text: str, before: Passage, sentence: Passage) -> str:
    """Return `text`, which ends with the passage `before`, with a later sentence of the same line.

    A sentence may begin with the one before it or with the header of its list, by which it can be understood alone;
    these are not repeated.
    """
    if sentence.section == "files":
        return f"{text}, {sentence.text}"
    if sentence.text.startswith(before.text):
        return text + sentence.text.removeprefix(before.text)
    if sentence.source == before.source == "beliefs":  # whose order in the mark is not known
        return f"{text} {sentence.text}" if text.endswith((".", "!", "?")) else f"{text}; {sentence.text}"
    header, colon, rest = sentence.text.partition(": ")
    if colon and before.text.startswith(header + colon):
        return f"{text.rstrip('.;')}; {rest}"
    return text + (" " if sentence.ordinal == (before.ordinal or 0) + 1 else GAP) + sentence.text


def _lines(passages: Sequence[Passage], now: datetime | None) -> list[str]:
    grouped = groupby(passages, key=lambda passage: passage.section)
    return [
        text
        for section, group in grouped
        for text in (f"## {section.capitalize()}", *(line(p, now=now) for p in group))
    ]


def _frame(lines: Sequence[str], missing: Mapping[str, str]) -> str:
    body = [*lines, *_notes(missing)]
    return "\n".join([OPENING, *body, CLOSING]) if body else ""


def _notes(missing: Mapping[str, str]) -> list[str]:
    return [f"- missing: {neutralize_entry(name)} ({_reason(reason)})" for name, reason in sorted(missing.items())]


def _reason(text: str) -> str:
    return neutralize_entry(truncate_reason(strip_remedy(text)))
