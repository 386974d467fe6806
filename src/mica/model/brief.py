"""A brief and its passages."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mica.model.event import MARK, EventId

Preset = Literal["quick", "standard", "research", "coordinator"]
PRESETS: dict[Preset, int] = {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}  # tokens
RECENCY_WEIGHT = 0.7  # of a crystal's score; the rest is how well it matches the task


class Passage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a brief: its text, sources, tokens and score."""

    text: str
    sources: tuple[EventId, ...]
    tokens: int
    score: float
    at: datetime
    source: str  # the name of the source that returned it
    kind: str = MARK  # shown to the reader: prompt, commit, files …
    handle: str = ""  # by which a person can look it up
    stands_for: frozenset[EventId] = frozenset()  # events that it makes redundant; if empty, the first of `sources`
    origins: tuple[tuple[str, str], ...] = ()  # of statements from other systems: source and place in it


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The text that one agent receives, within a budget, and what is missing from it."""

    query: str
    text: str
    passages: tuple[Passage, ...]
    tokens: int  # of the text, by the estimator of `mica.tokens`
    budget_tokens: int
    left_out: int = 0  # number of passages that did not fit
    missing: dict[str, str] = {}  # sources that could not answer, and why
    receipt: EventId | None = None  # the event that records this brief
    concepts: tuple[str, ...] = ()  # concepts with statements from other systems in this brief
    coherence: float | None = None  # how far those statements agree, from 0 to 1
    conflicts: tuple[str, ...] = ()  # descriptions of statements that another one overruled
    lost: tuple[Passage, ...] = ()  # the overruled statements as passages
    is_compressed: bool = False
    is_off: bool = False  # nothing was sent: a control for comparison
