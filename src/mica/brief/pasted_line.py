"""Recognizes a line that a person copied from a brief, by comparing it with what a brief shows of an event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from mica.beliefs.statements import statements
from mica.beliefs.testimony import place_of, read_testimony
from mica.brief.crystal_source import excerpt_of_crystal
from mica.brief.file_source import KINDS_FOR_TASK, MOST_USED
from mica.brief.work_source import said_by, speaker_of
from mica.errors import InvalidEvent
from mica.format.fence import neutralize_entry
from mica.model.crystal import crystal_of
from mica.model.event import CRYSTAL, MARK, Event, is_tombstone
from mica.model.mark import Mark, mark_of
from mica.model.teaching import PROMOTED, teaching_of
from mica.words import words

WORDS_MIN = 2  # to identify a line; too many lines begin with the same single word

_HANDLES = re.compile(r"\((#\d+(?:[ ,]+#\d+)*)\)\s*$")  # at the end of a line of a brief
_BULLET = r"(?:[-*•]\s+)?"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DATE = rf"(?:\d{{4}}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?|\d{{1,2}} (?:{_MONTHS})(?: \d{{4}}(?=[\s:,]))?)[\s:,]+"
_DATE_AND_BULLET = re.compile(rf"\s*{_BULLET}(?:{_DATE})?{_BULLET}")
_NOTES = re.compile(r"(?:, (?:corrected by #\d+|conflicts with #\d+(?: #\d+)*))+(?=:)")  # beside a label
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
    label and its event numbers. A line of a brief shows some of the sentences of an event.
    """

    def __init__(self, text: str) -> None:
        self._bare = _DATE_AND_BULLET.sub("", text, count=1)
        self._unnumbered = _NOTES.sub("", _HANDLES.sub("", self._bare), count=1)
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
        """Return True if a line that a brief may show for `event` begins with this line.

        With `is_compressed`, the line may also be some parts of the text, with ellipses between them.
        """
        if (shown := texts_of_event(event)) is None:
            return False
        if self.begins(*(f"{label}{shown.whole}" for label in ("", *(f"{each} " for each in shown.labels)))):
            return True
        first, further = list(map(join_words, shown.texts)), list(map(join_words, [*shown.texts, *shown.parts]))
        bare = list(self._without_label(shown.labels))
        if any(_is_made_of(each, first=first, further=further) for each in bare):
            return True
        return is_compressed and any(
            self._is_part(" ".join(texts[number:]), shown.labels)
            for texts in ([shown.whole], shown.texts)
            for number in range(len(texts))
        )

    def begins_labelled(self, text: str, event: Event) -> bool:
        """Return True if a text begins with this line, with or without one of the labels that `event` may have."""
        if self.begins(text):
            return True
        shown = texts_of_event(event)
        return shown is not None and any(self.begins(f"{label} {text}") for label in shown.labels)

    def continues_excerpt(self, event: Event) -> bool:
        """Return True if this line begins within what a brief may show for `event`: at a later line or sentence."""
        if (shown := texts_of_event(event)) is None or self.begins(shown.whole):
            return False
        if self.begins(*shown.whole.splitlines()[1:]):
            return True
        further = list(map(join_words, (*shown.texts, *shown.parts)))
        return any(_is_made_of(each, first=further, further=further) for each in self._forms)

    def _without_label(self, labels: Iterable[str]) -> Iterable[str]:
        """Yield the words of this line as they are, and without each of `labels` with which it begins."""
        for form in self._forms:
            yield form
            for label in map(join_words, labels):
                if label and f"{form} ".startswith(f"{label} "):
                    yield form[len(label) + 1 :]

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

    def _is_part(self, text: str, labels: Iterable[str]) -> bool:
        """Return True if the pieces of this line between ellipses occur in a text, in this order.

        The first piece may have one of `labels`, and it begins the text unless an ellipsis precedes it.
        """
        found = f" {join_words(text)} "
        first, *others = self._unnumbered.split(_ELLIPSIS)
        starts = {join_words(first)}
        for label in map(join_words, labels):
            starts |= {start[len(label) + 1 :] for start in starts if label and f"{start} ".startswith(f"{label} ")}
        rest = [piece for each in others if (piece := join_words(each))]
        return self.is_long_enough and any(_are_in_order(start, rest, found) for start in starts)


