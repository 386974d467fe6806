"""Decides whether a later statement ends an earlier one, and how. Pure functions of two statements.

A false ending costs more than a missed one. So a cue is required, and a shared name (a file, a branch, an identifier)
or several shared words that cover much of the earlier statement. What the later statement affirms is not ended by it:
"a unique index instead of Redis" ends what was said about Redis only.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache

import msgspec

from mica.beliefs.cues import (
    ASKS,
    CHANGE,
    DONE,
    MOCKERY,
    NOT_DONE,
    ONCE,
    PROPOSAL,
    QUESTION,
    RENAME,
    REVERSAL,
    WITHDRAWAL,
    CueFamily,
)
from mica.beliefs.signs import family_entries
from mica.beliefs.statements import without_quotations
from mica.beliefs.subjects import WEEKDAYS, Subject, subject_of
from mica.model.belief import Belief, BeliefKind, Ending, Place
from mica.model.event import EventId
from mica.model.text_cache import remember_texts
from mica.words import words

USER_ONLY: frozenset[BeliefKind] = frozenset(["rule", "preference", "decision"])  # if a user stated them
AT_ONCE = timedelta(minutes=15)  # two sessions that say opposite things within this time do not know of each other
COVERAGE_REVERSED = 0.4  # share of the earlier statement's words that a reversal repeats
COVERAGE_DONE = 0.4
COVERAGE_LIST = 0.75  # if the earlier statement lists several things, one of which may still be open
COVERAGE_ANSWERED = 0.4
COVERAGE_ANSWERED_BY_USER = 0.3
DISTINCTIVE_LETTERS = 8  # of a word that may identify a thing alone, if nothing else is said about it
DISTINCTIVE_LETTERS_SHARED = 6
COVERAGE_WITHDRAWN = 0.33
COVERAGE_DISTINCT = 0.5
COVERAGE_OPPOSITE = 0.66
COVERAGE_REPAIRED = 0.4
COVERAGE_VALUE = 0.5


class LaterStatement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A statement that may end earlier beliefs."""

    text: str
    kind: BeliefKind | None
    by: str
    place: Place
    at: datetime
    event: EventId
    session: str | None


_AFFIRMED = CueFamily("affirmed")
_NAMING = CueFamily("naming")
_FIXES = CueFamily("fixes")
_ACCOUNTS = CueFamily("accounts")
_ALSO = re.compile(r"\b(?:also|too|as well|auch|también|aussi|ook|anche)\b", re.IGNORECASE)
_NOW = re.compile(r"\b(?:now|jetzt|nun|ahora|ya|maintenant|désormais|nu|ora|adesso)\b", re.IGNORECASE)
_LISTED = re.compile(r",|\b(?:and|und|y|et|en|e|plus|both|sowie)\b", re.IGNORECASE)
_EXCEPTION = CueFamily("exception")
_WAITS = CueFamily("waits")
_AGREEMENT = re.compile(r"^(?:yes|no|yep|nope|ja|nein|sí|no|oui|non|si)\b[,.: ]", re.IGNORECASE)
_SCOPES = [
    frozenset(each.split())
    for each in (
        "production prod staging preproduction preprod preproducción producción produktion préproduction test local",
        "frontend backend mobile desktop ios android web server client",
        "read write connect idle statement",
        "upload download import export",
        "german english french spanish deutsch englisch",
    )
]


class _Bearing(msgspec.Struct, frozen=True, gc=False):
    """What of an earlier statement a later one repeats."""

    shared: int
    names: int
    coverage: float  # of the earlier statement's words and names
    new_left: int  # words of the later statement that the earlier one does not have
    old_left: int
    only_affirmed: bool  # all that they share is what the later statement affirms


class _Signs(msgspec.Struct, frozen=True, gc=False):
    """The cues in a text."""

    is_open: bool  # a question, a proposal, a joke, an exception or something for this time only
    is_question: bool
    is_reversal: bool
    is_withdrawal: bool
    is_done: bool
    is_rename: bool
    is_change: bool


