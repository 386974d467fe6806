"""Titles of sessions: one short line that says what a session was about."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mica.format import prose

TITLE_CHARACTERS_MAX = 72  # a line of a list on a narrow terminal
REQUEST_CHARACTERS_MAX = 110  # a longer first sentence names its subject worse than a commit does
COURTESY_WORDS_MAX = 5
TITLE_WORDS_MIN = 2  # "hi" names nothing

_CLAUSE = re.compile(r"(?:[;:]|,(?= (?:but|and|so|und|aber|y|pero|et|mais)\b)| [-–—])\s")
_PLEASED = re.compile(
    r"(?:glad|happy|good to hear|great to hear|freut mich|das freut|me alegro|ravie?)\b", re.IGNORECASE
)
_GREETING = re.compile(
    r"\A(?:hi|hey|hello|hallo|moin|hola|salut|bonjour|good morning|guten morgen)\b[\s,!.]*", re.IGNORECASE
)
_THANKED = re.compile(
    r"(?:[\W_]|\b(?:ok(?:ay)?|yes|yep|yeah|sure|fine|right|thanks?|you're|welcome|thank you|thx|great|good|nice|"
    r"perfect|cool|lgtm|super|"
    r"go ahead|go on|continue|proceed|do it|go|please|pls|works|done|ja|genau|gut|danke|bitte|weiter|mach|mach das|"
    r"prima|klar|alles klar|alright|indeed|understood|verstanden|entendido|compris|noted|ha|haha|passt|gern|"
    r"geschehen|de nada|vielen dank|sí|si|vale|gracias|perfecto|bien|dale|adelante|oui|merci|d'accord|parfait|"
    r"vas-y|that|it|all|agree|agreed|sounds|looks|very|much|so|as is|👍)\b|👍)+",
    re.IGNORECASE,
)


def make_title(
    *,
    task: str | None = None,
    requests: Iterable[str] = (),
    commits: Iterable[str] = (),
    other: str = "",
    characters_max: int = TITLE_CHARACTERS_MAX,
) -> str:
    """Return a title from the task, the first request that names something, a commit, or other text.

    A long first request gives way to the first commit. The title never ends inside a word. It is "" if all texts are.
    """
    if task and task.strip():
        return _shorten(task, characters_max)
    subjects = [line for each in commits if (line := each.strip().partition("\n")[0].strip())]
    request = next((first for each in requests if (first := _first_sentence(each))), "")
    if request and (len(request) <= REQUEST_CHARACTERS_MAX or not subjects):
        return _shorten(request, characters_max)
    return _shorten(subjects[0] if subjects else _first_sentence(other), characters_max)


def is_acknowledgement(text: str) -> bool:
    """Return True if a text only agrees or thanks, such as "ok, go ahead" or "👍 nice"."""
    return _THANKED.fullmatch(text.strip()) is not None


def is_courtesy(text: str) -> bool:
    """Return True if a text is polite and says nothing, such as "Happy to help!"."""
    is_short = len(text.split()) <= COURTESY_WORDS_MAX
    return is_acknowledgement(text) or (is_short and (text.rstrip().endswith("!") or bool(_PLEASED.match(text))))


def _first_sentence(text: str) -> str:
    """Return the first sentence of a text that names something."""
    for each in prose.sentences(prose.clean(text[:20_000])):
        bare = _GREETING.sub("", each.text, count=1).strip()
        if len(bare.split()) >= TITLE_WORDS_MIN and not is_acknowledgement(bare):
            return bare
    return ""


def _shorten(text: str, characters_max: int) -> str:
    """Return the first line of a text, cut at a clause or, if it has none, after a word."""
    line = " ".join(text.split()).rstrip(" .:;,")
    if len(line) <= characters_max:
        return line
    ends = [clause.start() for clause in _CLAUSE.finditer(line, 24, characters_max + 1)]
    if ends:
        return line[: ends[-1]].rstrip(" .:;,")
    cut = line[: characters_max - 1]
    return (cut.rpartition(" ")[0] or cut).rstrip(" .:;,") + "…"
