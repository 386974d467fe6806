"""Predict the files that a prompt needs, with probabilities and reasons, and decide whether a hook offers them.

`navigate` and hooks share this module. Measurements on real sessions show that offering the text of files costs more
than it saves, and that a list of paths pays only for prompts that name no files. Therefore a list is offered only if it
will probably save more tokens than it costs, judging by the earlier tasks of this space.
"""

from __future__ import annotations

from mica.navigation.engine.file_blocks import choose_lines
from mica.navigation.engine.frozen_value import FrozenValue
from mica.navigation.engine.inverted_index import count_terms
from mica.navigation.engine.mentions import find_identifiers
from mica.navigation.engine.signals import (
    QUERY_CHARACTERS_MAX,
    Candidates,
    PromptQuestion,
    Signals,
    Weights,
    collect_candidates,
    compute_signals,
    make_monotone,
    to_probability,
)
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal, Protocol, TypeVar

    from mica.navigation.engine.file_blocks import Span
    from mica.navigation.engine.task_history import TaskHistory
    from mica.navigation.engine.tree import FileTree

    Tier = Literal["named", "walked", "words"]  # as in navigation.places, which hooks do not load

    class OfferCandidate(Protocol):
        """A predicted file that may be offered: its probability, and its kind of evidence (see `tier_of`)."""

        @property
        def probability(self) -> float: ...

        @property
        def tier(self) -> str: ...

    OfferCandidateT = TypeVar("OfferCandidateT", bound=OfferCandidate)


LIKELY_MAX = 50  # files whose probability is better than chance

QUOTED_CHARACTERS = 60
STRONG = 0.25  # a signal is given as a reason for files with at least this share of the signal's best score
REASONS_MAX = 3
SURE = 0.5  # a mention with a higher strength is unambiguous: one file has the name, and it is written like code

PATHS_MAX = 5
CONSIDERED = 10  # number of best files that decide the kind of a prompt and are compared with each other
WORDS_MIN = 4  # prompts such as "commit", "yes" or "continue" do not show which files are needed
PROBABILITY_MIN = 0.05
SHARE_MIN = 0.2  # of the best file's probability; a less likely path costs more than it saves
# Tokens that a list saves if its best file is needed, assumed before any task was measured: an upper bound.
FIRST_WORTH = {"open": 300.0, "named": 0.0}  # by kind of prompt, see `kind_of`
WORTH_PSEUDO = 5.0  # FIRST_WORTH counts as much as this many measured lists whose best file was needed
KNOWN_MIN = 3.0  # the sum of the best files' probabilities that measured lists need before any list is offered
SAVED_MAX = 2_000  # tokens counted for one task, so that one long search does not decide


class Prediction(FrozenValue):
    """The ranking of files for one prompt, and the evidence for it, which is used for explanations and training."""

    signals: Signals
    candidates: Candidates
    ranked: tuple[tuple[str, float], ...]  # every candidate with its probability, best first
    predicted: tuple[tuple[str, float], ...]  # the same with uncalibrated probabilities


class PredictedFile(FrozenValue):
    """A file that a task will probably need, with the reasons."""

    path: str
    probability: float
    tier: Tier
    reasons: tuple[str, ...]


def predict(tree: FileTree, past: TaskHistory, question: PromptQuestion, weights: Weights) -> Prediction:
    """Rank all candidate files of the tree for a prompt. The result is deterministic."""
    signals = compute_signals(tree, past, question)
    rated = collect_candidates(signals, tree)
    logits = weights.logits(rated.rows)
    order = sorted(range(len(logits)), key=lambda index: (-logits[index], rated.paths[index]))
    raw = [to_probability(logits[index]) for index in order]
    paths = [rated.paths[index] for index in order]
    return Prediction(
        signals=signals,
        candidates=rated,
        ranked=tuple(zip(paths, make_monotone([weights.correct(each) for each in raw]), strict=True)),
        predicted=tuple(zip(paths, raw, strict=True)),
    )


def explain(prediction: Prediction, past: TaskHistory, *, limit: int) -> list[PredictedFile]:
    """Return the `limit` most probable files of a prediction, best first, each with the reasons."""
    best = prediction.ranked[:limit]
    among = [path for path, _ in prediction.ranked[:CONSIDERED]]
    return [
        PredictedFile(
            path=path,
            probability=round(sure, 3),
            tier=tier_of(path, prediction.signals),
            reasons=reasons_for(path, prediction.signals, past, among=among),
        )
        for path, sure in best
    ]