@remember_texts(4_096)
def _signs(text: str) -> _Signs:
    bare = without_quotations(text)
    asks = ASKS.weigh(bare) >= 1 and (bare.rstrip().endswith("?") or ASKS.weigh(bare) >= 2)
    return _Signs(
        is_open=asks
        or PROPOSAL.matches(bare)
        or MOCKERY.matches(bare)
        or ONCE.matches(bare)
        or _EXCEPTION.matches(bare),
        is_question=asks or QUESTION.matches(bare),
        is_reversal=REVERSAL.matches(bare),
        is_withdrawal=WITHDRAWAL.matches(bare),
        is_done=DONE.matches(bare) and not NOT_DONE.matches(bare),
        is_rename=RENAME.matches(text),
        is_change=CHANGE.matches(text),
    )


@remember_texts(4_096)
def _affirmed_stems(text: str) -> frozenset[str]:
    stems: frozenset[str] = frozenset()
    for match in _AFFIRMED.pattern.finditer(text.lower()):
        for segment in match.groups():
            if segment:
                subject = subject_of(segment)
                stems |= subject.stems | subject.names
    return stems


def is_hesitant(text: str) -> bool:
    """True for a question, a proposal, a joke, an exception, or something that is meant for this time only."""
    return _signs(text).is_open


def ending_of(old: Belief, new: LaterStatement) -> Ending | None:
    """Return how a statement ends a belief, or None if it does not."""
    if not _may_end(old, new):
        return None
    signs = _signs(new.text)
    before, after = subject_of(old.text), subject_of(new.text)
    bearing = _bearing(before, after, new.text)
    if not bearing.shared or _differ_in_label(before, after):
        return None
    if _is_other_choice(old, new, before, after) and not signs.is_open:
        return "replaced"
    is_repair = old.kind == "gotcha" and bearing.shared >= 3 and bearing.coverage >= COVERAGE_REPAIRED
    if _differ_in_scope(before, after) or (_are_siblings(before, after) and not is_repair):
        return None
    if old.kind == "question":
        return _ending_of_question(old, new, signs, bearing)
    if signs.is_open and not (signs.is_withdrawal and not signs.is_question):
        return None
    if old.kind == "task":
        return _ending_of_task(old, new, signs, bearing, after)
    return _ending_of_statement(old, new, signs=signs, bearing=bearing, before=before, after=after)


def contradicts(old: Belief, new: LaterStatement) -> bool:
    """True if a belief and a statement cannot both hold, and nothing says which of them does.

    They are about the same subject in the same words, but with another value, or one of them with a negation.
    """
    before, after = subject_of(old.text), subject_of(new.text)
    if new.event in old.evidence or not before.stems or before.stems != after.stems or before.names != after.names:
        return False
    if new.kind != old.kind or new.kind in ("task", "question") or _signs(new.text).is_open:
        return False
    if len(before.stems) + len(before.names) < 2:
        return False
    has_values = bool(before.values and after.values)
    return (has_values and before.values != after.values) or (
        before.values == after.values and before.is_negated != after.is_negated
    )


def _may_end(old: Belief, new: LaterStatement) -> bool:
    """True if the speaker, the time and the place allow it: never within one mark, never what a user alone may end."""
    if new.event in old.evidence or new.at < old.last_at or new.by not in ("user", "agent"):
        return False
    return new.by == "user" or not (old.by == "user" and old.kind in USER_ONLY)


def _bearing(before: Subject, after: Subject, text: str) -> _Bearing:
    names = before.names & after.names
    # A name in one statement may be a plain word in the other.
    loose = (before.names & after.stems) | (before.stems & after.names)
    stems = before.stems & after.stems
    shared = names | stems | loose
    total = len(before.names | before.stems)
    affirmed = _affirmed_stems(text)
    return _Bearing(
        shared=len(shared),
        names=len(names),
        coverage=len(shared) / total if total else 0.0,
        new_left=len((after.stems | after.names) - shared),
        old_left=total - len(shared),
        only_affirmed=bool(affirmed) and shared <= affirmed,
    )


