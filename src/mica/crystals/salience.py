"""Salience: the probability that an author mentions a unit again, from its counts and a small learned table.

A unit is a term, an identifier or a file name in a sentence. `bench/digest.py --learn` recreates the table from
recorded work and what its authors later wrote about it. Counts are plain sums, so the counts for a week are those of
its days added up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec

from mica.model.text_cache import remember_texts
from mica.store.priority import Pause, never_pause
from mica.words import terms, terms_of, words

# -- Units ----------------------------------------------------------------------------------------------------


IDENTIFIER_CHARACTERS_MAX = 80  # longer ones are generated and not mentioned in prose
IDENTIFIER = "i:"  # prefix of an identifier's unit, so that no word is mistaken for one

EMPTY_WORDS = frozenset(
    terms(
        "after all already any because been before being below between both by did doing done during each else etc few"
        " further get had having here hers him however if into itself let like may me might more most must my new no"
        " nor now of off on once one only onto or other our over own per please same see set should some still such"
        " sure than them there these they this those through to too two under until upon us use used using very via was"
        " we well were what when where which while who whom why will with within without would yes yet you your good"
        " look ok okay need make start first next actually current currently"
        " across along although among around behind beside beyond though toward towards whether"
    )
)  # beyond the stop words of the index: they occur in all work

_NAME = re.compile(r"[A-Za-z_]\w*(?:[./:-]+\w+)*")
_CASE_CHANGE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_ENDING = re.compile(
    r"\.(?:py|pyi|jsx?|tsx?|rs|go|md|rst|txt|jsonl?|ya?ml|toml|cfg|ini|sh|sql|html|s?css|svg|lock|xml|java|kt|[ch]|cpp|"
    r"cs|rb|php|ipynb|csv|env|db|log|proto)$"
)


def units(text: str) -> list[str]:
    """Return the units (terms and identifiers) of a text, with repetitions: all words first, then all identifiers."""
    return [unit for unit, _ in spell_units(text)]


Spelling: TypeAlias = tuple[str, str]  # a unit, and its spelling


def spell_units(text: str) -> Iterator[Spelling]:
    """Yield each unit of a text with the way it is written there: all words first, then all identifiers."""
    for word in words(text):
        if unit := _unit(word):
            yield unit, word
    for name in _NAME.findall(text):
        if identifier := _identifier(name):
            yield IDENTIFIER + identifier.lower(), identifier


def is_file(unit: str) -> bool:
    return unit.startswith(IDENTIFIER) and bool(_ENDING.search(unit))


@remember_texts(65_536)
def _unit(word: str) -> str:
    return next((term for term in terms_of([word]) if term not in EMPTY_WORDS), "")


@remember_texts(65_536)
def _identifier(name: str) -> str:
    """Return the last part of a dotted name or path, or an empty string if this part is a plain word.

    For example, it returns `engine.ts` for `src/app/engine.ts`, and `asdict_` for `attr.asdict_`.
    """
    last = re.split(r"[/:]", name.rstrip(".:/-"))[-1]
    if "." in last and not _ENDING.search(last):
        last = last.rsplit(".", 1)[1]
    is_identifier = "." in last or "_" in last.strip("_") or _CASE_CHANGE.search(last)
    return last if is_identifier and 1 < len(last) <= IDENTIFIER_CHARACTERS_MAX else ""


# -- Counts and weights ---------------------------------------------------------------------------------------


KINDS = ("prompt", "plan", "narration", "task", "edit", "command", "error", "commit")  # tags with a weight in the table
REQUESTS = frozenset({"prompt", "plan"})
SIGNALS = (  # names of the weights in the table
    "marks", "sentences", "share", "spread", "last", "head", "lead", "filler", "chore", "length", "identifier", "file",
    "number", "rarity", "later", *KINDS,
)  # fmt: skip
LENGTH_WORDS_MAX = 60  # a longer sentence is a list or a log; more length has no meaning
NUMBER_SHARE = 0.5  # factor of a number's rarity: numbers are seldom repeated

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


class UnitMentions(msgspec.Struct, array_like=True, gc=False):
    """Counts of the mentions of one unit (a term or identifier), and where it is mentioned first and last."""

    first: int  # index of the mark among all marks, from 0
    last: int
    marks: float = 0.0
    sentences: int = 0
    heads: int = 0  # mentions in the first sentence of a mark
    leads: int = 0  # as the first word of a sentence: a verb, most often
    fillers: int = 0
    chores: int = 0
    words: int = 0  # of the sentences together
    kinds: dict[str, float] = {}

    def add(self, other: UnitMentions, *, places_before: int) -> None:
        self.last = max(self.last, other.last + places_before)
        for name in ("marks", "sentences", "heads", "leads", "fillers", "chores", "words"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0.0) + count


class MentionTally(msgspec.Struct):
    """The mention counts of all units (terms and identifiers) in a stretch of work.

    The tallies of consecutive stretches can be added up.
    """

    marks: float = 0.0
    places: int = 0
    units: dict[str, UnitMentions] = {}

    def add(self, other: MentionTally) -> None:
        """Add the counts of a stretch of work that came after this one."""
        for unit, mentions in other.units.items():
            if unit not in self.units:
                place = mentions.first + self.places
                self.units[unit] = UnitMentions(place, place)
            self.units[unit].add(mentions, places_before=self.places)
        self.marks += other.marks
        self.places += other.places


class Table(msgspec.Struct, frozen=True):
    """The learned weights with which `weigh` turns counts into probabilities."""

    intercept: float
    weights: dict[str, float]
    words: dict[str, tuple[float, float]]  # rarity of a common unit, and its own log odds
    rare: float  # the rarity of every other unit
    learned_from: tuple[str, ...] = ()  # short hashes of the training instances, which are excluded from scoring

    def rarity(self, unit: str) -> float:
        known = self.words.get(unit)
        rarity = known[0] if known else self.rare
        return rarity * NUMBER_SHARE if unit.isdigit() else rarity

    def is_common(self, unit: str) -> bool:
        """Return True for a number, or a unit that is frequent in all work."""
        return unit in self.words or unit.isdigit()


@cache
def load_table() -> Table:
    """Return the weights that are shipped with mica."""
    return msgspec.json.decode(Path(__file__).with_name("salience.json").read_bytes(), type=Table)


class Sentence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sentence of a mark, with its units (terms, identifiers and file names)."""

    text: str
    units: tuple[str, ...]  # each once, in order
    place: int  # index of its mark among all marks, from 0
    is_head: bool
    kinds: tuple[str, ...]
    weight: float = 1.0

    @property
    def is_filler(self) -> bool:
        return is_filler(self.text)


