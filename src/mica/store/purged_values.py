"""Decides whether a text contains a value that a purge removes. Everything that a purge searches uses this module.

A value matches whole tokens: `prod-web-01` is not found in `prod-web-01-backup`, nor 12345 in 123456. A token is a name
or a number: letters and digits, which may be joined by one of the signs `-`, `.` and `@` or by underscores. Everything
else ends a token: blanks, quotes, brackets, commas, slashes, colons, equals signs, and the full stop of a sentence. A
value that consists of several tokens matches several whole tokens.

Three forms of a value make different spellings equal:

- folded: case, accents, zeros before a number, the tags of e-mail addresses, and the signs between words do not count;
- regrouped: like folded, for values with many digits, which may be grouped by blanks or hyphens (card numbers);
- exact: nothing is folded. Short values have this form, because another spelling of them would be another word.

The search takes linear time in the length of the text. A stored purge knows only the length and a digest of the form,
so `parts` yields every part of a text that could have this form.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

FOLDED_LETTERS_MIN = 4  # a value with fewer folded letters and digits is exact
REGROUPED_DIGITS_MIN = 8  # a card, account or phone number has more; two shorter numbers side by side are two numbers
AROUND_CHARACTERS = 40  # shown on each side of a match

Form: TypeAlias = Literal["exact", "folded", "regrouped"]

# Letters of scripts that put no blank between words, or attach endings to names. Each of them is a token by itself.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_BLANK_TAG = "\ue000"  # takes the place of the tag of an e-mail address; of the private use area
_ALPHANUMERIC = rf"[^\W_{_UNSPACED}]"
_TOKEN = re.compile(
    rf"[{_UNSPACED}](?<=[^\W_])|{_ALPHANUMERIC}+(?:(?:[-.@\u2010\u2011]|_+|{_BLANK_TAG}+@){_ALPHANUMERIC}+)*"
)
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile(r"[^\W\d_]+|\d+")
# Up to 64 characters, as in an address, so that the search stays linear.
_TAG = re.compile(r"(?<=[^\W_])\+[\w.+-]{0,64}(?=@[^\W_])")
_GROUPING = frozenset([" ", "-", "\u2010", "\u2011", "\u00a0", "\u202f"])
# After these a token may begin although letters precede it: JSON in a string, terminal colors, addresses.
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\[nrtbf]|\x1b\[[0-9;?]*[A-Za-z]|%[0-9A-Fa-f]{2}")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/\"'<>]{1,2000}@")  # user:password@ in an address; a password may contain an @
_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
_SEPARATORS = re.compile(r"[\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_LETTERS_WITHOUT_ACCENTS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})


def fold(text: str) -> str:
    """Return a text without differences of case and accents."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return _ACCENTS.sub("", folded).translate(_LETTERS_WITHOUT_ACCENTS)


class Normal:
    """A text in one form. `text` has the letters and digits; `|` separates two numbers that follow each other."""

    def __init__(self, written: str, tokens: Iterable[tuple[int, int]], *, is_regrouped: bool) -> None:
        parts: list[str] = []
        length, last, after_digits = 0, 0, False
        self.begins: list[tuple[int, int]] = []  # where tokens begin: in `text`, and in the written text
        self.ends: dict[int, int] = {}  # where tokens end: in `text`, and in the written text
        folds = written.lower() if written.isascii() else None
        for start, end in tokens:
            is_first = True
            token = written[start:end]
            is_one = token.isalpha() or token.isdecimal()  # most tokens are; looking for runs in them takes longer
            for begin, stop in [(start, end)] if is_one else [run.span() for run in _RUN.finditer(written, start, end)]:
                folded = fold(written[begin:stop]) if folds is None else folds[begin:stop]
                is_number = folded.isdecimal()
                if is_number and after_digits and not (is_regrouped and written[last:begin] in _GROUPING):
                    parts.append("|")
                    length += 1
                zeros = 0
                if is_number and not is_regrouped:
                    folded = folded.lstrip("0") or "0"
                elif is_number and is_first:
                    zeros = len(folded) - len(folded.lstrip("0") or "0")
                if is_first:
                    self.begins.append((length + zeros, start))
                    is_first = False
                parts.append(folded)
                length += len(folded)
                last, after_digits = stop, is_number
            self.ends[length] = end
        self.text = "".join(parts)

    @property
    def bare(self) -> str:
        """The text from the beginning of the first token on, which is the form of a value."""
        return self.text[self.begins[0][0] :] if self.begins else ""