def _are_siblings(before: Subject, after: Subject) -> bool:
    """True if both speak of the same kind of thing, but not of the same one: "invoice checks" and "parser checks"."""
    for stem in before.qualifiers.keys() & after.qualifiers.keys():
        mine, theirs = before.qualifiers[stem] - after.stems, after.qualifiers[stem] - before.stems
        if mine and theirs:
            return True
    return False


_MEASURES = {
    "clock": re.compile(r"\b\d{1,2}:\d\d\b|\b\d{1,2} ?(?:am|pm|uhr|h)\b"),
    "version": re.compile(r"\bv?\d+\.\d+(?:\.\d+)?\b(?! ?(?:%|s\b|ms|gb|mb))"),
    "percent": re.compile(r"\d ?(?:%|percent|prozent|por ciento|pour cent|procent)"),
    "money": re.compile(r"[€$£] ?\d|\d ?(?:€|eur|usd|chf|dollars?|francs?|franken)"),
    "time": re.compile(r"\d ?(?:ms|s|sec|min|seconds?|minutes?|hours?|days?|weeks?|months?|years?)\b"),
    "zeit": re.compile(
        r"\d ?(?:sekunden?|minuten?|stunden?|tagen?|wochen?|monaten?|jahren?|segundos?|minutos?|horas?)\b"
    ),
    "temps": re.compile(
        r"\d ?(?:días?|semanas?|meses|años|secondes?|heures?|jours?|semaines?|mois|ans|giorni|dagen|ore)\b"
    ),
    "size": re.compile(r"\d ?(?:kb|mb|gb|tb|kg|km|lines|rows|zeilen)\b"),
}


@remember_texts(1_024)
def _measures(text: str) -> frozenset[str]:
    """Return what is measured in a text: a time of day, a version, a duration; and the kinds of days it names."""
    lowered = text.lower()
    found = {name for name, pattern in _MEASURES.items() if pattern.search(lowered)}
    if any(value in WEEKDAYS or f"{value}s" in WEEKDAYS for value in subject_of(text).values):
        found.add("day")
    return frozenset("time" if name in ("zeit", "temps") else name for name in found)


def _differ_in_label(before: Subject, after: Subject) -> bool:
    """True if both name a number of the same kind of thing, but not the same one: "step 1" and "step 2"."""
    return bool(before.labels and after.labels) and not before.labels & after.labels


def _is_other_choice(old: Belief, new: LaterStatement, before: Subject, after: Subject) -> bool:
    """True if a user says the same again with another tool or language: "commits in English", "commits in German"."""
    if old.kind not in USER_ONLY or new.by != "user" or new.kind not in USER_ONLY:
        return False
    gone, come = before.stems - after.stems, after.stems - before.stems
    is_same = before.names == after.names and before.values == after.values and before.is_negated == after.is_negated
    return is_same and len(gone) == len(come) == 1 and gone | come <= _choices() and bool(before.stems & after.stems)


@cache
def _choices() -> frozenset[str]:
    return frozenset(stem for entry in family_entries("tools") for stem in subject_of(entry).stems)


def _differ_in_scope(before: Subject, after: Subject) -> bool:
    """True if both name an environment, platform or direction, and not the same one."""
    for scope in _SCOPES:
        mine, theirs = before.stems & _scope_stems(scope), after.stems & _scope_stems(scope)
        if mine and theirs and not mine & theirs:
            return True
    return False


@remember_texts(64)
def _scope_stems(scope: frozenset[str]) -> frozenset[str]:
    return frozenset(stem for word in scope for stem in subject_of(word).stems)


