"""How the values of purges match that an earlier version of mica stored. They keep their meaning.

A value of four letters or more matched whole words in any spelling, where hyphens and full stops separated words, too.
A shorter value matched literally, from the start of a word or from a sign.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from mica.store.purged_values import SearchedText

_SPELLED_LETTERS_MIN = 4
_BEGINNING = re.compile(r"(?<![^\W_])[^\W_]|[^\w\s]|_")
_LETTERS = re.compile(r"[^\W_]+")


def is_value(value: str, *, is_spelled: bool, matches: Callable[[str], bool]) -> bool:
    """Return True if `matches` accepts the text whose digest an earlier version stored for this value."""
    letters = "".join(_LETTERS.findall(unicodedata.normalize("NFKC", value).casefold()))
    text, has_letters = (letters, True) if len(letters) >= _SPELLED_LETTERS_MIN else (value.strip(), False)
    return is_spelled == has_letters and matches(text)


def parts(searched: SearchedText, size: int, *, is_spelled: bool) -> Iterator[str]:
    """Yield every part of a text that could be a value with `size` characters."""
    text = searched.text
    if len(text) < size:
        return
    if not is_spelled:
        for match in _BEGINNING.finditer(text, 0, max(0, len(text) - size + 1)):
            yield text[match.start() : match.start() + size]
        return
    words = searched.earlier_words
    letters = "".join(words)
    length = 0
    begins, ends = [], set()
    for word in words:
        begins.append(length)
        length += len(word)
        ends.add(length)
    yield from (letters[begin : begin + size] for begin in begins if begin + size in ends)


def written_in(text: str, size: int, *, is_spelled: bool, matches: Callable[[str], bool]) -> str | None:
    """Return the first part of `text` that `matches` accepts, as it is spelled; None if there is none."""
    if not is_spelled:
        return next(filter(matches, parts(SearchedText(text), size, is_spelled=False)), None)
    written = unicodedata.normalize("NFKC", text)
    words = [(word.start(), word.end(), word[0].casefold()) for word in _LETTERS.finditer(written)]
    for number, (start, _, _) in enumerate(words):
        letters = ""
        for _, end, word in words[number:]:
            letters += word
            if len(letters) == size and matches(letters):
                return written[start:end]
            if len(letters) >= size:
                break
    return None
