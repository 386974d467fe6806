"""One question to the tree and the past: which files, in which order, how sure, and why."""

from __future__ import annotations

from mica.select.navigation.combine import by_hand, guessed
from mica.select.navigation.past import Past
from mica.select.navigation.places import Place
from mica.select.navigation.reasons import reasons_for, tier_of
from mica.select.navigation.signals import Question, signals
from mica.select.navigation.tree import Tree


class Navigator:
    """What is known of the files and of what was done with them."""

    def __init__(self, tree: Tree | None = None, past: Past | None = None) -> None:
        self.tree = tree or Tree()
        self.past = past or Past()

    def rank(self, question: Question, *, limit: int = 10) -> list[Place]:
        """The files that the task will need, best first. The same state gives the same answer."""
        found = signals(self.tree, self.past, question)
        scores = by_hand(found)
        best = sorted(scores, key=lambda path: (-scores[path], path))[:limit]
        return [
            Place(
                path=path,
                probability=guessed(scores[path]),
                tier=tier_of(path, found),
                reasons=reasons_for(path, found, self.past, among=best),
            )
            for path in best
        ]