def _ending_of_question(old: Belief, new: LaterStatement, signs: _Signs, bearing: _Bearing) -> Ending | None:
    if signs.is_question or new.kind == "question":
        return None
    if signs.is_withdrawal and new.by == "user" and bearing.coverage >= COVERAGE_REVERSED:
        return "withdrawn"
    if signs.is_open or new.place == "commit":
        return None
    if new.by == "agent" and old.by == "user" and (_WAITS.matches(old.text) or bearing.coverage < COVERAGE_LIST):
        return None
    is_enough = (
        bearing.shared >= 2 or bearing.names or _AGREEMENT.match(new.text) or (new.by != old.by and new.by == "user")
    )
    needed = COVERAGE_ANSWERED_BY_USER if new.by == "user" and bearing.shared >= 2 else COVERAGE_ANSWERED
    return "answered" if is_enough and bearing.coverage >= needed else None


def _ending_of_task(
    old: Belief, new: LaterStatement, signs: _Signs, bearing: _Bearing, after: Subject
) -> Ending | None:
    if new.kind in ("task", "question"):
        return None
    if signs.is_withdrawal and new.by == "user" and bearing.coverage >= COVERAGE_REVERSED:
        return "withdrawn"
    values = subject_of(old.text).values & after.values
    before = subject_of(old.text)
    bearing = _with_past_verbs(bearing, before, after, new.text)
    shared = bearing.shared + len(values)
    needed = COVERAGE_LIST if _LISTED.search(old.text) else COVERAGE_DONE
    is_done = signs.is_done or (new.place == "commit" and not NOT_DONE.matches(new.text))
    is_done = is_done or (
        new.by == "agent"
        and bearing.coverage >= COVERAGE_LIST
        and bool(_NOW.search(new.text))
        and not NOT_DONE.matches(new.text)
    )
    is_whole = bearing.coverage == 1 and any(len(stem) >= DISTINCTIVE_LETTERS for stem in subject_of(old.text).stems)
    has_value = bool(values) and new.place == "commit" and bearing.old_left <= 2
    is_distinct = signs.is_done and not _LISTED.search(old.text) and bearing.coverage >= COVERAGE_DONE
    is_distinct = is_distinct and bearing.new_left <= 3 and bearing.old_left <= 1
    is_distinct = is_distinct and any(
        len(stem) >= DISTINCTIVE_LETTERS for stem in subject_of(old.text).stems & after.stems
    )
    is_enough = is_whole or is_distinct or (shared >= 2 and (bearing.coverage >= needed or has_value))
    return "done" if is_done and is_enough else None


def _with_past_verbs(bearing: _Bearing, before: Subject, after: Subject, text: str) -> _Bearing:
    """Count a verb of a task that the later statement has in the past: "call the bank", "called the bank"."""
    past = {word[:-2] for word in words(text) if word.endswith("ed")}
    extra = len((before.stems - after.stems) & past)
    if not extra:
        return bearing
    total = len(before.names | before.stems)
    shared = bearing.shared + extra
    return msgspec.structs.replace(bearing, shared=shared, coverage=shared / total, old_left=total - shared)


