"""Recognizes a line that a person copied from a brief, by comparing it with what a brief shows of an event."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mica.brief.crystal_source import excerpt_of_crystal, excerpt_of_teaching
from mica.brief.excerpt import Excerpt
from mica.brief.file_source import KINDS_FOR_TASK, MOST_USED
from mica.brief.mark_source import excerpt_of
from mica.errors import InvalidEvent
from mica.format.fence import neutralize_entry
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, Event, is_tombstone
from mica.model.mark import mark_of
from mica.model.teaching import PROMOTED, teaching_of
from mica.words import words

WORDS_MIN = 2  # to identify a line; too many lines begin with the same single word

_HANDLES = re.compile(r"\((#\d+(?:[ ,]+#\d+)*)\)\s*$")  # at the end of a line of a brief
_DATE_AND_BULLET = re.compile(r"\s*(?:\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?[\s:,]+)?(?:[-*•]\s+)?")
_CORRECTED = re.compile(r", corrected by #\d+(?=:)")  # a note beside the label of a mark
_ELLIPSIS = "…"
_FILES = re.compile(rf"({'|'.join([*KINDS_FOR_TASK, MOST_USED])}):\s*", re.IGNORECASE)
_QUOTED = re.compile("“[^”]*(?:”|$)")  # in the reason for a file: the text of another task
_NEXT_FILE = re.compile(r"\),\s")


def parse_handles(text: str) -> list[str]:
    """Return the event numbers at the end of a line, as in `… (#12 #14)`; if it has none, return the text itself."""
    match = _HANDLES.search(text)
    return re.findall(r"#\d+", match[1]) if match else [text.strip()]


class PastedLine:
    """A line that was copied from a brief, or the first words of one.

    Only words are compared, so blanks, case and punctuation may differ. The line may lack its bullet, its date, its
    label and its event numbers.
    """

    def __init__(self, text: str) -> None:
        self._bare = _DATE_AND_BULLET.sub("", text, count=1)
        self._unnumbered = _CORRECTED.sub("", _HANDLES.sub("", self._bare), count=1)
        self.words = join_words(self._bare)
        forms = dict.fromkeys(map(join_words, (text, self._bare, self._unnumbered)))
        self._forms = [form for form in forms if form.count(" ") + 1 >= WORDS_MIN]

    @property
    def is_long_enough(self) -> bool:
        """True if the line has at least WORDS_MIN words; a shorter one matches nothing."""
        return bool(self._forms)

    def begins(self, *shown: str) -> bool:
        """Return True if one of the texts in `shown` begins with this line."""
        return any(f"{join_words(text)} ".startswith(f"{form} ") for text in shown for form in self._forms)

    def begins_excerpt(self, event: Event, *, is_compressed: bool = False) -> bool:
        """Return True if the text that a brief shows for `event` begins with this line.

        With `is_compressed`, the line may also be some sentences of the text, with ellipses between them.
        """
        if (excerpt := _excerpt_of(event)) is None:
            return False
        text = neutralize_entry(excerpt.text)
        shown = (text, f"{excerpt.kind} {text}")
        return self.begins(*shown) or (is_compressed and any(map(self._is_part, shown)))

    def continues_excerpt(self, event: Event) -> bool:
        """Return True if any line but the first of the text shown for `event` begins with this line."""
        excerpt = _excerpt_of(event)
        return excerpt is not None and self.begins(*neutralize_entry(excerpt.text).splitlines()[1:])

    def names_files(self, steps: Sequence[Event | None], *, has_query: bool) -> bool:
        """Return True if this line is the list of files that a brief shows for `steps`, or the beginning of that list.

        `steps` has the last access to each file. None stands for a purged event, which matches any file. `has_query` is
        True for a brief with a task, in which the list has another label.
        """
        kinds = KINDS_FOR_TASK if has_query else (MOST_USED,)
        if self.begins(*kinds):
            return True
        label = _FILES.match(self._bare)
        if label is not None and label[1].lower() not in kinds:
            return False
        listed = _QUOTED.sub("", self._bare[label.end() :] if label else self._bare)
        files = [file for each in _NEXT_FILE.split(listed) if (file := join_words(each))]
        if not files or len(files) > len(steps) or (label is None and not self.is_long_enough):
            return False
        *whole, last = zip(files, steps, strict=False)
        return all(_is_at(file, step) for file, step in whole) and (
            _is_at(*last) or (label is not None and _begins_path(*last))
        )

    def _is_part(self, text: str) -> bool:
        """Return True if the pieces of this line between ellipses occur in a text, in this order."""
        found = f" {join_words(text)} "
        pieces = [f" {piece} " for each in self._unnumbered.split(_ELLIPSIS) if (piece := join_words(each))]
        place = 0
        for number, piece in enumerate(pieces):
            at = found.find(piece, place)
            if at < 0 or (at > 0 and number == 0 and not self._unnumbered.startswith(_ELLIPSIS)):
                return False
            place = at + len(piece) - 1
        return bool(pieces) and self.is_long_enough


def join_words(text: str) -> str:
    """Return the words of a text, in lower case, with one blank between them."""
    return " ".join(words(text))


def _excerpt_of(event: Event) -> Excerpt | None:
    """Return the excerpt that a brief shows for a mark, a crystal or a teaching; None for any other event."""
    if is_tombstone(event):
        return None
    try:
        if event.name == MARK:
            return excerpt_of(mark_of(event), 0.0)
        if event.name == CRYSTAL:
            return excerpt_of_crystal(crystal_of(event))
        return excerpt_of_teaching(teaching_of(event)) if event.name == PROMOTED else None
    except InvalidEvent:
        return None


def _is_at(file: str, step: Event | None) -> bool:
    return step is None or f"{file} ".startswith(f"{_path(step)} ")


def _begins_path(file: str, step: Event | None) -> bool:
    return step is None or f"{_path(step)} ".startswith(f"{file} ")


def _path(step: Event) -> str:
    return join_words(str(step.data.get("path", "")))
