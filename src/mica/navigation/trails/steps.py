"""The lines that a trail names in each of its files: those of the latest walk that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from mica.model.trail import stands_for
from mica.model.walk import Step

BLOCKS_MAX = 3  # of one file; more are one
GAP_LINES = 10  # between two reads that are one block: nobody skips so few


def steps_of(order: Sequence[str], walks: Sequence[Sequence[Step]], named: Iterable[Step] = ()) -> tuple[Step, ...]:
    """The steps of a trail over these files and patterns, given its walks, oldest first, and what was named by hand.

    Each file has the lines that were read of it last: they are nearest to the file as it is now, and their event and
    hash let them be found again.
    """
    by_hand = list(named)
    found: list[Step] = []
    for item in order:
        own = [step for step in by_hand if (step.pattern or step.path) == item]
        latest = _latest(item, walks)
        if own and (not latest or max(step.at for step in own) >= max(step.at for step in latest)):
            found += own
        else:
            found += [msgspec.structs.replace(step, pattern=item if "*" in item else None) for step in blocks(latest)]
    return tuple(found)


def _latest(item: str, walks: Sequence[Sequence[Step]]) -> list[Step]:
    """What the latest walk read of a file; where none read it, what the latest changed."""
    for operations in (("read",), ("edit", "create")):
        for steps in reversed(walks):
            own = [step for step in steps if step.operation in operations and stands_for(item, step.path)]
            if own:
                return [step for step in own if step.path == own[-1].path]
    return []


def blocks(steps: Sequence[Step]) -> list[Step]:
    """Accesses of one file as few blocks of lines; a single one for the whole file, or where lines are unknown."""
    if not steps:
        return []
    last = steps[-1]
    ranged = [step for step in steps if step.start_line is not None and step.end_line is not None]
    whole = [step for step in steps if step not in ranged or _is_whole(step)]
    if whole or last.operation != "read":
        source = max(whole, key=lambda step: step.at) if whole else last
        return [_reference(source, None, None, source.tokens if source.operation == "read" else None)]
    spans = _joined(ranged)
    lines = sum(_length(step) for step in ranged)
    tokens = [step.tokens for step in ranged if step.tokens is not None]
    per_line = sum(tokens) / lines if tokens and len(tokens) == len(ranged) and lines else None
    return [_block(start, end, ranged, per_line) for start, end in spans]


def _block(start: int, end: int, ranged: Sequence[Step], per_line: float | None) -> Step:
    same = [step for step in ranged if (step.start_line, step.end_line) == (start, end)]
    source = same[-1] if same else [step for step in ranged if start <= (step.start_line or 0) <= end][-1]
    tokens = source.tokens if same else None if per_line is None else round(per_line * (end - start + 1))
    step = _reference(source, start, end, tokens)
    return step if same else msgspec.structs.replace(step, content_hash=None)  # of a text that nobody was shown as one


def _joined(steps: Iterable[Step]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, end in sorted((step.start_line or 1, step.end_line or 1) for step in steps):
        if spans and start <= spans[-1][1] + GAP_LINES:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    while len(spans) > BLOCKS_MAX:
        gaps = [after[0] - before[1] for before, after in pairwise(spans)]
        place = gaps.index(min(gaps))
        spans[place : place + 2] = [(spans[place][0], spans[place + 1][1])]
    return spans


def _length(step: Step) -> int:
    return max(0, (step.end_line or 0) - (step.start_line or 0) + 1)


def _is_whole(step: Step) -> bool:
    return step.total_lines is not None and step.start_line in (0, 1) and (step.end_line or 0) >= step.total_lines


def _reference(step: Step, start: int | None, end: int | None, tokens: int | None) -> Step:
    return msgspec.structs.replace(
        step, operation="read", start_line=start, end_line=end, tokens=tokens, failed=False, pattern=None
    )
