"""Estimates how many tokens a text costs, by one rule for every budget.

A model's own tokenizer needs megabytes of vocabulary, and for the newest models none is public. The estimate looks
only at the shape of a text: words, digits, line ends, runs of blanks, punctuation, letters beyond ASCII.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # hooks load this module, and importing `collections` takes longer than the rest of it
    from collections.abc import Callable

ESTIMATOR = "regex-1"  # name and version, stored with every estimate

# Prices in hundredths of a token, fixed before any corpus was looked at. tests/test_tokens.py checks that the error
# against real tokenizers stays below the documented one.
_WORD = 100
_LETTER = 17  # each letter of a word after the seventh
_DIGITS = 100  # three digits or fewer
_LINE_END = 75  # with all blanks around it
_BLANKS = 40  # two or more within a line
_PUNCTUATION_RUN = 55
_PUNCTUATION = 25  # each character of such a run
_BEYOND_ASCII = 110  # each character


def _flags(belongs: Callable[[str], bool]) -> bytes:
    """Return a table for `bytes.translate`: 1 for each ASCII character that `belongs` accepts, 0 for the others."""
    return bytes(code < 128 and belongs(chr(code)) for code in range(256))


_LETTERS = _flags(str.isalpha)
_LINE_ENDS = _flags(lambda character: character == "\n")
_SPACES = _flags(lambda character: character.isspace() and character != "\n")
_MARKS = _flags(lambda character: not character.isalnum() and not character.isspace() and character != "?")
_DIGIT_OR_BLANK = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
_SPACE_CODES = bytes(code for code in range(256) if _SPACES[code])
_RARE_SPACES = _SPACE_CODES.replace(b" ", b"")


SAMPLE_CHARACTERS = 2_048  # of one sample; four of them represent a long text
SAMPLES = 4


def about(text: str) -> int:
    """Return the approximate token count of a text, within a few percent. Use `estimate` for budgets.

    Only samples of a long text are counted, so the time does not grow with its length.
    """
    if len(text) <= SAMPLES * SAMPLE_CHARACTERS:
        return estimate(text)
    step = (len(text) - SAMPLE_CHARACTERS) // (SAMPLES - 1)
    sampled = sum(estimate(text[start * step : start * step + SAMPLE_CHARACTERS]) for start in range(SAMPLES))
    return round(sampled * len(text) / (SAMPLES * SAMPLE_CHARACTERS))


def estimate(text: str) -> int:
    """Return the estimated token count of a text, rounded up; 0 for an empty text.

    A text never costs less than a part of it. Two texts joined by a line end cost at most 1 token more than the two
    texts separately. The time is linear in the length of the text: a second for about 50 MB.
    """
    # Runs are counted with shifts of one large integer, a byte for each character: five times faster than a regular
    # expression. "?" replaces characters beyond ASCII, so question marks are first replaced by exclamation marks.
    codes = text.replace("?", "!").encode("ascii", "replace")
    letters = _mask(codes, _LETTERS)
    marks = _mask(codes, _MARKS)
    price = (
        _WORD * _runs(letters)
        + _LETTER * _beyond_the_seventh(letters)
        + _DIGITS * _groups_of_three_digits(codes)
        + _LINE_END * _runs(int.from_bytes(codes.translate(_LINE_ENDS, _SPACE_CODES), "little"))
        + _BLANKS * _wide_blanks(codes)
        + _PUNCTUATION_RUN * _runs(marks)
        + _PUNCTUATION * marks.bit_count()
        + _BEYOND_ASCII * codes.count(b"?")
    )
    return -(-price // 100)


def _mask(codes: bytes, flags: bytes) -> int:
    """Return one large integer with a byte for each character of a text.

    The byte is the flag (0 or 1) that the table `flags` has for the character.
    """
    return int.from_bytes(codes.translate(flags), "little")


def _runs(mask: int) -> int:
    """Count the runs of flagged characters in a mask, as `_mask` returns it.

    A run ends at a flagged character that is followed by one without a flag, or by none.
    """
    return mask.bit_count() - (mask & mask >> 8).bit_count()


def _beyond_the_seventh(letters: int) -> int:
    """Count the letters after the seventh letter of each word. `letters` is a mask of the letters of a text."""
    letters &= letters >> 8
    letters &= letters >> 16
    letters &= letters >> 32
    return letters.bit_count()


def _groups_of_three_digits(codes: bytes) -> int:
    """Count the groups of digits in a text.

    A number is split into groups of three digits; its last group may be shorter.
    """
    digits = codes.translate(_DIGIT_OR_BLANK).replace(b"000", b"1").replace(b"00", b"0")
    return digits.count(b"1") + digits.count(b"0")


def _wide_blanks(codes: bytes) -> int:
    """Count the runs of two or more blanks in a text. Blanks at the beginning of a line do not count."""
    if b"  " not in codes and len(codes.translate(None, _RARE_SPACES)) == len(codes):
        return 0  # the usual text: single spaces only
    spaces = _mask(codes, _SPACES)
    before = (spaces | _mask(codes, _LINE_ENDS)) << 8
    return (spaces & spaces >> 8 & ~before).bit_count()
