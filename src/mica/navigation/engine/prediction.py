"""One question to a tree and a past: which files, in which order, how sure, and why. `navigate` and hooks share it."""

from __future__ import annotations

from mica.navigation.engine.calibration import Weights, falling, probability
from mica.navigation.engine.features import Candidates, candidates
from mica.navigation.engine.fields import counted
from mica.navigation.engine.file_blocks import lines_for
from mica.navigation.engine.gate import CONSIDERED
from mica.navigation.engine.mentions import names_in
from mica.navigation.engine.plain import Plain
from mica.navigation.engine.reasons import reasons_for, tier_of
from mica.navigation.engine.signals import QUERY_CHARACTERS_MAX, Question, Signals, signals
from mica.words import terms

LIKELY_MAX = 50  # files whose probability says something; beyond them it is hardly more than chance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica.navigation.engine.file_blocks import Span
    from mica.navigation.engine.task_history import Past
    from mica.navigation.engine.tree import Tree
    from mica.navigation.places import Tier


class Asked(Plain):
    """A question with all that was found for it: what places are made of, and later what is learned from."""

    signals: Signals
    candidates: Candidates
    ranked: tuple[tuple[str, float], ...]  # every candidate with its probability, best first
    predicted: tuple[tuple[str, float], ...]  # the same before it was corrected


class Found(Plain):
    """A file that a task will probably need."""

    path: str
    probability: float
    tier: Tier
    reasons: tuple[str, ...]


def ask(tree: Tree, past: Past, question: Question, weights: Weights) -> Asked:
    """Score every candidate. The same state gives the same answer."""
    found = signals(tree, past, question)
    listed = candidates(found, tree)
    logits = weights.logits(listed.rows)
    order = sorted(range(len(logits)), key=lambda index: (-logits[index], listed.paths[index]))
    raw = [probability(logits[index]) for index in order]
    paths = [listed.paths[index] for index in order]
    return Asked(
        signals=found,
        candidates=listed,
        ranked=tuple(zip(paths, falling([weights.corrected(each) for each in raw]), strict=True)),
        predicted=tuple(zip(paths, raw, strict=True)),
    )


def explained(asked: Asked, past: Past, *, limit: int) -> list[Found]:
    """The files that the task will need, best first, with reasons."""
    best = asked.ranked[:limit]
    among = [path for path, _ in asked.ranked[:CONSIDERED]]
    return [
        Found(
            path=path,
            probability=round(sure, 3),
            tier=tier_of(path, asked.signals),
            reasons=reasons_for(path, asked.signals, past, among=among),
        )
        for path, sure in best
    ]


def lines_in(text: str, path: str, task: str, asked: Asked) -> tuple[tuple[Span, ...], int]:
    """Where in the text of a file to begin for a task, and how many lines it has."""
    words = counted(terms(task[:QUERY_CHARACTERS_MAX]))
    return lines_for(text, words, named=names_in(task), at=asked.signals.mentions.lines.get(path, ()))