class Reading:
    """One way to divide a text into tokens. `written` has the characters of the tokens at their places."""

    def __init__(self, written: str) -> None:
        if "+" in written and "@" in written:
            written = _TAG.sub(lambda tag: _BLANK_TAG * len(tag[0]), written)
        self.written = written

    @cached_property
    def tokens(self) -> list[tuple[int, int]]:
        return [token.span() for token in _TOKEN.finditer(self.written)]

    @cached_property
    def folded(self) -> Normal:
        return Normal(self.written, self.tokens, is_regrouped=False)

    @cached_property
    def regrouped(self) -> Normal:
        return Normal(self.written, self.tokens, is_regrouped=True)

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self.tokens]

    def token_at(self, place: int) -> tuple[int, int] | None:
        """Return the token that begins before `place` and ends after it."""
        number = bisect_right(self._starts, place) - 1
        if number < 0:
            return None
        start, end = self.tokens[number]
        return (start, end) if start < place < end else None

    def is_whole(self, start: int, end: int) -> bool:
        """Return True if no token is cut by these bounds."""
        return self.token_at(start) is None and self.token_at(end) is None

    def normal(self, form: Form) -> Normal:
        return self.regrouped if form == "regrouped" else self.folded


class SearchedText:
    """A text that is searched for several values. What takes most of the time is done only once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> str:
        """The whole text without differences of case and accents."""
        return fold(self.text)

    @cached_property
    def letters(self) -> str:
        """The folded letters and digits of the text, without what separates them."""
        text = _TAG.sub("", self.text) if "+" in self.text and "@" in self.text else self.text
        if text.isascii():
            return text.encode().translate(None, _ASCII_SIGNS).decode().lower()
        return _SEPARATORS.sub("", fold(text))

    @cached_property
    def exact_readings(self) -> list[Reading]:
        return list(_readings(self.text))

    @cached_property
    def normal_readings(self) -> list[Reading]:
        if self.text.isascii():
            return self.exact_readings
        return list(_readings(unicodedata.normalize("NFKC", self.text)))

    @cached_property
    def earlier_words(self) -> list[str]:
        """The words of the text, for purges of earlier versions."""
        return _WORD.findall(unicodedata.normalize("NFKC", self.text).casefold())

    def parts(self, form: Form, size: int) -> Iterator[str]:
        """Yield every part of the text that could be a value of this form with `size` characters."""
        if len(self.text) < size and self.text.isascii():
            return
        if form == "exact":
            for reading in self.exact_readings:
                for start in range(len(self.text) - size + 1):
                    if not self.text[start].isspace() and reading.is_whole(start, start + size):
                        yield self.text[start : start + size]
            return
        for reading in self.normal_readings:
            normal = reading.normal(form)
            for begin, _ in normal.begins:
                if begin + size in normal.ends:
                    yield normal.text[begin : begin + size]

    def parts_inside(self, size: int) -> Iterator[str]:
        """Yield every part of the folded text with `size` characters, also inside of words."""
        return (self.folded[start : start + size] for start in range(len(self.folded) - size + 1))


def _readings(text: str) -> Iterator[Reading]:
    """Yield the text as it is, and, if it differs, the text with blanks in place of escapes and credentials' signs."""
    yield Reading(text)
    other = text
    if "\\" in text or "%" in text or "\x1b" in text:
        other = _ESCAPE.sub(lambda escape: " " * len(escape[0]), other)
    if "://" in text and "@" in text:
        other = _CREDENTIALS.sub(lambda credentials: credentials[0][:-1] + " ", other)
    if other != text:
        yield Reading(other)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a text that matches a value, and the characters around it."""

    text: str  # as it is written; of a match inside of a longer word, the whole word
    before: str
    after: str


class PurgedValue:
    """A value that is known, as during a purge, and the texts that match it.

    With `anywhere`, it also matches inside of words; there only case and accents are folded.
    """

    def __init__(self, value: str, *, anywhere: bool = False) -> None:
        self.form, self.normal = _form_of(value)
        self._folded = fold(value.strip())
        self.inside = self._folded if anywhere and self._folded else None
        # Every text that matches has these side by side, apart from signs.
        self._longest = max(re.findall(r"\d+|[^\d|]+", self.normal), key=len)

    def may_be_in(self, text: SearchedText) -> bool:
        """Return False if a quick look shows that a text does not contain the value, not even inside of words."""
        return self._folded in text.folded if self.form == "exact" else self._longest in text.letters

    def is_in(self, text: SearchedText | str) -> bool:
        """Return True if a text contains the value."""
        searched = SearchedText(text) if isinstance(text, str) else text
        if self.inside is not None and self.inside in searched.folded:
            return True
        return any(True for _ in self._spans(searched))

    def matches(self, text: SearchedText) -> Iterator[Match]:
        """Yield every match in a text. Two of them do not overlap."""
        end_of_last = -1
        for written, start, end in sorted((*self._spans(text), *self._spans_inside(text)), key=lambda span: span[1:]):
            if start >= end_of_last:
                end_of_last = end
                yield _match(written, start, end)

    def words_with(self, text: SearchedText) -> Iterator[Match]:
        """Yield the longer words inside of which the value occurs."""
        return (_match(*span) for span in self._spans_of(text, self._folded))

    def _spans(self, searched: SearchedText) -> Iterator[tuple[str, int, int]]:
        if self.form == "exact":
            for reading in searched.exact_readings if self.normal in searched.text else ():
                start = searched.text.find(self.normal)
                while start >= 0:
                    end = start + len(self.normal)
                    if reading.is_whole(start, end):
                        yield searched.text, start, end
                    start = searched.text.find(self.normal, start + 1)
            return
        if not self.may_be_in(searched):
            return
        size = len(self.normal)
        for reading in searched.normal_readings:
            normal = reading.normal(self.form)
            if self.normal not in normal.text:
                continue
            for begin, start in normal.begins:
                if begin + size in normal.ends and normal.text.startswith(self.normal, begin):
                    yield _restored(reading.written, searched), start, normal.ends[begin + size]

    def _spans_inside(self, searched: SearchedText) -> Iterator[tuple[str, int, int]]:
        return iter(()) if self.inside is None else self._spans_of(searched, self.inside)

    def _spans_of(self, searched: SearchedText, folded: str) -> Iterator[tuple[str, int, int]]:
        """Yield the places of a folded text in a text, each extended to the tokens that it cuts."""
        if not folded or folded not in searched.folded:
            return
        places = [place for place, character in enumerate(searched.text) for _ in fold(character)]
        whole = "".join(map(fold, searched.text))
        [reading, *_] = searched.exact_readings
        start = whole.find(folded)
        while start >= 0:
            first, last = places[start], places[start + len(folded) - 1] + 1
            begin = reading.token_at(first)
            end = reading.token_at(last)
            yield searched.text, first if begin is None else begin[0], last if end is None else end[1]
            start = whole.find(folded, start + len(folded))


def _form_of(value: str) -> tuple[Form, str]:
    """Return the form of a value, and the value in this form."""
    [reading, *_] = SearchedText(value).normal_readings
    regrouped, folded = reading.regrouped.bare, reading.folded.bare
    if "|" not in regrouped and sum(map(str.isdecimal, regrouped)) >= REGROUPED_DIGITS_MIN:
        return "regrouped", regrouped
    if len(unicodedata.normalize("NFC", folded).replace("|", "")) >= FOLDED_LETTERS_MIN:
        return "folded", folded
    return "exact", value.strip()


def _restored(written: str, searched: SearchedText) -> str:
    """Return the text of a reading without the changes of the reading. Its length is the same."""
    normalized = searched.text if searched.text.isascii() else unicodedata.normalize("NFKC", searched.text)
    return normalized if len(normalized) == len(written) else written


def _match(written: str, start: int, end: int) -> Match:
    return Match(
        text=written[start:end],
        before=written[max(0, start - AROUND_CHARACTERS) : start],
        after=written[end : end + AROUND_CHARACTERS],
    )
