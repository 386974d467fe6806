"""Excerpts: texts from mica's own log, each with a score and with the events that need not be shown beside it."""

from __future__ import annotations

from mica.model.brief import Passage, Section
from mica.model.event import EventId
from mica.sources.protocol import Fragment


class Excerpt(Fragment, frozen=True, kw_only=True, gc=False):
    """A text made from events of the log, such as the text of a mark or a list of files that were opened.

    It may be of any length, because the budget of the brief limits what is shown.
    """

    key: str = ""
    score: float  # higher is shown first; the best matching mark has 1
    kind: str = "mark"
    section: Section = "background"
    ordinal: int | None = None  # of a sentence among those of its event; None for a whole text
    stands_for: frozenset[EventId] = frozenset()  # events that need not be shown if this is shown

    def __post_init__(self) -> None:
        """Skip the checks of `Fragment`: the log checked the text when it was stored."""


def passage_of(fragment: Fragment) -> Passage:
    """Convert a fragment to a passage of a brief."""
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
            section=fragment.section,
            ordinal=fragment.ordinal,
        )
    return Passage(
        text=fragment.text,
        sources=fragment.sources,
        tokens=0,
        score=fragment.confidence,
        at=fragment.at,
        source=fragment.source,
        kind=fragment.key,
        section="known",
        origins=((fragment.source, fragment.locator),),
    )
