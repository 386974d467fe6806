"""Turns the text of one mark into statements: cleaned sentences with what a reader needs to understand them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from mica.beliefs.cues import CHATTER, CueFamily
from mica.format.prose import ProseSentence, clean, sentences
from mica.model.belief import Place
from mica.tokens import estimate
from mica.words import words

WHOLE_TOKENS_MAX = 20  # a user's turn up to this length stays whole
STATEMENTS_MAX = 40  # of one mark; a longer text is pasted, and each statement costs a lookup
TEXT_CHARACTERS_MAX = 40_000  # of a mark that are read: its beginning and its end
STATEMENT_CHARACTERS_MAX = 600  # a longer "sentence" is data
PRONOUN_WORDS_MAX = 9  # in a longer sentence the pronoun usually refers to a word in the same sentence


class MarkStatement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sentence of a mark, and the text by which it can be understood alone."""

    text: str  # with the header or the sentence before it, if it needs them
    sentence: str  # only the sentence
    header: str = ""
    place: Place
    by: str  # user, agent or tool
    ordinal: int  # its number in the mark, from 0
    is_answer: bool = False  # a short answer, completed from the words that it answers


_PRONOUN = CueFamily("pronoun")
_QUOTATION = re.compile(r"\"[^\"\n]{2,400}\"|“[^”\n]{2,400}”|„[^“”\n]{2,400}[“”]|«[^»\n]{2,400}»")
_HEADED = re.compile(r"^[^:]{2,40}:(?:\s|$)")


def statements(text: str, *, place: Place, by: str, answered: str = "") -> list[MarkStatement]:
    """Return the statements of a mark in order, at most STATEMENTS_MAX: of a longer text its beginning and its end.

    `answered` is the end of what the agent wrote before, which completes a short answer.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        first, last = text[: TEXT_CHARACTERS_MAX // 2], text[-TEXT_CHARACTERS_MAX // 2 :]
        text = f"{first.rpartition(_gap(first))[0]}\n\n{last.partition(_gap(last))[2]}"
    cleaned = clean(text)
    if not cleaned.strip():
        return []
    flat = " ".join(cleaned.split())
    if by == "user" and answered and is_short_answer(flat):
        answer, rest = _first_sentence(flat)
        if completed := complete_answer(answer, answered):
            own = MarkStatement(text=completed, sentence=completed, place=place, by=by, ordinal=0, is_answer=True)
            others = statements(rest, place=place, by=by) if rest else []
            return [own, *(msgspec.structs.replace(each, ordinal=each.ordinal + 1) for each in others)]
    if by == "user" and "\n\n" not in cleaned.strip() and estimate(flat) <= WHOLE_TOKENS_MAX:
        found = [] if is_chatter(flat) else [ProseSentence(text=flat)]
    else:
        found = [each for each in sentences(cleaned, is_wrapped=place == "commit") if not is_chatter(each.text)]
    if len(found) > STATEMENTS_MAX:
        found = found[: STATEMENTS_MAX // 2] + found[-STATEMENTS_MAX // 2 :]
    return [
        MarkStatement(
            text=_with_context(each, found[index - 1] if index else None),
            sentence=each.text,
            header=each.header,
            place=place,
            by=by,
            ordinal=index,
        )
        for index, each in enumerate(found)
        if len(each.text) <= STATEMENT_CHARACTERS_MAX
    ]


def _first_sentence(text: str) -> tuple[str, str]:
    """Return the first sentence of a text, and what follows it. A comma does not end a sentence."""
    first = next(iter(sentences(text)), None)
    if first is None or not text.startswith(first.text) or len(first.text) == len(text):
        return text, ""
    return first.text, text[len(first.text) :].strip()


def _gap(text: str) -> str:
    """Return what separates the parts at which a text is cut: line ends, or blanks if it has none."""
    return "\n" if "\n" in text else " "


def is_chatter(sentence: str) -> bool:
    """True for a sentence without any content, such as an acknowledgement."""
    return not words(sentence) or CHATTER.matches(sentence)


def without_quotations(sentence: str) -> str:
    """Return a sentence with its quotations and code spans emptied: what is quoted is not stated."""
    return _QUOTATION.sub('""', re.sub(r"`[^`\n]*`", "``", sentence))


def _with_context(sentence: ProseSentence, before: ProseSentence | None) -> str:
    text = sentence.text
    if before is not None and before.paragraph == sentence.paragraph and needs_before(text):
        text = f"{before.text} {text}"
    if sentence.header and not _HEADED.match(text):
        text = f"{sentence.header}: {text}"
    return text


def needs_before(sentence: str) -> bool:
    """True if a sentence begins with a pronoun or has one as its object, so it is unclear without the one before."""
    match = _PRONOUN.pattern.search(sentence.lower())
    return match is not None and (match.start() > 0 or len(sentence.split()) <= PRONOUN_WORDS_MAX)


# -- Answers --------------------------------------------------------------------------------------------------

ANSWER_WORDS_MAX = 12
_YES = CueFamily("yes")
_ALL = CueFamily("all")
# The number of an option: alone, or in a list of numbers, and never a count before a noun ("leave 3 NATs").
_NUMBERS = re.compile(
    r"(?<![\w.,:%-])(\d)(?=\s*(?:$|[.,;:!+&/)]|and\b|und\b|y\b|et\b|or\b|oder\b|but\b|first\b|please\b|bitte\b))"
)
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "former": 1, "latter": 2,
    "erste": 1, "ersten": 1, "zweite": 2, "zweiten": 2, "dritte": 3, "dritten": 3,
    "primera": 1, "primero": 1, "segunda": 2, "segundo": 2, "tercera": 3,
    "première": 1, "premier": 1, "deuxième": 2, "seconde": 2, "troisième": 3,
}  # fmt: skip
_OPTION = re.compile(
    r"^\s*(?:[-*]\s+)?(?:\*\*)?(?:option |variante? |opción )?(\d|[a-d])(?:\*\*)?[.):]\s+(.{3,400})$",
    re.IGNORECASE | re.MULTILINE,
)
_LETTER = re.compile(
    r"\b(?:option|variante?|opción|choix|plan|take|go with|use|nimm|nehmen wir)\s+([a-d])\b|^(?:ok,? )?([a-d])[.!,]?$",
    re.IGNORECASE,
)
_OFFER = CueFamily("offer")


def is_short_answer(text: str) -> bool:
    """True if a user's text may be an answer that is not clear without the words before it."""
    bare = " ".join(text.split())
    if not bare or len(bare.split()) > ANSWER_WORDS_MAX or bare.endswith("?"):
        return False
    return bool(_YES.matches(bare) or _numbers(bare) or _ALL.matches(bare) or _LETTER.search(bare))