def find_lines(text: str, path: str, task: str, prediction: Prediction) -> tuple[tuple[Span, ...], int]:
    """Return a pair: the line ranges of a file to read first for a task, and the number of lines of the file.

    `text` is the text of the file, and `path` is its path in the tree.
    """
    words = count_terms(terms(task[:QUERY_CHARACTERS_MAX]))
    return choose_lines(text, words, named=find_identifiers(task), at=prediction.signals.mentions.lines.get(path, ()))


def reasons_for(path: str, signals: Signals, past: TaskHistory, *, among: list[str]) -> tuple[str, ...]:
    """Return at most three reasons why a file was ranked, in a fixed order of importance.

    One possible reason is that the file was used together with another file. That other file is always one of `among`.
    """
    reasons: list[str] = []
    if path in signals.mentions.paths or signals.mentions.names.get(path, 0.0) > SURE:
        reasons.append("named in the prompt")
    elif path in signals.mentions.names:
        reasons.append("its name is a word of the prompt")
    elif path in signals.mentions.folders:
        reasons.append("in a folder named in the prompt")
    if path in signals.mentions.symbols:
        reasons.append("defines a name in the prompt")
    if path in signals.scores["session"]:
        reasons.append("used in this session")
    if is_strong(signals, "prompts", path):
        reasons.append(f"similar task: {_quote(signals.similar.best[path])}")
    if is_strong(signals, "subjects", path):
        reasons.append(f"changed for {_quote(signals.subjects.best[path])}")
    if is_strong(signals, "content", path) or is_strong(signals, "path_words", path):
        reasons.append("contains words of the prompt")
    if is_strong(signals, "walk", path) and (other := past.companion(path, among)):
        reasons.append(f"used together with {other}")
    if not reasons:
        reasons.append("used recently" if path in signals.scores["recent"] else "often changed")
    return tuple(reasons[:REASONS_MAX])


def tier_of(path: str, signals: Signals) -> Tier:
    """Return the tier of a file, which is the kind of evidence that the file is needed.

    It is "named" if the prompt names the file, "walked" if files of earlier prompts or commits point to it, else
    "words".
    """
    if path in signals.mentions.paths:
        return "named"
    walked = ("session", "prompts", "subjects", "walk")
    return "walked" if any(path in signals.scores[signal] for signal in walked) else "words"


def is_strong(signals: Signals, signal: str, path: str) -> bool:
    """True if the score that `signal` gives a file is high enough to give the signal as a reason."""
    scores = signals.scores[signal]
    return path in scores and scores[path] >= STRONG * signals.tops[signal]


def _quote(text: str) -> str:
    text = " ".join(text.split())
    return f"“{text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 1] + '…'}”"


def kind_of(places: Sequence[OfferCandidate]) -> str:
    """Return the kind of a prompt: "named" if it names one of the best predicted files, else "open".

    `places` are the predicted files, best first.
    """
    return "named" if any(place.tier == "named" for place in places[:CONSIDERED]) else "open"


def shortlist(places: Sequence[OfferCandidateT]) -> list[OfferCandidateT]:
    """Return the files that an offer would list: at most PATHS_MAX, and none that is much less probable than the best.

    `places` are the predicted files, best first.
    """
    least = max(PROBABILITY_MIN, SHARE_MIN * places[0].probability) if places else PROBABILITY_MIN
    return [place for place in places[:PATHS_MAX] if place.probability >= least]


def is_too_short(prompt: str) -> bool:
    """True if a prompt has fewer than WORDS_MIN distinct terms, which is too few to predict files."""
    return len(set(terms(prompt))) < WORDS_MIN


def select_offer(
    prompt: str, places: Sequence[OfferCandidateT], *, cost_tokens: int, worth: Mapping[str, float] = FIRST_WORTH
) -> list[OfferCandidateT]:
    """Return the files to offer for a prompt: those of `shortlist` if the offer will probably pay, else none.

    `places` are the predicted files, best first. `cost_tokens` is the cost of the offer. `worth` maps each kind of
    prompt to the number of tokens that a list of files saves if the task needs its first file.
    """
    offered = shortlist(places)
    if not offered or is_too_short(prompt):
        return []
    return offered if offered[0].probability * worth[kind_of(places)] > cost_tokens else []