def _ending_of_statement(
    old: Belief, new: LaterStatement, *, signs: _Signs, bearing: _Bearing, before: Subject, after: Subject
) -> Ending | None:
    is_restated = before.same == after.same or (
        bearing.coverage >= 0.8
        and bearing.new_left == 0
        and before.values == after.values
        and before.is_negated == after.is_negated
    )
    if is_restated and not signs.is_withdrawal and not (old.kind == "gotcha" and _FIXES.matches(new.text)):
        return None
    if _is_new_value(old, new, signs=signs, bearing=bearing, before=before, after=after):
        return "replaced"
    if old.kind == "gotcha":
        is_fixed = (
            (signs.is_reversal or _FIXES.matches(new.text))  # "I restarted it" only follows the advice
            and bearing.shared >= 2
            and bearing.coverage >= COVERAGE_REVERSED
        )
        is_repair = new.place == "commit" and not _ACCOUNTS.matches(new.text) and not NOT_DONE.matches(new.text)
        is_repair = is_repair and bearing.shared >= 3 and bearing.coverage >= COVERAGE_REPAIRED
        return "done" if (is_fixed and not bearing.only_affirmed) or is_repair else None
    if _is_new_holder(old, new, signs=signs, bearing=bearing):
        return "replaced"
    if signs.is_rename and old.kind == "fact" and (bearing.names or bearing.shared) and _NAMING.matches(f"{old.text} "):
        return "replaced"
    if bearing.only_affirmed and not before.is_negated:
        return None
    is_bearing = (
        (bearing.shared >= 2 and bearing.coverage >= COVERAGE_REVERSED)
        or (bearing.names >= 1 and bearing.coverage >= COVERAGE_REVERSED)
        or (bearing.coverage == 1 and new.by == old.by == "user")
        or (new.by == old.by == "user" and _is_distinct(old, bearing, before, after, is_withdrawal=signs.is_withdrawal))
    )
    if not is_bearing or bearing.new_left > 12:
        return None
    if signs.is_withdrawal:
        return "withdrawn"
    return "replaced" if signs.is_reversal or _is_opposite(old, new, bearing, before, after) else None


def _is_new_holder(old: Belief, new: LaterStatement, *, signs: _Signs, bearing: _Bearing) -> bool:
    """True if a user says that the same holds of another one now: "Ben does the invoices now, Anna left"."""
    is_whole = bearing.coverage == 1 and bearing.shared >= 2 and 1 <= bearing.new_left <= 2
    return old.kind == "fact" and new.by == "user" and signs.is_change and is_whole and not _ALSO.search(new.text)


def _is_distinct(old: Belief, bearing: _Bearing, before: Subject, after: Subject, *, is_withdrawal: bool) -> bool:
    """True if the words that both share are few but long, and the later statement says little else."""
    shared = (before.stems | before.names) & (after.stems | after.names)
    is_long = any(len(stem) >= DISTINCTIVE_LETTERS_SHARED or stem in _choices() for stem in shared)
    needed = COVERAGE_WITHDRAWN if is_withdrawal else COVERAGE_DISTINCT
    return old.kind in USER_ONLY and is_long and bearing.coverage >= needed and bearing.new_left <= 5


def _is_opposite(old: Belief, new: LaterStatement, bearing: _Bearing, before: Subject, after: Subject) -> bool:
    """True if a user says about the same thing that it is so, and before that it is not so; or the other way round."""
    if new.by != "user" or new.kind not in USER_ONLY or old.kind not in USER_ONLY:
        return False
    shared = bearing.shared + len(before.values & after.values)
    is_same = before.values == after.values and bearing.coverage >= COVERAGE_OPPOSITE and bearing.new_left <= 1
    return before.is_negated != after.is_negated and shared >= 2 and is_same


def _is_new_value(
    old: Belief, new: LaterStatement, *, signs: _Signs, bearing: _Bearing, before: Subject, after: Subject
) -> bool:
    """True if a statement gives a new value for a belief: with a cue, or in the same words."""
    if not before.values or not after.values or before.values & after.values == before.values:
        return False
    if bearing.old_left == bearing.new_left == 0 and bearing.shared >= 2:  # the same words, another value
        return signs.is_change or old.session == new.session or new.at - old.last_at > AT_ONCE
    if not signs.is_change or old.kind == "gotcha":
        return False
    is_same = min(bearing.new_left, bearing.old_left) == 0 or bearing.shared >= 2
    is_alike = bool(_measures(old.text) & _measures(new.text))
    is_narrow = bearing.new_left <= (4 if is_alike and bearing.shared >= 2 else 2) or bearing.old_left == 0
    is_same = is_same or (is_alike and new.by == "user" and bearing.new_left <= 1)
    return is_same and is_narrow and bearing.coverage >= COVERAGE_VALUE
