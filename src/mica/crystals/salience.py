"""How likely an author would come back to a unit: counts of its mentions, weighed by a small table.

The table was learned from stretches of work and what their authors wrote about them afterwards; `bench/digest.py
--learn` makes it again. Counts are plain sums, so a level adds up those of the level below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from mica.crystals.units import IDENTIFIER, is_file
from mica.store.pace import Pause, unhurried

KINDS = ("prompt", "plan", "narration", "task", "edit", "command", "error", "commit")  # tags that the table weighs
REQUESTS = frozenset({"prompt", "plan"})
SIGNALS = (  # what the table weighs
    "marks", "sentences", "share", "spread", "last", "head", "lead", "filler", "chore", "length", "identifier", "file",
    "number", "rarity", "later", *KINDS,
)  # fmt: skip
LENGTH_WORDS_MAX = 60  # a longer sentence is a list or a log: its length says no more
NUMBER_SHARE = 0.5  # what a number's rarity counts: it is seldom repeated in other words

_FILLER = re.compile(
    r"(?:now|next|first|then|great|good|ok(?:ay)?|perfect|excellent|let me|let's|i'll|i will|i need|i have|also|"
    r"merge|bump|update|typo|fix typo|docs?|changelog|release|prepare|wip|tweak|cleanup|clean up|minor|more|another|"
    r"some|oops|lint|format|pin|upgrade)\b",
    re.IGNORECASE,
)
_CHORE = re.compile(
    r"\b(?:typos?|changelog|readme|ci|workflow|pre-commit|lint|flake8|mypy|ruff|black|tox|travis|github actions?|"
    r"codecov|coverage|docs?|documentation|badge|bump|release notes|setup\.py|requirements|dependabot|pyproject|"
    r"copyright|docstring|spelling|grammar|whitespace|formatting|isort|conf\.py|sphinx|tests?)\b",
    re.IGNORECASE,
)


class Mentions(msgspec.Struct, array_like=True, gc=False):
    """How one unit was spoken of. Only sums, and the first and last place."""

    first: int
    last: int
    marks: float = 0.0
    sentences: int = 0
    heads: int = 0  # mentions in the first sentence of a mark
    leads: int = 0  # as the first word of a sentence: a verb, most often
    fillers: int = 0
    chores: int = 0
    words: int = 0  # of the sentences together
    kinds: dict[str, float] = {}

    def add(self, other: Mentions, *, places_before: int) -> None:
        self.last = max(self.last, other.last + places_before)
        for name in ("marks", "sentences", "heads", "leads", "fillers", "chores", "words"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0.0) + count


class Tally(msgspec.Struct):
    """What was counted of a stretch of work: enough to weigh its units again on a higher level."""

    marks: float = 0.0
    places: int = 0
    units: dict[str, Mentions] = {}

    def add(self, other: Tally) -> None:
        """Count what comes after, too, as if it had been counted at once."""
        for unit, mentions in other.units.items():
            if unit not in self.units:
                place = mentions.first + self.places
                self.units[unit] = Mentions(place, place)
            self.units[unit].add(mentions, places_before=self.places)
        self.marks += other.marks
        self.places += other.places


class Table(msgspec.Struct, frozen=True):
    """What the counts are worth."""

    intercept: float
    weights: dict[str, float]
    words: dict[str, tuple[float, float]]  # rarity of a common unit, and how much likelier it makes itself (log odds)
    rare: float  # the rarity of every other unit
    learned_from: tuple[str, ...] = ()  # short hashes of the instances, so that none is scored with what it taught

    def rarity(self, unit: str) -> float:
        known = self.words.get(unit)
        rarity = known[0] if known else self.rare
        return rarity * NUMBER_SHARE if unit.isdigit() else rarity

    def is_common(self, unit: str) -> bool:
        """Whether it says nothing of one work: many have it, or it is a number."""
        return unit in self.words or unit.isdigit()


@lru_cache(maxsize=1)
def shipped() -> Table:
    """The table that comes with mica."""
    return msgspec.json.decode(Path(__file__).with_name("salience.json").read_bytes(), type=Table)


class Said(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sentence of one mark, read once."""

    text: str
    units: tuple[str, ...]  # each once, in order
    place: int  # of its mark among all
    is_head: bool
    kinds: tuple[str, ...]
    weight: float = 1.0

    @property
    def is_filler(self) -> bool:
        return is_filler(self.text)


