"""Words for people about a belief: who said it, how certain it is, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mica.format.lines import format_time, plural
from mica.model.belief import KINDS, Belief, BeliefKind

HEADINGS: dict[BeliefKind, str] = {
    "rule": "Rules",
    "preference": "Preferences",
    "decision": "Decisions",
    "fact": "Facts",
    "gotcha": "Gotchas",
    "task": "Open tasks",
    "question": "Open questions",
}
NEWEST_MAX = 4  # of each heading of a summary; `mica beliefs` lists all
OPEN_KINDS: tuple[BeliefKind, ...] = ("task", "question")
NEWEST: tuple[tuple[str, tuple[BeliefKind, ...]], ...] = (
    ("Rules", ("rule", "preference")),
    ("Decisions", ("decision",)),
    ("Open ends", OPEN_KINDS),
    ("Known", ("fact", "gotcha")),
)
CERTAIN, LIKELY = 0.85, 0.6  # from these certainties on, the words are used


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What mica found: how many beliefs of each kind are in force, and the newest of those that matter most."""

    counts: dict[BeliefKind, int] = {}
    newest: tuple[tuple[str, tuple[Belief, ...]], ...] = ()  # headings, each with its newest beliefs

    @property
    def words(self) -> str:
        """The counts in words: "2 rules, 1 decision"."""
        return count_words(self.counts)


def summarize(beliefs: Sequence[Belief]) -> Found:
    """Count beliefs by kind, and return the newest of those that matter most. `beliefs` are sorted newest first."""
    counts: dict[BeliefKind, int] = {kind: sum(each.kind == kind for each in beliefs) for kind in KINDS}
    newest = [(name, tuple([each for each in beliefs if each.kind in kinds][:NEWEST_MAX])) for name, kinds in NEWEST]
    return Found(counts=counts, newest=tuple((name, listed) for name, listed in newest if listed))


def count_words(counts: Mapping[BeliefKind, int]) -> str:
    """Return numbers of beliefs in words: "2 rules, 1 decision"; "" if all are 0."""
    names: dict[BeliefKind, str] = {"task": "open task", "question": "open question"}
    return ", ".join(plural(counts[kind], names.get(kind, kind)) for kind in HEADINGS if counts.get(kind))


def speaker(belief: Belief) -> str:
    """Return who said it first: the name of the user or agent, if it is known."""
    if belief.by == "user":
        return belief.user or "user"
    return belief.agent or belief.by


def certainty_words(belief: Belief) -> str:
    """Return how certain a belief is, in one word."""
    if belief.certainty >= CERTAIN:
        return "certain"
    return "likely" if belief.certainty >= LIKELY else "unsure"


def ending_words(belief: Belief) -> str:
    """Return how and when a belief ended, and why; "" if it has not ended."""
    if belief.state != "ended":
        return ""
    at = f" {format_time(belief.ended_at)}" if belief.ended_at is not None else ""
    by = f" by {belief.replaced_by}" if belief.replaced_by else ""
    reason = f": {belief.reason}" if belief.reason else ""
    return f"{belief.ending}{by}{at}{reason}"
