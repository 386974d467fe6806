"""Finds what a statement is about: names, paths and terms by which statements are linked, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from mica.model.text_cache import remember_texts
from mica.words import terms_of, words

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
WEEKDAYS = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays montag dienstag mittwoch donnerstag freitag samstag sonntag "
    "lunes martes miércoles jueves viernes sábado domingo lundi mardi mercredi jeudi vendredi samedi dimanche".split()
)
# Words that say how something is meant, not what it is about. They are no reason to link two statements.
_WEAK = frozenset(
    # cues
    "always never must should only every each everything everyone anything nothing please pls don dont do not no more less now new old again still already yet later ever instead rather "
    "prefer like love rather decided decision agreed choose chose pick use uses used using make makes made keep keeps take takes go goes going get gets let lets want need needs set put "
    "open todo next remaining done finished fixed implemented question note remember rule actually really just also too very here there today tomorrow yesterday "
    "change changed changes plan okay ok yes yeah sure right good fine thing things stuff way bit lot first last same other another one ones some any all both ask asked tell say said says "
    "add added adds fix remove removed update updated work works working worked run runs running start starts started end ends time times day days week weeks month months year years "
    "after before above below over under during while stay stays staying least most goes hour hours minute minutes second seconds min sec ms per since until from "
    "longer anymore switch switched back forget drop skip bring called renamed rename heißt heisst goes known mean means "
    # German
    "immer nie niemals nur noch nicht kein keine keinen keiner bitte ab jetzt sofort ist sind war wird werden wir ihr sie ich du der die das den dem des ein eine einen einem einer und oder "
    "aber mit von zu zum zur im in an am auf für bei nach vor aus als wie was wenn dann doch auch mal schon hat haben muss müssen soll sollen darf dürfen kann können es man mehr alle alles "
    "nehmen bleiben machen gehen geht neu neue alt alte heute morgen lieber statt über unter durch ohne bis so da hier dort mir mich dir dich uns euch "
    # Spanish
    "siempre nunca ya no el la los las un una unos unas y o pero con de del al en por para es son está están que se lo le les mi tu su nos me te como más menos muy también solo sin hay "
    "ahora hoy mañana todavía aún cuando si sí este esta esto ese esa eso usar usa nuevo nueva vez "
    # French
    "toujours jamais ne pas plus le la les un une des et ou mais avec du au aux en par pour est sont que qui se ce cette ces on je tu il elle nous vous mon ma mes ton ta ses son sa leur "
    "dans sur sans y à aussi très déjà encore quand si oui non faut faire fait être avoir désormais nouveau nouvelle "
    # Dutch, Italian
    "het een van voor met niet wel ook maar dan nog naar bij op te zijn wordt il lo gli di che non per sono è nel della dei delle con anche".split()
)
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
    same: str  # equal for statements that say the same in nearly the same words

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which a belief about this subject is looked up, sorted, at most KEYS_MAX."""
        named = [NAME + each for each in sorted(self.names)][: KEYS_MAX // 2]
        terms = sorted(self.stems, key=lambda term: (-len(term), term))[: KEYS_MAX - 1 - len(named)]
        return tuple(sorted({*named, *terms, self.same}))


_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|without|n't|dont|cannot|cant|stop|kein\w*|nicht|nie|niemals|nichts|ohne|sin|nunca|jamás|nada|pas|jamais|sans|aucune?|niet|geen|nooit|non|mai|senza)\b|n't\b",
    re.IGNORECASE,
)


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
    values = {each.strip(".,:/-") for each in _NUMBER.findall(text)}
    values |= {_SPELLED_NUMBERS[word] for word in spoken if word in _SPELLED_NUMBERS}
    values |= {
        word.removesuffix("s") if word not in ("lunes", "martes", "jueves", "viernes") else word
        for word in spoken
        if word in WEEKDAYS
    }
    content = [
        word
        for word in spoken
        if word not in _WEAK and not word[0].isdigit() and word not in WEEKDAYS and len(word) <= TERM_LETTERS_MAX
    ]
    stems = {
        _ALIASES.get(term) or _normal(term)
        for term in terms_of(content)
        if len(term) > 1 and term not in _SPELLED_NUMBERS
    }
    is_negated = bool(_NEGATION.search(text))
    exact = " ".join([*sorted(stems), *sorted(names), *sorted(values), "not" if is_negated else ""])
    return Subject(
        names=frozenset(names),
        stems=frozenset(stems),
        values=frozenset(values),
        is_negated=is_negated,
        same=SAME + blake2b((exact if stems or names else text.lower()).encode(), digest_size=6).hexdigest(),
    )


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