def is_filler(sentence: str) -> bool:
    """Return True for a sentence that is only a transition or reports housekeeping."""
    return bool(_FILLER.match(sentence))


def tally(sentences: Iterable[Sentence]) -> MentionTally:
    """Count the units (terms and identifiers) of `sentences`, which must be in the order of their marks."""
    counted = MentionTally()
    place = -1
    seen: set[str] = set()
    for sentence in sentences:
        if sentence.place != place:
            place, seen = sentence.place, set()
            counted.marks += sentence.weight
        _count(counted.units, sentence, seen)
    counted.places = place + 1
    return counted


def _count(counts: dict[str, UnitMentions], sentence: Sentence, seen: set[str]) -> None:
    """Add the units of one sentence to `counts`. `seen` has the units of earlier sentences of the same mark."""
    filler, chore = sentence.is_filler, bool(_CHORE.search(sentence.text))
    length = min(LENGTH_WORDS_MAX, len(sentence.text.split(maxsplit=LENGTH_WORDS_MAX)))
    for number, unit in enumerate(sentence.units):
        mentions = counts.get(unit)
        if mentions is None:
            mentions = counts[unit] = UnitMentions(sentence.place, sentence.place)
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


def merge(tallies: Iterable[MentionTally]) -> MentionTally:
    """Add up the tallies of consecutive stretches of work, the earliest first."""
    merged = MentionTally()
    for each in tallies:
        merged.add(each)
    return merged


def signals(unit: str, mentions: UnitMentions, counted: MentionTally, rarity: float) -> tuple[float, ...]:
    """Return the numbers from which `weigh` computes the probability of one unit, in the order of SIGNALS."""
    span = max(1, counted.places - 1)
    marks, sentences, kinds = mentions.marks, mentions.sentences, mentions.kinds
    requested = sum([kinds.get(kind, 0.0) for kind in REQUESTS]) if kinds else 0.0
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
        float(0 < requested < marks),
        *([kinds.get(kind, 0.0) / max(marks, 1e-9) for kind in KINDS] if kinds else _OF_NO_KIND),
    )


_OF_NO_KIND = (0.0,) * len(KINDS)


def weigh(counted: MentionTally, table: Table, *, pause: Pause = never_pause) -> Mapping[str, float]:
    """Return, for each unit (term or identifier), the probability that an author mentions it in a summary."""
    likely = {}
    weights = [table.weights.get(name, 0.0) for name in SIGNALS]
    for unit, mentions in counted.units.items():
        pause()
        odds = table.intercept + (table.words[unit][1] if unit in table.words else 0.0)
        for weight, signal in zip(weights, signals(unit, mentions, counted, table.rarity(unit)), strict=True):
            odds += weight * signal
        likely[unit] = 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
    return likely
