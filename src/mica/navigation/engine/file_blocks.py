"""Where in a file to begin: blocks from one definition to the next, ranked by the words of the prompt.

History of ranges is not used: measured, the lines read last are not the lines read next (docs/navigation.md).
"""

from __future__ import annotations

import math
import re

from mica.tokens import about
from mica.words import term_of, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Span = tuple[int, int]  # the first line and the last

BLOCK_LINES_MAX, WINDOW_LINES, BLOCK_LINES_MIN = 60, 40, 4
WHOLE_TOKENS = 500  # a file below this is offered whole
BLOCKS_MAX = 3
HEAD_WEIGHT, NAMED_WEIGHT, LINE_WEIGHT = 0.3, 1.0, 2.0

_DEFINITION = re.compile(
    r"^\s{0,8}(?:@[\w.]+\s+)?(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|abstract\s+"
    r"|pub(?:\([a-z]+\))?\s+|final\s+)*"
    r"(?:def|class|function\*?|func|fn|interface|type|enum|struct|trait|impl|module|namespace|const|let|var|object)\s+"
    r"(?:\([^)]*\)\s*)?([A-Za-z_$][\w$]*)"
)


def definitions(text: str) -> list[tuple[str, int]]:
    """The names that a file defines, with their lines. A plain rule for common languages."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if (match := _DEFINITION.match(line)) is not None:
            found.append((match[1], number))
    return found


def lines_for(
    text: str, asked: Collection[str], *, named: Collection[str] = (), at: Sequence[Span] = ()
) -> tuple[tuple[Span, ...], int]:
    """The lines to begin with, in order, and how many the file has; no lines where all of it is as good.

    `asked` are terms of the prompt, `named` the words that may be symbols, `at` lines that it names.
    """
    rows = text.split("\n")
    total = len(rows) - (rows[-1] == "")
    if about(text) <= WHOLE_TOKENS:
        return (), total
    defined = definitions(text)
    blocks = _blocks(rows[:total], [line for _, line in defined])
    scored = _scored(rows, blocks, set(asked), [line for name, line in defined if name in named], at)
    best = sorted(scored, key=lambda each: (-each[0], each[1]))[:BLOCKS_MAX]
    threshold = best[0][0] / 2 if best else 0.0
    chosen = sorted(block for score, block in best if score > HEAD_WEIGHT and score >= threshold)
    return tuple(_joined(chosen)), total


def _blocks(rows: Sequence[str], starts: Sequence[int]) -> list[Span]:
    edges = sorted({1, *starts})
    blocks: list[Span] = []
    for start, after in zip(edges, [*edges[1:], len(rows) + 1], strict=True):
        if blocks and after - start < BLOCK_LINES_MIN and after - blocks[-1][0] <= BLOCK_LINES_MAX:
            blocks[-1] = (blocks[-1][0], after - 1)
        elif after - start > BLOCK_LINES_MAX:
            blocks += [(line, min(line + WINDOW_LINES, after) - 1) for line in range(start, after, WINDOW_LINES)]
        elif after > start:
            blocks.append((start, after - 1))
    return blocks


def _scored(
    rows: Sequence[str], blocks: Sequence[Span], asked: set[str], defined: Sequence[int], at: Sequence[Span]
) -> list[tuple[float, Span]]:
    known: dict[str, str] = {}  # of each word, the term if it is asked for
    counts = [_counts(rows[start - 1 : end], asked, known) for start, end in blocks]
    holding = {term: sum(term in each for each in counts) for term in asked}
    scored = []
    for (start, end), found in zip(blocks, counts, strict=True):
        score = math.fsum(
            math.log(1 + (len(blocks) - holding[term] + 0.5) / (holding[term] + 0.5)) * count / (count + 1.2)
            for term, count in sorted(found.items())
        )
        score += NAMED_WEIGHT * sum(start <= line <= end for line in defined)
        score += LINE_WEIGHT * sum(first <= end and last >= start for first, last in at)
        scored.append((score + HEAD_WEIGHT / (1 + start / 20), (start, end)))
    return scored


def _counts(rows: Sequence[str], asked: set[str], known: dict[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words("\n".join(rows)):
        term = known.get(word)
        if term is None:
            found = term_of(word)
            term = known[word] = found if found in asked else ""
        if term:
            counts[term] = counts.get(term, 0) + 1
    return counts


def _joined(blocks: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in blocks:
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