def is_filler(sentence: str) -> bool:
    """Whether it only leads over to something, or reports housekeeping."""
    return bool(_FILLER.match(sentence))


def tally(said: Iterable[Said]) -> Tally:
    """The counts of sentences in their order."""
    counted = Tally()
    place = -1
    seen: set[str] = set()
    for sentence in said:
        if sentence.place != place:
            place, seen = sentence.place, set()
            counted.marks += sentence.weight
        _count(counted.units, sentence, seen)
    counted.places = place + 1
    return counted


def _count(counts: dict[str, Mentions], sentence: Said, seen: set[str]) -> None:
    """Add the mentions of one sentence; `seen` has the units that its mark named before."""
    filler, chore = sentence.is_filler, bool(_CHORE.search(sentence.text))
    length = min(LENGTH_WORDS_MAX, len(sentence.text.split(maxsplit=LENGTH_WORDS_MAX)))
    for number, unit in enumerate(sentence.units):
        mentions = counts.get(unit)
        if mentions is None:
            mentions = counts[unit] = Mentions(sentence.place, sentence.place)
        mentions.last = sentence.place
        mentions.sentences += 1
        mentions.heads += sentence.is_head
        mentions.leads += number == 0
        mentions.fillers += filler
        mentions.chores += chore
        mentions.words += length
        if unit not in seen:
            seen.add(unit)
            mentions.marks += sentence.weight
            for kind in sentence.kinds:
                mentions.kinds[kind] = mentions.kinds.get(kind, 0.0) + sentence.weight


def merge(tallies: Iterable[Tally]) -> Tally:
    """The counts of several stretches, one after the other, as if they had been counted at once."""
    merged = Tally()
    for each in tallies:
        merged.add(each)
    return merged


def signals(unit: str, mentions: Mentions, counted: Tally, rarity: float) -> tuple[float, ...]:
    """What SIGNALS names, of one unit."""
    span = max(1, counted.places - 1)
    marks, sentences, kinds = mentions.marks, mentions.sentences, mentions.kinds
    asked = sum([kinds.get(kind, 0.0) for kind in REQUESTS]) if kinds else 0.0
    is_identifier = unit.startswith(IDENTIFIER)
    return (
        math.log(max(1.0, marks)),
        math.log(sentences),
        marks / max(1.0, counted.marks),
        (mentions.last - mentions.first) / span,
        mentions.last / span,
        float(mentions.heads > 0),
        mentions.leads / sentences,
        mentions.fillers / sentences,
        mentions.chores / sentences,
        math.log1p(mentions.words / sentences),
        float(is_identifier),
        float(is_identifier and is_file(unit)),
        float(unit.isdigit()),
        rarity,
        float(0 < asked < marks),
        *([kinds.get(kind, 0.0) / max(marks, 1e-9) for kind in KINDS] if kinds else _OF_NO_KIND),
    )


_OF_NO_KIND = (0.0,) * len(KINDS)


def weigh(counted: Tally, table: Table, *, pause: Pause = unhurried) -> Mapping[str, float]:
    """How likely each unit comes up when its author tells of the work, between 0 and 1."""
    likely = {}
    weights = [table.weights.get(name, 0.0) for name in SIGNALS]
    for unit, mentions in counted.units.items():
        pause()
        odds = table.intercept + (table.words[unit][1] if unit in table.words else 0.0)
        for weight, signal in zip(weights, signals(unit, mentions, counted, table.rarity(unit)), strict=True):
            odds += weight * signal
        likely[unit] = 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
    return likely
