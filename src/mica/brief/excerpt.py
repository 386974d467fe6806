"""An excerpt: a fragment that mica's own sources give to a brief, with what a passage needs."""

from __future__ import annotations

from mica.model.brief import Passage
from mica.model.event import EventId
from mica.sources.protocol import Fragment


class Excerpt(Fragment, frozen=True, kw_only=True, gc=False):
    """A quotation from the log. Its text may have any length: the budget of the brief decides."""

    key: str = ""
    score: float  # higher is shown first; the mark that answers a task best has 1
    kind: str = "mark"
    stands_for: frozenset[EventId] = frozenset()  # events that need not be shown beside it

    def __post_init__(self) -> None:
        """Nothing is checked: the log did that when the text was stored."""


def passage_of(fragment: Fragment) -> Passage:
    """The line of a brief that a fragment becomes."""
    if isinstance(fragment, Excerpt):
        return Passage(
            text=fragment.text,
            sources=fragment.sources,
            tokens=0,
            score=fragment.score,
            at=fragment.at,
            source=fragment.source,
            kind=fragment.kind,
            handle=fragment.locator,
            stands_for=fragment.stands_for,
        )
    return Passage(
        text=fragment.text,
        sources=fragment.sources,
        tokens=0,
        score=fragment.confidence,
        at=fragment.at,
        source=fragment.source,
        kind=fragment.key,
        origins=((fragment.source, fragment.locator),),
    )