def complete_answer(answer: str, answered: str) -> str:
    """Return a short answer together with the proposal or the options that it chooses; "" if it chooses none."""
    bare = " ".join(answer.split())
    if not is_short_answer(bare):
        return ""
    cleaned = clean(answered)
    options = {match[1].lower(): " ".join(match[2].split()).strip("* ") for match in _OPTION.finditer(cleaned)}
    chosen: Sequence[str] = ()
    if options:
        chosen = [options[number] for number in _numbers(bare) if number in options]
        if not chosen and (letter := _LETTER.search(bare)):
            chosen = [options[each] for each in [(letter[1] or letter[2]).lower()] if each in options]
        if not chosen and _ALL.matches(bare):
            chosen = list(options.values())
    if not chosen:
        offers = [each.text for each in sentences(cleaned) if _OFFER.matches(each.text)]
        chosen = offers[-1:] if _YES.matches(bare) and (_is_only_yes(bare) or _ALL.matches(bare)) else []
    return (
        f"{bare.rstrip('.!')}: {'; '.join(chosen).replace('**', '').rstrip('? ')}"[:STATEMENT_CHARACTERS_MAX]
        if chosen
        else ""
    )


def _numbers(answer: str) -> list[str]:
    spelled = [str(_ORDINALS[word]) for word in words(answer) if word in _ORDINALS]
    return list(dict.fromkeys([*_NUMBERS.findall(answer), *spelled]))


def _is_only_yes(answer: str) -> bool:
    """True if nothing but agreement is in an answer."""
    return len(_YES.pattern.sub("", answer.lower()).strip(" ,.!").split()) <= 4
