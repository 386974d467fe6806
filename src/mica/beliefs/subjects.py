"""Finds what a statement is about: names, paths and terms by which statements are linked, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise

import msgspec

from mica.beliefs.cues import CueFamily, word_list
from mica.model.text_cache import remember_texts
from mica.words import term_of, words

KEYS_MAX = 16  # of one statement; a longer one is found by its names and its longest terms
NAME = "name:"  # prefix of keys that identify a thing: code, a path, a branch, an issue
SAME = "same:"  # prefix of the key that statements with the same words share
TERM_LETTERS_MAX = 24

_CODE_SPAN = re.compile(r"`([^`\n]{2,80})`")
_PATH = re.compile(
    r"(?<![\w@/])(?:[\w.-]+/)+[\w.*-]*[\w*]|(?<![\w/.])[\w-]+\.(?:[a-z]{1,4}\d?|toml|json|yaml|jsonl|local|lock)\b(?!\()"
)
_IDENTIFIER = re.compile(
    r"\b(?:[a-z]+(?:_[a-z0-9]+)+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|[A-Z]{2,}[_\d][A-Z\d_]+|[a-z][a-z0-9]+(?:-[a-z0-9]+)+(?=\s|$|[,.;:]))\b"
)
_FLAG = re.compile(r"(?<!\w)--[a-z][\w-]+")
_ISSUE = re.compile(r"(?<![\w&])#\d{1,6}\b|\b[A-Z]{2,6}-\d{1,6}\b")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
# An ordinal or a label is no value: "step 2" does not replace "step 1".
_LABEL = re.compile(
    r"\b(steps?|stages?|phases?|parts?|numbers?|nr|no|items?|tasks?|tickets?|points?|chapters?|sections?|pages?|figures?"
    r"|rounds?|batch|lines?|rows?|tables?|sprints?|weeks?|options?|variants?|issues?|runs?|tests?|cases?|examples?|slides?"
    r"|schritte?|teil|nummer|punkt|kapitel|abschnitt|seite|zeile|tabelle|runde|woche|aufgabe|variante|option"
    r"|pasos?|fase|partes?|número|tarea|puntos?|capítulo|sección|página|línea|tabla|semana|opción"
    r"|étapes?|partie|numéro|tâche|chapitre|section|page|ligne|tableau|semaine|stap|deel|taak|hoofdstuk|pagina"
    r"|passo|parte|numero|compito|capitolo|sezione|riga)[\s.]*#?\s?(\d+)\b"
)
_SPELLED_NUMBERS = {
    word: str(number)
    for number, listed in {
        1: "one eins uno une un",
        2: "two zwei dos deux",
        3: "three drei tres trois",
        4: "four vier cuatro quatre",
        5: "five fünf cinco cinq",
        6: "six sechs seis",
        7: "seven sieben siete sept",
        8: "eight acht ocho huit",
        9: "nine neun nueve neuf",
        10: "ten zehn diez dix",
    }.items()
    for word in listed.split()
    if word not in ("one", "un", "une", "uno")
}
WEEKDAYS = word_list("weekdays")
_WEAK = word_list("weak_words")
_ALIASES = {
    **dict.fromkeys(["prod", "product"], "product"),
    **dict.fromkeys(["db", "databas"], "databas"),
    **dict.fromkeys(["doc", "document"], "doc"),
    **dict.fromkeys(["config", "configur"], "config"),
    **dict.fromkeys(["repo", "repositori"], "repo"),
    **dict.fromkeys(["dev", "develop"], "develop"),
    **dict.fromkeys(["auth", "authent"], "auth"),
    **dict.fromkeys(["dep", "depend"], "depend"),
}
_CODE_SIGNS = re.compile(r"[(){}\[\]<>=$\"' ]+")


class Subject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a statement is about."""

    names: frozenset[str]  # of things: code, paths, branches, issues; in lower case
    stems: frozenset[str]  # of content words, without numbers
    values: frozenset[str]  # numbers, times, versions and weekdays
    is_negated: bool
    qualifiers: dict[str, frozenset[str]]  # for each stem, those right before it
    labels: frozenset[str]  # numbers that only tell things of a kind apart: "step 2", "phase 3"
    same: str  # equal for statements that say the same in nearly the same words

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which a belief about this subject is looked up, sorted, at most KEYS_MAX."""
        named = [NAME + each for each in sorted(self.names)][: KEYS_MAX // 2]
        terms = sorted(self.stems, key=lambda term: (-len(term), term))[: KEYS_MAX - 1 - len(named)]
        return tuple(sorted({*named, *terms, self.same}))


_NEGATION = CueFamily("negation")


@remember_texts(16_384)
def subject_of(text: str) -> Subject:
    """Return what a text is about."""
    names = set()
    for span in _CODE_SPAN.findall(text):
        names.add(_CODE_SIGNS.sub(" ", span).strip().lower()[:80])
    for pattern in (_PATH, _FLAG, _ISSUE, _IDENTIFIER):
        names.update(match.lower().strip("./") for match in pattern.findall(text))
    names.discard("")
    spoken = words(text)
    labels = _LABEL.findall(text.lower())
    values = {each.strip(".,:/-") for each in _NUMBER.findall(_LABEL.sub(" ", text.lower()) if labels else text)}
    values |= {_SPELLED_NUMBERS[word] for word in spoken if word in _SPELLED_NUMBERS}
    values |= {
        word.removesuffix("s") if word not in ("lunes", "martes", "jueves", "viernes") else word
        for word in spoken
        if word in WEEKDAYS
    }
    stems = {stem for word in spoken if (stem := _stem(word))}
    is_negated = _NEGATION.matches(text)
    numbered = sorted(_label_numbers(labels))
    exact = " ".join([*sorted(stems), *sorted(names), *sorted(values), *numbered, "not" if is_negated else ""])
    return Subject(
        names=frozenset(names),
        stems=frozenset(stems),
        values=frozenset(values),
        is_negated=is_negated,
        qualifiers=_qualifiers(spoken),
        labels=frozenset(_label_numbers(labels)),
        same=SAME + blake2b((exact if stems or names else text.lower()).encode(), digest_size=6).hexdigest(),
    )


def _label_numbers(labels: Iterable[tuple[str, str]]) -> set[str]:
    """Return the numbers of labels with their nouns, so that "step 2" and "phase 2" are different."""
    return {f"{noun.rstrip('s')} {number}" for noun, number in labels}


def _stem(word: str) -> str:
    """Return the stem of a content word, or "" for any other word."""
    if word in _WEAK or word[0].isdigit() or word in WEEKDAYS or word in _SPELLED_NUMBERS:
        return ""
    term = term_of(word) if len(word) <= TERM_LETTERS_MAX else ""
    return _ALIASES.get(term) or _normal(term) if len(term) > 1 else ""


def _qualifiers(spoken: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return, for each content word, the content words right before it: in "the parser timeout", it is "parser"."""
    found: dict[str, frozenset[str]] = {}
    for first, second in pairwise(map(_stem, spoken)):
        if first and second:
            found[second] = found.get(second, frozenset()) | {first}
    return found


def _normal(term: str) -> str:
    """Return a term without the most frequent endings of other languages, so that inflected forms are equal."""
    if len(term) > 6:
        for ending in (
            "ungen",
            "ung",
            "ern",
            "est",
            "en",
            "er",
            "es",
            "em",
            "et",
            "st",
            "os",
            "as",
            "e",
            "s",
            "n",
            "o",
            "a",
            "t",
        ):
            if term.endswith(ending):
                return term[: -len(ending)]
    elif len(term) > 4 and term[-1] in "esnoa":
        return term[:-1]
    return term


def lookup_keys(subjects: Iterable[Subject]) -> list[str]:
    """Return the keys of all subjects, each once, in order."""
    return list(dict.fromkeys(key for subject in subjects for key in subject.keys))
