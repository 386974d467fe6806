"""Splits text into words and terms, by one rule for all indexes and for all code that ranks search results.

A term is the English Snowball stem of a lower-case word, a number, or one ideograph. Underscores, case changes and
punctuation separate words, so that `SessionCookie`, `session_cookie` and "session cookie" are equal. Irregular forms
have the stem of their base form, so that "what broke" matches "breaks".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

import Stemmer

STOP_WORDS = frozenset(
    "a an and are as at be but by for from had has have he her his i in is it its me my of on or our she so that the"
    " their them they this to was we were what when where which who whom why will with you your did do does how about"
    " been would could should can may if then than there these those not no yes am into out up down over under again"
    " also just".split()
)
IRREGULAR_FORMS = (  # each group: the base form, and the forms that the stemmer cannot trace back to it
    "become became,begin began begun,bind bound,break broke broken,bring brought,build built,buy bought,catch caught,"
    "choose chose chosen,come came,draw drew drawn,drink drank drunk,drive drove driven,eat ate eaten,fall fell fallen,"
    "feel felt,fight fought,find found,fly flew flown,forget forgot forgotten,get got gotten,give gave given,"
    "go went gone goes,grow grew grown,hear heard,hide hid hidden,hold held,keep kept,know knew known,lead led,"
    "leave left,lose lost,make made,meet met,pay paid,ride rode ridden,rise rose risen,run ran,say said,see saw seen,"
    "seek sought,sell sold,send sent,shoot shot,sing sang sung,sit sat,sleep slept,speak spoke spoken,spend spent,"
    "stand stood,swim swam swum,take took taken,teach taught,tell told,think thought,throw threw thrown,"
    "understand understood,wake woke woken,wear wore worn,win won,write wrote written,"
    "child children,foot feet,knife knives,life lives,man men,mouse mice,person people,tooth teeth,wife wives,"
    "woman women"
)
WORD_CHARACTERS_MAX = 64  # longer runs are hashes and base64: they bloat an index and are never searched for

SIGNS = "·×‐-‧‰-⁞←-⏿─-❵➔-➿⬀-⯿🌀-🫿"  # ranges without letters and digits: dashes, quotes, arrows, emoji
_ASCII_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FIRST_FORMS = {form: group.split()[0] for group in IRREGULAR_FORMS.split(",") for form in group.split()}
_stemmer = Stemmer.Stemmer("english")


def _translation_table(replace: Callable[[str], str]) -> bytes:
    """Return a table for `bytes.translate` that maps each ASCII character to `replace(character)`."""
    return "".join(map(replace, map(chr, range(128)))).encode().ljust(256)


_LOWERED = _translation_table(lambda each: each.lower() if each.isalnum() else " ")
_CLASSES = _translation_table(
    lambda each: "0" if each.isdigit() else "a" if each.islower() else "A" if each.isupper() else " "
)


def _is_prose(classes: bytes) -> bool:
    """Return True if a text has no camel case and no digits inside words, so that only blanks and signs separate words.

    `classes` is the text translated with the table _CLASSES.
    """
    if b"aA" in classes or b"AAa" in classes:
        return False
    return b"0" not in classes or not any(pair in classes for pair in (b"a0", b"A0", b"0a", b"0A"))


@cache
def _any_word() -> re.Pattern[str]:
    """Return a pattern for words of any script. It is compiled at first use, because compiling is slow."""
    return re.compile(r"[぀-ヿ㐀-鿿가-힣]|[^\W\d_぀-ヿ㐀-鿿가-힣]+|\d+")


@cache
def _plain() -> re.Pattern[str]:
    """Return a pattern that matches texts of only ASCII characters and SIGNS."""
    return re.compile(rf"[\x00-\x7f{SIGNS}]*")


def words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case, stop words included."""
    found: list[str]
    if text.isascii() or _plain().fullmatch(text):
        # Both branches split like the general rule: the first at a sixth of its cost, the second at a third.
        codes = text.encode("ascii", "replace")  # a question mark separates words as every sign does
        if _is_prose(codes.translate(_CLASSES)):
            found = codes.translate(_LOWERED).decode().split()
        else:
            found = "\n".join(_ASCII_WORD.findall(codes.decode())).lower().split("\n")
            found = found if found[0] else []
    else:
        found = _any_word().findall(_CASE_CHANGE.sub(" ", unicodedata.normalize("NFKC", text)).lower())
    if max(map(len, found), default=0) > WORD_CHARACTERS_MAX:
        return [word for word in found if len(word) <= WORD_CHARACTERS_MAX]
    return found


def terms(text: str) -> list[str]:
    """Return the terms of a text in order: word stems, without stop words and single letters."""
    return terms_of(words(text))


def terms_of(words: Iterable[str]) -> list[str]:
    """Return the terms of words from `words()`, in order. Stop words and single letters are dropped."""
    return [term for word in words if (term := term_of(word))]


@lru_cache(maxsize=65_536)
def term_of(word: str) -> str:
    """Return the term of a word from `words()`. It is empty for stop words and single letters."""
    if word in STOP_WORDS or (len(word) == 1 and word.isascii() and word.isalpha()):
        return ""
    return str(_stemmer.stemWord(_FIRST_FORMS.get(word, word)))


def forget_terms() -> None:
    """Empty the cache of terms."""
    term_of.cache_clear()