def _are_in_order(start: str, rest: Iterable[str], found: str) -> bool:
    """Return True if the text `found` begins with `start`, and the pieces in `rest` follow in this order."""
    if not found.startswith(f" {start} ".replace("  ", " ")):
        return False
    place = len(start)
    for piece in rest:
        if (at := found.find(f" {piece} ", place)) < 0:
            return False
        place = at + len(piece) + 1
    return place > 0


def _is_made_of(shown: str, *, first: Sequence[str], further: Sequence[str]) -> bool:
    """Return True if the words `shown` are one of `first` and then any of `further`. The last one may be cut."""
    left = f"{shown} "
    seen: set[int] = set()
    places = [0]
    while places:
        place = places.pop()
        rest = left[place:]
        for text in first if place == 0 else further:
            if not text:
                continue
            if f"{text} ".startswith(rest):
                return True
            if rest.startswith(f"{text} ") and (after := place + len(text) + 1) not in seen:
                seen.add(after)
                places.append(after)
    return False


def join_words(text: str) -> str:
    """Return the words of a text, in lower case, with one blank between them."""
    return " ".join(words(text))


class EventTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What a line of a brief may show of an event."""

    labels: tuple[str, ...]  # the speaker or the kind, with which the line begins
    whole: str  # all of it, as briefs of earlier versions showed it
    texts: tuple[str, ...]  # statements that can be understood alone
    parts: tuple[str, ...] = ()  # what is left of a statement after the one before it


def texts_of_event(event: Event) -> EventTexts | None:
    """Return what a brief may show of a mark, a crystal, a teaching or a stated belief; None for any other event."""
    if is_tombstone(event):
        return None
    try:
        if event.name == CRYSTAL:
            crystal = crystal_of(event)
            excerpt = excerpt_of_crystal(crystal)
            return _event_texts([excerpt.kind], excerpt.text, [each.text for each in crystal.statements])
        speakers = [event.context.user or "", "user" if event.origin == "user" else "agent"]
        testimony = read_testimony(event)
        stated = [] if testimony is None else [each.text for each in testimony.stated]
        if event.name == MARK:
            return _texts_of_mark(mark_of(event), speakers, stated)
        if event.name == PROMOTED:
            stated += [each.text for each in teaching_of(event).statements]
            return _event_texts(["teaching", *speakers], "\n".join(stated), stated)
        return _event_texts(speakers, stated[0], stated) if stated else None
    except InvalidEvent:
        return None


def _texts_of_mark(mark: Mark, speakers: Sequence[str], stated: Sequence[str]) -> EventTexts:
    found = statements(mark.text, place=place_of(mark.tags), by=said_by(mark))
    labels = [*speakers, speaker_of(mark), next(iter(mark.tags), MARK)]
    parts = [part for each in found for part in (each.sentence, each.text.partition(": ")[2])]
    return _event_texts(labels, mark.text, [*(each.text for each in found), *stated], parts)


def _event_texts(labels: Iterable[str], whole: str, texts: Iterable[str], parts: Iterable[str] = ()) -> EventTexts:
    return EventTexts(
        labels=tuple(dict.fromkeys(filter(None, labels))),
        whole=neutralize_entry(whole),
        texts=tuple(map(neutralize_entry, dict.fromkeys(texts))),
        parts=tuple(map(neutralize_entry, dict.fromkeys(parts))),
    )


def _is_at(file: str, step: Event | None) -> bool:
    return step is None or f"{file} ".startswith(f"{_path(step)} ")


def _begins_path(file: str, step: Event | None) -> bool:
    return step is None or f"{_path(step)} ".startswith(f"{file} ")


def _path(step: Event) -> str:
    return join_words(str(step.data.get("path", "")))
