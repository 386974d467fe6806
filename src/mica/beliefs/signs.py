"""Signs of the kind of a statement, and a linear model that weighs them.

A sign is a family of words in `lexicon.toml`, a frequent word or pair of words, a shape of the sentence, or a cue. The
weights are data (`model.json`), fitted by `scripts/fit_beliefs.py` on sentences with labels. Nothing is learned at run
time, so the same sentence always has the same kind.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise

from mica.model.belief import KINDS
from mica.words import words

NONE = "none"
CLASSES: tuple[str, ...] = (*KINDS, NONE)
PHRASE_WORDS_MAX = 4
PREFIX_LETTERS_MIN = 3
PREFIX_LETTERS_MAX = 9
WORDS_READ_MAX = 60  # of one sentence

_AT_START = frozenset(
    "norm_verbs order_verbs definite_start accept negation wh when before after first_person we choose every only"
    " always never forbid please still remains later unknown warn tools past once feeling unless need_to".split()
)
_PAIRS: tuple[tuple[str, str], ...] = (
    ("tools", "negation"),
    ("tools", "always"),
    ("negation", "unless"),
    ("every", "must"),
    ("every", "negation"),
    ("first_person", "prefer"),
    ("first_person", "dislike"),
    ("first_person", "better"),
    ("first_person", "need_to"),
    ("first_person", "past"),
    ("copula", "number"),
    ("state_verbs", "number"),
    ("definite_start^", "copula"),
    ("definite_start^", "state_verbs"),
    ("we", "choose"),
    ("we", "never"),
    ("we", "always"),
    ("we", "past"),
    ("accept^", "then"),
    ("accept^", "choose"),
    ("norm_verbs^", "always"),
    ("norm_verbs^", "negation"),
    ("norm_verbs^", "when"),
    ("norm_verbs^", "every"),
    ("norm_verbs^", "once"),
    ("order_verbs^", "always"),
    ("order_verbs^", "every"),
    ("order_verbs^", "when"),
    ("order_verbs^", "once"),
    ("when", "breaks"),
    ("when", "must"),
    ("when", "norm_verbs"),
    ("unless", "breaks"),
    ("otherwise", "breaks"),
    ("still", "negation"),
    ("still", "need_to"),
    ("still", "remains"),
    ("still", "once"),
    ("need_to", "later"),
    ("wh", "unknown"),
    ("whether", "unknown"),
    ("asks", "unknown"),
    ("asks", "wh"),
    ("please", "negation"),
    ("please", "once"),
    ("please", "always"),
    ("only", "please"),
    ("past", "always"),
    ("past", "never"),
    ("past", "done"),
    ("choose", "past"),
    ("drop", "we"),
    ("drop", "because"),
    ("instead", "because"),
    ("copula", "always"),
    ("feeling", "always"),
    ("feeling", "prefer"),
    ("once", "prefer"),
)
_ASKED = re.compile(r"\?[\s)\"'”»*_`]*$|？\s*$")
_HEAD = re.compile(r"^[^:.?!]{2,28}:\s")
_CODE = re.compile(r"`|\w[/_]\w|\w\.\w{1,5}\b|--\w")
_NAME = re.compile(r"(?<=[\w,] )[A-ZÀ-Ý][a-zà-ÿ]{2,}")
_LEAD = frozenset(
    "and but so also please pls bitte und aber also y pero por favor et mais stp en maar e ma ok okay well".split()
)


@cache
def _listed() -> dict[str, str]:
    return tomllib.loads(resources.files("mica.beliefs").joinpath("lexicon.toml").read_text("utf-8"))


def family_entries(family: str) -> list[str]:
    """Return the entries of a family of words."""
    return [" ".join(entry.split()) for entry in _listed()[family].split(",")]


@cache
def _lexicon() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]], frozenset[str]]:
    """Return the families of each phrase, of each beginning of a word, and the first words of phrases."""
    raw = _listed()
    phrases: dict[str, set[str]] = {}
    prefixes: dict[str, set[str]] = {}
    for family, listed in raw.items():
        for entry in listed.split(","):
            spoken = " ".join(words(entry))
            if entry.strip().endswith("*"):
                prefixes.setdefault(spoken, set()).add(family)
            elif spoken:
                phrases.setdefault(spoken, set()).add(family)
    firsts = frozenset(phrase.split()[0] for phrase in phrases if " " in phrase)
    return _sorted(phrases), _sorted(prefixes), firsts


def _sorted(families: dict[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {phrase: tuple(sorted(found)) for phrase, found in families.items()}


@cache
def _model() -> dict[str, tuple[float, ...]]:
    raw = json.loads(resources.files("mica.beliefs").joinpath("model.json").read_text("utf-8"))
    return {sign: tuple(weight / 100 for weight in weights) for sign, weights in raw.items()}


def signs_of(sentence: str, *, speaker: str, place: str, cues: Iterable[str] = ()) -> list[str]:
    """Return all signs of a sentence, sorted. `cues` are the kinds that have enough cues."""
    spoken = words(sentence)[:WORDS_READ_MAX]
    while len(spoken) > 2 and spoken[0] in _LEAD:
        lead, spoken = spoken[0], spoken[1:]
        if lead in ("ok", "okay", "well"):
            spoken = [lead, *spoken]
            break
    found, shapes = _families(spoken), _shapes(sentence, spoken)
    found |= shapes
    signs = set(found)
    signs.update(f"{first}+{second}" for first, second in _PAIRS if first in found and second in found)
    side = "u" if speaker == "user" else "c" if place == "commit" else "a"
    signs.update([f"{side}:{sign}" for sign in found if sign[-1] != "^"])
    signs.update([f"w:{word}" for word in spoken])
    signs.update([f"w:{first} {second}" for first, second in pairwise(spoken)])
    signs.update([f"cue:{cue}" for cue in cues])
    signs.update((f"{side}:", "bias"))
    return sorted(signs)


def _families(spoken: Sequence[str]) -> set[str]:
    phrases, prefixes, firsts = _lexicon()
    found: set[str] = set()
    for index, word in enumerate(spoken):
        here: set[str] = set(phrases.get(word, ()))
        if word in firsts:
            phrase = word
            for following in spoken[index + 1 : index + PHRASE_WORDS_MAX]:
                phrase = f"{phrase} {following}"
                here.update(phrases.get(phrase, ()))
        for length in range(PREFIX_LETTERS_MIN, min(PREFIX_LETTERS_MAX, len(word)) + 1):
            if families := prefixes.get(word[:length]):
                here.update(families)
        if index == 0:
            found.update([f"{family}^" for family in here if family in _AT_START])
        found |= here
    return found


def _shapes(sentence: str, spoken: Sequence[str]) -> set[str]:
    count = len(spoken)
    found = {"short" if count < 4 else "brief" if count < 8 else "medium" if count < 16 else "long"}
    if _ASKED.search(sentence) or "¿" in sentence:
        found.add("asks")
    if any(word[0].isdigit() for word in spoken):
        found.add("number")
    if _HEAD.match(sentence):
        found.add("head")
    if _CODE.search(sentence):
        found.add("code")
    if _NAME.search(sentence):
        found.add("name")
    if "," in sentence:
        found.add("comma")
    return found


def probabilities(signs: Iterable[str]) -> dict[str, float]:
    """Return the probability of each kind, and of none, by the weights of the signs."""
    model = _model()
    rows = [weights for sign in signs if (weights := model.get(sign)) is not None]
    sums = [sum(column) for column in zip(*rows, strict=True)] if rows else [0.0] * len(CLASSES)
    top = max(sums)
    powers = [math.exp(each - top) for each in sums]
    total = sum(powers)
    return {name: power / total for name, power in zip(CLASSES, powers, strict=True)}
