"""The raw signals of one question: for each, how much it says for which file."""

from __future__ import annotations

import heapq

from mica.navigation.engine.fields import counted
from mica.navigation.engine.mentions import Mentions, mentions
from mica.navigation.engine.plain import Plain
from mica.navigation.engine.task_history import SEEDS, Past, Votes
from mica.navigation.engine.tree import Tree
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUERY_CHARACTERS_MAX = 6_000  # of a prompt's words; names are looked for in all of it
BACK = 0.6  # what a prompt of this session counts, for each prompt that came after it

SIGNALS = (
    "path_mention",
    "name_mention",
    "folder_mention",
    "symbol_mention",
    "content",
    "path_words",
    "prompts",
    "subjects",
    "session",
    "recent",
    "frequent",
    "changed",
    "often_changed",
    "last_commits",
    "walk",
    "sibling",
)
Scores = dict[str, float]


class Question(Plain):
    """A prompt, and the files of this session's earlier prompts, the latest prompt last."""

    text: str
    session: tuple[tuple[str, ...], ...] = ()


class Signals(Plain):
    """Every score by signal and file, and what reasons need."""

    scores: dict[str, Scores]
    tops: dict[str, float]  # the best score of each
    mentions: Mentions
    similar: Votes
    subjects: Votes
    word_count: int  # distinct terms of the prompt
    task_count: int


def signals(tree: Tree, past: Past, question: Question) -> Signals:
    """What each signal says of the files of this tree, and of no others."""
    asked = counted(terms(question.text[:QUERY_CHARACTERS_MAX]))
    named = mentions(question.text, tree.names, tree.definers)
    similar, subjects = past.tasks.ask(asked), past.commits.ask(asked)
    scores: dict[str, Scores] = {
        "path_mention": named.paths,
        "name_mention": named.names,
        "folder_mention": named.folders,
        "symbol_mention": named.symbols,
        "content": tree.by_path(tree.content.scores(asked)),
        "path_words": tree.by_path(tree.path_words.scores(asked)),
        "prompts": tree.only(similar.scores),
        "subjects": tree.only(subjects.scores),
        "session": tree.only(session_scores(question.session)),
        "recent": tree.only(past.recent("short")),
        "frequent": tree.only(past.recent("long")),
        "changed": tree.only(past.recently_changed("short")),
        "often_changed": tree.only(past.recently_changed("long")),
        "last_commits": tree.only(past.last_commits()),
    }
    seeds = weighed(scores, {"path_mention": 1.0, "content": 1.0, "prompts": 1.0, "session": 0.5})
    scores["walk"] = tree.only(past.walk(seeds))
    best = heapq.nsmallest(SEEDS, seeds, key=lambda path: (-seeds[path], path))
    scores["sibling"] = tree.only(tree.siblings(best))
    return Signals(
        scores=scores,
        tops={signal: max(found.values(), default=1.0) for signal, found in scores.items()},
        mentions=named,
        similar=similar,
        subjects=subjects,
        word_count=len(asked),
        task_count=past.task_count,
    )


def session_scores(prompts: Sequence[Sequence[str]]) -> Scores:
    """Files of earlier prompts of a session, the latest counting most."""
    scores: Scores = {}
    for back, files in enumerate(reversed(prompts)):
        for path in dict.fromkeys(files):
            scores[path] = scores.get(path, 0.0) + BACK**back
    return scores


def weighed(scores: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """The sum of each signal's share of its own best score."""
    total: Scores = {}
    for signal, weight in weights.items():
        found = scores.get(signal)
        if found:
            best = max(found.values())
            for path, score in found.items():
                total[path] = total.get(path, 0.0) + weight * score / best
    return total
