"""A brief (the text that an agent receives) and the passages it consists of."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from mica.model.event import MARK, EventId

Preset = Literal["quick", "standard", "research", "coordinator"]
PRESETS: dict[Preset, int] = {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}  # tokens
RECENCY_WEIGHT = 0.7  # the share of recency in a crystal's score; the rest is its match with the task

Section = Literal["rules", "now", "decisions", "known", "files", "background"]
SECTIONS: tuple[Section, ...] = ("rules", "now", "decisions", "known", "files", "background")  # in the order of a brief


class Passage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a brief: its text, sources, tokens and score."""

    text: str
    sources: tuple[EventId, ...]
    tokens: int
    score: float
    at: datetime
    source: str  # the name of the source that returned it
    kind: str = MARK  # the kind of passage, which is shown to the reader: prompt, commit, files …
    handle: str = ""  # a short reference that a person can look up
    section: Section = "background"
    ordinal: int | None = None  # of a sentence among those of its event; None for a whole text
    stands_for: frozenset[EventId] = frozenset()  # events that it makes redundant; if empty, the first of `sources`
    origins: tuple[tuple[str, str], ...] = ()  # for a statement of other systems: pairs (source, place in the source)


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The text that one agent receives within a token budget, its passages, and what is missing from it."""

    query: str
    text: str
    passages: tuple[Passage, ...]
    tokens: int  # of the text, as estimated by `mica.tokens`
    budget_tokens: int
    left_out: int = 0  # number of passages that did not fit into the budget
    needed_tokens: int | None = None  # if no passage fits: the smallest budget with which one would be shown
    missing: dict[str, str] = {}  # sources that could not answer, each with the reason
    receipt: EventId | None = None  # the id of the event that records this brief
    concepts: tuple[str, ...] = ()  # concepts with statements from other systems in this brief
    coherence: float | None = None  # how far those statements agree, from 0 to 1
    conflicts: tuple[str, ...] = ()  # descriptions of the statements that another statement overruled
    lost: tuple[Passage, ...] = ()  # the overruled statements as passages
    is_compressed: bool = False
    is_off: bool = False  # True if the brief was withheld, as a control for comparison
