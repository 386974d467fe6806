"""Renders the text of a brief: a list of passages by day, between two lines that mark it as data.

The order is stable, so that the prompt caches of model providers can be used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import msgspec

from mica.format.fence import CLOSING, OPENING, bound_tokens, neutralize_entry, strip_remedy, truncate_reason
from mica.model.brief import Brief, Passage
from mica.tokens import estimate

CHARACTERS_MAX = 20  # per token, on average; a longer text cannot fit
WORD_TOKENS_LEAST = 0.8  # the fewest tokens that are estimated for a word between blanks: those of a punctuation mark
DAY_TOKENS = 10  # upper bound of the line with a date


def line(passage: Passage) -> str:
    """Render a passage as one line: its kind, its text, and the event number by which it can be looked up."""
    handle = f" ({passage.handle})" if passage.handle else ""
    return f"- {neutralize_entry(passage.kind)}: {neutralize_entry(passage.text)}{handle}"


def with_cost(passage: Passage, *, budget_tokens: int) -> Passage:
    """Return the passage with `tokens` set to an upper bound of the cost of its line.

    If the text is far longer than the budget, `tokens` is simply the number of its characters, which is quicker.
    """
    if len(passage.text) > budget_tokens * CHARACTERS_MAX:
        return msgspec.structs.replace(passage, tokens=len(passage.text))
    return msgspec.structs.replace(passage, tokens=bound_tokens(line(passage) + "\n"))


def cost_within(passage: Passage, limit_tokens: int) -> int | None:
    """Return an upper bound of the tokens of a passage's line, or None if it exceeds `limit_tokens`."""
    text = passage.text
    if len(text) > limit_tokens * CHARACTERS_MAX or len(text.split()) * WORD_TOKENS_LEAST > limit_tokens:
        return None
    tokens = bound_tokens(line(passage) + "\n")
    return tokens if tokens <= limit_tokens else None


def day(passage: Passage) -> str:
    """Return the date line of a passage."""
    return f"{passage.at:%Y-%m-%d}"


def room(budget_tokens: int, *, missing: Mapping[str, str], notes: Sequence[str] = ()) -> int:
    """Return the tokens that remain for passages after the opening, closing, `notes` and `missing` lines of a brief."""
    return max(0, budget_tokens - bound_tokens("\n".join([OPENING, *notes, *_notes(missing), CLOSING])))


def best_alone(
    passages: Sequence[Passage], *, budget_tokens: int, missing: Mapping[str, str], notes: Sequence[str] = ()
) -> tuple[Passage | None, int | None]:
    """Return the first passage that fits the budget in a brief without other passages, and None.

    If no passage fits, return None and the smallest budget, in tokens, in which one of them would fit. Without
    passages, both values are None.
    """

    def tokens(passage: Passage) -> int:
        return estimate(_frame([*_lines([passage]), *notes], missing))

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
    measure: Callable[[str], int] = bound_tokens,
) -> Brief:
    """Render a brief within the budget. The text is empty if there is nothing to show or if nothing fits.

    `passages` are sorted best first but shown oldest first, so that later passages are appended and the text before
    them stays the same. `notes` are whole lines, shown after the passages. `measure` counts the tokens that must fit
    the budget. Passages that do not fit are dropped, the worst first. `left_out` is the number of passages that were
    dropped before this call; the brief states the total.
    """
    shown = list(passages)
    while True:
        in_order = sorted(shown, key=lambda passage: (passage.at, passage.sources, passage.text))
        text = _frame([*_lines(in_order), *notes], missing)
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


def _lines(passages: Sequence[Passage]) -> list[str]:
    return [text for date, group in groupby(passages, key=day) for text in (date, *map(line, group))]


def _frame(lines: Sequence[str], missing: Mapping[str, str]) -> str:
    body = [*lines, *_notes(missing)]
    return "\n".join([OPENING, *body, CLOSING]) if body else ""


def _notes(missing: Mapping[str, str]) -> list[str]:
    return [f"- missing: {neutralize_entry(name)} ({_reason(reason)})" for name, reason in sorted(missing.items())]


def _reason(text: str) -> str:
    return neutralize_entry(truncate_reason(strip_remedy(text)))
